//! A hold on a device. The device ends with the last of them: its sockets are closed when that is
//! dropped, so that another device can have the address.
//!
//! The device's thread holds the device for a slice at a time, too. If the last handle is dropped
//! meanwhile, the thread is the one that ends the device, and the handle waits for it.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::Shared;

/// Longest wait for the device's thread: a thread stopped by a debugger must not block others.
const LIMIT: Duration = Duration::from_secs(1);
/// The time between two looks at the device's sockets.
const LOOK: Duration = Duration::from_micros(50);

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    // In this order: the last handle gives the device up, and then waits.
    shared: Arc<Shared>,
    _end: Arc<End>,
}

impl Handle {
    /// The first one of a device.
    pub(crate) fn new(shared: Shared) -> Self {
        let end = Arc::new(End { held: shared.held() });
        Self { shared: Arc::new(shared), _end: end }
    }

    /// For the device's thread.
    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// In a forked child: what it has of the device is a copy without a thread, perhaps locked for
    /// good, and the memory that the device reached isn't there. It is left as it is.
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

/// Dropped with the last handle.
#[derive(Debug)]
struct End {
    /// There until all else of the device is gone.
    held: Weak<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        let start = Instant::now();
        while self.held.strong_count() > 0 && start.elapsed() < LIMIT {
            // A yield would give the device's thread no time if this one has a higher priority.
            thread::sleep(LOOK);
        }
    }
}
