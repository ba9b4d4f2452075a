//! WQEs that a program composes itself: `mlx5dv_wr_raw_wqe` (rdma-core `qp.c:mlx5_wr_raw_wqe`).
//!
//! # Safety
//!
//! C's contract: posts are made between `wr_start` and its end, by that thread; the WQE is as long
//! as its control segment says, and names what the device may use.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_void;
use std::slice::from_raw_parts;

use uverbs_core::Errno;
use uverbs_mlx5::wqe_len;

use crate::extended::{Ex, of};
use crate::sys::IBV_WC_DRIVER2;

pub(crate) unsafe extern "C" fn wr_raw_wqe(ex: Ex, wqe: *const c_void) {
    // SAFETY: C's contract.
    let Some((qp, side, _)) = (unsafe { of(ex) }) else { return };
    if !qp.takes_raw_wqes() {
        return side.build.refuse(Errno::EOPNOTSUPP);
    }
    // SAFETY: C's contract: a control segment, at any address, and as much as that says.
    let wqe = unsafe { from_raw_parts(wqe.cast(), wqe_len(wqe.cast::<[u8; 8]>().read())) };
    // SAFETY: C's contract; the program wrote the member before.
    let id = unsafe { (*qp.c()).wr_id };
    side.post(|sq, at| {
        // SAFETY: C's contract; the cursor is of this queue's last `start`.
        let index = unsafe { sq.post_wqe(at, id, wqe) }?;
        qp.note_sent(Some(index), IBV_WC_DRIVER2);
        Ok(())
    });
}
