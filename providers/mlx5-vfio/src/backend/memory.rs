//! Memory of objects as page lists of the device.

use super::umem::Umems;
use super::{Firmware, unsupported};
use crate::area::Umem;
use crate::dma::PAGE;
use crate::objects::raw_queues::WorkQueue;
use crate::transport::Purpose;
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
    /// Page list of a ring (`ib_umem_get`; its offset as `mlx5_umem_find_best_quantized_pgoff`).
    pub(super) fn ring(&self, region: &Region, umem: &mut Option<Umem>) -> Result<Ring, HcaError> {
        let (addr, len) = match region {
            Region::Flat { addr, len } => (*addr, *len),
            Region::OnDemand { .. } => return Err(unsupported("paging on demand")),
            Region::Pages { .. } | Region::Void => {
                return Err(unsupported("memory that is no range"));
            }
        };
        let page = PAGE as u64;
        let inside = addr % page;
        if !inside.is_multiple_of(OFFSET_UNIT) {
            return Err(HcaError::BadParam { what: "page_offset", value: inside });
        }
        // Offsets in a page are equal in all address spaces.
        let at = self.reach(addr, len, Purpose::Write, umem)?;
        let count = (inside + region.len()).div_ceil(page);
        let pages = (0..count).flat_map(|n| (at - inside + n * page).to_be_bytes()).collect();
        Ok(Ring { pages, page_offset: inside / OFFSET_UNIT })
    }

    /// A work queue in memory of a program, without its sizes. `record`: address and bytes of the
    /// doorbell record.
    pub(super) fn work_queue(
        &mut self,
        region: &Region,
        (record, record_len): (u64, u64),
        pd: Pdn,
        umems: &mut Umems,
    ) -> Result<WorkQueue, HcaError> {
        let Ring { pages, page_offset } = self.ring(region, &mut umems.memory)?;
        // The field has five bits.
        if page_offset >= 1 << 5 {
            return Err(HcaError::BadParam { what: "page_offset", value: page_offset });
        }
        let record = self.reach(record, record_len, Purpose::Record, &mut umems.record)?;
        let pd = self.pd(pd)?;
        Ok(WorkQueue { pd, record, page_offset, pages, ..WorkQueue::default() })
    }
}
