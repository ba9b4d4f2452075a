//! Tag matching (rdma-core `Documentation/tag_matching.md`): messages of reliable connections find
//! their buffers in their SRQ's list, by the header that they begin with.
//!
//! A message that matches a tag goes to the tag's buffer, without the header. A rendezvous message
//! is a header alone: the device fetches the data by a READ on the connection, and then sends the
//! peer a completion message. All other messages take a receive of the SRQ and go there whole.

use uverbs_mlx5_prm::cqe::{CqeOpcode, MLX5_TMC_SUCCESS};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::syndrome::Syndrome;
use uverbs_mlx5_prm::tag::{TmAppOp, TmhOp, ibv_rvh, ibv_tmh};
use zerocopy::{FromBytes, IntoBytes};

use crate::hca::engine::completion::cqe::{self, Arrival, TAG_HEADER};
use crate::hca::engine::responder::checks::{ACCESS, INVALID, OPERATIONAL, Refusal};
use crate::hca::engine::responder::queue::{arrival, ready};
use crate::hca::engine::wqe::recv_wqe;
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::common::Common;
use crate::hca::state::keys::{Segment, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::{Found, Landing, Receive, Source};
use crate::hca::state::requester::Request;
use crate::hca::state::responder::Message;
use crate::hca::state::tags::{Change, TagList, TagWork, Tagged};
use crate::hca::state::wqe::{Op, Pieces, Wqe};
use crate::wire::Packet;
use uverbs_front::backend::context::{Access, QpState};
use uverbs_front::backend::number::Key;

fn list<'a>(qp: &Qp, common: &'a mut Common) -> Option<&'a mut TagList> {
    common.srqs.get_mut(qp.ctx.srq?).ok()?.tags.as_deref_mut()
}

/// Changes the tag list by a WQE, and completes it if that was requested.
pub(crate) fn change(qp: &Qp, common: &mut Common, wqe: &Wqe) -> Result<(), Failure> {
    let wrong = Failure::new(Syndrome::LOCAL_QP_OP_ERR, Vendor::TAGS);
    let Some(TagWork::Change(asked)) = wqe.tags.as_deref() else { return Err(wrong) };
    let Some(tags) = list(qp, common) else { return Err(wrong) };
    let place = match asked.change {
        Change::Append { .. } => tags.counters().0,
        Change::Remove { place } => place,
        Change::Nothing => 0,
    };
    let done = tags.apply(asked).map_err(|_| wrong)?;
    if !asked.signaled {
        return Ok(());
    }
    let came = tags.counters().2;
    let app_op = match asked.change {
        Change::Append { .. } => TmAppOp::APPEND,
        Change::Remove { .. } => TmAppOp::REMOVE,
        Change::Nothing => TmAppOp::NOOP,
    };
    let mut result = [0; TAG_HEADER];
    let success = if done { MLX5_TMC_SUCCESS } else { 0 };
    result[..4].copy_from_slice(&success.to_be_bytes());
    result[4..6].copy_from_slice(&came.to_be_bytes());
    let landing = recv_wqe::landing(qp, common, own(qp));
    cqe::tag(qp, common, landing, (CqeOpcode::NO_PACKET, app_op), (place, 0), &result);
    Ok(())
}

fn own(qp: &Qp) -> Source {
    qp.ctx.srq.map_or(Source::Own, Source::Shared)
}

/// Completes work that the device itself added for an SRQ.
pub(crate) fn worked(qp: &Qp, common: &mut Common, work: &TagWork, bytes: u32) {
    if let TagWork::Fetch { place, landing } = *work {
        let which = (CqeOpcode::RESP_SEND, TmAppOp::EXPECTED);
        cqe::tag(qp, common, landing, which, (place, bytes), &[0; TAG_HEADER]);
    }
}

/// Begins a message: returns its buffer or receive. None: the message is complete.
pub(crate) fn arrive(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
) -> Result<Option<Receive>, Refusal> {
    let header = ibv_tmh::read_from_prefix(packet.payload()).ok().map(|(header, _)| header);
    let kind = header.as_ref().map_or(TmhOp::NO_TAG, |header| TmhOp(header.opcode));
    let is_for_tags = matches!(kind, TmhOp::EAGER | TmhOp::RNDV);
    let Some(header) = header.filter(|_| is_for_tags) else {
        return untagged(qp, common, packet, Found::NoTag).map(Some);
    };
    let entry = list(qp, common).and_then(|tags| tags.find(header.tag.get()));
    let Some(entry) = entry else {
        let receive = untagged(qp, common, packet, Found::Unexpected)?;
        if let Some(tags) = list(qp, common) {
            tags.miss();
        }
        return Ok(Some(receive));
    };
    match kind {
        TmhOp::RNDV => rendezvous(qp, common, packet, entry).map(|()| None),
        _ => expected(qp, common, packet, entry, header).map(Some),
    }
}

/// Takes a receive of the SRQ for the whole message.
fn untagged(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    found: Found,
) -> Result<Receive, Refusal> {
    let from = ready(qp, common, packet)?;
    match recv_wqe::take(qp, common, from) {
        Ok(receive) => Ok(Receive { found: Some(found), ..receive }),
        Err((receive, why)) => {
            cqe::receive_failed(qp, common, &receive, why);
            Err(OPERATIONAL)
        }
    }
}

/// Buffer of a tag and its length, if it may be written.
fn buffer(
    qp: &Qp,
    common: &Common,
    entry: &Tagged,
    landing: Landing,
) -> Result<(Vec<Segment>, u64), Refusal> {
    let who = Who { pd: landing.pd, qpn: qp.qpn };
    let list: Vec<_> = entry.buffer.into_iter().collect();
    for &segment in &list {
        common.keys.check(who, segment, Access::LOCAL_WRITE).map_err(|_| OPERATIONAL)?;
    }
    let room = list.iter().map(|segment| segment.len).sum();
    Ok((list, room))
}

/// An eager message takes a tag. A message of several packets completes twice: when it takes the
/// tag, and when its data is in the buffer.
fn expected(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    entry: Tagged,
    header: ibv_tmh,
) -> Result<Receive, Refusal> {
    let landing = recv_wqe::landing(qp, common, own(qp));
    let (list, room) = buffer(qp, common, &entry, landing)?;
    // Too long for the buffer: the queue pair fails before the tag is consumed.
    if (packet.payload().len() - TAG_HEADER) as u64 > room {
        return Err(INVALID);
    }
    take(qp, common, entry.place);
    let header = header_bytes(&header);
    let told = !packet.layout().position.ends();
    if told {
        let which = (CqeOpcode::NO_PACKET, TmAppOp::CONSUMED);
        cqe::tag(qp, common, landing, which, (entry.place, 0), &header);
    }
    let found = Some(Found::Tag { place: entry.place, header, told });
    Ok(Receive { index: 0, list, room, landing, from: own(qp), found })
}

fn take(qp: &Qp, common: &mut Common, place: u16) {
    if let Some(tags) = list(qp, common) {
        tags.take(place);
    }
}

fn header_bytes(header: &ibv_tmh) -> [u8; TAG_HEADER] {
    zerocopy::transmute!(*header)
}

/// Writes a packet of a message that took a tag. The tag header is not written.
pub(crate) fn land(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    receive: Receive,
    offset: u64,
) -> Result<(), Refusal> {
    let skip = if offset == 0 { TAG_HEADER } else { 0 };
    let data = packet.payload().get(skip..).unwrap_or_default();
    // Bytes of the buffer before this packet's.
    let at = offset.saturating_sub(TAG_HEADER as u64);
    let end = at + data.len() as u64;
    let who = Who { pd: receive.landing.pd, qpn: qp.qpn };
    let fits = end <= receive.room;
    if !fits || common.keys.scatter(&*common.dma, who, &receive.list, at, data).is_err() {
        let why = Failure::new(Syndrome::LOCAL_LENGTH_ERR, Vendor::TOO_LONG);
        cqe::receive_failed(qp, common, &receive, why);
        return Err(if fits { OPERATIONAL } else { INVALID });
    }
    if !packet.layout().position.ends() {
        let offset = offset + packet.payload().len() as u64;
        qp.responder.message = Some(Message::Send { receive, offset });
        return Ok(());
    }
    if let Some(ieth) = packet.ieth()
        && common.keys.invalidate(who, Key(ieth.rkey.get())).is_err()
    {
        cqe::receive_failed(qp, common, &receive, Failure::FLUSHED);
        return Err(ACCESS);
    }
    let imm = packet.immdt().map(|imm| imm.imm.get());
    let (kind, imm) = match (imm, packet.ieth()) {
        (Some(imm), _) => (CqeOpcode::RESP_SEND_IMM, imm),
        (_, Some(ieth)) => (CqeOpcode::RESP_SEND_INV, ieth.rkey.get()),
        _ => (CqeOpcode::RESP_SEND, 0),
    };
    let arrival: Arrival = arrival(qp, packet, kind, end as u32, imm);
    cqe::receive_done(qp, common, &receive, arrival, &[]);
    Ok(())
}

/// A rendezvous message takes a tag. If the device can't fetch the announced data, the CQE asks
/// software to do so, and the message itself is in the buffer.
fn rendezvous(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    entry: Tagged,
) -> Result<(), Refusal> {
    let message = packet.payload();
    // Both headers must be in one packet: the smallest MTU has ample room.
    let starts = packet.layout().position.starts() && packet.layout().position.ends();
    let (Some(both), true) = (message.first_chunk::<{ 2 * TAG_HEADER }>(), starts) else {
        return Err(INVALID);
    };
    let (tmh, rvh) = both.split_at(TAG_HEADER);
    let (Ok(mut tmh), Ok(rvh)) = (ibv_tmh::read_from_bytes(tmh), ibv_rvh::read_from_bytes(rvh))
    else {
        return Err(INVALID);
    };
    let landing = recv_wqe::landing(qp, common, own(qp));
    let (list, room) = buffer(qp, common, &entry, landing)?;
    let offloads = qp.ctx.srq.and_then(|srqn| common.srqs.get(srqn).ok()?.ctx.tags);
    let fetches = offloads.is_some_and(|tags| tags.rendezvous)
        && qp.state == QpState::Rts
        && qp.attrs.max_rd_atomic != 0
        && qp.requester.has_room()
        && rvh.len.get() <= common.config.max_msg_size
        && u64::from(rvh.len.get()) <= room;
    let header = header_bytes(&tmh);
    if !fetches {
        let who = Who { pd: landing.pd, qpn: qp.qpn };
        if message.len() as u64 > room {
            return Err(INVALID);
        }
        common.keys.scatter(&*common.dma, who, &list, 0, message).map_err(|_| OPERATIONAL)?;
        take(qp, common, entry.place);
        let which = (CqeOpcode::RESP_SEND, TmAppOp::CONSUMED_MSG_SW_RDNV);
        cqe::tag(qp, common, landing, which, (entry.place, message.len() as u32), &header);
        return Ok(());
    }
    take(qp, common, entry.place);
    let which = (CqeOpcode::NO_PACKET, TmAppOp::CONSUMED);
    cqe::tag(qp, common, landing, which, (entry.place, 0), &header);
    let op = Op::Read { va: rvh.va.get(), rkey: Key(rvh.rkey.get()) };
    let fetch = TagWork::Fetch { place: entry.place, landing };
    qp.enqueue(
        own_request(op, rvh.len.get(), Pieces::from(list), fetch),
        common.config.read_window,
    );
    tmh.opcode = TmhOp::FIN.0;
    let fin = [tmh.as_bytes(), rvh.as_bytes()].concat();
    let mut pieces = Pieces::default();
    pieces.push_inline(&fin);
    let fin = own_request(Op::Send, fin.len() as u32, pieces, TagWork::Fin);
    qp.enqueue(fin, common.config.read_window);
    Ok(())
}

/// A request without a WQE. It waits for READs before it.
fn own_request(op: Op, len: u32, pieces: Pieces, work: TagWork) -> Box<Request> {
    let wqe = Wqe {
        opcode: if op == Op::Send { Opcode::SEND } else { Opcode::RDMA_READ },
        op,
        fence: true,
        len,
        tags: Some(Box::new(work)),
        pieces,
        ..Wqe::default()
    };
    Box::new(Request { wqe, ..Request::default() })
}
