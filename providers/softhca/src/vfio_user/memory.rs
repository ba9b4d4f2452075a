//! Memory of the guest: parts of files that the client passed, mapped here, and ranges without a
//! file, which the client reads and writes for the device (DMA_READ, DMA_WRITE).
//!
//! An access reaches memory only through a mapping that contains it, so a guest's addresses lead
//! nowhere else. A part is mapped until the client unmaps it. A file must be a memfd that cannot
//! shrink: an access behind the end of a file raises a signal, and the file's owner could truncate
//! it at any time.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};
use zerocopy::IntoBytes;

use super::channel::Channel;
use super::message::{MAX_TRANSFER, Transfer, command, split};
use crate::hca::{Dma, DmaFault};
use crate::memory::ProcessDma;

/// Maximum number of mappings; QEMU has a few dozen.
const MAX_MAPPINGS: usize = 4096;
/// Maximum bytes of all mappings. An empty file may be as long as the address space, which the
/// process needs for other mappings.
const MAX_BYTES: usize = 1 << 42;
/// Maximum bytes of a transfer by the client.
const MOST: usize = MAX_TRANSFER as usize;

/// Guest physical memory: mappings by address.
#[derive(Debug, Default)]
pub(super) struct GuestMemory {
    /// Sorted by address, without overlaps.
    mappings: RwLock<Vec<Mapping>>,
    /// Serves ranges without a file.
    client: RwLock<Option<Arc<Channel>>>,
}

#[derive(Debug)]
struct Mapping {
    iova: u64,
    len: u64,
    /// Offset of this part in `map`: a partial unmap keeps the whole mapping.
    start: u64,
    /// `None` if the client serves the range.
    map: Option<Arc<MmapRaw>>,
}

/// Place of a part of an access.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In this process, at this address.
    Here(u64),
    /// With the client, at this address of the guest.
    There(u64),
}

impl Mapping {
    fn end(&self) -> u64 {
        self.iova + self.len
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Bytes of a range of guest addresses, which is neither empty nor beyond the end.
fn range_len(iova: u64, len: u64) -> io::Result<usize> {
    let size = usize::try_from(len).ok().filter(|size| *size != 0);
    let size = size.ok_or(invalid("an empty range"))?;
    iova.checked_add(len).ok_or(invalid("a range beyond the end"))?;
    Ok(size)
}

impl GuestMemory {
    /// Maps `len` bytes of `file` from `offset` at guest address `iova`, and replaces earlier
    /// mappings there. On an error nothing changes.
    pub(super) fn map(&self, iova: u64, len: u64, file: impl AsFd, offset: u64) -> io::Result<()> {
        let size = range_len(iova, len)?;
        // Checked before the length. A file without seals (on a file system) makes fcntl fail.
        let seals = SealFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GET_SEALS)?);
        if !seals.contains(SealFlag::F_SEAL_SHRINK) {
            return Err(invalid("a file that may shrink"));
        }
        // A hole punched into huge pages returns their reservation. If the next access finds no
        // free page, it raises a signal, too. A hole in other memory reads as zeros, and the next
        // store fills it (fallocate(2); Linux `Documentation/mm/hugetlbfs_reserv.rst`).
        if fstatfs(&file)?.filesystem_type() == HUGETLBFS_MAGIC {
            return Err(invalid("a file of huge pages"));
        }
        let end = offset.checked_add(len).ok_or(invalid("a range beyond the end"))?;
        if u64::try_from(fstat(&file)?.st_size).is_ok_and(|size| size < end) {
            return Err(invalid("a file shorter than its range"));
        }
        let map = MmapOptions::new().offset(offset).len(size).map_raw(file.as_fd().as_raw_fd())?;
        self.insert(Mapping { iova, len, start: 0, map: Some(map.into()) })
    }

    /// Maps `len` bytes that the client serves at guest address `iova`, as [`GuestMemory::map`].
    pub(super) fn map_served(&self, iova: u64, len: u64) -> io::Result<()> {
        range_len(iova, len)?;
        self.insert(Mapping { iova, len, start: 0, map: None })
    }

    fn insert(&self, new: Mapping) -> io::Result<()> {
        let mut mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        let mut kept = Self::without(&mappings, new.iova, new.len);
        let at = kept.partition_point(|mapping| mapping.iova < new.iova);
        kept.insert(at, new);
        Self::replace(&mut mappings, kept)
    }

    /// Reaches memory without a file by this client's socket.
    pub(super) fn serve(&self, client: Arc<Channel>) {
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }

    /// Unmaps a range, and keeps the memory on both sides of it. On an error nothing changes.
    pub(super) fn unmap(&self, iova: u64, len: u64) -> io::Result<()> {
        let mut mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        let kept = Self::without(&mappings, iova, len);
        Self::replace(&mut mappings, kept)
    }

    fn replace(mappings: &mut Vec<Mapping>, new: Vec<Mapping>) -> io::Result<()> {
        // A mapping that is cut in the middle becomes two.
        if new.len() > MAX_MAPPINGS && new.len() > mappings.len() {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too many ranges"));
        }
        let bytes = Self::bytes(&new);
        if bytes > MAX_BYTES && bytes > Self::bytes(mappings) {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "too much memory"));
        }
        *mappings = new;
        Ok(())
    }

    /// Bytes of address space of `mappings`: a part of a mapping keeps the whole.
    fn bytes(mappings: &[Mapping]) -> usize {
        let maps = mappings.iter().filter_map(|mapping| mapping.map.as_ref());
        let mut whole: Vec<_> = maps.map(|map| (map.as_ptr(), map.len())).collect();
        whole.sort_unstable();
        whole.dedup();
        whole.iter().fold(0, |sum, (_, len)| sum.saturating_add(*len))
    }

    /// Parts of `mappings` outside a range.
    fn without(mappings: &[Mapping], iova: u64, len: u64) -> Vec<Mapping> {
        let end = iova.saturating_add(len);
        let mut kept = Vec::with_capacity(mappings.len() + 2);
        for mapping in mappings {
            for (from, to) in
                [(mapping.iova, iova.min(mapping.end())), (end.max(mapping.iova), mapping.end())]
            {
                if from < to {
                    kept.push(Mapping {
                        iova: from,
                        len: to - from,
                        start: mapping.start + (from - mapping.iova),
                        map: mapping.map.clone(),
                    });
                }
            }
        }
        kept
    }

    /// Unmaps everything.
    pub(super) fn clear(&self) {
        self.mappings.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Forgets a client that has left, and its memory.
    pub(super) fn leave(&self) {
        self.clear();
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Number of mappings; checks order and limits.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) -> usize {
        let mappings = self.read_lock();
        assert!(mappings.len() <= MAX_MAPPINGS && Self::bytes(&mappings) <= MAX_BYTES);
        assert!(mappings.is_sorted_by(|one, next| one.end() <= next.iova), "{mappings:?}");
        mappings.len()
    }

    fn read_lock(&self) -> RwLockReadGuard<'_, Vec<Mapping>> {
        self.mappings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `each(place, offset in the access, bytes)` for the parts of an access. The mappings
    /// stay during the call.
    fn walk(
        &self,
        addr: u64,
        len: usize,
        mut each: impl FnMut(Place, usize, usize) -> Result<(), DmaFault>,
    ) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: len as u64 };
        let mappings = self.read_lock();
        let mut done = 0;
        while done < len {
            let at = addr.checked_add(done as u64).ok_or(fault)?;
            let next = mappings.partition_point(|mapping| mapping.iova <= at);
            let mapping = next.checked_sub(1).and_then(|index| mappings.get(index)).ok_or(fault)?;
            if at >= mapping.end() {
                return Err(fault);
            }
            let run = (mapping.end() - at).min((len - done) as u64) as usize;
            let place = match &mapping.map {
                None => Place::There(at),
                Some(map) => {
                    let base = map.as_mut_ptr().expose_provenance() as u64;
                    Place::Here(base + mapping.start + (at - mapping.iova))
                }
            };
            each(place, done, run).map_err(|_| fault)?;
            done += run;
        }
        Ok(())
    }

    /// Calls `with` with the place of a word or byte.
    fn one<T>(
        &self,
        addr: u64,
        len: usize,
        with: impl FnOnce(Place) -> Result<T, DmaFault>,
    ) -> Result<T, DmaFault> {
        let fault = DmaFault { addr, len: len as u64 };
        let mut with = Some(with);
        let mut result = Err(fault);
        self.walk(addr, len, |place, _, run| {
            // In several parts it would not be atomic.
            let with = with.take().filter(|_| run == len).ok_or(fault)?;
            result = with(place);
            Ok(())
        })?;
        result.map_err(|_| fault)
    }

    /// Sends a transfer to the client, and returns the data of its reply.
    fn ask(&self, number: u16, addr: u64, count: usize, data: &[u8]) -> Result<Vec<u8>, DmaFault> {
        let fault = DmaFault { addr, len: count as u64 };
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner).clone();
        let transfer = Transfer { address: addr, count: count as u64 };
        let body = [transfer.as_bytes(), data].concat();
        let reply = client.and_then(|client| client.ask(number, &body)).ok_or(fault)?;
        // The count of a write's reply has 4 bytes in the specification, and 8 with some clients.
        let data = split::<u64>(&reply).filter(|(address, _)| *address == addr);
        data.map(|(_, rest)| rest.to_vec()).ok_or(fault)
    }

    fn read_served(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        for (at, part) in (addr..).step_by(MOST).zip(buf.chunks_mut(MOST)) {
            let reply = self.ask(command::DMA_READ, at, part.len(), &[])?;
            let fault = DmaFault { addr: at, len: part.len() as u64 };
            let (count, data) = split::<u64>(&reply).ok_or(fault)?;
            if count != part.len() as u64 || data.len() != part.len() {
                return Err(fault);
            }
            part.copy_from_slice(data);
        }
        Ok(())
    }

    fn write_served(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        for (at, part) in (addr..).step_by(MOST).zip(data.chunks(MOST)) {
            let reply = self.ask(command::DMA_WRITE, at, part.len(), part)?;
            let count = split::<u32>(&reply).map(|(count, _)| count as usize);
            if count != Some(part.len()) {
                return Err(DmaFault { addr: at, len: part.len() as u64 });
            }
        }
        Ok(())
    }
}

impl Dma for GuestMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        self.walk(addr, buf.len(), |place, from, run| match place {
            Place::Here(at) => ProcessDma.read(at, &mut buf[from..from + run]),
            Place::There(at) => self.read_served(at, &mut buf[from..from + run]),
        })
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        self.walk(addr, data.len(), |place, from, run| match place {
            Place::Here(at) => ProcessDma.write(at, &data[from..from + run]),
            Place::There(at) => self.write_served(at, &data[from..from + run]),
        })
    }

    fn load_u32(&self, addr: u64) -> Result<u32, DmaFault> {
        self.one(addr, 4, |place| match place {
            Place::Here(at) => ProcessDma.load_u32(at),
            Place::There(at) => {
                let mut bytes = [0; 4];
                self.read_served(at, &mut bytes)?;
                Ok(u32::from_ne_bytes(bytes))
            }
        })
    }

    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaFault> {
        self.one(addr, 4, |place| match place {
            Place::Here(at) => ProcessDma.store_u32(at, value),
            Place::There(at) => self.write_served(at, &value.to_ne_bytes()),
        })
    }

    fn store_u8(&self, addr: u64, value: u8) -> Result<(), DmaFault> {
        self.one(addr, 1, |place| match place {
            Place::Here(at) => ProcessDma.store_u8(at, value),
            Place::There(at) => self.write_served(at, &[value]),
        })
    }

    /// Atomic for the device; the client's processors may store between the two halves, as with
    /// `IBV_ATOMIC_HCA`.
    fn fetch_update_u64(
        &self,
        addr: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        self.one(addr, 8, |place| match place {
            Place::Here(at) => ProcessDma.fetch_update_u64(at, update),
            Place::There(at) => {
                let mut bytes = [0; 8];
                self.read_served(at, &mut bytes)?;
                let old = u64::from_ne_bytes(bytes);
                self.write_served(at, &update(old).to_ne_bytes())?;
                Ok(old)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;

    use nix::fcntl::{FallocateFlags, fallocate};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use proptest::prelude::*;

    use super::*;
    use support::skip;

    const PAGE: u64 = 4096;

    fn file(pages: u64) -> OwnedFd {
        let file = growing(pages);
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        file.into()
    }

    /// Creates a file without seals, to which seals can be added.
    fn growing(pages: u64) -> File {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create("guest", flags).unwrap());
        file.set_len(pages * PAGE).unwrap();
        file
    }

    #[test]
    fn accesses_cross_ranges_that_touch_and_no_others() {
        let memory = GuestMemory::default();
        memory.map(0x1_0000, PAGE, file(2), PAGE).unwrap();
        memory.map(0x1_1000, PAGE, file(1), 0).unwrap();
        let data = (0..16).collect::<Vec<u8>>();
        memory.write(0x1_0ff8, &data).unwrap();
        let mut back = [0; 16];
        memory.read(0x1_0ff8, &mut back).unwrap();
        assert_eq!(back, *data);
        assert!(memory.read(0xffff, &mut back).is_err());
        assert!(memory.read(0x1_1ff1, &mut back).is_err());
        assert!(memory.read(u64::MAX - 3, &mut back).is_err());
        assert!(memory.load_u32(0x1_1ffc).is_ok());
        assert!(memory.load_u32(0x1_1ffe).is_err());
        assert!(memory.fetch_update_u64(0x1_1ffc, &mut |old| old).is_err());
    }

    #[test]
    fn files_shorter_than_their_range_are_refused() {
        let memory = GuestMemory::default();
        assert!(memory.map(0, 2 * PAGE, file(1), 0).is_err());
        assert!(memory.map(0, PAGE, file(1), PAGE).is_err());
        assert!(memory.map(0, PAGE, file(1), u64::MAX).is_err());
        assert!(memory.map(u64::MAX, PAGE, file(1), 0).is_err());
        assert!(memory.map(0, 0, file(1), 0).is_err());
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let memory = GuestMemory::default();
        let whole = file(1);
        for page in 0..MAX_MAPPINGS as u64 {
            let file = whole.try_clone().unwrap();
            memory.map(page * PAGE, PAGE, file, 0).unwrap();
        }
        // Mapping into the middle of a mapping would make three; cutting out of it would make two.
        let part = |len| memory.map(0x10, len, whole.try_clone().unwrap(), 0);
        assert!(part(0x10).is_err());
        assert!(memory.unmap(0x10, 0x10).is_err());
        assert_eq!(memory.read_lock().len(), MAX_MAPPINGS);
        memory.write(0, &[7; PAGE as usize]).unwrap();
        // Replacing all adds none.
        memory.map(0, PAGE, whole.try_clone().unwrap(), 0).unwrap();
        memory.unmap(0, 2 * PAGE).unwrap();
        assert_eq!(memory.read_lock().len(), MAX_MAPPINGS - 2);
        part(0x10).unwrap();
    }

    #[test]
    fn long_files_leave_the_process_some_address_space() {
        let memory = GuestMemory::default();
        let (long, most) = (file(MAX_BYTES as u64 / PAGE), MAX_BYTES as u64);
        let map = |iova, len| memory.map(iova, len, long.try_clone().unwrap(), 0);
        map(0, most).unwrap();
        assert!(map(most, PAGE).is_err());
        // A remaining part keeps the whole mapping.
        memory.unmap(PAGE, most).unwrap();
        assert!(map(most, PAGE).is_err());
        memory.unmap(0, PAGE).unwrap();
        map(most, PAGE).unwrap();
    }

    #[test]
    fn files_that_may_shrink_are_refused() {
        let memory = GuestMemory::default();
        let seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        let other = growing(1);
        fcntl(&other, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        for file in [growing(1), other, tempfile()] {
            assert!(memory.map(0, PAGE, file, 0).is_err());
        }
        memory.map(0, PAGE, file(1), 0).unwrap();
    }

    /// The seals forbid a client to truncate the file; they allow holes.
    #[test]
    fn a_hole_reads_as_zeros_and_is_filled_by_the_next_store() {
        let memory = GuestMemory::default();
        let ours = file(4);
        memory.map(0x1_0000, 4 * PAGE, ours.try_clone().unwrap(), 0).unwrap();
        memory.write(0x1_0000, &[7; 4 * PAGE as usize]).unwrap();
        let ours = File::from(ours);
        assert_eq!(
            ours.set_len(PAGE).unwrap_err().raw_os_error(),
            Some(libc::EPERM),
            "it can't be cut under the mapping"
        );
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&ours, hole, PAGE.cast_signed(), 2 * PAGE.cast_signed()).unwrap();
        let mut back = [1; 4 * PAGE as usize];
        memory.read(0x1_0000, &mut back).unwrap();
        let (first, last) = (PAGE as usize, 3 * PAGE as usize);
        assert!(back[..first].iter().chain(&back[last..]).all(|byte| *byte == 7));
        assert!(back[first..last].iter().all(|byte| *byte == 0));
        memory.store_u32(0x1_0000 + PAGE, 5).unwrap();
        assert_eq!(memory.load_u32(0x1_0000 + PAGE), Ok(5));
        assert_eq!(memory.fetch_update_u64(0x1_0000 + 2 * PAGE, &mut |old| old + 1), Ok(0));
    }

    #[test]
    fn files_of_huge_pages_are_refused() {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_HUGETLB;
        let file = match memfd_create("guest", flags) {
            Ok(file) => File::from(file),
            Err(error) => return skip(&format!("no memfd of huge pages here: {error}")),
        };
        file.set_len(1 << 30).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        let refused = GuestMemory::default().map(0, PAGE, file, 0).unwrap_err();
        assert_eq!(refused.to_string(), "a file of huge pages");
    }

    /// Creates a file on a file system, which has no seals.
    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!("softhca-memory-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(PAGE).unwrap();
        file
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Arbitrary maps and unmaps, compared with a list of the pages' contents.
        #[test]
        fn ranges_split_as_they_should(
            steps in prop::collection::vec((0u64..16, 1u64..6, any::<bool>()), 1..24),
        ) {
            let memory = GuestMemory::default();
            let mut model = [None; 24];
            for (tag, (first, count, maps)) in (1u8..).zip(steps) {
                let range = first as usize..(first + count) as usize;
                if maps {
                    memory.map(first * PAGE, count * PAGE, file(count), 0).unwrap();
                    for page in range {
                        memory.write(page as u64 * PAGE, &[tag, page as u8]).unwrap();
                        model[page] = Some([tag, page as u8]);
                    }
                } else {
                    memory.unmap(first * PAGE, count * PAGE).unwrap();
                    model[range].fill(None);
                }
            }
            for (page, content) in model.iter().enumerate() {
                let mut bytes = [0; 2];
                let read = memory.read(page as u64 * PAGE, &mut bytes);
                prop_assert_eq!(read.ok().map(|()| bytes), *content);
            }
        }
    }
}
