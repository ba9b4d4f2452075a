//! Lends READ responses instead of sending them, as `requests` does for payload.
//!
//! A response is never acknowledged. So its loans are kept until the requester has taken them, or
//! has skipped their ring records. If a changed key takes a loan back and no longer grants the
//! READ, the responder sends a NAK, as for a response that was not sent yet. For a loan taken back
//! otherwise the requester asks again, and is answered with bytes.

use crate::hca::context;
use crate::hca::engine::responder::response_tx::{code, read_headers, refuse_at};
use crate::hca::state::common::Common;
use crate::hca::state::keys::{Segment, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::responder::{Answer, LentAnswer};
use crate::wire::shared::{LONGEST_LOAN, SHORTEST_LOAN, SPANS};
use crate::wire::{EmitError, Span};
use uverbs_front::backend::context::{Access, Service};

/// Open loans at most: more than a ring has room for.
const MOST: usize = 1 << 13;

/// Lends the next one or more packets of a READ response. False if none was lent.
pub(crate) fn send(qp: &mut Qp, common: &mut Common, answer: Answer) -> bool {
    let Answer::Read { psn, who, va, rkey, left, msn, begun, again: false } = answer else {
        return false;
    };
    let path = &qp.attrs.path;
    // A response behind an open loan is lent too: READs are carried out in order (IBTA vol 1, table
    // 79), so its bytes may not be read before the loan's.
    let behind = qp.responder.lent.back().is_some_and(|part| part.lent.is_open());
    let least = if behind { 1 } else { SHORTEST_LOAN };
    if left < least || qp.ctx.service != Service::Rc || !common.port.lends(path.dst) {
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
    let frame = context::frame(path, &common.port, bytes);
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
        // The requester's ring is gone, and with it the records of these loans.
        responder.lent.pop_front();
    }
    responder.lent.push_back(LentAnswer { psn, who, segment, lent });
    responder.pass(packets, len);
    true
}

/// Addresses of a part of a READ response in this process. None if another process can't read it
/// there.
fn read_spans(common: &Common, who: Who, segment: Segment) -> Option<Vec<Span>> {
    // A work request that changes or invalidates a key completes before the key's loans are taken
    // back. So memory under keys that work requests can change is not lent.
    if common.keys.key_at(segment.key).is_ok_and(|key| key.umr || key.remote_invalidate) {
        return None;
    }
    let mut spans = Vec::new();
    common.keys.spans(&*common.dma, who, segment, Access::REMOTE_READ, &mut spans)?;
    Some(spans)
}

/// Takes back loans whose memory is no longer at the lent address, after keys were changed. A part
/// that the key still grants is asked for again. True if a part is refused now.
pub(crate) fn recall(qp: &mut Qp, common: &mut Common) -> bool {
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
