//! Structs of work queues, their indirection tables, flow rules and counters.

use std::ffi::{c_int, c_void};

use super::{Cond, Mutex, ibv_context, ibv_cq, ibv_pd, ibv_recv_wr};

/// `ibv_post_wq_recv`.
pub type PostWqRecv =
    unsafe extern "C" fn(*const ibv_wq, *const ibv_recv_wr, *mut *const ibv_recv_wr) -> c_int;

#[derive(Debug)]
#[repr(C)]
pub struct ibv_wq {
    pub context: *mut ibv_context,
    pub wq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub cq: *mut ibv_cq,
    pub wq_num: u32,
    pub handle: u32,
    pub state: u32,
    pub wq_type: u32,
    pub post_recv: Option<PostWqRecv>,
    pub mutex: Mutex,
    pub cond: Cond,
    pub events_completed: u32,
    pub comp_mask: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_wq_init_attr {
    pub wq_context: *mut c_void,
    pub wq_type: u32,
    pub max_wr: u32,
    pub max_sge: u32,
    pub pd: *mut ibv_pd,
    pub cq: *mut ibv_cq,
    pub comp_mask: u32,
    pub create_flags: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_wq_attr {
    pub attr_mask: u32,
    pub wq_state: u32,
    pub curr_wq_state: u32,
    pub flags: u32,
    pub flags_mask: u32,
}

#[derive(Debug)]
#[repr(C)]
pub struct ibv_rwq_ind_table {
    pub context: *mut ibv_context,
    pub ind_tbl_handle: c_int,
    pub ind_tbl_num: c_int,
    pub comp_mask: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_rwq_ind_table_init_attr {
    pub log_ind_tbl_size: u32,
    pub ind_tbl: *const *mut ibv_wq,
    pub comp_mask: u32,
}

/// `ibv_flow_attr`; the specifications follow it in memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_flow_attr {
    pub comp_mask: u32,
    pub r#type: u32,
    pub size: u16,
    pub priority: u16,
    pub num_of_specs: u8,
    pub port: u8,
    pub flags: u32,
}

#[derive(Debug)]
#[repr(C)]
pub struct ibv_flow {
    pub comp_mask: u32,
    pub context: *mut ibv_context,
    pub handle: u32,
}

#[derive(Debug)]
#[repr(C)]
pub struct ibv_counters {
    pub context: *mut ibv_context,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_counters_init_attr {
    pub comp_mask: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ibv_counter_attach_attr {
    pub counter_desc: u32,
    pub index: u32,
    pub comp_mask: u32,
}
