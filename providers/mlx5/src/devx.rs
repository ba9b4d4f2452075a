//! Commands to the device's firmware (DEVX), in the format of the PRM. The kernel checks the owners
//! of the objects that they name, the firmware everything else. rdma-core `verbs.c`,
//! `_mlx5dv_devx_*`.
//!
//! The device must be opened with DEVX, as [`Context::open`](crate::Context) does if it is
//! supported.
//!
//! # Safety
//!
//! The caller composes a command's bytes, and vouches for the memory accesses that it makes the
//! device do. The caller owns the objects that it names: the kernel reuses the handles of destroyed
//! objects.
#![allow(unsafe_code, reason = "sends commands of the caller's")]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use uverbs_core::commands::Uverbs;
use uverbs_core::errno::Errno;
use uverbs_core::error::Error;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS,
    MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE,
    MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE,
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD,
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN,
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE,
    MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT,
    MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC,
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE,
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE,
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE,
    MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR,
    MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE,
    MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID,
    MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC,
    MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY,
    MLX5_IB_METHOD_DEVX_OBJ_CREATE, MLX5_IB_METHOD_DEVX_OBJ_DESTROY,
    MLX5_IB_METHOD_DEVX_OBJ_MODIFY, MLX5_IB_METHOD_DEVX_OBJ_QUERY, MLX5_IB_METHOD_DEVX_OTHER,
    MLX5_IB_METHOD_DEVX_QUERY_EQN, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT,
    MLX5_IB_METHOD_DEVX_UMEM_DEREG, MLX5_IB_METHOD_DEVX_UMEM_REG, MLX5_IB_OBJECT_DEVX,
    MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_OBJECT_DEVX_OBJ,
    MLX5_IB_OBJECT_DEVX_UMEM,
};
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::opcode::CmdStatus;
use zerocopy::IntoBytes;

pub use crate::device::uar::alloc_uar;

/// Errno of the device's status, if the device rejected the command (rdma-core `mlx5.c`,
/// `mlx5_get_cmd_status_err`).
pub(crate) fn told(errno: Errno, answer: &[u8]) -> Errno {
    if errno != Errno::EREMOTEIO {
        return errno;
    }
    match CmdStatus(header::cmd_out::STATUS.get(answer) as u8) {
        CmdStatus::INT_ERR | CmdStatus::BAD_SYS_STATE_ERR => Errno::EIO,
        _ => Errno::EINVAL,
    }
}

/// Sends a command that creates no object, such as a query.
///
/// # Errors
///
/// [`Error::Kernel`]: `EREMOTEIO` if the device rejected it, with the reason in `answer`; `EINVAL`
/// for a command that is not allowed here, or for a device that was opened without DEVX.
///
/// # Safety
///
/// The contract in the module's head.
#[doc(alias = "mlx5dv_devx_general_cmd")]
pub unsafe fn general(uverbs: &Uverbs, request: &[u8], answer: &mut [u8]) -> Result<(), Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER)
        .input(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, request)
        .output(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, answer);
    // SAFETY: contract of `general`.
    unsafe { command.send(&**uverbs.door(), "devx_general_cmd") }.map(drop)
}

/// Sends a command that creates an object, and returns its handle.
///
/// # Errors
///
/// The errors of [`general`].
///
/// # Safety
///
/// The contract in the module's head.
#[doc(alias = "mlx5dv_devx_obj_create")]
pub unsafe fn create(uverbs: &Uverbs, request: &[u8], answer: &mut [u8]) -> Result<u32, Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE)
        .handle_new(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
        .input(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, request)
        .output(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, answer);
    // SAFETY: contract of `create`.
    let made = unsafe { command.send(&**uverbs.door(), "devx_obj_create") }?;
    made.handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
}

/// Destroys an object that [`create`] made.
///
/// # Errors
///
/// [`Error::Kernel`]: `EBUSY` while it is in use.
///
/// # Safety
///
/// The contract in the module's head.
#[doc(alias = "mlx5dv_devx_obj_destroy")]
pub unsafe fn destroy(uverbs: &Uverbs, object: u32) -> Result<(), Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY)
        .handle_in(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, object);
    // SAFETY: contract of `destroy`.
    unsafe { command.send(&**uverbs.door(), "devx_obj_destroy") }.map(drop)
}

/// Queries an object that was created here or by a verb.
///
/// # Errors
///
/// The errors of [`general`].
///
/// # Safety
///
/// The contract in the module's head.
#[doc(alias = "mlx5dv_devx_obj_query")]
pub unsafe fn query(
    uverbs: &Uverbs,
    object: u32,
    request: &[u8],
    answer: &mut [u8],
) -> Result<(), Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY)
        .handle_in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, object)
        .input(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, request)
        .output(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, answer);
    // SAFETY: contract of `query`.
    unsafe { command.send(&**uverbs.door(), "devx_obj_query") }.map(drop)
}

/// Modifies an object that was created here or by a verb.
///
/// # Errors
///
/// The errors of [`general`].
///
/// # Safety
///
/// The contract in the module's head.
#[doc(alias = "mlx5dv_devx_obj_modify")]
pub unsafe fn modify(
    uverbs: &Uverbs,
    object: u32,
    request: &[u8],
    answer: &mut [u8],
) -> Result<(), Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY)
        .handle_in(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, object)
        .input(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, request)
        .output(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, answer);
    // SAFETY: contract of `modify`.
    unsafe { command.send(&**uverbs.door(), "devx_obj_modify") }.map(drop)
}

/// Opens a file from which responses of [`query_later`] are read:
/// `mlx5_ib_uapi_devx_async_cmd_hdr`, and the device's response.
///
/// # Errors
///
/// [`Error::Kernel`]: `EMFILE`.
#[doc(alias = "mlx5dv_devx_create_cmd_comp")]
pub fn answers(uverbs: &Uverbs) -> Result<OwnedFd, Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC)
        .fd_new(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE);
    // SAFETY: there is no payload.
    let mut made = unsafe { command.send(&**uverbs.door(), "devx_create_cmd_comp") }?;
    made.take_fd(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE)
}

/// Queries an object without waiting for the response. The response of `len` bytes arrives in `to`,
/// with `id`.
///
/// # Errors
///
/// The errors of [`general`]; `EAGAIN` while too many responses are unread.
///
/// # Safety
///
/// The contract in the module's head.
#[doc(alias = "mlx5dv_devx_obj_query_async")]
pub unsafe fn query_later(
    uverbs: &Uverbs,
    object: u32,
    request: &[u8],
    len: u64,
    id: u64,
    to: BorrowedFd<'_>,
) -> Result<(), Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY)
        .handle_in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, object)
        .input(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, request)
        .constant(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, len)
        .constant(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, id)
        .fd_in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, to);
    // SAFETY: contract of `query_later`.
    unsafe { command.send(&**uverbs.door(), "devx_obj_query_async") }.map(drop)
}

/// Opens a file from which events are read: `mlx5_ib_uapi_devx_async_event_hdr`, and the device's
/// EQE unless `flags` (`MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_*`) omit it.
///
/// # Errors
///
/// [`Error::Kernel`]: `EMFILE`, `EINVAL` for unknown flags.
#[doc(alias = "mlx5dv_devx_create_event_channel")]
pub fn event_channel(uverbs: &Uverbs, flags: u32) -> Result<OwnedFd, Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC)
        .fd_new(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE)
        .number(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, flags);
    // SAFETY: a number.
    let mut made = unsafe { command.send(&**uverbs.door(), "devx_create_event_channel") }?;
    made.take_fd(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE)
}

/// Delivery of an event.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// A record in the channel, with this number.
    Entry(u64),
    /// A signal of this eventfd.
    File(BorrowedFd<'a>),
}

/// Subscribes a channel to events of an object, or to events without an object. Events are event
/// types of the PRM.
///
/// # Errors
///
/// [`Error::Kernel`]: `EINVAL` for a type that is not allowed here.
#[doc(alias = "mlx5dv_devx_subscribe_devx_event")]
pub fn subscribe(
    uverbs: &Uverbs,
    channel: BorrowedFd<'_>,
    object: Option<u32>,
    types: &[u16],
    told: Told<'_>,
) -> Result<(), Error> {
    let mut command = uverbs
        .command(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT)
        .fd_in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, channel);
    if let Some(object) = object {
        command = command.handle_in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, object);
    }
    command = command.input(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, types.as_bytes());
    command = match told {
        Told::Entry(id) => command.constant(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, id),
        Told::File(file) => {
            let number = file.as_raw_fd().cast_unsigned();
            command.number(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, number)
        }
    };
    // SAFETY: numbers and files.
    unsafe { command.send(&**uverbs.door(), "devx_subscribe_event") }.map(drop)
}

/// Memory to register for commands (umem).
#[derive(Clone, Copy, Debug)]
pub struct UmemInit<'a> {
    /// Address of the first byte, or the offset in the dma-buf.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// `IBV_ACCESS_*` of the device.
    pub access: u32,
    /// Page sizes that the device may use, as a mask; `None` allows any, and older kernels require
    /// it.
    pub page_sizes: Option<u64>,
    /// The dma-buf that contains it, if any.
    pub buffer: Option<BorrowedFd<'a>>,
}

/// Mask of all page sizes from 4 KiB, the smallest of the device.
const ALL_PAGE_SIZES: u64 = !0xfff;

/// Registers memory for commands; returns its handle and its number (umem id).
///
/// # Errors
///
/// The errors of `Uverbs::reg_mr`.
///
/// # Safety
///
/// The device may read and write the memory, as `access` says, until it is deregistered.
#[doc(alias = "mlx5dv_devx_umem_reg")]
pub unsafe fn register(uverbs: &Uverbs, init: &UmemInit<'_>) -> Result<(u32, u32), Error> {
    let mut number = [0; 4];
    let mut command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG)
        .constant(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, init.addr)
        .constant(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, init.len)
        .number(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, init.access);
    if let Some(buffer) = init.buffer {
        command = command
            .number(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, buffer.as_raw_fd().cast_unsigned());
    }
    let sizes = init.page_sizes.unwrap_or(ALL_PAGE_SIZES);
    command = command.constant(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, sizes);
    if init.page_sizes.is_none() {
        command = command.optional();
    }
    let command = command
        .output(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, &mut number)
        .handle_new(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE);
    // SAFETY: contract of `register`.
    let made = unsafe { command.send(&**uverbs.door(), "devx_umem_reg") }
        .map_err(|error| uverbs.tell_memlock(error, init.len))?;
    Ok((made.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)?, u32::from_ne_bytes(number)))
}

/// Deregisters memory for commands.
///
/// # Errors
///
/// [`Error::Kernel`]: `EBUSY` while an object uses it.
///
/// # Safety
///
/// The contract in the module's head.
#[doc(alias = "mlx5dv_devx_umem_dereg")]
pub unsafe fn deregister(uverbs: &Uverbs, umem: u32) -> Result<(), Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG)
        .handle_in(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, umem);
    // SAFETY: contract of `deregister`.
    unsafe { command.send(&**uverbs.door(), "devx_umem_dereg") }.map(drop)
}

/// Number of the event queue of a completion vector.
///
/// # Errors
///
/// [`Error::Kernel`]: `EINVAL` or `ENOENT` for a vector that does not exist.
#[doc(alias = "mlx5dv_devx_query_eqn")]
pub fn event_queue(uverbs: &Uverbs, vector: u32) -> Result<u32, Error> {
    let mut number = [0; 4];
    let command = uverbs
        .command(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN)
        .number(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, vector)
        .output(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, &mut number);
    // SAFETY: numbers.
    unsafe { command.send(&**uverbs.door(), "devx_query_eqn") }?;
    Ok(u32::from_ne_bytes(number))
}
