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
use std::sync::Arc;

use uverbs_core::attr::{QpCap, QpType};
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
use uverbs_kernel_abi::siw::{
    SIW_MAX_INLINE, siw_cq_ctrl, siw_uresp_create_cq, siw_uresp_create_qp, siw_uresp_create_srq,
};
use zerocopy::IntoBytes;

use crate::ring::{Element, Ring};
use crate::rq::RqParts;
use crate::sq::SqParts;
use crate::wqe::Room;
use crate::{Context, Cq, Rq, Siw, Sq, Srq};

const CREATE_CQ: &str = "create_cq";
const CREATE_QP: &str = "create_qp";
const CREATE_SRQ: &str = "create_srq";

/// A ring that the kernel made, mapped.
#[derive(Debug)]
pub(crate) struct Mapped<E> {
    pub(crate) memory: Pages,
    pub(crate) ring: Ring<E>,
}

/// Maps the ring of `elements` behind `key`, of which `least` are needed, and `more` bytes behind
/// it. A key is any multiple of a page, the header's `SIW_INVAL_UOBJ_KEY` among them: a kernel that
/// has no key to give fails the command (kernel `siw_verbs.c`, `siw_mmap_entry_insert`;
/// `ib_core_uverbs.c`, `rdma_user_mmap_entry_insert_range`).
fn map<E: Element>(
    uverbs: &Uverbs,
    verb: &'static str,
    (key, elements): (u64, u32),
    least: u32,
    more: usize,
) -> Result<Mapped<E>, Error> {
    let is_ring = elements.is_power_of_two() && elements >= least && elements <= 1 << 24;
    if !is_ring {
        let what = format!("a queue of {elements} elements behind the key {key:#x}");
        return Err(Error::Unsupported { verb, what });
    }
    let len = elements as usize * size_of::<E>() + more;
    let memory =
        uverbs.door().mmap(len, key).map_err(|errno| Error::System { what: "mmap", errno })?;
    // SAFETY: the mapping has room for these, says the door, and starts at a page; whoever has the
    // ring keeps it.
    let ring = unsafe { Ring::new(memory.as_mut_ptr(), elements) };
    Ok(Mapped { memory, ring })
}

/// rdma-core `siw.c:siw_create_cq`.
pub(crate) fn create_cq(context: &Context, init: &CqInit) -> Result<(Arc<CqCore>, Cq), Error> {
    init.check_context(&context.core)?;
    if init.compressed {
        let what = "compressed completions (iWARP in software)".to_owned();
        return Err(Error::Unsupported { verb: CREATE_CQ, what });
    }
    if init.padded {
        let what = "entries of 128 bytes (iWARP in software)".to_owned();
        return Err(Error::Unsupported { verb: CREATE_CQ, what });
    }
    if init.ignore_overrun {
        let what = "a queue that ignores overruns, with the siw driver,".to_owned();
        return Err(Error::Unsupported { verb: CREATE_CQ, what });
    }
    if init.entries == 0 {
        return Err(Error::Limit { verb: CREATE_CQ, what: "entries", value: 0, limit: 1 });
    }
    // One more than asked for: the completion at hand has an entry, too.
    let most = context.device.max_cqe.saturating_sub(1);
    Error::limit(CREATE_CQ, "entries", init.entries, most)?;
    let vectors = context.vectors.saturating_sub(1);
    Error::limit(CREATE_CQ, "comp_vector", init.comp_vector, vectors)?;
    let mut answer = siw_uresp_create_cq::default();
    let attr = CreateCq {
        entries: init.entries + 1,
        user_handle: unique_id(),
        comp_vector: init.comp_vector,
        channel: init.channel.as_ref().map(|channel| channel.as_fd()),
        event_fd: context.core.event_file(),
        flags: init.flags(),
    };
    let uverbs = context.core.uverbs();
    // SAFETY: the request names no memory.
    let created = unsafe { uverbs.create_cq(&attr, &[], answer.as_mut_bytes()) }?;
    let ring = (answer.cq_key, answer.num_cqe);
    let mapped = map(uverbs, CREATE_CQ, ring, attr.entries, size_of::<siw_cq_ctrl>());
    let Mapped { memory, ring } = mapped.inspect_err(|_| {
        // SAFETY: it was just made, and nobody knows of it.
        let _ = unsafe { uverbs.destroy_cq(created.handle) };
    })?;
    let room = CqRoom::new(init.entries, answer.num_cqe);
    let (of, channel) = (Arc::clone(&context.core), init.channel.clone());
    let (handle, number, event) = (created.handle, answer.cq_id, attr.user_handle);
    // SAFETY: the kernel just made it with this memory, and nobody else has its number.
    let core = unsafe { CqCore::new(of, handle, number, room, event, channel, Box::new(memory)) };
    // SAFETY: `core` keeps the mapping, and this poller is the first.
    let cq = unsafe { Cq::new(ring, Arc::clone(&core)) };
    Ok((core, cq))
}

/// rdma-core `siw.c:siw_create_srq`.
pub(crate) fn create_srq(context: &Context, init: &SrqInit) -> Result<NewSrq<Siw>, Error> {
    init.check_context(&context.core)?;
    if init.xrc.is_some() {
        let what = "a queue for XRC (iWARP has reliable connections only)".to_owned();
        return Err(Error::Unsupported { verb: CREATE_SRQ, what });
    }
    if init.tags.is_some() {
        let what = "a queue that matches tags (mlx5 has them)".to_owned();
        return Err(Error::Unsupported { verb: CREATE_SRQ, what });
    }
    if init.max_wr == 0 {
        return Err(Error::Limit { verb: CREATE_SRQ, what: "max_wr", value: 0, limit: 1 });
    }
    let device = &context.device;
    Error::limit(CREATE_SRQ, "max_wr", init.max_wr, device.max_srq_wr)?;
    Error::limit(CREATE_SRQ, "max_sge", init.max_sge, device.max_srq_sge)?;
    Error::limit(CREATE_SRQ, "limit", init.limit, init.max_wr)?;
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
    let mut answer = siw_uresp_create_srq::default();
    let uverbs = context.core.uverbs();
    // SAFETY: the request names no memory.
    let created = unsafe { uverbs.create_srq(&attr, &[], answer.as_mut_bytes()) }?;
    let ring = (answer.srq_key, answer.num_rqe);
    let mapped = map(uverbs, CREATE_SRQ, ring, init.max_wr, 0).inspect_err(
        // SAFETY: it was just made, and nobody knows of it.
        |_| drop(unsafe { uverbs.destroy_srq(created.handle) }),
    )?;
    // One slot always stays free.
    let shared = Arc::new(SrqShared::new(init.max_wr + 1, Some(user_index)));
    let parts = SrqParts {
        handle: created.handle,
        srqn: created.handle,
        event_id: attr.user_handle,
        max_wr: init.max_wr,
        max_sge: attr.max_sge,
        pd: Arc::clone(&init.pd),
        shared: Arc::clone(&shared),
        completes: None,
        // The ring is the kernel's memory, and the posting side alone looks at it.
        memory: Box::new(()),
    };
    // SAFETY: the kernel just made it from these, which were checked to be of `context`, and
    // `shared` is new.
    let core = unsafe { SrqCore::new(parts) };
    // SAFETY: its ring, which has as many elements as there are slots that can be posted; this
    // poster is the first.
    let srq = unsafe { Srq::new(mapped, shared, attr.max_sge) };
    Ok(NewSrq { core, srq })
}

/// What the kernel may write of a queue pair.
#[derive(Debug)]
struct QpMemory {
    _send: Pages,
    /// None with a shared receive queue, or without receives.
    _recv: Option<Pages>,
}

/// What is asked of the kernel, which has no queue pair without a send queue (`siw_verbs.c:
/// siw_create_qp`).
fn asked(context: &Context, init: &QpInit) -> Result<QpCap, Error> {
    let mut cap = init.cap;
    if init.srq.is_some() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    let device = &context.device;
    Error::limit(CREATE_QP, "max_send_wr", cap.max_send_wr, device.max_qp_wr)?;
    Error::limit(CREATE_QP, "max_recv_wr", cap.max_recv_wr, device.max_qp_wr)?;
    Error::limit(CREATE_QP, "max_send_sge", cap.max_send_sge, device.max_sge)?;
    Error::limit(CREATE_QP, "max_recv_sge", cap.max_recv_sge, device.max_sge)?;
    Error::limit(CREATE_QP, "max_inline_data", cap.max_inline_data, SIW_MAX_INLINE)?;
    cap.max_send_wr = cap.max_send_wr.max(1);
    Ok(cap)
}

/// rdma-core `siw.c:siw_create_qp`.
pub(crate) fn create_qp(context: &Context, init: &QpInit) -> Result<NewQp<Siw>, Error> {
    init.check_context(&context.core)?;
    if init.qp_type != QpType::Rc {
        let what = format!("{} (iWARP has reliable connections only)", init.qp_type);
        return Err(Error::Unsupported { verb: CREATE_QP, what });
    }
    let cap = asked(context, init)?;
    let user_index = context.indexes.take(CREATE_QP)?;
    let attr = CreateQp {
        pd: init.pd.handle(),
        send_cq: init.send_cq.handle(),
        recv_cq: Some(init.recv_cq.handle()),
        srq: init.srq.as_ref().map(|srq| srq.handle()),
        user_handle: unique_id(),
        qp_type: init.qp_type.raw(),
        cap: ib_uverbs_qp_cap {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
        },
        create_flags: 0,
        event_fd: context.core.event_file(),
    };
    let mut answer = siw_uresp_create_qp::default();
    let uverbs = context.core.uverbs();
    // SAFETY: the request names no memory.
    let created = unsafe { uverbs.create_qp(&attr, &[], answer.as_mut_bytes()) }?;
    let rings = || {
        let ring = (answer.sq_key, answer.num_sqe);
        let send = map(uverbs, CREATE_QP, ring, cap.max_send_wr, 0)?;
        if cap.max_recv_wr == 0 {
            return Ok((send, None));
        }
        let ring = (answer.rq_key, answer.num_rqe);
        Ok((send, Some(map(uverbs, CREATE_QP, ring, cap.max_recv_wr, 0)?)))
    };
    let (send, recv) = rings().inspect_err(|_: &Error| {
        // SAFETY: it was just made, and nobody knows of it.
        let _ = unsafe { uverbs.destroy_qp(created.handle) };
    })?;
    let (recv_memory, recv_ring) = match recv {
        Some(Mapped { memory, ring }) => (Some(memory), ring),
        None => (None, Ring::NONE),
    };
    let shared = Arc::new(QpShared {
        user_index,
        send: SlotTable::new(send.ring.mask() + 1),
        recv: SlotTable::new(if recv_memory.is_some() { recv_ring.mask() + 1 } else { 0 }),
        srq: init.srq.as_ref().map(|srq| Arc::clone(srq.shared())),
        qpn: created.qpn,
        special: None,
    });
    let memory = Arc::new(QpMemory { _send: send.memory, _recv: recv_memory });
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
        ring: send.ring,
        max_wr: cap.max_send_wr,
        room: Room { max_sge: cap.max_send_sge, max_inline: cap.max_inline_data },
        shared: Arc::clone(&shared),
        uverbs: uverbs.clone(),
        handle: created.handle,
        memory: Arc::clone(&memory) as _,
    };
    let rq = RqParts {
        ring: recv_ring,
        max_wr: cap.max_recv_wr,
        // A post to a queue that isn't there is refused for that, whatever its list.
        max_sge: if init.srq.is_some() { u32::MAX } else { cap.max_recv_sge },
        shared,
        memory,
    };
    // SAFETY: `memory` keeps the ring. The table has as many slots, and this poster is the first.
    let sq = unsafe { Sq::new(sq) };
    // SAFETY: as above; without a ring there is no room.
    let rq = unsafe { Rq::new(rq) };
    Ok(NewQp { core, sq, rq })
}
