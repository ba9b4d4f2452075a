//! GIDs and P_Keys of ports.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs_core::Errno;
use uverbs_core::attr::{GidEntry, GidType};
use uverbs_core::error::Error;

use crate::base::answer::{minus_one, refuse};
use crate::device::context::Context;
use crate::sys::{ibv_context, ibv_gid, ibv_gid_entry};

fn entry(context: &Context, port: u32, index: u32) -> Result<GidEntry, Errno> {
    // All other commands have ports of one byte.
    let port = u8::try_from(port).map_err(|_| Errno::EINVAL)?;
    context.core().uverbs().query_gid_entry(port, index).map_err(|error| error.to_errno())
}

fn to_c(entry: &GidEntry) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: entry.gid.0 },
        gid_index: entry.index,
        port_num: entry.port,
        gid_type: entry.kind.raw(),
        ndev_ifindex: entry.netdev_ifindex,
    }
}

pub(crate) unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: by C's contract.
    let found = match entry(unsafe { Context::of(context) }, port.into(), index as u32) {
        Ok(found) => found.gid.0,
        // An empty entry is a GID of zeros, as before `ENODATA` existed.
        Err(Errno::ENODATA) => [0; 16],
        Err(errno) => return minus_one(errno),
    };
    // SAFETY: by C's contract.
    unsafe { (*gid).raw = found };
    0
}

/// `IBV_GID_TYPE_SYSFS_IB_ROCE_V1` (0) or `IBV_GID_TYPE_SYSFS_ROCE_V2` (1).
pub(crate) unsafe extern "C" fn query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    kind: *mut u32,
) -> c_int {
    // SAFETY: by C's contract.
    let found = match entry(unsafe { Context::of(context) }, port.into(), index) {
        Ok(found) => (found.kind == GidType::RoceV2).into(),
        Err(Errno::ENODATA) => 0,
        Err(errno) => return minus_one(errno),
    };
    // SAFETY: by C's contract.
    unsafe { *kind = found };
    0
}

pub(crate) unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    to: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 {
        return refuse(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    match entry(unsafe { Context::of(context) }, port, index) {
        Ok(found) => {
            // SAFETY: by C's contract; there is room for `size` bytes.
            unsafe { write_sized(to, &to_c(&found), size) };
            0
        }
        Err(errno) => refuse(errno),
    }
}

/// Returns the number of entries, or a negative errno.
pub(crate) unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 {
        return -(Errno::EINVAL.raw() as isize);
    }
    if max == 0 {
        // The kernel's error for a table without room.
        return -(Errno::EINVAL.raw() as isize);
    }
    // SAFETY: by C's contract.
    let uverbs = unsafe { Context::of(context) }.core().uverbs();
    let found: Result<_, Error> = uverbs.query_gid_table(max);
    match found {
        Ok(found) => {
            for (at, entry) in found.iter().enumerate() {
                // SAFETY: C's contract: `max` entries of `size` bytes each.
                unsafe { write_sized(entries.byte_add(at * size), &to_c(entry), size) };
            }
            found.len() as isize
        }
        Err(error) => -(error.to_errno().raw() as isize),
    }
}

/// Writes a struct, truncated to the program's size, and zeros to the rest of that size.
///
/// # Safety
///
/// `to` has room for `size` bytes.
pub(crate) unsafe fn write_sized<T: Copy>(to: *mut T, value: &T, size: usize) {
    let known = size.min(size_of::<T>());
    let (to, from): (*mut u8, *const u8) = (to.cast(), (&raw const *value).cast());
    // SAFETY: by the contract of `write_sized`.
    unsafe {
        to.copy_from_nonoverlapping(from, known);
        to.add(known).write_bytes(0, size - known);
    }
}

pub(crate) unsafe extern "C" fn query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: by C's contract.
    let source = unsafe { Context::of(context) }.device().source();
    let index = u16::try_from(index).map_err(|_| Errno::ENOENT);
    match index.and_then(|index| source.pkey(port, index)) {
        Ok(found) => {
            // SAFETY: by C's contract.
            unsafe { *pkey = found.to_be() };
            0
        }
        Err(errno) => minus_one(errno),
    }
}

pub(crate) unsafe extern "C" fn get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    let mut found = 0;
    for index in 0.. {
        // SAFETY: by C's contract.
        if unsafe { query_pkey(context, port, index, &raw mut found) } != 0 {
            break;
        }
        if found == pkey {
            return index;
        }
    }
    -1
}
