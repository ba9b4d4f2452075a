//! Device memory: bytes in the device itself. The processor accesses them through the BAR, work
//! requests through keys; both see the same bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bar::DEVICE_MEMORY as IN_BAR;
use super::capabilities::DEVICE_MEMORY_LEN as LEN;
use crate::hca::{Dma, DmaFault};

/// Address of device memory for the HCA side: higher than any bus address of a processor.
pub(crate) const ON_BUS: u64 = 1 << 63;

/// Bytes of device memory.
#[derive(Debug)]
pub(crate) struct DeviceMemory(Mutex<Box<[u8]>>);

impl DeviceMemory {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(vec![0; LEN as usize].into()))
    }

    fn bytes(&self) -> MutexGuard<'_, Box<[u8]>> {
        // A panic leaves no half-written byte, so a poisoned lock is fine.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `access` with a range of bytes. None beyond the end.
    pub(crate) fn at<T>(
        &self,
        offset: u64,
        len: u64,
        access: impl FnOnce(&mut [u8]) -> T,
    ) -> Option<T> {
        let end = offset.checked_add(len)?;
        let range = usize::try_from(offset).ok()?..usize::try_from(end).ok()?;
        self.bytes().get_mut(range).map(access)
    }

    /// Zeroes a range.
    pub(crate) fn clear(&self, offset: u64, len: u64) {
        self.at(offset, len, |bytes| bytes.fill(0));
    }

    /// Executes a processor's load. False for another part of the BAR.
    pub(crate) fn load(&self, bar: u64, data: &mut [u8]) -> bool {
        let Some(offset) = bar.checked_sub(IN_BAR) else { return false };
        self.at(offset, data.len() as u64, |bytes| data.copy_from_slice(bytes)).is_some()
    }

    /// Executes a processor's store. False for another part of the BAR.
    pub(crate) fn store(&self, bar: u64, data: &[u8]) -> bool {
        let Some(offset) = bar.checked_sub(IN_BAR) else { return false };
        self.at(offset, data.len() as u64, |bytes| bytes.copy_from_slice(data)).is_some()
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
    fn own<const N: usize, T>(
        &self,
        addr: u64,
        access: impl FnOnce(&mut [u8; N]) -> T,
    ) -> Option<Result<T, DmaFault>> {
        let offset = addr.checked_sub(ON_BUS)?;
        let fault = DmaFault { addr, len: N as u64 };
        let done = self.memory.at(offset, N as u64, |bytes| bytes.try_into().ok().map(access));
        Some(done.flatten().ok_or(fault))
    }
}

impl Dma for WithDeviceMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        let Some(offset) = addr.checked_sub(ON_BUS) else { return self.host.read(addr, buf) };
        let fault = DmaFault { addr, len: buf.len() as u64 };
        let len = buf.len() as u64;
        self.memory.at(offset, len, |bytes| buf.copy_from_slice(bytes)).ok_or(fault)
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        let Some(offset) = addr.checked_sub(ON_BUS) else { return self.host.write(addr, data) };
        let fault = DmaFault { addr, len: data.len() as u64 };
        self.memory.at(offset, fault.len, |bytes| bytes.copy_from_slice(data)).ok_or(fault)
    }

    fn load_u32(&self, addr: u64) -> Result<u32, DmaFault> {
        let own = self.own(addr, |bytes| u32::from_ne_bytes(*bytes));
        own.unwrap_or_else(|| self.host.load_u32(addr))
    }

    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaFault> {
        let own = self.own(addr, |bytes| *bytes = value.to_ne_bytes());
        own.unwrap_or_else(|| self.host.store_u32(addr, value))
    }

    fn store_u8(&self, addr: u64, value: u8) -> Result<(), DmaFault> {
        let own = self.own(addr, |bytes| *bytes = [value]);
        own.unwrap_or_else(|| self.host.store_u8(addr, value))
    }

    fn fetch_update_u64(
        &self,
        addr: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        let own = self.own(addr, |bytes| {
            let old = u64::from_ne_bytes(*bytes);
            *bytes = update(old).to_ne_bytes();
            old
        });
        own.unwrap_or_else(|| self.host.fetch_update_u64(addr, update))
    }
}

#[cfg(test)]
mod tests {
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
}
