//! Functions of mlx5's extended queue pairs (`mlx5dv_qp_ex`).
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_void;
use std::slice::from_raw_parts;

use uverbs_core::Errno;
use uverbs_core::queues::work::Wr;
use uverbs_mlx5::{CopyEnd, wqe_len};

use crate::post::copies::Copies;
use crate::post::extended::{Ex, Mlx5QpEx};
use crate::post::mkey::{
    not_there, wr_mkey_configure, wr_mr_interleaved, wr_mr_list, wr_set_mkey_access_flags,
    wr_set_mkey_layout_interleaved, wr_set_mkey_layout_list,
};
use crate::post::pending::direct;
use crate::post::request::flags;
use crate::post::send::{Target, To};
use crate::queues::qp::{DRIVER, Qp};
use crate::sys::{IBV_WC_DRIVER2, ibv_ah, ibv_qp_ex};

/// Functions of an extended queue pair. Unsupported ones are [`not_there`].
pub(crate) const OPS: Mlx5QpEx = Mlx5QpEx {
    comp_mask: 0,
    wr_set_dc_addr,
    wr_mr_interleaved,
    wr_mr_list,
    wr_mkey_configure,
    wr_set_mkey_access_flags,
    wr_set_mkey_layout_list,
    wr_set_mkey_layout_interleaved,
    wr_set_mkey_sig_block: not_there,
    wr_raw_wqe,
    wr_set_dc_addr_stream,
    wr_memcpy,
    wr_set_mkey_crypto: not_there,
};

pub(crate) unsafe extern "C" fn qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut Mlx5QpEx {
    // SAFETY: C's contract: a queue pair of ours.
    unsafe { Qp::mlx5(qp.cast()) }.cast()
}

unsafe extern "C" fn wr_set_dc_addr(ex: Ex, ah: *const ibv_ah, dctn: u32, key: u64) {
    // SAFETY: C's contract.
    unsafe { wr_set_dc_addr_stream(ex, ah, dctn, key, 0) };
}

unsafe extern "C" fn wr_set_dc_addr_stream(
    ex: Ex,
    ah: *const ibv_ah,
    dctn: u32,
    key: u64,
    stream: u16,
) {
    // SAFETY: C's contract.
    let Some((qp, side, _)) = (unsafe { Qp::of_extended(ex) }) else { return };
    if qp.kind() != DRIVER {
        return side.build.refuse(Errno::EINVAL);
    }
    // SAFETY: C's contract; the queue pair is an initiator, and this thread holds the lock.
    unsafe { direct(side, To::Target(Target { ah, dctn, key, stream })) };
}

/// Posts a raw WQE (rdma-core `qp.c:mlx5_wr_raw_wqe`).
unsafe extern "C" fn wr_raw_wqe(ex: Ex, wqe: *const c_void) {
    // SAFETY: C's contract.
    let Some((qp, side, _)) = (unsafe { Qp::of_extended(ex) }) else { return };
    if !qp.takes_raw_wqes() {
        return side.build.refuse(Errno::EOPNOTSUPP);
    }
    // SAFETY: C's contract: a control segment, unaligned, and as many bytes as it says.
    let wqe = unsafe { from_raw_parts(wqe.cast(), wqe_len(wqe.cast::<[u8; 8]>().read())) };
    // SAFETY: C's contract; the program set the member before.
    let id = unsafe { (*qp.c()).wr_id };
    side.post(|sq, at| {
        // SAFETY: C's contract; the cursor is of this queue's last `start`.
        let index = unsafe { sq.post_wqe(at, id, wqe) }?;
        qp.note_sent(Some(index), IBV_WC_DRIVER2);
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn wr_memcpy(
    ex: Ex,
    to_key: u32,
    to: u64,
    from_key: u32,
    from: u64,
    length: usize,
) {
    // SAFETY: by C's contract.
    let Some((qp, side, _)) = (unsafe { Qp::of_extended(ex) }) else { return };
    let Some(Copies { caps, scratch }) = qp.copies() else {
        return side.build.refuse(Errno::EOPNOTSUPP);
    };
    let len = length as u64;
    if len == 0 || len > caps.max_len {
        return side.build.refuse(Errno::EINVAL);
    }
    // SAFETY: by C's contract; the program wrote the two members before.
    let (id, c_flags) = unsafe { ((*qp.c()).wr_id, (*qp.c()).wr_flags) };
    let wr = Wr { id, flags: flags(c_flags | qp.signal()) };
    let end = |addr, lkey| CopyEnd { addr, lkey };
    let copy = (end(from, from_key), end(to, to_key), len);
    // SAFETY: by C's contract; the cursor is of this queue's last `start`.
    side.post(|sq, at| unsafe { sq.post_copy(at, wr, copy, scratch) }.map(drop));
}
