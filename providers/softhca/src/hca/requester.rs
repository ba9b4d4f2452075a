//! The requester (IBTA vol 1, 9.7.3 to 9.7.6): WQEs become request packets, answers become
//! completions, and what is lost is sent again. An unreliable service (9.8) is the same without the
//! answers: what is sent counts as acknowledged.
//!
//! Requests wait in a queue in the order of the ring. `oldest` is the first PSN not acknowledged,
//! `high` the first never sent; between them a cursor says what goes out next. Going back
//! (timeout, sequence NAK, RNR) only moves the cursor: everything from there is sent again.

use super::Turn;
use super::complete::{self, Failure};
use super::context::{QpAttrs, QpState, Service};
use super::error::HcaEvent;
use super::ethernet::send;
use super::mkey::KeyFault;
use super::qp::Qp;
use super::shared::Shared;
use super::umr;
use super::wqe::{self, Destination, Op, Wqe};
use crate::wire::{
    Address, DcEth, EmitError, Frame, NakCode, Opcode, Operation, Packet, PacketBuilder, Psn,
    Syndrome, U24,
    timers::{ack_timeout, rnr_delay},
};
use std::collections::VecDeque;
use std::time::Duration;
use uverbs_mlx5_prm::opcode::Opcode as WqeOpcode;
use uverbs_mlx5_prm::syndrome::Syndrome as CqeSyndrome;

/// Requests fetched and not completed, at most.
const REQUESTS: usize = 128;
/// PSNs outstanding after which nothing is fetched. With the longest message (2^22 packets) on
/// top it stays below 2^23, where PSNs could no longer be compared (IBTA 9.7.2).
const PSN_SPAN: i32 = (1 << 22) - 1;
/// Code of "retry without end" (IBTA 9.7.5.2.8).
const RNR_FOREVER: u8 = 7;
/// Vendor syndromes of what the transport itself found.
mod vendor {
    pub(super) const PEER: u8 = 0x70;
    pub(super) const NO_RD_ATOMIC: u8 = 0x71;
    pub(super) const RESPONSE: u8 = 0x72;
    pub(super) const EMIT: u8 = 0x73;
    pub(super) const TIMEOUT: u8 = 0x81;
    pub(super) const SEQUENCE: u8 = 0x82;
    pub(super) const RNR: u8 = 0x83;
}

/// A WQE on its way.
#[derive(Debug)]
struct Request {
    wqe: Wqe,
    first: Psn,
    /// PSNs it takes: request packets, or the answers of a READ; 0 if it sends nothing.
    packets: u32,
    /// What it does here it has done. True from the start where that is nothing.
    executed: bool,
}

impl Request {
    fn end(&self) -> Psn {
        self.first + self.packets
    }
}

/// Whom an initiator of dynamic connections talks to: one target at a time. The next one's turn comes when everything sent is
/// acknowledged; PSNs go on, so that what an earlier target says is late and no more.
#[derive(Clone, Copy, Debug)]
struct Connection {
    to: Destination,
    number: u32,
    /// PSN of its first packet, which opens it, as often as it is sent.
    first: Psn,
}

/// What waits in the queue.
#[derive(Debug)]
enum Entry {
    Live(Request),
    /// Fails when everything before it is complete.
    Failed {
        index: u16,
        opcode: WqeOpcode,
        why: Failure,
    },
}

/// A WQE taken back unfinished.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) index: u16,
    pub(super) opcode: WqeOpcode,
}

#[derive(Debug, Default)]
pub(super) struct Requester {
    /// For the next WQE.
    pub(super) next_psn: Psn,
    oldest: Psn,
    high: Psn,
    queue: VecDeque<Entry>,
    /// Entry that sends next, and its packet.
    cursor: usize,
    packet: u32,
    /// Packets sent since one asked for an ACK.
    unasked: u32,
    retries: u8,
    rnr_retries: u8,
    ack_timer: Option<Duration>,
    rnr_timer: Option<Duration>,
    connection: Option<Connection>,
    /// `oldest` when a gap in the answers last made us go back; the rest of the same burst shows
    /// the same gap and must not count again.
    gap_at: Option<Psn>,
}

impl Requester {
    pub(super) fn starting_at(psn: Psn, attrs: &QpAttrs) -> Requester {
        let mut requester =
            Requester { next_psn: psn, oldest: psn, high: psn, ..Requester::default() };
        requester.reset_retries(attrs);
        requester
    }

    pub(super) fn reset_retries(&mut self, attrs: &QpAttrs) {
        self.retries = attrs.retry_cnt;
        self.rnr_retries = attrs.rnr_retry;
    }

    /// Takes the oldest WQE back, to flush it.
    pub(super) fn pop(&mut self) -> Option<Unfinished> {
        match self.queue.pop_front()? {
            Entry::Live(request) => {
                Some(Unfinished { index: request.wqe.index, opcode: request.wqe.opcode })
            }
            Entry::Failed { index, opcode, .. } => Some(Unfinished { index, opcode }),
        }
    }

    /// Forgets everything.
    pub(super) fn abandon(&mut self) {
        self.queue.clear();
    }

    /// The addresses of the dynamic connection.
    pub(super) fn path(&self) -> Option<(Address, Address)> {
        self.connection.map(|connection| (connection.to.src, connection.to.dst))
    }

    /// PSN that goes out next.
    fn cursor_psn(&self) -> Psn {
        match self.queue.get(self.cursor) {
            Some(Entry::Live(request)) => request.first + self.packet,
            _ => self.next_psn,
        }
    }

    /// Puts the cursor on `psn`, or behind everything.
    fn seek(&mut self, psn: Psn) {
        for (at, entry) in self.queue.iter().enumerate() {
            match entry {
                Entry::Live(request) if request.end().is_after(psn) => {
                    self.cursor = at;
                    self.packet = psn.diff(request.first).max(0) as u32;
                    return;
                }
                Entry::Live(_) => {}
                Entry::Failed { .. } => {
                    self.cursor = at;
                    self.packet = 0;
                    return;
                }
            }
        }
        self.cursor = self.queue.len();
        self.packet = 0;
    }

    /// Drops the oldest entry, which is complete; the cursor stays where it points.
    fn drop_front(&mut self) {
        self.queue.pop_front();
        match self.cursor.checked_sub(1) {
            Some(cursor) => self.cursor = cursor,
            None => self.packet = 0,
        }
    }

    /// Request packets on the wire and not acknowledged. A READ counts once however long its
    /// answer is: the answers are the responder's business.
    fn in_flight(&self) -> u32 {
        let mut sum = 0;
        for (at, entry) in self.queue.iter().enumerate().take(self.cursor + 1) {
            let Entry::Live(request) = entry else { break };
            let from = request.first.diff(self.oldest).min(0).unsigned_abs();
            let sent = if at == self.cursor { self.packet } else { request.packets };
            let packets = sent.saturating_sub(from);
            sum += if request.wqe.op.is_fetching() { packets.min(1) } else { packets };
        }
        sum
    }

    /// READs and atomics sent (before the cursor) and not answered.
    fn fetching(&self) -> usize {
        let sent = self.queue.iter().take(self.cursor);
        sent.filter(|entry| matches!(entry, Entry::Live(r) if r.wqe.op.is_fetching())).count()
    }

    /// Starts the ACK timer anew, or stops it when nothing is outstanding (IBTA 9.7.6.1.3).
    /// `min` is the shortest timeout code the device honours.
    fn rearm(&mut self, attrs: &QpAttrs, min: u8, now: Duration) {
        let waits = self.high.is_after(self.oldest) && self.rnr_timer.is_none();
        let code = if attrs.timeout == 0 { 0 } else { attrs.timeout.max(min) };
        self.ack_timer = ack_timeout(code).filter(|_| waits).map(|after| now + after);
    }
}

/// When the requester has to be looked at next.
pub(super) fn deadline(qp: &Qp) -> Option<Duration> {
    if !qp.sends() {
        return None;
    }
    qp.requester.ack_timer.into_iter().chain(qp.requester.rnr_timer).min()
}

/// When an acknowledgement is late.
pub(super) fn ack_deadline(qp: &Qp) -> Option<Duration> {
    qp.requester.ack_timer.filter(|_| qp.sends())
}

/// Runs the timers that are due.
pub(super) fn expire(qp: &mut Qp, shared: &mut Shared) {
    if !qp.sends() {
        return;
    }
    let now = shared.now;
    if qp.requester.rnr_timer.is_some_and(|when| when <= now) {
        qp.requester.rnr_timer = None;
    }
    if qp.requester.ack_timer.is_some_and(|when| when <= now) {
        shared.stats.timeouts += 1;
        qp.requester.ack_timer = None;
        qp.requester.gap_at = None;
        if go_back(qp, shared, vendor::TIMEOUT) {
            qp.counts(&mut shared.counters).local_ack_timeout_err += 1;
        }
        qp.requester.rearm(&qp.attrs, shared.config.min_ack_timeout, now);
    }
}

/// Sends what may be sent now, up to `budget` packets.
pub(super) fn transmit(qp: &mut Qp, shared: &mut Shared, mut budget: u32) -> Turn {
    let mut turn = Turn::default();
    if !qp.sends() {
        return turn;
    }
    let mut in_flight = qp.requester.in_flight();
    let window = shared.config.packet_window;
    let mut fetches = REQUESTS;
    // Each turn sends a packet, moves the cursor, fetches, or leaves, and each of these has a bound.
    loop {
        turn.done |= retire(qp, shared);
        if !qp.sends() {
            turn.more = true; // for the flush
            break;
        }
        if qp.requester.rnr_timer.is_some() {
            break;
        }
        if qp.requester.cursor >= qp.requester.queue.len() {
            if !may_fetch(qp) {
                break;
            }
            if fetches == 0 || shared.frames.len() >= send::MAX_WAITING {
                turn.more = true;
                break;
            }
            fetches -= 1;
            fetch(qp, shared);
            turn.done = true;
            continue;
        }
        let Some(Entry::Live(request)) = qp.requester.queue.get(qp.requester.cursor) else {
            break; // a failure waits for its turn
        };
        if !is_allowed(qp, request) {
            break;
        }
        if request.packets == 0 {
            let at = qp.requester.cursor;
            qp.requester.cursor += usize::from(execute(qp, shared, at));
            turn.done = true;
            continue;
        }
        if in_flight >= window {
            break;
        }
        if budget == 0 || !shared.port.is_ready() {
            turn.more = true;
            break;
        }
        if send_next(qp, shared, in_flight + 1 >= window) {
            in_flight += 1;
            budget -= 1;
        }
        turn.done = true;
    }
    turn.done |= note_drained(qp, shared);
    turn
}

/// Fence and the limit on READs and atomics, before the first packet of a request.
fn is_allowed(qp: &Qp, request: &Request) -> bool {
    if qp.requester.packet != 0 {
        return true;
    }
    if qp.ctx.service == Service::Dci
        && qp.requester.cursor != 0
        && let Some(to) = request.wqe.to
        && qp.requester.connection.is_none_or(|connection| connection.to != to)
    {
        return false;
    }
    let fetches = request.wqe.op.is_fetching();
    if !fetches && !request.wqe.fence {
        return true;
    }
    match qp.requester.fetching() {
        0 => true,
        _ if request.wqe.fence => false,
        waiting => waiting < usize::from(qp.attrs.max_rd_atomic),
    }
}

fn may_fetch(qp: &Qp) -> bool {
    qp.state == QpState::Rts
        && qp.sq_pending() != 0
        && qp.requester.queue.len() < REQUESTS
        && qp.requester.next_psn.diff(qp.requester.oldest) < PSN_SPAN
}

/// Moves the next WQE from the ring into the queue. The cursor is behind the last entry and so
/// comes to point at it.
fn fetch(qp: &mut Qp, shared: &mut Shared) {
    let fetched = wqe::fetch(qp, shared);
    let mtu = qp.mtu();
    let entry = match fetched {
        Ok(wqe) if wqe.op.is_fetching() && qp.attrs.max_rd_atomic == 0 => {
            let why = Failure::new(CqeSyndrome::LOCAL_QP_OP_ERR, vendor::NO_RD_ATOMIC);
            Entry::Failed { index: wqe.index, opcode: wqe.opcode, why }
        }
        Ok(wqe) => {
            let packets = match wqe.op {
                Op::Nop | Op::Umr | Op::Copy => 0,
                _ if qp.ctx.service == Service::Raw => 0,
                _ if qp.ctx.service == Service::Ud => 1,
                _ => wqe.len.div_ceil(mtu).max(1),
            };
            let first = qp.requester.next_psn;
            qp.requester.next_psn = first + packets;
            let executed = !matches!(wqe.op, Op::Umr | Op::Copy) && wqe.ethernet.is_none();
            Entry::Live(Request { wqe, first, packets, executed })
        }
        Err(bad) => {
            shared.stats.bad_wqes += 1;
            Entry::Failed { index: bad.index, opcode: bad.opcode, why: bad.why }
        }
    };
    qp.requester.queue.push_back(entry);
    qp.requester.packet = 0;
}

/// Completes what is complete at the head of the queue, and lets a failure that got there fail.
fn retire(qp: &mut Qp, shared: &mut Shared) -> bool {
    let mut done = false;
    while qp.sends() {
        match qp.requester.queue.front() {
            Some(Entry::Live(request)) if !request.end().is_after(qp.requester.oldest) => {
                if request.packets == 0 && qp.requester.cursor == 0 {
                    // Not passed yet; all before it is complete, so no fence holds it.
                    if !execute(qp, shared, 0) {
                        continue;
                    }
                    qp.requester.cursor = 1;
                }
                complete_front(qp, shared);
            }
            Some(&Entry::Failed { index, opcode, why }) => {
                qp.requester.drop_front();
                fail_as(qp, shared, index, opcode, why);
            }
            _ => break,
        }
        done = true;
    }
    done
}

/// Does what a request without packets does, once. False if it turned into a failure instead.
fn execute(qp: &mut Qp, shared: &mut Shared, at: usize) -> bool {
    let who = qp.who();
    let Some(Entry::Live(request)) = qp.requester.queue.get_mut(at) else { return false };
    if request.executed {
        return true;
    }
    request.executed = true;
    let Some(Entry::Live(request)) = qp.requester.queue.get(at) else { return false };
    let wqe = &request.wqe;
    let failure = |syndrome| move |fault: KeyFault| Failure::new(syndrome, fault.vendor());
    let done = match (&wqe.umr, &wqe.ethernet) {
        (Some(umr), _) => {
            umr::execute(umr, who, &qp.ctx, shared).map_err(failure(CqeSyndrome::MW_BIND_ERR))
        }
        (None, Some(_)) => send::execute(qp, wqe, shared),
        (None, None) => wqe.copy(shared, who).map_err(failure(CqeSyndrome::LOCAL_PROT_ERR)),
    };
    match done {
        Ok(()) => true,
        Err(why) => {
            let (index, opcode) = (request.wqe.index, request.wqe.opcode);
            qp.requester.queue[at] = Entry::Failed { index, opcode, why };
            false
        }
    }
}

fn complete_front(qp: &mut Qp, shared: &mut Shared) {
    if let Some(Entry::Live(request)) = qp.requester.queue.front() {
        let wqe = &request.wqe;
        if wqe.signaled {
            let bytes = if wqe.op.is_fetching() { wqe.len } else { 0 };
            complete::send_done(qp, shared, wqe.index, wqe.opcode, bytes);
        }
    }
    qp.requester.drop_front();
}

/// Sends the packet at the cursor. False if the request turned into a failure instead.
fn send_next(qp: &mut Qp, shared: &mut Shared, window_ends: bool) -> bool {
    let at = qp.requester.cursor;
    let packet = qp.requester.packet;
    let Some(Entry::Live(request)) = qp.requester.queue.get(at) else {
        return false;
    };
    let wqe = &request.wqe;
    let psn = request.first + packet;
    let mtu = qp.mtu();
    let last = wqe.op.is_fetching() || packet + 1 == request.packets;
    let offset = u64::from(packet) * u64::from(mtu);
    let left = wqe.len.saturating_sub(packet * mtu);
    // The port's MTU bounds a datagram, not a path's.
    let most = if qp.ctx.service == Service::Ud { wqe.len } else { mtu };
    let len = if wqe.op.is_fetching() { 0 } else { left.min(most) };
    // An ACK now and then keeps the window moving in long messages.
    let reliable = qp.ctx.service.is_reliable();
    let ask = reliable && (last || window_ends || qp.requester.unasked + 1 >= ack_interval(shared));
    let pkey = shared.config.pkeys.get(usize::from(qp.attrs.pkey_index)).copied();
    let opcode_of = opcode(wqe.op, packet == 0, last).of(qp.ctx.service.transport());
    let dest_qpn = wqe.to.map_or(qp.attrs.dest_qpn, |to| to.qpn);
    let mut builder = PacketBuilder::new(opcode_of, dest_qpn, psn)
        .pkey(pkey.unwrap_or(0xffff))
        .ack_request(ask)
        .icrc(shared.port.needs_icrc());
    match wqe.to {
        Some(to) if qp.ctx.service == Service::Dci => {
            // Idle, and this was never sent: another connection, to the same target, too.
            let idle = at == 0 && packet == 0 && psn == qp.requester.high;
            let connection = match qp.requester.connection {
                Some(connection) if !idle => connection,
                _ => {
                    shared.connections = shared.connections.wrapping_add(1);
                    Connection { to, number: shared.connections, first: psn }
                }
            };
            qp.requester.connection = Some(connection);
            builder = builder.dceth(&DcEth {
                key: to.dc_key.into(),
                flags: if psn == connection.first { DcEth::CONNECT } else { 0 },
                src_qp: U24::new(qp.qpn),
                connection: connection.number.into(),
            });
        }
        Some(to) => builder = builder.deth(to.qkey, qp.ctx.deth_sqpn.unwrap_or(qp.qpn)),
        None => {}
    }
    if qp.ctx.service == Service::Xrc {
        builder = builder.xrceth(wqe.xrc_srqn);
    }
    if last {
        let notifies = !matches!(wqe.op, Op::Read { .. } | Op::Write { imm: None, .. });
        builder = builder.solicited(wqe.solicited && notifies);
    }
    builder = match wqe.op {
        // A READ that is asked for again starts where its answers stopped (IBTA 9.7.5.1.5).
        Op::Read { va, rkey } => builder.reth(va.wrapping_add(offset), rkey, left),
        Op::Write { va, rkey, .. } if packet == 0 => builder.reth(va, rkey, wqe.len),
        Op::CompareSwap { va, rkey, swap, compare } => builder.atomic_eth(va, rkey, swap, compare),
        Op::FetchAdd { va, rkey, add } => builder.atomic_eth(va, rkey, add, 0),
        _ => builder,
    };
    builder = match wqe.op {
        Op::SendImm(imm) | Op::Write { imm: Some(imm), .. } if last => builder.immdt(imm),
        Op::SendInval(rkey) if last => builder.ieth(rkey),
        _ => builder,
    };
    let mut bytes = Vec::new();
    let built = builder.emit_with(len as usize, &mut bytes, |payload| {
        wqe.gather(shared, qp.who(), offset, payload).map_err(NotSent::Key)
    });
    if let Err(not) = built {
        let why = match not {
            NotSent::Key(fault) => Failure::new(CqeSyndrome::LOCAL_PROT_ERR, fault.vendor()),
            NotSent::Emit(_) => Failure::new(CqeSyndrome::LOCAL_QP_OP_ERR, vendor::EMIT),
        };
        let (index, opcode) = (wqe.index, wqe.opcode);
        qp.requester.queue[at] = Entry::Failed { index, opcode, why };
        qp.requester.packet = 0;
        return false;
    }
    let path = &qp.attrs.path;
    let (src, dst) = wqe.to.map_or((path.src, path.dst), |to| (to.src, to.dst));
    shared.port.send(Frame { src, dst, bytes }, &mut shared.stats);
    let end = if wqe.op.is_fetching() { request.end() } else { psn.next() };
    let requester = &mut qp.requester;
    if psn.is_before(requester.high) {
        shared.stats.retransmits += 1;
    }
    if end.is_after(requester.high) {
        requester.high = end;
    }
    requester.unasked = if ask { 0 } else { requester.unasked + 1 };
    if last {
        requester.cursor += 1;
        requester.packet = 0;
    } else {
        requester.packet += 1;
    }
    if !reliable {
        // Sent is done (IBTA 9.8.2.3, 9.8.3.2); a first or middle packet is not to be sent again either.
        requester.oldest = end;
    } else if requester.ack_timer.is_none() {
        requester.rearm(&qp.attrs, shared.config.min_ack_timeout, shared.now);
    }
    true
}

/// Why a packet was not built.
enum NotSent {
    Key(KeyFault),
    Emit(
        #[expect(dead_code, reason = "for the debugger: says what our builder got wrong")]
        EmitError,
    ),
}

impl From<EmitError> for NotSent {
    fn from(error: EmitError) -> NotSent {
        NotSent::Emit(error)
    }
}

fn ack_interval(shared: &Shared) -> u32 {
    (shared.config.packet_window / 4).max(1)
}

fn opcode(op: Op, first: bool, last: bool) -> Opcode {
    let pick = |first_of: Opcode, middle: Opcode, last_of: Opcode, only: Opcode| match (first, last)
    {
        (true, true) => only,
        (true, false) => first_of,
        (false, false) => middle,
        (false, true) => last_of,
    };
    use Opcode as O;
    let send = |last_of, only| pick(O::RC_SEND_FIRST, O::RC_SEND_MIDDLE, last_of, only);
    let write = |last_of, only| pick(O::RC_WRITE_FIRST, O::RC_WRITE_MIDDLE, last_of, only);
    match op {
        // Those without packets never get here; a SEND is what they would be.
        Op::Send | Op::Nop | Op::Umr | Op::Copy => send(O::RC_SEND_LAST, O::RC_SEND_ONLY),
        Op::SendImm(_) => send(O::RC_SEND_LAST_IMM, O::RC_SEND_ONLY_IMM),
        Op::SendInval(_) => send(O::RC_SEND_LAST_INV, O::RC_SEND_ONLY_INV),
        Op::Write { imm: None, .. } => write(O::RC_WRITE_LAST, O::RC_WRITE_ONLY),
        Op::Write { imm: Some(_), .. } => write(O::RC_WRITE_LAST_IMM, O::RC_WRITE_ONLY_IMM),
        Op::Read { .. } => O::RC_READ_REQUEST,
        Op::CompareSwap { .. } => O::RC_COMPARE_SWAP,
        Op::FetchAdd { .. } => O::RC_FETCH_ADD,
    }
}

/// An answer from the responder. False if it is none of ours.
pub(super) fn receive(qp: &mut Qp, shared: &mut Shared, packet: &Packet<'_>) -> bool {
    if !qp.sends() || packet.layout().transport != qp.ctx.service.transport() {
        return false;
    }
    let psn = packet.psn();
    let sent = qp.requester.high.diff(qp.requester.oldest).max(0) as u32;
    if !psn.is_within(qp.requester.oldest, sent) {
        // Late: acknowledged already. Or a ghost of an earlier connection (IBTA 9.7.5.1.2).
        return true;
    }
    let before = qp.requester.oldest;
    match (packet.layout().operation, packet.aeth().map(|aeth| aeth.syndrome())) {
        (Operation::Acknowledge, Some(Syndrome::Ack { .. })) => {
            if !acknowledge(qp, shared, psn.next()) {
                gap(qp, shared);
            }
        }
        (Operation::Acknowledge, Some(Syndrome::RnrNak { timer })) => {
            shared.stats.naks_received += 1;
            if acknowledge(qp, shared, psn) {
                not_ready(qp, shared, timer);
            } else {
                gap(qp, shared);
            }
        }
        (Operation::Acknowledge, Some(Syndrome::Nak(code))) => {
            shared.stats.naks_received += 1;
            if !acknowledge(qp, shared, psn) {
                gap(qp, shared);
            } else {
                refused(qp, shared, code);
            }
        }
        (Operation::ReadResponse | Operation::AtomicAcknowledge, _) => {
            // An answer acknowledges all before it (IBTA 9.7.5.1.2).
            if acknowledge(qp, shared, psn) {
                answer(qp, shared, packet);
            } else {
                gap(qp, shared);
            }
        }
        _ => return false,
    }
    if qp.requester.oldest != before {
        qp.requester.gap_at = None;
        if qp.requester.cursor_psn().is_before(qp.requester.oldest) {
            // We went back, and it turned out that less was lost.
            let oldest = qp.requester.oldest;
            qp.requester.seek(oldest);
        }
        qp.requester.rearm(&qp.attrs, shared.config.min_ack_timeout, shared.now);
    }
    retire(qp, shared);
    true
}

/// Everything before `psn` arrived. False if a READ or an atomic among it has not been answered:
/// then its answer was lost (IBTA 9.7.5.1.3, implied NAK).
fn acknowledge(qp: &mut Qp, shared: &mut Shared, psn: Psn) -> bool {
    loop {
        if !psn.is_after(qp.requester.oldest) {
            return true;
        }
        let Some(Entry::Live(request)) = qp.requester.queue.front() else {
            return true;
        };
        if request.packets == 0 {
            complete_front(qp, shared);
            continue;
        }
        if request.wqe.op.is_fetching() {
            return false;
        }
        let end = request.end();
        // Progress, also that told by a NAK, starts new counts; before what the NAK asks takes from them.
        qp.requester.reset_retries(&qp.attrs);
        if psn.is_before(end) {
            qp.requester.oldest = psn;
            return true;
        }
        qp.requester.oldest = end;
        complete_front(qp, shared);
    }
}

/// Data for the READ or atomic that `oldest` belongs to. The packet's PSN is `oldest`.
fn answer(qp: &mut Qp, shared: &mut Shared, packet: &Packet<'_>) {
    while matches!(qp.requester.queue.front(), Some(Entry::Live(r)) if r.packets == 0) {
        complete_front(qp, shared);
    }
    let layout = packet.layout();
    let mtu = qp.mtu();
    let Some(Entry::Live(request)) = qp.requester.queue.front() else {
        return;
    };
    let done = qp.requester.oldest.diff(request.first).max(0) as u32;
    let offset = done * mtu;
    let operand;
    let data = match (request.wqe.op, layout.operation, packet.atomic_ack()) {
        (Op::Read { .. }, Operation::ReadResponse, _) => {
            let data = packet.payload();
            let ends = done + 1 == request.packets;
            let want = request.wqe.len.saturating_sub(offset).min(mtu);
            if data.len() != want as usize || layout.position.ends() != ends {
                return bad_response(qp, shared);
            }
            data
        }
        (Op::CompareSwap { .. } | Op::FetchAdd { .. }, Operation::AtomicAcknowledge, Some(ack)) => {
            operand = ack.original.get().to_ne_bytes();
            &operand[..]
        }
        _ => return bad_response(qp, shared),
    };
    if let Err(fault) = request.wqe.scatter(shared, qp.who(), offset.into(), data) {
        let why = Failure::new(CqeSyndrome::LOCAL_PROT_ERR, fault.vendor());
        return fail(qp, shared, why);
    }
    qp.requester.oldest = qp.requester.oldest.next();
    qp.requester.reset_retries(&qp.attrs);
}

fn bad_response(qp: &mut Qp, shared: &mut Shared) {
    fail(qp, shared, Failure::new(CqeSyndrome::BAD_RESP_ERR, vendor::RESPONSE));
}

/// Answers are missing: go back once for each gap.
fn gap(qp: &mut Qp, shared: &mut Shared) {
    let oldest = qp.requester.oldest;
    if qp.requester.gap_at != Some(oldest) {
        if go_back(qp, shared, vendor::SEQUENCE) {
            qp.counts(&mut shared.counters).implied_nak_seq_err += 1;
        }
        qp.requester.gap_at = Some(oldest);
    }
}

/// RNR NAK: wait as long as the responder asks, then again from there (IBTA 9.7.5.2.8).
fn not_ready(qp: &mut Qp, shared: &mut Shared, timer: u8) {
    let requester = &mut qp.requester;
    if qp.attrs.rnr_retry != RNR_FOREVER {
        match requester.rnr_retries.checked_sub(1) {
            Some(left) => requester.rnr_retries = left,
            None => {
                qp.counts(&mut shared.counters).req_rnr_retries_exceeded += 1;
                let why = Failure::new(CqeSyndrome::RNR_RETRY_EXC_ERR, vendor::RNR);
                return fail(qp, shared, why);
            }
        }
    }
    qp.counts(&mut shared.counters).rnr_nak_retry_err += 1;
    let requester = &mut qp.requester;
    requester.rnr_timer = Some(shared.now + rnr_delay(timer));
    requester.ack_timer = None;
    let oldest = requester.oldest;
    requester.seek(oldest);
}

/// A NAK for the request at `oldest`.
fn refused(qp: &mut Qp, shared: &mut Shared, code: NakCode) {
    let syndrome = match code {
        NakCode::PSN_SEQUENCE => {
            // The peer says it once for each gap, so progress just made starts a new count.
            if go_back(qp, shared, vendor::SEQUENCE) {
                qp.counts(&mut shared.counters).packet_seq_err += 1;
            }
            return;
        }
        NakCode::INVALID_REQUEST => CqeSyndrome::REMOTE_INVAL_REQ_ERR,
        NakCode::REMOTE_ACCESS => CqeSyndrome::REMOTE_ACCESS_ERR,
        NakCode::REMOTE_OPERATIONAL => CqeSyndrome::REMOTE_OP_ERR,
        _ => return bad_response(qp, shared),
    };
    fail(qp, shared, Failure::new(syndrome, vendor::PEER));
}

/// Again from `oldest`, if there is a retry left (IBTA 9.7.6.1: timeouts and sequence NAKs share
/// the counter). False if there is none, and the request failed.
fn go_back(qp: &mut Qp, shared: &mut Shared, reason: u8) -> bool {
    match qp.requester.retries.checked_sub(1) {
        Some(left) => {
            qp.requester.retries = left;
            let oldest = qp.requester.oldest;
            qp.requester.seek(oldest);
            true
        }
        None => {
            qp.counts(&mut shared.counters).req_transport_retries_exceeded += 1;
            fail(qp, shared, Failure::new(CqeSyndrome::TRANSPORT_RETRY_EXC_ERR, reason));
            false
        }
    }
}

/// The oldest request fails; all before it are complete.
fn fail(qp: &mut Qp, shared: &mut Shared, why: Failure) {
    while matches!(qp.requester.queue.front(), Some(Entry::Live(r)) if r.packets == 0) {
        complete_front(qp, shared);
    }
    if let Some(Unfinished { index, opcode }) = qp.requester.pop() {
        fail_as(qp, shared, index, opcode, why);
    }
}

fn fail_as(qp: &mut Qp, shared: &mut Shared, index: u16, opcode: WqeOpcode, why: Failure) {
    complete::send_failed(qp, shared, index, opcode, why);
    if qp.ctx.service.is_reliable() {
        qp.state = QpState::Err;
        qp.responder.silence();
    } else {
        // The send queue alone fails (IBTA 10.3.1, "SQEr").
        qp.state = QpState::Sqe;
    }
}

/// SQD: everything sent is acknowledged (IBTA 10.3.1, "SQD state").
fn note_drained(qp: &mut Qp, shared: &mut Shared) -> bool {
    if !qp.is_draining() || !qp.requester.queue.is_empty() {
        return false;
    }
    qp.attrs.sq_draining = false;
    if qp.attrs.en_sqd_async_notify {
        let Shared { events, stats, .. } = shared;
        events.push(HcaEvent::SqDrained { qpn: qp.qpn }, stats);
    }
    true
}
