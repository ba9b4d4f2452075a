//! Device memory: bytes in the device itself. The processor accesses them through the BAR, work
//! requests through keys; both see the same bytes. A vfio-user client may map them: then they are
//! pages of a file.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_core::memory::pages::Pages;

use super::bar::DEVICE_MEMORY as IN_BAR;
use super::capabilities::DEVICE_MEMORY_LEN as LEN;
use crate::hca::{Dma, DmaFault};
use crate::memory::ProcessDma;

/// Address of device memory for the HCA side: higher than any bus address of a processor.
pub(crate) const ON_BUS: u64 = 1 << 63;

/// Bytes of device memory.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    own: Box<[AtomicU64]>,
    /// The client's mapping, in place of `own`.
    shared: Mutex<Option<Pages>>,
}

impl DeviceMemory {
    pub(crate) fn new() -> Self {
        let own = (0..LEN / 8).map(|_| AtomicU64::new(0)).collect();
        Self { own, shared: Mutex::default() }
    }

    fn shared(&self) -> MutexGuard<'_, Option<Pages>> {
        // The lock guards which pages are used, so a poisoned one is fine.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the pages of a file that is as long as the BAR. They must be zeros, and no memory is
    /// allocated.
    pub(crate) fn share(&self, bar: BorrowedFd<'_>) -> io::Result<()> {
        let pages = Pages::shared(bar, LEN as usize, IN_BAR);
        let pages = pages.map_err(|errno| io::Error::from_raw_os_error(errno.raw()))?;
        *self.shared() = Some(pages);
        Ok(())
    }

    /// Uses memory that no client has mapped.
    pub(crate) fn unshare(&self) {
        *self.shared() = None;
    }

    /// Calls `access` with the address of a range of bytes. None beyond the end.
    fn at<T>(&self, offset: u64, len: u64, access: impl FnOnce(u64) -> T) -> Option<T> {
        let shared = self.shared();
        let start = match &*shared {
            Some(pages) => pages.as_mut_ptr().expose_provenance(),
            None => self.own.as_ptr().expose_provenance(),
        };
        let inside = offset.checked_add(len).is_some_and(|end| end <= LEN);
        inside.then(|| access(start as u64 + offset))
    }

    fn read(&self, offset: u64, data: &mut [u8]) -> Option<()> {
        self.at(offset, data.len() as u64, |at| ProcessDma.read(at, data))?.ok()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Option<()> {
        self.at(offset, data.len() as u64, |at| ProcessDma.write(at, data))?.ok()
    }

    /// Changes a byte, and returns the old one. None beyond the end.
    pub(crate) fn change(&self, offset: u64, change: impl Fn(u8) -> u8) -> Option<u8> {
        let byte = (offset % 8) as usize;
        let mut update = |old: u64| {
            let mut bytes = old.to_ne_bytes();
            bytes[byte] = change(bytes[byte]);
            u64::from_ne_bytes(bytes)
        };
        let old = self.at(offset & !7, 8, |at| ProcessDma.fetch_update_u64(at, &mut update))?;
        Some(old.ok()?.to_ne_bytes()[byte])
    }

    /// Zeroes a range.
    pub(crate) fn clear(&self, offset: u64, len: u64) {
        self.write(offset, &vec![0; len.min(LEN) as usize]);
    }

    /// Executes a processor's load. False for another part of the BAR.
    pub(crate) fn load(&self, bar: u64, data: &mut [u8]) -> bool {
        bar.checked_sub(IN_BAR).is_some_and(|offset| self.read(offset, data).is_some())
    }

    /// Executes a processor's store. False for another part of the BAR.
    pub(crate) fn store(&self, bar: u64, data: &[u8]) -> bool {
        bar.checked_sub(IN_BAR).is_some_and(|offset| self.write(offset, data).is_some())
    }
}

/// Memory for the HCA side: the host's, and the device's.
#[derive(Debug)]
pub(crate) struct WithDeviceMemory {
    pub(crate) host: Arc<dyn Dma + Sync>,
    pub(crate) memory: Arc<DeviceMemory>,
}

impl WithDeviceMemory {
    /// Accesses device memory, if the address is in it.
    fn own<T>(
        &self,
        addr: u64,
        len: u64,
        access: impl FnOnce(u64) -> Result<T, DmaFault>,
    ) -> Option<Result<T, DmaFault>> {
        let offset = addr.checked_sub(ON_BUS)?;
        let fault = DmaFault { addr, len };
        Some(self.memory.at(offset, len, access).and_then(Result::ok).ok_or(fault))
    }
}

impl Dma for WithDeviceMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        let own = self.own(addr, buf.len() as u64, |at| ProcessDma.read(at, buf));
        own.unwrap_or_else(|| self.host.read(addr, buf))
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        let own = self.own(addr, data.len() as u64, |at| ProcessDma.write(at, data));
        own.unwrap_or_else(|| self.host.write(addr, data))
    }

    fn load_u32(&self, addr: u64) -> Result<u32, DmaFault> {
        let own = self.own(addr, 4, |at| ProcessDma.load_u32(at));
        own.unwrap_or_else(|| self.host.load_u32(addr))
    }

    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaFault> {
        let own = self.own(addr, 4, |at| ProcessDma.store_u32(at, value));
        own.unwrap_or_else(|| self.host.store_u32(addr, value))
    }

    fn store_u8(&self, addr: u64, value: u8) -> Result<(), DmaFault> {
        let own = self.own(addr, 1, |at| ProcessDma.store_u8(at, value));
        own.unwrap_or_else(|| self.host.store_u8(addr, value))
    }

    fn fetch_update_u64(
        &self,
        addr: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        let own = self.own(addr, 8, |at| ProcessDma.fetch_update_u64(at, update));
        own.unwrap_or_else(|| self.host.fetch_update_u64(addr, update))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;
    use crate::hca::testing::Arena;

    #[test]
    fn each_access_goes_to_its_memory_and_ends_at_its_end() {
        let arena = Arc::new(Arena::new(4096));
        let memory = Arc::new(DeviceMemory::new());
        let dma = WithDeviceMemory { host: arena.clone(), memory: Arc::clone(&memory) };
        for base in [arena.base(), ON_BUS] {
            dma.write(base, &[1; 16]).unwrap();
            dma.store_u32(base + 4, 7).unwrap();
            dma.store_u8(base + 15, 9).unwrap();
            assert_eq!(dma.load_u32(base + 4), Ok(7));
            assert_eq!(
                dma.fetch_update_u64(base, &mut |old| old + 1),
                dma.fetch_update_u64(base, &mut |old| old).map(|now| now - 1)
            );
            let mut back = [0; 16];
            dma.read(base, &mut back).unwrap();
            assert_eq!(back[8..], [1, 1, 1, 1, 1, 1, 1, 9]);
            assert_eq!(back[4..8], 7u32.to_ne_bytes());
        }
        let mut seen = [0; 16];
        assert!(memory.load(IN_BAR, &mut seen));
        assert_eq!(seen[15], 9);
        let last = ON_BUS + LEN;
        assert_eq!(dma.write(last - 8, &[0; 8]), Ok(()));
        for addr in [last - 7, last, u64::MAX] {
            let fault = DmaFault { addr, len: 8 };
            assert_eq!(dma.write(addr, &[0; 8]), Err(fault));
            assert_eq!(dma.read(addr, &mut [0; 8]), Err(fault));
            assert_eq!(dma.fetch_update_u64(addr, &mut |old| old), Err(fault));
            assert_eq!(dma.fetch_update_u64(addr, &mut |old| old), Err(fault));
            assert!(!memory.store(addr - ON_BUS + IN_BAR, &[0; 8]));
        }
        assert!(!memory.load(IN_BAR - 1, &mut [0; 8]));
    }

    /// A client's stores into its file are the device's memory, and no later client's.
    #[test]
    fn a_client_has_the_memory_in_its_file_until_it_leaves() {
        let bar = File::from(memfd_create(c"bar", MFdFlags::MFD_CLOEXEC).unwrap());
        bar.set_len(IN_BAR + LEN).unwrap();
        let memory = DeviceMemory::new();
        memory.share(bar.as_fd()).unwrap();
        bar.write_all_at(&[7], IN_BAR + 100).unwrap();
        let mut seen = [0];
        assert!(memory.load(IN_BAR + 100, &mut seen) && seen == [7]);
        assert_eq!(memory.change(100, |old| old + 1), Some(7));
        assert_eq!(memory.change(LEN, |old| old), None);
        bar.read_exact_at(&mut seen, IN_BAR + 100).unwrap();
        assert_eq!(seen, [8]);
        memory.unshare();
        assert!(memory.load(IN_BAR + 100, &mut seen) && seen == [0]);
        assert!(memory.store(IN_BAR + 100, &[9]));
        bar.read_exact_at(&mut seen, IN_BAR + 100).unwrap();
        assert_eq!(seen, [8]);
    }
}
