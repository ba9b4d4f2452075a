//! Rings of rdma_rxe: where the kernel's answers say that they are.
//!
//! # Safety
//!
//! A ring is checked against its mapping, and its elements against the sizes that they are to hold.
//! A change of size names a local for the answer.
#![allow(unsafe_code, reason = "makes rings of memory that the kernel maps")]

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::{AhAttr, QpCap, QpType, SendOpSet};
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::srq::SrqCore;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_RXE;
use uverbs_kernel_abi::rxe::{
    mminfo, rxe_create_cq_resp, rxe_create_qp_resp, rxe_create_srq_resp, rxe_modify_srq_cmd,
};
use uverbs_kernel_abi::srq::{IB_SRQ_MAX_WR, ib_uverbs_modify_srq};
use uverbs_kernel_abi::wc::ib_uverbs_wc;
use uverbs_kernel_rings::elements::{ElementLimits, SGE};
use uverbs_kernel_rings::{
    CqMade, Driver, LateWork, Mapped, Opened, QpMade, QpRings, Resize, SrqMade, SrqRing,
};
use zerocopy::IntoBytes;

use crate::ah;
use crate::cq_ring::CqRing;
use crate::recv_ring::RecvRing;
use crate::ring::Ring;
use crate::send_ring::SendRing;
use crate::wqe::{RECV_HEAD, SEND_HEAD};
use crate::{Ah, Rxe};

const MODIFY_SRQ: &str = "modify_srq";

/// Maps the ring at `info`, whose elements have at least `element` bytes.
pub(crate) fn map(
    uverbs: &Uverbs,
    verb: &'static str,
    info: mminfo,
    element: usize,
) -> Result<Mapped<Ring>, Error> {
    let len = info.size as usize;
    if len == 0 {
        return Err(Error::Unsupported { verb, what: "a queue of no bytes".to_owned() });
    }
    let memory = uverbs_kernel_rings::map(uverbs, len, info.offset)?;
    // SAFETY: the mapping has `len` bytes, says the door, and starts at a page; the owner of the
    // ring keeps it.
    let ring = unsafe { Ring::new(memory.as_mut_ptr(), len, element) };
    let ring = ring.map_err(|why| Error::Unsupported {
        verb,
        what: format!("a queue of {len} bytes that is {why:?}"),
    })?;
    Ok(Mapped { ring, memory })
}

/// Bytes of a receive element with `sges` SGEs.
fn recv_element(sges: u32) -> usize {
    RECV_HEAD.saturating_add((sges as usize).saturating_mul(SGE))
}

// SAFETY: `map` checks a ring against its mapping and the size of its elements; each answer belongs
// to one object. The kernel works on the sends of a queue one after the other, and completes them
// in turn (kernel `rxe_comp.c:rxe_completer`).
unsafe impl Driver for Rxe {
    const IDS: &'static [u32] = &[RDMA_DRIVER_RXE];
    const MODULE: &'static str = "rdma_rxe";
    const TRANSPORTS: &'static [QpType] = &[QpType::Rc, QpType::Uc, QpType::Ud];
    const HAS_TRANSPORTS: &'static str = "soft-RoCE has RC, UC and UD";
    const MIN_SENDS: u32 = 0;
    const IGNORES_OVERRUN: bool = true;
    const RESIZES: bool = true;
    const SENDS_COMPLETE_IN_ORDER: bool = true;
    const LATE_WORK: LateWork = LateWork::FlushedInErr;

    type SendRing = SendRing;
    type RecvRing = RecvRing;
    type CqRing = CqRing;

    type State = ();
    type CqAnswer = rxe_create_cq_resp;
    type QpAnswer = rxe_create_qp_resp;
    type SrqAnswer = rxe_create_srq_resp;

    /// The inline data of a send element is limited by its bytes (kernel `rxe_param.h`,
    /// `RXE_MAX_WQE_SIZE`), less its head.
    fn get_context(uverbs: &Uverbs) -> Result<Opened<()>, Error> {
        let most = ElementLimits { max_sge: u32::MAX, max_inline: 720 - SEND_HEAD as u32 };
        uverbs_kernel_rings::open::<()>(uverbs, most)
    }

    /// The kernel has a number for the queue, and does not tell it: the handle takes its place.
    fn cq_ring(made: &CqMade<'_, Self>) -> Result<(Mapped<CqRing>, u32), Error> {
        let element = size_of::<ib_uverbs_wc>();
        let Mapped { ring, memory } = map(made.uverbs, "create_cq", made.answer.mi, element)?;
        Ok((Mapped { ring: CqRing::new(ring), memory }, made.created.handle))
    }

    fn qp_rings(made: &QpMade<'_, Self>) -> Result<QpRings<Self>, Error> {
        let (init, granted, answer) = (made.init, made.created.cap, made.answer);
        let sges = (granted.max_send_sge as usize).saturating_mul(SGE);
        let element = SEND_HEAD.saturating_add(sges.max(granted.max_inline_data as usize));
        let send = map(made.uverbs, "create_qp", answer.sq_mi, element)?;
        let (recv, recv_memory) = if init.srq.is_some() {
            (Ring::NONE, None)
        } else {
            let element = recv_element(granted.max_recv_sge);
            let mapped = map(made.uverbs, "create_qp", answer.rq_mi, element)?;
            (mapped.ring, Some(mapped.memory))
        };
        let cap = QpCap {
            max_send_wr: granted.max_send_wr.min(send.ring.mask()),
            max_recv_wr: granted.max_recv_wr.min(recv.mask()),
            max_send_sge: granted.max_send_sge,
            max_recv_sge: granted.max_recv_sge,
            max_inline_data: granted.max_inline_data,
        };
        let is_ud = init.qp_type == QpType::Ud;
        let ring = SendRing::new(
            send.ring,
            ElementLimits { max_sge: cap.max_send_sge, max_inline: cap.max_inline_data },
            is_ud,
            !is_ud && init.send_ops.is_some_and(|ops| ops.contains(SendOpSet::REKEY)),
            (init.qp_type == QpType::Rc).then_some(made.opened.device.caps_ex),
        );
        let memory = Arc::new((send.memory, recv_memory, ring.attic()));
        Ok(QpRings { send: ring, recv: RecvRing(recv), cap, memory })
    }

    fn srq_ring(made: &SrqMade<'_, Self>) -> Result<(SrqRing<Self>, u32), Error> {
        let max_sge = made.created.max_sge;
        let mapped = map(made.uverbs, "create_srq", made.answer.mi, recv_element(max_sge))?;
        Ok((shared(mapped, max_sge), made.answer.srq_num))
    }

    /// The kernel's ring has a power of two of elements, one of which stays empty.
    fn srq_capacity(max_wr: u32) -> u32 {
        let slots = max_wr.checked_add(1).and_then(u32::checked_next_power_of_two);
        slots.map_or(u32::MAX, |slots| slots - 1)
    }

    /// The kernel insists on its driver's request, and reads it for a size alone.
    fn set_srq_limit(core: &SrqCore, limit: u32) -> Result<(), Error> {
        core.set_limit(limit, rxe_modify_srq_cmd::default().as_bytes())
    }

    /// Resizes by MODIFY_SRQ (rdma-core `rxe.c:rxe_modify_srq`). The kernel moves the receives that
    /// it has yet to take to the beginning of a new ring, and tells where to map it (kernel
    /// `rxe_queue.c:rxe_queue_resize`). If it fails on the way, the queue has no ring any more
    /// (`rxe_srq.c:rxe_srq_from_attr`).
    fn resize_srq(core: &SrqCore, max_wr: u32, max_sge: u32) -> Result<SrqRing<Self>, Resize> {
        let mut info = mminfo::default();
        let request =
            rxe_modify_srq_cmd { mmap_info_addr: (&raw mut info).expose_provenance() as u64 };
        let attr = ib_uverbs_modify_srq {
            srq_handle: core.handle(),
            attr_mask: IB_SRQ_MAX_WR,
            max_wr,
            srq_limit: 0,
        };
        let uverbs = core.pd().context().uverbs();
        // SAFETY: the handle is the queue's; `info` is a local, and long enough; later receives go
        // to the new ring.
        unsafe { uverbs.modify_srq(&attr, request.as_bytes()) }.map_err(|error| {
            // A refusal of the values leaves the ring as it is.
            let is_kept = error.errno() == Some(Errno::EINVAL);
            if is_kept { Resize::Unchanged(error) } else { Resize::Lost(error) }
        })?;
        let mapped = map(uverbs, MODIFY_SRQ, info, recv_element(max_sge)).map_err(Resize::Lost)?;
        Ok(shared(mapped, max_sge))
    }

    fn create_ah(core: &Arc<ContextCore>, pd: &Arc<PdCore>, attr: &AhAttr) -> Result<Ah, Error> {
        ah::create(core, pd, attr)
    }
}

/// Ring of a shared receive queue.
fn shared(mapped: Mapped<Ring>, max_sge: u32) -> SrqRing<Rxe> {
    let Mapped { ring, memory } = mapped;
    let (max_wr, producer) = (ring.mask(), ring.produced());
    SrqRing { ring: RecvRing(ring), memory, max_wr, max_sge, producer }
}
