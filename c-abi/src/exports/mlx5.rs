//! Exported names of libmlx5 (`mlx5dv_*`). `libmlx5.so.1` is a link to this library.
#![allow(unsafe_code, reason = "assembly")]

use crate::device::devx;
use crate::device::devx_events;
use crate::exports::stubs;
use crate::exports::verbs::{label, node};
use crate::memory::dm;
use crate::memory::mkey;
use crate::memory::mr;
use crate::mlx5dv::caps;
use crate::mlx5dv::dr;
use crate::mlx5dv::dr_action;
use crate::mlx5dv::dr_dump;
use crate::mlx5dv::make;
use crate::mlx5dv::matcher;
use crate::mlx5dv::queues;
use crate::post::mlx5_ops;
use crate::queues::ah;

// Before 1.2 the address of a completion queue's doorbell page had a different layout.
label!(mlx5dv_init_obj, "@", "MLX5_1.0", stubs::not_supported);

node! { "MLX5_1.0":
    mlx5dv_query_device = caps::query_device;
}

node! { "MLX5_1.1":
    mlx5dv_create_cq = make::create_cq;
}

node! { "MLX5_1.2":
    mlx5dv_init_obj = queues::init_obj;
    mlx5dv_set_context_attr = stubs::not_supported;
}

node! { "MLX5_1.3":
    mlx5dv_create_qp = make::create_qp;
    mlx5dv_create_wq = make::create_wq;
}

node! { "MLX5_1.4":
    mlx5dv_get_clock_info = caps::get_clock_info;
}

node! { "MLX5_1.5":
    mlx5dv_create_flow_action_esp = stubs::no_object;
}

node! { "MLX5_1.6":
    mlx5dv_create_flow_matcher = matcher::create_flow_matcher;
    mlx5dv_destroy_flow_matcher = matcher::destroy_flow_matcher;
    mlx5dv_create_flow = matcher::create_flow;
}

node! { "MLX5_1.7":
    mlx5dv_create_flow_action_modify_header = stubs::no_object;
    mlx5dv_create_flow_action_packet_reformat = stubs::no_object;
    mlx5dv_devx_alloc_uar = devx::alloc_uar;
    mlx5dv_devx_free_uar = devx::free_uar;
    mlx5dv_devx_general_cmd = devx::general_cmd;
    mlx5dv_devx_obj_create = devx::obj_create;
    mlx5dv_devx_obj_destroy = devx::obj_destroy;
    mlx5dv_devx_obj_modify = devx::obj_modify;
    mlx5dv_devx_obj_query = devx::obj_query;
    mlx5dv_devx_query_eqn = devx::query_eqn;
    mlx5dv_devx_umem_dereg = devx::umem_dereg;
    mlx5dv_devx_umem_reg = devx::umem_reg;
    mlx5dv_open_device = make::open_device;
}

node! { "MLX5_1.8":
    mlx5dv_devx_cq_modify = stubs::not_supported;
    mlx5dv_devx_cq_query = stubs::not_supported;
    mlx5dv_devx_ind_tbl_modify = stubs::not_supported;
    mlx5dv_devx_ind_tbl_query = stubs::not_supported;
    mlx5dv_devx_qp_modify = stubs::not_supported;
    mlx5dv_devx_qp_query = stubs::not_supported;
    mlx5dv_devx_srq_modify = stubs::not_supported;
    mlx5dv_devx_srq_query = stubs::not_supported;
    mlx5dv_devx_wq_modify = stubs::not_supported;
    mlx5dv_devx_wq_query = stubs::not_supported;
    mlx5dv_is_supported = make::is_supported;
}

node! { "MLX5_1.9":
    mlx5dv_devx_create_cmd_comp = devx::create_cmd_comp;
    mlx5dv_devx_destroy_cmd_comp = devx::destroy_cmd_comp;
    mlx5dv_devx_get_async_cmd_comp = devx::get_async_cmd_comp;
    mlx5dv_devx_obj_query_async = devx::obj_query_async;
}

node! { "MLX5_1.10":
    mlx5dv_alloc_dm = stubs::no_object;
    mlx5dv_create_mkey = mkey::create_mkey;
    mlx5dv_destroy_mkey = mkey::destroy_mkey;
    mlx5dv_dr_action_create_dest_table = stubs::no_object;
    mlx5dv_dr_action_create_dest_ibv_qp = dr_action::create_dest_ibv_qp;
    mlx5dv_dr_action_create_dest_vport = stubs::no_object;
    mlx5dv_dr_action_create_flow_counter = dr_action::create_flow_counter;
    mlx5dv_dr_action_create_drop = dr_action::create_drop;
    mlx5dv_dr_action_create_modify_header = dr_action::create_modify_header;
    mlx5dv_dr_action_create_packet_reformat = stubs::no_object;
    mlx5dv_dr_action_create_tag = dr_action::create_tag;
    mlx5dv_dr_action_destroy = dr_action::destroy;
    mlx5dv_dr_domain_create = dr::domain_create;
    mlx5dv_dr_domain_destroy = dr::domain_destroy;
    mlx5dv_dr_domain_sync = dr::domain_sync;
    mlx5dv_dr_matcher_create = dr::matcher_create;
    mlx5dv_dr_matcher_destroy = dr::matcher_destroy;
    mlx5dv_dr_rule_create = dr::rule_create;
    mlx5dv_dr_rule_destroy = dr::rule_destroy;
    mlx5dv_dr_table_create = dr::table_create;
    mlx5dv_dr_table_destroy = dr::table_destroy;
    mlx5dv_qp_ex_from_ibv_qp_ex = mlx5_ops::qp_ex_from_ibv_qp_ex;
}

node! { "MLX5_1.11":
    mlx5dv_devx_create_event_channel = devx_events::create_event_channel;
    mlx5dv_devx_destroy_event_channel = devx_events::destroy_event_channel;
    mlx5dv_devx_get_event = devx_events::get_event;
    mlx5dv_devx_subscribe_devx_event = devx_events::subscribe_devx_event;
    mlx5dv_devx_subscribe_devx_event_fd = devx_events::subscribe_devx_event_fd;
}

node! { "MLX5_1.12":
    mlx5dv_alloc_var = stubs::no_object;
    mlx5dv_dr_action_create_flow_meter = stubs::no_object;
    mlx5dv_dr_action_modify_flow_meter = stubs::not_supported;
    mlx5dv_dump_dr_domain = dr_dump::dump_domain;
    mlx5dv_dump_dr_matcher = dr_dump::dump_matcher;
    mlx5dv_dump_dr_rule = dr_dump::dump_rule;
    mlx5dv_dump_dr_table = dr_dump::dump_table;
    mlx5dv_free_var = stubs::nothing;
}

node! { "MLX5_1.13":
    mlx5dv_pp_alloc = stubs::no_object;
    mlx5dv_pp_free = stubs::nothing;
}

node! { "MLX5_1.14":
    mlx5dv_dr_action_create_default_miss = dr_action::create_default_miss;
    mlx5dv_dr_domain_set_reclaim_device_memory = stubs::nothing;
    mlx5dv_modify_qp_lag_port = make::modify_qp_lag_port;
    mlx5dv_query_qp_lag_port = make::query_qp_lag_port;
}

node! { "MLX5_1.15":
    mlx5dv_dr_action_create_dest_devx_tir = dr_action::create_dest_devx_tir;
}

node! { "MLX5_1.16":
    mlx5dv_dr_action_create_dest_array = stubs::no_object;
    mlx5dv_dr_action_create_flow_sampler = stubs::no_object;
}

node! { "MLX5_1.17":
    mlx5dv_dr_action_create_aso = stubs::no_object;
    mlx5dv_dr_action_create_pop_vlan = stubs::no_object;
    mlx5dv_dr_action_create_push_vlan = stubs::no_object;
    mlx5dv_dr_action_modify_aso = stubs::not_supported;
    mlx5dv_modify_qp_sched_elem = stubs::not_supported;
    mlx5dv_modify_qp_udp_sport = make::modify_qp_udp_sport;
    mlx5dv_sched_leaf_create = stubs::no_object;
    mlx5dv_sched_leaf_destroy = stubs::not_supported;
    mlx5dv_sched_leaf_modify = stubs::not_supported;
    mlx5dv_sched_node_create = stubs::no_object;
    mlx5dv_sched_node_destroy = stubs::not_supported;
    mlx5dv_sched_node_modify = stubs::not_supported;
}

node! { "MLX5_1.18":
    mlx5dv_reserved_qpn_alloc = make::reserved_qpn_alloc;
    mlx5dv_reserved_qpn_dealloc = make::reserved_qpn_dealloc;
}

node! { "MLX5_1.19":
    mlx5dv_devx_umem_reg_ex = devx::umem_reg_ex;
    mlx5dv_dm_map_op_addr = dm::map_op_addr;
    _mlx5dv_query_port = caps::query_port;
}

node! { "MLX5_1.20":
    mlx5dv_dr_domain_allow_duplicate_rules = stubs::nothing;
    mlx5dv_map_ah_to_qp = ah::map_ah_to_qp;
    mlx5dv_qp_cancel_posted_send_wrs = stubs::not_supported;
    _mlx5dv_mkey_check = stubs::not_supported;
}

node! { "MLX5_1.21":
    mlx5dv_crypto_login = stubs::not_supported;
    mlx5dv_crypto_login_query_state = stubs::not_supported;
    mlx5dv_crypto_logout = stubs::not_supported;
    mlx5dv_dci_stream_id_reset = make::dci_stream_id_reset;
    mlx5dv_dek_create = stubs::no_object;
    mlx5dv_dek_destroy = stubs::not_supported;
    mlx5dv_dek_query = stubs::not_supported;
    mlx5dv_dr_action_create_dest_ib_port = stubs::no_object;
    mlx5dv_dr_matcher_set_layout = stubs::not_supported;
    mlx5dv_get_vfio_device_list = stubs::no_object;
    mlx5dv_vfio_get_events_fd = stubs::no_number;
    mlx5dv_vfio_process_events = stubs::not_supported;
}

node! { "MLX5_1.22":
    mlx5dv_dr_aso_other_domain_link = stubs::not_supported;
    mlx5dv_dr_aso_other_domain_unlink = stubs::not_supported;
}

node! { "MLX5_1.23":
    mlx5dv_devx_alloc_msi_vector = stubs::no_object;
    mlx5dv_devx_create_eq = stubs::no_object;
    mlx5dv_devx_destroy_eq = stubs::not_supported;
    mlx5dv_devx_free_msi_vector = stubs::not_supported;
}

node! { "MLX5_1.24":
    mlx5dv_create_steering_anchor = stubs::no_object;
    mlx5dv_crypto_login_create = stubs::no_object;
    mlx5dv_crypto_login_destroy = stubs::not_supported;
    mlx5dv_crypto_login_query = stubs::not_supported;
    mlx5dv_destroy_steering_anchor = stubs::not_supported;
    mlx5dv_dr_action_create_dest_root_table = stubs::no_object;
}

node! { "MLX5_1.25":
    mlx5dv_get_data_direct_sysfs_path = caps::data_direct_path;
    mlx5dv_reg_dmabuf_mr = mr::reg_driver_dmabuf_mr;
}

node! { "MLX5_1.25.1":
    __mlx5dv_create_flow = matcher::create_flow_sized;
}

node! { "MLX5_1.26":
    mlx5dv_devx_uar_export_dmabuf_fd = devx::uar_export_dmabuf_fd;
}

node! { "MLX5_1.27":
    _mlx5dv_get_export_sizes = devx::export_sizes;
    mlx5dv_devx_obj_export = devx::obj_export;
    mlx5dv_devx_obj_import = devx::obj_import;
    mlx5dv_devx_obj_unimport = devx::obj_unimport;
    mlx5dv_devx_umem_export = devx::umem_export;
    mlx5dv_devx_umem_import = devx::umem_import;
    mlx5dv_devx_umem_unimport = devx::umem_unimport;
    mlx5dv_var_export = stubs::not_supported;
    mlx5dv_var_import = stubs::no_object;
    mlx5dv_var_unimport = stubs::nothing;
}
