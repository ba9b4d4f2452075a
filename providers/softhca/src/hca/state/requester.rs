//! State of a requester: WQEs in flight, PSNs, timers (IBTA vol 1, 9.7.3 to 9.7.6).
//!
//! Requests wait in a queue in the order of the ring. `oldest` is the first unacknowledged PSN,
//! `high` the first unsent PSN. Between them the cursor is the next packet to send. Going back
//! (timeout, sequence NAK, RNR) only moves the cursor: everything from there is sent again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::context::Placement;
use crate::hca::failure::Failure;
use crate::hca::state::congestion::Congestion;
use crate::hca::state::faults::Halt;
use crate::hca::state::tags::TagWork;
use crate::hca::state::wqe::{Destination, Wqe};
use crate::wire::spare::Spare;
use crate::wire::timers::ack_timeout;
use crate::wire::{Lent, Psn};
use uverbs_front::backend::context::QpAttrs;
use uverbs_front::backend::number::Srqn;

/// Maximum requests fetched and not completed.
pub(crate) const MAX_REQUESTS: usize = 128;
/// Outstanding PSNs beyond which no WQE is fetched. One more message (at most 2^22 packets) stays
/// below 2^23, where PSNs could no longer be compared (IBTA 9.7.2).
const PSN_SPAN: i32 = (1 << 22) - 1;

/// Completed requests for reuse. They are large, so they are not moved or created again.
pub(crate) type SpareRequests = Spare<Box<Request>, MAX_REQUESTS>;

/// A WQE in flight.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) wqe: Wqe,
    pub(crate) first: Psn,
    /// Number of PSNs: request packets, or the response packets of a READ; 0 if nothing is sent.
    pub(crate) packets: u32,
    /// Maximum PSNs of one request packet: the part of a READ that is requested at once.
    pub(crate) part: u32,
    /// The local part (UMR, copy, frame) has run; also true without a local part.
    pub(crate) executed: bool,
    /// Response data, if it goes into the CQE.
    pub(crate) answer: Vec<u8>,
    /// Loans of the payload, each with its offset.
    pub(crate) lent: Vec<(u64, Lent)>,
}

impl Request {
    /// Drops what the request holds, for the next WQE. Fields that each WQE sets are left.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.wqe.clear();
        self.answer.clear();
        // Few requests have loans, and the list of a long message is long.
        self.lent = Vec::new();
    }

    pub(crate) fn end(&self) -> Psn {
        self.first + self.packets
    }

    /// The packet behind the part that `packet` belongs to. Parts begin at multiples of their
    /// length, even if a part is requested again from its middle.
    pub(crate) fn part_end(&self, packet: u32) -> u32 {
        (packet / self.part + 1).saturating_mul(self.part).min(self.packets)
    }
}

/// The connection of a DC initiator, to one target at a time. The initiator turns to the next
/// target when all requests sent are acknowledged. PSNs continue, so late packets of an earlier
/// target are recognised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DcConnection {
    pub(crate) to: Destination,
    pub(crate) number: u32,
    /// PSN of the first packet, which opens the connection, also when it is sent again.
    pub(crate) first: Psn,
}

/// An entry of the queue.
#[derive(Debug)]
pub(crate) enum QueuedRequest {
    Live(Box<Request>),
    /// A failure that takes effect when all requests before it are complete.
    Failed(Unfinished, Failure),
}

impl QueuedRequest {
    /// Turns the entry into a failure, unless it is one.
    pub(crate) fn fail(&mut self, why: Failure) {
        if let QueuedRequest::Live(request) = self {
            *self = QueuedRequest::Failed(Unfinished::of(&mut request.wqe), why);
        }
    }
}

/// A WQE that is taken back before its completion.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) index: u16,
    pub(crate) opcode: Opcode,
    /// DC stream; None if the ring is inconsistent.
    pub(crate) stream: Option<u16>,
    pub(crate) tags: Option<Box<TagWork>>,
}

impl Unfinished {
    pub(crate) fn of(wqe: &mut Wqe) -> Unfinished {
        let Wqe { index, opcode, stream, .. } = *wqe;
        Unfinished { index, opcode, stream: Some(stream), tags: wqe.tags.take() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// First PSN of the next WQE.
    pub(crate) next_psn: Psn,
    pub(crate) oldest: Psn,
    pub(crate) high: Psn,
    pub(crate) queue: VecDeque<QueuedRequest>,
    /// A READ, an atomic or a placement operation may be in the queue: one was queued since it was
    /// last empty.
    may_fetch: bool,
    /// Entry that sends next, and its next packet.
    pub(crate) cursor: usize,
    pub(crate) packet: u32,
    /// Packets sent since the last one that requested an ACK.
    pub(crate) unasked: u32,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) ack_timer: Option<Duration>,
    pub(crate) rnr_timer: Option<Duration>,
    /// Wait for a page.
    pub(crate) halt: Option<Halt>,
    pub(crate) connection: Option<DcConnection>,
    /// Streams of a DC initiator that an error stopped.
    pub(crate) stopped: BTreeSet<u16>,
    /// `oldest` at the last gap in the responses that made the requester go back. The rest of the
    /// same burst shows the same gap and must not count again.
    pub(crate) gap_at: Option<Psn>,
    pub(crate) congestion: Congestion,
    /// Placement operations that replace NOPs, by WQE index, each with the peer's SRQN.
    pub(crate) placements: BTreeMap<u16, (Srqn, Placement)>,
}

impl Requester {
    pub(crate) fn starting_at(psn: Psn, attrs: &QpAttrs) -> Requester {
        let mut requester =
            Requester { next_psn: psn, oldest: psn, high: psn, ..Requester::default() };
        requester.reset_retries(attrs);
        requester
    }

    pub(crate) fn reset_retries(&mut self, attrs: &QpAttrs) {
        self.retries = attrs.retry_cnt;
        self.rnr_retries = attrs.rnr_retry;
    }

    /// True if one more request may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < MAX_REQUESTS && self.next_psn.diff(self.oldest) < PSN_SPAN
    }

    /// Appends a request to the queue.
    #[inline]
    pub(crate) fn push(&mut self, request: Box<Request>) {
        let fetches = request.wqe.op.is_fetching();
        self.may_fetch = fetches || self.may_fetch && !self.queue.is_empty();
        self.queue.push_back(QueuedRequest::Live(request));
    }

    /// True if the oldest request is complete or failed.
    pub(crate) fn is_front_over(&self) -> bool {
        match self.queue.front() {
            Some(QueuedRequest::Live(request)) => !request.end().is_after(self.oldest),
            Some(QueuedRequest::Failed(..)) => true,
            None => false,
        }
    }

    /// Takes the oldest WQE back, to flush it.
    pub(crate) fn pop(&mut self) -> Option<Unfinished> {
        match self.queue.pop_front()? {
            QueuedRequest::Live(mut request) => Some(Unfinished::of(&mut request.wqe)),
            QueuedRequest::Failed(unfinished, _) => Some(unfinished),
        }
    }

    /// Drops all requests.
    pub(crate) fn abandon(&mut self) {
        self.queue.clear();
    }

    /// Destination of the dynamic connection.
    pub(crate) fn connected_to(&self) -> Option<Destination> {
        self.connection.map(|connection| connection.to)
    }

    /// Time of the next timer.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.ack_timer.into_iter().chain(self.rnr_timer).min()
    }

    /// PSN of the next packet to send.
    pub(crate) fn cursor_psn(&self) -> Psn {
        match self.queue.get(self.cursor) {
            Some(QueuedRequest::Live(request)) => request.first + self.packet,
            _ => self.next_psn,
        }
    }

    /// Moves the cursor to `psn`, or behind the last entry.
    pub(crate) fn seek(&mut self, psn: Psn) {
        for (at, entry) in self.queue.iter().enumerate() {
            match entry {
                QueuedRequest::Live(request) if request.end().is_after(psn) => {
                    self.cursor = at;
                    self.packet = psn.diff(request.first).max(0) as u32;
                    return;
                }
                QueuedRequest::Live(_) => {}
                QueuedRequest::Failed(..) => {
                    self.cursor = at;
                    self.packet = 0;
                    return;
                }
            }
        }
        self.cursor = self.queue.len();
        self.packet = 0;
    }

    /// Drops the oldest entry, which is complete. The cursor keeps its entry.
    #[inline]
    pub(crate) fn drop_front(&mut self, spare: &mut SpareRequests) {
        if let Some(QueuedRequest::Live(mut request)) = self.queue.pop_front() {
            request.clear();
            spare.put(request);
        }
        self.step_back();
    }

    /// Adjusts the cursor after removal of the oldest entry, so that it keeps its entry.
    pub(crate) fn step_back(&mut self) {
        match self.cursor.checked_sub(1) {
            Some(cursor) => self.cursor = cursor,
            None => self.packet = 0,
        }
    }

    /// Number of request packets in flight. A READ counts once for any length: its responses are
    /// the responder's packets.
    pub(crate) fn in_flight(&self) -> u32 {
        if self.may_fetch || matches!(self.queue.get(self.cursor), Some(QueuedRequest::Failed(..)))
        {
            return self.count_in_flight();
        }
        // Without READs: all packets up to the cursor.
        let packets = self.cursor_psn().diff(self.oldest).max(0) as u32;
        debug_assert_eq!(packets, self.count_in_flight());
        packets
    }

    fn count_in_flight(&self) -> u32 {
        let mut sum = 0;
        for (at, entry) in self.queue.iter().enumerate().take(self.cursor + 1) {
            let QueuedRequest::Live(request) = entry else { break };
            let from = request.first.diff(self.oldest).min(0).unsigned_abs();
            let sent = if at == self.cursor { self.packet } else { request.packets };
            let packets = sent.saturating_sub(from);
            sum += if request.wqe.op.is_fetching() { packets.min(1) } else { packets };
        }
        sum
    }

    /// Numbers of READs and atomics in flight, and of their response packets.
    pub(crate) fn fetching(&self) -> (u32, u32) {
        let mut sum = (0, 0);
        for (at, entry) in self.queue.iter().enumerate().take(self.cursor + 1) {
            let QueuedRequest::Live(request) = entry else { break };
            let sent = if at == self.cursor { self.packet } else { request.packets };
            let answered = self.oldest.diff(request.first).max(0) as u32;
            if request.wqe.op.is_fetching() && sent > answered {
                sum.0 += sent.div_ceil(request.part) - answered / request.part;
                sum.1 += sent - answered;
            }
        }
        sum
    }

    /// Restarts the ACK timer, or stops it if no request is outstanding (IBTA 9.7.6.1.3). `min` is
    /// the shortest timeout code that the device uses.
    pub(crate) fn rearm(&mut self, attrs: &QpAttrs, min: u8, now: Duration) {
        let runs = self.rnr_timer.is_none() && self.halt.is_none();
        let waits = self.high.is_after(self.oldest) && runs;
        let code = if attrs.timeout == 0 { 0 } else { attrs.timeout.max(min) };
        self.ack_timer = ack_timeout(code).filter(|_| waits).map(|after| now + after);
    }
}
