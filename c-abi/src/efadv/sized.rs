//! Structs of the program's version of `efadv.h`, which may be shorter or longer than ours.
//!
//! # Safety
//!
//! By C's contract, a struct has as many bytes as the program says.
#![allow(unsafe_code, reason = "copies C's structs by pointer")]

use uverbs_core::Errno;
use zerocopy::{FromBytes, IntoBytes};

/// Copies the program's struct of `len` bytes. Members that it lacks are 0.
///
/// # Errors
///
/// `EINVAL` if it ends before `least`, or has other members that are not 0 (rdma-core
/// `verbs.c:efadv_create_qp_ex`).
///
/// # Safety
///
/// C's contract.
pub(super) unsafe fn read<T: FromBytes + IntoBytes>(
    from: *const T,
    len: u32,
    least: usize,
) -> Result<T, Errno> {
    let (from, len) = (from.cast::<u8>(), len as usize);
    if len < least {
        return Err(Errno::EINVAL);
    }
    // SAFETY: C's contract: there are `len` bytes.
    let byte = |at| unsafe { from.add(at).read() };
    if (size_of::<T>()..len).any(|at| byte(at) != 0) {
        return Err(Errno::EINVAL);
    }
    let mut value = T::new_zeroed();
    for (at, to) in value.as_mut_bytes().iter_mut().enumerate().take(len) {
        *to = byte(at);
    }
    Ok(value)
}
