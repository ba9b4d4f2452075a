//! Handle of a device. The device ends with the last handle: dropping it closes the sockets, so
//! that another device can have the address.
//!
//! The device's thread also holds the device, for a slice at a time. If the last handle is dropped
//! meanwhile, the thread ends the device, and the drop waits for that.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::Shared;

/// Limit of the wait for the device's thread, which a debugger may have stopped.
const LIMIT: Duration = Duration::from_secs(1);
/// Interval between two tests of the device's end.
const LOOK: Duration = Duration::from_micros(50);

/// Handle of a device; see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    // Dropped in this order: the device, then the wait for its end.
    shared: Arc<Shared>,
    _end: Arc<End>,
}

impl Handle {
    /// Creates the first handle of a device.
    pub(crate) fn new(shared: Shared) -> Self {
        let end = Arc::new(End { alive: shared.alive() });
        Self { shared: Arc::new(shared), _end: end }
    }

    /// Reference for the device's thread.
    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// True if a reference is to this device.
    pub(crate) fn is(&self, other: &Weak<Shared>) -> bool {
        std::ptr::eq(other.as_ptr(), Arc::as_ptr(&self.shared))
    }

    /// Called in a forked child, whose copy of the device has no thread, a lock that may be held
    /// for ever, and no mappings. The copy is leaked.
    pub(crate) fn leave(&self) {
        std::mem::forget(self.clone());
    }
}

impl Deref for Handle {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// Waits for the device's end when the last handle is dropped.
#[derive(Debug)]
struct End {
    /// Upgradable while any part of the device exists.
    alive: Weak<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        let start = Instant::now();
        while self.alive.strong_count() > 0 && start.elapsed() < LIMIT {
            // Sleeps, since a yield gives no time to a device's thread of lower priority.
            thread::sleep(LOOK);
        }
    }
}
