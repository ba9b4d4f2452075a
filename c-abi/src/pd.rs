//! Protection domains.
//!
//! # Safety
//!
//! C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::sync::Arc;

use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::ContextOps;

use crate::answer::{code, kept};
use crate::context::Context;
use crate::left::Kind;
use crate::sys::{ibv_context, ibv_pd};

#[repr(C)]
pub(crate) struct Pd {
    c: ibv_pd,
    core: Arc<PdCore>,
}

impl Pd {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(pd: *const ibv_pd) -> &'a Self {
        // SAFETY: it is the first member of one of ours.
        unsafe { &*pd.cast() }
    }

    pub(crate) fn core(&self) -> &Arc<PdCore> {
        &self.core
    }

    pub(crate) fn context_ptr(&self) -> *mut ibv_context {
        self.c.context
    }

    /// The open device that it is of.
    pub(crate) fn context(&self) -> &Context {
        // SAFETY: it is open, says C's contract, since something made of it is in use.
        unsafe { Context::of(self.c.context) }
    }
}

pub(crate) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: C's contract.
    let of = unsafe { Context::of(context) };
    let made = of.ops().alloc_pd().map(|core| {
        let c = ibv_pd { context, handle: core.handle() };
        Box::new(Pd { c, core })
    });
    kept(of.left(), Kind::Pd, made).cast()
}

pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: C's contract; nothing is made in it afterwards.
    let done = unsafe { Pd::of(pd).core.deallocate() };
    if done.is_ok() {
        // SAFETY: it was made as this box, and is gone.
        drop(unsafe { Pd::of(pd).context().left().take::<Pd>(Kind::Pd, pd.cast()) });
    }
    code(done)
}
