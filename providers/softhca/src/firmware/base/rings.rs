//! Memory of queues as regions: page lists at the end of a command, or memory that a user
//! registered.

use uverbs_mlx5_prm::cmd::rq::wq;

use crate::firmware::base::call::Refusal;
use uverbs_front::backend::region::Region;

/// Log2 of the smallest page.
const PAGE_SHIFT: u64 = 12;
/// Log2 of the largest page that a context can name.
const MAX_PAGE_SHIFT: u64 = 40;
/// Units of a page offset: 64ths of the page.
const OFFSET_UNITS: u64 = 64;

/// Memory of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RingMemory<'a> {
    Pages(Pages<'a>),
    /// Registered memory of a user, from this byte on.
    Umem(&'a Region, u64),
}

impl RingMemory<'_> {
    /// `len` bytes of the ring, from `skip` on.
    pub(crate) fn region(&self, skip: u64, len: u64) -> Result<Region, Refusal> {
        match self {
            Self::Pages(pages) => pages.region(skip, len),
            Self::Umem(umem, offset) => {
                let part = offset.checked_add(skip).and_then(|offset| umem.part(offset, len));
                part.ok_or(Refusal::param("less registered memory than the ring has"))
            }
        }
    }
}

/// A list of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages<'a> {
    /// Bus addresses (`pas`), big-endian; the low 12 bits are ignored.
    pub(crate) pas: &'a [u8],
    /// Log2 of the page size minus 12 (`log_page_size`).
    pub(crate) log_page_size: u64,
    /// Offset in the first page, in 64ths of a page (`page_offset`).
    pub(crate) page_offset: u64,
}

impl<'a> Pages<'a> {
    /// Pages of a work queue: the list follows the ring's context, which is the end of the
    /// command's fixed part.
    pub(crate) fn of_wq(ring: &[u8], input: &'a [u8], fixed: usize) -> Self {
        Self {
            pas: input.get(fixed..).unwrap_or_default(),
            log_page_size: wq::LOG_WQ_PG_SZ.get(ring),
            page_offset: wq::PAGE_OFFSET.get(ring),
        }
    }

    /// `len` bytes of the ring, from `skip` on.
    pub(crate) fn region(&self, skip: u64, len: u64) -> Result<Region, Refusal> {
        let shift = PAGE_SHIFT + self.log_page_size;
        if shift > MAX_PAGE_SHIFT {
            return Err(Refusal::param("log_page_size"));
        }
        let size = 1u64 << shift;
        let start = self.page_offset % OFFSET_UNITS * (size / OFFSET_UNITS) + skip;
        let first = start / size;
        let offset = start % size;
        // Cannot overflow: rings have less than 2^32 bytes.
        let count = (offset + len).div_ceil(size);
        let have = (self.pas.len() / 8) as u64;
        if first + count > have {
            return Err(Refusal::param("fewer pages than the ring has"));
        }
        let pages = self.pas.chunks_exact(8).skip(first as usize).take(count as usize);
        let pages = pages.filter_map(|pa| pa.try_into().ok().map(u64::from_be_bytes));
        let pages = pages.map(|pa| pa & !((1 << PAGE_SHIFT) - 1)).collect();
        Ok(Region::Pages { page_shift: shift as u8, offset, pages, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::dma::RegionAccess;

    fn pas(pages: &[u64]) -> Vec<u8> {
        pages.iter().flat_map(|page| page.to_be_bytes()).collect()
    }

    #[test]
    fn offsets_count_in_64ths_of_a_page_of_any_size() {
        let list = pas(&[0x10_0000, 0x30_0000]);
        let pages = Pages { pas: &list, log_page_size: 4, page_offset: 63 };
        let region = pages.region(0, 0x800).unwrap();
        assert_eq!(region.addr_of(0, 1), Ok(0x10_fc00));
        assert_eq!(region.addr_of(0x400, 1), Ok(0x30_0000));
    }

    #[test]
    fn a_ring_may_start_pages_later() {
        let list = pas(&[0x1000, 0x5000, 0x3000]);
        let pages = Pages { pas: &list, log_page_size: 0, page_offset: 1 };
        let region = pages.region(0x1000, 0x1000).unwrap();
        assert_eq!(region.addr_of(0, 1), Ok(0x5040));
        assert_eq!(region.addr_of(0xfc0, 1), Ok(0x3000));
        assert!(pages.region(0x2000, 0x1000).is_err());
        assert!(Pages { log_page_size: 31, ..pages }.region(0, 64).is_err());
    }
}
