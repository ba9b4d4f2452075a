//! mlx5's extended queue pair: `mlx5dv_qp_ex_from_ibv_qp_ex`, destinations of dynamic connections,
//! and raw WQEs.
//!
//! # Safety
//!
//! By C's contract (crate root), posts are made between `wr_start` and `wr_complete` or `wr_abort`
//! by one thread. A raw WQE is as long as its control segment says, and names memory that the
//! device may access.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::slice::from_raw_parts;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_mlx5::wqe_len;

use crate::memory::mkey::{
    Building, Configuration, Interleaved, Mkey, not_there, wr_mkey_configure, wr_mr_interleaved,
    wr_mr_list, wr_set_mkey_access_flags, wr_set_mkey_layout_interleaved, wr_set_mkey_layout_list,
};
use crate::post::copies::{Copies, wr_memcpy};
use crate::post::pending::direct;
use crate::post::send::{SendSide, Side, Target, To};
use crate::post::sent_kinds::SentKinds;
use crate::queues::qp::{DRIVER, Qp};
use crate::sys::{IBV_WC_DRIVER2, ibv_ah, ibv_qp_ex, ibv_sge};

pub(crate) type Ex = *mut Mlx5QpEx;

/// `struct mlx5dv_qp_ex`. Unsupported functions are [`not_there`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mlx5QpEx {
    comp_mask: u64,
    wr_set_dc_addr: unsafe extern "C" fn(Ex, *const ibv_ah, u32, u64),
    wr_mr_interleaved: unsafe extern "C" fn(Ex, *mut Mkey, u32, u32, u16, *const Interleaved),
    wr_mr_list: unsafe extern "C" fn(Ex, *mut Mkey, u32, u16, *const ibv_sge),
    wr_mkey_configure: unsafe extern "C" fn(Ex, *mut Mkey, u8, *const Configuration),
    wr_set_mkey_access_flags: unsafe extern "C" fn(Ex, u32),
    wr_set_mkey_layout_list: unsafe extern "C" fn(Ex, u16, *const ibv_sge),
    wr_set_mkey_layout_interleaved: unsafe extern "C" fn(Ex, u32, u16, *const Interleaved),
    wr_set_mkey_sig_block: unsafe extern "C" fn(Ex, *const c_void),
    wr_raw_wqe: unsafe extern "C" fn(Ex, *const c_void),
    wr_set_dc_addr_stream: unsafe extern "C" fn(Ex, *const ibv_ah, u32, u64, u16),
    wr_memcpy: unsafe extern "C" fn(Ex, u32, u64, u32, u64, usize),
    wr_set_mkey_crypto: unsafe extern "C" fn(Ex, *const c_void),
}

const _: () = assert!(size_of::<Mlx5QpEx>() == 104 && size_of::<Interleaved>() == 24);

/// mlx5's members of an extended queue pair. `building` is guarded by the send queue's lock.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Extended {
    c: Mlx5QpEx,
    building: UnsafeCell<Option<Building>>,
    /// Copy state, if created with `MLX5DV_QP_EX_WITH_MEMCPY`.
    pub(crate) copies: Option<Copies>,
    /// Created with `MLX5DV_QP_EX_WITH_RAW_WQE`.
    pub(crate) takes_raw_wqes: bool,
    pub(crate) sent_kinds: Arc<SentKinds>,
}

// SAFETY: function pointers, and data guarded by the send queue's lock.
unsafe impl Send for Extended {}
// SAFETY: function pointers, and data guarded by the send queue's lock.
unsafe impl Sync for Extended {}

impl Default for Extended {
    fn default() -> Self {
        let c = Mlx5QpEx {
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
        Self {
            c,
            building: UnsafeCell::new(None),
            copies: None,
            takes_raw_wqes: false,
            sent_kinds: Arc::default(),
        }
    }
}

impl Extended {
    /// Discards an unfinished mkey layout.
    ///
    /// # Safety
    ///
    /// This thread holds the send queue's lock.
    pub(crate) unsafe fn forget(&self) {
        // SAFETY: this thread holds the lock that guards `building`.
        unsafe { *self.building.get() = None };
    }
}

pub(crate) unsafe extern "C" fn qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut Mlx5QpEx {
    // SAFETY: C's contract: a queue pair of ours.
    unsafe { Qp::mlx5(qp.cast()) }.cast()
}

/// Queue pair, send side and unfinished mkey layout; `None` after a failed post.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn of<'a>(
    ex: Ex,
) -> Option<(&'a Qp, &'a mut Side<uverbs_mlx5::Sq>, &'a mut Option<Building>)> {
    // SAFETY: C's contract.
    let qp = unsafe { Qp::of_mlx5(ex.cast()) };
    // SAFETY: by C's contract this thread holds the lock.
    let (side, building) =
        unsafe { (qp.send().held(), &mut *(*ex.cast::<Extended>()).building.get()) };
    match side {
        SendSide::Mlx5(side) if side.build.failed.is_none() => Some((qp, side, building)),
        _ => None,
    }
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
    let Some((qp, side, _)) = (unsafe { of(ex) }) else { return };
    if qp.kind() != DRIVER {
        return side.build.refuse(Errno::EINVAL);
    }
    // SAFETY: C's contract; the queue pair is an initiator, and this thread holds the lock.
    unsafe { direct(side, To::Target(Target { ah, dctn, key, stream })) };
}

/// Posts a raw WQE (rdma-core `qp.c:mlx5_wr_raw_wqe`).
unsafe extern "C" fn wr_raw_wqe(ex: Ex, wqe: *const c_void) {
    // SAFETY: C's contract.
    let Some((qp, side, _)) = (unsafe { of(ex) }) else { return };
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
