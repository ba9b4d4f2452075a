//! Answers of a responder leave in order, as the port has room. A long READ is read from memory
//! packet by packet.

use crate::hca::context::{Access, QpState};
use crate::hca::engine::page_faults;
use crate::hca::engine::responder::{refuse, report};
use crate::hca::engine::turn::Turn;
use crate::hca::state::common::Common;
use crate::hca::state::keys::KeyFault;
use crate::hca::state::qp::Qp;
use crate::hca::state::responder::Answer;
use crate::wire::{EmitError, Frame, NakCode, Opcode, PacketBuilder, Syndrome};

/// Sends answers, up to `budget` packets. Also in ERR: a NAK must get out.
pub(super) fn transmit(qp: &mut Qp, common: &mut Common, budget: u32) -> Turn {
    let mut turn = Turn::default();
    for _ in 0..budget {
        let Some(&answer) = qp.responder.answers.front() else {
            return turn;
        };
        if !common.port.is_ready(qp.attrs.path.dst) {
            break;
        }
        turn.done = true;
        match emit(qp, common, answer) {
            Ok((bytes, rest)) => {
                let path = &qp.attrs.path;
                let frame =
                    Frame { src: path.src, dst: path.dst, route: path.route(), bytes, loan: None };
                common.port.send(frame, &mut common.stats);
                match (rest, qp.responder.answers.front_mut()) {
                    (Some(rest), Some(front)) => *front = rest,
                    _ => {
                        qp.responder.answers.pop_front();
                    }
                }
            }
            Err(NotSent::Key(KeyFault::Absent))
                if qp.responder.stop.is_some() && qp.state != QpState::Err =>
            {
                // Another page is on its way; this one is asked for then.
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

/// Why an answer was not built.
enum NotSent {
    Key(KeyFault),
    Emit,
}

impl From<EmitError> for NotSent {
    fn from(_: EmitError) -> NotSent {
        NotSent::Emit
    }
}

/// Replaces an answer that cannot be given, and all behind it, by a NAK for it.
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
    qp.responder.answers.clear();
    let code = match not {
        NotSent::Key(KeyFault::Dma(_) | KeyFault::Absent) | NotSent::Emit => {
            NakCode::REMOTE_OPERATIONAL
        }
        NotSent::Key(_) => NakCode::REMOTE_ACCESS,
    };
    if qp.state != QpState::Err {
        report(qp, common, code);
    }
    // Also in ERR: the NAK that made it so was behind this answer and went with it.
    refuse(qp, common, code);
    if let Some(Answer::Nak { psn: at, .. }) = qp.responder.answers.back_mut() {
        *at = psn;
    }
}

/// Builds one packet of an answer; gives its bytes, and the rest of the answer.
fn emit(
    qp: &Qp,
    common: &mut Common,
    answer: Answer,
) -> Result<(Vec<u8>, Option<Answer>), NotSent> {
    let pkey = common.config.pkeys.get(usize::from(qp.attrs.pkey_index)).copied();
    let icrc = common.port.needs_icrc();
    let build = |opcode: Opcode, psn| {
        let opcode = opcode.of(qp.ctx.service.transport());
        let builder = PacketBuilder::new(opcode, qp.attrs.dest_qpn.0, psn);
        builder.pkey(pkey.unwrap_or(0xffff)).icrc(icrc)
    };
    let mut bytes = common.port.spare();
    let mut rest = None;
    match answer {
        Answer::Ack { psn, msn } => {
            build(Opcode::RC_ACKNOWLEDGE, psn).aeth(Syndrome::ACK, msn).emit(&[], &mut bytes)?;
        }
        Answer::Nak { psn, syndrome, msn } => {
            common.stats.naks_sent += 1;
            build(Opcode::RC_ACKNOWLEDGE, psn).aeth(syndrome, msn).emit(&[], &mut bytes)?;
        }
        Answer::Atomic { psn, original, msn, .. } => {
            let builder = build(Opcode::RC_ATOMIC_ACKNOWLEDGE, psn);
            builder.aeth(Syndrome::ACK, msn).atomic_ack(original).emit(&[], &mut bytes)?;
        }
        Answer::Placed { psn, msn } => {
            let builder = build(Opcode::RC_READ_RESPONSE_ONLY, psn);
            builder.aeth(Syndrome::ACK, msn).emit(&[], &mut bytes)?;
        }
        Answer::Read { psn, who, va, rkey, left, msn, begun, again } => {
            let len = left.min(qp.mtu());
            let ends = len == left;
            let opcode = match (begun, ends) {
                (false, false) => Opcode::RC_READ_RESPONSE_FIRST,
                (true, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
                (true, true) => Opcode::RC_READ_RESPONSE_LAST,
                (false, true) => Opcode::RC_READ_RESPONSE_ONLY,
            };
            let mut builder = build(opcode, psn);
            if !begun || ends {
                builder = builder.aeth(Syndrome::ACK, msn);
            }
            builder.emit_with(len as usize, &mut bytes, |payload| {
                let need = Access::REMOTE_READ;
                let read = common.keys.read(&*common.dma, who, (rkey, va), need, payload);
                read.map_err(NotSent::Key)
            })?;
            if !ends {
                let (psn, va, left) = (psn.next(), va.wrapping_add(len.into()), left - len);
                rest = Some(Answer::Read { psn, who, va, rkey, left, msn, begun: true, again });
            }
        }
    }
    Ok((bytes, rest))
}
