//! The responder of a connection (IBTA vol 1, 9.7.4 and 9.7.5): executes request packets that
//! arrive in order, and answers the others by a NAK so that the requester recovers. An unreliable
//! connection (9.8.2.2) executes the same requests, and drops instead of answering.
//!
//! Execution and answers are separate: `receive` changes memory and queues answers, `transmit`
//! sends them in order as the port has room. A long READ is read from memory packet by packet as
//! its answer leaves.

use uverbs_mlx5_prm::cqe::{CqeOpcode, FlagsRqpn};
use uverbs_mlx5_prm::syndrome::Syndrome as CqeSyndrome;

use crate::hca::context::transport;
use crate::hca::engine::completion::cqe;
use crate::hca::engine::completion::cqe::Arrival;
use crate::hca::engine::responder::checks::{
    ACCESS, INVALID, OPERATIONAL, Refusal, check, owner, refusal_or, source,
};
use crate::hca::engine::responder::{placement, read_atomic};
use crate::hca::engine::scheduler::page_faults;
use crate::hca::engine::scheduler::page_faults::Wanted;
use crate::hca::engine::wqe::{recv_wqe, tags};
use crate::hca::failure::{Failure, Vendor};
use crate::hca::payload::Payload;
use crate::hca::state::common::Common;
use crate::hca::state::keys::{KeyFault, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::{Found, Receive, Source};
use crate::hca::state::responder::{Answer, Message};
use crate::wire::{Loan, NakCode, Operation, Packet, Syndrome};
use uverbs_front::backend::context::{Access, QpState, Service};
use uverbs_front::backend::error::HcaEvent;
use uverbs_front::backend::number::Key;

/// Queued answers, READs and atomics not counted, from which on requests are dropped.
const SPARE_ANSWERS: usize = 32;

/// Takes a request from the peer. False if it is dropped.
pub(crate) fn receive(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    loan: Option<&Loan>,
) -> bool {
    if !qp.receives() || packet.layout().transport != transport(qp.ctx.service) {
        return false;
    }
    let room = SPARE_ANSWERS + 2 * usize::from(qp.attrs.max_dest_rd_atomic);
    if qp.responder.answers.len() >= room {
        // The wire takes no answers: drop the request, so that the requester sees a loss.
        return false;
    }
    if qp.responder.stop.is_some() {
        return page_faults::wait(qp, common, packet);
    }
    if qp.state == QpState::Rtr && !qp.responder.established {
        qp.responder.established = true;
        let Common { events, stats, .. } = common;
        events.push(HcaEvent::CommEstablished { qpn: qp.qpn }, stats);
    }
    if !qp.ctx.service.is_reliable() {
        return receive_unreliable(qp, common, packet);
    }
    let ahead = packet.psn().diff(qp.responder.expected);
    if ahead > 0 {
        // IBTA 9.7.5.2.3: one NAK for each sequence error.
        common.stats.out_of_sequence += 1;
        qp.counts(&mut common.counters).out_of_sequence += 1;
        if !qp.responder.nak_sent {
            qp.responder.push_nak(Syndrome::Nak(NakCode::PSN_SEQUENCE));
        }
        return true;
    }
    if ahead < 0 {
        common.stats.duplicates += 1;
        qp.counts(&mut common.counters).duplicate_request += 1;
        read_atomic::repeat(qp, common, packet);
        return true;
    }
    match execute(qp, common, packet, loan) {
        Ok(packets) => {
            count(qp, common, packet);
            let responder = &mut qp.responder;
            responder.nak_sent = false;
            responder.expected = responder.expected + packets;
            if packet.layout().position.ends() {
                responder.count_message();
            }
            note_answer(qp, packet);
        }
        Err(Refusal::NotReady) => {
            common.stats.rnr_naks_sent += 1;
            qp.counts(&mut common.counters).out_of_buffer += 1;
            let timer = qp.attrs.min_rnr_timer;
            qp.responder.push_nak(Syndrome::RnrNak { timer });
        }
        Err(Refusal::Lost) => {
            if !qp.responder.nak_sent {
                qp.responder.push_nak(Syndrome::Nak(NakCode::PSN_SEQUENCE));
            }
        }
        Err(Refusal::Absent(wanted)) => {
            if !page_faults::stop(qp, common, packet.psn(), wanted) {
                refuse(qp, common, NakCode::REMOTE_OPERATIONAL);
            }
        }
        Err(Refusal::Told(code)) => refuse(qp, common, code),
        Err(Refusal::Fatal(code)) => {
            refuse(qp, common, code);
            report(qp, common, code);
        }
    }
    true
}

/// Takes a packet of an unreliable connection (IBTA 9.8.2.2). A lost packet loses the rest of its
/// message. A wrong request is dropped silently; an error of a receive ends the connection.
fn receive_unreliable(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>) -> bool {
    let starts = packet.layout().position.starts();
    let lost = packet.psn() != qp.responder.expected;
    qp.responder.expected = packet.psn().next();
    if lost {
        common.stats.out_of_sequence += 1;
        qp.counts(&mut common.counters).out_of_sequence += 1;
    }
    if lost || starts {
        qp.responder.spare = qp.responder.abandon();
    }
    if !starts && qp.responder.message.is_none() {
        return false;
    }
    match execute(qp, common, packet, None) {
        Ok(_) => {
            count(qp, common, packet);
            true
        }
        Err(Refusal::Told(_) | Refusal::Fatal(NakCode::REMOTE_OPERATIONAL)) => {
            qp.state = QpState::Err;
            true
        }
        Err(Refusal::Absent(wanted)) => {
            qp.responder.spare = qp.responder.abandon();
            if !page_faults::stop(qp, common, packet.psn(), wanted) {
                qp.state = QpState::Err;
            }
            true
        }
        Err(refusal @ (Refusal::NotReady | Refusal::Fatal(_) | Refusal::Lost)) => {
            if matches!(refusal, Refusal::NotReady) {
                qp.counts(&mut common.counters).out_of_buffer += 1;
            }
            qp.responder.spare = qp.responder.abandon();
            false
        }
    }
}

/// Sends a NAK and goes to the error state (IBTA 9.9.6.3).
pub(crate) fn refuse(qp: &mut Qp, common: &mut Common, code: NakCode) {
    if code == NakCode::REMOTE_ACCESS {
        qp.counts(&mut common.counters).resp_remote_access_errors += 1;
    }
    qp.responder.push_nak(Syndrome::Nak(code));
    qp.state = QpState::Err;
}

/// Reports the async event (IBTA 11.6.3.2): without a receive that completed with the error, the
/// program would not learn of it.
pub(crate) fn report(qp: &Qp, common: &mut Common, code: NakCode) {
    if qp.ctx.service == Service::Dct {
        // A target's connection failed; the driver takes no event for one of many connections
        // (Linux `hw/mlx5/qpc.c`, `dct_allowed_event_types`).
        return;
    }
    let Common { events, stats, .. } = common;
    let qpn = qp.qpn;
    match code {
        NakCode::REMOTE_ACCESS => events.push(HcaEvent::QpAccessError { qpn }, stats),
        NakCode::INVALID_REQUEST => events.push(HcaEvent::QpRequestError { qpn }, stats),
        // The receive's own CQE reports it.
        _ => {}
    }
}

/// Queues an acknowledgement if the packet asks for one. READs, atomics, FLUSH and ATOMIC WRITE
/// have their answer queued already.
#[inline]
fn note_answer(qp: &mut Qp, packet: &Packet<'_>) {
    let fetching = matches!(
        packet.layout().operation,
        Operation::ReadRequest
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::Flush
            | Operation::AtomicWrite
    );
    if fetching {
        // The message sequence number includes the message answered.
        let msn = qp.responder.msn;
        if let Some(
            Answer::Read { msn: at, .. }
            | Answer::Atomic { msn: at, .. }
            | Answer::Placed { msn: at, .. },
        ) = qp.responder.answers.back_mut()
        {
            *at = msn;
        }
    } else if packet.bth().is_ack_requested() {
        qp.responder.push_ack();
    }
}

/// Counts a request with its first packet.
#[inline]
fn count(qp: &Qp, common: &mut Common, packet: &Packet<'_>) {
    let counts = qp.counts(&mut common.counters);
    match packet.layout().operation {
        Operation::Write if packet.layout().position.starts() => counts.rx_write_requests += 1,
        Operation::ReadRequest => counts.rx_read_requests += 1,
        Operation::CompareSwap | Operation::FetchAdd => counts.rx_atomic_requests += 1,
        Operation::AtomicWrite => counts.rx_write_requests += 1,
        _ => {}
    }
}

/// Executes the expected request. Returns the number of PSNs that it takes.
fn execute(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    loan: Option<&Loan>,
) -> Result<u32, Refusal> {
    let layout = packet.layout();
    let starts = layout.position.starts();
    // Opcode sequence (IBTA 9.7.4.1.2): a message starts when none is under way, and goes on with
    // its own kind.
    let fits = match &qp.responder.message {
        None => starts,
        Some(Message::Send { .. }) => !starts && layout.operation == Operation::Send,
        Some(Message::Write { .. }) => !starts && layout.operation == Operation::Write,
    };
    let data = loan.map_or(Payload::Bytes(packet.payload()), Payload::from);
    let packets = loan.map_or(1, Loan::packets);
    if !fits || !has_legal_length(qp, packet, data.len(), packets) {
        return Err(INVALID);
    }
    match layout.operation {
        Operation::Send if qp.tags => match loan {
            // The receive depends on the tag header, so the bytes have to be copied first.
            Some(loan) => {
                let bytes = loan.bytes().ok_or(Refusal::Lost)?;
                send(qp, common, &packet.carrying(&bytes), Payload::Bytes(&bytes)).map(|()| packets)
            }
            None => send(qp, common, packet, data).map(|()| 1),
        },
        Operation::Send => send(qp, common, packet, data).map(|()| packets),
        Operation::Write => write(qp, common, packet, data).map(|()| packets),
        Operation::ReadRequest => read_atomic::read(qp, common, packet),
        Operation::CompareSwap | Operation::FetchAdd => {
            read_atomic::atomic(qp, common, packet).map(|()| 1)
        }
        Operation::Flush => {
            let who = owner(qp, common, packet)?;
            placement::flush(qp, common, who, packet).map(|()| 1)
        }
        Operation::AtomicWrite => {
            let who = owner(qp, common, packet)?;
            placement::store(qp, common, who, packet).map(|()| 1)
        }
        _ => Err(INVALID),
    }
}

/// First and middle packets are full, a last one is not empty (IBTA 9.7.4.1.6). A packet that
/// stands for a run of packets has the length of the run.
#[inline]
fn has_legal_length(qp: &Qp, packet: &Packet<'_>, len: usize, packets: u32) -> bool {
    let (mtu, packets) = (qp.mtu() as usize, packets as usize);
    let position = packet.layout().position;
    match (position.starts(), position.ends()) {
        (_, false) => packets != 0 && len == packets * mtu,
        (true, true) if packets == 1 => len <= mtu,
        (_, true) => len != 0 && len.div_ceil(mtu) == packets,
    }
}

fn send(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    data: Payload<'_>,
) -> Result<(), Refusal> {
    let (receive, offset) = match qp.responder.message.take() {
        Some(Message::Send { receive, offset }) => (receive, offset),
        _ if qp.tags => match tags::arrive(qp, common, packet)? {
            Some(receive) => (receive, 0),
            None => return Ok(()),
        },
        _ => (take(qp, common, packet)?, 0),
    };
    if let Some(Found::Tag { .. }) = receive.found {
        return tags::land(qp, common, packet, receive, offset);
    }
    let end = offset + data.len() as u64;
    if end > receive.room {
        let why = Failure::new(CqeSyndrome::LOCAL_LENGTH_ERR, Vendor::TOO_LONG);
        cqe::receive_failed(qp, common, &receive, why);
        return Err(Refusal::Told(NakCode::INVALID_REQUEST));
    }
    let who = Who { pd: receive.landing.pd, qpn: qp.qpn };
    let most = common.cqs.room_for_data(receive.landing.cqn, qp.ctx.scatter.responder);
    let in_cqe = !qp.tags
        && offset == 0
        && packet.layout().position.ends()
        && data.len() <= most
        && matches!(data, Payload::Bytes(_));
    let scattered = match in_cqe {
        true => Ok(()),
        false => common.keys.scatter(&*common.dma, who, &receive.list, offset, data),
    };
    if data.is_lost(scattered) {
        keep(qp, receive, offset);
        return Err(Refusal::Lost);
    }
    if let Err(fault) = scattered {
        // A repeated message with a tag would be matched again, and would not find this receive.
        if fault == KeyFault::Absent && common.faults.are_told && !qp.tags {
            let wanted = Wanted::receive(&receive, data.len());
            keep(qp, receive, offset);
            return Err(Refusal::Absent(wanted));
        }
        let why = Failure::new(CqeSyndrome::LOCAL_PROT_ERR, fault.vendor());
        return Err(failed(qp, common, &receive, why));
    }
    if !packet.layout().position.ends() {
        qp.responder.message = Some(Message::Send { receive, offset: end });
        return Ok(());
    }
    let (kind, imm) = match (packet.immdt(), packet.ieth()) {
        (Some(imm), _) => (CqeOpcode::RESP_SEND_IMM, imm.imm.get()),
        (_, Some(ieth)) => (CqeOpcode::RESP_SEND_INV, ieth.rkey.get()),
        _ => (CqeOpcode::RESP_SEND, 0),
    };
    if let Some(ieth) = packet.ieth()
        && common.keys.invalidate(who, Key(ieth.rkey.get())).is_err()
    {
        // The message is in memory, but not completed: the receive flushes (IBTA 9.9.6.3).
        qp.responder.message = Some(Message::Send { receive, offset: end });
        return Err(ACCESS);
    }
    let arrival = arrival(qp, packet, kind, end as u32, imm);
    cqe::receive_done(qp, common, &receive, arrival, if in_cqe { data.bytes() } else { &[] });
    common.spare_lists.put(receive.list);
    Ok(())
}

/// Takes the receive of a message that starts.
fn take(qp: &mut Qp, common: &mut Common, packet: &Packet<'_>) -> Result<Receive, Refusal> {
    let from = ready(qp, common, packet)?;
    if let Some(spare) = qp.responder.spare.take() {
        return Ok(spare);
    }
    let receive = match recv_wqe::take(qp, common, from) {
        Ok(receive) => receive,
        Err((receive, why)) => return Err(failed(qp, common, &receive, why)),
    };
    if recv_wqe::faults(common, &receive) {
        let why = Failure::new(CqeSyndrome::REMOTE_ABORTED_ERR, Vendor::PAGE_FAULT);
        cqe::receive_failed(qp, common, &receive, why);
        common.spare_lists.put(receive.list);
        return Err(Refusal::NotReady);
    }
    Ok(receive)
}

/// Completes a receive that failed.
fn failed(qp: &Qp, common: &mut Common, receive: &Receive, why: Failure) -> Refusal {
    cqe::receive_failed(qp, common, receive, why);
    OPERATIONAL
}

/// Keeps the receive of a packet that will be sent again.
fn keep(qp: &mut Qp, receive: Receive, offset: u64) {
    match offset {
        0 => qp.responder.spare = Some(receive),
        _ => qp.responder.message = Some(Message::Send { receive, offset }),
    }
}

pub(crate) fn arrival(
    qp: &Qp,
    packet: &Packet<'_>,
    kind: CqeOpcode,
    bytes: u32,
    imm: u32,
) -> Arrival {
    let path = &qp.attrs.path;
    let from = FlagsRqpn::ZERO.with_sl(path.sl & 15).with_rqpn(qp.attrs.dest_qpn.0);
    let solicited = packet.bth().is_solicited();
    Arrival { kind, bytes, imm, solicited, from, slid: path.dst.lid, tag: 0 }
}

/// Source of the receive for a message that starts, if no earlier message left a spare one.
/// `NotReady` without either.
#[inline]
pub(crate) fn ready(qp: &Qp, common: &mut Common, packet: &Packet<'_>) -> Result<Source, Refusal> {
    let from = source(qp, common, packet)?;
    if qp.responder.spare.is_none() && recv_wqe::posted(qp, common, from) == 0 {
        return Err(Refusal::NotReady);
    }
    Ok(from)
}

fn write(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    data: Payload<'_>,
) -> Result<(), Refusal> {
    let who = owner(qp, common, packet)?;
    let (va, rkey, len, offset) = match (&qp.responder.message, packet.reth()) {
        (Some(Message::Write { va, rkey, len, offset }), _) => (*va, *rkey, *len, *offset),
        (_, Some(reth)) => {
            let (va, rkey, len) = (reth.va.get(), Key(reth.rkey.get()), reth.dma_length.get());
            if !qp.attrs.access.contains(Access::REMOTE_WRITE) || len > common.config.max_msg_size {
                return Err(INVALID);
            }
            check(common, who, (va, rkey.0, len), Access::REMOTE_WRITE)?;
            (va, rkey, len, 0)
        }
        _ => return Err(INVALID),
    };
    let ends = packet.layout().position.ends();
    // The payload must have the length that RETH announced (IBTA 9.7.4.1.6).
    let end = u64::from(offset) + data.len() as u64;
    if end > len.into() || ends != (end == len.into()) {
        return Err(INVALID);
    }
    // Checked before a write: a request that is not ready is repeated as a whole.
    let notice = match packet.immdt() {
        Some(imm) => Some((imm.imm.get(), ready(qp, common, packet)?)),
        None => None,
    };
    let to = (rkey, va.wrapping_add(offset.into()));
    let need = Access::REMOTE_WRITE;
    let written = common.keys.write(&*common.dma, who, to, need, data);
    if data.is_lost(written) {
        return Err(Refusal::Lost);
    }
    written.map_err(refusal_or(Wanted::Memory {
        write: true,
        rkey,
        va: to.1,
        len: len - offset,
        packet: data.len().min(qp.mtu() as usize) as u16,
    }))?;
    let offset = offset + data.len() as u32;
    qp.responder.message = (!ends).then_some(Message::Write { va, rkey, len, offset });
    if let Some((imm, from)) = notice {
        // Only the WQE is consumed, its list is unused (IBTA 9.7.5.1.1).
        let spare = qp.responder.spare.take();
        let receive = spare.unwrap_or_else(|| recv_wqe::consume(qp, common, from));
        let arrival = arrival(qp, packet, CqeOpcode::RESP_WR_IMM, len, imm);
        cqe::receive_done(qp, common, &receive, arrival, &[]);
    }
    Ok(())
}
