//! Takes receive WQEs from a QP's own ring, or from an SRQ.

use uverbs_mlx5_prm::data::MLX5_INVALID_LKEY;
use uverbs_mlx5_prm::syndrome::Syndrome;
use uverbs_mlx5_prm::wqe::{RecvKind, RecvView};

use crate::hca::dma::RegionAccess;
use crate::hca::engine::wqe::doorbell_records::posted_receives;
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::common::Common;
use crate::hca::state::keys::Segment;
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::{Landing, Receive, Source};
use crate::wire::Packet;
use uverbs_front::backend::context::{RqContext, Service, SrqContext};
use uverbs_front::backend::number::{Key, Srqn};
use uverbs_front::backend::region::Region;

/// Bytes of the longest receive WQE (qp.rs limits the stride).
const RECV_MAX: usize = 1 << 10;
/// Bytes of most receive WQEs.
const SHORT: usize = 128;

/// Source of the receive for this packet. None if the packet names an SRQ that the QP may not use
/// (IBTA annex A14 requires one XRC domain for both).
#[inline]
pub(crate) fn source(qp: &Qp, common: &Common, packet: &Packet<'_>) -> Option<Source> {
    if qp.ctx.service != Service::Xrc {
        return Some(own(qp));
    }
    let srqn = packet.xrceth()?.srq.get();
    let srq = common.srqs.get(Srqn(srqn)).ok()?;
    (srq.ctx.xrc.is_some_and(|xrc| xrc.xrcd == qp.ctx.xrcd)).then_some(Source::Shared(Srqn(srqn)))
}

fn own(qp: &Qp) -> Source {
    qp.ctx.srq.map_or(Source::Own, Source::Shared)
}

/// Protection domain, CQ and user index of a receive. An XRC target QP takes them from the SRQ.
#[inline]
pub(crate) fn landing(qp: &Qp, common: &Common, from: Source) -> Landing {
    let mine = Landing { pd: qp.ctx.pd, cqn: qp.ctx.recv_cq, uidx: 0 };
    let v1 = qp.ctx.cqe_version == 1;
    let user_index = qp.ctx.user_index & 0x00ff_ffff;
    match from {
        Source::Own => Landing { uidx: if v1 { user_index } else { 0 }, ..mine },
        Source::Shared(srqn) => match common.srqs.get(srqn).map(|srq| &srq.ctx) {
            Ok(SrqContext { pd, tags: Some(tags), .. }) => {
                let uidx = if tags.cqe_version == 1 { tags.user_index } else { srqn.0 };
                Landing { pd: *pd, cqn: tags.cq, uidx: uidx & 0x00ff_ffff }
            }
            Ok(srq) => match srq.xrc {
                Some(xrc) => {
                    let uidx = if xrc.cqe_version == 1 { xrc.user_index } else { srqn.0 };
                    Landing { pd: srq.pd, cqn: xrc.cq, uidx: uidx & 0x00ff_ffff }
                }
                None => Landing { pd: srq.pd, uidx: if v1 { user_index } else { srqn.0 }, ..mine },
            },
            Err(_) => mine,
        },
    }
}

/// Number of receives posted and not taken.
#[inline]
pub(crate) fn posted(qp: &Qp, common: &mut Common, from: Source) -> u16 {
    match from {
        Source::Own => posted_receives(qp, common),
        Source::Shared(srqn) => {
            let Common { srqs, dma, stats, .. } = common;
            srqs.get(srqn).map_or(0, |srq| srq.posted(&**dma, stats))
        }
    }
}

/// Takes the next receive WQE; the caller checked that one is posted. An error carries the WQE,
/// which is consumed in either case. Keys are looked up when data is scattered to them, so a short
/// message succeeds if the rest of the list is invalid (Linux `rxe_resp.c`, `send_data_in`).
#[inline]
pub(crate) fn take(
    qp: &mut Qp,
    common: &mut Common,
    from: Source,
) -> Result<Receive, (Receive, Failure)> {
    let landing = landing(qp, common, from);
    let mut list = common.spare_lists.take();
    list.clear();
    // Most WQEs are short, and clearing room for the longest takes longer than reading them.
    let (mut short, mut long) = ([0; SHORT], None);
    let bytes = match stride(qp, common, from) {
        0..=SHORT => &mut short[..],
        _ => &mut long.insert([0; RECV_MAX])[..],
    };
    let (index, read) = fetch(qp, common, from, bytes);
    let fail = |vendor| {
        let receive = Receive { index, list: Vec::new(), room: 0, landing, from, found: None };
        (receive, Failure::new(Syndrome::LOCAL_PROT_ERR, vendor))
    };
    let (stride, kind) = read.ok_or_else(|| fail(Vendor::UNREADABLE))?;
    common.tap.receive(common.now, qp.qpn, (index, kind == RecvKind::Srq), stride);
    let view = RecvView::parse(stride, kind).map_err(|_| fail(Vendor::SEGMENTS))?;
    // The list ends at the first invalid key, or with the stride (rdma-core qp.c, `mlx5_post_recv`,
    // writes the terminator only if there is room).
    list.extend(
        (view.data().map(Segment::from))
            .take_while(|segment| segment.key != Key(MLX5_INVALID_LKEY)),
    );
    let room = list.iter().map(|segment| segment.len).sum();
    Ok(Receive { index, list, room, landing, from, found: None })
}

/// True if a page fault ends a receive that was just taken
/// ([`aborts_shared_receives`](crate::hca::HcaConfig::aborts_shared_receives)).
pub(crate) fn faults(common: &mut Common, receive: &Receive) -> bool {
    if !common.config.aborts_shared_receives || receive.from == Source::Own {
        return false;
    }
    let pages = |segment: &Segment| {
        let found = common.keys.key_at(segment.key);
        found.is_ok_and(|key| matches!(key.region, Region::OnDemand { .. }))
    };
    if !receive.list.iter().any(pages) {
        return false;
    }
    common.aborted = !common.aborted;
    common.aborted
}

/// Consumes the next receive WQE without its list: for RDMA WRITE with immediate (IBTA 9.7.5.1.1),
/// or a flush.
pub(crate) fn consume(qp: &mut Qp, common: &mut Common, from: Source) -> Receive {
    let landing = landing(qp, common, from);
    let index = match from {
        // A linked list has to be read to find the next WQE.
        Source::Shared(_) => fetch(qp, common, from, &mut [0; RECV_MAX]).0,
        Source::Own => step(qp, common),
    };
    Receive { index, list: Vec::new(), room: 0, landing, from, found: None }
}

/// Bytes of a receive WQE in a ring; 0 without a ring.
#[inline]
fn stride(qp: &Qp, common: &Common, from: Source) -> usize {
    let shift = match from {
        Source::Own => qp.ctx.rq.as_ref().map(|rq| rq.stride_shift),
        Source::Shared(srqn) => common.srqs.get(srqn).ok().map(|srq| srq.ctx.stride_shift),
    };
    shift.map_or(0, |shift| 1 << shift)
}

fn step(qp: &mut Qp, common: &mut Common) -> u16 {
    let index = qp.rq_taken;
    qp.rq_taken = index.wrapping_add(1);
    common.stats.recv_wqes += 1;
    index
}

/// Index of the WQE, and its bytes if they could be read.
#[inline]
fn fetch<'a>(
    qp: &mut Qp,
    common: &mut Common,
    from: Source,
    bytes: &'a mut [u8],
) -> (u16, Option<(&'a [u8], RecvKind)>) {
    match from {
        Source::Own => {
            let index = step(qp, common);
            let Some(RqContext { region, log_entries, stride_shift }) = &qp.ctx.rq else {
                return (index, None);
            };
            let stride = &mut bytes[..1 << stride_shift];
            let slot = u64::from(index) & ((1 << log_entries) - 1);
            let read = region.read(&*common.dma, slot * stride.len() as u64, stride);
            (index, read.ok().map(|()| (&*stride, RecvKind::Rq)))
        }
        Source::Shared(srqn) => {
            let Common { srqs, dma, events, stats, .. } = common;
            let Ok(srq) = srqs.get_mut(srqn) else { return (0, None) };
            stats.recv_wqes += 1;
            let stride = &mut bytes[..1 << srq.ctx.stride_shift];
            match srq.take(&**dma, stride, events, stats) {
                Ok(slot) => (slot, Some((stride, RecvKind::Srq))),
                Err((slot, _)) => (slot, None),
            }
        }
    }
}
