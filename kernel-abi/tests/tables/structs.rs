//! Every struct of the crate with its fields, for `layout.rs`.

use crate::{Row, table};

/// One row per field and one per whole struct.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    {
        use uverbs_kernel_abi::ioctl::*;
        table!(
            rows,
            ib_uverbs_ioctl_hdr {
                length,
                object_id,
                method_id,
                num_attrs,
                reserved1,
                driver_id,
                reserved2
            }
        );
        table!(rows, ib_uverbs_attr { attr_id, len, flags, attr_data, data });
        table!(rows, ib_uverbs_attr_enum_data { elem_id, reserved });
    }
    {
        use uverbs_kernel_abi::write::*;
        table!(rows, ib_uverbs_cmd_hdr { command, in_words, out_words });
        table!(
            rows,
            ib_uverbs_ex_cmd_hdr {
                response,
                provider_in_words,
                provider_out_words,
                cmd_hdr_reserved
            }
        );
    }
    {
        use uverbs_kernel_abi::comp_cntr::*;
        table!(rows, ib_uverbs_buffer_desc { r#type, fd, flags, optional_flags, addr, length });
    }
    {
        use uverbs_kernel_abi::device::*;
        table!(rows, ib_uverbs_get_context { response });
        table!(rows, ib_uverbs_get_context_resp { async_fd, num_comp_vectors });
        table!(rows, ib_uverbs_query_device { response });
        table!(
            rows,
            ib_uverbs_query_device_resp {
                fw_ver,
                node_guid,
                sys_image_guid,
                max_mr_size,
                page_size_cap,
                vendor_id,
                vendor_part_id,
                hw_ver,
                max_qp,
                max_qp_wr,
                device_cap_flags,
                max_sge,
                max_sge_rd,
                max_cq,
                max_cqe,
                max_mr,
                max_pd,
                max_qp_rd_atom,
                max_ee_rd_atom,
                max_res_rd_atom,
                max_qp_init_rd_atom,
                max_ee_init_rd_atom,
                atomic_cap,
                max_ee,
                max_rdd,
                max_mw,
                max_raw_ipv6_qp,
                max_raw_ethy_qp,
                max_mcast_grp,
                max_mcast_qp_attach,
                max_total_mcast_qp_attach,
                max_ah,
                max_fmr,
                max_map_per_fmr,
                max_srq,
                max_srq_wr,
                max_srq_sge,
                max_pkeys,
                local_ca_ack_delay,
                phys_port_cnt,
                reserved
            }
        );
        table!(rows, ib_uverbs_ex_query_device { comp_mask, reserved });
        table!(
            rows,
            ib_uverbs_odp_caps_per_transport_caps { rc_odp_caps, uc_odp_caps, ud_odp_caps }
        );
        table!(rows, ib_uverbs_odp_caps { general_caps, per_transport_caps, reserved });
        table!(
            rows,
            ib_uverbs_rss_caps {
                supported_qpts,
                max_rwq_indirection_tables,
                max_rwq_indirection_table_size,
                reserved
            }
        );
        table!(
            rows,
            ib_uverbs_tm_caps {
                max_rndv_hdr_size,
                max_num_tags,
                flags,
                max_ops,
                max_sge,
                reserved
            }
        );
        table!(
            rows,
            ib_uverbs_cq_moderation_caps {
                max_cq_moderation_count,
                max_cq_moderation_period,
                reserved
            }
        );
        table!(
            rows,
            ib_uverbs_ex_query_device_resp {
                base,
                comp_mask,
                response_length,
                odp_caps,
                timestamp_mask,
                hca_core_clock,
                device_cap_flags_ex,
                rss_caps,
                max_wq_type_rq,
                raw_packet_caps,
                tm_caps,
                cq_moderation_caps,
                max_dm_size,
                xrc_odp_caps,
                reserved
            }
        );
    }
    {
        use uverbs_kernel_abi::port::*;
        table!(rows, ib_uverbs_query_port { response, port_num, reserved });
        table!(
            rows,
            ib_uverbs_query_port_resp {
                port_cap_flags,
                max_msg_sz,
                bad_pkey_cntr,
                qkey_viol_cntr,
                gid_tbl_len,
                pkey_tbl_len,
                lid,
                sm_lid,
                state,
                max_mtu,
                active_mtu,
                lmc,
                max_vl_num,
                sm_sl,
                subnet_timeout,
                init_type_reply,
                active_width,
                active_speed,
                phys_state,
                link_layer,
                flags,
                reserved
            }
        );
        table!(rows, ib_uverbs_query_port_resp_ex { legacy_resp, port_cap_flags2, reserved });
    }
    {
        use uverbs_kernel_abi::gid::*;
        table!(rows, ib_uverbs_gid_entry { gid, gid_index, port_num, gid_type, netdev_ifindex });
    }
    {
        use uverbs_kernel_abi::pd::*;
        table!(rows, ib_uverbs_alloc_pd { response });
        table!(rows, ib_uverbs_alloc_pd_resp { pd_handle });
        table!(rows, ib_uverbs_dealloc_pd { pd_handle });
    }
    {
        use uverbs_kernel_abi::mr::*;
        table!(rows, ib_uverbs_reg_mr { response, start, length, hca_va, pd_handle, access_flags });
        table!(rows, ib_uverbs_reg_mr_resp { mr_handle, lkey, rkey });
        table!(
            rows,
            ib_uverbs_rereg_mr {
                response,
                mr_handle,
                flags,
                start,
                length,
                hca_va,
                pd_handle,
                access_flags
            }
        );
        table!(rows, ib_uverbs_rereg_mr_resp { lkey, rkey });
        table!(rows, ib_uverbs_dereg_mr { mr_handle });
    }
    {
        use uverbs_kernel_abi::mw::*;
        table!(rows, ib_uverbs_alloc_mw { response, pd_handle, mw_type, reserved });
        table!(rows, ib_uverbs_alloc_mw_resp { mw_handle, rkey });
        table!(rows, ib_uverbs_dealloc_mw { mw_handle });
    }
    {
        use uverbs_kernel_abi::cq::*;
        table!(rows, ib_uverbs_create_comp_channel { response });
        table!(rows, ib_uverbs_create_comp_channel_resp { fd });
        table!(
            rows,
            ib_uverbs_create_cq { response, user_handle, cqe, comp_vector, comp_channel, reserved }
        );
        table!(rows, ib_uverbs_create_cq_resp { cq_handle, cqe });
        table!(
            rows,
            ib_uverbs_ex_create_cq {
                user_handle,
                cqe,
                comp_vector,
                comp_channel,
                comp_mask,
                flags,
                reserved
            }
        );
        table!(rows, ib_uverbs_ex_create_cq_resp { base, comp_mask, response_length });
        table!(rows, ib_uverbs_resize_cq { response, cq_handle, cqe });
        table!(rows, ib_uverbs_resize_cq_resp { cqe, reserved });
        table!(rows, ib_uverbs_req_notify_cq { cq_handle, solicited_only });
        table!(rows, ib_uverbs_cq_moderation { cq_count, cq_period });
        table!(rows, ib_uverbs_ex_modify_cq { cq_handle, attr_mask, attr, reserved });
        table!(rows, ib_uverbs_destroy_cq { response, cq_handle, reserved });
        table!(rows, ib_uverbs_destroy_cq_resp { comp_events_reported, async_events_reported });
    }
    {
        use uverbs_kernel_abi::qp::*;
        table!(
            rows,
            ib_uverbs_qp_cap {
                max_send_wr,
                max_recv_wr,
                max_send_sge,
                max_recv_sge,
                max_inline_data
            }
        );
        table!(
            rows,
            ib_uverbs_create_qp {
                response,
                user_handle,
                pd_handle,
                send_cq_handle,
                recv_cq_handle,
                srq_handle,
                max_send_wr,
                max_recv_wr,
                max_send_sge,
                max_recv_sge,
                max_inline_data,
                sq_sig_all,
                qp_type,
                is_srq,
                reserved
            }
        );
        table!(
            rows,
            ib_uverbs_create_qp_resp {
                qp_handle,
                qpn,
                max_send_wr,
                max_recv_wr,
                max_send_sge,
                max_recv_sge,
                max_inline_data,
                reserved
            }
        );
        table!(
            rows,
            ib_uverbs_ex_create_qp {
                user_handle,
                pd_handle,
                send_cq_handle,
                recv_cq_handle,
                srq_handle,
                max_send_wr,
                max_recv_wr,
                max_send_sge,
                max_recv_sge,
                max_inline_data,
                sq_sig_all,
                qp_type,
                is_srq,
                reserved,
                comp_mask,
                create_flags,
                rwq_ind_tbl_handle,
                source_qpn
            }
        );
        table!(rows, ib_uverbs_ex_create_qp_resp { base, comp_mask, response_length });
        table!(
            rows,
            ib_uverbs_open_qp { response, user_handle, pd_handle, qpn, qp_type, reserved }
        );
        table!(
            rows,
            ib_uverbs_qp_dest {
                dgid,
                flow_label,
                dlid,
                reserved,
                sgid_index,
                hop_limit,
                traffic_class,
                sl,
                src_path_bits,
                static_rate,
                is_global,
                port_num
            }
        );
        table!(
            rows,
            ib_uverbs_modify_qp {
                dest,
                alt_dest,
                qp_handle,
                attr_mask,
                qkey,
                rq_psn,
                sq_psn,
                dest_qp_num,
                qp_access_flags,
                pkey_index,
                alt_pkey_index,
                qp_state,
                cur_qp_state,
                path_mtu,
                path_mig_state,
                en_sqd_async_notify,
                max_rd_atomic,
                max_dest_rd_atomic,
                min_rnr_timer,
                port_num,
                timeout,
                retry_cnt,
                rnr_retry,
                alt_port_num,
                alt_timeout,
                reserved
            }
        );
        table!(rows, ib_uverbs_ex_modify_qp { base, rate_limit, reserved });
        table!(rows, ib_uverbs_ex_modify_qp_resp { comp_mask, response_length });
        table!(rows, ib_uverbs_query_qp { response, qp_handle, attr_mask });
        table!(
            rows,
            ib_uverbs_query_qp_resp {
                dest,
                alt_dest,
                max_send_wr,
                max_recv_wr,
                max_send_sge,
                max_recv_sge,
                max_inline_data,
                qkey,
                rq_psn,
                sq_psn,
                dest_qp_num,
                qp_access_flags,
                pkey_index,
                alt_pkey_index,
                qp_state,
                cur_qp_state,
                path_mtu,
                path_mig_state,
                sq_draining,
                max_rd_atomic,
                max_dest_rd_atomic,
                min_rnr_timer,
                port_num,
                timeout,
                retry_cnt,
                rnr_retry,
                alt_port_num,
                alt_timeout,
                sq_sig_all,
                reserved
            }
        );
        table!(
            rows,
            ib_uverbs_qp_attr {
                qp_attr_mask,
                qp_state,
                cur_qp_state,
                path_mtu,
                path_mig_state,
                qkey,
                rq_psn,
                sq_psn,
                dest_qp_num,
                qp_access_flags,
                ah_attr,
                alt_ah_attr,
                max_send_wr,
                max_recv_wr,
                max_send_sge,
                max_recv_sge,
                max_inline_data,
                pkey_index,
                alt_pkey_index,
                en_sqd_async_notify,
                sq_draining,
                max_rd_atomic,
                max_dest_rd_atomic,
                min_rnr_timer,
                port_num,
                timeout,
                retry_cnt,
                rnr_retry,
                alt_port_num,
                alt_timeout,
                reserved
            }
        );
        table!(rows, ib_uverbs_destroy_qp { response, qp_handle, reserved });
        table!(rows, ib_uverbs_destroy_qp_resp { events_reported });
    }
    {
        use uverbs_kernel_abi::srq::*;
        table!(
            rows,
            ib_uverbs_create_srq { response, user_handle, pd_handle, max_wr, max_sge, srq_limit }
        );
        table!(
            rows,
            ib_uverbs_create_xsrq {
                response,
                user_handle,
                srq_type,
                pd_handle,
                max_wr,
                max_sge,
                srq_limit,
                max_num_tags,
                xrcd_handle,
                cq_handle
            }
        );
        table!(rows, ib_uverbs_create_srq_resp { srq_handle, max_wr, max_sge, srqn });
        table!(rows, ib_uverbs_modify_srq { srq_handle, attr_mask, max_wr, srq_limit });
        table!(rows, ib_uverbs_query_srq { response, srq_handle, reserved });
        table!(rows, ib_uverbs_query_srq_resp { max_wr, max_sge, srq_limit, reserved });
        table!(rows, ib_uverbs_destroy_srq { response, srq_handle, reserved });
        table!(rows, ib_uverbs_destroy_srq_resp { events_reported });
    }
    {
        use uverbs_kernel_abi::ah::*;
        table!(
            rows,
            ib_uverbs_global_route {
                dgid,
                flow_label,
                sgid_index,
                hop_limit,
                traffic_class,
                reserved
            }
        );
        table!(
            rows,
            ib_uverbs_ah_attr {
                grh,
                dlid,
                sl,
                src_path_bits,
                static_rate,
                is_global,
                port_num,
                reserved
            }
        );
        table!(rows, ib_uverbs_create_ah { response, user_handle, pd_handle, reserved, attr });
        table!(rows, ib_uverbs_create_ah_resp { ah_handle });
        table!(rows, ib_uverbs_destroy_ah { ah_handle });
    }
    {
        use uverbs_kernel_abi::wq::*;
        table!(
            rows,
            ib_uverbs_ex_create_wq {
                comp_mask,
                wq_type,
                user_handle,
                pd_handle,
                cq_handle,
                max_wr,
                max_sge,
                create_flags,
                reserved
            }
        );
        table!(
            rows,
            ib_uverbs_ex_create_wq_resp {
                comp_mask,
                response_length,
                wq_handle,
                max_wr,
                max_sge,
                wqn
            }
        );
        table!(
            rows,
            ib_uverbs_ex_modify_wq {
                attr_mask,
                wq_handle,
                wq_state,
                curr_wq_state,
                flags,
                flags_mask
            }
        );
        table!(rows, ib_uverbs_ex_destroy_wq { comp_mask, wq_handle });
        table!(
            rows,
            ib_uverbs_ex_destroy_wq_resp { comp_mask, response_length, events_reported, reserved }
        );
        table!(rows, ib_uverbs_ex_create_rwq_ind_table { comp_mask, log_ind_tbl_size });
        table!(
            rows,
            ib_uverbs_ex_create_rwq_ind_table_resp {
                comp_mask,
                response_length,
                ind_tbl_handle,
                ind_tbl_num
            }
        );
        table!(rows, ib_uverbs_ex_destroy_rwq_ind_table { comp_mask, ind_tbl_handle });
    }
    {
        use uverbs_kernel_abi::xrcd::*;
        table!(rows, ib_uverbs_open_xrcd { response, fd, oflags });
        table!(rows, ib_uverbs_open_xrcd_resp { xrcd_handle });
        table!(rows, ib_uverbs_close_xrcd { xrcd_handle });
    }
    {
        use uverbs_kernel_abi::mcast::*;
        table!(rows, ib_uverbs_attach_mcast { gid, qp_handle, mlid, reserved });
        table!(rows, ib_uverbs_detach_mcast { gid, qp_handle, mlid, reserved });
    }
    {
        use uverbs_kernel_abi::event::*;
        table!(rows, ib_uverbs_async_event_desc { element, event_type, reserved });
        table!(rows, ib_uverbs_comp_event_desc { cq_handle });
    }
    {
        use uverbs_kernel_abi::wc::*;
        table!(rows, ib_uverbs_sge { addr, length, lkey });
        table!(rows, ib_uverbs_send_wr { wr_id, num_sge, opcode, send_flags, ex, wr });
        table!(rows, ib_uverbs_send_wr_rdma { remote_addr, rkey, reserved });
        table!(rows, ib_uverbs_send_wr_atomic { remote_addr, compare_add, swap, rkey, reserved });
        table!(rows, ib_uverbs_send_wr_ud { ah, remote_qpn, remote_qkey, reserved });
        table!(rows, ib_uverbs_post_send { response, qp_handle, wr_count, sge_count, wqe_size });
        table!(rows, ib_uverbs_post_send_resp { bad_wr });
        table!(rows, ib_uverbs_recv_wr { wr_id, num_sge, reserved });
        table!(rows, ib_uverbs_post_recv { response, qp_handle, wr_count, sge_count, wqe_size });
        table!(rows, ib_uverbs_post_recv_resp { bad_wr });
        table!(
            rows,
            ib_uverbs_post_srq_recv { response, srq_handle, wr_count, sge_count, wqe_size }
        );
        table!(rows, ib_uverbs_post_srq_recv_resp { bad_wr });
        table!(rows, ib_uverbs_poll_cq { response, cq_handle, ne });
        table!(rows, ib_uverbs_poll_cq_resp { count, reserved });
        table!(
            rows,
            ib_uverbs_wc {
                wr_id,
                status,
                opcode,
                vendor_err,
                byte_len,
                ex,
                qp_num,
                src_qp,
                wc_flags,
                pkey_index,
                slid,
                sl,
                dlid_path_bits,
                port_num,
                reserved
            }
        );
    }
    {
        use uverbs_kernel_abi::flow::*;
        table!(rows, ib_uverbs_create_flow { comp_mask, qp_handle, flow_attr });
        table!(rows, ib_uverbs_create_flow_resp { comp_mask, flow_handle });
        table!(rows, ib_uverbs_destroy_flow { comp_mask, flow_handle });
        table!(
            rows,
            ib_uverbs_flow_attr { r#type, size, priority, num_of_specs, reserved, port, flags }
        );
        table!(rows, ib_uverbs_flow_spec_hdr { r#type, size, reserved });
        table!(rows, ib_uverbs_flow_eth_filter { dst_mac, src_mac, ether_type, vlan_tag });
        table!(rows, ib_uverbs_flow_spec_eth { hdr, val, mask });
        table!(rows, ib_uverbs_flow_ipv4_filter { src_ip, dst_ip, proto, tos, ttl, flags });
        table!(rows, ib_uverbs_flow_spec_ipv4 { hdr, val, mask });
        table!(rows, ib_uverbs_flow_tcp_udp_filter { dst_port, src_port });
        table!(rows, ib_uverbs_flow_spec_tcp_udp { hdr, val, mask });
        table!(
            rows,
            ib_uverbs_flow_ipv6_filter {
                src_ip,
                dst_ip,
                flow_label,
                next_hdr,
                traffic_class,
                hop_limit,
                reserved
            }
        );
        table!(rows, ib_uverbs_flow_spec_ipv6 { hdr, val, mask });
        table!(rows, ib_uverbs_flow_tunnel_filter { tunnel_id });
        table!(rows, ib_uverbs_flow_spec_tunnel { hdr, val, mask });
        table!(rows, ib_uverbs_flow_spec_esp_filter { spi, seq });
        table!(rows, ib_uverbs_flow_spec_esp { hdr, val, mask });
        table!(rows, ib_uverbs_flow_gre_filter { c_ks_res0_ver, protocol, key });
        table!(rows, ib_uverbs_flow_spec_gre { hdr, val, mask });
        table!(rows, ib_uverbs_flow_mpls_filter { label });
        table!(rows, ib_uverbs_flow_spec_mpls { hdr, val, mask });
        table!(rows, ib_uverbs_flow_spec_action_tag { hdr, tag_id, reserved1 });
        table!(rows, ib_uverbs_flow_spec_action_drop { hdr });
        table!(rows, ib_uverbs_flow_spec_action_handle { hdr, handle, reserved1 });
        table!(rows, ib_uverbs_flow_spec_action_count { hdr, handle, reserved1 });
        table!(rows, ib_uverbs_flow_action_esp { spi, seq, tfc_pad, flags, hard_limit_pkts });
        table!(rows, ib_uverbs_flow_action_esp_encap { val_ptr, next_ptr, len, r#type, _pad0 });
        table!(
            rows,
            ib_uverbs_flow_action_esp_keymat_aes_gcm {
                iv,
                iv_algo,
                salt,
                icv_len,
                key_len,
                aes_key
            }
        );
        table!(rows, ib_uverbs_flow_action_esp_replay_bmp { size });
    }
    {
        use uverbs_kernel_abi::mlx5::*;
        table!(rows, mlx5_ib_alloc_ucontext_req { total_num_bfregs, num_low_latency_bfregs });
        table!(
            rows,
            mlx5_ib_alloc_ucontext_req_v2 {
                total_num_bfregs,
                num_low_latency_bfregs,
                flags,
                comp_mask,
                max_cqe_version,
                reserved0,
                reserved1,
                reserved2,
                lib_caps
            }
        );
        table!(
            rows,
            mlx5_ib_alloc_ucontext_resp {
                qp_tab_size,
                bf_reg_size,
                tot_bfregs,
                cache_line_size,
                max_sq_desc_sz,
                max_rq_desc_sz,
                max_send_wqebb,
                max_recv_wr,
                max_srq_recv_wr,
                num_ports,
                flow_action_flags,
                comp_mask,
                response_length,
                cqe_version,
                cmds_supp_uhw,
                eth_min_inline,
                clock_info_versions,
                hca_core_clock_offset,
                log_uar_size,
                num_uars_per_page,
                num_dyn_bfregs,
                dump_fill_mkey
            }
        );
        table!(rows, mlx5_ib_alloc_pd_resp { pdn });
        table!(
            rows,
            mlx5_ib_query_device_resp {
                comp_mask,
                response_length,
                tso_caps,
                rss_caps,
                cqe_comp_caps,
                packet_pacing_caps,
                mlx5_ib_support_multi_pkt_send_wqes,
                flags,
                sw_parsing_caps,
                striding_rq_caps,
                tunnel_offloads_caps,
                dci_streams_caps,
                reserved
            }
        );
        table!(rows, mlx5_ib_tso_caps { max_tso, supported_qpts });
        table!(rows, mlx5_ib_rss_caps { rx_hash_fields_mask, rx_hash_function, reserved });
        table!(rows, mlx5_ib_cqe_comp_caps { max_num, supported_format });
        table!(
            rows,
            mlx5_packet_pacing_caps {
                qp_rate_limit_min,
                qp_rate_limit_max,
                supported_qpts,
                cap_flags,
                reserved
            }
        );
        table!(rows, mlx5_ib_sw_parsing_caps { sw_parsing_offloads, supported_qpts });
        table!(
            rows,
            mlx5_ib_striding_rq_caps {
                min_single_stride_log_num_of_bytes,
                max_single_stride_log_num_of_bytes,
                min_single_wqe_log_num_of_strides,
                max_single_wqe_log_num_of_strides,
                supported_qpts,
                reserved
            }
        );
        table!(rows, mlx5_ib_dci_streams_caps { max_log_num_concurent, max_log_num_errored });
        table!(
            rows,
            mlx5_ib_create_cq {
                buf_addr,
                db_addr,
                cqe_size,
                cqe_comp_en,
                cqe_comp_res_format,
                flags,
                uar_page_index,
                reserved0,
                reserved1
            }
        );
        table!(rows, mlx5_ib_create_cq_resp { cqn, reserved });
        table!(rows, mlx5_ib_resize_cq { buf_addr, cqe_size, reserved0, reserved1 });
        table!(rows, mlx5_ib_create_srq { buf_addr, db_addr, flags, reserved0, uidx, reserved1 });
        table!(rows, mlx5_ib_create_srq_resp { srqn, reserved });
        table!(rows, mlx5_ib_create_qp_dci_streams { log_num_concurent, log_num_errored });
        table!(
            rows,
            mlx5_ib_create_qp {
                buf_addr,
                db_addr,
                sq_wqe_count,
                rq_wqe_count,
                rq_wqe_shift,
                flags,
                uidx,
                bfreg_index,
                sq_buf_addr,
                ece_options,
                dci_streams,
                reserved
            }
        );
        table!(
            rows,
            mlx5_ib_create_qp_resp {
                bfreg_index,
                ece_options,
                comp_mask,
                tirn,
                tisn,
                rqn,
                sqn,
                reserved1,
                tir_icm_addr
            }
        );
        table!(
            rows,
            mlx5_ib_create_qp_rss {
                rx_hash_fields_mask,
                rx_hash_function,
                rx_key_len,
                reserved,
                rx_hash_key,
                comp_mask,
                flags
            }
        );
        table!(rows, mlx5_ib_burst_info { max_burst_sz, typical_pkt_sz, reserved });
        table!(rows, mlx5_ib_modify_qp { comp_mask, burst_info, ece_options });
        table!(rows, mlx5_ib_modify_qp_resp { response_length, dctn, ece_options, reserved });
        table!(
            rows,
            mlx5_ib_create_wq {
                buf_addr,
                db_addr,
                rq_wqe_count,
                rq_wqe_shift,
                user_index,
                flags,
                comp_mask,
                single_stride_log_num_of_bytes,
                single_wqe_log_num_of_strides,
                two_byte_shift_en
            }
        );
        table!(rows, mlx5_ib_create_wq_resp { response_length, reserved });
        table!(rows, mlx5_ib_modify_wq { comp_mask, reserved });
        table!(rows, mlx5_ib_create_rwq_ind_tbl_resp { response_length, reserved });
        table!(rows, mlx5_ib_create_ah_resp { response_length, dmac, reserved });
        table!(rows, mlx5_ib_alloc_mw { comp_mask, num_klms, reserved1, reserved2 });
        table!(
            rows,
            mlx5_ib_clock_info {
                sign,
                resv,
                nsec,
                cycles,
                frac,
                mult,
                shift,
                mask,
                overflow_period
            }
        );
        table!(rows, mlx5_ib_match_params { match_params });
        table!(rows, mlx5_ib_create_flow { ncounters_data, reserved });
        table!(rows, mlx5_ib_flow_counters_data { counters_data, ncounters, reserved });
        table!(rows, mlx5_ib_flow_counters_desc { description, index });
        table!(rows, mlx5_ib_uapi_devx_async_cmd_hdr { wr_id });
        table!(rows, mlx5_ib_uapi_devx_async_event_hdr { cookie });
        table!(rows, mlx5_ib_uapi_reg { value, mask });
        table!(
            rows,
            mlx5_ib_uapi_query_port {
                flags,
                vport,
                vport_vhca_id,
                esw_owner_vhca_id,
                rsvd0,
                vport_steering_icm_rx,
                vport_steering_icm_tx,
                reg_c0
            }
        );
    }
    {
        use uverbs_kernel_abi::rxe::*;
        table!(rows, mminfo { offset, size, pad });
        table!(rows, rxe_create_ah_resp { ah_num, reserved });
        table!(rows, rxe_create_cq_resp { mi });
        table!(rows, rxe_resize_cq_resp { mi });
        table!(rows, rxe_create_qp_resp { rq_mi, sq_mi });
        table!(rows, rxe_create_srq_resp { mi, srq_num, reserved });
        table!(rows, rxe_modify_srq_cmd { mmap_info_addr });
        table!(
            rows,
            rxe_queue_buf {
                log2_elem_size,
                index_mask,
                pad_1,
                producer_index,
                pad_2,
                consumer_index,
                pad_3
            }
        );
        table!(rows, rxe_sge { addr, length, lkey });
        table!(rows, rxe_dma_info { length, resid, cur_sge, num_sge, sge_offset, reserved });
        table!(rows, rxe_recv_wqe { wr_id, reserved, padding, dma });
        table!(
            rows,
            rxe_send_wqe {
                wr,
                status,
                state,
                iova,
                mask,
                first_psn,
                last_psn,
                ack_length,
                ssn,
                has_rd_atomic,
                dma
            }
        );
        table!(rows, rxe_send_wr { wr_id, reserved, opcode, send_flags, ex, wr });
        table!(rows, rxe_send_wr_rdma { remote_addr, rkey, reserved });
        table!(rows, rxe_send_wr_atomic { remote_addr, compare_add, swap, rkey, reserved });
        table!(
            rows,
            rxe_send_wr_ud { remote_qpn, remote_qkey, pkey_index, reserved, ah_num, pad, av }
        );
        table!(rows, rxe_send_wr_mw { addr, length, mr_lkey, mw_rkey, rkey, access });
        table!(rows, rxe_av { port_num, network_type, dmac, grh, sgid_addr, dgid_addr });
        table!(
            rows,
            rxe_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class, _pad0 }
        );
        table!(rows, rxe_gid_global { subnet_prefix, interface_id });
    }
    {
        use uverbs_kernel_abi::rvt::*;
        table!(rows, rvt_wqe_sge { addr, length, lkey });
        table!(rows, rvt_cq_wc { head, tail });
        table!(rows, rvt_rwqe { wr_id, num_sge, padding });
        table!(rows, rvt_rwq { head, tail });
    }
    {
        use uverbs_kernel_abi::efa::*;
        table!(rows, efa_ibv_alloc_pd_resp { comp_mask, pdn, reserved_30 });
        table!(rows, efa_ibv_alloc_ucontext_cmd { supported_caps, reserved_20 });
        table!(
            rows,
            efa_ibv_alloc_ucontext_resp {
                comp_mask,
                cmds_supp_udata_mask,
                sub_cqs_per_cq,
                inline_buf_size,
                max_llq_size,
                max_tx_batch,
                min_sq_wr,
                inline_buf_size_ex,
                reserved_b0
            }
        );
        table!(rows, efa_ibv_create_ah_resp { comp_mask, efa_address_handle, reserved_30 });
        table!(
            rows,
            efa_ibv_create_cq { comp_mask, cq_entry_size, num_sub_cqs, flags, reserved_58 }
        );
        table!(
            rows,
            efa_ibv_create_cq_resp {
                comp_mask,
                reserved_20,
                q_mmap_key,
                q_mmap_size,
                cq_idx,
                reserved_d0,
                db_off,
                db_mmap_key
            }
        );
        table!(
            rows,
            efa_ibv_create_qp {
                comp_mask,
                rq_ring_size,
                sq_ring_size,
                driver_qp_type,
                flags,
                sl,
                reserved_98
            }
        );
        table!(
            rows,
            efa_ibv_create_qp_resp {
                comp_mask,
                rq_db_offset,
                sq_db_offset,
                llq_desc_offset,
                rq_mmap_key,
                rq_mmap_size,
                rq_db_mmap_key,
                sq_db_mmap_key,
                llq_desc_mmap_key,
                send_sub_cq_idx,
                recv_sub_cq_idx,
                reserved_1e0
            }
        );
        table!(
            rows,
            efa_ibv_ex_query_device_resp {
                comp_mask,
                max_sq_wr,
                max_rq_wr,
                max_sq_sge,
                max_rq_sge,
                max_rdma_size,
                device_caps
            }
        );
    }
    {
        use uverbs_kernel_abi::efa::io::*;
        table!(rows, efa_io_cdesc_common { req_id, status, flags, qp_num });
        table!(rows, efa_io_rdma_req { remote_mem, local_mem });
        table!(rows, efa_io_rdma_req_128 { remote_mem, local_mem });
        table!(rows, efa_io_remote_mem_addr { length, rkey, buf_addr_lo, buf_addr_hi });
        table!(rows, efa_io_req_id_ex { w });
        table!(rows, efa_io_rx_cdesc { common, length, ah, src_qp_num, imm });
        table!(rows, efa_io_rx_cdesc_ex { base, u });
        table!(rows, efa_io_rx_cdesc_rdma_write { length_hi });
        table!(rows, efa_io_rx_desc { buf_addr_lo, buf_addr_hi, req_id, length, lkey_ctrl });
        table!(rows, efa_io_tx_buf_desc { length, lkey, buf_addr_lo, buf_addr_hi });
        table!(rows, efa_io_tx_cdesc { common, req_id_ex, reserved });
        table!(
            rows,
            efa_io_tx_meta_desc {
                req_id,
                ctrl1,
                ctrl2,
                dest_qp_num,
                length,
                immediate_data,
                ah,
                ctrl3,
                reserved,
                qkey,
                reserved2,
                req_id_ex
            }
        );
        table!(rows, efa_io_tx_wqe { meta, data });
        table!(rows, efa_io_tx_wqe_128 { meta, data });
    }
    {
        use uverbs_kernel_abi::siw::*;
        table!(rows, siw_uresp_alloc_ctx { dev_id, pad });
        table!(rows, siw_uresp_create_cq { cq_id, num_cqe, cq_key });
        table!(rows, siw_uresp_create_qp { qp_id, num_sqe, num_rqe, pad, sq_key, rq_key });
        table!(rows, siw_uresp_create_srq { num_rqe, pad, srq_key });
        table!(rows, siw_ureq_reg_mr { stag_key, reserved, pad });
        table!(rows, siw_uresp_reg_mr { stag, pad });
        table!(rows, siw_sge { laddr, length, lkey });
        table!(rows, siw_sqe { id, flags, num_sge, opcode, rkey, raddr, sge });
        table!(rows, siw_rqe { id, flags, num_sge, opcode, unused, sge });
        table!(rows, siw_cqe { id, flags, opcode, status, bytes, imm_data, base_qp });
        table!(rows, siw_cq_ctrl { flags, pad });
    }
    {
        use uverbs_kernel_abi::rdma_cm::*;
        table!(rows, rdma_ucm_cmd_hdr { cmd, r#in, out });
        table!(rows, rdma_ucm_create_id { uid, response, ps, qp_type, reserved });
        table!(rows, rdma_ucm_create_id_resp { id });
        table!(rows, rdma_ucm_destroy_id { response, id, reserved });
        table!(rows, rdma_ucm_destroy_id_resp { events_reported });
        table!(rows, rdma_ucm_bind_ip { response, addr, id });
        table!(rows, rdma_ucm_bind { id, addr_size, reserved, addr });
        table!(rows, rdma_ucm_resolve_ip { src_addr, dst_addr, id, timeout_ms });
        table!(
            rows,
            rdma_ucm_resolve_addr {
                id,
                timeout_ms,
                src_size,
                dst_size,
                reserved,
                src_addr,
                dst_addr
            }
        );
        table!(rows, rdma_ucm_resolve_route { id, timeout_ms });
        table!(rows, rdma_ucm_query { response, id, option });
        table!(
            rows,
            rdma_ucm_query_route_resp {
                node_guid,
                ib_route,
                src_addr,
                dst_addr,
                num_paths,
                port_num,
                reserved,
                ibdev_index,
                reserved1
            }
        );
        table!(
            rows,
            rdma_ucm_query_addr_resp {
                node_guid,
                port_num,
                reserved,
                pkey,
                src_size,
                dst_size,
                src_addr,
                dst_addr,
                ibdev_index,
                reserved1
            }
        );
        table!(rows, rdma_ucm_query_path_resp { num_paths, reserved });
        table!(rows, rdma_ucm_ece { vendor_id, attr_mod });
        table!(
            rows,
            rdma_ucm_conn_param {
                qp_num,
                qkey,
                private_data,
                private_data_len,
                srq,
                responder_resources,
                initiator_depth,
                flow_control,
                retry_count,
                rnr_retry_count,
                valid
            }
        );
        table!(
            rows,
            rdma_ucm_ud_param { qp_num, qkey, ah_attr, private_data, private_data_len, reserved }
        );
        table!(rows, rdma_ucm_connect { conn_param, id, reserved, ece });
        table!(rows, rdma_ucm_listen { id, backlog });
        table!(rows, rdma_ucm_accept { uid, conn_param, id, reserved, ece });
        table!(rows, rdma_ucm_reject { id, private_data_len, reason, reserved, private_data });
        table!(rows, rdma_ucm_disconnect { id });
        table!(rows, rdma_ucm_init_qp_attr { response, id, qp_state });
        table!(rows, rdma_ucm_notify { id, event });
        table!(rows, rdma_ucm_join_ip_mcast { response, uid, addr, id });
        table!(rows, rdma_ucm_join_mcast { response, uid, id, addr_size, join_flags, addr });
        table!(rows, rdma_ucm_get_event { response });
        table!(rows, rdma_ucm_event_resp { uid, id, event, status, param, reserved, ece });
        table!(rows, rdma_ucm_set_option { optval, id, level, optname, optlen });
        table!(rows, rdma_ucm_migrate_id { response, id, fd });
        table!(rows, rdma_ucm_migrate_resp { events_reported });
        table!(rows, rdma_ucm_ib_service { service_id, service_name, flags, reserved });
        table!(rows, rdma_ucm_resolve_ib_service { id, reserved, ibs });
        table!(rows, rdma_ucm_query_ib_service_resp { num_service_recs, reserved });
        table!(rows, rdma_ucm_write_cm_event { id, reserved, event, status, param });
    }
    rows
}
