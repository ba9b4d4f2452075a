//! Commands to a ConnectX itself (DEVX), and what they name: objects, memory, doorbell pages.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. The program is responsible for
//! the effects of its commands.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::slice;

use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_mlx5::{Uar, devx};

use crate::base::answer::{boxed, code, minus_one, null, refuse};
use crate::device::context::Context;
use crate::post::request::memory;
use crate::sys::ibv_context;

/// Commands of an open ConnectX; `None` for other devices.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn uverbs<'a>(context: *const ibv_context) -> Option<&'a Uverbs> {
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    of.mlx5().map(|_| of.core().uverbs())
}

/// Output buffer of a command.
///
/// # Safety
///
/// C's contract: the buffer has that many bytes, and other threads do not read it.
unsafe fn room<'a>(out: *mut c_void, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: by the contract of `room`.
    unsafe { slice::from_raw_parts_mut(out.cast(), len) }
}

pub(crate) unsafe extern "C" fn general_cmd(
    context: *const ibv_context,
    request: *const c_void,
    length: usize,
    out: *mut c_void,
    room_for: usize,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe {
        let Some(uverbs) = uverbs(context) else { return refuse(Errno::EOPNOTSUPP) };
        code(devx::general(uverbs, memory(request.cast(), length), room(out, room_for)))
    }
}

/// `struct mlx5dv_devx_obj`, opaque to programs.
#[derive(Debug)]
pub(crate) struct Object {
    context: *mut ibv_context,
    handle: u32,
}

impl Object {
    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    /// # Safety
    ///
    /// C's contract.
    unsafe fn uverbs(&self) -> &Uverbs {
        // SAFETY: C's contract: the device is open while its objects are in use.
        unsafe { Context::of(self.context) }.core().uverbs()
    }
}

pub(crate) unsafe extern "C" fn obj_create(
    context: *mut ibv_context,
    request: *const c_void,
    length: usize,
    out: *mut c_void,
    room_for: usize,
) -> *mut Object {
    // SAFETY: by C's contract.
    unsafe {
        let Some(uverbs) = uverbs(context) else { return null(Errno::EOPNOTSUPP) };
        let made = devx::create(uverbs, memory(request.cast(), length), room(out, room_for));
        boxed(made.map(|handle| Box::new(Object { context, handle })))
    }
}

pub(crate) unsafe extern "C" fn obj_destroy(object: *mut Object) -> c_int {
    // SAFETY: by C's contract.
    let done = unsafe { devx::destroy((*object).uverbs(), (*object).handle) };
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Box::from_raw(object) });
    }
    code(done)
}

/// A command about an object: [`devx::query`] or [`devx::modify`].
type About = unsafe fn(&Uverbs, u32, &[u8], &mut [u8]) -> Result<(), Error>;

/// Sends a command about an object.
///
/// # Safety
///
/// C's contract.
unsafe fn send_about(
    about: About,
    object: *const Object,
    (request, length): (*const c_void, usize),
    (out, room_for): (*mut c_void, usize),
) -> c_int {
    // SAFETY: by the contract of `send_about`.
    code(unsafe {
        let (request, out) = (memory(request.cast(), length), room(out, room_for));
        about((*object).uverbs(), (*object).handle, request, out)
    })
}

pub(crate) unsafe extern "C" fn obj_query(
    object: *const Object,
    request: *const c_void,
    length: usize,
    out: *mut c_void,
    room_for: usize,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe { send_about(devx::query, object, (request, length), (out, room_for)) }
}

pub(crate) unsafe extern "C" fn obj_modify(
    object: *const Object,
    request: *const c_void,
    length: usize,
    out: *mut c_void,
    room_for: usize,
) -> c_int {
    // SAFETY: by C's contract.
    unsafe { send_about(devx::modify, object, (request, length), (out, room_for)) }
}

/// `struct mlx5dv_devx_cmd_comp`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Answers {
    fd: c_int,
}

pub(crate) unsafe extern "C" fn obj_query_async(
    object: *const Object,
    request: *const c_void,
    length: usize,
    room_for: usize,
    id: u64,
    to: *const Answers,
) -> c_int {
    // SAFETY: by C's contract.
    code(unsafe {
        let request = memory(request.cast(), length);
        let (len, to) = (room_for as u64, BorrowedFd::borrow_raw((*to).fd));
        devx::query_later((*object).uverbs(), (*object).handle, request, len, id, to)
    })
}

/// Exports an object's handle, by which another process with the same open device imports it.
pub(crate) unsafe extern "C" fn obj_export(object: *const Object, to: *mut u32) -> c_int {
    // SAFETY: C's contract: `to` has the size that `get_export_sizes` returned.
    unsafe { to.write_unaligned((*object).handle) };
    0
}

pub(crate) unsafe extern "C" fn obj_import(
    context: *mut ibv_context,
    from: *const u32,
) -> *mut Object {
    // SAFETY: by C's contract.
    unsafe {
        if uverbs(context).is_none() {
            return null(Errno::EOPNOTSUPP);
        }
        Box::into_raw(Box::new(Object { context, handle: from.read_unaligned() }))
    }
}

pub(crate) unsafe extern "C" fn obj_unimport(object: *mut Object) {
    // SAFETY: C's contract: the object was kept as a box of this type, and is used no more.
    drop(unsafe { Box::from_raw(object) });
}

/// `struct mlx5dv_devx_umem` and its private members.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Umem {
    umem_id: u32,
    handle: u32,
    context: *mut ibv_context,
}

/// `struct mlx5dv_devx_umem_in`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct UmemIn {
    addr: *mut c_void,
    size: usize,
    access: u32,
    pgsz_bitmap: u64,
    comp_mask: u64,
    dmabuf_fd: c_int,
}

const _: () = assert!(size_of::<UmemIn>() == 48);

/// `MLX5DV_UMEM_MASK_DMABUF`.
const DMABUF: u64 = 1;

/// # Safety
///
/// C's contract.
unsafe fn register(context: *mut ibv_context, init: &devx::UmemInit<'_>) -> *mut Umem {
    // SAFETY: by C's contract.
    let Some(uverbs) = (unsafe { uverbs(context) }) else { return null(Errno::EOPNOTSUPP) };
    // SAFETY: by C's contract; the program keeps the memory mapped while it is registered.
    let made = unsafe { devx::register(uverbs, init) };
    boxed(made.map(|(handle, umem_id)| Box::new(Umem { umem_id, handle, context })))
}

pub(crate) unsafe extern "C" fn umem_reg(
    context: *mut ibv_context,
    addr: *mut c_void,
    size: usize,
    access: u32,
) -> *mut Umem {
    let (addr, len) = (addr.expose_provenance() as u64, size as u64);
    let init = devx::UmemInit { addr, len, access, page_sizes: None, buffer: None };
    // SAFETY: by C's contract.
    unsafe { register(context, &init) }
}

pub(crate) unsafe extern "C" fn umem_reg_ex(
    context: *mut ibv_context,
    from: *const UmemIn,
) -> *mut Umem {
    // SAFETY: by C's contract.
    let from = unsafe { &*from };
    if from.comp_mask & !DMABUF != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    let of_file = from.comp_mask & DMABUF != 0;
    if of_file && from.dmabuf_fd < 0 {
        return null(Errno::EBADF);
    }
    let init = devx::UmemInit {
        addr: from.addr.expose_provenance() as u64,
        len: from.size as u64,
        access: from.access,
        page_sizes: Some(from.pgsz_bitmap),
        // SAFETY: C's contract: an open file.
        buffer: of_file.then(|| unsafe { BorrowedFd::borrow_raw(from.dmabuf_fd) }),
    };
    // SAFETY: by C's contract.
    unsafe { register(context, &init) }
}

pub(crate) unsafe extern "C" fn umem_dereg(umem: *mut Umem) -> c_int {
    // SAFETY: by C's contract.
    let done = unsafe {
        let uverbs = Context::of((*umem).context).core().uverbs();
        devx::deregister(uverbs, (*umem).handle)
    };
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Box::from_raw(umem) });
    }
    code(done)
}

pub(crate) unsafe extern "C" fn umem_export(umem: *const Umem, to: *mut [u32; 2]) -> c_int {
    // SAFETY: C's contract: `to` has the size that `get_export_sizes` returned.
    unsafe { to.write_unaligned([(*umem).handle, (*umem).umem_id]) };
    0
}

pub(crate) unsafe extern "C" fn umem_import(
    context: *mut ibv_context,
    from: *const [u32; 2],
) -> *mut Umem {
    // SAFETY: by C's contract.
    unsafe {
        if uverbs(context).is_none() {
            return null(Errno::EOPNOTSUPP);
        }
        let [handle, umem_id] = from.read_unaligned();
        Box::into_raw(Box::new(Umem { umem_id, handle, context }))
    }
}

pub(crate) unsafe extern "C" fn umem_unimport(umem: *mut Umem) {
    // SAFETY: C's contract: the object was kept as a box of this type, and is used no more.
    drop(unsafe { Box::from_raw(umem) });
}

/// `struct mlx5dv_export_sizes`: sizes of exported VARs (unsupported), memory and objects.
pub(crate) unsafe extern "C" fn export_sizes(sizes: *mut u32, size: usize) {
    let ours = [0, size_of::<[u32; 2]>() as u32, size_of::<u32>() as u32];
    for (at, bytes) in
        (0..size / size_of::<u32>()).zip(ours.into_iter().chain(std::iter::repeat(0)))
    {
        // SAFETY: C's contract: there is room for `size` bytes.
        unsafe { sizes.add(at).write(bytes) };
    }
}

/// `struct mlx5dv_devx_uar` and its private members.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Page {
    reg_addr: *mut c_void,
    base_addr: *mut c_void,
    page_id: u32,
    mmap_off: u64,
    comp_mask: u64,
    uar: Uar,
}

const _: () = assert!(std::mem::offset_of!(Page, comp_mask) == 32);

/// `MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC`, a register that C programs share, and
/// `MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED`.
const NOT_CACHED: u32 = 1;
const OWN_NOT_CACHED: u32 = 1 << 31;

pub(crate) unsafe extern "C" fn alloc_uar(context: *mut ibv_context, flags: u32) -> *mut Page {
    // SAFETY: by C's contract.
    let Some(uverbs) = (unsafe { uverbs(context) }) else { return null(Errno::EOPNOTSUPP) };
    if flags & !(NOT_CACHED | OWN_NOT_CACHED) != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    let whole = |uar: Uar| {
        Box::new(Page {
            reg_addr: uar.register().cast(),
            base_addr: uar.as_ptr().cast(),
            page_id: uar.page_id(),
            mmap_off: uar.mmap_offset(),
            comp_mask: 0,
            uar,
        })
    };
    boxed(devx::alloc_uar(uverbs, flags == 0).map(whole))
}

pub(crate) unsafe extern "C" fn free_uar(page: *mut Page) {
    // SAFETY: C's contract: the object was kept as a box of this type, and is used no more.
    drop(unsafe { Box::from_raw(page) });
}

pub(crate) unsafe extern "C" fn uar_export_dmabuf_fd(page: *const Page) -> c_int {
    // SAFETY: by C's contract.
    match unsafe { (*page).uar.export_dmabuf() } {
        Ok(file) => file.into_raw_fd(),
        Err(error) => minus_one(error.to_errno()),
    }
}

pub(crate) unsafe extern "C" fn query_eqn(
    context: *const ibv_context,
    vector: u32,
    eqn: *mut u32,
) -> c_int {
    // SAFETY: by C's contract.
    let Some(uverbs) = (unsafe { uverbs(context) }) else { return refuse(Errno::EOPNOTSUPP) };
    // SAFETY: by C's contract.
    code(devx::event_queue(uverbs, vector).map(|number| unsafe { eqn.write(number) }))
}

/// Closes a file that a C struct holds by its number.
///
/// # Safety
///
/// `fd` is an open file, and the caller is its only owner.
pub(crate) unsafe fn close(fd: c_int) {
    // SAFETY: by the contract of `close`.
    unsafe { libc::close(fd) };
}

pub(crate) unsafe extern "C" fn create_cmd_comp(context: *mut ibv_context) -> *mut Answers {
    // SAFETY: by C's contract.
    let Some(uverbs) = (unsafe { uverbs(context) }) else { return null(Errno::EOPNOTSUPP) };
    let made = devx::answers(uverbs);
    boxed(made.map(|file| Box::new(Answers { fd: file.into_raw_fd() })))
}

pub(crate) unsafe extern "C" fn destroy_cmd_comp(answers: *mut Answers) {
    // SAFETY: C's contract: the object was kept as a box of this type, and is used no more.
    unsafe { close(Box::from_raw(answers).fd) };
}

/// Reads the reply of an asynchronous command, preceded by the command's number.
pub(crate) unsafe extern "C-unwind" fn get_async_cmd_comp(
    answers: *const Answers,
    to: *mut c_void,
    room_for: usize,
) -> c_int {
    // SAFETY: C's contract: the buffer has that many bytes.
    match unsafe { crate::base::cancel::read((*answers).fd, to, room_for) } {
        bytes if bytes < 0 => nix::errno::Errno::last_raw(),
        bytes if bytes < 8 => refuse(Errno::EINVAL),
        _ => 0,
    }
}
