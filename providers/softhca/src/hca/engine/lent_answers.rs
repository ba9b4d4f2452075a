//! Answers to READs that are lent instead of sent, as requests are in `loans`.
//!
//! Nothing acknowledges an answer. So its loans are kept until the requester has taken them, or has
//! passed their records. If a key takes one back and no longer grants the READ, the answer is
//! refused, as one whose packets hadn't left. The requester asks for the others again, and is
//! answered with bytes.

use crate::hca::context::{Access, Service};
use crate::hca::engine::answers::{code, read_headers, refuse_at};
use crate::hca::state::common::Common;
use crate::hca::state::keys::{Segment, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::responder::{Answer, LentAnswer};
use crate::wire::shared::{LONGEST_LOAN, SHORTEST_LOAN, SPANS};
use crate::wire::{EmitError, Frame, Span};

/// Loans that may be open: more than a ring has room for.
const MOST: usize = 1 << 13;

/// Lends what an answer to a READ sends next, one or more packets of it. False if nothing was lent.
pub(super) fn send(qp: &mut Qp, common: &mut Common, answer: Answer) -> bool {
    let Answer::Read { psn, who, va, rkey, left, msn, begun, again: false } = answer else {
        return false;
    };
    let (src, dst) = (qp.attrs.path.src, qp.attrs.path.dst);
    // What stands behind an open loan is lent, too: READs are carried out in order (IBTA vol 1,
    // table 79), so no byte of this one may be read before those.
    let behind = qp.responder.lent.back().is_some_and(|part| part.lent.is_open());
    let least = if behind { 1 } else { SHORTEST_LOAN };
    if left < least || qp.ctx.service != Service::Rc || !common.port.lends(dst) {
        return false;
    }
    let len = left.min(LONGEST_LOAN);
    let packets = len.div_ceil(qp.mtu());
    let segment = Segment { key: rkey, addr: va, len: len.into() };
    let Some(spans) = read_spans(common, who, segment).filter(|spans| spans.len() <= SPANS) else {
        return false;
    };
    let mut bytes = common.port.spare();
    let headers = read_headers(qp, common, (psn, msn), (!begun, len == left));
    let built: Result<(), EmitError> = headers.emit(&[], &mut bytes);
    let frame = Frame { src, dst, route: qp.attrs.path.route(), bytes, loan: None };
    let lent = match built {
        Ok(()) => common.port.lend(frame, &spans, packets as u16, &mut common.stats),
        Err(_) => None,
    };
    let Some(lent) = lent else { return false };
    let responder = &mut qp.responder;
    while responder.lent.front().is_some_and(|part| !part.lent.is_open()) {
        responder.lent.pop_front();
    }
    if responder.lent.len() >= MOST {
        // The requester left them in a ring that is gone.
        responder.lent.pop_front();
    }
    responder.lent.push_back(LentAnswer { psn, who, segment, lent });
    responder.pass(packets, len);
    true
}

/// Where a part of an answer to a READ lies in this process's memory; None if another process can't
/// read it there.
fn read_spans(common: &Common, who: Who, segment: Segment) -> Option<Vec<Span>> {
    // The completion of a work request that changes or invalidates a key is there before its loans
    // are taken back. So keys that work requests can change lend nothing.
    if common.keys.key_at(segment.key).is_ok_and(|key| key.umr || key.remote_invalidate) {
        return None;
    }
    let mut spans = Vec::new();
    common.keys.spans(&*common.dma, who, segment, Access::REMOTE_READ, &mut spans)?;
    Some(spans)
}

/// Keys were changed: takes back each part that no longer lies where it was lent from. True if one
/// is refused now. One that may still be read, and lies elsewhere, is asked for again.
pub(super) fn recall(qp: &mut Qp, common: &mut Common) -> bool {
    let mut refused = None;
    qp.responder.lent.retain(|part| {
        let now = read_spans(common, part.who, part.segment);
        let stays = now.is_some_and(|spans| spans == part.lent.spans());
        if !stays && part.lent.recall() {
            let check = common.keys.check(part.who, part.segment, Access::REMOTE_READ);
            refused = refused.or(check.err().map(|fault| (part.psn, code(fault))));
        }
        stays && part.lent.is_open()
    });
    let Some((psn, code)) = refused.filter(|_| qp.receives()) else { return false };
    refuse_at(qp, common, psn, code);
    true
}
