//! Rings of rdmavt: where the kernel's answers say that they are.
//!
//! # Safety
//!
//! A ring is mapped as long as its elements need. A change of size names a local for the answer.
#![allow(unsafe_code, reason = "makes rings of memory that the kernel maps")]

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::{AhAttr, QpCap, QpType};
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::srq::SrqCore;
use uverbs_kernel_abi::driver_id::{RDMA_DRIVER_HFI1, RDMA_DRIVER_QIB};
use uverbs_kernel_abi::srq::{IB_SRQ_MAX_WR, ib_uverbs_modify_srq};
use uverbs_kernel_rings::elements::ElementLimits;
use uverbs_kernel_rings::{
    CqMade, Driver, LateWork, Mapped, Opened, QpMade, QpRings, Resize, SrqMade, SrqRing,
};

use crate::ah;
use crate::cq_ring::{CqRing, ENTRY};
use crate::inline::Inline;
use crate::recv_ring::{RecvRing, element};
use crate::ring::{Index, Ring};
use crate::send_ring::{MAX_SGE, SendRing};
use crate::{Ah, Rdmavt};

/// Maps the ring for `entries` of `size` bytes each at `offset`. The kernel maps an offset once
/// (kernel `rdmavt/mmap.c:rvt_mmap`).
pub(crate) fn map(
    uverbs: &Uverbs,
    verb: &'static str,
    offset: u64,
    entries: u32,
    size: usize,
) -> Result<Mapped<Ring>, Error> {
    let Some(len) = Ring::bytes(entries, size) else {
        let what = format!("a queue of {entries} entries of {size} bytes");
        return Err(Error::Unsupported { verb, what });
    };
    let memory = uverbs_kernel_rings::map(uverbs, len, offset)?;
    // SAFETY: the mapping has `len` bytes, says the door, and starts at a page; the owner of the
    // ring keeps it. Sizes of elements are multiples of eight.
    let ring = unsafe { Ring::new(memory.as_mut_ptr(), entries, size) };
    Ok(Mapped { ring, memory })
}

/// Bytes of inline data, which the provider copies: the kernel copies data for its own users alone.
const MAX_INLINE: u32 = 512;

// SAFETY: `map` maps as many bytes as the elements have; each answer belongs to one object. The
// kernel completes the sends of a queue in turn (kernel `rdmavt_qp.h:rvt_qp_complete_swqe`).
unsafe impl Driver for Rdmavt {
    const IDS: &'static [u32] = &[RDMA_DRIVER_HFI1, RDMA_DRIVER_QIB];
    const MODULE: &'static str = "rdmavt";
    const TRANSPORTS: &'static [QpType] = &[QpType::Rc, QpType::Uc, QpType::Ud];
    const HAS_TRANSPORTS: &'static str = "rdmavt has RC, UC and UD";
    const MIN_SENDS: u32 = 0;
    /// The kernel refuses the flag (`rdmavt/cq.c:rvt_create_cq`).
    const IGNORES_OVERRUN: bool = false;
    const RESIZES: bool = true;
    const SENDS_COMPLETE_IN_ORDER: bool = true;
    /// `rdmavt/qp.c:ib_rvt_state_ops`, `rvt_error_qp`.
    const LATE_WORK: LateWork = LateWork::SendsFlushed;

    type SendRing = SendRing;
    type RecvRing = RecvRing;
    type CqRing = CqRing;

    type State = ();
    /// Offset of the mapping, as in the answers for queue pairs and shared receive queues.
    type CqAnswer = u64;
    type QpAnswer = u64;
    type SrqAnswer = u64;

    fn get_context(uverbs: &Uverbs) -> Result<Opened<()>, Error> {
        uverbs_kernel_rings::open::<()>(
            uverbs,
            ElementLimits { max_sge: MAX_SGE, max_inline: MAX_INLINE },
        )
    }

    /// The kernel has no number for the queue: the handle takes its place.
    fn cq_ring(made: &CqMade<'_, Self>) -> Result<(Mapped<CqRing>, u32), Error> {
        let entries = made.created.entries;
        let Mapped { ring, memory } = map(made.uverbs, "create_cq", made.answer, entries, ENTRY)?;
        Ok((Mapped { ring: CqRing::new(ring), memory }, made.created.handle))
    }

    /// The kernel makes a ring of receives also for no receives, unless there is a shared queue.
    fn qp_rings(made: &QpMade<'_, Self>) -> Result<QpRings<Self>, Error> {
        let (init, granted) = (made.init, made.created.cap);
        let (recv, memory) = if init.srq.is_some() {
            (Ring::NONE, None)
        } else {
            let (entries, size) = (granted.max_recv_wr, element(granted.max_recv_sge));
            let mapped = map(made.uverbs, "create_qp", made.answer, entries, size)?;
            (mapped.ring, Some(mapped.memory))
        };
        let cap = QpCap {
            max_send_wr: granted.max_send_wr.min(made.asked.max_send_wr),
            max_recv_wr: granted.max_recv_wr,
            max_send_sge: granted.max_send_sge.min(made.asked.max_send_sge),
            max_recv_sge: granted.max_recv_sge,
            max_inline_data: made.asked.max_inline_data,
        };
        // The copy takes an SGE.
        let has_inline = cap.max_send_wr != 0 && cap.max_send_sge != 0 && cap.max_inline_data != 0;
        let max_inline_data = if has_inline { cap.max_inline_data } else { 0 };
        let cap = QpCap { max_inline_data, ..cap };
        let slots = cap.max_send_wr.next_power_of_two();
        let inline = match has_inline {
            true => Some(Inline::new(made.uverbs, &init.pd, slots, max_inline_data)?),
            false => None,
        };
        let room = ElementLimits { max_sge: cap.max_send_sge, max_inline: max_inline_data };
        let send = SendRing::new(init.qp_type, cap.max_send_wr, room, inline.clone());
        let memory = Arc::new((memory, inline));
        Ok(QpRings { send, recv: RecvRing::new(recv, 0), cap, memory })
    }

    /// The kernel does not tell the queue's number: the handle takes its place.
    fn srq_ring(made: &SrqMade<'_, Self>) -> Result<(SrqRing<Self>, u32), Error> {
        let (max_wr, max_sge) = (made.created.max_wr, made.created.max_sge);
        let mapped = map(made.uverbs, "create_srq", made.answer, max_wr, element(max_sge))?;
        Ok((shared(mapped, max_wr, max_sge), made.created.handle))
    }

    /// Resizes by MODIFY_SRQ (rdma-core `verbs.c:hfi1_modify_srq`). The driver's part of the
    /// request is the address of a `u64`, where the kernel stores the offset of the new ring
    /// (kernel `rdmavt/srq.c:rvt_modify_srq`). The receives that it has yet to take are in that
    /// ring.
    fn resize_srq(core: &SrqCore, max_wr: u32, max_sge: u32) -> Result<SrqRing<Self>, Resize> {
        let mut offset = 0u64;
        let request = ((&raw mut offset).expose_provenance() as u64).to_ne_bytes();
        let attr = ib_uverbs_modify_srq {
            srq_handle: core.handle(),
            attr_mask: IB_SRQ_MAX_WR,
            max_wr,
            srq_limit: 0,
        };
        let uverbs = core.pd().context().uverbs();
        // SAFETY: the handle is the queue's; `offset` is a local that outlives the command, and the
        // kernel stores eight bytes; later receives go to the new ring.
        unsafe { uverbs.modify_srq(&attr, &request) }.map_err(|error| {
            // The kernel refuses values, and fails for lack of memory, before it moves the ring.
            let is_kept = matches!(error.errno(), Some(Errno::EINVAL | Errno::ENOMEM));
            if is_kept { Resize::Unchanged(error) } else { Resize::Lost(error) }
        })?;
        // SAFETY: a local; the kernel stored it.
        let offset = unsafe { (&raw const offset).read_volatile() };
        let mapped = map(uverbs, "modify_srq", offset, max_wr, element(max_sge));
        Ok(shared(mapped.map_err(Resize::Lost)?, max_wr, max_sge))
    }

    fn create_ah(core: &Arc<ContextCore>, pd: &Arc<PdCore>, attr: &AhAttr) -> Result<Ah, Error> {
        ah::create(core, pd, attr)
    }
}

/// Ring of a shared receive queue.
fn shared(mapped: Mapped<Ring>, max_wr: u32, max_sge: u32) -> SrqRing<Rdmavt> {
    let Mapped { ring, memory } = mapped;
    let producer = ring.load(Index::Head);
    SrqRing { ring: RecvRing::new(ring, producer), memory, max_wr, max_sge, producer }
}
