//! CREATE_CQ, CREATE_QP and CREATE_SRQ: the kernel makes the rings, and tells where to map them.
//!
//! # Safety
//!
//! The requests name no memory. The core object keeps a mapping until the kernel confirmed the
//! object's destruction, or buries it. The queue sides keep it too, and reach it through raw
//! pointers only.
#![allow(unsafe_code, reason = "makes queues of rings that the kernel maps")]

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use uverbs_core::attr::QpCap;
use uverbs_core::commands::cq::CreateCq;
use uverbs_core::commands::srq::{CreateSrq, SrqKind};
use uverbs_core::error::Error;
use uverbs_core::objects::context::unique_id;
use uverbs_core::objects::cq::{CqCore, CqRoom};
use uverbs_core::objects::qp::QpCore;
use uverbs_core::objects::srq::{SrqCore, SrqParts};
use uverbs_core::provider::{CqInit, QpInit, SrqInit};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::srq::SrqShared;
use zerocopy::IntoBytes;

use crate::context::Context;
use crate::doorbell::Doorbell;
use crate::driver::{Ask, CqMade, Driver, Mapped, QpMade, QpRings, SrqMade};
use crate::opened::Limits;
use crate::rings::{CqRing, RecvRing, SendRing};
use crate::rq::RqParts;
use crate::{Cq, Rq, Sq, Srq};

const CREATE_CQ: &str = "create_cq";
const CREATE_QP: &str = "create_qp";
const CREATE_SRQ: &str = "create_srq";

fn unsupported<T>(verb: &'static str, what: String) -> Result<T, Error> {
    Err(Error::Unsupported { verb, what })
}

/// Creates a completion queue (rdma-core `rxe.c:rxe_create_cq`, `siw.c:siw_create_cq`).
pub(crate) fn create_cq<D: Driver>(
    context: &Context<D>,
    init: &CqInit,
) -> Result<(Arc<CqCore>, Cq<D>), Error> {
    init.check_context(&context.core)?;
    for (is_asked, what) in [
        (init.compressed.is_some(), "compressed completions"),
        (init.padded, "entries of 128 bytes"),
        (init.ignore_overrun && !D::IGNORES_OVERRUN, "a queue that ignores overruns"),
    ] {
        if is_asked {
            return unsupported(CREATE_CQ, format!("{what} ({})", D::MODULE));
        }
    }
    let Limits { cqe, vectors, .. } = context.opened.limits;
    if init.entries == 0 {
        return Err(Error::Limit { verb: CREATE_CQ, what: "entries", value: 0, limit: 1 });
    }
    // The completion at hand has an entry, too: one more than asked for. The largest queue has none
    // to spare, for programs that see to the room themselves.
    let most = if init.unchecked { cqe } else { cqe.saturating_sub(1) };
    Error::limit(CREATE_CQ, "entries", init.entries, most)?;
    Error::limit(CREATE_CQ, "comp_vector", init.comp_vector, vectors.saturating_sub(1))?;
    let opened = &context.opened;
    let ask = D::ask_cq(opened, init, init.entries.saturating_add(1).min(cqe))?;
    let mut answer = D::CqAnswer::default();
    let attr = CreateCq {
        entries: ask.sizes,
        user_handle: unique_id(),
        comp_vector: init.comp_vector,
        channel: init.channel.as_ref().map(|channel| channel.as_fd()),
        event_fd: context.core.event_file(),
        flags: init.flags(),
        driver: None,
    };
    let uverbs = context.core.uverbs();
    // SAFETY: the request names no memory, by the driver's promise.
    let created = unsafe { uverbs.create_cq(&attr, &ask.part, answer.as_mut_bytes()) }?;
    let (handle, event) = (created.handle, attr.user_handle);
    let made = CqMade { uverbs, opened, init, entries: attr.entries, created, answer };
    let (Mapped { ring, memory }, number) = D::cq_ring(&made).inspect_err(|_| {
        // SAFETY: it was just made, and no one else knows its number.
        let _ = unsafe { uverbs.destroy_cq(handle) };
    })?;
    let room = CqRoom::new(init.entries, ring.capacity()).ignoring_overrun(init.counts_queues());
    let memory = Arc::new(Mutex::new(memory));
    let (of, channel) = (Arc::clone(&context.core), init.channel.clone());
    let kept = Box::new(Arc::clone(&memory));
    // SAFETY: the kernel just made it with this memory, and no one else has its number.
    let core = unsafe { CqCore::new(of, handle, number, room, event, channel, kept) };
    // SAFETY: `core` keeps the mapping, and this poller is the first.
    let cq = unsafe { Cq::new(ring, Arc::clone(&core), memory, cqe) };
    Ok((core, cq))
}

/// Creates a shared receive queue (rdma-core `rxe.c:rxe_create_srq`, `siw.c:siw_create_srq`).
pub(crate) fn create_srq<D: Driver>(
    context: &Context<D>,
    init: &SrqInit,
) -> Result<(Arc<SrqCore>, Srq<D>), Error> {
    init.check_context(&context.core)?;
    if init.xrc.is_some() {
        return unsupported(CREATE_SRQ, format!("a queue for XRC ({})", D::HAS_TRANSPORTS));
    }
    if init.tags.is_some() {
        return unsupported(CREATE_SRQ, "a queue that matches tags (mlx5 has them)".to_owned());
    }
    let Limits { srq_wr, srq_sge, .. } = context.opened.limits;
    if init.max_wr == 0 {
        return Err(Error::Limit { verb: CREATE_SRQ, what: "max_wr", value: 0, limit: 1 });
    }
    if srq_wr == 0 {
        let what = format!("a shared receive queue ({})", D::MODULE);
        return Err(Error::Unsupported { verb: CREATE_SRQ, what });
    }
    Error::limit(CREATE_SRQ, "max_wr", init.max_wr, srq_wr)?;
    Error::limit(CREATE_SRQ, "max_sge", init.max_sge, srq_sge)?;
    Error::limit(CREATE_SRQ, "limit", init.limit, D::srq_capacity(init.max_wr))?;
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
    let mut answer = D::SrqAnswer::default();
    let uverbs = context.core.uverbs();
    // SAFETY: the request names no memory.
    let created = unsafe { uverbs.create_srq(&attr, &[], answer.as_mut_bytes()) }?;
    let made = SrqMade { uverbs, init, created, answer };
    let (ring, number) = D::srq_ring(&made).inspect_err(|_| {
        // SAFETY: it was just made, and no one else knows its number.
        let _ = unsafe { uverbs.destroy_srq(created.handle) };
    })?;
    // One slot always stays free; two at least, whatever the kernel made.
    let shared = Arc::new(SrqShared::new(ring.max_wr.max(1) + 1, Some(user_index)));
    let parts = SrqParts {
        handle: created.handle,
        srqn: number,
        event_id: attr.user_handle,
        max_wr: ring.max_wr,
        max_sge: ring.max_sge,
        pd: Arc::clone(&init.pd),
        shared: Arc::clone(&shared),
        completes: None,
        // The posting side keeps the ring: it alone looks at it.
        memory: Box::new(()),
    };
    // SAFETY: the kernel just made it from these, which were checked to be of `context`, and
    // `shared` is new.
    let core = unsafe { SrqCore::new(parts) };
    // SAFETY: its ring, as large as the driver says; this poster is the first.
    let srq = unsafe { Srq::new(ring, shared, srq_wr) };
    Ok((core, srq))
}

/// Sizes that the kernel is asked for.
fn asked<D: Driver>(init: &QpInit, limits: &Limits) -> Result<QpCap, Error> {
    let mut cap = init.cap;
    if init.srq.is_some() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    Error::limit(CREATE_QP, "max_send_wr", cap.max_send_wr, limits.send_wr)?;
    Error::limit(CREATE_QP, "max_recv_wr", cap.max_recv_wr, limits.recv_wr)?;
    Error::limit(CREATE_QP, "max_send_sge", cap.max_send_sge, limits.send_sge)?;
    Error::limit(CREATE_QP, "max_recv_sge", cap.max_recv_sge, limits.recv_sge)?;
    Error::limit(CREATE_QP, "max_inline_data", cap.max_inline_data, limits.inline)?;
    cap.max_send_wr = cap.max_send_wr.max(D::MIN_SENDS);
    Ok(cap)
}

/// A queue pair: the kernel's object, and the posting sides.
type QpSides<D> = (Arc<QpCore>, Sq<D>, Rq<D>);

/// Creates a queue pair (rdma-core `rxe.c:rxe_create_qp`, `siw.c:siw_create_qp`).
pub(crate) fn create_qp<D: Driver>(
    context: &Context<D>,
    init: &QpInit,
) -> Result<QpSides<D>, Error> {
    init.check_context(&context.core)?;
    if !D::TRANSPORTS.contains(&init.qp_type) {
        return unsupported(CREATE_QP, format!("{} ({})", init.qp_type, D::HAS_TRANSPORTS));
    }
    let opened = &context.opened;
    let Ask { sizes: asked, part } = D::ask_qp(opened, init, asked::<D>(init, &opened.limits)?)?;
    let attr = init.request(&asked, &context.core);
    let mut answer = D::QpAnswer::default();
    let uverbs = context.core.uverbs();
    // SAFETY: the request names no memory, by the driver's promise.
    let created = unsafe { uverbs.create_qp(&attr, &part, answer.as_mut_bytes()) }?;
    let made = QpMade { uverbs, opened, init, asked, created, answer };
    let rings = D::user_index(opened, &context.indexes, created.qpn)
        .and_then(|user_index| Ok((user_index, D::qp_rings(&made)?)))
        .inspect_err(|_| {
            // SAFETY: it was just made, and no one else knows its number.
            let _ = unsafe { uverbs.destroy_qp(created.handle) };
        })?;
    let (user_index, QpRings { send, recv, cap, memory }) = rings;
    let table = |slots| {
        let table = SlotTable::new(slots);
        if D::SLOTS_IN_TURNS { table.in_turns() } else { table }
    };
    let shared = Arc::new(QpShared {
        user_index,
        send: table(send.slots()),
        recv: table(recv.slots()),
        srq: init.srq.as_ref().map(|srq| Arc::clone(srq.shared())),
        qpn: created.qpn,
        special: None,
    });
    let parts = init.parts(&created, attr.user_handle, cap, &shared, Box::new(Arc::clone(&memory)));
    // SAFETY: the kernel just made it from these, all of `context`; `shared` is new.
    let core = unsafe { QpCore::new(parts) };
    // SAFETY: just made; after an error it is dropped here.
    unsafe { core.check_overrun() }?;
    let doorbell = Doorbell::new(uverbs.clone(), created.handle);
    let rq = RqParts {
        ring: recv,
        max_wr: cap.max_recv_wr,
        // Unlimited with an SRQ, so that a post fails for the SRQ and not for its list's length.
        max_sge: if init.srq.is_some() { u32::MAX } else { cap.max_recv_sge },
        shared: Arc::clone(&shared),
        doorbell: doorbell.clone(),
        memory: Arc::clone(&memory),
    };
    // SAFETY: `memory` keeps the ring, as large as the driver says. The table has its slots, and
    // this poster is the first.
    let rq = unsafe { Rq::new(rq) };
    // SAFETY: as above.
    let sq = unsafe { Sq::new(send, cap.max_send_wr, shared, doorbell, memory) };
    Ok((core, sq, rq))
}
