//! mlx5's members of an extended queue pair.
//!
//! # Safety
//!
//! By C's contract (crate root), posts are made between `wr_start` and `wr_complete` or `wr_abort`
//! by one thread.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::Arc;

use crate::memory::mkey::{Building, Configuration, Interleaved, Mkey};
use crate::post::copies::Copies;
use crate::post::sent_kinds::SentKinds;
use crate::sys::{ibv_ah, ibv_sge};

pub(crate) type Ex = *mut Mlx5QpEx;

/// `struct mlx5dv_qp_ex`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mlx5QpEx {
    pub(crate) comp_mask: u64,
    pub(crate) wr_set_dc_addr: unsafe extern "C" fn(Ex, *const ibv_ah, u32, u64),
    pub(crate) wr_mr_interleaved:
        unsafe extern "C" fn(Ex, *mut Mkey, u32, u32, u16, *const Interleaved),
    pub(crate) wr_mr_list: unsafe extern "C" fn(Ex, *mut Mkey, u32, u16, *const ibv_sge),
    pub(crate) wr_mkey_configure: unsafe extern "C" fn(Ex, *mut Mkey, u8, *const Configuration),
    pub(crate) wr_set_mkey_access_flags: unsafe extern "C" fn(Ex, u32),
    pub(crate) wr_set_mkey_layout_list: unsafe extern "C" fn(Ex, u16, *const ibv_sge),
    pub(crate) wr_set_mkey_layout_interleaved:
        unsafe extern "C" fn(Ex, u32, u16, *const Interleaved),
    pub(crate) wr_set_mkey_sig_block: unsafe extern "C" fn(Ex, *const c_void),
    pub(crate) wr_raw_wqe: unsafe extern "C" fn(Ex, *const c_void),
    pub(crate) wr_set_dc_addr_stream: unsafe extern "C" fn(Ex, *const ibv_ah, u32, u64, u16),
    pub(crate) wr_memcpy: unsafe extern "C" fn(Ex, u32, u64, u32, u64, usize),
    pub(crate) wr_set_mkey_crypto: unsafe extern "C" fn(Ex, *const c_void),
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

impl Extended {
    pub(crate) fn new(c: Mlx5QpEx) -> Self {
        Self {
            c,
            building: UnsafeCell::new(None),
            copies: None,
            takes_raw_wqes: false,
            sent_kinds: Arc::default(),
        }
    }

    /// Unfinished mkey layout.
    pub(crate) fn building(&self) -> *mut Option<Building> {
        self.building.get()
    }

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
