//! Compares C's structs with `infiniband/verbs.h`: every member's offset and size, every struct's
//! size. The fixtures come from `xtask/layouts/c_abi.py`.
//!
//! Ours are the layouts of rdma-core 65. A struct that differs in rdma-core 44 must be a part of
//! ours: it has since grown at its end, or `verbs_context` at its front.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ibverbs::sys::*;

/// Member to offset and size; the whole under an empty name.
type Layout = BTreeMap<String, (usize, usize)>;

const fn size_behind<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// The layouts of structs whose members are named; `=>` gives ours where it has another name.
macro_rules! layouts {
    ($($name:ident { $($field:ident $(=> $ours:ident)?),+ })+) => {{
        let mut all = BTreeMap::<String, Layout>::new();
        $({
            let mut layout = Layout::new();
            $(layouts!(@member layout $name $field $(=> $ours)?);)+
            layout.insert(String::new(), (0, size_of::<$name>()));
            all.insert(stringify!($name).to_owned(), layout);
        })+
        all
    }};
    (@member $layout:ident $name:ident $field:ident) => {
        layouts!(@member $layout $name $field => $field)
    };
    (@member $layout:ident $name:ident $field:ident => $ours:ident) => {
        let name = stringify!($field).trim_start_matches("r#").to_owned();
        let offset = std::mem::offset_of!($name, $ours);
        let size = size_behind::<$name, _>(|s| &s.$ours);
        assert!($layout.insert(name, (offset, size)).is_none());
    };
}

fn ours() -> BTreeMap<String, Layout> {
    layouts! {
        ibv_sge { addr, length => len, lkey }
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        ibv_device_attr { fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt }
        ibv_odp_caps { general_caps, per_transport_caps }
        ibv_odp_caps_per_transport_caps { rc_odp_caps, uc_odp_caps, ud_odp_caps }
        ibv_tso_caps { max_tso, supported_qpts }
        ibv_rss_caps { supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size, rx_hash_fields_mask, rx_hash_function }
        ibv_packet_pacing_caps { qp_rate_limit_min, qp_rate_limit_max, supported_qpts }
        ibv_tm_caps { max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge }
        ibv_cq_moderation_caps { max_cq_count, max_cq_period }
        ibv_pci_atomic_caps { fetch_add, swap, compare_swap }
        ibv_device_attr_ex { orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock, device_cap_flags_ex, tso_caps, rss_caps, max_wq_type_rq, packet_pacing_caps, raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size, pci_atomic_caps, xrc_odp_caps, phys_port_cnt_ex }
        ibv_port_attr { state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer, flags, port_cap_flags2, active_speed_ex }
        ibv_alloc_dm_attr { length, log_align_req, comp_mask }
        ibv_mw_bind { wr_id, send_flags, bind_info }
        ibv_moderate_cq { cq_count, cq_period }
        ibv_modify_cq_attr { attr_mask, moderate }
        ibv_ece { vendor_id, options, comp_mask }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_grh { version_tclass_flow, paylen, next_hdr, hop_limit, sgid, dgid }
        ibv_srq_attr { max_wr, max_sge, srq_limit }
        ibv_srq_init_attr { srq_context, attr }
        ibv_srq_init_attr_ex { srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap }
        ibv_xrcd_init_attr { comp_mask, fd, oflags }
        ibv_qp_open_attr { comp_mask, qp_num, xrcd, qp_context, qp_type }
        ibv_xrcd { context }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_rx_hash_conf { rx_hash_function, rx_hash_key_len, rx_hash_key, rx_hash_fields_mask }
        ibv_qp_init_attr_ex { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags, max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags }
        ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain }
        ibv_qp_attr { qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit }
        ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_context_ops { _compat_0, alloc_mw, bind_mw, dealloc_mw, _compat_create_cq, poll_cq, req_notify_cq, _compat_1, post_srq_recv, _compat_2, post_send, post_recv, _compat_3 }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        verbs_context { free_buf, alloc_buf, dm_export_dmabuf_fd, reg_mr_ex, dealloc_dmah, alloc_dmah, query_port, advise_mr, alloc_null_mr, read_counters, attach_counters_point_flow, create_counters, destroy_counters, reg_dm_mr, alloc_dm, free_dm, modify_flow_action_esp, destroy_flow_action, create_flow_action_esp, modify_qp_rate_limit, alloc_parent_domain, dealloc_td, alloc_td, modify_cq, post_srq_ops, destroy_rwq_ind_table, create_rwq_ind_table, destroy_wq, modify_wq, create_wq, query_rt_values, create_cq_ex, r#priv, query_device_ex, ibv_destroy_flow, ABI_placeholder2, ibv_create_flow, ABI_placeholder1, open_qp, create_qp_ex, get_srq_num, create_srq_ex, open_xrcd, close_xrcd, _ABI_placeholder3, sz, context }
        ibv_pd { context, handle }
        ibv_td { context }
        ibv_td_init_attr { comp_mask }
        ibv_parent_domain_init_attr { pd, td, comp_mask, alloc, free, pd_context }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_mw { context, pd, rkey, handle, r#type => mw_type }
        ibv_dm { context, memcpy_to_dm, memcpy_from_dm, comp_mask, handle }
        ibv_ah { context, pd, handle }
        ibv_comp_channel { context, fd, refcnt }
        ibv_cq { context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed }
        ibv_cq_ex { comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp, read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts, read_cvlan, read_flow_tag, read_tm_info, read_completion_wallclock_ns }
        ibv_wq { context, wq_context, pd, cq, wq_num, handle, state, wq_type, post_recv, mutex, cond, events_completed, comp_mask }
        ibv_wq_init_attr { wq_context, wq_type, max_wr, max_sge, pd, cq, comp_mask, create_flags }
        ibv_wq_attr { attr_mask, wq_state, curr_wq_state, flags, flags_mask }
        ibv_rwq_ind_table { context, ind_tbl_handle, ind_tbl_num, comp_mask }
        ibv_rwq_ind_table_init_attr { log_ind_tbl_size, ind_tbl, comp_mask }
        ibv_flow_attr { comp_mask, r#type, size, priority, num_of_specs, port, flags }
        ibv_flow { comp_mask, context, handle }
        ibv_counters { context }
        ibv_counters_init_attr { comp_mask }
        ibv_counter_attach_attr { counter_desc, index, comp_mask }
        ibv_values_ex { comp_mask, raw_clock }
        ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed }
        ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond, events_completed }
        ibv_async_event { element, event_type }
        ibv_tm_cap { max_num_tags, max_ops }
        ibv_ops_wr { wr_id, next, opcode, flags, tm }
        ibv_ops_wr_tm { unexpected_cnt, handle, add }
        ibv_ops_wr_tm_add { recv_wr_id, sg_list, num_sge, tag, mask }
        ibv_wc_tm_info { tag, r#priv }
        ibv_data_buf { addr, length }
        ibv_wc { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits }
        ibv_send_wr_rdma { remote_addr, rkey }
        ibv_send_wr_atomic { remote_addr, compare_add, swap, rkey }
        ibv_send_wr_ud { ah, remote_qpn, remote_qkey }
        ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, qp_type => xrc_srqn, bind_mw }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_qp_ex { qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv, wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm, wr_send_inv, wr_send_tso, wr_set_ud_addr, wr_set_xrc_srqn, wr_set_inline_data, wr_set_inline_data_list, wr_set_sge, wr_set_sge_list, wr_start, wr_complete, wr_abort, wr_atomic_write, wr_flush }
    }
}

fn fixture(name: &str) -> BTreeMap<String, Layout> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let mut all = BTreeMap::<String, Layout>::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let words: Vec<_> = line.split('\t').collect();
        let number = |word: &str| word.parse().unwrap_or(0);
        let row = (number(words[2]), number(words[3]));
        let layout = all.entry(words[0].to_owned()).or_default();
        assert!(layout.insert(words[1].to_owned(), row).is_none(), "{line}");
    }
    all
}

/// Holes, obsolete slots, and an extended queue's first members, which are a plain one's.
fn is_left_out(name: &str, member: &str, plain: &Layout) -> bool {
    member.starts_with('_') || name == "ibv_cq_ex" && plain.contains_key(member)
}

#[test]
fn structs_are_laid_out_as_in_c() {
    let (ours, mut theirs) = (ours(), fixture("layout.tsv"));
    theirs.append(&mut fixture("layout_later.tsv"));
    let names = |all: &BTreeMap<String, Layout>| all.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&ours), names(&theirs));
    assert!(ours.len() > 40);
    let plain = ours["ibv_cq"].clone();
    for (name, layout) in &theirs {
        for (member, place) in layout {
            let is_size = member.is_empty();
            if is_size || !is_left_out(name, member, &plain) {
                assert_eq!(ours[name].get(member), Some(place), "{name}.{member}");
            }
        }
        let more: Vec<_> = ours[name]
            .keys()
            .filter(|member| !layout.contains_key(*member) && !is_left_out(name, member, &plain))
            .collect();
        assert!(more.is_empty(), "{name} has no {more:?} in C");
    }
    // The left out members of an extended queue are in its first one.
    assert_eq!(std::mem::offset_of!(ibv_cq_ex, comp_mask), size_of::<ibv_cq>());
}

#[test]
fn older_layouts_are_a_part() {
    let (older, later) = (fixture("layout.tsv"), fixture("layout_later.tsv"));
    assert_eq!(later.len(), 3, "what else has changed?");
    for (name, layout) in &later {
        let size = |layout: &Layout| layout[""].1;
        let grown = size(layout) - size(&older[name]);
        assert!(grown > 0, "{name}");
        let shift = if name == "verbs_context" { grown } else { 0 };
        for (member, &(offset, size)) in &older[name] {
            if !member.is_empty() && !member.starts_with("_pad") {
                assert_eq!(layout.get(member), Some(&(offset + shift, size)), "{name}.{member}");
            }
        }
    }
}
