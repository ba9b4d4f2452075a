//! Access to host memory.
//!
//! The HCA never holds a pointer. It names memory by bus addresses, which a [`Dma`] turns into
//! loads and stores: in process a bus address is a virtual address, behind a PCI front it is guest
//! physical. Other threads write the same memory at any time, so implementations copy with volatile
//! or atomic accesses and never make references.

use std::fmt;
use std::sync::Arc;

use crate::hca::payload::Payload;
use crate::wire::{Loan, Span};
use uverbs_front::backend::region::{ABSENT, READ_ONLY, Region};

/// An access that the host refused: unmapped, out of bounds, or misaligned for an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DmaFault {
    /// First bus address of the access.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

impl fmt::Display for DmaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DMA fault at {:#x}, {} bytes", self.addr, self.len)
    }
}

impl std::error::Error for DmaFault {}

/// Access to host memory.
pub(crate) trait Dma: Send + fmt::Debug {
    /// Copies `buf.len()` bytes from `addr`, in any order.
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault>;
    /// Copies `data` to `addr`, in any order.
    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault>;
    /// Atomic acquire load of an aligned word, in native bytes.
    fn load_u32(&self, addr: u64) -> Result<u32, DmaFault>;
    /// Atomic release store of an aligned word, in native bytes.
    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaFault>;
    /// Atomic release store of a byte: the owner byte of a CQE, which is written last.
    fn store_u8(&self, addr: u64, value: u8) -> Result<(), DmaFault>;
    /// Stores eight bytes, the last byte after the others by an atomic release store: the end of a
    /// CQE.
    fn store_last(&self, addr: u64, bytes: [u8; 8]) -> Result<(), DmaFault> {
        self.write(addr, &bytes[..7])?;
        self.store_u8(addr + 7, bytes[7])
    }
    /// Atomic read-modify-write of an aligned 64-bit word. Returns the old value. The closure may
    /// run more than once.
    fn fetch_update_u64(
        &self,
        addr: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault>;
    /// Copies `len` bytes of a loan, from offset `from`, to `addr`.
    fn take(&self, addr: u64, loan: &Loan, from: u64, len: usize) -> Result<(), DmaFault> {
        let mut bytes = [0; 4096];
        for done in (0..len).step_by(bytes.len()) {
            let part = &mut bytes[..(len - done).min(4096)];
            if !loan.copy(from + done as u64, part) {
                return Err(DmaFault { addr, len: len as u64 });
            }
            self.write(addr + done as u64, part)?;
        }
        Ok(())
    }
    /// The bytes in this process, if another process may read them there. Only this crate
    /// constructs a [`Span`]: other implementations have none.
    fn in_process(&self, addr: u64, len: u64) -> Option<Span> {
        let _ = (addr, len);
        None
    }
    /// Makes the host bring in `len` bytes from `addr`, writable if `write`. Called before each
    /// access to unpinned memory.
    fn fault_in(&self, addr: u64, len: u64, write: bool) -> Result<(), DmaFault> {
        let _ = write;
        Err(DmaFault { addr, len })
    }
}

impl<T: Dma + Sync + ?Sized> Dma for Arc<T> {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        (**self).read(addr, buf)
    }
    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        (**self).write(addr, data)
    }
    fn load_u32(&self, addr: u64) -> Result<u32, DmaFault> {
        (**self).load_u32(addr)
    }
    fn store_u32(&self, addr: u64, value: u32) -> Result<(), DmaFault> {
        (**self).store_u32(addr, value)
    }
    fn store_u8(&self, addr: u64, value: u8) -> Result<(), DmaFault> {
        (**self).store_u8(addr, value)
    }
    fn store_last(&self, addr: u64, bytes: [u8; 8]) -> Result<(), DmaFault> {
        (**self).store_last(addr, bytes)
    }
    fn fetch_update_u64(
        &self,
        addr: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        (**self).fetch_update_u64(addr, update)
    }
    fn take(&self, addr: u64, loan: &Loan, from: u64, len: usize) -> Result<(), DmaFault> {
        (**self).take(addr, loan, from, len)
    }
    fn in_process(&self, addr: u64, len: u64) -> Option<Span> {
        (**self).in_process(addr, len)
    }
    fn fault_in(&self, addr: u64, len: u64, write: bool) -> Result<(), DmaFault> {
        (**self).fault_in(addr, len, write)
    }
}

/// Access to the memory of a region.
pub(crate) trait RegionAccess {
    /// Bus address of a range that must be writable and contiguous: an atomic's operand, an owner
    /// byte.
    fn addr_of(&self, offset: u64, len: u64) -> Result<u64, DmaFault>;

    /// Bus address of a range in pinned memory that is contiguous as a whole. None if the range is
    /// empty.
    fn flat(&self, offset: u64, len: u64) -> Option<u64>;

    /// Brings in `len` bytes from `offset`, if the memory is unpinned.
    ///
    /// # Errors
    ///
    /// The host refused, or the range is beyond the region.
    fn fault_in(&self, dma: &dyn Dma, offset: u64, len: u64, write: bool) -> Result<(), DmaFault>;

    /// True if an access was refused because a page is missing or not writable.
    fn lacks(&self, offset: u64, len: u64, write: bool) -> bool;

    /// Copies from the region.
    fn read(&self, dma: &dyn Dma, offset: u64, buf: &mut [u8]) -> Result<(), DmaFault>;

    /// Copies into the region.
    fn write<'a>(
        &self,
        dma: &dyn Dma,
        offset: u64,
        data: impl Into<Payload<'a>>,
    ) -> Result<(), DmaFault>;
}

impl RegionAccess for Region {
    fn addr_of(&self, offset: u64, len: u64) -> Result<u64, DmaFault> {
        let (addr, run) = span(self, offset, len, true)?;
        if run < len { Err(DmaFault { addr, len }) } else { Ok(addr) }
    }

    #[inline]
    fn flat(&self, offset: u64, len: u64) -> Option<u64> {
        match self {
            Region::Flat { addr, len: all } if len != 0 && offset.checked_add(len)? <= *all => {
                addr.checked_add(offset)
            }
            _ => None,
        }
    }

    fn fault_in(&self, dma: &dyn Dma, offset: u64, len: u64, write: bool) -> Result<(), DmaFault> {
        if let Region::OnDemand { .. } = self {
            let (addr, run) = span(self, offset, len, write)?;
            dma.fault_in(addr, run, write)?;
        }
        Ok(())
    }

    fn lacks(&self, offset: u64, len: u64, write: bool) -> bool {
        let Region::Pages { page_shift, offset: first, pages, .. } = self else { return false };
        let Some(at) = first.checked_add(offset) else { return false };
        let Some(end) = at.checked_add(len) else { return false };
        let (from, to) = (at >> page_shift, end.div_ceil(1 << page_shift));
        let needed = pages.get(from as usize..to as usize);
        needed.is_some_and(|pages| pages.iter().any(|&page| !may(page, write)))
    }

    #[inline]
    fn read(&self, dma: &dyn Dma, offset: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        match self.flat(offset, buf.len() as u64) {
            Some(addr) => dma.read(addr, buf),
            None => read_pages(self, dma, offset, buf),
        }
    }

    #[inline]
    fn write<'a>(
        &self,
        dma: &dyn Dma,
        offset: u64,
        data: impl Into<Payload<'a>>,
    ) -> Result<(), DmaFault> {
        let data = data.into();
        match self.flat(offset, data.len() as u64) {
            Some(addr) => data.write(dma, addr),
            None => write_pages(self, dma, offset, data),
        }
    }
}

/// Bus address of `offset`, and the number of bytes that follow it contiguously, at most `len`.
/// `write` also requires a writable page.
fn span(region: &Region, offset: u64, len: u64, write: bool) -> Result<(u64, u64), DmaFault> {
    let fault = DmaFault { addr: offset, len };
    if offset.checked_add(len).is_none_or(|end| end > region.len()) {
        return Err(fault);
    }
    match region {
        Region::Flat { addr, .. } | Region::OnDemand { addr, .. } => {
            Ok((addr.checked_add(offset).ok_or(fault)?, len))
        }
        Region::Pages { page_shift, offset: first, pages, .. } => {
            let at = first.checked_add(offset).ok_or(fault)?;
            let size = 1u64 << page_shift;
            let page = usize::try_from(at >> page_shift).map_err(|_| fault)?;
            let inside = at & (size - 1);
            let mut base = *pages.get(page).ok_or(fault)?;
            if base & READ_ONLY != 0 {
                base = if may(base, write) { base & !READ_ONLY } else { return Err(fault) };
            }
            Ok((base.checked_add(inside).ok_or(fault)?, len.min(size - inside)))
        }
        Region::Void => Err(fault),
    }
}

/// Copies from the region, page by page.
fn read_pages(region: &Region, dma: &dyn Dma, offset: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
    if matches!(region, Region::Void) {
        buf.fill(0);
        return Ok(());
    }
    region.fault_in(dma, offset, buf.len() as u64, false)?;
    let mut done = 0;
    while done < buf.len() {
        let (addr, run) = span(region, offset + done as u64, (buf.len() - done) as u64, false)?;
        let end = done + run as usize;
        dma.read(addr, &mut buf[done..end])?;
        done = end;
    }
    Ok(())
}

/// Copies into the region, page by page.
fn write_pages(
    region: &Region,
    dma: &dyn Dma,
    offset: u64,
    data: Payload<'_>,
) -> Result<(), DmaFault> {
    if matches!(region, Region::Void) {
        return Ok(());
    }
    region.fault_in(dma, offset, data.len() as u64, true)?;
    let mut done = 0;
    while done < data.len() {
        let (addr, run) = span(region, offset + done as u64, (data.len() - done) as u64, true)?;
        let end = done + run as usize;
        data.part(done, end).write(dma, addr)?;
        done = end;
    }
    Ok(())
}

/// True if a page of the list is present and, with `write`, writable.
fn may(page: u64, write: bool) -> bool {
    page != ABSENT && !(write && page & READ_ONLY != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::testing::Arena;

    #[test]
    fn pages_are_walked_and_bounds_hold() {
        let arena = Arena::new(0x4000);
        let base = arena.base();
        // Two pages in reverse order, starting 16 bytes before the end of the first.
        let region = Region::Pages {
            page_shift: 12,
            offset: 4080,
            pages: vec![base + 0x2000, base + 0x1000],
            len: 48,
        };
        assert!(region.is_sound());
        let data: Vec<u8> = (0..48).collect();
        region.write(&arena, 0, &data[..]).unwrap();
        let mut back = vec![0; 48];
        region.read(&arena, 0, &mut back).unwrap();
        assert_eq!(back, data);
        assert_eq!(arena.bytes(base + 0x2ff0, 16), data[..16]);
        assert_eq!(arena.bytes(base + 0x1000, 32), data[16..]);
        assert!(region.read(&arena, 40, &mut back[..9]).is_err());
        assert!(region.read(&arena, u64::MAX, &mut back[..2]).is_err());
        // Contiguous within a page only.
        assert_eq!(region.addr_of(0, 16), Ok(base + 0x2ff0));
        assert!(region.addr_of(12, 8).is_err());
        assert_eq!(region.addr_of(16, 32), Ok(base + 0x1000));
    }

    #[test]
    fn pages_may_be_read_alone_or_not_be_there() {
        let arena = Arena::new(0x4000);
        let base = arena.base();
        let pages = vec![base, (base + 0x1000) | READ_ONLY, ABSENT];
        let region = Region::Pages { page_shift: 12, offset: 0, pages, len: 0x3000 };
        arena.write(base + 0x1000, &[7; 8]).unwrap();
        let mut back = [0; 8];
        region.read(&arena, 0xffc, &mut back).unwrap();
        assert_eq!(back, [0, 0, 0, 0, 7, 7, 7, 7]);
        assert!(region.write(&arena, 0x1000, &[1]).is_err() && region.addr_of(0x1000, 8).is_err());
        assert!(region.read(&arena, 0x1fff, &mut back[..2]).is_err());
        for (offset, len, read, write) in [
            (0, 0x1000, false, false),
            (0xfff, 2, false, true),
            (0x1fff, 2, true, true),
            (0x2000, 1, true, true),
            (0x3000, 1, false, false),
        ] {
            assert_eq!(region.lacks(offset, len, false), read, "{offset:#x}");
            assert_eq!(region.lacks(offset, len, true), write, "{offset:#x}");
        }
    }

    #[test]
    fn a_part_is_where_the_whole_has_it() {
        let pages = vec![0x5000, 0x1000, 0x3000];
        let whole = Region::Pages { page_shift: 12, offset: 0xff0, pages, len: 0x2000 };
        for (offset, len) in [(0, 0x2000), (0, 16), (16, 16), (0x1010, 0xff0), (8, 0x1020)] {
            let part = whole.part(offset, len).unwrap();
            assert!(part.is_sound());
            assert_eq!(part.len(), len);
            for at in [0, len / 2, len - 1] {
                assert_eq!(part.addr_of(at, 1), whole.addr_of(offset + at, 1), "{offset} {at}");
            }
        }
        for (offset, len) in [(0, 0x2001), (0x2001, 0), (u64::MAX, 2), (1, u64::MAX)] {
            assert_eq!(whole.part(offset, len), None);
        }
        let flat = Region::Flat { addr: 0x1000, len: 16 };
        assert_eq!(flat.part(8, 8), Some(Region::Flat { addr: 0x1008, len: 8 }));
        assert_eq!(flat.part(8, 9), None);
    }

    #[test]
    fn unsound_regions_are_recognised() {
        assert!(!Region::Flat { addr: u64::MAX - 3, len: 8 }.is_sound());
        let mut short = Region::Pages { page_shift: 12, offset: 1, pages: vec![0], len: 4096 };
        assert!(!short.is_sound());
        if let Region::Pages { len, .. } = &mut short {
            *len = 4095;
        }
        assert!(short.is_sound());
        assert!(!Region::Pages { page_shift: 64, offset: 0, pages: vec![0], len: 1 }.is_sound());
    }
}
