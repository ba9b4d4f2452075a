//! Exported names and versions of the functions.
//!
//! Each export is an assembly label with a version, which jumps to the function. So every name is
//! exported with its version, and a function may have several names. `libibverbs.map` lists the
//! version nodes, too.
//!
//! # Safety
//!
//! The labels are new names for functions that have C's calling convention.
#![allow(unsafe_code, reason = "assembly")]

use crate::base::fork;
use crate::base::names;
use crate::device::comp_cntr;
use crate::device::event;
use crate::device::gid;
use crate::device::import;
use crate::device::list;
use crate::device::open;
use crate::device::port;
use crate::device::query_device;
use crate::device::rate;
use crate::device::sysfs;
use crate::exports::stubs;
use crate::memory::buf;
use crate::memory::dm;
use crate::memory::mr;
use crate::memory::mr_ex;
use crate::memory::pd;
use crate::queues::ah;
use crate::queues::channel;
use crate::queues::cq;
use crate::queues::ece;
use crate::queues::make_cq;
use crate::queues::make_qp;
use crate::queues::modify;
use crate::queues::qp;
use crate::queues::srq;
use crate::rsocket::forks;

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

/// Exports a name: `"@@"` makes the version the default, `"@"` serves only programs linked with
/// that version.
macro_rules! label {
    ($name:ident, $at:literal, $node:literal, $function:path) => {
        std::arch::global_asm!(
            ".pushsection .text.uverbs_c_abi,\"ax\",@progbits",
            concat!(".globl ", stringify!($name), ".", $node),
            concat!(".type ", stringify!($name), ".", $node, ", @function"),
            concat!(stringify!($name), ".", $node, ":"),
            $crate::exports::verbs::jump!(),
            concat!(
                ".size ", stringify!($name), ".", $node, ", . - ", stringify!($name), ".", $node
            ),
            concat!(
                ".symver ", stringify!($name), ".", $node, ", ",
                stringify!($name), $at, $node, ", remove"
            ),
            ".popsection",
            function = sym $function,
        );
    };
}

/// Exports the names of a version node.
macro_rules! node {
    ($node:literal: $($name:ident = $function:path;)*) => {
        $($crate::exports::verbs::label!($name, "@@", $node, $function);)*
    };
}
pub(crate) use {jump, label, node};

node! { "IBVERBS_1.0":
    ibv_create_comp_channel = channel::create_comp_channel;
    ibv_destroy_comp_channel = channel::destroy_comp_channel;
    ibv_get_sysfs_path = sysfs::get_sysfs_path;
    ibv_read_sysfs_file = sysfs::read_sysfs_file;
    ibv_rate_to_mult = rate::rate_to_mult;
    mult_to_ibv_rate = rate::mult_to_rate;
    ibv_copy_path_rec_from_kern = stubs::nothing;
    ibv_copy_path_rec_to_kern = stubs::nothing;
    ibv_copy_qp_attr_from_kern = stubs::nothing;
}

node! { "IBVERBS_1.1":
    ibv_ack_async_event = event::ack_async_event;
    ibv_ack_cq_events = event::ack_cq_events;
    ibv_alloc_pd = pd::alloc_pd;
    ibv_attach_mcast = qp::attach_mcast;
    ibv_close_device = open::close_device;
    ibv_copy_ah_attr_from_kern = stubs::nothing;
    ibv_create_ah = ah::create_ah;
    ibv_create_ah_from_wc = ah::create_ah_from_wc;
    ibv_create_cq = make_cq::create_cq;
    ibv_create_qp = make_qp::create_qp;
    ibv_create_srq = srq::create_srq;
    ibv_dealloc_pd = pd::dealloc_pd;
    ibv_dereg_mr = mr::dereg_mr;
    ibv_destroy_ah = ah::destroy_ah;
    ibv_destroy_cq = cq::destroy_cq;
    ibv_destroy_qp = qp::destroy_qp;
    ibv_destroy_srq = srq::destroy_srq;
    ibv_detach_mcast = qp::detach_mcast;
    ibv_dofork_range = fork::fork_range;
    ibv_dontfork_range = fork::fork_range;
    ibv_event_type_str = names::event_type;
    ibv_fork_init = fork::fork_init;
    ibv_free_device_list = list::free_device_list;
    ibv_get_async_event = event::get_async_event;
    ibv_get_cq_event = event::get_cq_event;
    ibv_get_device_guid = list::get_device_guid;
    ibv_get_device_list = list::get_device_list;
    ibv_get_device_name = list::get_device_name;
    ibv_init_ah_from_wc = ah::init_ah_from_wc;
    ibv_modify_qp = modify::modify_qp;
    ibv_modify_srq = srq::modify_srq;
    ibv_node_type_str = names::node_type;
    ibv_open_device = open::open_device;
    ibv_port_state_str = names::port_state;
    ibv_query_device = query_device::query_device;
    ibv_query_gid = gid::query_gid;
    ibv_query_pkey = gid::query_pkey;
    ibv_query_port = port::query_port;
    ibv_query_qp = modify::query_qp;
    ibv_query_srq = srq::query_srq;
    ibv_rate_to_mbps = rate::rate_to_mbps;
    ibv_reg_mr = mr::reg_mr;
    ibv_rereg_mr = mr::rereg_mr;
    ibv_resize_cq = cq::resize_cq;
    ibv_resolve_eth_l2_from_gid = stubs::no_number;
    ibv_wc_status_str = names::wc_status;
    mbps_to_ibv_rate = rate::mbps_to_rate;
}

// Programs older than the default version.
label!(ibv_register_driver, "@", "IBVERBS_1.1", stubs::nothing);

node! { "IBVERBS_1.5":
    ibv_get_pkey_index = gid::get_pkey_index;
}

node! { "IBVERBS_1.6":
    ibv_qp_to_qp_ex = qp::qp_to_qp_ex;
}

node! { "IBVERBS_1.7":
    ibv_reg_mr_iova = mr::reg_mr_iova;
}

node! { "IBVERBS_1.8":
    ibv_reg_mr_iova2 = mr::reg_mr_iova;
}

node! { "IBVERBS_1.9":
    ibv_get_device_index = list::get_device_index;
}

node! { "IBVERBS_1.10":
    ibv_import_device = import::import_device;
    ibv_import_mr = mr::import_mr;
    ibv_import_pd = pd::import_pd;
    ibv_query_ece = ece::query_ece;
    ibv_set_ece = ece::set_ece;
    ibv_unimport_mr = mr::unimport_mr;
    ibv_unimport_pd = pd::unimport_pd;
}

node! { "IBVERBS_1.11":
    _ibv_query_gid_ex = gid::query_gid_ex;
    _ibv_query_gid_table = gid::query_gid_table;
}

node! { "IBVERBS_1.12":
    ibv_reg_dmabuf_mr = mr::reg_dmabuf_mr;
}

node! { "IBVERBS_1.13":
    ibv_import_dm = dm::import_dm;
    ibv_is_fork_initialized = fork::is_fork_initialized;
    ibv_unimport_dm = dm::unimport_dm;
}

node! { "IBVERBS_1.14":
    ibv_query_qp_data_in_order = qp::data_in_order;
}

node! { "IBVERBS_1.15":
    ibv_alloc_dmah = stubs::no_object;
    ibv_dealloc_dmah = stubs::not_supported;
    ibv_reg_mr_ex = mr_ex::reg_mr_ex;
}

node! { "IBVERBS_1.16":
    ibv_dm_export_dmabuf_fd = dm::export_dmabuf_fd;
    ibv_query_port_speed = port::query_port_speed;
}

node! { "IBVERBS_1.17":
    ibv_alloc_buf = buf::alloc_buf;
    ibv_free_buf = buf::free_buf;
    ibv_reg_buf_mr = buf::reg_buf_mr;
}

node! { "IBVERBS_1.18":
    _ibv_query_comp_cntr_caps = comp_cntr::query_caps;
    ibv_create_comp_cntr = comp_cntr::create_comp_cntr;
    ibv_destroy_comp_cntr = comp_cntr::destroy_comp_cntr;
    ibv_export_buf_dmabuf_fd = buf::export_buf_dmabuf_fd;
    ibv_inc_comp_cntr = comp_cntr::add_completed;
    ibv_inc_err_comp_cntr = comp_cntr::add_failed;
    ibv_qp_attach_comp_cntr = comp_cntr::attach;
    ibv_read_comp_cntr = comp_cntr::read_completed;
    ibv_read_err_comp_cntr = comp_cntr::read_failed;
    ibv_set_comp_cntr = comp_cntr::set_completed;
    ibv_set_err_comp_cntr = comp_cntr::set_failed;
}

/// Exports private names, by kind, under each node number of releases 44 to 65.
macro_rules! private {
    ($function:path: $($name:ident)*) => {
        $(
            label!($name, "@", "IBVERBS_PRIVATE_34", $function);
            label!($name, "@", "IBVERBS_PRIVATE_57", $function);
            label!($name, "@", "IBVERBS_PRIVATE_59", $function);
            label!($name, "@", "IBVERBS_PRIVATE_64", $function);
            label!($name, "@@", "IBVERBS_PRIVATE_65", $function);
        )*
    };
}

/// Exports private names of release 65 only.
macro_rules! private_65 {
    ($function:path: $($name:ident)*) => {
        $(label!($name, "@@", "IBVERBS_PRIVATE_65", $function);)*
    };
}

private! { gid::query_gid_type: ibv_query_gid_type }

private! { stubs::not_supported:
    __ioctl_final_num_attrs execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw
    ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah
    ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex ibv_cmd_create_flow
    ibv_cmd_create_flow_action_esp ibv_cmd_create_qp ibv_cmd_create_qp_ex2
    ibv_cmd_create_qp_ex ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq ibv_cmd_create_srq_ex
    ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr
    ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq ibv_cmd_destroy_flow
    ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm
    ibv_cmd_get_context ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp
    ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq ibv_cmd_open_qp
    ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send
    ibv_cmd_post_srq_recv ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr
    ibv_cmd_query_port ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_counters
    ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_req_notify_cq
    ibv_cmd_rereg_mr ibv_cmd_resize_cq
}

private! { stubs::no_object:
    _verbs_init_and_alloc_context verbs_open_device
}

private! { stubs::no_number:
    ibv_read_ibdev_sysfs_file
}

private! { stubs::nothing:
    __verbs_log verbs_allow_disassociate_destroy verbs_init_cq verbs_set_ops
    verbs_uninit_context
}

private_65! { stubs::not_supported:
    ibv_cmd_alloc_dmah ibv_cmd_create_comp_cntr ibv_cmd_create_cq_ex2
    ibv_cmd_destroy_comp_cntr ibv_cmd_free_dmah ibv_cmd_inc_comp_cntr
    ibv_cmd_inc_err_comp_cntr ibv_cmd_qp_attach_comp_cntr ibv_cmd_query_comp_cntr_caps
    ibv_cmd_query_port_speed ibv_cmd_read_comp_cntr ibv_cmd_read_err_comp_cntr
    ibv_cmd_reg_mr_ex ibv_cmd_set_comp_cntr ibv_cmd_set_err_comp_cntr
    ibv_dmabuf_heap_cc_shared_init ibv_dmabuf_heap_destroy
}

private_65! { stubs::no_object:
    ibv_dmabuf_heap_alloc ibv_wr_opcode_str
}

private_65! { stubs::no_number:
    ibv_cmd_export_dmabuf_fd
}

// For the preloaded `c-abi/nodes`.
private_65! { sysfs::folder: uverbs_sysfs }

private_65! { forks::before_fork: uverbs_before_fork }

private_65! { stubs::nothing:
    ibv_dmabuf_heap_free
}

label!(verbs_register_driver_34, "@@", "IBVERBS_PRIVATE_34", stubs::nothing);
label!(verbs_register_driver_57, "@@", "IBVERBS_PRIVATE_57", stubs::nothing);
label!(verbs_register_driver_59, "@@", "IBVERBS_PRIVATE_59", stubs::nothing);
label!(verbs_register_driver_64, "@@", "IBVERBS_PRIVATE_64", stubs::nothing);
label!(verbs_register_driver_65, "@@", "IBVERBS_PRIVATE_65", stubs::nothing);
