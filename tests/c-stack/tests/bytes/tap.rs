//! Device that logs its commands.
#![allow(unsafe_code, reason = "passes on commands")]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use uverbs::softhca::SoftHca;
use uverbs::unstable::doors::{DeviceRecord, DeviceSource, Recorder, UverbsDoor};
use uverbs_core::Errno;

use c_stack::log;
use c_stack::obliging::Obliging;

/// Device that logs its commands in the preloaded library's format.
#[derive(Debug)]
pub(crate) struct Tapped {
    pub(crate) device: SoftHca,
    pub(crate) lines: Arc<Mutex<String>>,
}

impl DeviceSource for Tapped {
    fn record(&self) -> &DeviceRecord {
        self.device.record()
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let recorder = Recorder::new(Arc::new(Obliging(self.device.open()?)));
        Ok(Arc::new(Tap { recorder, lines: Arc::clone(&self.lines) }))
    }

    fn import(&self, file: BorrowedFd<'_>) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let recorder = Recorder::new(self.device.import(file)?);
        Ok(Arc::new(Tap { recorder, lines: Arc::clone(&self.lines) }))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.device.pkey(port, index)
    }
}

#[derive(Debug)]
struct Tap {
    recorder: Recorder,
    lines: Arc<Mutex<String>>,
}

// SAFETY: passes on the results of the inner door, which keeps the contract.
unsafe impl UverbsDoor for Tap {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: by the contract of `ioctl`.
        let result = unsafe { self.recorder.ioctl(command) };
        for recorded in self.recorder.take() {
            *self.lines.lock().unwrap() += &log::line(0, &recorded);
        }
        result
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<uverbs_core::memory::pages::Pages, Errno> {
        let result = self.recorder.mmap(len, offset);
        let errno = result.as_ref().err().map_or(0, |errno| errno.raw());
        *self.lines.lock().unwrap() += &format!("fd 0 mmap {len} {offset:#x} = {errno}\n");
        result
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.recorder.export()
    }
}
