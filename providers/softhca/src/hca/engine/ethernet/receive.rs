//! Writes a frame into a receive WQE, and its CQE.

use uverbs_mlx5_prm::cqe::{
    CqeOpcode, HdsIpExt, L4HdrType, MLX5_CQE_L3_HDR_TYPE_IPV4, MLX5_CQE_L3_HDR_TYPE_IPV6,
    MLX5_CQE_L3_HDR_TYPE_NONE, OpOwn, SopDropQpn,
};
use uverbs_mlx5_prm::syndrome::Syndrome;

use crate::hca::engine::completion::cqe;
use crate::hca::engine::wqe::recv_wqe;
use crate::hca::ethernet::headers::{Headers, Ip, TAG};
use crate::hca::ethernet::route::Delivery;
use crate::hca::ethernet::{ADDRESSES, checksum};
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::common::Common;
use crate::hca::state::keys::Who;
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::Source;
use uverbs_front::backend::context::QpState;

/// Kind of L4 header (Linux `include/linux/mlx5/device.h`, `CQE_L4_HDR_TYPE_*`).
mod l4 {
    pub(super) const NONE: u8 = 0;
    pub(super) const TCP_NO_ACK: u8 = 1;
    pub(super) const UDP: u8 = 2;
    pub(super) const TCP_ACK_NO_DATA: u8 = 3;
    pub(super) const TCP_ACK_AND_DATA: u8 = 4;
}
/// The ACK flag of TCP.
const ACK: u16 = 0x10;

/// Puts a frame into the next receive, or drops it if no receive is posted.
pub(crate) fn receive(
    qp: &mut Qp,
    common: &mut Common,
    frame: &[u8],
    headers: &Headers,
    copy: &Delivery,
    strips_vlan: bool,
) {
    if !qp.receives() {
        common.stats.dropped += 1;
        return;
    }
    let from = qp.ctx.srq.map_or(Source::Own, Source::Shared);
    if recv_wqe::posted(qp, common, from) == 0 {
        common.stats.out_of_buffer += 1;
        qp.counts(&mut common.counters).out_of_buffer += 1;
        return;
    }
    let receive = match recv_wqe::take(qp, common, from) {
        Ok(receive) => receive,
        Err((receive, why)) => {
            cqe::receive_failed(qp, common, &receive, why);
            qp.state = QpState::Err;
            return;
        }
    };
    let stripped = headers.tags[0].filter(|tag| strips_vlan && !tag.service);
    let whole;
    let data = match stripped {
        Some(_) => {
            whole = [&frame[..ADDRESSES], &frame[ADDRESSES + TAG..]].concat();
            &whole[..]
        }
        None => frame,
    };
    let scattered = if data.len() as u64 <= receive.room {
        let Common { keys, dma, .. } = &*common;
        let who = Who { pd: receive.landing.pd, qpn: qp.qpn };
        let done = keys.scatter(&**dma, who, &receive.list, 0, data);
        done.map_err(|fault| Failure::new(Syndrome::LOCAL_PROT_ERR, fault.vendor()))
    } else {
        Err(Failure::new(Syndrome::LOCAL_LENGTH_ERR, Vendor::TOO_LONG))
    };
    if let Err(why) = scattered {
        cqe::receive_failed(qp, common, &receive, why);
        qp.state = QpState::Err;
        return;
    }
    common.stats.rx_frames += 1;
    let mut cqe = cqe::blank(receive.landing.uidx, common);
    cqe.byte_cnt.set(data.len() as u32);
    cqe.wqe_counter.set(receive.index);
    // The QPN field carries the flow tag (Linux `en_tc.h`, `MLX5E_TC_FLOW_ID_MASK`; rdma-core cq.c,
    // `mlx5_cq_read_flow_tag`).
    cqe.sop_drop_qpn.set(SopDropQpn::ZERO.with_qpn(copy.tag).0);
    cqe.op_own = OpOwn::ZERO.with_opcode(CqeOpcode::RESP_SEND.0).0;
    // `rss_hash_result` and `rss_hash_type` of device.h.
    cqe.rsvd4[8..12].copy_from_slice(&copy.hash.value.to_be_bytes());
    cqe.rsvd4[12] = copy.hash.kind;
    let verdict = checksum::verify(frame, headers);
    let checks = HdsIpExt::ZERO.with_l2_ok(true).with_l3_ok(verdict.l3).with_l4_ok(verdict.l4);
    cqe.hds_ip_ext = checks.0;
    let kinds = L4HdrType::ZERO.with_cv(stripped.is_some()).with_l3_hdr_type(l3_kind(headers));
    cqe.l4_hdr_type_etc = kinds.with_l4_hdr_type(l4_kind(headers.ip.as_ref())).0;
    if let Some(tag) = stripped {
        cqe.vlan_info.set(tag.tci);
    }
    if let Some(ip) = &headers.ip {
        // `check_sum`: of the IP header and its payload, without padding (Linux en_rx.c,
        // `mlx5e_handle_csum`).
        let sum = checksum::sum(frame.get(ip.at..ip.end).unwrap_or_default());
        cqe.rsvd20[2..].copy_from_slice(&sum.to_be_bytes());
    }
    cqe::push(common, receive.landing.cqn, cqe::plain(&cqe), false);
}

fn l3_kind(headers: &Headers) -> u8 {
    match &headers.ip {
        None => MLX5_CQE_L3_HDR_TYPE_NONE,
        Some(ip) if ip.v6 => MLX5_CQE_L3_HDR_TYPE_IPV6,
        Some(_) => MLX5_CQE_L3_HDR_TYPE_IPV4,
    }
}

fn l4_kind(ip: Option<&Ip>) -> u8 {
    let Some((ip, found)) = ip.and_then(|ip| Some((ip, ip.l4?))) else { return l4::NONE };
    let data = ip.end > ip.payload + found.len;
    match found.tcp {
        false => l4::UDP,
        true if found.flags & ACK == 0 => l4::TCP_NO_ACK,
        true if data => l4::TCP_ACK_AND_DATA,
        true => l4::TCP_ACK_NO_DATA,
    }
}
