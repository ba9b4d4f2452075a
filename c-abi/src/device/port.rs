//! Ports.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::{MaybeUninit, offset_of};

use uverbs_core::Errno;
use uverbs_core::attr::PortAttr;
use uverbs_core::provider::ContextOps;
use uverbs_kernel_abi::port::IB_UVERBS_QPF_GRH_REQUIRED;

use crate::base::answer::{code, refuse};
use crate::device::context::Context;
use crate::device::gid::write_sized;
use crate::sys::{ibv_context, ibv_port_attr};

fn to_c(port: &PortAttr) -> ibv_port_attr {
    let speed = port.active_speed.0;
    ibv_port_attr {
        state: port.state.raw().into(),
        max_mtu: port.max_mtu.raw().into(),
        active_mtu: port.active_mtu.raw().into(),
        gid_tbl_len: port.gid_table_len as c_int,
        port_cap_flags: port.caps.bits(),
        max_msg_sz: port.max_message_size,
        bad_pkey_cntr: port.bad_pkey_count,
        qkey_viol_cntr: port.qkey_violation_count,
        pkey_tbl_len: port.pkey_table_len,
        lid: port.lid,
        sm_lid: port.sm_lid,
        lmc: port.lmc,
        max_vl_num: port.max_vl_num,
        sm_sl: port.sm_sl,
        subnet_timeout: port.subnet_timeout,
        init_type_reply: port.init_type_reply,
        active_width: port.active_width.0,
        // A speed above one byte is in `active_speed_ex`; the byte then holds NDR, as the kernel's
        // does.
        active_speed: u8::try_from(speed).unwrap_or(128),
        phys_state: port.phys_state,
        link_layer: port.link_layer.raw(),
        flags: if port.grh_required { IB_UVERBS_QPF_GRH_REQUIRED } else { 0 },
        port_cap_flags2: port.caps2,
        active_speed_ex: speed,
    }
}

/// Queries a port, up to the program's size of the attributes.
pub(crate) unsafe extern "C" fn query_port_sized(
    context: *const ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: by C's contract.
    let found = unsafe { Context::of(context) }.ops().query_port(port);
    code(found.map(|found| {
        // SAFETY: C's contract: there is room for `size` bytes.
        unsafe { write_sized(attr, &to_c(&found), size) };
    }))
}

pub(crate) unsafe extern "C" fn query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut MaybeUninit<u64>,
) -> c_int {
    let Ok(port) = u8::try_from(port) else { return refuse(Errno::EINVAL) };
    // SAFETY: by C's contract.
    let found = unsafe { Context::of(context) }.ops().core().uverbs().query_port_speed(port);
    code(found.map(|found| {
        // SAFETY: by C's contract.
        unsafe { (*speed).write(found) };
    }))
}

/// Queries a port for programs older than the extended table: up to `port_cap_flags2`.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // Padding makes the older struct as long as the current one.
    const { assert!(offset_of!(ibv_port_attr, flags) == 47) };
    // SAFETY: by C's contract.
    unsafe { query_port_sized(context, port, attr, 48) }
}
