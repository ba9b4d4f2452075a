//! Sends a responder's answers in order, as the port has room. A long READ is read from memory
//! packet by packet.

use crate::hca::context::{frame, transport};
use crate::hca::engine::local::responses;
use crate::hca::engine::responder::queue::{refuse, report};
use crate::hca::engine::scheduler::page_faults;
use crate::hca::engine::scheduler::turn::Turn;
use crate::hca::state::common::Common;
use crate::hca::state::keys::KeyFault;
use crate::hca::state::qp::Qp;
use crate::hca::state::responder::Answer;
use crate::wire::{EmitError, NakCode, Opcode, PacketBuilder, Psn, Syndrome};
use uverbs_front::backend::context::{Access, QpState};

/// Sends answers, up to `budget` packets. Also in ERR: a NAK must get out.
pub(crate) fn transmit(qp: &mut Qp, common: &mut Common, budget: u32) -> Turn {
    let mut turn = Turn::default();
    for _ in 0..budget {
        let Some(&answer) = qp.responder.answers.front() else {
            return turn;
        };
        if !common.port.is_ready(qp.attrs.path.dst) {
            break;
        }
        turn.done = true;
        if responses::send(qp, common, answer) {
            continue;
        }
        if matches!(answer, Answer::Read { left, .. } if left != 0) {
            // This answer reads its bytes now; a loan ahead of it would be read later, out of
            // order. The loans are taken back, and the requester asks for them again.
            qp.responder.lent.clear();
        }
        match emit(qp, common, answer) {
            Ok((bytes, len)) => {
                let frame = frame(&qp.attrs.path, &common.port, bytes);
                common.port.send(frame, &mut common.stats);
                qp.responder.pass(1, len);
            }
            Err(NotSent::Key(KeyFault::Absent))
                if qp.responder.stop.is_some() && qp.state != QpState::Err =>
            {
                // Another missing page stopped the responder already. The requester asks for this
                // answer again after that page fault, and this page is asked for then.
                return turn;
            }
            Err(NotSent::Key(KeyFault::Absent)) if page_faults::stop_answer(qp, common, answer) => {
            }
            // The memory was deregistered after the check.
            Err(not) => fail_answer(qp, common, answer, not),
        }
    }
    turn.more = !qp.responder.answers.is_empty();
    turn
}

/// Reason why an answer was not built.
enum NotSent {
    Key(KeyFault),
    Emit,
}

impl From<EmitError> for NotSent {
    fn from(_: EmitError) -> NotSent {
        NotSent::Emit
    }
}

/// Replaces an answer that cannot be built, and all answers behind it, by a NAK.
fn fail_answer(qp: &mut Qp, common: &mut Common, answer: Answer, not: NotSent) {
    let (Answer::Ack { psn, .. }
    | Answer::Nak { psn, .. }
    | Answer::Atomic { psn, .. }
    | Answer::Placed { psn, .. }
    | Answer::Read { psn, .. }) = answer;
    if let Answer::Read { again: true, .. } | Answer::Nak { .. } = answer {
        qp.responder.answers.pop_front();
        return;
    }
    let code = match not {
        NotSent::Key(fault) => code(fault),
        NotSent::Emit => NakCode::REMOTE_OPERATIONAL,
    };
    refuse_at(qp, common, psn, code);
}

/// NAK code for memory that an answer could not read.
pub(crate) fn code(fault: KeyFault) -> NakCode {
    match fault {
        KeyFault::Dma(_) | KeyFault::Absent => NakCode::REMOTE_OPERATIONAL,
        _ => NakCode::REMOTE_ACCESS,
    }
}

/// Replaces the answer with that PSN, and all answers behind it, by a NAK.
pub(crate) fn refuse_at(qp: &mut Qp, common: &mut Common, psn: Psn, code: NakCode) {
    qp.responder.answers.clear();
    if qp.state != QpState::Err {
        report(qp, common, code);
    }
    // Also in ERR: the NAK that moved the QP to ERR was behind this answer and is gone with it.
    refuse(qp, common, code);
    if let Some(Answer::Nak { psn: at, .. }) = qp.responder.answers.back_mut() {
        *at = psn;
    }
}

fn headers(qp: &Qp, common: &Common, opcode: Opcode, psn: Psn) -> PacketBuilder {
    let pkey = common.config.pkeys.get(usize::from(qp.attrs.pkey_index)).copied();
    let opcode = opcode.of(transport(qp.ctx.service));
    let builder = PacketBuilder::new(opcode, qp.attrs.dest_qpn.0, psn);
    builder.pkey(pkey.unwrap_or(0xffff)).icrc(common.port.needs_icrc())
}

/// Headers of a READ response. It is one packet or a run of packets, and may start or end the
/// response (IBTA 9.2.1).
pub(crate) fn read_headers(
    qp: &Qp,
    common: &Common,
    (psn, msn): (Psn, u32),
    (begins, ends): (bool, bool),
) -> PacketBuilder {
    let opcode = match (begins, ends) {
        (true, false) => Opcode::RC_READ_RESPONSE_FIRST,
        (false, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
        (false, true) => Opcode::RC_READ_RESPONSE_LAST,
        (true, true) => Opcode::RC_READ_RESPONSE_ONLY,
    };
    let builder = headers(qp, common, opcode, psn);
    if begins || ends { builder.aeth(Syndrome::ACK, msn) } else { builder }
}

/// Builds one packet of an answer. Returns its bytes and the number of READ bytes in it.
fn emit(qp: &Qp, common: &mut Common, answer: Answer) -> Result<(Vec<u8>, u32), NotSent> {
    let mut bytes = common.port.spare();
    match answer {
        Answer::Ack { psn, msn } => {
            headers(qp, common, Opcode::RC_ACKNOWLEDGE, psn)
                .aeth(Syndrome::ACK, msn)
                .emit(&[], &mut bytes)?;
        }
        Answer::Nak { psn, syndrome, msn } => {
            common.stats.naks_sent += 1;
            headers(qp, common, Opcode::RC_ACKNOWLEDGE, psn)
                .aeth(syndrome, msn)
                .emit(&[], &mut bytes)?;
        }
        Answer::Atomic { psn, original, msn, .. } => {
            let builder = headers(qp, common, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn);
            builder.aeth(Syndrome::ACK, msn).atomic_ack(original).emit(&[], &mut bytes)?;
        }
        Answer::Placed { psn, msn } => {
            let builder = headers(qp, common, Opcode::RC_READ_RESPONSE_ONLY, psn);
            builder.aeth(Syndrome::ACK, msn).emit(&[], &mut bytes)?;
        }
        Answer::Read { psn, who, va, rkey, left, msn, begun, .. } => {
            let len = left.min(qp.mtu());
            let builder = read_headers(qp, common, (psn, msn), (!begun, len == left));
            builder.emit_with(len as usize, &mut bytes, |payload| {
                let need = Access::REMOTE_READ;
                let read = common.keys.read(&*common.dma, who, (rkey, va), need, payload);
                read.map_err(NotSent::Key)
            })?;
            return Ok((bytes, len));
        }
    }
    Ok((bytes, 0))
}
