//! Completion queues: making, arming and destroying them.
//!
//! # Safety
//!
//! C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use uverbs::provider::AnyCq;
use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::provider::{ContextOps, CqInit, CqOps, Notify};

use crate::answer::{boxed, code, given, null};
use crate::channel::Channel;
use crate::context::Context;
use crate::cq_ex::{self, Shown};
use crate::lock::Lock;
use crate::object::{Acks, Named};
use crate::sys::{Cond, Mutex, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex};

#[repr(C)]
pub(crate) struct Cq {
    c: UnsafeCell<ibv_cq_ex>,
    /// Before `core`: its pointers go into memory that `core` keeps.
    poll: Lock<AnyCq>,
    /// The completion that the functions of an extended queue read; of whoever holds `poll`.
    shown: UnsafeCell<Shown>,
    core: Arc<CqCore>,
    /// Whether the device is a thread of this process.
    embedded: bool,
    comp_acks: Acks,
    async_acks: Acks,
}

impl Cq {
    /// # Safety
    ///
    /// C's contract.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(cq: *const ibv_cq) -> &'a Self {
        // SAFETY: it is the first member of one of ours.
        unsafe { &*cq.cast() }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Arc<CqCore> {
        &self.core
    }

    #[inline(always)]
    pub(crate) fn poll(&self) -> &Lock<AnyCq> {
        &self.poll
    }

    #[inline(always)]
    pub(crate) fn shown(&self) -> *mut Shown {
        self.shown.get()
    }

    #[inline(always)]
    pub(crate) fn c(&self) -> *mut ibv_cq_ex {
        self.c.get()
    }

    /// A poll found nothing. An embedded device's thread may want the processor of a program that
    /// polls without end.
    #[inline(always)]
    pub(crate) fn found_nothing(&self) {
        if self.embedded {
            std::thread::yield_now();
        }
    }

    pub(crate) fn comp_acks(&self) -> &Acks {
        &self.comp_acks
    }

    pub(crate) fn async_acks(&self) -> &Acks {
        &self.async_acks
    }
}

/// Makes a queue and gives it its name.
///
/// # Safety
///
/// C's contract; the channel may be null.
pub(crate) unsafe fn create(
    context: *mut ibv_context,
    mut init: CqInit,
    channel: *mut ibv_comp_channel,
    cq_context: *mut c_void,
) -> Result<*mut ibv_cq_ex, Error> {
    // SAFETY: C's contract.
    let of = unsafe { Context::of(context) };
    if !channel.is_null() {
        // SAFETY: as above.
        init.channel = Some(Arc::clone(unsafe { Channel::core(channel) }));
    }
    let (core, poll) = of.ops().create_cq(&init)?;
    let id = core.event_id();
    let base = ibv_cq {
        context,
        channel,
        cq_context,
        handle: core.handle(),
        // What the device has room for: each poll gives all its entries back.
        cqe: (core.capacity() + core.lag() - 1) as c_int,
        mutex: Mutex::default(),
        cond: Cond::default(),
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let cq = boxed(Ok(Box::new(Cq {
        c: UnsafeCell::new(cq_ex::functions(base)),
        poll: Lock::new(poll),
        shown: UnsafeCell::default(),
        core,
        embedded: of.is_embedded(),
        comp_acks: Acks::default(),
        async_acks: Acks::default(),
    })));
    of.names().add(id, Named::Cq(cq.expose_provenance()));
    // SAFETY: C's contract.
    unsafe { Channel::count(channel, 1) };
    Ok(cq.cast())
}

pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    if cqe <= 0 {
        return null(Errno::EINVAL);
    }
    let mut init = CqInit::new(cqe as u32);
    init.comp_vector = comp_vector as u32;
    // SAFETY: C's contract.
    given(unsafe { create(context, init, channel, cq_context) }).cast()
}

pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: C's contract.
    let (of, context, channel) = unsafe { (Cq::of(cq), Context::of((*cq).context), (*cq).channel) };
    // SAFETY: the program uses it no more.
    if let Err(error) = unsafe { of.core.destroy() } {
        return code(Err(error));
    }
    context.names().remove(of.core.event_id());
    of.comp_acks.wait();
    of.async_acks.wait();
    // SAFETY: C's contract: a channel outlives its queues.
    unsafe { Channel::count(channel, -1) };
    // SAFETY: it was made as this box, and is gone.
    drop(unsafe { Box::<Cq>::from_raw(cq.cast()) });
    0
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *const ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: C's contract.
    let cq = unsafe { Cq::of(cq) };
    let notify = if solicited_only == 0 { Notify::Any } else { Notify::Solicited };
    if cq.core.check_armed().is_err() {
        // C writes the doorbell of a queue that reports to nobody, too.
        return 0;
    }
    code(cq.poll.lock().arm(notify))
}
