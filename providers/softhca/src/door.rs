//! Door of a software HCA: the front's, over the device's lock and thread.
#![allow(unsafe_code, reason = "speaks for the device, whose use of memory the front can't check")]

use std::sync::{Arc, Weak};

use uverbs_core::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_front::door::{self, Runner};

use crate::handle::Handle;
use crate::hca::Hca;
use crate::model::Kernel;
use crate::progress;
use crate::softhca::Inner;
use crate::wire::shared::area;

/// An open device file.
pub(crate) type Door = door::Door<Opener>;

/// Device of a door.
pub(crate) struct Opener {
    shared: Handle,
    /// The device, while a handle of it exists.
    device: Weak<Inner>,
}

impl Opener {
    /// Device of the door.
    pub(crate) fn device(&self) -> Option<Arc<Inner>> {
        self.device.upgrade()
    }
}

impl Runner for Opener {
    type Device = Hca;

    fn change<T>(&self, act: impl FnOnce(&mut Kernel) -> T) -> T {
        self.shared.change(act)
    }

    fn look<T>(&self, act: impl FnOnce(&Kernel) -> T) -> T {
        act(&self.shared.lock())
    }

    fn finish(&self) {
        self.shared.finish();
    }

    /// Allocates memory that other devices can map, which they copy faster from. An in-process
    /// device gains nothing by that, and profits from huge pages.
    fn memory(&self, len: usize) -> Option<Pages> {
        let device = self.device()?;
        device.link.as_ref().filter(|link| link.is_shared()).and_then(|_| area::allocate(len))
    }

    fn progress(&self) {
        progress::work(&self.shared);
    }

    fn wants_progress(&self) -> bool {
        self.shared.wants_progress()
    }

    fn will_sleep(&self) {
        progress::end_naps(&self.shared);
    }

    fn leave(&self) {
        self.shared.leave();
    }
}

/// Opens the device.
///
/// # Errors
///
/// `ENOENT` if the device is gone.
pub(crate) fn open(device: &Arc<Inner>) -> Result<Arc<Door>, Errno> {
    let opener = Opener { shared: device.shared.clone(), device: Arc::downgrade(device) };
    // SAFETY: `Hca` reaches memory by `Dma` alone, at addresses of its objects' regions, and
    // forgets them when an object is destroyed. `Handle` leads to one front.
    unsafe { Door::open(opener) }
}
