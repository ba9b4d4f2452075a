//! Where messages land: in a QP's own receive ring, or in a shared one.

use super::complete::Failure;
use super::context::{Access, RqContext, Service};
use super::doorbell::posted_receives;
use super::mkey::{Segment, Who};
use super::qp::Qp;
use super::shared::Shared;
use crate::wire::Packet;
use uverbs_mlx5_prm::data::{MLX5_INVALID_LKEY, mlx5_wqe_data_seg};
use uverbs_mlx5_prm::syndrome::Syndrome;
use uverbs_mlx5_prm::wqe::{RecvKind, RecvView};

/// Bytes of the longest receive WQE (qp.rs limits the stride).
const RECV_MAX: usize = 1 << 10;
/// Vendor syndromes of receive WQEs refused: which check it was.
mod vendor {
    pub(super) const UNREADABLE: u8 = 0x60;
    pub(super) const SEGMENTS: u8 = 0x64;
}

/// The ring that a message takes its receive from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Own,
    Shared(u32),
}

/// Who owns the memory that a message goes to, and where its completion is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landing {
    pub(super) pd: u32,
    pub(super) cqn: u32,
    /// For `srqn_uidx` of the CQE: the SRQ number in version 0, a user index in version 1.
    pub(super) uidx: u32,
}

/// A receive WQE taken from its ring.
#[derive(Debug)]
pub(super) struct Receive {
    /// Its counter modulo 2^16, or its slot in a shared ring: what `wqe_counter` says.
    pub(super) index: u16,
    pub(super) list: Vec<Segment>,
    /// Bytes that the list has room for.
    pub(super) room: u64,
    pub(super) landing: Landing,
}

/// The ring for this packet; None if it names an SRQ that the QP may not use (IBTA annex A14: same XRC domain).
pub(super) fn source(qp: &Qp, shared: &Shared, packet: &Packet<'_>) -> Option<Source> {
    if qp.ctx.service != Service::Xrc {
        return Some(own(qp));
    }
    let srqn = packet.xrceth()?.srq.get();
    let srq = shared.srqs.get(srqn).ok()?;
    (srq.ctx.xrc.is_some_and(|xrc| xrc.xrcd == qp.ctx.xrcd)).then_some(Source::Shared(srqn))
}

fn own(qp: &Qp) -> Source {
    qp.ctx.srq.map_or(Source::Own, Source::Shared)
}

/// Domain, CQ and name of what lands there. An XRC target QP has none of its own: those of the SRQ count.
pub(super) fn landing(qp: &Qp, shared: &Shared, from: Source) -> Landing {
    let mine = Landing { pd: qp.ctx.pd, cqn: qp.ctx.recv_cq, uidx: 0 };
    let v1 = qp.ctx.cqe_version == 1;
    let user_index = qp.ctx.user_index & 0x00ff_ffff;
    match from {
        Source::Own => Landing { uidx: if v1 { user_index } else { 0 }, ..mine },
        Source::Shared(srqn) => match shared.srqs.get(srqn).map(|srq| &srq.ctx) {
            Ok(srq) => match srq.xrc {
                Some(xrc) => {
                    let uidx = if xrc.cqe_version == 1 { xrc.user_index } else { srqn };
                    Landing { pd: srq.pd, cqn: xrc.cq, uidx: uidx & 0x00ff_ffff }
                }
                None => Landing { pd: srq.pd, uidx: if v1 { user_index } else { srqn }, ..mine },
            },
            Err(_) => mine,
        },
    }
}

/// Receives posted and not taken.
pub(super) fn posted(qp: &Qp, shared: &mut Shared, from: Source) -> u16 {
    match from {
        Source::Own => posted_receives(qp, shared),
        Source::Shared(srqn) => {
            let Shared { srqs, dma, stats, .. } = shared;
            srqs.get(srqn).map_or(0, |srq| srq.posted(&**dma, stats))
        }
    }
}

/// Takes the next receive WQE; the caller made sure that one is posted. The error names the WQE,
/// which is used up either way.
pub(super) fn take(
    qp: &mut Qp,
    shared: &mut Shared,
    from: Source,
) -> Result<Receive, (Receive, Failure)> {
    let landing = landing(qp, shared, from);
    let who = Who { pd: landing.pd, qpn: qp.qpn };
    let mut bytes = [0; RECV_MAX];
    let (index, read) = fetch(qp, shared, from, &mut bytes);
    let fail = |vendor| {
        let receive = Receive { index, list: Vec::new(), room: 0, landing };
        (receive, Failure::new(Syndrome::LOCAL_PROT_ERR, vendor))
    };
    let (stride, kind) = read.ok_or_else(|| fail(vendor::UNREADABLE))?;
    let view = RecvView::parse(stride, kind).map_err(|_| fail(vendor::SEGMENTS))?;
    // The list ends at the first invalid key, or with the stride (rdma-core qp.c,
    // `mlx5_post_recv`: the terminator is written only where there is room).
    let list: Vec<Segment> = (view.data().map(segment_of))
        .take_while(|segment| segment.key != MLX5_INVALID_LKEY)
        .collect();
    for &segment in &list {
        if let Err(fault) = shared.keys.check(who, segment, Access::LOCAL_WRITE) {
            return Err(fail(fault.vendor()));
        }
    }
    let room = list.iter().map(|segment| segment.len).sum();
    Ok(Receive { index, list, room, landing })
}

/// Uses up the next receive WQE without its list: what an immediate value takes (IBTA 9.7.5.1.1), or a flush.
pub(super) fn consume(qp: &mut Qp, shared: &mut Shared, from: Source) -> Receive {
    let landing = landing(qp, shared, from);
    let index = match from {
        // A linked ring has to be read to know what follows.
        Source::Shared(_) => fetch(qp, shared, from, &mut [0; RECV_MAX]).0,
        Source::Own => step(qp, shared),
    };
    Receive { index, list: Vec::new(), room: 0, landing }
}

fn step(qp: &mut Qp, shared: &mut Shared) -> u16 {
    let index = qp.rq_taken;
    qp.rq_taken = index.wrapping_add(1);
    shared.stats.recv_wqes += 1;
    index
}

/// The WQE's name, and its bytes if they could be read.
fn fetch<'a>(
    qp: &mut Qp,
    shared: &mut Shared,
    from: Source,
    bytes: &'a mut [u8; RECV_MAX],
) -> (u16, Option<(&'a [u8], RecvKind)>) {
    match from {
        Source::Own => {
            let index = step(qp, shared);
            let Some(RqContext { region, log_entries, stride_shift }) = &qp.ctx.rq else {
                return (index, None);
            };
            let stride = &mut bytes[..1 << stride_shift];
            let slot = u64::from(index) & ((1 << log_entries) - 1);
            let read = region.read(&*shared.dma, slot * stride.len() as u64, stride);
            (index, read.ok().map(|()| (&*stride, RecvKind::Rq)))
        }
        Source::Shared(srqn) => {
            let Shared { srqs, dma, events, stats, .. } = shared;
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

fn segment_of(data: &mlx5_wqe_data_seg) -> Segment {
    Segment { key: data.lkey.get(), addr: data.addr.get(), len: data.length().into() }
}
