//! Rings of siw: where the kernel's answers say that they are.
//!
//! # Safety
//!
//! A ring is mapped as long as its elements ask for.
#![allow(unsafe_code, reason = "makes rings of memory that the kernel maps")]

use std::sync::Arc;

use uverbs_core::attr::{AhAttr, QpCap, QpType};
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_SIW;
use uverbs_kernel_abi::siw::{
    SIW_MAX_INLINE, SIW_MAX_SGE, siw_cq_ctrl, siw_uresp_alloc_ctx, siw_uresp_create_cq,
    siw_uresp_create_qp, siw_uresp_create_srq,
};
use uverbs_kernel_rings::elements::ElementLimits;
use uverbs_kernel_rings::{
    CqMade, Driver, LateWork, Mapped, Opened, QpMade, QpRings, SrqMade, SrqRing,
};

use crate::cq_ring::CqRing;
use crate::recv_ring::RecvRing;
use crate::ring::{Element, Ring};
use crate::send_ring::SendRing;
use crate::{Ah, Siw};

/// Maps the ring of `elements` at `key`, of which `least` are needed, with `more` bytes behind it.
///
/// A key is any multiple of a page, including the header's `SIW_INVAL_UOBJ_KEY`: a kernel without a
/// key to give fails the command (kernel `siw_verbs.c`, `siw_mmap_entry_insert`;
/// `ib_core_uverbs.c`, `rdma_user_mmap_entry_insert_range`).
fn map<E: Element>(
    uverbs: &Uverbs,
    verb: &'static str,
    (key, elements): (u64, u32),
    least: u32,
    more: usize,
) -> Result<Mapped<Ring<E>>, Error> {
    let is_ring = elements.is_power_of_two() && elements >= least && elements <= 1 << 24;
    if !is_ring {
        let what = format!("a queue of {elements} elements behind the key {key:#x}");
        return Err(Error::Unsupported { verb, what });
    }
    let memory = uverbs_kernel_rings::map(uverbs, elements as usize * size_of::<E>() + more, key)?;
    // SAFETY: the mapping has room for these, says the door, and starts at a page; the owner of the
    // ring keeps it.
    let ring = unsafe { Ring::new(memory.as_mut_ptr(), elements) };
    Ok(Mapped { ring, memory })
}

// SAFETY: `map` maps as many bytes as the elements have; each answer belongs to one object. The
// elements have room for what `get_context` says.
unsafe impl Driver for Siw {
    const IDS: &'static [u32] = &[RDMA_DRIVER_SIW];
    const MODULE: &'static str = "siw";
    const TRANSPORTS: &'static [QpType] = &[QpType::Rc];
    const HAS_TRANSPORTS: &'static str = "iWARP has reliable connections only";
    /// The kernel makes no queue pair without a send queue (`siw_verbs.c:siw_create_qp`).
    const MIN_SENDS: u32 = 1;
    const IGNORES_OVERRUN: bool = false;
    /// The kernel has no RESIZE_CQ, and no other size in MODIFY_SRQ (`siw_verbs.c:siw_modify_srq`).
    const RESIZES: bool = false;
    /// SENDs complete when TCP has them, and READs when the answer came.
    const SENDS_COMPLETE_IN_ORDER: bool = false;
    /// The kernel flushes once (`siw_qp.c:siw_sq_flush`).
    const LATE_WORK: LateWork = LateWork::Refused;

    type SendRing = SendRing;
    type RecvRing = RecvRing;
    type CqRing = CqRing;

    type State = ();
    type CqAnswer = siw_uresp_create_cq;
    type QpAnswer = siw_uresp_create_qp;
    type SrqAnswer = siw_uresp_create_srq;

    fn get_context(uverbs: &Uverbs) -> Result<Opened<()>, Error> {
        let most = ElementLimits { max_sge: SIW_MAX_SGE, max_inline: SIW_MAX_INLINE };
        uverbs_kernel_rings::open::<siw_uresp_alloc_ctx>(uverbs, most)
    }

    fn cq_ring(made: &CqMade<'_, Self>) -> Result<(Mapped<CqRing>, u32), Error> {
        let ring = (made.answer.cq_key, made.answer.num_cqe);
        let more = size_of::<siw_cq_ctrl>();
        let Mapped { ring, memory } = map(made.uverbs, "create_cq", ring, made.entries, more)?;
        Ok((Mapped { ring: CqRing::new(ring), memory }, made.answer.cq_id))
    }

    fn qp_rings(made: &QpMade<'_, Self>) -> Result<QpRings<Self>, Error> {
        let (cap, answer) = (made.asked, made.answer);
        let ring = (answer.sq_key, answer.num_sqe);
        let send = map(made.uverbs, "create_qp", ring, cap.max_send_wr, 0)?;
        let (recv, recv_memory) = if cap.max_recv_wr == 0 {
            (Ring::NONE, None)
        } else {
            let ring = (answer.rq_key, answer.num_rqe);
            let mapped = map(made.uverbs, "create_qp", ring, cap.max_recv_wr, 0)?;
            (mapped.ring, Some(mapped.memory))
        };
        let QpCap { max_send_sge: max_sge, max_inline_data: max_inline, .. } = cap;
        let send_ring = SendRing::new(send.ring, ElementLimits { max_sge, max_inline });
        let memory = Arc::new((send.memory, recv_memory));
        Ok(QpRings { send: send_ring, recv: RecvRing(recv), cap, memory })
    }

    /// The kernel does not tell the queue's number: the handle takes its place.
    fn srq_ring(made: &SrqMade<'_, Self>) -> Result<(SrqRing<Self>, u32), Error> {
        let (max_wr, max_sge) = (made.init.max_wr, made.init.max_sge.max(1));
        let ring = (made.answer.srq_key, made.answer.num_rqe);
        let Mapped { ring, memory } = map(made.uverbs, "create_srq", ring, max_wr, 0)?;
        let made_ring = SrqRing { ring: RecvRing(ring), memory, max_wr, max_sge, producer: 0 };
        Ok((made_ring, made.created.handle))
    }

    fn create_ah(_: &Arc<ContextCore>, _: &Arc<PdCore>, _: &AhAttr) -> Result<Ah, Error> {
        let what = "an address handle (iWARP has no datagrams)".to_owned();
        Err(Error::Unsupported { verb: "create_ah", what })
    }
}
