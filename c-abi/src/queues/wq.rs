//! Work queues: receive queues without a queue pair, over which indirection tables spread packets.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. A queue's state is changed by
//! one thread at a time. A reset resets the ring with its lock held.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::WqState;
use uverbs_core::error::Error;
use uverbs_core::objects::wq::WqCore;
use uverbs_core::provider::{ContextOps, CqOps, NewWq, WqInit};
use uverbs_kernel_abi::wq::{
    IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING, IB_WQ_CUR_STATE, IB_WQ_FLAGS, IB_WQ_STATE, IB_WQS_RDY,
    IB_WQS_RESET, ib_uverbs_ex_modify_wq,
};

use crate::base::answer::{code, given, refuse};
use crate::base::live::Kind;
use crate::base::lock::Lock;
use crate::base::object::{Acks, Named};
use crate::device::context::Context;
use crate::memory::pd::Pd;
use crate::post::recv;
use crate::post::recv_side::RecvSide;
use crate::queues::cq::Cq;
use crate::sys::{Cond, Mutex, ibv_context, ibv_recv_wr, ibv_wq, ibv_wq_attr, ibv_wq_init_attr};

/// `IBV_WQ_INIT_ATTR_FLAGS`, all flags of the header, and all members of a change.
const ATTR_FLAGS: u32 = 1;
const KNOWN_FLAGS: u32 = 15;
const KNOWN_CHANGES: u32 = IB_WQ_STATE | IB_WQ_CUR_STATE | IB_WQ_FLAGS;
/// `IBV_WQT_RQ`, the only type.
const RECEIVES: u32 = 0;

#[repr(C)]
pub(crate) struct Wq {
    c: UnsafeCell<ibv_wq>,
    queue: Lock<RecvSide>,
    core: Arc<WqCore>,
    acks: Acks,
}

impl Wq {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(wq: *const ibv_wq) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*wq.cast() }
    }

    pub(crate) fn core(&self) -> &Arc<WqCore> {
        &self.core
    }

    pub(crate) fn queue(&self) -> &Lock<RecvSide> {
        &self.queue
    }

    pub(crate) fn acks(&self) -> &Acks {
        &self.acks
    }

    /// Completion queue of the work queue.
    fn cq(&self) -> &Cq {
        // SAFETY: the member is not changed after the creation.
        let cq = unsafe { (*self.c.get()).cq };
        // SAFETY: C's contract: a completion queue outlives the work queues that complete to it.
        unsafe { Cq::of(cq) }
    }

    /// Removes the completions of a queue that the kernel just reset, and resets its ring. One lock
    /// is held at a time: a thread may post here with the completion queue locked, between
    /// `start_poll` and `end_poll`. Posts fail meanwhile.
    fn start_over(&self) {
        self.queue.lock().enable(false);
        {
            let mut poll = self.cq().poll().lock();
            poll.settle();
            poll.sweep(self.core.shared().user_index.value());
        }
        let mut queue = self.queue.lock();
        // SAFETY: the kernel confirmed the reset, the lock is held, nothing was posted since, and
        // no completions of the queue are left in its completion queue.
        unsafe {
            drop(self.core.shared().recv.reclaim());
            queue.reset();
        }
    }
}

/// # Safety
///
/// C's contract.
unsafe fn create(context: *mut ibv_context, attr: &ibv_wq_init_attr) -> Result<*mut ibv_wq, Error> {
    let refuse = |errno| Err(Error::kernel("create_wq", errno));
    if attr.wq_type != RECEIVES || attr.comp_mask & !ATTR_FLAGS != 0 {
        return refuse(Errno::EINVAL);
    }
    let flags = if attr.comp_mask & ATTR_FLAGS == 0 { 0 } else { attr.create_flags };
    if flags & !IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING != 0 {
        return refuse(Errno::EOPNOTSUPP);
    }
    if attr.pd.is_null() || attr.cq.is_null() || attr.max_wr == 0 {
        return refuse(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let (of, pd, cq) = unsafe { (Context::of(context), Pd::of(attr.pd), Cq::of(attr.cq)) };
    let mut init = WqInit::new(Arc::clone(pd.core()), Arc::clone(cq.core()));
    // A receive without SGEs takes an entry, too.
    (init.max_wr, init.max_sge) = (attr.max_wr, attr.max_sge.max(1));
    init.strips_vlan = flags != 0;
    let NewWq { core, rq } = of.ops().create_wq(&init)?;
    let c = ibv_wq {
        context,
        wq_context: attr.wq_context,
        pd: attr.pd,
        cq: attr.cq,
        wq_num: core.wqn(),
        handle: core.handle(),
        state: WqState::Reset.raw(),
        wq_type: attr.wq_type,
        post_recv: Some(post_wq_recv),
        mutex: Mutex::default(),
        cond: Cond::default(),
        events_completed: 0,
        comp_mask: 0,
    };
    let (id, queue) = (core.event_id(), Lock::new(RecvSide::new(rq)));
    let wq = Box::new(Wq { c: UnsafeCell::new(c), queue, core, acks: Acks::default() });
    let wq = of.left().give(Kind::Wq, wq);
    of.names().add(id, Named::Wq(wq.expose_provenance()));
    Ok(wq.cast())
}

pub(crate) unsafe extern "C" fn create_wq(
    context: *mut ibv_context,
    attr: *mut ibv_wq_init_attr,
) -> *mut ibv_wq {
    // SAFETY: by C's contract.
    given(unsafe { create(context, &*attr) })
}

pub(crate) unsafe extern "C" fn modify_wq(wq: *mut ibv_wq, attr: *const ibv_wq_attr) -> c_int {
    // SAFETY: by C's contract.
    let (of, state, attr) = unsafe { (Wq::of(wq), (*wq).state, &*attr) };
    let has = |bit| attr.attr_mask & bit != 0;
    if has(IB_WQ_STATE)
        && attr.wq_state == IB_WQS_RDY
        && has(IB_WQ_CUR_STATE)
        && attr.curr_wq_state != state
    {
        // Negative, as in C's provider (`mlx5_modify_wq`).
        return -refuse(Errno::EINVAL);
    }
    if attr.attr_mask & !KNOWN_CHANGES != 0 {
        return refuse(Errno::EINVAL);
    }
    if has(IB_WQ_STATE)
        && attr.wq_state == IB_WQS_RESET
        && of.cq().poll().lock_unless_mine().is_none()
    {
        return refuse(Errno::EBUSY);
    }
    let (mut flags, mut flags_mask) = (0, 0);
    if has(IB_WQ_FLAGS) {
        if attr.flags_mask & !KNOWN_FLAGS != 0 {
            return refuse(Errno::EOPNOTSUPP);
        }
        (flags, flags_mask) = (attr.flags, attr.flags_mask);
    }
    let change = ib_uverbs_ex_modify_wq {
        attr_mask: attr.attr_mask,
        wq_handle: of.core.handle(),
        wq_state: attr.wq_state,
        curr_wq_state: attr.curr_wq_state,
        flags,
        flags_mask,
    };
    // SAFETY: by C's contract; the ring is reset below.
    let done = unsafe { of.core.modify_by_mask(change) };
    if done.is_ok() && has(IB_WQ_STATE) {
        match of.core.state() {
            WqState::Reset => of.start_over(),
            WqState::Ready => of.queue.lock().enable(true),
            WqState::Error => {}
        }
        // SAFETY: by C's contract; programs read it between their calls.
        unsafe { (*of.c.get()).state = attr.wq_state };
    }
    code(done)
}

pub(crate) unsafe extern "C" fn destroy_wq(wq: *mut ibv_wq) -> c_int {
    // SAFETY: by C's contract.
    let (of, context) = unsafe { (Wq::of(wq), Context::of((*wq).context)) };
    // SAFETY: by C's contract; the program posts no more work requests.
    if let Err(error) = unsafe { of.core.destroy() } {
        return code(Err(error));
    }
    context.names().remove(of.core.event_id());
    of.acks.wait();
    // SAFETY: the object was kept as a box of this type, and is destroyed.
    drop(unsafe { context.left().take::<Wq>(Kind::Wq, wq.cast()) });
    0
}

/// Posts to mlx5's receive queue: other providers have no work queues (`table.rs`).
///
/// # Safety
///
/// C's contract.
unsafe extern "C" fn post_wq_recv(
    wq: *const ibv_wq,
    wr: *const ibv_recv_wr,
    bad: *mut *const ibv_recv_wr,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe { recv::post::<_, uverbs_mlx5::Rq>(&Wq::of(wq).queue, wr, bad) }
}
