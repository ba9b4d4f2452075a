//! Structs of the program's version of `efadv.h`, which may be shorter or longer than ours.
//!
//! # Safety
//!
//! By C's contract, a struct has as many bytes as the program says.
#![allow(unsafe_code, reason = "copies C's structs by pointer")]

use uverbs_core::Errno;
use zerocopy::{FromBytes, IntoBytes};

/// Copies the program's struct of `len` bytes. Members that it lacks are 0. `T` is as long as in C:
/// padding at its end is no member.
///
/// # Errors
///
/// `EINVAL` if it ends before `least`, or has other members that are not 0 (rdma-core
/// `verbs.c:efadv_create_qp_ex`).
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn read<T: FromBytes + IntoBytes>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::efadv::caps::RqDepthAttr;

    #[test]
    fn padding_may_have_any_value() {
        // The number of SGEs, padding, and a member of a later version.
        let from = [0u32, 0, 3, u32::MAX, 1];
        for (len, answer) in
            [(8, Err(Errno::EINVAL)), (12, Ok(3)), (16, Ok(3)), (20, Err(Errno::EINVAL))]
        {
            // SAFETY: as many bytes are in the array.
            let found = unsafe { read::<RqDepthAttr>(from.as_ptr().cast(), len, 12) };
            assert_eq!(found.map(|mut attr| attr.as_mut_bytes()[8]), answer, "{len}");
        }
    }
}
