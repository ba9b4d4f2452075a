//! Completions: the CQE of each outcome (PRM, "Completion queue entry";
//! mlx5dv.h, `mlx5_cqe64` and `mlx5_err_cqe`).

use uverbs_mlx5_prm::cqe::{
    CqeOpcode, FlagsRqpn, L4HdrType, MLX5_INLINE_SCATTER_32, MLX5_INLINE_SCATTER_64, OpOwn,
    SopDropQpn, mlx5_cqe64, mlx5_err_cqe,
};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::syndrome::Syndrome;
use uverbs_mlx5_prm::tag::{MLX5_CQE_APP_TAG_MATCHING, TmAppOp, ibv_tmh};
use zerocopy::{FromZeros, IntoBytes, transmute, transmute_ref};

use crate::hca::failure::Failure;
use crate::hca::state::common::Common;
use crate::hca::state::cq::{CQE_LEN, Cqe};
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::{Found, Landing, Receive, Source};
use uverbs_front::backend::number::Cqn;

/// Bytes of a tag header at the start of a message, and of the result that a CQE has there.
pub(crate) const TAG_HEADER: usize = size_of::<ibv_tmh>();

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) kind: CqeOpcode,
    pub(crate) bytes: u32,
    /// Immediate data or invalidated key, 0 without.
    pub(crate) imm: u32,
    pub(crate) solicited: bool,
    /// Source QPN and L3 header kind, for the CQE.
    pub(crate) from: FlagsRqpn,
    /// LID of the sender; 0 on Ethernet.
    pub(crate) slid: u16,
    /// VLAN tag of a datagram; 0 without one.
    pub(crate) tag: u16,
}

/// Completes a send WQE with success. `bytes` is used for READs and atomics only; `data` is their
/// response, if it is scattered to the CQE.
pub(crate) fn send_done(
    qp: &Qp,
    common: &mut Common,
    (index, opcode): (u16, Opcode),
    bytes: u32,
    data: &[u8],
) {
    let mut cqe = blank(user_index(qp), common);
    cqe.byte_cnt.set(bytes);
    cqe.sop_drop_qpn.set(SopDropQpn::ZERO.with_sop(opcode.0).with_qpn(qp.qpn.0).0);
    cqe.wqe_counter.set(index);
    cqe.op_own = OpOwn::ZERO.with_opcode(CqeOpcode::REQ.0).0;
    push_with(common, qp.ctx.send_cq, cqe, data, false);
}

/// Writes a CQE that carries data. In a slot of 64 bytes the data is half of the CQE, in one of 128
/// bytes it lies before the CQE (mlx5dv.h, `MLX5_INLINE_SCATTER_*`; rdma-core `cq.c`,
/// `mlx5_copy_to_recv_wqe` and its callers). The caller limited the data to
/// `CqTable::room_for_data`.
fn push_with(common: &mut Common, cqn: Cqn, mut cqe: mlx5_cqe64, data: &[u8], wakes: bool) {
    if data.is_empty() {
        return push(common, cqn, plain(&cqe), wakes);
    }
    if data.len() <= CQE_LEN / 2 {
        cqe.op_own |= MLX5_INLINE_SCATTER_32;
        cqe.as_mut_bytes()[..data.len()].copy_from_slice(data);
        return push(common, cqn, plain(&cqe), wakes);
    }
    cqe.op_own |= MLX5_INLINE_SCATTER_64;
    let mut lead = [0; CQE_LEN];
    lead[..data.len()].copy_from_slice(data);
    push(common, cqn, Cqe { lead: Some(&lead), ..plain(&cqe) }, wakes);
}

/// A CQE without data.
pub(crate) fn plain(cqe: &mlx5_cqe64) -> Cqe<'_> {
    let bytes: &[u8; CQE_LEN] = transmute_ref!(cqe);
    bytes.into()
}

/// A send WQE that failed.
pub(crate) fn send_failed(qp: &Qp, common: &mut Common, index: u16, opcode: Opcode, why: Failure) {
    let counts = qp.counts(&mut common.counters);
    counts.req_cqe_error += 1;
    match why.syndrome {
        Syndrome::WR_FLUSH_ERR => counts.req_cqe_flush_error += 1,
        Syndrome::REMOTE_INVAL_REQ_ERR => counts.req_remote_invalid_request += 1,
        Syndrome::REMOTE_ACCESS_ERR => counts.req_remote_access_errors += 1,
        _ => {}
    }
    let sop = SopDropQpn::ZERO.with_sop(opcode.0).with_qpn(qp.qpn.0);
    failed(common, (qp.ctx.send_cq.0, user_index(qp)), (CqeOpcode::REQ_ERR, sop, index), why);
}

/// A receive WQE that took a message. `data` is the part of the message that goes into the CQE.
pub(crate) fn receive_done(
    qp: &Qp,
    common: &mut Common,
    receive: &Receive,
    arrival: Arrival,
    data: &[u8],
) {
    common.completed_receive = true;
    let mut cqe = blank(receive.landing.uidx, common);
    cqe.byte_cnt.set(arrival.bytes);
    cqe.imm_inval_pkey.set(arrival.imm);
    cqe.flags_rqpn.set(arrival.from.0);
    cqe.slid.set(arrival.slid);
    if arrival.tag != 0 {
        cqe.l4_hdr_type_etc = L4HdrType::ZERO.with_cv(true).0;
        cqe.vlan_info.set(arrival.tag);
    }
    cqe.sop_drop_qpn.set(SopDropQpn::ZERO.with_qpn(qp.qpn.0).0);
    cqe.wqe_counter.set(receive.index);
    let kind = OpOwn::ZERO.with_opcode(arrival.kind.0).with_se(arrival.solicited);
    cqe.op_own = kind.0;
    if let Some(found) = receive.found {
        mark(&mut cqe, found);
    }
    let plain_shared = matches!(receive.from, Source::Shared(_)) && receive.found.is_none();
    if common.config.repeats_receives && plain_shared {
        push_with(common, receive.landing.cqn, cqe, data, arrival.solicited);
    }
    push_with(common, receive.landing.cqn, cqe, data, arrival.solicited);
}

/// A receive WQE that failed.
pub(crate) fn receive_failed(qp: &Qp, common: &mut Common, receive: &Receive, why: Failure) {
    if let Some(Found::Tag { place, .. }) = receive.found {
        return tag_canceled(qp, common, place, receive.landing);
    }
    let counts = qp.counts(&mut common.counters);
    counts.resp_cqe_error += 1;
    match why.syndrome {
        Syndrome::WR_FLUSH_ERR => counts.resp_cqe_flush_error += 1,
        Syndrome::LOCAL_LENGTH_ERR => counts.resp_local_length_error += 1,
        _ => {}
    }
    let sop = SopDropQpn::ZERO.with_qpn(qp.qpn.0);
    let Landing { cqn, uidx, .. } = receive.landing;
    failed(common, (cqn.0, uidx), (CqeOpcode::RESP_ERR, sop, receive.index), why);
}

/// A completion of a tag-matching SRQ that belongs to no receive of its ring. Its first bytes are
/// `result`.
pub(crate) fn tag(
    qp: &Qp,
    common: &mut Common,
    landing: Landing,
    (kind, app_op): (CqeOpcode, TmAppOp),
    (place, bytes): (u16, u32),
    result: &[u8; TAG_HEADER],
) {
    let mut cqe = blank(landing.uidx, common);
    cqe.app = MLX5_CQE_APP_TAG_MATCHING;
    cqe.app_op = app_op.0;
    cqe.app_info.set(place);
    cqe.byte_cnt.set(bytes);
    cqe.sop_drop_qpn.set(SopDropQpn::ZERO.with_qpn(qp.qpn.0).0);
    cqe.op_own = OpOwn::ZERO.with_opcode(kind.0).0;
    lead(&mut cqe, result);
    push(common, landing.cqn, plain(&cqe), false);
}

/// Writes a tag header or a result to the start of a CQE.
fn lead(cqe: &mut mlx5_cqe64, bytes: &[u8; TAG_HEADER]) {
    cqe.as_mut_bytes()[..TAG_HEADER].copy_from_slice(bytes);
}

/// Sets the tag-matching fields of a message's CQE.
fn mark(cqe: &mut mlx5_cqe64, found: Found) {
    cqe.app = MLX5_CQE_APP_TAG_MATCHING;
    match found {
        Found::NoTag => cqe.app_op = TmAppOp::NO_TAG.0,
        Found::Unexpected => cqe.app_op = TmAppOp::UNEXPECTED.0,
        Found::Tag { place, told: true, .. } => {
            cqe.app_op = TmAppOp::EXPECTED.0;
            cqe.app_info.set(place);
        }
        Found::Tag { place, header, told: false } => {
            cqe.app_op = TmAppOp::CONSUMED_MSG.0;
            cqe.app_info.set(place);
            lead(cqe, &header);
        }
    }
}

/// Completes a tag whose message ended before its data was in the buffer.
pub(crate) fn tag_canceled(qp: &Qp, common: &mut Common, place: u16, landing: Landing) {
    let which = (CqeOpcode::RESP_SEND, TmAppOp::MSG_COMPLETION_CANCELED);
    tag(qp, common, landing, which, (place, 0), &[0; TAG_HEADER]);
}

/// The RESIZE_CQ completion: last CQE in the old ring of a CQ.
pub(crate) fn resized(common: &mut Common, cqn: Cqn) {
    let mut cqe = mlx5_cqe64::new_zeroed();
    cqe.op_own = OpOwn::ZERO.with_opcode(CqeOpcode::RESIZE_CQ.0).0;
    push(common, cqn, plain(&cqe), false);
}

fn failed(
    common: &mut Common,
    (cqn, uidx): (u32, u32),
    (kind, sop, index): (CqeOpcode, SopDropQpn, u16),
    why: Failure,
) {
    let mut cqe = mlx5_err_cqe::new_zeroed();
    cqe.srqn.set(uidx);
    cqe.vendor_err_synd = why.vendor.0;
    cqe.syndrome = why.syndrome.0;
    cqe.s_wqe_opcode_qpn.set(sop.0);
    cqe.wqe_counter.set(index);
    cqe.op_own = OpOwn::ZERO.with_opcode(kind.0).0;
    let cqe: [u8; CQE_LEN] = transmute!(cqe);
    push(common, Cqn(cqn), Cqe::from(&cqe), true);
}

pub(crate) fn blank(uidx: u32, common: &Common) -> mlx5_cqe64 {
    let mut cqe = mlx5_cqe64::new_zeroed();
    cqe.srqn_uidx.set(uidx);
    cqe.timestamp.set(match common.config.real_time {
        // A driver converts the timestamp into time of day by the internal timer, so both use one
        // clock.
        None => common.now.as_nanos() as u64,
        Some(began) => {
            let time = began + common.now;
            time.as_secs() << 32 | u64::from(time.subsec_nanos())
        }
    });
    cqe
}

/// User index of the CQE. In version 0 the field is the SRQ number, which a send lacks.
fn user_index(qp: &Qp) -> u32 {
    if qp.ctx.cqe_version == 1 { qp.ctx.user_index & 0x00ff_ffff } else { 0 }
}

pub(crate) fn push(common: &mut Common, cqn: Cqn, cqe: Cqe<'_>, wakes: bool) {
    let Common { dma, cqs, events, stats, tap, now, .. } = common;
    tap.cqe(*now, cqn, cqe.bytes);
    cqs.push(&**dma, cqn, cqe, wakes, events, stats);
}
