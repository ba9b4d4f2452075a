//! Memory of this process that the server reaches by messages: DMA_READ and DMA_WRITE.
//!
//! The server may be hostile: it reaches only the bytes of a range, and stores only into writable
//! ranges. The kernel copies (`process_vm_readv`), so memory that a program unmapped too early
//! gives an error, not a signal. The kernel may copy byte by byte, so words of doorbell records are
//! loaded here; a record's owner keeps it mapped.
//!
//! # Safety
//!
//! Ranges are the process's memory until they are removed
//! ([`map_process`](crate::transport::Transport::map_process)), which waits for accesses.
#![allow(unsafe_code, reason = "words of umems are loaded by address")]

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use uverbs_core::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::message::{MAX_TRANSFER, Transfer};
use crate::error::Error;
use crate::transport::Purpose;

/// Fails if transfers can't reach memory at `address`: a filter of system calls may refuse them.
pub(super) fn probe(address: u64) -> Result<(), Error> {
    let place = [RemoteIoVec { base: address as usize, len: 1 }];
    match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut [0])], &place) {
        Err(nix::errno::Errno::EPERM | nix::errno::Errno::ENOSYS) => {
            let what = "the program's own memory where process_vm_readv is refused".to_owned();
            Err(Error::Unsupported { what })
        }
        read => read.map(drop).map_err(Error::nix("process_vm_readv")),
    }
}

/// Ranges by their address for the device: addresses in this process, and their purpose.
#[derive(Debug, Default)]
pub(super) struct Served(Mutex<BTreeMap<u64, (Range<u64>, Purpose)>>);

impl Served {
    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, (Range<u64>, Purpose)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a range.
    pub(super) fn add(&self, iova: u64, memory: Range<u64>, purpose: Purpose) {
        self.ranges().insert(iova, (memory, purpose));
    }

    /// Removes the ranges that start within `len` bytes. Afterwards no access to one is under way.
    pub(super) fn remove(&self, iova: u64, len: u64) {
        let mut ranges = self.ranges();
        let within = ranges.range(iova..iova.saturating_add(len));
        for at in within.map(|(at, _)| *at).collect::<Vec<_>>() {
            ranges.remove(&at);
        }
    }

    /// Removes all ranges.
    pub(super) fn clear(&self) {
        self.ranges().clear();
    }

    /// Carries out a DMA_READ. Returns the body of the reply.
    pub(super) fn read(&self, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let (transfer, _) = Transfer::read_from_prefix(body).map_err(|_| Errno::EINVAL)?;
        let mut reply = transfer.as_bytes().to_vec();
        let start = reply.len();
        self.copy(&transfer, false, |pid, at, len, purpose| {
            reply.resize(start + len, 0);
            let to = &mut reply[start..];
            let read = process_vm_readv(pid, &mut [IoSliceMut::new(to)], &at)?;
            let word = std::ptr::with_exposed_provenance_mut::<u32>(at[0].base);
            let is_word = (read, to.len()) == (4, 4) && word.is_aligned();
            if is_word && purpose == Purpose::Record {
                // SAFETY: four aligned bytes of a record (module docs), which is mapped.
                let value = unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Acquire);
                to.copy_from_slice(&value.to_ne_bytes());
            }
            Ok(read)
        })?;
        Ok(reply)
    }

    /// Carries out a DMA_WRITE. Returns the body of the reply.
    pub(super) fn write(&self, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let (transfer, data) = Transfer::read_from_prefix(body).map_err(|_| Errno::EINVAL)?;
        if data.len() as u64 != transfer.count {
            return Err(Errno::EINVAL);
        }
        let from = [IoSlice::new(data)];
        // The owner byte of a CQE comes after the rest, which an earlier message wrote.
        fence(Ordering::Release);
        self.copy(&transfer, true, |pid, at, _, _| process_vm_writev(pid, &from, &at))?;
        Ok(transfer.as_bytes().to_vec())
    }

    /// Calls `with` for the memory of a transfer, which stays mapped meanwhile.
    fn copy(
        &self,
        transfer: &Transfer,
        writes: bool,
        with: impl FnOnce(Pid, [RemoteIoVec; 1], usize, Purpose) -> nix::Result<usize>,
    ) -> Result<(), Errno> {
        let Transfer { address: at, count } = *transfer;
        if count > MAX_TRANSFER {
            return Err(Errno::EINVAL);
        }
        let ranges = self.ranges();
        let (start, (memory, purpose)) = ranges.range(..=at).next_back().ok_or(Errno::EFAULT)?;
        let inside = at - start;
        let end = inside.checked_add(count);
        if end.is_none_or(|end| end > memory.end - memory.start) || writes && !purpose.is_writable()
        {
            return Err(Errno::EFAULT);
        }
        let len = count as usize;
        let place = [RemoteIoVec { base: (memory.start + inside) as usize, len }];
        match with(Pid::this(), place, len, *purpose) {
            Ok(bytes) if bytes == len => Ok(()),
            Ok(_) => Err(Errno::EFAULT),
            Err(errno) => Err(Errno::from_raw(errno as i32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicBool;

    use nix::sys::mman::{ProtFlags, mprotect};
    use uverbs_core::memory::pages::Pages;

    use super::*;

    fn transfer(address: u64, count: u64) -> Vec<u8> {
        Transfer { address, count }.as_bytes().to_vec()
    }

    #[test]
    fn transfers_stay_in_their_range() {
        let memory = Pages::anonymous(8192).unwrap();
        let address = memory.as_ptr().expose_provenance() as u64;
        let served = Served::default();
        assert_eq!(served.read(&transfer(0x1000, 4)), Err(Errno::EFAULT));
        served.add(0x1000, address..address + 8192, Purpose::Write);
        let written = [&transfer(0x1ffe, 4)[..], &[1, 2, 3, 4]].concat();
        assert_eq!(served.write(&written), Ok(transfer(0x1ffe, 4)));
        let read = served.read(&transfer(0x1fff, 2)).unwrap();
        assert_eq!(read, [&transfer(0x1fff, 2)[..], &[2, 3]].concat());
        for (at, count) in [(0xfff, 2), (0x2ffd, 4), (u64::MAX, 2), (0x1000, u64::MAX)] {
            assert!(served.read(&transfer(at, count)).is_err(), "{at:#x} {count}");
        }
        // More data than told, and less.
        for len in [3, 5] {
            let wrong = [&transfer(0x1000, 4)[..], &vec![0; len]].concat();
            assert_eq!(served.write(&wrong), Err(Errno::EINVAL));
        }
        assert_eq!(served.read(&[0; 15]), Err(Errno::EINVAL));
        // A region without the right to store.
        served.add(0x1000, address..address + 8192, Purpose::Read);
        assert_eq!(served.write(&written), Err(Errno::EFAULT));
        assert_eq!(served.read(&transfer(0x1fff, 2)), Ok(read));
        served.remove(0x1000, 1);
        assert_eq!(served.read(&transfer(0x1000, 4)), Err(Errno::EFAULT));
    }

    #[test]
    fn memory_that_is_gone_is_refused() {
        let memory = Pages::anonymous(4096).unwrap();
        let address = memory.as_ptr().expose_provenance() as u64;
        let served = Served::default();
        served.add(0x1000, address..address + 4096, Purpose::Write);
        drop(memory);
        assert_eq!(served.read(&transfer(0x1000, 4)), Err(Errno::EFAULT));
    }

    /// The program takes the right to load away meanwhile; the server chooses the moment.
    #[test]
    fn loads_of_a_region_raise_no_signal() {
        const ROUNDS: usize = 20_000;
        let memory = Pages::anonymous(4096).unwrap();
        let address = memory.as_ptr().expose_provenance() as u64;
        let served = Served::default();
        served.add(0x1000, address..address + 4096, Purpose::Write);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let start = NonNull::new(memory.as_mut_ptr().cast()).unwrap();
                while !ends.load(Ordering::Relaxed) {
                    for rights in [ProtFlags::PROT_NONE, ProtFlags::PROT_READ] {
                        // SAFETY: the test's own page, which only the kernel reads.
                        unsafe { mprotect(start, 4096, rights) }.unwrap();
                    }
                }
            });
            for _ in 0..ROUNDS {
                let read = served.read(&transfer(0x1000, 4));
                assert!(matches!(read, Ok(_) | Err(Errno::EFAULT)), "{read:?}");
            }
            ends.store(true, Ordering::Relaxed);
        });
    }
}
