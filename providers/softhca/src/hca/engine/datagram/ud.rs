//! Datagrams at a UD QP (IBTA vol 1, 9.8.3): one packet, one message, and 40 bytes about its
//! route in front of it.

use uverbs_mlx5_prm::cqe::{CqeOpcode, FlagsRqpn};
use uverbs_mlx5_prm::syndrome::Syndrome;

use crate::hca::engine::completion::cqe;
use crate::hca::engine::completion::cqe::Arrival;
use crate::hca::engine::scheduler::page_faults;
use crate::hca::engine::scheduler::page_faults::Wanted;
use crate::hca::engine::wqe::recv_wqe;
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::common::Common;
use crate::hca::state::keys::{KeyFault, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::Source;
use crate::wire::{Address, Frame, Packet, Route, Transport};
use uverbs_front::backend::context::{LinkLayer, QpState};

/// Bytes in front of each message, whether there was a GRH or not (IBTA 11.4.1.2).
pub(crate) const GRH_BYTES: usize = 40;
/// GRH "next header": an InfiniBand transport header (IBTA 8.3); UDP in its place on RoCEv2 (annex
/// A17).
const NEXT_IBA: u8 = 0x1b;
const NEXT_UDP: u8 = 17;
/// UDP and InfiniBand headers between the IP header and the bytes that a frame holds.
const UDP_BYTES: usize = 8;
/// Kind of L3 header in bits 25:24 of `flags_rqpn`, on Ethernet (Linux
/// drivers/infiniband/hw/mlx5/mlx5_ib.h, `MLX5_CQE_ROCE_L3_HEADER_TYPE_*`).
const L3_IPV6: u8 = 1;
const L3_IPV4: u8 = 2;

/// Takes a datagram. False if it is dropped silently (IBTA 9.8.3.1).
pub(crate) fn receive(
    qp: &mut Qp,
    common: &mut Common,
    packet: &Packet<'_>,
    frame: &Frame,
) -> bool {
    if !qp.receives() || packet.layout().transport != Transport::Ud {
        return false;
    }
    let Some(deth) = packet.deth() else { return false };
    if deth.qkey.get() != qp.attrs.qkey {
        common.stats.bad_qkeys += 1;
        return false;
    }
    if qp.responder.stop.is_some() {
        return page_faults::keep(qp, frame);
    }
    let from = qp.ctx.srq.map_or(Source::Own, Source::Shared);
    if qp.responder.spare.is_none() && recv_wqe::posted(qp, common, from) == 0 {
        qp.counts(&mut common.counters).out_of_buffer += 1;
        return false;
    }
    let spare = qp.responder.spare.take();
    let receive = match spare.map_or_else(|| recv_wqe::take(qp, common, from), Ok) {
        Ok(receive) => receive,
        Err((receive, why)) => {
            cqe::receive_failed(qp, common, &receive, why);
            qp.state = QpState::Err;
            return true;
        }
    };
    let data = packet.payload();
    let bytes = GRH_BYTES + data.len();
    let (grh, flags) = route(frame, common.config.link);
    let fits = bytes as u64 <= receive.room;
    let who = Who { pd: receive.landing.pd, qpn: qp.qpn };
    let scattered = if fits {
        let Common { keys, dma, .. } = &*common;
        keys.scatter(&**dma, who, &receive.list, 0, &grh)
            .and_then(|()| keys.scatter(&**dma, who, &receive.list, GRH_BYTES as u64, data))
    } else {
        Ok(())
    };
    if scattered == Err(KeyFault::Absent) {
        let wanted = Wanted::receive(&receive, data.len());
        if page_faults::stop(qp, common, packet.psn(), wanted) {
            qp.responder.spare = Some(receive);
            return page_faults::keep(qp, frame);
        }
    }
    let scattered = match fits {
        true => scattered.map_err(|fault| Failure::new(Syndrome::LOCAL_PROT_ERR, fault.vendor())),
        false => Err(Failure::new(Syndrome::LOCAL_LENGTH_ERR, Vendor::TOO_LONG)),
    };
    if let Err(why) = scattered {
        cqe::receive_failed(qp, common, &receive, why);
        qp.state = QpState::Err;
        return true;
    }
    let (kind, imm) = match packet.immdt() {
        Some(imm) => (CqeOpcode::RESP_SEND_IMM, imm.imm.get()),
        // Without immediate data the field is the P_Key (mlx5dv.h, `imm_inval_pkey`).
        None => (CqeOpcode::RESP_SEND, packet.bth().pkey.get().into()),
    };
    let arrival = Arrival {
        kind,
        bytes: bytes as u32,
        imm,
        solicited: packet.bth().is_solicited(),
        from: flags.with_rqpn(deth.src_qp.get()),
        slid: frame.src.lid,
        tag: frame.route.tag,
    };
    cqe::receive_done(qp, common, &receive, arrival, &[]);
    true
}

/// The 40 bytes in front of a message, and the CQE's `flags_rqpn`.
fn route(frame: &Frame, link: LinkLayer) -> ([u8; GRH_BYTES], FlagsRqpn) {
    let Frame { src, dst, route, .. } = *frame;
    match link {
        LinkLayer::Ethernet => match (ipv4(src), ipv4(dst)) {
            (Some(from), Some(to)) => {
                let flags = FlagsRqpn::ZERO.with_grh(1).with_sl(L3_IPV4);
                (ipv4_header(from, to, route, frame.bytes.len()), flags)
            }
            _ => {
                let length = frame.bytes.len() + UDP_BYTES;
                let flags = FlagsRqpn::ZERO.with_grh(1).with_sl(L3_IPV6);
                (global_header(src, dst, route, length, NEXT_UDP), flags)
            }
        },
        LinkLayer::InfiniBand if src.gid != [0; 16] && dst.gid != [0; 16] => {
            let flags = FlagsRqpn::ZERO.with_grh(1);
            (global_header(src, dst, route, frame.bytes.len(), NEXT_IBA), flags)
        }
        LinkLayer::InfiniBand => ([0; GRH_BYTES], FlagsRqpn::ZERO),
    }
}

/// IPv4 address of an IPv4-mapped GID.
fn ipv4(address: Address) -> Option<[u8; 4]> {
    let (prefix, last) = address.gid.split_last_chunk::<4>()?;
    (prefix == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).then_some(*last)
}

/// The GRH, which has the layout of an IPv6 header (IBTA 8.3).
fn global_header(
    src: Address,
    dst: Address,
    route: Route,
    length: usize,
    next: u8,
) -> [u8; GRH_BYTES] {
    let mut header = [0; GRH_BYTES];
    let first = 6 << 28 | u32::from(route.traffic_class) << 20 | route.flow_label;
    header[..4].copy_from_slice(&first.to_be_bytes());
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[6] = next;
    header[7] = route.hop_limit;
    header[8..24].copy_from_slice(&src.gid);
    header[24..40].copy_from_slice(&dst.gid);
    header
}

/// An IPv4 header in the last 20 of the 40 bytes (annex A17.4.5.2).
fn ipv4_header(src: [u8; 4], dst: [u8; 4], route: Route, packet: usize) -> [u8; GRH_BYTES] {
    const AT: usize = 20;
    let mut header = [0; GRH_BYTES];
    let length = (AT + UDP_BYTES + packet) as u16;
    header[AT] = 0x45;
    header[AT + 1] = route.traffic_class;
    header[AT + 2..AT + 4].copy_from_slice(&length.to_be_bytes());
    header[AT + 4..AT + 6].copy_from_slice(&route.id.to_be_bytes());
    header[AT + 6] = 0x40; // don't fragment
    header[AT + 8] = route.hop_limit;
    header[AT + 9] = NEXT_UDP;
    header[AT + 12..AT + 16].copy_from_slice(&src);
    header[AT + 16..].copy_from_slice(&dst);
    let sum = checksum(&header[AT..]);
    header[AT + 10..AT + 12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let (words, _) = bytes.as_chunks::<2>();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded + (folded >> 16)) as u16)
}
