//! Shared receive queues: a ring of WQEs that the driver links into a list. Any QP of the SRQ takes
//! from it (IBTA vol 1, 10.2.9; PRM, "Shared Receive Queue").

use std::collections::BTreeMap;

use uverbs_mlx5_prm::wqe::{RecvHead, RecvKind, RecvView};

use crate::hca::config::HcaConfig;
use crate::hca::dma::RegionAccess;
use crate::hca::dma::{Dma, DmaFault};
use crate::hca::state::cq::CqTable;
use crate::hca::state::events::Events;
use crate::hca::state::tags::TagList;
use crate::hca::stats::HcaStats;
use uverbs_front::backend::context::{STRIDE_SHIFTS, SrqContext};
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun};
use uverbs_front::backend::number::{Cqn, Srqn};

/// SRQNs have 24 bits.
const NUMBER_MASK: u32 = 0x00ff_ffff;

#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) ctx: SrqContext,
    /// Tag list of a tag-matching SRQ.
    pub(crate) tags: Option<Box<TagList>>,
    srqn: Srqn,
    /// WQEs taken, modulo 2^16.
    taken: u16,
    /// Slot of the next WQE to take. The driver's list starts at slot 0 (rdma-core srq.c,
    /// `mlx5_alloc_srq_buf`).
    next: u16,
    /// Number of QPs of the SRQ.
    pub(crate) users: u32,
    /// The ring could not be read; no WQE is taken any more.
    dead: bool,
}

/// All shared receive queues.
#[derive(Debug, Default)]
pub(crate) struct SrqTable {
    srqs: BTreeMap<Srqn, Srq>,
    next: u32,
}

impl SrqTable {
    pub(crate) fn create(
        &mut self,
        ctx: SrqContext,
        config: &HcaConfig,
        cqs: &mut CqTable,
    ) -> Result<Srqn, HcaError> {
        check(&ctx, config)?;
        let max = config.max_srq.min(NUMBER_MASK - 1);
        if self.srqs.len() as u64 >= max.into() {
            return Err(HcaError::Limit { what: "max_srq", limit: max.into() });
        }
        if let Some(cq) = own_cq(&ctx) {
            cqs.get_mut(cq)?.users += 1;
        }
        // Terminates: fewer than 2^24 - 1 numbers are taken.
        let srqn = loop {
            self.next = (self.next + 1) & NUMBER_MASK;
            if self.next != 0 && !self.srqs.contains_key(&Srqn(self.next)) {
                break Srqn(self.next);
            }
        };
        let tags = ctx.tags.map(|tags| Box::new(TagList::new(tags.log_tags)));
        let srq = Srq { ctx, tags, srqn, taken: 0, next: 0, users: 0, dead: false };
        self.srqs.insert(srqn, srq);
        Ok(srqn)
    }

    pub(crate) fn destroy(&mut self, srqn: Srqn, cqs: &mut CqTable) -> Result<(), HcaError> {
        let srq = self.get(srqn)?;
        if srq.users != 0 {
            return Err(HcaError::Busy { noun: Noun::Srq, number: srqn.0, users: srq.users });
        }
        if let Some(cq) = own_cq(&srq.ctx)
            && let Ok(cq) = cqs.get_mut(cq)
        {
            cq.users -= 1;
        }
        self.srqs.remove(&srqn);
        Ok(())
    }

    pub(crate) fn get(&self, srqn: Srqn) -> Result<&Srq, HcaError> {
        self.srqs.get(&srqn).ok_or(HcaError::BadHandle { noun: Noun::Srq, number: srqn.0 })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Srqn, &Srq)> {
        self.srqs.iter().map(|(srqn, srq)| (*srqn, srq))
    }

    pub(crate) fn get_mut(&mut self, srqn: Srqn) -> Result<&mut Srq, HcaError> {
        self.srqs.get_mut(&srqn).ok_or(HcaError::BadHandle { noun: Noun::Srq, number: srqn.0 })
    }
}

impl Srq {
    /// Number of WQEs taken, modulo 2^16, and the slot of the next one.
    pub(crate) fn next(&self) -> (u16, u16) {
        (self.taken, self.next)
    }

    /// Number of WQEs posted and not taken; 0 if the record is further ahead than the ring is long.
    pub(crate) fn posted(&self, dma: &dyn Dma, stats: &mut HcaStats) -> u16 {
        if self.dead {
            return 0;
        }
        // The acquire load pairs with the driver's barrier between WQEs and record (rdma-core
        // srq.c, `mlx5_post_srq_recv`: udma_to_device_barrier).
        let Ok(word) = dma.load_u32(self.ctx.doorbell_record) else {
            stats.complaints.record_fault += 1;
            return 0;
        };
        let posted = (u32::from_be(word) as u16).wrapping_sub(self.taken);
        if u32::from(posted) > 1 << self.ctx.log_entries {
            stats.complaints.record_overrun += 1;
            return 0;
        }
        posted
    }

    /// Takes the WQE at the head of the list: returns its slot, and its bytes in `stride`. The
    /// caller made sure that one is posted. The link to the next WQE is read only now, since the
    /// driver may change it until it posts.
    pub(crate) fn take(
        &mut self,
        dma: &dyn Dma,
        stride: &mut [u8],
        events: &mut Events,
        stats: &mut HcaStats,
    ) -> Result<u16, (u16, DmaFault)> {
        let slot = self.next & (((1u32 << self.ctx.log_entries) - 1) as u16);
        self.taken = self.taken.wrapping_add(1);
        let at = u64::from(slot) * stride.len() as u64;
        if let Err(fault) = self.ctx.region.read(dma, at, stride) {
            self.dead = true;
            events.push(HcaEvent::SrqError { srqn: self.srqn }, stats);
            return Err((slot, fault));
        }
        if let Ok(view) = RecvView::parse(stride, RecvKind::Srq)
            && let RecvHead::Next(next) = view.head()
        {
            self.next = next.next_wqe_index.get();
        }
        let left = self.posted(dma, stats);
        // Raised once each time the limit is set (IBTA 10.2.9.4; the kernel arms it again with
        // every modify).
        if self.ctx.limit != 0 && left < self.ctx.limit {
            self.ctx.limit = 0;
            events.push(HcaEvent::SrqLimit { srqn: self.srqn }, stats);
        }
        Ok(slot)
    }
}

/// CQ of an XRC or tag-matching SRQ.
fn own_cq(ctx: &SrqContext) -> Option<Cqn> {
    ctx.xrc.map(|xrc| xrc.cq).or(ctx.tags.map(|tags| tags.cq))
}

/// Checks the parameters of CREATE_RMP, CREATE_XRC_SRQ and CREATE_XRQ.
fn check(ctx: &SrqContext, config: &HcaConfig) -> Result<(), HcaError> {
    let bad = |what, value| Err(HcaError::BadParam { what, value });
    if ctx.log_entries > config.log_max_rq_entries {
        let limit = config.log_max_rq_entries.into();
        return Err(HcaError::Limit { what: "log_max_rq_entries", limit });
    }
    // A stride has at least two segments, the link and one SGE.
    if !STRIDE_SHIFTS.contains(&ctx.stride_shift) || ctx.stride_shift < 5 {
        return bad("srq.stride_shift", ctx.stride_shift.into());
    }
    if !ctx.region.is_sound() || ctx.region.len() < 1u64 << (ctx.log_entries + ctx.stride_shift) {
        return bad("srq.region", ctx.region.len());
    }
    if ctx.doorbell_record & 3 != 0 {
        return bad("srq.doorbell_record", ctx.doorbell_record);
    }
    if u32::from(ctx.limit) > 1 << ctx.log_entries {
        return bad("srq.limit", ctx.limit.into());
    }
    if let Some(tags) = &ctx.tags {
        if tags.log_tags > config.log_max_tags {
            let limit = config.log_max_tags.into();
            return Err(HcaError::Limit { what: "log_max_tags", limit });
        }
        if ctx.xrc.is_some() {
            return bad("srq.xrc", 1);
        }
    }
    Ok(())
}
