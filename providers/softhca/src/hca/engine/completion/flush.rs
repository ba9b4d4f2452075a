//! Flushes a queue pair after an error: each outstanding WQE completes as flushed (IBTA vol 1,
//! 10.3.1, "Error state").

use crate::hca::engine::completion::cqe;
use crate::hca::engine::requester::queue::unfinished;
use crate::hca::engine::scheduler::turn::Turn;
use crate::hca::engine::wqe::doorbell_records::posted_receives;
use crate::hca::engine::wqe::{recv_wqe, send_wqe};
use crate::hca::failure::Failure;
use crate::hca::state::common::Common;
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::Source;
use uverbs_front::backend::context::QpState;

/// WQEs flushed in one turn.
const WQES_PER_TURN: usize = 64;

/// True if receives wait to be flushed.
pub(crate) fn has_receives(qp: &Qp, common: &mut Common) -> bool {
    !qp.mute && posted_receives(qp, common) != 0
}

/// Completes WQEs of a QP in ERR, oldest first: WQEs in flight, then WQEs in the rings. Each gets a
/// CQE, signaled or not.
pub(crate) fn run(qp: &mut Qp, common: &mut Common) -> Turn {
    let mut turn = Turn::default();
    if !matches!(qp.state, QpState::Err | QpState::Sqe) {
        return turn;
    }
    if qp.mute {
        qp.requester.abandon();
        qp.responder.abandon();
        return turn;
    }
    for _ in 0..WQES_PER_TURN {
        let receives = qp.state == QpState::Err;
        if receives && let Some(receive) = qp.responder.abandon() {
            cqe::receive_failed(qp, common, &receive, Failure::FLUSHED);
        } else if let Some(wqe) = qp.requester.pop() {
            unfinished(qp, common, &wqe, Failure::FLUSHED);
        } else if qp.sq_pending() != 0 {
            let (index, opcode) = send_wqe::skip(qp, common);
            cqe::send_failed(qp, common, index, opcode, Failure::FLUSHED);
        } else if receives && posted_receives(qp, common) != 0 {
            // Receives of an SRQ stay posted for its other QPs.
            let receive = recv_wqe::consume(qp, common, Source::Own);
            cqe::receive_failed(qp, common, &receive, Failure::FLUSHED);
        } else {
            return turn;
        }
        turn.done = true;
    }
    turn.more = true;
    turn
}
