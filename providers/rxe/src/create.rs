//! Making completion queues and queue pairs: the kernel makes the rings, and says where to map
//! them.
//!
//! # Safety
//!
//! The commands name no memory of ours. A mapping is kept by the core object until the kernel
//! confirmed the object's destruction, or buried; and by the queue sides, which reach it through
//! raw pointers only.
#![allow(unsafe_code, reason = "makes queues of rings that the kernel maps")]

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use uverbs_core::attr::{QpCap, QpType, SendOpSet};
use uverbs_core::commands::Uverbs;
use uverbs_core::commands::cq::CreateCq;
use uverbs_core::commands::qp::CreateQp;
use uverbs_core::commands::srq::{CreateSrq, SrqKind};
use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::context::unique_id;
use uverbs_core::objects::cq::{CqCore, CqRoom};
use uverbs_core::objects::qp::{QpCore, QpParts};
use uverbs_core::objects::srq::{SrqCore, SrqParts};
use uverbs_core::provider::{CqInit, NewQp, NewSrq, QpInit, SrqInit};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::srq::SrqShared;
use uverbs_kernel_abi::qp::ib_uverbs_qp_cap;
use uverbs_kernel_abi::rxe::{mminfo, rxe_create_cq_resp, rxe_create_qp_resp, rxe_create_srq_resp};
use uverbs_kernel_abi::wc::ib_uverbs_wc;
use zerocopy::IntoBytes;

use crate::kick::Kick;
use crate::limits::Limits;
use crate::ring::Ring;
use crate::rq::RqParts;
use crate::sq::{Attic, SqParts};
use crate::wqe::{RECV_HEAD, Room, SEND_HEAD, SGE};
use crate::{Context, Cq, Rq, Rxe, Sq, Srq};

const CREATE_CQ: &str = "create_cq";
const CREATE_QP: &str = "create_qp";
const CREATE_SRQ: &str = "create_srq";

/// Inline bytes at most: a send element has 720 bytes, less its head (kernel `rxe_param.h`,
/// `RXE_MAX_WQE_SIZE`).
const MAX_INLINE: u32 = 720 - SEND_HEAD as u32;

/// A ring that the kernel made, mapped.
pub(crate) struct Mapped {
    pub(crate) memory: Pages,
    pub(crate) ring: Ring,
}

/// Maps the ring that `info` tells of, whose elements have at least `element` bytes.
pub(crate) fn map(
    uverbs: &Uverbs,
    verb: &'static str,
    info: mminfo,
    element: usize,
) -> Result<Mapped, Error> {
    let len = info.size as usize;
    if len == 0 {
        return Err(Error::Unsupported { verb, what: "a queue of no bytes".to_owned() });
    }
    let memory = uverbs
        .door()
        .mmap(len, info.offset)
        .map_err(|errno| Error::System { what: "mmap", errno })?;
    // SAFETY: the mapping has `len` bytes, says the door, and starts at a page; whoever has the
    // ring keeps it.
    let ring = unsafe { Ring::new(memory.as_mut_ptr(), len, element) };
    let ring = ring.map_err(|why| Error::Unsupported {
        verb,
        what: format!("a queue of {len} bytes that is {why:?}"),
    })?;
    Ok(Mapped { memory, ring })
}

/// rdma-core `rxe.c:rxe_create_cq`.
pub(crate) fn create_cq(context: &Context, init: &CqInit) -> Result<(Arc<CqCore>, Cq), Error> {
    init.check_context(&context.core)?;
    if init.compressed {
        let what = "compressed completions (soft-RoCE)".to_owned();
        return Err(Error::Unsupported { verb: CREATE_CQ, what });
    }
    if init.padded {
        let what = "entries of 128 bytes (soft-RoCE)".to_owned();
        return Err(Error::Unsupported { verb: CREATE_CQ, what });
    }
    let Limits { cqe, vectors, .. } = context.limits;
    if init.entries == 0 {
        return Err(Error::Limit { verb: CREATE_CQ, what: "entries", value: 0, limit: 1 });
    }
    // One more than asked for: a ring of the kernel's keeps one entry empty, and one is for the
    // completion at hand. Of a program that sees to the room itself the largest queue has none.
    let most = if init.unchecked { cqe } else { cqe.saturating_sub(1) };
    Error::limit(CREATE_CQ, "entries", init.entries, most)?;
    Error::limit(CREATE_CQ, "comp_vector", init.comp_vector, vectors.saturating_sub(1))?;
    let mut answer = rxe_create_cq_resp::default();
    let attr = CreateCq {
        entries: init.entries.saturating_add(1).min(cqe),
        user_handle: unique_id(),
        comp_vector: init.comp_vector,
        channel: init.channel.as_ref().map(|channel| channel.as_fd()),
        event_fd: context.core.event_file(),
        flags: init.flags(),
    };
    let uverbs = context.core.uverbs();
    // SAFETY: the request names no memory.
    let created = unsafe { uverbs.create_cq(&attr, &[], answer.as_mut_bytes()) }?;
    let Mapped { memory, ring } = map(uverbs, CREATE_CQ, answer.mi, size_of::<ib_uverbs_wc>())
        .inspect_err(|_| {
            // SAFETY: it was just made, and nobody knows of it.
            let _ = unsafe { uverbs.destroy_cq(created.handle) };
        })?;
    // The driver has a number for it, and tells it to nobody: the handle does instead.
    let (number, room) = (
        created.handle,
        CqRoom::new(init.entries, ring.mask()).ignoring_overrun(init.counts_queues()),
    );
    let memory = Arc::new(Mutex::new(memory));
    let (of, kept) = (Arc::clone(&context.core), Box::new(Arc::clone(&memory)));
    let channel = init.channel.clone();
    // SAFETY: the kernel just made it with this memory, and nobody else has its number.
    let core =
        unsafe { CqCore::new(of, created.handle, number, room, attr.user_handle, channel, kept) };
    // SAFETY: `core` keeps the mapping, and this poller is the first.
    let cq = unsafe { Cq::new(ring, Arc::clone(&core), memory, cqe) };
    Ok((core, cq))
}

/// What the kernel may write of a queue pair.
#[derive(Debug)]
struct QpMemory {
    _send: Pages,
    /// None with a shared receive queue.
    _recv: Option<Pages>,
    /// Address handles that the send queue left.
    _attic: Attic,
}

fn check(cap: &QpCap, limits: &Limits) -> Result<(), Error> {
    Error::limit(CREATE_QP, "max_send_wr", cap.max_send_wr, limits.qp_wr)?;
    Error::limit(CREATE_QP, "max_recv_wr", cap.max_recv_wr, limits.qp_wr)?;
    Error::limit(CREATE_QP, "max_send_sge", cap.max_send_sge, limits.sge)?;
    Error::limit(CREATE_QP, "max_recv_sge", cap.max_recv_sge, limits.sge)?;
    Error::limit(CREATE_QP, "max_inline_data", cap.max_inline_data, MAX_INLINE)
}

/// rdma-core `rxe.c:rxe_create_srq`.
pub(crate) fn create_srq(context: &Context, init: &SrqInit) -> Result<NewSrq<Rxe>, Error> {
    init.check_context(&context.core)?;
    if init.xrc.is_some() {
        let what = "a queue for XRC (soft-RoCE has RC, UC and UD)".to_owned();
        return Err(Error::Unsupported { verb: CREATE_SRQ, what });
    }
    if init.tags.is_some() {
        let what = "a queue that matches tags (mlx5 has them)".to_owned();
        return Err(Error::Unsupported { verb: CREATE_SRQ, what });
    }
    let Limits { srq_wr, srq_sge, .. } = context.limits;
    if init.max_wr == 0 {
        return Err(Error::Limit { verb: CREATE_SRQ, what: "max_wr", value: 0, limit: 1 });
    }
    Error::limit(CREATE_SRQ, "max_wr", init.max_wr, srq_wr)?;
    Error::limit(CREATE_SRQ, "max_sge", init.max_sge, srq_sge)?;
    // As the kernel rounds: a ring has one slot more.
    let slots = init.max_wr.checked_add(1).and_then(u32::checked_next_power_of_two);
    let most = slots.map_or(u32::MAX, |slots| slots - 1);
    Error::limit(CREATE_SRQ, "limit", init.limit, most)?;
    let user_index = context.indexes.take(CREATE_SRQ)?;
    let attr = CreateSrq {
        pd: init.pd.handle(),
        user_handle: unique_id(),
        max_wr: init.max_wr,
        max_sge: init.max_sge.max(1),
        limit: init.limit,
        kind: SrqKind::Plain,
        event_fd: context.core.event_file(),
    };
    let mut answer = rxe_create_srq_resp::default();
    let uverbs = context.core.uverbs();
    // SAFETY: the request names no memory.
    let created = unsafe { uverbs.create_srq(&attr, &[], answer.as_mut_bytes()) }?;
    let room = (created.max_sge as usize).saturating_mul(SGE);
    let mapped = map(uverbs, CREATE_SRQ, answer.mi, RECV_HEAD.saturating_add(room)).inspect_err(
        // SAFETY: it was just made, and nobody knows of it.
        |_| drop(unsafe { uverbs.destroy_srq(created.handle) }),
    )?;
    // Two at least, whatever the kernel made.
    let slots = (mapped.ring.mask() + 1).max(2);
    let shared = Arc::new(SrqShared::new(slots, Some(user_index)));
    let parts = SrqParts {
        handle: created.handle,
        srqn: answer.srq_num,
        event_id: attr.user_handle,
        max_wr: mapped.ring.mask(),
        max_sge: created.max_sge,
        pd: Arc::clone(&init.pd),
        shared: Arc::clone(&shared),
        completes: None,
        // The ring is the kernel's memory, and the posting side alone looks at it.
        memory: Box::new(()),
    };
    // SAFETY: the kernel just made it from these, which were checked to be of `context`, and
    // `shared` is new.
    let core = unsafe { SrqCore::new(parts) };
    // SAFETY: its ring, whose elements were checked to have this room; this poster is the first.
    let srq = unsafe { Srq::new(mapped, shared, created.max_sge, srq_wr) };
    Ok(NewSrq { core, srq })
}

/// rdma-core `rxe.c:rxe_create_qp`. There is no doorbell to choose.
pub(crate) fn create_qp(context: &Context, init: &QpInit) -> Result<NewQp<Rxe>, Error> {
    init.check_context(&context.core)?;
    let own = [QpType::Rc, QpType::Uc, QpType::Ud];
    if !own.contains(&init.qp_type) {
        let what = format!("{} (soft-RoCE has RC, UC and UD)", init.qp_type);
        return Err(Error::Unsupported { verb: CREATE_QP, what });
    }
    let mut asked = init.cap;
    if init.srq.is_some() {
        (asked.max_recv_wr, asked.max_recv_sge) = (0, 0);
    }
    check(&asked, &context.limits)?;
    let user_index = context.indexes.take(CREATE_QP)?;
    let attr = CreateQp {
        pd: init.pd.handle(),
        send_cq: init.send_cq.handle(),
        recv_cq: Some(init.recv_cq.handle()),
        srq: init.srq.as_ref().map(|srq| srq.handle()),
        user_handle: unique_id(),
        qp_type: init.qp_type.raw(),
        cap: ib_uverbs_qp_cap {
            max_send_wr: asked.max_send_wr,
            max_recv_wr: asked.max_recv_wr,
            max_send_sge: asked.max_send_sge,
            max_recv_sge: asked.max_recv_sge,
            max_inline_data: asked.max_inline_data,
        },
        create_flags: 0,
        event_fd: context.core.event_file(),
    };
    let mut answer = rxe_create_qp_resp::default();
    let uverbs = context.core.uverbs();
    // SAFETY: the request names no memory.
    let created = unsafe { uverbs.create_qp(&attr, &[], answer.as_mut_bytes()) }?;
    let granted = created.cap;
    let rings = || {
        let room = (granted.max_send_sge as usize).saturating_mul(SGE);
        let room = room.max(granted.max_inline_data as usize);
        let send = map(uverbs, CREATE_QP, answer.sq_mi, SEND_HEAD.saturating_add(room))?;
        if init.srq.is_some() {
            return Ok((send, None));
        }
        let room = (granted.max_recv_sge as usize).saturating_mul(SGE);
        let recv = map(uverbs, CREATE_QP, answer.rq_mi, RECV_HEAD.saturating_add(room))?;
        Ok((send, Some(recv)))
    };
    let (send, recv) = rings().inspect_err(|_: &Error| {
        // SAFETY: it was just made, and nobody knows of it.
        let _ = unsafe { uverbs.destroy_qp(created.handle) };
    })?;
    let (recv_memory, recv_ring) = match recv {
        Some(Mapped { memory, ring }) => (Some(memory), ring),
        None => (None, Ring::NONE),
    };
    let cap = QpCap {
        max_send_wr: granted.max_send_wr.min(send.ring.mask()),
        max_recv_wr: granted.max_recv_wr.min(recv_ring.mask()),
        max_send_sge: granted.max_send_sge,
        max_recv_sge: granted.max_recv_sge,
        max_inline_data: granted.max_inline_data,
    };
    let shared = Arc::new(QpShared {
        user_index,
        send: SlotTable::new(send.ring.mask() + 1),
        recv: SlotTable::new(recv_ring.mask() + 1),
        srq: init.srq.as_ref().map(|srq| Arc::clone(srq.shared())),
        qpn: created.qpn,
        special: None,
    });
    let send_ring = send.ring;
    let attic = Attic::default();
    let memory =
        Arc::new(QpMemory { _send: send.memory, _recv: recv_memory, _attic: Arc::clone(&attic) });
    let kick = Kick::new(uverbs.clone(), created.handle);
    let parts = QpParts {
        overcommit: init.overcommit,
        handle: created.handle,
        qpn: created.qpn,
        event_id: attr.user_handle,
        cap,
        pd: Arc::clone(&init.pd),
        send_cq: Arc::clone(&init.send_cq),
        recv_cq: Arc::clone(&init.recv_cq),
        srq: init.srq.clone(),
        shared: Arc::clone(&shared),
        memory: Box::new(Arc::clone(&memory)),
    };
    // SAFETY: the kernel just made it from these, all of `context`; `shared` is new.
    let core = unsafe { QpCore::new(parts) };
    // SAFETY: just made; after an error it is dropped here.
    unsafe { core.check_overrun() }?;
    let sq = SqParts {
        ring: send_ring,
        max_wr: cap.max_send_wr,
        room: Room { max_sge: cap.max_send_sge, max_inline: cap.max_inline_data },
        rekeys: init.qp_type != QpType::Ud
            && init.send_ops.is_some_and(|ops| ops.contains(SendOpSet::REKEY)),
        places: (init.qp_type == QpType::Rc).then_some(context.device.caps_ex),
        shared: Arc::clone(&shared),
        kick: kick.clone(),
        qpn: created.qpn,
        datagrams: init.qp_type == QpType::Ud,
        attic,
        memory: Arc::clone(&memory) as _,
    };
    let rq = RqParts {
        ring: recv_ring,
        max_wr: cap.max_recv_wr,
        // A post to a queue that isn't there is refused for that, whatever its list.
        max_sge: if init.srq.is_some() { u32::MAX } else { cap.max_recv_sge },
        shared,
        kick,
        qpn: created.qpn,
        memory,
    };
    // SAFETY: `memory` keeps the ring, whose elements were checked to have this room. The table has
    // as many slots, and this poster is the first.
    let sq = unsafe { Sq::new(sq) };
    // SAFETY: as above.
    let rq = unsafe { Rq::new(rq) };
    Ok(NewQp { core, sq, rq })
}
