//! Registered memory at a fixed address.
//!
//! # Safety
//!
//! The memory is accessed by raw pointers only, and unmapped after all objects that name it are
//! destroyed.
#![allow(unsafe_code, reason = "maps memory for the device")]

use std::ptr::with_exposed_provenance_mut;

use uverbs::raw::Sge;

pub(crate) const BASE: usize = 0x20_0000_0000;
pub(crate) const MEMORY: usize = 1 << 20;

/// The mapping.
pub(crate) struct Area;

impl Area {
    pub(crate) fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let place = with_exposed_provenance_mut(BASE);
        // SAFETY: maps memory at an address that was free.
        let at =
            unsafe { libc::mmap(place, MEMORY, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_eq!(at.expose_provenance(), BASE, "{}", std::io::Error::last_os_error());
        for i in 0..MEMORY {
            let byte = (i * 7 + (i >> 8) * 13 + 1) as u8;
            // SAFETY: within the mapping just made.
            unsafe { Self::byte(i).write_volatile(byte) };
        }
        Self
    }

    pub(crate) fn byte(offset: usize) -> *mut u8 {
        with_exposed_provenance_mut(BASE + offset)
    }

    pub(crate) fn hash(&self) -> u64 {
        (0..MEMORY).fold(0xcbf2_9ce4_8422_2325, |hash: u64, i| {
            // SAFETY: within the mapping; the device is idle.
            let byte = unsafe { Self::byte(i).read_volatile() };
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; all objects that name it are destroyed.
        unsafe { libc::munmap(with_exposed_provenance_mut(BASE), MEMORY) };
    }
}

/// Bytes that an SGE names, for inline data.
pub(crate) fn bytes(sge: &Sge) -> Vec<u8> {
    let offset = sge.addr as usize - BASE;
    // SAFETY: within the area; the device is idle.
    let read = |at| unsafe { Area::byte(at).read_volatile() };
    (offset..offset + sge.len as usize).map(read).collect()
}
