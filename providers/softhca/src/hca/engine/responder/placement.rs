//! IBTA's memory placement extensions (vol 1, annex A19; Linux `rxe_resp.c`, `process_flush` and
//! `atomic_write_reply`). FLUSH confirms that earlier writes are placed; ATOMIC WRITE stores eight
//! bytes at once. A responder answers both as it answers a READ of no bytes, in the order of
//! requests.
//! mlx5 has no WQE for them, so no driver posts them: [`Hca::place`] puts one in the place of a
//! NOP.

use std::sync::atomic::{Ordering, fence};

use crate::hca::context::Placement;
use crate::hca::device::Hca;
use crate::hca::engine::responder::checks::{INVALID, Refusal, refusal_of, refusal_or};
use crate::hca::engine::scheduler::page_faults::Wanted;
use crate::hca::state::common::Common;
use crate::hca::state::keys::{Segment, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::responder::Answer;
use crate::hca::state::wqe::{Op, Wqe};
use crate::wire::{Feth, Packet};
use uverbs_front::backend::context::{Access, Service};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::{Key, Qpn, Srqn};

/// Bytes of an ATOMIC WRITE.
const LEN: u32 = 8;
/// Bytes of the longest range of a FLUSH, the maximum of RETH (IBTA 9.7.4.1.6, C9-94).
const MAX_RANGE: u32 = 1 << 31;

impl Hca {
    /// Replaces the NOP at a WQEBB of a send ring by this operation. The NOP's CQE completes it.
    /// Must be called before the NOP's doorbell. `srqn`: the peer's SRQ for XRC; ignored for RC.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::BadParam`] for a service other than RC and XRC, to
    /// which IBTA limits these operations.
    pub(crate) fn place(
        &mut self,
        qpn: Qpn,
        index: u16,
        srqn: Srqn,
        op: Placement,
    ) -> Result<(), HcaError> {
        let missing = HcaError::BadHandle { noun: Noun::Qp, number: qpn.0 };
        let qp = self.qps.get_mut(&qpn).ok_or(missing)?;
        if !matches!(qp.ctx.service, Service::Rc | Service::Xrc) {
            let value = qp.ctx.service as u64;
            return Err(HcaError::BadParam { what: "service", value });
        }
        qp.requester.placements.insert(index, (srqn, op));
        Ok(())
    }
}

/// Turns a fetched NOP into the operation that `Hca::place` asked for there, if any.
pub(crate) fn instead(qp: &mut Qp, wqe: &mut Wqe) {
    if wqe.op != Op::Nop {
        return;
    }
    let Some((srqn, placement)) = qp.requester.placements.remove(&wqe.index) else { return };
    wqe.xrc_srqn = srqn.0;
    match placement {
        Placement::Flush { va, rkey, len, header } => {
            wqe.op = Op::Flush { va, rkey, len, header };
        }
        Placement::AtomicWrite { va, rkey, data } => {
            wqe.op = Op::AtomicWrite { va, rkey };
            wqe.len = LEN;
            wqe.pieces.push_inline(&data);
        }
    }
}

/// Executes a FLUSH. The queue pair's earlier writes are in memory by now, since requests are
/// executed in order; the fence makes them visible to all processors.
pub(crate) fn flush(
    qp: &mut Qp,
    common: &mut Common,
    who: Who,
    packet: &Packet<'_>,
) -> Result<(), Refusal> {
    let (Some(feth), Some(reth)) = (packet.feth(), packet.reth()) else {
        return Err(INVALID);
    };
    let need = rights(feth).filter(|need| qp.attrs.access.contains(*need)).ok_or(INVALID)?;
    if !common.config.placement || reth.dma_length.get() > MAX_RANGE {
        return Err(INVALID);
    }
    let key = Key(reth.rkey.get());
    let (addr, len) = match feth.level() {
        Feth::RANGE => (reth.va.get(), reth.dma_length.get().into()),
        // A FLUSH of a region ignores the address; any address of the key passes the check.
        Feth::REGION => (common.keys.key_at(key).map_err(refusal_of)?.iova, 0),
        _ => return Err(INVALID),
    };
    common.keys.check(who, Segment { key, addr, len }, need).map_err(refusal_of)?;
    // Pairs with any access on this host by a thread that knows of the FLUSH's answer.
    fence(Ordering::SeqCst);
    push(qp, packet);
    Ok(())
}

/// Access rights that the placement types of a FLUSH need. None if it has no type, or an unknown
/// one.
fn rights(feth: &Feth) -> Option<Access> {
    let types = feth.placement();
    let mut need = Access::empty();
    need.set(Access::FLUSH_GLOBAL, types & Feth::GLOBAL != 0);
    need.set(Access::FLUSH_PERSISTENT, types & Feth::PERSISTENT != 0);
    let known = types & !(Feth::GLOBAL | Feth::PERSISTENT) == 0;
    (known && !need.is_empty()).then_some(need)
}

/// Executes an ATOMIC WRITE: one store of eight aligned bytes.
pub(crate) fn store(
    qp: &mut Qp,
    common: &mut Common,
    who: Who,
    packet: &Packet<'_>,
) -> Result<(), Refusal> {
    let Some(reth) = packet.reth() else {
        return Err(INVALID);
    };
    let Ok(data) = <[u8; LEN as usize]>::try_from(packet.payload()) else {
        return Err(INVALID);
    };
    let (va, need) = (reth.va.get(), Access::REMOTE_WRITE);
    if !common.config.placement
        || !qp.attrs.access.contains(need)
        || qp.attrs.max_dest_rd_atomic == 0
        || reth.dma_length.get() != LEN
        || va % u64::from(LEN) != 0
    {
        return Err(INVALID);
    }
    let at = (Key(reth.rkey.get()), va);
    let wanted = Wanted::Memory { write: true, rkey: at.0, va, len: LEN, packet: LEN as u16 };
    let new = u64::from_ne_bytes(data);
    let stored = common.keys.atomic(&*common.dma, who, at, need, &mut |_| new);
    stored.map_err(refusal_or(wanted))?;
    push(qp, packet);
    Ok(())
}

/// Answers a duplicate without executing it (oA19-14, oA19-15): an older ATOMIC WRITE would undo a
/// later one.
pub(crate) fn repeat(qp: &mut Qp, packet: &Packet<'_>) {
    push(qp, packet);
}

/// Queues the answer. It does not count among the READs and atomics that a requester may have
/// outstanding: Linux's sends any number of FLUSHes (`rxe_req.c`, `rxe_requester`).
fn push(qp: &mut Qp, packet: &Packet<'_>) {
    let (psn, msn) = (packet.psn(), qp.responder.msn);
    qp.responder.answers.push_back(Answer::Placed { psn, msn });
}
