//! Devices, contexts, and their tables of functions.

use std::ffi::{c_char, c_int, c_void};

use super::{
    Mutex, ibv_alloc_dm_attr, ibv_counter_attach_attr, ibv_counters, ibv_counters_init_attr,
    ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device_attr_ex, ibv_dm, ibv_flow, ibv_flow_attr,
    ibv_modify_cq_attr, ibv_mr, ibv_mw, ibv_mw_bind, ibv_ops_wr, ibv_parent_domain_init_attr,
    ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_recv_wr,
    ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr, ibv_send_wr, ibv_sge, ibv_srq,
    ibv_srq_init_attr_ex, ibv_td, ibv_td_init_attr, ibv_values_ex, ibv_wc, ibv_wq, ibv_wq_attr,
    ibv_wq_init_attr, ibv_xrcd, ibv_xrcd_init_attr,
};

/// Slot of a function table that this library leaves empty.
pub type Slot = Option<unsafe extern "C" fn()>;

#[derive(Debug)]
#[repr(C)]
pub struct ibv_device {
    pub _ops: [usize; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

/// `ibv_post_send`.
pub type PostSend =
    unsafe extern "C" fn(*const ibv_qp, *const ibv_send_wr, *mut *const ibv_send_wr) -> c_int;
type BindMw = unsafe extern "C" fn(*const ibv_qp, *mut ibv_mw, *const ibv_mw_bind) -> c_int;
type AdviseMr = unsafe extern "C" fn(*mut ibv_pd, u32, u32, *const ibv_sge, u32) -> c_int;
type RegDmMr = unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, u32) -> *mut ibv_mr;
type AllocDm = unsafe extern "C" fn(*mut ibv_context, *const ibv_alloc_dm_attr) -> *mut ibv_dm;
type AllocParentDomain =
    unsafe extern "C" fn(*mut ibv_context, *const ibv_parent_domain_init_attr) -> *mut ibv_pd;
type AllocTd = unsafe extern "C" fn(*mut ibv_context, *const ibv_td_init_attr) -> *mut ibv_td;
type PostRecv =
    unsafe extern "C" fn(*const ibv_qp, *const ibv_recv_wr, *mut *const ibv_recv_wr) -> c_int;
type PostSrqOps =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_ops_wr, *mut *mut ibv_ops_wr) -> c_int;
type PostSrqRecv =
    unsafe extern "C" fn(*const ibv_srq, *const ibv_recv_wr, *mut *const ibv_recv_wr) -> c_int;

#[derive(Debug)]
#[repr(C)]
pub struct ibv_context_ops {
    pub _compat_0: [Slot; 7],
    pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mw>,
    pub bind_mw: Option<BindMw>,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub _compat_create_cq: Slot,
    pub poll_cq: Option<unsafe extern "C" fn(*const ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*const ibv_cq, c_int) -> c_int>,
    pub _compat_1: [Slot; 7],
    pub post_srq_recv: Option<PostSrqRecv>,
    pub _compat_2: [Slot; 4],
    pub post_send: Option<PostSend>,
    pub post_recv: Option<PostRecv>,
    pub _compat_3: [Slot; 5],
}

#[derive(Debug)]
#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: Mutex,
    pub abi_compat: *mut c_void,
}

type QueryPort = unsafe extern "C" fn(*const ibv_context, u8, *mut ibv_port_attr, usize) -> c_int;
type CreateQpEx = unsafe extern "C" fn(*const ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
type OpenQp = unsafe extern "C" fn(*mut ibv_context, *const ibv_qp_open_attr) -> *mut ibv_qp;
type OpenXrcd = unsafe extern "C" fn(*mut ibv_context, *const ibv_xrcd_init_attr) -> *mut ibv_xrcd;
type CreateSrqEx =
    unsafe extern "C" fn(*const ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;
type CreateCqEx =
    unsafe extern "C" fn(*const ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
type QueryDeviceEx =
    unsafe extern "C" fn(*const ibv_context, *const u32, *mut ibv_device_attr_ex, usize) -> c_int;

type ReadCounters = unsafe extern "C" fn(*mut ibv_counters, *mut u64, u32, u32) -> c_int;
type AttachCounters =
    unsafe extern "C" fn(*mut ibv_counters, *const ibv_counter_attach_attr, *mut ibv_flow) -> c_int;
type CreateCounters =
    unsafe extern "C" fn(*mut ibv_context, *const ibv_counters_init_attr) -> *mut ibv_counters;
type CreateTable = unsafe extern "C" fn(
    *mut ibv_context,
    *const ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table;
type CreateWq = unsafe extern "C" fn(*mut ibv_context, *mut ibv_wq_init_attr) -> *mut ibv_wq;
type CreateFlow = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_flow_attr) -> *mut ibv_flow;
type QueryValues = unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int;

#[derive(Debug)]
#[repr(C)]
#[allow(non_snake_case, reason = "C's names")]
pub struct verbs_context {
    pub free_buf: Slot,
    pub alloc_buf: Slot,
    pub dm_export_dmabuf_fd: Slot,
    pub reg_mr_ex: Slot,
    pub dealloc_dmah: Slot,
    pub alloc_dmah: Slot,
    pub query_port: Option<QueryPort>,
    pub advise_mr: Option<AdviseMr>,
    pub alloc_null_mr: Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>,
    pub read_counters: Option<ReadCounters>,
    pub attach_counters_point_flow: Option<AttachCounters>,
    pub create_counters: Option<CreateCounters>,
    pub destroy_counters: Option<unsafe extern "C" fn(*mut ibv_counters) -> c_int>,
    pub reg_dm_mr: Option<RegDmMr>,
    pub alloc_dm: Option<AllocDm>,
    pub free_dm: Option<unsafe extern "C" fn(*mut ibv_dm) -> c_int>,
    pub modify_flow_action_esp: Slot,
    pub destroy_flow_action: Slot,
    pub create_flow_action_esp: Slot,
    pub modify_qp_rate_limit: Slot,
    pub alloc_parent_domain: Option<AllocParentDomain>,
    pub dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
    pub alloc_td: Option<AllocTd>,
    pub modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *const ibv_modify_cq_attr) -> c_int>,
    pub post_srq_ops: Option<PostSrqOps>,
    pub destroy_rwq_ind_table: Option<unsafe extern "C" fn(*mut ibv_rwq_ind_table) -> c_int>,
    pub create_rwq_ind_table: Option<CreateTable>,
    pub destroy_wq: Option<unsafe extern "C" fn(*mut ibv_wq) -> c_int>,
    pub modify_wq: Option<unsafe extern "C" fn(*mut ibv_wq, *const ibv_wq_attr) -> c_int>,
    pub create_wq: Option<CreateWq>,
    pub query_rt_values: Option<QueryValues>,
    pub create_cq_ex: Option<CreateCqEx>,
    pub r#priv: *mut c_void,
    pub query_device_ex: Option<QueryDeviceEx>,
    pub ibv_destroy_flow: Option<unsafe extern "C" fn(*mut ibv_flow) -> c_int>,
    pub ABI_placeholder2: Slot,
    pub ibv_create_flow: Option<CreateFlow>,
    pub ABI_placeholder1: Slot,
    pub open_qp: Option<OpenQp>,
    pub create_qp_ex: Option<CreateQpEx>,
    pub get_srq_num: Option<unsafe extern "C" fn(*const ibv_srq, *mut u32) -> c_int>,
    pub create_srq_ex: Option<CreateSrqEx>,
    pub open_xrcd: Option<OpenXrcd>,
    pub close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
    pub _ABI_placeholder3: u64,
    pub sz: usize,
    pub context: ibv_context,
}
