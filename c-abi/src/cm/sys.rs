//! Structs of `rdma/rdma_cma.h` under their C names. Sizes and offsets are gcc's for rdma-core 44's
//! header.
#![allow(non_camel_case_types, reason = "C's names")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use libc::{sockaddr, sockaddr_storage, socklen_t};

use crate::sys::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_srq,
};

/// `IBV_QPT_RC`, `IBV_QPT_UD`.
pub(crate) const RC: u32 = 2;
pub(crate) const UD: u32 = 4;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct rdma_ib_addr {
    pub(crate) sgid: ibv_gid,
    pub(crate) dgid: ibv_gid,
    /// Network byte order.
    pub(crate) pkey: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_addr {
    pub(crate) src: sockaddr_storage,
    pub(crate) dst: sockaddr_storage,
    pub(crate) ib: rdma_ib_addr,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_route {
    pub(crate) addr: rdma_addr,
    pub(crate) path_rec: *mut c_void,
    pub(crate) num_paths: c_int,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}

#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: *mut ibv_context,
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) route: rdma_route,
    pub(crate) ps: u32,
    pub(crate) port_num: u8,
    pub(crate) event: *mut rdma_cm_event,
    pub(crate) send_cq_channel: *mut ibv_comp_channel,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq_channel: *mut ibv_comp_channel,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) qp_type: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct rdma_ud_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union rdma_event_param {
    pub(crate) conn: rdma_conn_param,
    pub(crate) ud: rdma_ud_param,
    pub(crate) arg: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: u32,
    pub(crate) status: c_int,
    pub(crate) param: rdma_event_param,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct rdma_addrinfo {
    pub(crate) ai_flags: c_int,
    pub(crate) ai_family: c_int,
    pub(crate) ai_qp_type: c_int,
    pub(crate) ai_port_space: c_int,
    pub(crate) ai_src_len: socklen_t,
    pub(crate) ai_dst_len: socklen_t,
    pub(crate) ai_src_addr: *mut sockaddr,
    pub(crate) ai_dst_addr: *mut sockaddr,
    pub(crate) ai_src_canonname: *mut c_char,
    pub(crate) ai_dst_canonname: *mut c_char,
    pub(crate) ai_route_len: usize,
    pub(crate) ai_route: *mut c_void,
    pub(crate) ai_connect_len: usize,
    pub(crate) ai_connect: *mut c_void,
    pub(crate) ai_next: *mut rdma_addrinfo,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct rdma_cm_join_mc_attr_ex {
    pub(crate) comp_mask: u32,
    pub(crate) join_flags: u32,
    pub(crate) addr: *mut sockaddr,
}

const _: () = {
    assert!(size_of::<rdma_ib_addr>() == 40);
    assert!(size_of::<rdma_addr>() == 296 && offset_of!(rdma_addr, ib) == 256);
    assert!(size_of::<rdma_route>() == 312 && offset_of!(rdma_route, path_rec) == 296);
    assert!(size_of::<rdma_cm_id>() == 416 && offset_of!(rdma_cm_id, route) == 32);
    assert!(offset_of!(rdma_cm_id, ps) == 344 && offset_of!(rdma_cm_id, port_num) == 348);
    assert!(offset_of!(rdma_cm_id, event) == 352 && offset_of!(rdma_cm_id, qp_type) == 408);
    assert!(offset_of!(rdma_cm_id, srq) == 392 && offset_of!(rdma_cm_id, pd) == 400);
    assert!(size_of::<rdma_conn_param>() == 24 && offset_of!(rdma_conn_param, srq) == 14);
    assert!(offset_of!(rdma_conn_param, qp_num) == 16);
    assert!(size_of::<rdma_ud_param>() == 56 && offset_of!(rdma_ud_param, ah_attr) == 16);
    assert!(offset_of!(rdma_ud_param, qp_num) == 48 && offset_of!(rdma_ud_param, qkey) == 52);
    assert!(size_of::<rdma_cm_event>() == 80 && offset_of!(rdma_cm_event, param) == 24);
    assert!(size_of::<rdma_addrinfo>() == 96 && offset_of!(rdma_addrinfo, ai_src_addr) == 24);
    assert!(offset_of!(rdma_addrinfo, ai_route_len) == 56);
    assert!(offset_of!(rdma_addrinfo, ai_connect_len) == 72);
    assert!(size_of::<rdma_cm_join_mc_attr_ex>() == 16);
};
