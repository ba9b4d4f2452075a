//! The requester (IBTA vol 1, 9.7.3 to 9.7.6): turns WQEs into request packets and responses into
//! completions, and repeats lost packets. An unreliable service (9.8) has no responses: a packet
//! counts as acknowledged when it is sent.
//!
//! `request_tx` builds the packets, `ack_rx` takes the responses.

use uverbs_mlx5_prm::syndrome::Syndrome as CqeSyndrome;

use crate::hca::engine::completion::cqe;
use crate::hca::engine::ethernet::send;
use crate::hca::engine::requester::request_tx::send_next;
use crate::hca::engine::scheduler::page_faults;
use crate::hca::engine::scheduler::turn::Turn;
use crate::hca::engine::wqe::send_wqe;
use crate::hca::engine::wqe::send_wqe::BadWqe;
use crate::hca::engine::wqe::{streams, tags};
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::common::Common;
use crate::hca::state::keys::KeyFault;
use crate::hca::state::qp::Qp;
use crate::hca::state::requester::{MAX_REQUESTS, QueuedRequest, Request, Unfinished};
use crate::hca::state::tags::TagWork;
use crate::hca::state::wqe::Op;
use uverbs_front::backend::context::{QpState, Service};
use uverbs_front::backend::error::HcaEvent;

/// Runs the timers that are due.
pub(crate) fn expire(qp: &mut Qp, common: &mut Common) {
    if !qp.sends() {
        return;
    }
    let now = common.now;
    if qp.requester.rnr_timer.is_some_and(|when| when <= now) {
        qp.requester.rnr_timer = None;
    }
    if qp.requester.ack_timer.is_some_and(|when| when <= now) {
        common.stats.timeouts += 1;
        qp.requester.ack_timer = None;
        qp.requester.gap_at = None;
        if go_back(qp, common, Vendor::TIMEOUT) {
            qp.counts(&mut common.counters).local_ack_timeout_err += 1;
        }
        qp.requester.rearm(&qp.attrs, common.config.min_ack_timeout, now);
    }
}

/// Sends the packets that may be sent now, up to `budget`.
pub(crate) fn transmit(qp: &mut Qp, common: &mut Common, mut budget: u32) -> Turn {
    let mut turn = Turn::default();
    if !qp.sends() {
        return turn;
    }
    let mut in_flight = qp.requester.in_flight();
    let most = common.config.packet_window;
    let window = qp.requester.congestion.window(most, common.now);
    let mut fetches = MAX_REQUESTS;
    // Each round sends a packet, moves the cursor, fetches, or leaves the loop. Each of these is
    // bounded.
    loop {
        if qp.requester.is_front_over() {
            turn.done |= retire(qp, common);
        }
        if !qp.sends() {
            turn.more = true; // for the flush
            break;
        }
        if qp.requester.rnr_timer.is_some() || qp.requester.halt.is_some() {
            break;
        }
        if qp.requester.cursor >= qp.requester.queue.len() {
            if !may_fetch(qp) {
                break;
            }
            if fetches == 0 || common.frames.len() >= send::MAX_WAITING {
                turn.more = true;
                break;
            }
            fetches -= 1;
            fetch(qp, common);
            turn.done = true;
            continue;
        }
        let Some(QueuedRequest::Live(request)) = qp.requester.queue.get(qp.requester.cursor) else {
            break; // a failure waits for its turn
        };
        if !is_allowed(qp, request, common) {
            break;
        }
        if request.packets == 0 {
            let at = qp.requester.cursor;
            qp.requester.cursor += usize::from(execute(qp, common, at));
            turn.done = true;
            continue;
        }
        // Packets sent before the window became narrow may not have asked for an acknowledgement;
        // one more packet may be sent that does.
        if in_flight >= most || in_flight >= window && qp.requester.unasked == 0 {
            break;
        }
        let to = request.wqe.to.map_or(qp.attrs.path.dst, |to| to.dst);
        if budget == 0 || !common.port.is_ready(to) {
            turn.more = true;
            break;
        }
        if send_next(qp, common, in_flight + 1 >= window) {
            in_flight += 1;
            budget -= 1;
        }
        turn.done = true;
    }
    turn.done |= note_drained(qp, common);
    turn
}

/// Checks the fence and the limits on READs and atomics, before the first packet of a request and
/// each part of a READ.
fn is_allowed(qp: &Qp, request: &Request, common: &Common) -> bool {
    let (fetches, packet) = (request.wqe.op.is_fetching(), qp.requester.packet);
    let has_room = || match qp.requester.fetching() {
        (0, _) => true,
        (waiting, packets) => {
            let more = request.part_end(packet) - packet;
            waiting < u32::from(qp.attrs.max_rd_atomic)
                && packets.saturating_add(more) <= common.read_window(qp.attrs.path.dst)
        }
    };
    if packet != 0 {
        return !fetches || has_room();
    }
    if qp.ctx.service == Service::Dci
        && qp.requester.cursor != 0
        && let Some(to) = request.wqe.to
        && qp.requester.connection.is_none_or(|connection| connection.to != to)
    {
        return false;
    }
    let fenced = request.wqe.fence && qp.requester.fetching().0 != 0;
    !fenced && (!fetches || has_room())
}

fn may_fetch(qp: &Qp) -> bool {
    qp.state == QpState::Rts && qp.sq_pending() != 0 && qp.requester.has_room()
}

/// Moves the next WQE from the ring into the queue. The cursor is one past the last entry, so it
/// points at the new entry afterwards.
fn fetch(qp: &mut Qp, common: &mut Common) {
    // The new entry starts at its first packet.
    qp.requester.packet = 0;
    let mut request = common.spare.take();
    let fetched = send_wqe::fetch(qp, common, &mut request.wqe);
    let wqe = &mut request.wqe;
    let (failed, why) = match fetched {
        Ok(()) if wqe.op.is_fetching() && qp.attrs.max_rd_atomic == 0 => {
            let why = Failure::new(CqeSyndrome::LOCAL_QP_OP_ERR, Vendor::NO_RD_ATOMIC);
            (Unfinished::of(wqe), why)
        }
        Ok(()) if qp.requester.stopped.contains(&wqe.stream) => {
            (Unfinished::of(wqe), Failure::FLUSHED)
        }
        Ok(()) => {
            // Only a READ is asked for in parts.
            let reads = matches!(wqe.op, Op::Read { .. });
            let window = if reads { common.read_window(qp.attrs.path.dst) } else { u32::MAX };
            return qp.enqueue(request, window);
        }
        Err(BadWqe { index, opcode, stream, why }) => {
            let stopped = stream.is_some_and(|stream| qp.requester.stopped.contains(&stream));
            let why = match stopped {
                true => Failure::FLUSHED,
                false => {
                    common.stats.bad_wqes += 1;
                    why
                }
            };
            (Unfinished { index, opcode, stream, tags: None }, why)
        }
    };
    request.clear();
    common.spare.put(request);
    qp.requester.queue.push_back(QueuedRequest::Failed(failed, why));
}

/// Completes the acknowledged requests at the head of the queue. A failed request that is at the
/// head takes effect.
pub(crate) fn retire(qp: &mut Qp, common: &mut Common) -> bool {
    let mut done = false;
    while qp.sends() {
        match qp.requester.queue.front() {
            Some(QueuedRequest::Live(request)) if !request.end().is_after(qp.requester.oldest) => {
                if request.packets == 0 && qp.requester.cursor == 0 {
                    if qp.requester.halt.is_some() {
                        break;
                    }
                    // The cursor is still before this request; all requests before it are complete,
                    // so no fence holds it.
                    // so no fence holds it.
                    if !execute(qp, common, 0) {
                        continue;
                    }
                    qp.requester.cursor = 1;
                }
                complete_front(qp, common);
            }
            Some(&QueuedRequest::Failed(_, why)) => {
                let failed = qp.requester.queue.pop_front();
                qp.requester.step_back();
                if let Some(QueuedRequest::Failed(failed, _)) = failed {
                    fail_as(qp, common, failed, why);
                }
            }
            _ => break,
        }
        done = true;
    }
    done
}

/// Runs the local part of a request (UMR, copy, frame), once. False if it failed, or waits for a
/// page.
fn execute(qp: &mut Qp, common: &mut Common, at: usize) -> bool {
    let who = qp.who();
    let Some(QueuedRequest::Live(request)) = qp.requester.queue.get_mut(at) else { return false };
    if request.executed {
        return true;
    }
    request.executed = true;
    let Some(QueuedRequest::Live(request)) = qp.requester.queue.get(at) else { return false };
    let wqe = &request.wqe;
    let failure = |syndrome| move |fault: KeyFault| Failure::new(syndrome, fault.vendor());
    let done = match (&wqe.umr, &wqe.ethernet) {
        _ if wqe.op == Op::Tags => tags::change(qp, common, wqe),
        (Some(umr), _) => {
            let Common { keys, dma, .. } = &mut *common;
            keys.apply(umr, who, &qp.ctx, &**dma).map_err(failure(CqeSyndrome::MW_BIND_ERR))
        }
        (None, Some(_)) => send::execute(qp, wqe, common),
        (None, None) => {
            let (copied, index) = (wqe.copy(common, who), wqe.index);
            if copied == Err(KeyFault::Absent) && page_faults::halt(qp, common, index, false) {
                if let Some(QueuedRequest::Live(request)) = qp.requester.queue.get_mut(at) {
                    request.executed = false;
                }
                return false;
            }
            copied.map_err(failure(CqeSyndrome::LOCAL_PROT_ERR))
        }
    };
    match done {
        Ok(()) => true,
        Err(why) => {
            if let Some(entry) = qp.requester.queue.get_mut(at) {
                entry.fail(why);
            }
            false
        }
    }
}

pub(crate) fn complete_front(qp: &mut Qp, common: &mut Common) {
    if let Some(QueuedRequest::Live(request)) = qp.requester.queue.front() {
        let wqe = &request.wqe;
        if wqe.signaled {
            let bytes = if wqe.op.is_fetching() { wqe.len } else { 0 };
            let which = (wqe.index, wqe.opcode);
            cqe::send_done(qp, common, which, bytes, &request.answer);
        } else if let Some(work) = &wqe.tags {
            tags::worked(qp, common, work, wqe.len);
        }
    }
    qp.requester.drop_front(&mut common.spare);
}

/// Sends again from `oldest` and spends a retry (IBTA 9.7.6.1: timeouts and sequence NAKs share the
/// counter). False if no retry is left, and the request failed.
pub(crate) fn go_back(qp: &mut Qp, common: &mut Common, reason: Vendor) -> bool {
    match qp.requester.retries.checked_sub(1) {
        Some(left) => {
            qp.requester.retries = left;
            let oldest = qp.requester.oldest;
            qp.requester.seek(oldest);
            true
        }
        None => {
            qp.counts(&mut common.counters).req_transport_retries_exceeded += 1;
            fail(qp, common, Failure::new(CqeSyndrome::TRANSPORT_RETRY_EXC_ERR, reason));
            false
        }
    }
}

/// Fails the oldest request; all requests before it are complete.
pub(crate) fn fail(qp: &mut Qp, common: &mut Common, why: Failure) {
    while matches!(qp.requester.queue.front(), Some(QueuedRequest::Live(r)) if r.packets == 0) {
        complete_front(qp, common);
    }
    if let Some(failed) = qp.requester.pop() {
        fail_as(qp, common, failed, why);
    }
}

/// Completes a request that failed.
pub(crate) fn unfinished(qp: &Qp, common: &mut Common, failed: &Unfinished, why: Failure) {
    match failed.tags.as_deref() {
        Some(TagWork::Fetch { place, landing }) => cqe::tag_canceled(qp, common, *place, *landing),
        Some(TagWork::Fin) => {}
        Some(TagWork::Change(_)) | None => {
            cqe::send_failed(qp, common, failed.index, failed.opcode, why);
        }
    }
}

fn fail_as(qp: &mut Qp, common: &mut Common, failed: Unfinished, why: Failure) {
    unfinished(qp, common, &failed, why);
    if streams::stop(qp, (failed.stream, failed.opcode), why) {
        return;
    }
    if qp.ctx.service.is_reliable() {
        qp.state = QpState::Err;
        qp.responder.silence();
    } else {
        // Only the send queue fails (IBTA 10.3.1, "SQEr").
        qp.state = QpState::Sqe;
    }
}

/// Reports an SQD queue as drained when all packets sent are acknowledged (IBTA 10.3.1, "SQD
/// state").
fn note_drained(qp: &mut Qp, common: &mut Common) -> bool {
    if !qp.is_draining() || !qp.requester.queue.is_empty() {
        return false;
    }
    qp.attrs.sq_draining = false;
    if qp.attrs.en_sqd_async_notify {
        let Common { events, stats, .. } = common;
        events.push(HcaEvent::SqDrained { qpn: qp.qpn }, stats);
    }
    true
}
