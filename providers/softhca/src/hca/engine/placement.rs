//! IBTA's memory placement extensions (vol 1, annex A19; Linux `rxe_resp.c`, `process_flush` and
//! `atomic_write_reply`): FLUSH says that what was written before is placed, ATOMIC WRITE stores
//! eight bytes at once. A responder answers each as a READ of no bytes, in the order of requests.
//!
//! mlx5 has no WQE of either, so no driver posts them: [`Hca::place`] does, in the place of a NOP.

use std::sync::atomic::{Ordering, fence};

use crate::hca::context::{Access, Placement, Service};
use crate::hca::device::Hca;
use crate::hca::engine::page_faults::Wanted;
use crate::hca::engine::refusal::{INVALID, Refusal, refusal_of, refusal_or};
use crate::hca::error::{HcaError, Noun};
use crate::hca::number::{Key, Qpn, Srqn};
use crate::hca::state::common::Common;
use crate::hca::state::keys::{Segment, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::responder::Answer;
use crate::hca::state::wqe::{Op, Wqe};
use crate::wire::{Feth, Packet};

/// Bytes of an ATOMIC WRITE.
const LEN: u32 = 8;
/// Bytes of the longest range of a FLUSH: what RETH may say (IBTA 9.7.4.1.6, C9-94).
const MAX_RANGE: u32 = 1 << 31;

impl Hca {
    /// Has the NOP that stands, or will stand, at that WQEBB of a send ring be this operation
    /// instead. Its completion is the NOP's. To be called before the NOP's doorbell. `srqn` is the
    /// SRQ at the peer that a request of XRC names; RC has none.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::BadParam`] for a service without these operations: IBTA
    /// has them for RC and XRC.
    pub fn place(
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

/// A WQE that was fetched; if it is a NOP in whose place something else was asked for, that.
pub(super) fn instead(qp: &mut Qp, wqe: &mut Wqe) {
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

/// Executes a FLUSH. What the queue pair wrote before is in memory by now, since requests are
/// executed in order; it is visible to all processors behind a fence.
pub(super) fn flush(
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
        // The address says nothing then; any of the key's will do.
        Feth::REGION => (common.keys.key_at(key).map_err(refusal_of)?.iova, 0),
        _ => return Err(INVALID),
    };
    common.keys.check(who, Segment { key, addr, len }, need).map_err(refusal_of)?;
    // Partner: whatever a processor of this host does once it knows that the FLUSH was answered.
    fence(Ordering::SeqCst);
    push(qp, packet);
    Ok(())
}

/// The rights that the placement types of a FLUSH need; none if it asks for none, or for others.
fn rights(feth: &Feth) -> Option<Access> {
    let types = feth.placement();
    let mut need = Access::empty();
    need.set(Access::FLUSH_GLOBAL, types & Feth::GLOBAL != 0);
    need.set(Access::FLUSH_PERSISTENT, types & Feth::PERSISTENT != 0);
    let known = types & !(Feth::GLOBAL | Feth::PERSISTENT) == 0;
    (known && !need.is_empty()).then_some(need)
}

/// Executes an ATOMIC WRITE: eight bytes, aligned, by one store.
pub(super) fn store(
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

/// A request that was executed before is answered again, and not executed again (oA19-14, oA19-15):
/// an older ATOMIC WRITE would undo a later one.
pub(super) fn repeat(qp: &mut Qp, packet: &Packet<'_>) {
    push(qp, packet);
}

/// They don't count among the READs and atomics that a requester may have outstanding: Linux's
/// sends any number of FLUSHes (`rxe_req.c`, `rxe_requester`).
fn push(qp: &mut Qp, packet: &Packet<'_>) {
    let (psn, msn) = (packet.psn(), qp.responder.msn);
    qp.responder.answers.push_back(Answer::Placed { psn, msn });
}
