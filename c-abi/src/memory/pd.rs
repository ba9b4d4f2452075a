//! Protection domains.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uverbs_core::Errno;
use uverbs_core::memory::allocator::QueueAllocator;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::ContextOps;

use crate::base::answer::{code, kept, refuse};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::memory::parent_domain::{Parent, is_used};
use crate::memory::scratch::Scratch;
use crate::sys::{ibv_context, ibv_pd};

#[repr(C)]
pub(crate) struct Pd {
    c: ibv_pd,
    core: Arc<PdCore>,
    /// Number of parent domains of this domain.
    parents: AtomicUsize,
    /// State of a parent domain.
    parent: Option<Arc<Parent>>,
    imported: bool,
    scratch: Scratch,
}

impl Pd {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(pd: *const ibv_pd) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*pd.cast() }
    }

    /// Creates a parent domain of this domain.
    pub(crate) fn with_parent(
        context: *mut ibv_context,
        of: &Self,
        parent: Arc<Parent>,
    ) -> Box<Self> {
        let (c, core) = (ibv_pd { context, handle: of.c.handle }, Arc::clone(&of.core));
        let parents = AtomicUsize::new(0);
        let scratch = Scratch::default();
        Box::new(Self { c, core, parents, parent: Some(parent), imported: false, scratch })
    }

    pub(crate) fn parents(&self) -> &AtomicUsize {
        &self.parents
    }

    pub(crate) fn parent(&self) -> Option<&Arc<Parent>> {
        self.parent.as_ref()
    }

    /// Allocator of queue memory, if this is a parent domain.
    pub(crate) fn allocator(&self) -> Option<Arc<dyn QueueAllocator>> {
        Some(Arc::clone(self.parent()?) as Arc<dyn QueueAllocator>)
    }

    /// Scratch memory of the queue pairs that copy.
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub(crate) fn core(&self) -> &Arc<PdCore> {
        &self.core
    }

    pub(crate) fn context_ptr(&self) -> *mut ibv_context {
        self.c.context
    }

    /// Open device of the domain.
    pub(crate) fn context(&self) -> &Context {
        // SAFETY: by C's contract; the device is open while its domain is in use.
        unsafe { Context::of(self.c.context) }
    }
}

pub(crate) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    let made = of.ops().alloc_pd().map(|core| {
        let c = ibv_pd { context, handle: core.handle() };
        own(c, core, false)
    });
    kept(of.left(), Kind::Pd, made).cast()
}

/// Creates a plain protection domain.
fn own(c: ibv_pd, core: Arc<PdCore>, imported: bool) -> Box<Pd> {
    let (parents, scratch) = (AtomicUsize::new(0), Scratch::default());
    Box::new(Pd { c, core, parents, parent: None, imported, scratch })
}

/// Imports a domain by its handle. Dropping the object leaves the domain allocated.
pub(crate) unsafe extern "C" fn import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    // SAFETY: by C's contract; the creator shares the domain with this program.
    let made = unsafe { of.ops().import_pd(handle) }.map(|core| {
        let c = ibv_pd { context, handle };
        own(c, core, true)
    });
    kept(of.left(), Kind::Pd, made).cast()
}

pub(crate) unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: C's contract: it was imported, and nothing is made in it any more.
    drop(unsafe { Pd::of(pd).context().left().take::<Pd>(Kind::Pd, pd.cast()) });
}

pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: by C's contract.
    let of = unsafe { Pd::of(pd) };
    if of.parents.load(Ordering::Relaxed) != 0 {
        return refuse(Errno::EBUSY);
    }
    if let Some(parent) = &of.parent {
        if is_used(parent) {
            return refuse(Errno::EBUSY);
        }
        parent.let_go();
        // SAFETY: the object was kept as a box of this type, and nothing is made in it.
        drop(unsafe { of.context().left().take::<Pd>(Kind::ParentDomain, pd.cast()) });
        return 0;
    }
    // SAFETY: by C's contract; no object is created in the domain any more. Programs that share a
    // domain agree on which of them deallocates it.
    let done = unsafe {
        match of.imported {
            true => of.context().core().uverbs().dealloc_pd(of.c.handle),
            false => of.core.deallocate(),
        }
    };
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Pd::of(pd).context().left().take::<Pd>(Kind::Pd, pd.cast()) });
    }
    code(done)
}
