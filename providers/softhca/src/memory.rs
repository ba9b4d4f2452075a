//! Process memory as the device reaches it.
//!
//! In process, a bus address is a virtual address. The device's accesses race with the client's. So
//! data is copied in words (8 bytes where aligned, single bytes at the ends; `copy`), without
//! references, and without plain copies that the compiler could assume to be exclusive. Words of an
//! aligned CQE or doorbell record are never seen half written.
//!
//! # Safety
//!
//! An address is in memory of `board/memory.rs`, whose lock keeps it, or in a mapping that
//! `vfio_user/memory.rs` holds, or it comes from a region of `REG_MR`, `CREATE_CQ` or `CREATE_QP`.
//! `kernel::user::probe` found such a region mapped, and writable if needed. By the contract of
//! `UverbsDoor::ioctl` it stays so until the object is destroyed. Null and misaligned addresses are
//! refused here. Memory registered on demand is probed before each access; by the same contract it
//! stays mapped between probe and access.
//!
//! Accesses of different sizes overlap, as on hardware: the client may use bytes where the device
//! uses words, and vice versa. The language's memory model does not define concurrent atomic
//! accesses of mixed size to the same bytes. This file relies on the machine, where accesses to
//! aligned words and to bytes are single accesses of coherent memory.
#![allow(
    unsafe_code,
    reason = "a device reaches memory by address; accesses are atomic, through raw pointers"
)]

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use crate::copy;
use crate::hca::{Dma, DmaFault};
use crate::wire::{Loan, Span};
use uverbs_front::guard;
use uverbs_front::probe;

/// Lowest address of a mapping (`vm.mmap_min_addr` is a page at least). A lower address is a null
/// pointer with an offset.
const LOWEST: u64 = 4096;

/// Memory of this process.
#[derive(Debug)]
pub(crate) struct ProcessDma;

impl Dma for ProcessDma {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        let mut at = checked(addr, buf.len(), 1)?;
        let (head, rest) = buf.split_at_mut(head_len(at, buf.len()));
        for byte in head {
            *byte = atomic_u8(at).load(Ordering::Relaxed);
            at += 1;
        }
        let (words, tail) = rest.split_at_mut(rest.len() & !7);
        if !words.is_empty() {
            // SAFETY: in a region that the client keeps mapped (module docs), and aligned after the
            // head.
            unsafe { copy::load(atomic_u64(at), words) };
        }
        at += words.len();
        for byte in tail {
            *byte = atomic_u8(at).load(Ordering::Relaxed);
            at += 1;
        }
        Ok(())
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        let mut at = checked(addr, data.len(), 1)?;
        // A reader that sees a word of this message sees all earlier messages. Pairs with the
        // acquiring load of uverbs-core, src/exposed.rs `ExposedMemory::load`.
        fence(Ordering::Release);
        let (head, rest) = data.split_at(head_len(at, data.len()));
        for byte in head {
            atomic_u8(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
        let (words, tail) = rest.split_at(rest.len() & !7);
        if !words.is_empty() {
            // SAFETY: in a region that the client keeps mapped (module docs), and aligned after the
            // head.
            unsafe { copy::store(atomic_u64(at), words) };
        }
        at += words.len();
        for byte in tail {
            atomic_u8(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
        Ok(())
    }

    fn take(&self, addr: u64, loan: &Loan, from: u64, len: usize) -> Result<(), DmaFault> {
        checked(addr, len, 1)?;
        // Release, as in `write`.
        fence(Ordering::Release);
        // SAFETY: in a region that the client keeps mapped (module docs), and that devices may
        // write.
        match unsafe { loan.read(from, addr, len as u64) } {
            true => Ok(()),
            false => Err(DmaFault { addr, len: len as u64 }),
        }
    }

    fn in_process(&self, addr: u64, len: u64) -> Option<Span> {
        checked(addr, usize::try_from(len).ok()?, 1).is_ok().then_some(Span { addr, len })
    }

    fn fault_in(&self, addr: u64, len: u64, write: bool) -> Result<(), DmaFault> {
        // Doorbell pages are refused: the device's store there would wait for the device itself.
        if guard::has_doorbells(addr, len) || probe(addr, len, write).is_err() {
            return Err(DmaFault { addr, len });
        }
        Ok(())
    }

    fn load_u32(&self, addr: u64) -> Result<u32, DmaFault> {
        let at = checked(addr, 4, 4)?;
        Ok(atomic_u32(at).load(Ordering::Acquire))
    }

    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaFault> {
        let at = checked(addr, 4, 4)?;
        atomic_u32(at).store(value, Ordering::Release);
        Ok(())
    }

    fn store_u8(&self, addr: u64, value: u8) -> Result<(), DmaFault> {
        let at = checked(addr, 1, 1)?;
        atomic_u8(at).store(value, Ordering::Release);
        Ok(())
    }

    fn store_last(&self, addr: u64, bytes: [u8; 8]) -> Result<(), DmaFault> {
        // A program may place a CQ ring at any address.
        let Ok(at) = checked(addr, 8, 8) else {
            self.write(addr, &bytes[..7])?;
            return self.store_u8(addr + 7, bytes[7]);
        };
        atomic_u64(at).store(u64::from_ne_bytes(bytes), Ordering::Release);
        Ok(())
    }

    fn fetch_update_u64(
        &self,
        addr: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        let word = atomic_u64(checked(addr, 8, 8)?);
        let mut old = word.load(Ordering::Acquire);
        loop {
            let new = update(old);
            match word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(old),
                Err(seen) => old = seen,
            }
        }
    }
}

/// Refuses null, wrapping and misaligned accesses.
fn checked(addr: u64, len: usize, align: u64) -> Result<usize, DmaFault> {
    let fault = DmaFault { addr, len: len as u64 };
    if addr < LOWEST || !addr.is_multiple_of(align) || addr.checked_add(len as u64).is_none() {
        return Err(fault);
    }
    usize::try_from(addr).map_err(|_| fault)
}

fn head_len(at: usize, len: usize) -> usize {
    (at.wrapping_neg() % 8).min(len)
}

fn atomic_u8(at: usize) -> &'static AtomicU8 {
    let byte = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: in a region that the client keeps mapped (module docs); bytes have no alignment. The
    // reference is to an atomic and lives for one access.
    unsafe { AtomicU8::from_ptr(byte) }
}

fn atomic_u32(at: usize) -> &'static AtomicU32 {
    let word = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: in a region that the client keeps mapped (module docs); callers checked the
    // alignment.
    unsafe { AtomicU32::from_ptr(word) }
}

fn atomic_u64(at: usize) -> &'static AtomicU64 {
    let word = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: in a region that the client keeps mapped (module docs); callers checked the
    // alignment.
    unsafe { AtomicU64::from_ptr(word) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addr_of<T>(slice: &mut [T]) -> u64 {
        slice.as_mut_ptr().expose_provenance() as u64
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn reads_and_writes_at_any_alignment(
            offset in 0usize..16,
            data in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut memory = [u64::from_ne_bytes([0xaa; 8]); 16];
            let base = addr_of(&mut memory) + offset as u64;
            ProcessDma.write(base, &data).unwrap();
            let mut back = vec![0; data.len()];
            ProcessDma.read(base, &mut back).unwrap();
            prop_assert_eq!(&back, &data);
            let mut all = vec![0; 128];
            ProcessDma.read(addr_of(&mut memory), &mut all).unwrap();
            prop_assert!(all[..offset].iter().all(|byte| *byte == 0xaa));
            prop_assert_eq!(&all[offset..offset + data.len()], &data[..]);
            prop_assert!(all[offset + data.len()..].iter().all(|byte| *byte == 0xaa));
        }
    }

    #[test]
    fn words_and_atomics() {
        let mut memory = [0u64; 2];
        let base = addr_of(&mut memory);
        ProcessDma.store_u32(base + 4, 7).unwrap();
        assert_eq!(ProcessDma.load_u32(base + 4), Ok(7));
        ProcessDma.store_u8(base + 8, 1).unwrap();
        let one = u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ProcessDma.fetch_update_u64(base + 8, &mut |old| old), Ok(one));
        for (at, bytes) in [(base, *b"aligned!"), (base + 3, *b"anywhere")] {
            ProcessDma.store_last(at, bytes).unwrap();
            let mut back = [0; 8];
            ProcessDma.read(at, &mut back).unwrap();
            assert_eq!(back, bytes);
        }
        assert!(ProcessDma.store_last(0, [1; 8]).is_err());
        ProcessDma.write(base + 8, &one.to_ne_bytes()).unwrap();
        assert_eq!(ProcessDma.fetch_update_u64(base + 8, &mut |old| old + 5), Ok(one));
        assert_eq!(ProcessDma.fetch_update_u64(base + 8, &mut |old| old), Ok(one + 5));
        for misaligned in [base + 1, base + 2] {
            assert!(ProcessDma.load_u32(misaligned).is_err());
            assert!(ProcessDma.fetch_update_u64(misaligned, &mut |old| old).is_err());
        }
        assert!(ProcessDma.load_u32(0).is_err());
        assert!(ProcessDma.read(u64::MAX - 1, &mut [0; 8]).is_err());
    }
}
