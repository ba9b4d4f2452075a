//! Builds and sends the request packet at a requester's cursor (IBTA vol 1, 9.7.3).

use uverbs_mlx5_prm::syndrome::Syndrome as CqeSyndrome;

use crate::hca::context::{self, transport};
use crate::hca::engine::local::requests;
use crate::hca::engine::requester::congestion;
use crate::hca::engine::scheduler::page_faults;
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::common::Common;
use crate::hca::state::keys::KeyFault;
use crate::hca::state::qp::Qp;
use crate::hca::state::requester::{DcConnection, QueuedRequest, Request, Requester};
use crate::hca::state::wqe::Op;
use crate::wire::{Bth, DcEth, EmitError, Frame, Opcode, PacketBuilder, Psn, U24};
use uverbs_front::backend::context::Service;

/// Sends the packet at the cursor. False if the request failed, or waits for a page.
pub(crate) fn send_next(qp: &mut Qp, common: &mut Common, window_ends: bool) -> bool {
    if requests::send(qp, common) {
        return true;
    }
    let at = qp.requester.cursor;
    let Some(QueuedRequest::Live(request)) = qp.requester.queue.get(at) else {
        return false;
    };
    let place = RequestPart::new(qp, request, 1);
    // Regular ACKs keep the window moving in long messages.
    let reliable = qp.ctx.service.is_reliable();
    let unasked = qp.requester.unasked + 1;
    let ask = reliable && (place.ends || window_ends || unasked >= ack_interval(common));
    let connection = connection(qp, common, request, &place);
    let builder = headers(qp, common, request, &place, connection, ask);
    let wqe = &request.wqe;
    let mut bytes = common.port.spare();
    let built = builder.emit_with(place.len as usize, &mut bytes, |payload| {
        wqe.gather(common, qp.who(), place.offset, payload).map_err(NotSent::Key)
    });
    if let Some(connection) = connection {
        qp.requester.connection = Some(connection);
    }
    if let Err(not) = built {
        let index = wqe.index;
        if matches!(not, NotSent::Key(KeyFault::Absent))
            && page_faults::halt(qp, common, index, false)
        {
            return false;
        }
        let why = match not {
            NotSent::Key(fault) => Failure::new(CqeSyndrome::LOCAL_PROT_ERR, fault.vendor()),
            NotSent::Emit(_) => Failure::new(CqeSyndrome::LOCAL_QP_OP_ERR, Vendor::EMIT),
        };
        if let Some(entry) = qp.requester.queue.get_mut(at) {
            entry.fail(why);
        }
        qp.requester.packet = 0;
        return false;
    }
    let mut frame = match &wqe.to {
        Some(to) => Frame { src: to.src, dst: to.dst, route: to.route, bytes, loan: None },
        None => context::frame(&qp.attrs.path, &common.port, bytes),
    };
    if congestion::is_asked_for(qp, common) {
        frame.route = frame.route.capable_of_ecn();
    }
    let end = request.first + place.next;
    common.port.send(frame, &mut common.stats);
    if place.psn.is_before(qp.requester.high) {
        common.stats.retransmits += 1;
    }
    qp.requester.note_sent(&place, end, ask);
    if !reliable {
        // A packet is done when it is sent (IBTA 9.8.2.3, 9.8.3.2), first and middle packets too:
        // none is sent again.
        qp.requester.oldest = end;
    } else if qp.requester.ack_timer.is_none() {
        qp.requester.rearm(&qp.attrs, common.config.min_ack_timeout, common.now);
    }
    true
}

/// The part of a request that a packet, or a run of packets, carries.
pub(crate) struct RequestPart {
    pub(crate) psn: Psn,
    first: bool,
    last: bool,
    /// True if the packet must be answered: the last one of a request, or each part of a READ.
    ends: bool,
    /// Number of the next packet of the request.
    pub(crate) next: u32,
    /// Offset of the payload in the message, and bytes from there to the end of the message, or of
    /// the part that a READ asks for.
    pub(crate) offset: u64,
    left: u32,
    /// Bytes of the payload.
    pub(crate) len: u32,
}

impl RequestPart {
    /// The part at the cursor. A request with payload gets up to `run` packets, ending at a
    /// multiple of `run`.
    pub(crate) fn new(qp: &Qp, request: &Request, run: u32) -> RequestPart {
        let wqe = &request.wqe;
        let packet = qp.requester.packet;
        let mtu = qp.mtu();
        let fetching = wqe.op.is_fetching();
        let next = match fetching {
            true => request.part_end(packet),
            // A division takes longer than this comparison.
            false if run == 1 => packet + 1,
            false => ((packet / run + 1) * run).min(request.packets),
        };
        let end = if fetching && next < request.packets { next * mtu } else { wqe.len };
        let left = end.saturating_sub(packet * mtu);
        // A datagram is limited by the port's MTU, not by a path's.
        let most = if qp.ctx.service == Service::Ud { wqe.len } else { (next - packet) * mtu };
        RequestPart {
            psn: request.first + packet,
            first: packet == 0,
            last: next == request.packets,
            ends: fetching || next == request.packets,
            next,
            offset: u64::from(packet) * u64::from(mtu),
            left,
            len: match wqe.op {
                Op::AtomicWrite { .. } => left,
                _ if fetching => 0,
                _ => left.min(most),
            },
        }
    }
}

impl Requester {
    /// Moves the cursor behind the packet that was sent. `end` is the PSN behind the last response
    /// that the packet asks for.
    pub(crate) fn note_sent(&mut self, place: &RequestPart, end: Psn, ask: bool) {
        if end.is_after(self.high) {
            self.high = end;
        }
        self.unasked = if ask { 0 } else { self.unasked + 1 };
        if place.last {
            self.cursor += 1;
            self.packet = 0;
        } else {
            self.packet = place.next;
        }
    }
}

/// The dynamic connection that a packet belongs to; None for the other services.
fn connection(
    qp: &Qp,
    common: &mut Common,
    request: &Request,
    place: &RequestPart,
) -> Option<DcConnection> {
    let to = request.wqe.to.filter(|_| qp.ctx.service == Service::Dci)?;
    // Idle, and sent for the first time: opens a new connection, even to the same target.
    let idle = qp.requester.cursor == 0 && place.first && place.psn == qp.requester.high;
    match qp.requester.connection {
        Some(connection) if !idle => Some(connection),
        _ => {
            common.connections = common.connections.wrapping_add(1);
            Some(DcConnection { to, number: common.connections, first: place.psn })
        }
    }
}

/// Headers of a packet. `ask` requests an acknowledgement.
#[inline(always)]
pub(crate) fn headers(
    qp: &Qp,
    common: &Common,
    request: &Request,
    place: &RequestPart,
    connection: Option<DcConnection>,
    ask: bool,
) -> PacketBuilder {
    let wqe = &request.wqe;
    let pkey = common.config.pkeys.get(usize::from(qp.attrs.pkey_index)).copied();
    let opcode = opcode(wqe.op, place.first, place.last).of(transport(qp.ctx.service));
    let dest_qpn = wqe.to.map_or(qp.attrs.dest_qpn, |to| to.qpn);
    let mut builder = PacketBuilder::new(opcode, dest_qpn.0, place.psn)
        .pkey(pkey.unwrap_or(0xffff))
        .ack_request(ask)
        .icrc(common.port.needs_icrc());
    if congestion::is_asked_for(qp, common) {
        builder = builder.congestion(Bth::NOTIFIABLE);
    }
    builder = match (connection, wqe.to) {
        (Some(connection), _) => builder.dceth(&DcEth {
            key: wqe.to.map_or(0, |to| to.dc_key).into(),
            flags: if place.psn == connection.first { DcEth::CONNECT } else { 0 },
            src_qp: U24::new(qp.qpn.0),
            connection: connection.number.into(),
        }),
        (None, Some(to)) => builder.deth(to.qkey, qp.ctx.deth_sqpn.unwrap_or(qp.qpn).0),
        (None, None) => builder,
    };
    if qp.ctx.service == Service::Xrc {
        builder = builder.xrceth(wqe.xrc_srqn);
    }
    if place.last {
        let notifies = !matches!(wqe.op, Op::Read { .. } | Op::Write { imm: None, .. })
            && !wqe.op.is_placing();
        builder = builder.solicited(wqe.solicited && notifies);
    }
    builder = match wqe.op {
        // A READ that is asked for again starts at its first missing byte (IBTA 9.7.5.1.5).
        Op::Read { va, rkey } => builder.reth(va.wrapping_add(place.offset), rkey.0, place.left),
        Op::Write { va, rkey, .. } if place.first => builder.reth(va, rkey.0, wqe.len),
        Op::CompareSwap { va, rkey, swap, compare } => {
            builder.atomic_eth(va, rkey.0, swap, compare)
        }
        Op::FetchAdd { va, rkey, add } => builder.atomic_eth(va, rkey.0, add, 0),
        Op::Flush { va, rkey, len, header } => builder.feth(header).reth(va, rkey.0, len),
        Op::AtomicWrite { va, rkey } => builder.reth(va, rkey.0, wqe.len),
        _ => builder,
    };
    match wqe.op {
        Op::SendImm(imm) | Op::Write { imm: Some(imm), .. } if place.last => builder.immdt(imm),
        Op::SendInval(rkey) if place.last => builder.ieth(rkey.0),
        _ => builder,
    }
}

/// Reason why a packet was not built.
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

fn ack_interval(common: &Common) -> u32 {
    (common.config.packet_window / 4).max(1)
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
        // All operations except SEND have no packets and never get here.
        Op::Send | Op::Nop | Op::Umr | Op::Copy | Op::Tags => {
            send(O::RC_SEND_LAST, O::RC_SEND_ONLY)
        }
        Op::SendImm(_) => send(O::RC_SEND_LAST_IMM, O::RC_SEND_ONLY_IMM),
        Op::SendInval(_) => send(O::RC_SEND_LAST_INV, O::RC_SEND_ONLY_INV),
        Op::Write { imm: None, .. } => write(O::RC_WRITE_LAST, O::RC_WRITE_ONLY),
        Op::Write { imm: Some(_), .. } => write(O::RC_WRITE_LAST_IMM, O::RC_WRITE_ONLY_IMM),
        Op::Read { .. } => O::RC_READ_REQUEST,
        Op::CompareSwap { .. } => O::RC_COMPARE_SWAP,
        Op::FetchAdd { .. } => O::RC_FETCH_ADD,
        Op::Flush { .. } => O::RC_FLUSH,
        Op::AtomicWrite { .. } => O::RC_ATOMIC_WRITE,
    }
}
