//! Shared receive queues.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs::provider::AnySrq;
use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::objects::xrcd::XrcdCore;
use uverbs_core::provider::{ContextOps, SrqInit, SrqOps, TagsInit};
use uverbs_core::queues::tag_work::TagHandle;

use crate::base::answer::{code, given, null, refuse};
use crate::base::live::Kind;
use crate::base::lock::{Lock, Stays};
use crate::base::object::{Acks, Named};
use crate::device::context::Context;
use crate::memory::parent_domain::Parent;
use crate::memory::pd::Pd;
use crate::queues::cq::Cq;
use crate::queues::xrcd::Xrcd;
use crate::sys::{
    Cond, Mutex, ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
    ibv_srq_init_attr_ex,
};

/// `IBV_SRQ_MAX_WR`, `IBV_SRQ_LIMIT`.
const MAX_WR: c_int = 1;
const LIMIT: c_int = 2;
/// `IBV_SRQ_INIT_ATTR_TYPE`, `IBV_SRQ_INIT_ATTR_PD`, and all members of the header.
pub(crate) const ATTR_TYPE: u32 = 1;
const ATTR_PD: u32 = 2;
pub(crate) const ATTR_XRCD: u32 = 4;
pub(crate) const ATTR_CQ: u32 = 8;
const ATTR_ALL: u32 = 31;
const ATTR_TM: u32 = 16;
/// `IBV_SRQT_BASIC`, `IBV_SRQT_XRC`, `IBV_SRQT_TM`.
const BASIC: u32 = 0;
pub(crate) const XRC: u32 = 1;
const TM: u32 = 2;

impl Stays for AnySrq {}

#[repr(C)]
pub(crate) struct Srq {
    c: ibv_srq,
    queue: Lock<AnySrq>,
    core: Arc<SrqCore>,
    /// Capacity in receives; a resize changes it.
    max_wr: AtomicU32,
    acks: Acks,
    /// Guarded by `queue`: the last tag added at each index of the tag list; empty without tag
    /// matching.
    tags: UnsafeCell<Box<[Option<TagHandle>]>>,
    /// Parent domain of the queue, if any.
    _parent: Option<Arc<Parent>>,
}

impl Srq {
    /// # Safety
    ///
    /// C's contract.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(srq: *const ibv_srq) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*srq.cast() }
    }

    #[inline(always)]
    pub(crate) fn queue(&self) -> &Lock<AnySrq> {
        &self.queue
    }

    /// Last tag added at each index of the list.
    pub(crate) fn tags(&self) -> *mut Box<[Option<TagHandle>]> {
        self.tags.get()
    }

    pub(crate) fn core(&self) -> &Arc<SrqCore> {
        &self.core
    }

    pub(crate) fn acks(&self) -> &Acks {
        &self.acks
    }
}

/// Use of a queue beyond plain queue pairs: XRC with its completion queue, or tag matching.
#[derive(Default)]
struct Use {
    xrc: Option<(Arc<XrcdCore>, Arc<CqCore>)>,
    tags: Option<TagsInit>,
}

/// # Safety
///
/// C's contract.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
    Use { xrc, tags }: Use,
) -> Result<*mut ibv_srq, Error> {
    // SAFETY: by C's contract.
    let of = unsafe { Pd::of(pd) };
    let mut init = SrqInit::new(Arc::clone(of.core()));
    // A size of 0 is raised to 1: C's provider accepts it, and no ring is empty.
    (init.max_wr, init.max_sge) = (attr.max_wr.max(1), attr.max_sge.max(1));
    init.limit = attr.srq_limit;
    // The tag table has one place more than tags, because one place always stays free.
    let places = tags.as_ref().map_or(0, |tags| tags.max_tags as usize + 1);
    (init.xrc, init.tags) = (xrc, tags);
    init.allocator = of.allocator();
    let made = of.context().ops().create_srq(&init)?;
    (attr.max_wr, attr.max_sge) = (made.core.max_wr(), made.core.max_sge());
    let c = ibv_srq {
        context: of.context_ptr(),
        srq_context,
        pd,
        handle: made.core.handle(),
        mutex: Mutex::default(),
        cond: Cond::default(),
        events_completed: 0,
    };
    let id = made.core.event_id();
    let queue = Lock::new(made.srq);
    let (acks, _parent) = (Acks::default(), of.parent().cloned());
    let max_wr = AtomicU32::new(made.core.max_wr());
    let tags = UnsafeCell::new(vec![None; places].into());
    let srq = Box::new(Srq { c, queue, core: made.core, max_wr, acks, tags, _parent });
    let srq = of.context().left().give(Kind::Srq, srq);
    of.context().names().add(id, Named::Srq(srq.expose_provenance()));
    let at = srq.expose_provenance();
    let repost = move |index| {
        // SAFETY: `destroy_srq` takes this function away before the object ends. By C's contract a
        // receive's memory stays registered until its completion, which the program did not see.
        unsafe { (*std::ptr::with_exposed_provenance::<Srq>(at)).queue.lock().repost(index) }
    };
    // SAFETY: the object was just made.
    unsafe { (*srq).core.shared().set_reposter(Some(Box::new(repost))) };
    Ok(srq.cast())
}

pub(crate) unsafe extern "C" fn create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: by C's contract.
    given(unsafe { create(pd, (*init).srq_context, &mut (*init).attr, Use::default()) })
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    _: *const ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: by C's contract.
    let init = unsafe { &mut *init };
    let has = |bits| init.comp_mask & bits == bits;
    let srq_type = if has(ATTR_TYPE) { init.srq_type } else { BASIC };
    if init.comp_mask & !ATTR_ALL != 0 || !has(ATTR_PD) {
        // Error number of libibverbs for an unknown member.
        let unknown = srq_type == TM && has(ATTR_PD);
        return null(if unknown { Errno::EOPNOTSUPP } else { Errno::EINVAL });
    }
    let mut of = Use::default();
    match srq_type {
        BASIC => {}
        XRC if has(ATTR_XRCD | ATTR_CQ) => {
            // SAFETY: by C's contract.
            let (xrcd, cq) = unsafe { (Xrcd::of(init.xrcd), Cq::of(init.cq)) };
            of.xrc = Some((Arc::clone(xrcd.core()), Arc::clone(cq.core())));
        }
        TM if has(ATTR_CQ | ATTR_TM) && !init.cq.is_null() => {
            // SAFETY: by C's contract.
            let cq = unsafe { Cq::of(init.cq) };
            if !cq.is_extended() {
                return null(Errno::EINVAL);
            }
            // C's provider rounds the changes in flight up to a power of two.
            let max_changes = init.tm_cap.max_ops.checked_next_power_of_two().unwrap_or(u32::MAX);
            let (cq, max_tags) = (Arc::clone(cq.core()), init.tm_cap.max_num_tags);
            of.tags = Some(TagsInit { cq, max_tags, max_changes });
        }
        _ => return null(Errno::EINVAL),
    }
    let for_tags = of.tags.is_some();
    // SAFETY: by C's contract.
    let made = unsafe { create(init.pd, init.srq_context, &mut init.attr, of) };
    match made {
        // Linux's error number for the queue pair that changes the tag list, on Ethernet
        // (`rdma_check_ah_attr`).
        Err(Error::Unsupported { .. }) if for_tags => null(Errno::EINVAL),
        made => given(made),
    }
}

pub(crate) unsafe extern "C" fn modify_srq(
    srq: *mut ibv_srq,
    attr: *const ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: by C's contract.
    let (srq, attr) = unsafe { (Srq::of(srq), &*attr) };
    let mut queue = srq.queue.lock();
    if mask & MAX_WR != 0 {
        match queue.resize(&srq.core, attr.max_wr) {
            Ok(granted) => srq.max_wr.store(granted, Ordering::Relaxed),
            // Error number of mlx5_ib (`mlx5_ib_modify_srq`).
            Err(Error::Unsupported { .. }) => return refuse(Errno::EINVAL),
            Err(error) => return code(Err(error)),
        }
    }
    if mask & LIMIT != 0 {
        if attr.srq_limit > srq.max_wr.load(Ordering::Relaxed) {
            return refuse(Errno::EINVAL);
        }
        return code(queue.set_limit(&srq.core, attr.srq_limit));
    }
    0
}

pub(crate) unsafe extern "C" fn query_srq(
    srq: *mut ibv_srq,
    attr: *mut MaybeUninit<ibv_srq_attr>,
) -> c_int {
    // SAFETY: by C's contract.
    let srq = unsafe { Srq::of(srq) };
    let found = srq.core.query().map(|found| ibv_srq_attr {
        max_wr: srq.max_wr.load(Ordering::Relaxed),
        max_sge: found.max_sge,
        srq_limit: found.limit,
    });
    code(found.map(|found| {
        // SAFETY: by C's contract.
        unsafe { (*attr).write(found) };
    }))
}

pub(crate) unsafe extern "C" fn get_srq_num(srq: *const ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: by C's contract.
    unsafe { *number = Srq::of(srq).core.srqn() };
    0
}

pub(crate) unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: by C's contract.
    let (of, context) = unsafe { (Srq::of(srq), Context::of((*srq).context)) };
    if let Err(error) = of.queue.lock().close_tags() {
        return code(Err(error));
    }
    // SAFETY: by C's contract; the program posts no more work requests.
    if let Err(error) = unsafe { of.core.destroy() } {
        return code(Err(error));
    }
    context.names().remove(of.core.event_id());
    of.core.shared().set_reposter(None);
    of.acks.wait();
    // SAFETY: the object was kept as a box of this type, and is destroyed.
    drop(unsafe { context.left().take::<Srq>(Kind::Srq, srq.cast()) });
    0
}
