//! Memory of objects as page lists of the device.

use uverbs_mlx5_prm::cmd::rq::wq;

use super::{Firmware, unsupported};
use crate::dma::PAGE;
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::Pdn;
use uverbs_front::backend::region::Region;

/// Units of a page's offset: 64ths of the page.
const OFFSET_UNIT: u64 = PAGE as u64 / 64;

/// Pages of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) pages: Vec<u8>,
    /// Offset of the ring in its first page, in 64ths of the page.
    pub(super) page_offset: u64,
}

impl Firmware {
    /// Address for the device of memory that the program has at `address`.
    pub(super) fn translate(&self, address: u64, len: u64) -> Result<u64, HcaError> {
        let found = self.function.dma().translate(address, len);
        found.ok_or_else(|| unsupported("memory that is not from the device's allocator"))
    }

    /// Address for the device of a region's first byte.
    pub(super) fn place(&self, region: &Region) -> Result<u64, HcaError> {
        match region {
            Region::Flat { addr, len } => self.translate(*addr, *len),
            Region::OnDemand { .. } => Err(unsupported("paging on demand")),
            Region::Pages { .. } | Region::Void => Err(unsupported("memory that is no range")),
        }
    }

    /// Page list of a ring.
    pub(super) fn ring(&self, region: &Region) -> Result<Ring, HcaError> {
        let (at, page) = (self.place(region)?, PAGE as u64);
        let inside = at % page;
        if !inside.is_multiple_of(OFFSET_UNIT) {
            return Err(HcaError::BadParam { what: "page_offset", value: inside });
        }
        let count = (inside + region.len()).div_ceil(page);
        let pages = (0..count).flat_map(|n| (at - inside + n * page).to_be_bytes()).collect();
        Ok(Ring { pages, page_offset: inside / OFFSET_UNIT })
    }

    /// Fills in memory and protection domain of a work queue; returns its page list. `record`:
    /// address and bytes of the doorbell record.
    pub(super) fn fill_wq(
        &mut self,
        ring: &mut [u8],
        region: &Region,
        (record, record_len): (u64, u64),
        pd: Pdn,
    ) -> Result<Vec<u8>, HcaError> {
        let Ring { pages, page_offset } = self.ring(region)?;
        // The field has five bits.
        if page_offset >= 1 << 5 {
            return Err(HcaError::BadParam { what: "page_offset", value: page_offset });
        }
        for (field, value) in [
            (wq::PAGE_OFFSET, page_offset),
            (wq::PD, self.pd(pd)?.into()),
            (wq::DBR_ADDR, self.translate(record, record_len)?),
        ] {
            field.set(ring, value);
        }
        Ok(pages)
    }
}
