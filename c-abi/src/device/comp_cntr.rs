//! Completion counters. Error numbers and their order are from rdma-core 65: `cmd_comp_cntr.c`,
//! `cmd_device.c:ibv_cmd_query_comp_cntr_caps`, `verbs.c:efa_create_comp_cntr_impl` and the
//! functions after it.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. A struct has as many bytes as
//! the program says. Memory of the program's own holds a count until the counter is destroyed.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::os::fd::RawFd;

use uverbs::provider::AnyContext;
use uverbs_core::Errno;
use uverbs_core::attr::CountedOps;
use uverbs_core::commands::comp_cntr::{Count, CountChange};
use uverbs_core::objects::comp_cntr::CompCntrCore;
use uverbs_core::order::device_memory;
use uverbs_kernel_abi::comp_cntr::{
    IB_UVERBS_BUFFER_TYPE_DMABUF, IB_UVERBS_BUFFER_TYPE_VA, ib_uverbs_buffer_desc,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::base::answer::{code, kept, null, refuse};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::efadv::sized::read;
use crate::sys::{ibv_context, ibv_qp};

/// `struct ibv_comp_cntr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CompCntr {
    context: *mut ibv_context,
    handle: u32,
}

/// `struct ibv_comp_cntr_init_attr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct InitAttr {
    comp_mask: u32,
    /// `IBV_COMP_CNTR_TYPE_*`.
    kind: u32,
    flags: u32,
}

/// `struct ibv_comp_cntr_caps`.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Caps {
    max_value: u64,
    max_counters: u32,
    supported_qp_attach_ops: u32,
}

/// `struct ibv_qp_attach_comp_cntr_attr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct AttachAttr {
    comp_mask: u32,
    op_mask: u32,
}

/// `struct efadv_memory_location`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct Location {
    ptr: u64,
    offset: u64,
    fd: RawFd,
    reserved: u32,
    /// [`VA`] or [`DMABUF`].
    kind: u8,
    rest: [u8; 7],
}

/// `struct efadv_comp_cntr_init_attr`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct EfaInitAttr {
    comp_mask: u64,
    /// [`OWN_MEMORY`].
    flags: u32,
    reserved: u32,
    memory: [Location; 2],
}

const _: () = assert!(size_of::<Location>() == 32 && size_of::<EfaInitAttr>() == 80);
const _: () = assert!(size_of::<CompCntr>() == 16 && size_of::<Caps>() == 16);

/// Bits of all operations.
const KNOWN_OPS: u32 = (CountedOps::REMOTE_WRITE.bits() << 1) - 1;
/// `IBV_COMP_CNTR_TYPE_WRS`.
const WRS: u32 = 0;
/// `EFADV_MEMORY_LOCATION_*`.
const VA: u8 = 0;
const DMABUF: u8 = 1;
/// `EFADV_COMP_CNTR_INIT_WITH_*_EXTERNAL_MEM`, of successes and of failures.
const OWN_MEMORY: [u32; 2] = [1, 1 << 1];

#[repr(C)]
struct Counter {
    c: CompCntr,
    core: CompCntrCore,
    /// Program's addresses of successes and failures; `None`: the library's memory. Null of a
    /// dma-buf that is not mapped.
    at: [Option<*const u64>; 2],
}

impl Counter {
    /// # Safety
    ///
    /// C's contract.
    unsafe fn of<'a>(counter: *const CompCntr) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*counter.cast() }
    }

    /// Reads a count.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for memory that the process does not map.
    fn value(&self, count: Count) -> Result<u64, Errno> {
        let counts = self.core.counts();
        match (count, self.at[count as usize]) {
            (Count::Completed, None) => Ok(counts.completed),
            (Count::Failed, None) => Ok(counts.failed),
            (_, Some(at)) if at.is_null() => Err(Errno::EOPNOTSUPP),
            // SAFETY: by C's contract the program's memory holds the count.
            (_, Some(at)) => Ok(unsafe { device_memory::read(at) }),
        }
    }
}

/// True if the device is an Elastic Fabric Adapter.
///
/// # Safety
///
/// C's contract.
unsafe fn is_efa(context: *const ibv_context) -> bool {
    // SAFETY: by C's contract.
    matches!(unsafe { Context::of(context) }.ops(), AnyContext::Efa(_))
}

pub(crate) unsafe extern "C" fn query_caps(
    context: *mut ibv_context,
    caps: *mut Caps,
    len: usize,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe { caps.cast::<u8>().write_bytes(0, len) };
    // SAFETY: by C's contract.
    if !unsafe { is_efa(context) } {
        return refuse(Errno::EOPNOTSUPP);
    }
    if len < size_of::<Caps>() {
        return refuse(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let found = unsafe { Context::of(context) }.core().uverbs().query_comp_cntr_caps();
    code(found.map(|found| {
        let ops = found.ops.bits() & KNOWN_OPS;
        let found = Caps {
            max_value: found.max_value,
            max_counters: found.max_counters,
            supported_qp_attach_ops: ops,
        };
        // SAFETY: by C's contract; the struct has room.
        unsafe { caps.write(found) };
    }))
}

pub(crate) unsafe extern "C" fn create_comp_cntr(
    context: *mut ibv_context,
    attr: *const InitAttr,
) -> *mut CompCntr {
    // SAFETY: by C's contract.
    match unsafe { is_efa(context) } {
        // SAFETY: by C's contract.
        true => unsafe { create(context, &*attr, &EfaInitAttr::default()) },
        false => null(Errno::EOPNOTSUPP),
    }
}

/// Creates a counter, whose counts may be in the program's memory.
pub(crate) unsafe extern "C" fn create_efa(
    context: *mut ibv_context,
    attr: *const InitAttr,
    own: *const EfaInitAttr,
    len: u32,
) -> *mut CompCntr {
    // SAFETY: by C's contract.
    if !unsafe { is_efa(context) } {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: by C's contract.
    match unsafe { read(own, len, size_of::<EfaInitAttr>()) } {
        // SAFETY: by C's contract.
        Ok(own) => unsafe { create(context, &*attr, &own) },
        Err(errno) => null(errno),
    }
}

/// # Safety
///
/// C's contract.
unsafe fn create(context: *mut ibv_context, attr: &InitAttr, own: &EfaInitAttr) -> *mut CompCntr {
    let is_known = attr.comp_mask == 0
        && attr.flags == 0
        && attr.kind == WRS
        && own.comp_mask == 0
        && own.flags & !(OWN_MEMORY[0] | OWN_MEMORY[1]) == 0
        && own.memory.iter().all(|location| [VA, DMABUF].contains(&location.kind));
    if !is_known {
        return null(Errno::EOPNOTSUPP);
    }
    let own = [0, 1].map(|count| (own.flags & OWN_MEMORY[count] != 0).then_some(own.memory[count]));
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    // SAFETY: by C's contract the program keeps the memory that it names.
    let made = unsafe { uverbs_efa::comp_cntr::create(of.core(), own.map(described)) };
    let made = made.map(|core| {
        let c = CompCntr { context, handle: core.handle() };
        let at = own.map(|own| own.map(|own| std::ptr::with_exposed_provenance(own.ptr as usize)));
        Box::new(Counter { c, core, at })
    });
    kept(of.left(), Kind::CompCntr, made).cast()
}

/// Program's memory as the kernel's request describes it.
fn described(location: Option<Location>) -> Option<ib_uverbs_buffer_desc> {
    let location = location?;
    let (r#type, fd, addr) = match location.kind {
        DMABUF => (IB_UVERBS_BUFFER_TYPE_DMABUF, location.fd, location.offset),
        _ => (IB_UVERBS_BUFFER_TYPE_VA, 0, location.ptr),
    };
    let length = size_of::<u64>() as u64;
    Some(ib_uverbs_buffer_desc { r#type, fd, addr, length, ..Default::default() })
}

pub(crate) unsafe extern "C" fn destroy_comp_cntr(counter: *mut CompCntr) -> c_int {
    // SAFETY: by C's contract.
    let all = unsafe { &mut *counter.cast::<Counter>() };
    let (context, done) = (all.c.context, all.core.destroy());
    if done.is_ok() {
        // SAFETY: by C's contract; the device stays open while its counters exist.
        let left = unsafe { Context::of(context) }.left();
        // SAFETY: the counter was kept as a box of this type, and is destroyed.
        drop(unsafe { left.take::<Counter>(Kind::CompCntr, counter.cast()) });
    }
    code(done)
}

pub(crate) unsafe extern "C" fn attach(
    qp: *mut ibv_qp,
    counter: *const CompCntr,
    attr: *const AttachAttr,
) -> c_int {
    // SAFETY: by C's contract.
    let (qp, attr) = unsafe { (&*qp, &*attr) };
    // SAFETY: by C's contract.
    let Counter { c, core, .. } = unsafe { Counter::of(counter) };
    // The queue pair's device has the call (rdma-core `verbs.c:ibv_qp_attach_comp_cntr`).
    // SAFETY: by C's contract.
    if !unsafe { is_efa(qp.context) } {
        return refuse(Errno::EOPNOTSUPP);
    }
    // A counter's handle means another object, or none, in another context.
    if qp.context != c.context {
        return refuse(Errno::EINVAL);
    }
    // Unknown operations are dropped, as by `ibv_cmd_qp_attach_comp_cntr`.
    let ops = CountedOps::from_bits_retain(attr.op_mask & KNOWN_OPS);
    code(core.context().uverbs().attach_comp_cntr(qp.handle, core.handle(), ops))
}

/// # Safety
///
/// C's contract.
unsafe fn change(counter: *const CompCntr, count: Count, change: CountChange) -> c_int {
    // SAFETY: by C's contract.
    code(unsafe { Counter::of(counter) }.core.modify(count, change))
}

pub(crate) unsafe extern "C" fn set_completed(counter: *const CompCntr, value: u64) -> c_int {
    // SAFETY: by C's contract.
    unsafe { change(counter, Count::Completed, CountChange::Set(value)) }
}

pub(crate) unsafe extern "C" fn set_failed(counter: *const CompCntr, value: u64) -> c_int {
    // SAFETY: by C's contract.
    unsafe { change(counter, Count::Failed, CountChange::Set(value)) }
}

pub(crate) unsafe extern "C" fn add_completed(counter: *const CompCntr, amount: u64) -> c_int {
    // SAFETY: by C's contract.
    unsafe { change(counter, Count::Completed, CountChange::Add(amount)) }
}

pub(crate) unsafe extern "C" fn add_failed(counter: *const CompCntr, amount: u64) -> c_int {
    // SAFETY: by C's contract.
    unsafe { change(counter, Count::Failed, CountChange::Add(amount)) }
}

/// # Safety
///
/// C's contract.
unsafe fn tell(counter: *const CompCntr, count: Count, to: *mut u64) -> c_int {
    // SAFETY: by C's contract.
    match unsafe { Counter::of(counter) }.value(count) {
        Ok(value) => {
            // SAFETY: by C's contract.
            unsafe { to.write(value) };
            0
        }
        Err(errno) => refuse(errno),
    }
}

pub(crate) unsafe extern "C" fn read_completed(counter: *const CompCntr, to: *mut u64) -> c_int {
    // SAFETY: by C's contract.
    unsafe { tell(counter, Count::Completed, to) }
}

pub(crate) unsafe extern "C" fn read_failed(counter: *const CompCntr, to: *mut u64) -> c_int {
    // SAFETY: by C's contract.
    unsafe { tell(counter, Count::Failed, to) }
}
