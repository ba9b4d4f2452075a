//! Addresses that an id resolves with an event (Linux 6.17): names by the system, services by
//! InfiniBand's subnet administration.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Returned lists are memory of
//! C's `calloc`, as in `info.rs`.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use uverbs_core::Errno;
use uverbs_core::commands::cm::SERVICE_LEN;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::{
    RDMA_PS_IB, RDMA_USER_CM_IB_SERVICE_FLAG_ID, RDMA_USER_CM_IB_SERVICE_FLAG_NAME,
    RDMA_USER_CM_IB_SERVICE_NAME_SIZE, rdma_ucm_ib_service,
};

use super::event::{ADDRINFO_RESOLVED, INTERNAL, USER};
use super::id::{Id, State, refresh, ucma};
use super::sys::{rdma_addrinfo, rdma_cm_id};
use super::{done, endpoint, info, invalid};
use crate::base::answer::{minus_one, set_errno};

const VERB: &str = "rdma_resolve_addrinfo";

/// Pending resolution of an id. Until its result is fetched, the id accepts no further one.
#[derive(Default)]
pub(crate) enum Resolution {
    #[default]
    None,
    Begun,
    Found(Found),
}

/// Resolved addresses, kept until the program fetches them.
pub(crate) struct Found(*mut rdma_addrinfo);

impl Found {
    /// Passes the addresses to the program.
    fn give(self) -> *mut rdma_addrinfo {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: the list was not passed to the program, so this is its only owner.
        unsafe { info::freeaddrinfo(self.0) };
    }
}

pub(crate) unsafe extern "C-unwind" fn resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    if id.is_null() {
        return minus_one(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let of = unsafe { Id::of(id) };
    {
        let mut state = of.state();
        if !matches!(state.resolution, Resolution::None) {
            return minus_one(Errno::EBUSY);
        }
        state.resolution = Resolution::Begun;
    }
    // SAFETY: by C's contract; the hints may be null.
    let flags = unsafe { hints.as_ref() }.map_or(0, |hints| hints.ai_flags);
    // SAFETY: by C's contract; the hints may be null.
    let code = unsafe {
        match (flags & info::SA != 0, flags & info::DNS != 0) {
            (true, true) => minus_one(Errno::EOPNOTSUPP),
            (true, false) if !node.is_null() => minus_one(Errno::EOPNOTSUPP),
            (true, false) => done(ask_subnet(id, service)),
            (false, _) => ask_system(id, node, service, hints),
        }
    };
    if code == 0 {
        return 0;
    }
    of.state().resolution = Resolution::None;
    if code != -1 {
        // `getaddrinfo`'s code in `errno`, as in C's library (rdma-core
        // `cma.c:rdma_resolve_addrinfo`).
        set_errno(Errno::from_raw(code));
    }
    -1
}

/// Resolves a name and sends the event. Returns as `rdma_getaddrinfo` does.
///
/// # Safety
///
/// C's contract.
unsafe fn ask_system(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    let mut list = null_mut();
    // SAFETY: by C's contract.
    let code = unsafe { info::getaddrinfo(node, service, hints, &raw mut list) };
    if code != 0 {
        return code;
    }
    // SAFETY: by C's contract.
    unsafe {
        let of = Id::of(id);
        of.state().resolution = Resolution::Found(Found(list));
        let told = ucma(id).write_event(of.number(), INTERNAL, 0, ADDRINFO_RESOLVED.into());
        done(told.and_then(|()| endpoint::complete(id)))
    }
}

/// # Safety
///
/// C's contract.
unsafe fn ask_subnet(id: *mut rdma_cm_id, service: *const c_char) -> Result<(), Error> {
    if service.is_null() {
        return Err(invalid(VERB));
    }
    // SAFETY: by C's contract.
    unsafe {
        let service = key(CStr::from_ptr(service));
        ucma(id).resolve_ib_service(Id::of(id).number(), &service)?;
        endpoint::complete(id)
    }
}

/// Service key: a number in C's notation, or a name, truncated to its field.
fn key(service: &CStr) -> rdma_ucm_ib_service {
    let mut key = rdma_ucm_ib_service::default();
    let mut end = null_mut();
    set_errno(Errno::from_raw(0));
    // SAFETY: a string, and room for a pointer into it.
    let number = unsafe { libc::strtoull(service.as_ptr(), &raw mut end, 0) };
    let in_range = std::io::Error::last_os_error().raw_os_error() == Some(0);
    // SAFETY: it points into the string or to its end.
    if in_range && end.cast_const() != service.as_ptr() && unsafe { *end } == 0 {
        (key.service_id, key.flags) = (number, RDMA_USER_CM_IB_SERVICE_FLAG_ID);
        return key;
    }
    let name = service.to_bytes();
    let len = name.len().min(RDMA_USER_CM_IB_SERVICE_NAME_SIZE - 1);
    key.service_name[..len].copy_from_slice(&name[..len]);
    key.flags = RDMA_USER_CM_IB_SERVICE_FLAG_NAME;
    key
}

/// Fetches the records of the subnet administration. Addresses of a name are present already.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn fetch(id: *mut rdma_cm_id) -> Result<(), Error> {
    // SAFETY: by C's contract.
    unsafe {
        let of = Id::of(id);
        let records = ucma(id).query_ib_service(of.number())?;
        refresh(id)?;
        let lacking = if records.is_empty() { Errno::ENOENT } else { Errno::ENOMEM };
        let list = services(&records).ok_or(Error::kernel(VERB, lacking))?;
        of.state().resolution = Resolution::Found(list);
    }
    Ok(())
}

/// Ends a failed resolution: the id accepts another one.
pub(crate) fn forget(state: &mut State) {
    state.resolution = Resolution::None;
}

/// `struct sockaddr_ib` (`infiniband/ib.h`).
#[repr(C)]
struct IbAddress {
    family: u16,
    /// Network byte order, as are the following members except the last.
    pkey: [u8; 2],
    flow: u32,
    gid: [u8; 16],
    service: [u8; 8],
    mask: u64,
    scope: u64,
}

const _: () = assert!(size_of::<IbAddress>() == 48);

/// Converts each record to an address to connect to (rdma-core `cma.c:ucma_convert_service_recs`).
/// `None`: out of memory, or no record.
fn services(records: &[[u8; SERVICE_LEN]]) -> Option<Found> {
    let mut list = Found(null_mut());
    for record in records.iter().rev() {
        let address: *mut IbAddress = info::zeros();
        let one: *mut rdma_addrinfo = info::zeros();
        // SAFETY: null or new, and zeros are either.
        let both = unsafe { (address.as_mut(), one.as_mut()) };
        let (Some(to), Some(info)) = both else {
            // SAFETY: null or new.
            unsafe {
                libc::free(address.cast());
                libc::free(one.cast());
            }
            return None;
        };
        // Fields of `struct ib_user_service_rec` (kernel `rdma/ib_user_sa.h`): number, GID,
        // partition.
        (to.family, to.mask) = (info::AF_IB as u16, u64::MAX);
        to.service.copy_from_slice(&record[..8]);
        to.gid.copy_from_slice(&record[8..24]);
        to.pkey.copy_from_slice(&record[24..26]);
        (info.ai_flags, info.ai_family) = (info::SA, info::AF_IB);
        info.ai_port_space = RDMA_PS_IB.into();
        (info.ai_dst_addr, info.ai_dst_len) = (address.cast(), size_of::<IbAddress>() as u32);
        info.ai_next = list.0;
        list.0 = one;
    }
    (!list.0.is_null()).then_some(list)
}

pub(crate) unsafe extern "C" fn query_addrinfo(
    id: *mut rdma_cm_id,
    given: *mut *mut rdma_addrinfo,
) -> c_int {
    if id.is_null() || given.is_null() {
        return minus_one(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let mut state = unsafe { Id::of(id) }.state();
    match std::mem::take(&mut state.resolution) {
        Resolution::Found(found) => {
            // SAFETY: by C's contract.
            unsafe { *given = found.give() };
            0
        }
        other => {
            state.resolution = other;
            minus_one(Errno::ENOENT)
        }
    }
}

/// Sends an event of the program, queued behind the pending events of the id.
pub(crate) unsafe extern "C" fn write_cm_event(
    id: *mut rdma_cm_id,
    event: u32,
    status: c_int,
    argument: u64,
) -> c_int {
    if event != USER {
        return done(Err(invalid("rdma_write_cm_event")));
    }
    // SAFETY: by C's contract.
    done(unsafe { ucma(id).write_event(Id::of(id).number(), event, status, argument) })
}
