//! Executes READs and atomics, whose responses carry data, and answers duplicate requests (IBTA vol
//! 1, 9.7.5.1.5).

use crate::hca::engine::responder::checks::{INVALID, Refusal, check, owner, refusal_or};
use crate::hca::engine::responder::placement;
use crate::hca::engine::scheduler::page_faults::Wanted;
use crate::hca::state::common::Common;
use crate::hca::state::qp::Qp;
use crate::hca::state::responder::Answer;
use crate::wire::{Operation, Packet};
use uverbs_front::backend::context::Access;
use uverbs_front::backend::number::Key;

pub(crate) fn read(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>) -> Result<u32, Refusal> {
    if qp.responder.fetching() >= usize::from(qp.attrs.max_dest_rd_atomic) {
        return Err(INVALID);
    }
    let (answer, packets) = read_answer(qp, common, packet, false)?;
    qp.responder.answers.push_back(answer);
    Ok(packets)
}

/// The response to a READ, and the PSNs that it takes.
fn read_answer(
    qp: &Qp,
    common: &Common,
    packet: &Packet<'_>,
    again: bool,
) -> Result<(Answer, u32), Refusal> {
    let Some(reth) = packet.reth() else {
        return Err(INVALID);
    };
    let (va, rkey, left) = (reth.va.get(), Key(reth.rkey.get()), reth.dma_length.get());
    // IBTA 9.4.3 lets RETH say 2^31, which at an MTU of 256 takes half of all PSNs, so that older
    // and newer PSNs could not be told apart (9.7.2). The port announces less (`max_msg_sz`; Linux
    // `hw/mlx5/qp.c` sets qpc.log_msg_max to it), and a longer request is invalid (9.7.4.1.6).
    if !qp.attrs.access.contains(Access::REMOTE_READ) || left > common.config.max_msg_size {
        return Err(INVALID);
    }
    let who = owner(qp, common, packet)?;
    check(common, who, (va, rkey.0, left), Access::REMOTE_READ)?;
    let msn = qp.responder.msn;
    let answer = Answer::Read { psn: packet.psn(), who, va, rkey, left, msn, begun: false, again };
    Ok((answer, left.div_ceil(qp.mtu()).max(1)))
}

pub(crate) fn atomic(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>) -> Result<(), Refusal> {
    let limit = usize::from(qp.attrs.max_dest_rd_atomic);
    let Some(eth) = packet.atomic_eth() else {
        return Err(INVALID);
    };
    let va = eth.va.get();
    // IBTA 9.4.5: the operand is 8 bytes, aligned.
    if !qp.attrs.access.contains(Access::REMOTE_ATOMIC)
        || va % 8 != 0
        || qp.responder.fetching() >= limit
    {
        return Err(INVALID);
    }
    let (operand, compare) = (eth.swap_or_add.get(), eth.compare.get());
    let swaps = packet.layout().operation == Operation::CompareSwap;
    let mut update = |old: u64| match swaps {
        true if old == compare => operand,
        true => old,
        false => old.wrapping_add(operand),
    };
    let (at, who) = ((Key(eth.rkey.get()), va), owner(qp, common, packet)?);
    let wanted = Wanted::Memory { write: true, rkey: at.0, va, len: 8, packet: 8 };
    let need = Access::REMOTE_ATOMIC;
    let original = common.keys.atomic(&*common.dma, who, at, need, &mut update);
    let original = original.map_err(refusal_or(wanted))?;
    let (psn, msn) = (packet.psn(), qp.responder.msn);
    if qp.responder.atomics.len() >= limit {
        qp.responder.atomics.pop_front();
    }
    qp.responder.atomics.push_back((psn, original));
    qp.responder.answers.push_back(Answer::Atomic { psn, original, msn, again: false });
    Ok(())
}

/// Answers a request that was executed before (IBTA 9.7.5.1.5, "duplicate request"): by another
/// acknowledgement, another read, or a stored atomic result. A duplicate that cannot be answered is
/// dropped.
pub(crate) fn repeat(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>) {
    match packet.layout().operation {
        Operation::Send | Operation::Write => qp.responder.push_ack(),
        Operation::ReadRequest => {
            if let Ok((answer, packets)) = read_answer(qp, common, packet, true) {
                // A duplicate READ may ask for a part of the original, and for nothing beyond.
                if !(packet.psn() + packets).is_after(qp.responder.expected) {
                    qp.responder.answers.push_back(answer);
                }
            }
        }
        Operation::Flush | Operation::AtomicWrite => placement::repeat(qp, packet),
        Operation::CompareSwap | Operation::FetchAdd => {
            let psn = packet.psn();
            let result = qp.responder.atomics.iter().find(|(at, _)| *at == psn);
            if let Some(&(_, original)) = result {
                let msn = qp.responder.msn;
                qp.responder.answers.push_back(Answer::Atomic { psn, original, msn, again: true });
            }
        }
        _ => {}
    }
}
