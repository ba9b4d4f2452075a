//! A device whose commands are not counted.
//!
//! # Safety
//!
//! The door forwards commands and mappings.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::doors::{DeviceRecord, DeviceSource, UverbsDoor};
use uverbs_core::memory::pages::Pages;

use crate::callgrind;

/// A software device behind a door that counts nothing. Polls that find nothing leave it alone.
#[derive(Debug)]
pub(crate) struct Quiet(pub(crate) Arc<dyn DeviceSource>);

impl DeviceSource for Quiet {
    fn record(&self) -> &DeviceRecord {
        self.0.record()
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        Ok(Arc::new(QuietDoor(self.0.open()?)))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.0.pkey(port, index)
    }
}

/// Forwards commands and mappings. Polls do not drive the device, so that they are counted alone.
#[derive(Debug)]
struct QuietDoor(Arc<dyn UverbsDoor>);

// SAFETY: forwards commands and mappings.
unsafe impl UverbsDoor for QuietDoor {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: by the contract of `ioctl`.
        callgrind::without(|| unsafe { self.0.ioctl(command) })
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.0.mmap(len, offset)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        self.0.raw_fd()
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.0.export()
    }
}
