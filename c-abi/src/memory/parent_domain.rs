//! Thread domains and parent domains.
//!
//! A thread domain promises that one thread uses its queues. C's provider gives them a dedicated
//! doorbell register and no lock. Here each queue pair gets a dedicated register while there are
//! any, and a lock costs its owner two stores. So a thread domain is only counted.
//!
//! A parent domain combines a protection domain, a thread domain, and functions that allocate queue
//! memory.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. The program's functions return
//! valid memory.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::memory::allocator::{QueueAllocator, QueueMemory};

use crate::base::answer::{null, refuse};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::memory::pd::Pd;
use crate::sys::{
    AllocMemory, FreeMemory, ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td,
    ibv_td_init_attr,
};

/// `IBV_PARENT_DOMAIN_INIT_ATTR_*`. The third one matters only with encrypted memory; C's provider
/// ignores it elsewhere.
const ALLOCATORS: u32 = 1;
const PD_CONTEXT: u32 = 2;
const UNPROTECTED: u32 = 4;

/// `MLX5DV_RES_TYPE_*`.
fn resource(what: QueueMemory) -> u64 {
    // The upper half is the driver, `RDMA_DRIVER_MLX5`.
    let number = match what {
        QueueMemory::Qp => 1,
        QueueMemory::Record => 3,
        QueueMemory::Srq => 4,
        QueueMemory::Cq => 5,
    };
    3 << 32 | number
}

#[repr(C)]
struct Td {
    c: ibv_td,
    users: AtomicUsize,
}

/// State of a parent domain beyond its protection domain. Each object created with it holds a
/// reference.
#[derive(Debug)]
pub(crate) struct Parent {
    /// C's pointer to the parent domain.
    own: AtomicPtr<ibv_pd>,
    /// Protection domain, and thread domain or null.
    of: *mut ibv_pd,
    td: *mut ibv_td,
    functions: Option<(AllocMemory, FreeMemory)>,
    pd_context: *mut c_void,
}

// SAFETY: C's pointers go to objects that any thread may use, and to what the program's functions
// get back.
unsafe impl Send for Parent {}
// SAFETY: C's pointers go to objects that any thread may use, and to what the program's functions
// get back.
unsafe impl Sync for Parent {}

// SAFETY: the contract of a parent domain's functions (ibv_alloc_parent_domain(3)).
unsafe impl QueueAllocator for Parent {
    fn alloc(
        &self,
        what: QueueMemory,
        len: usize,
        align: usize,
    ) -> Result<Option<NonNull<u8>>, Error> {
        let Some((alloc, _)) = self.functions else { return Ok(None) };
        let own = self.own.load(Ordering::Relaxed);
        // SAFETY: by C's contract.
        let at = unsafe { alloc(own, self.pd_context, len, align, resource(what)) };
        // `IBV_ALLOCATOR_USE_DEFAULT`.
        if at.addr() == usize::MAX {
            return Ok(None);
        }
        let refused = Error::System { what: "the program's allocator", errno: Errno::ENOMEM };
        NonNull::new(at.cast()).map(Some).ok_or(refused)
    }

    unsafe fn free(&self, what: QueueMemory, at: NonNull<u8>) {
        if let Some((_, free)) = self.functions {
            let own = self.own.load(Ordering::Relaxed);
            // SAFETY: by C's contract and the contract of the caller.
            unsafe { free(own, self.pd_context, at.as_ptr().cast(), resource(what)) };
        }
    }
}

impl Parent {
    /// Protection domain of the parent domain.
    pub(crate) fn of(&self) -> *mut ibv_pd {
        self.of
    }

    /// Releases the protection domain and the thread domain.
    pub(crate) fn let_go(&self) {
        // SAFETY: C's contract: both domains outlive the parent domain, since they refuse to be
        // destroyed before.
        unsafe { Pd::of(self.of) }.parents().fetch_sub(1, Ordering::Relaxed);
        if !self.td.is_null() {
            // SAFETY: C's contract: both domains outlive the parent domain, since they refuse to be
            // destroyed before.
            unsafe { &*self.td.cast::<Td>() }.users.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *const ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: by C's contract.
    let (of, attr) = unsafe { (Context::of(context), &*attr) };
    if attr.comp_mask != 0 {
        return null(Errno::EINVAL);
    }
    let td = Box::new(Td { c: ibv_td { context }, users: AtomicUsize::new(0) });
    of.left().give(Kind::ThreadDomain, td).cast()
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: by C's contract.
    let whole = unsafe { &*td.cast::<Td>() };
    if whole.users.load(Ordering::Relaxed) != 0 {
        return refuse(Errno::EBUSY);
    }
    // SAFETY: by C's contract; the device is open.
    let of = unsafe { Context::of(whole.c.context) };
    // SAFETY: the object was kept as a box of this type, and nothing is made with it.
    drop(unsafe { of.left().take::<Td>(Kind::ThreadDomain, td.cast()) });
    0
}

pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *const ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: by C's contract.
    let attr = unsafe { &*attr };
    let has = |bit| attr.comp_mask & bit != 0;
    let functions = match (has(ALLOCATORS), attr.alloc, attr.free) {
        (false, ..) => None,
        (true, Some(alloc), Some(free)) => Some((alloc, free)),
        _ => return null(Errno::EINVAL),
    };
    if attr.pd.is_null() || attr.comp_mask & !(ALLOCATORS | PD_CONTEXT | UNPROTECTED) != 0 {
        return null(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let mut of = unsafe { Pd::of(attr.pd) };
    let mut pd = attr.pd;
    if let Some(parent) = of.parent() {
        pd = parent.of();
        // SAFETY: the protection domain outlives the parent domain.
        of = unsafe { Pd::of(pd) };
    }
    let parent = Arc::new(Parent {
        own: AtomicPtr::new(null_mut()),
        of: pd,
        td: attr.td,
        functions,
        pd_context: if has(PD_CONTEXT) { attr.pd_context } else { null_mut() },
    });
    of.parents().fetch_add(1, Ordering::Relaxed);
    if !attr.td.is_null() {
        // SAFETY: by C's contract.
        unsafe { &*attr.td.cast::<Td>() }.users.fetch_add(1, Ordering::Relaxed);
    }
    let made = Pd::with_parent(context, of, Arc::clone(&parent));
    let made = of.context().left().give(Kind::ParentDomain, made).cast();
    parent.own.store(made, Ordering::Relaxed);
    made
}

/// Returns true if an object uses the parent domain.
pub(crate) fn is_used(parent: &Arc<Parent>) -> bool {
    // The parent domain itself holds one reference.
    Arc::strong_count(parent) > 1
}
