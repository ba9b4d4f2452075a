//! Memory of the guest: parts of files that the client passed, mapped here, and ranges without a
//! file, which the client reads and writes for the device (DMA_READ, DMA_WRITE).
//!
//! An access reaches memory only through a mapping that contains it, so a guest's addresses lead
//! nowhere else. A file is mapped whole and once, as a guest's IOMMU maps it page by page, until
//! its last part is unmapped. It must be a memfd that cannot shrink: its owner could truncate it at
//! any time. An access to a page that the file lacks even so is a fault (`faults`).

mod faults;
mod files;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};
use zerocopy::IntoBytes;

#[cfg(test)]
pub(super) use self::files::MAX_FILES;
pub(super) use self::files::Room;
use self::files::{Budget, ClientFile};
use super::channel::Channel;
use super::message::{MAX_TRANSFER, Transfer, command, split};
use crate::hca::{Dma, DmaFault};
use crate::memory::ProcessDma;

/// Maximum number of mappings, as of Linux's type 1 IOMMU (`dma_entry_limit`): a guest's own IOMMU
/// may map each page of 4 KiB.
const MAX_MAPPINGS: usize = 65_535;
/// Ranges are of whole pages, as of Linux's type 1 IOMMU (`vfio_dma_do_map`, `vfio_dma_do_unmap`).
const PAGE: u64 = 4096;
/// Maximum bytes of a transfer by the client.
const MOST: usize = MAX_TRANSFER as usize;

/// Guest physical memory: mappings by address.
#[derive(Debug)]
pub(super) struct GuestMemory {
    mappings: RwLock<Mappings>,
    /// Serves ranges without a file.
    client: RwLock<Option<Arc<Channel>>>,
    budget: &'static Budget,
}

impl Default for GuestMemory {
    fn default() -> Self {
        let (mappings, client) = (RwLock::default(), RwLock::default());
        Self { mappings, client, budget: &files::PROCESS }
    }
}

/// Mappings without overlaps. Neighbours in a file are one.
#[derive(Debug, Default)]
struct Mappings {
    /// By first address.
    ranges: BTreeMap<u64, Mapping>,
    /// Whole files, whose parts the ranges are.
    files: Vec<MappedFile>,
}

#[derive(Debug)]
struct MappedFile {
    /// Device and inode.
    id: (u64, u64),
    map: Arc<ClientFile>,
}

#[derive(Clone, Debug)]
struct Mapping {
    len: u64,
    /// Offset in `map`.
    start: u64,
    /// Whole file; `None` if the client serves the range.
    map: Option<Arc<ClientFile>>,
    /// The device may store.
    writable: bool,
}

/// Place of a part of an access.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// In a file, from this offset.
    Here(&'a ClientFile, u64),
    /// With the client, at this address of the guest.
    There(u64),
}

impl Mapping {
    /// The part of a mapping at `iova` that begins at `from` and ends at `to`.
    fn part(&self, iova: u64, from: u64, to: u64) -> Self {
        Self { len: to - from, start: self.start + (from - iova), ..self.clone() }
    }

    /// True if `next`, which begins where this one ends, continues it in its file, with its rights.
    fn continues(&self, next: &Self) -> bool {
        if self.writable != next.writable {
            return false;
        }
        match (&self.map, &next.map) {
            (Some(one), Some(other)) => {
                Arc::ptr_eq(one, other) && self.start + self.len == next.start
            }
            (None, None) => true,
            _ => false,
        }
    }
}

impl Mappings {
    /// Mapping that contains `at`, with its first address.
    fn of(&self, at: u64) -> Option<(u64, &Mapping)> {
        let (&iova, mapping) = self.ranges.range(..=at).next_back()?;
        (at - iova < mapping.len).then_some((iova, mapping))
    }

    fn overlaps(&self, iova: u64, len: u64) -> bool {
        self.of(iova).is_some() || self.ranges.range(iova..iova + len).next().is_some()
    }

    /// Adds a mapping, and joins it with its neighbours.
    fn add(&mut self, mut iova: u64, mut new: Mapping) {
        if let Some(next) = self.ranges.get(&(iova + new.len)).filter(|next| new.continues(next)) {
            let len = next.len;
            self.ranges.remove(&(iova + new.len));
            new.len += len;
        }
        if let Some((&at, last)) = self.ranges.range(..iova).next_back()
            && at + last.len == iova
            && last.continues(&new)
        {
            (new.start, new.len, iova) = (last.start, new.len + last.len, at);
        }
        self.ranges.insert(iova, new);
    }

    /// Whole mapping of a file that has `end` bytes at least.
    fn file(
        &mut self,
        file: impl AsFd,
        end: u64,
        budget: &'static Budget,
    ) -> io::Result<Arc<ClientFile>> {
        let stat = fstat(&file)?;
        let id = (stat.st_dev, stat.st_ino);
        let mut same = self.files.iter().filter(|known| known.id == id);
        if let Some(known) = same.find(|known| known.map.has(end)) {
            return Ok(Arc::clone(&known.map));
        }
        let size = usize::try_from(stat.st_size).unwrap_or(0);
        if (size as u64) < end {
            return Err(invalid("a file shorter than its range"));
        }
        let map = Arc::new(ClientFile::map(file, size, budget)?);
        self.files.push(MappedFile { id, map: Arc::clone(&map) });
        Ok(map)
    }

    /// Unmaps the files that no range has.
    fn tidy(&mut self) {
        self.files.retain(|file| Arc::strong_count(&file.map) > 1);
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Refuses a range of guest addresses that is empty, of parts of pages, or beyond the last address,
/// which it may contain.
fn check_range(iova: u64, len: u64) -> io::Result<()> {
    if len == 0 {
        return Err(invalid("an empty range"));
    }
    if !iova.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) {
        return Err(invalid("a range of parts of pages"));
    }
    iova.checked_add(len - 1).map(drop).ok_or(invalid("a range beyond the end"))
}

/// As [`check_range`] for a new range, which does not contain the last address.
fn check_new(iova: u64, len: u64) -> io::Result<()> {
    check_range(iova, len)?;
    iova.checked_add(len).map(drop).ok_or(invalid("a range beyond the end"))
}

impl GuestMemory {
    /// Maps `len` bytes of `file` from `offset` at guest address `iova`, where no mapping may be.
    /// The device may store if it is `writable`. On an error nothing changes.
    pub(super) fn map(
        &self,
        iova: u64,
        len: u64,
        file: impl AsFd,
        offset: u64,
        writable: bool,
    ) -> io::Result<()> {
        check_new(iova, len)?;
        if !offset.is_multiple_of(PAGE) {
            return Err(invalid("an offset inside a page"));
        }
        // Checked before the length. A file without seals (on a file system) makes fcntl fail.
        let seals = SealFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GET_SEALS)?);
        if !seals.contains(SealFlag::F_SEAL_SHRINK) {
            return Err(invalid("a file that may shrink"));
        }
        // A hole punched into huge pages returns their reservation. If the next access finds no
        // free page, it raises a signal, too. A hole in other memory reads as zeros, and an access
        // fills it (fallocate(2); Linux `Documentation/mm/hugetlbfs_reserv.rst`).
        if fstatfs(&file)?.filesystem_type() == HUGETLBFS_MAGIC {
            return Err(invalid("a file of huge pages"));
        }
        let end = offset.checked_add(len).ok_or(invalid("a range beyond the end"))?;
        self.insert(iova, len, |mappings| {
            let map = Some(mappings.file(&file, end, self.budget)?);
            Ok(Mapping { len, start: offset, map, writable })
        })
    }

    /// Maps `len` bytes that the client serves at guest address `iova`, as [`GuestMemory::map`].
    pub(super) fn map_served(&self, iova: u64, len: u64, writable: bool) -> io::Result<()> {
        check_new(iova, len)?;
        self.insert(iova, len, |_| Ok(Mapping { len, start: 0, map: None, writable }))
    }

    fn insert(
        &self,
        iova: u64,
        len: u64,
        make: impl FnOnce(&mut Mappings) -> io::Result<Mapping>,
    ) -> io::Result<()> {
        let mut mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        if mappings.overlaps(iova, len) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a range over another"));
        }
        // A neighbour may join it, which is not looked up before.
        if mappings.ranges.len() >= MAX_MAPPINGS {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too many ranges"));
        }
        let new = make(&mut mappings)?;
        mappings.add(iova, new);
        Ok(())
    }

    /// Takes room for an eventfd, which counts as a file of the process.
    pub(super) fn room(&self) -> io::Result<Room> {
        self.budget.take(0)
    }

    /// Reaches memory without a file by this client's socket.
    pub(super) fn serve(&self, client: Arc<Channel>) {
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }

    /// Unmaps a range, and keeps the memory on both sides of it. On an error nothing changes.
    pub(super) fn unmap(&self, iova: u64, len: u64) -> io::Result<()> {
        check_range(iova, len)?;
        // No mapping contains the last address.
        let end = iova.saturating_add(len);
        let mut mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        let first = mappings.of(iova).map_or(iova, |(at, _)| at);
        let hit: Vec<u64> = mappings.ranges.range(first..end).map(|(&at, _)| at).collect();
        // A mapping that is cut in the middle becomes two.
        let splits = hit.len() == 1
            && mappings.ranges.get(&first).is_some_and(|one| first < iova && end < first + one.len);
        if splits && mappings.ranges.len() >= MAX_MAPPINGS {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too many ranges"));
        }
        for at in hit {
            let Some(old) = mappings.ranges.remove(&at) else { continue };
            for (from, to) in [(at, iova), (end, at + old.len)] {
                if from < to {
                    let part = old.part(at, from, to);
                    mappings.ranges.insert(from, part);
                }
            }
        }
        mappings.tidy();
        Ok(())
    }

    /// Unmaps everything.
    pub(super) fn clear(&self) {
        *self.mappings.write().unwrap_or_else(PoisonError::into_inner) = Mappings::default();
    }

    /// Forgets a client that has left, and its memory.
    pub(super) fn leave(&self) {
        self.clear();
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Memory with a budget that no other function has.
    #[cfg(test)]
    pub(super) fn of_own_budget() -> Self {
        Self { budget: Box::leak(Box::new(Budget::new())), ..Self::default() }
    }

    /// Number of mappings; checks order and limits.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) -> usize {
        let mappings = self.read_lock();
        let ranges = &mappings.ranges;
        assert!(ranges.len() <= MAX_MAPPINGS);
        assert!(mappings.files.iter().all(|file| Arc::strong_count(&file.map) > 1));
        let ends = ranges.iter().map(|(iova, mapping)| iova + mapping.len);
        let next = ranges.keys().skip(1);
        assert!(ends.zip(next).all(|(end, next)| end <= *next), "{mappings:?}");
        ranges.len()
    }

    fn read_lock(&self) -> RwLockReadGuard<'_, Mappings> {
        self.mappings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `each(place, offset in the access, bytes)` for the parts of an access, which needs the
    /// right to store if it `stores`. The mappings stay during the call.
    fn walk(
        &self,
        addr: u64,
        len: usize,
        stores: bool,
        mut each: impl FnMut(Place<'_>, usize, usize) -> Result<(), DmaFault>,
    ) -> Result<(), DmaFault> {
        let fault = DmaFault { addr, len: len as u64 };
        let mappings = self.read_lock();
        let mut done = 0;
        while done < len {
            let at = addr.checked_add(done as u64).ok_or(fault)?;
            let found = mappings.of(at).filter(|(_, mapping)| mapping.writable || !stores);
            let (iova, mapping) = found.ok_or(fault)?;
            let run = (mapping.len - (at - iova)).min((len - done) as u64) as usize;
            let place = match &mapping.map {
                None => Place::There(at),
                Some(map) => Place::Here(map, mapping.start + (at - iova)),
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
        stores: bool,
        with: impl FnOnce(Place<'_>) -> Result<T, DmaFault>,
    ) -> Result<T, DmaFault> {
        let fault = DmaFault { addr, len: len as u64 };
        let mut with = Some(with);
        let mut result = Err(fault);
        self.walk(addr, len, stores, |place, _, run| {
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
        self.walk(addr, buf.len(), false, |place, from, run| match place {
            Place::Here(file, at) => {
                file.reach(at, run, |at| ProcessDma.read(at, &mut buf[from..from + run]))
            }
            Place::There(at) => self.read_served(at, &mut buf[from..from + run]),
        })
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        self.walk(addr, data.len(), true, |place, from, run| match place {
            Place::Here(file, at) => {
                file.reach(at, run, |at| ProcessDma.write(at, &data[from..from + run]))
            }
            Place::There(at) => self.write_served(at, &data[from..from + run]),
        })
    }

    fn load_u32(&self, addr: u64) -> Result<u32, DmaFault> {
        self.one(addr, 4, false, |place| match place {
            Place::Here(file, at) => file.reach(at, 4, |at| ProcessDma.load_u32(at)),
            Place::There(at) => {
                let mut bytes = [0; 4];
                self.read_served(at, &mut bytes)?;
                Ok(u32::from_ne_bytes(bytes))
            }
        })
    }

    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaFault> {
        self.one(addr, 4, true, |place| match place {
            Place::Here(file, at) => file.reach(at, 4, |at| ProcessDma.store_u32(at, value)),
            Place::There(at) => self.write_served(at, &value.to_ne_bytes()),
        })
    }

    fn store_u8(&self, addr: u64, value: u8) -> Result<(), DmaFault> {
        self.one(addr, 1, true, |place| match place {
            Place::Here(file, at) => file.reach(at, 1, |at| ProcessDma.store_u8(at, value)),
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
        self.one(addr, 8, true, |place| match place {
            Place::Here(file, at) => {
                file.reach(at, 8, |at| ProcessDma.fetch_update_u64(at, update))
            }
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
mod tests;
