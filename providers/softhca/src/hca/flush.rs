//! What an error leaves behind: everything outstanding completes as flushed (IBTA vol 1, 10.3.1,
//! "Error state").

use super::Turn;
use super::complete::{self, Failure};
use super::context::QpState;
use super::doorbell::posted_receives;
use super::qp::Qp;
use super::recv::Source;
use super::shared::Shared;
use super::{recv, wqe};

/// WQEs flushed in one turn.
const WQES_PER_TURN: usize = 64;

/// Whether receives wait to be flushed.
pub(super) fn has_receives(qp: &Qp, shared: &mut Shared) -> bool {
    !qp.mute && posted_receives(qp, shared) != 0
}

/// Completes WQEs of a QP in ERR, oldest first, the ones under way before the ones still in the
/// rings. Each gets a CQE, signaled or not.
pub(super) fn run(qp: &mut Qp, shared: &mut Shared) -> Turn {
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
            complete::receive_failed(qp, shared, &receive, Failure::FLUSHED);
        } else if let Some(wqe) = qp.requester.pop() {
            complete::send_failed(qp, shared, wqe.index, wqe.opcode, Failure::FLUSHED);
        } else if qp.sq_pending() != 0 {
            let (index, opcode) = wqe::skip(qp, shared);
            complete::send_failed(qp, shared, index, opcode, Failure::FLUSHED);
        } else if receives && posted_receives(qp, shared) != 0 {
            // Those of an SRQ are not this QP's to flush.
            let receive = recv::consume(qp, shared, Source::Own);
            complete::receive_failed(qp, shared, &receive, Failure::FLUSHED);
        } else {
            return turn;
        }
        turn.done = true;
    }
    turn.more = true;
    turn
}
