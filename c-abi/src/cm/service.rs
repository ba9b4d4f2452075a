//! Services by InfiniBand's subnet administration.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::CStr;
use std::ptr::null_mut;

use uverbs_core::Errno;
use uverbs_core::commands::cm::SERVICE_LEN;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::{
    RDMA_PS_IB, RDMA_USER_CM_IB_SERVICE_FLAG_ID, RDMA_USER_CM_IB_SERVICE_FLAG_NAME,
    RDMA_USER_CM_IB_SERVICE_NAME_SIZE, rdma_ucm_ib_service,
};

use super::id::{Id, refresh, ucma};
use super::info;
use super::state::{Found, Resolution, State};
use super::sys::{rdma_addrinfo, rdma_cm_id};
use crate::base::answer::{last_errno, set_errno};

pub(crate) const VERB: &str = "rdma_resolve_addrinfo";

/// Service key: a number in C's notation, or a name, truncated to its field.
pub(crate) fn key(service: &CStr) -> rdma_ucm_ib_service {
    let mut key = rdma_ucm_ib_service::default();
    let mut end = null_mut();
    set_errno(Errno::from_raw(0));
    // SAFETY: a string, and room for a pointer into it.
    let number = unsafe { libc::strtoull(service.as_ptr(), &raw mut end, 0) };
    let in_range = last_errno().raw() == 0;
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
