//! Contexts and device attributes (`uverbs_std_types_device.c`; `mlx5_ib_alloc_ucontext` and
//! `mlx5_ib_query_device` in `hw/mlx5/main.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::device::{
    IB_ATOMIC_HCA, IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS, IB_UVERBS_DEVICE_BAD_PKEY_CNTR,
    IB_UVERBS_DEVICE_BAD_QKEY_CNTR, IB_UVERBS_DEVICE_CHANGE_PHY_PORT,
    IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING, IB_UVERBS_DEVICE_MEM_WINDOW,
    IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B, IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT,
    IB_UVERBS_DEVICE_RAW_IP_CSUM, IB_UVERBS_DEVICE_RC_RNR_NAK_GEN, IB_UVERBS_DEVICE_SYS_IMAGE_GUID,
    IB_UVERBS_DEVICE_XRC, IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING,
    IB_UVERBS_RAW_PACKET_CAP_IP_CSUM, ib_uverbs_cq_moderation_caps, ib_uverbs_ex_query_device,
    ib_uverbs_ex_query_device_resp, ib_uverbs_odp_caps, ib_uverbs_odp_caps_per_transport_caps,
    ib_uverbs_query_device, ib_uverbs_query_device_resp, ib_uverbs_rss_caps, ib_uverbs_tm_caps,
};
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY, MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE,
    MLX5_IB_ALLOC_UCTX_DEVX, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, MLX5_IB_CLOCK_INFO_V1,
    MLX5_IB_CQE_RES_FORMAT_CSUM, MLX5_IB_CQE_RES_FORMAT_HASH,
    MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP, MLX5_LIB_CAP_DYN_UAR, MLX5_RX_HASH_FUNC_TOEPLITZ,
    MLX5_USER_CMDS_SUPP_UHW_CREATE_AH, MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE,
    MLX5_USER_INLINE_MODE_L2, MLX5_USER_INLINE_MODE_NONE, mlx5_ib_alloc_ucontext_req,
    mlx5_ib_alloc_ucontext_req_v2, mlx5_ib_alloc_ucontext_resp, mlx5_ib_cqe_comp_caps,
    mlx5_ib_dci_streams_caps, mlx5_ib_query_device_resp, mlx5_ib_rss_caps,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS,
    UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
    UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT,
};
use uverbs_kernel_abi::qp::IB_UVERBS_QPT_RAW_PACKET;
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_CMD_QUERY_DEVICE,
    IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
};
use zerocopy::IntoBytes;

use crate::backend::config::Paging;
use crate::backend::number::Key;
use crate::kernel::call::{Call, Write, zero_extended};
use crate::kernel::rdmavt;
use crate::kernel::state::device::Device;
use crate::kernel::state::file::Context;
use crate::kernel::verbs::queues::rss::TOLD_FIELDS;
use crate::uar::uars_in_page;

/// Maximum count and period (in microseconds) of event moderation (`MLX5_MAX_CQ_COUNT`,
/// `MLX5_MAX_CQ_PERIOD`).
const MAX_CQ_COUNT: u16 = u16::MAX;
pub(crate) const MAX_CQ_PERIOD: u16 = (1 << 12) - 1;

/// DEVICE.GET_CONTEXT.
pub(crate) fn get_context(call: &mut Call<'_>) -> Result<(), Errno> {
    let comp_vectors = call.device.config.comp_vectors;
    call.output_optional(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &comp_vectors)?;
    call.output_optional(
        UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
        &IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS,
    )?;
    // From here on as `ib_alloc_ucontext`.
    if call.file.has_context() {
        return Err(Errno::EINVAL);
    }
    let bytes = call.driver_input()?;
    let shortest = std::mem::offset_of!(mlx5_ib_alloc_ucontext_req_v2, max_cqe_version);
    if bytes.len() != size_of::<mlx5_ib_alloc_ucontext_req>() && bytes.len() < shortest {
        return Err(Errno::EINVAL);
    }
    let request: mlx5_ib_alloc_ucontext_req_v2 = zero_extended(&bytes);
    if request.flags & !MLX5_IB_ALLOC_UCTX_DEVX != 0
        || request.comp_mask != 0
        || request.reserved0 != 0
        || request.reserved1 != 0
        || request.reserved2 != 0
    {
        return Err(Errno::EOPNOTSUPP);
    }
    // Registers come in pairs (`MLX5_NON_FP_BFREGS_PER_UAR`).
    let total = request.total_num_bfregs.checked_next_multiple_of(2).ok_or(Errno::ENOMEM)?;
    if total != 0 && request.num_low_latency_bfregs > total - 1 {
        return Err(Errno::EINVAL);
    }
    // A context with dynamic UARs has no static ones. Any other context gets the requested number,
    // as in the kernel (`calc_total_bfregs`), but its pages cannot be mapped: this device has
    // dynamic pages only.
    let tot_bfregs = match request.lib_caps & MLX5_LIB_CAP_DYN_UAR {
        0 if total == 0 => return Err(Errno::EINVAL),
        0 if total > 512 => return Err(Errno::ENOMEM),
        0 => total,
        _ => 0,
    };
    let context = Context {
        cqe_version: request.max_cqe_version.min(1),
        devx: request.flags & MLX5_IB_ALLOC_UCTX_DEVX != 0,
        tot_bfregs,
    };
    let mut response = context_response(call.device, &context);
    let len = call.len(UVERBS_ATTR_UHW_OUT).min(size_of_val(&response));
    response.response_length = len as u32;
    call.driver_output(response.as_bytes())?;
    call.file.context = Some(context);
    Ok(())
}

/// Response of the driver (`set_ucontext_resp`).
fn context_response(device: &Device, context: &Context) -> mlx5_ib_alloc_ucontext_resp {
    let config = &device.config;
    mlx5_ib_alloc_ucontext_resp {
        qp_tab_size: config.max_qp.checked_next_power_of_two().unwrap_or(1 << 31),
        bf_reg_size: config.bf_reg_size,
        tot_bfregs: context.tot_bfregs,
        cache_line_size: 64,
        max_sq_desc_sz: config.max_sq_desc,
        max_rq_desc_sz: config.max_rq_desc,
        max_send_wqebb: 1 << config.log_max_wqebbs,
        max_recv_wr: 1 << config.log_max_rq_entries,
        max_srq_recv_wr: 1 << config.log_max_rq_entries,
        num_ports: 1,
        response_length: size_of::<mlx5_ib_alloc_ucontext_resp>() as u32,
        cqe_version: context.cqe_version,
        cmds_supp_uhw: MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
        eth_min_inline: match device.config.is_ethernet() {
            true if config.min_inline_header == 0 => MLX5_USER_INLINE_MODE_NONE,
            true => MLX5_USER_INLINE_MODE_L2,
            false => 0,
        },
        log_uar_size: 12,
        num_uars_per_page: uars_in_page(),
        clock_info_versions: 1 << MLX5_IB_CLOCK_INFO_V1,
        comp_mask: match config.ece {
            0 => MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY,
            _ => {
                MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY
                    | MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE
            }
        },
        dump_fill_mkey: Key::DUMP_FILL.0,
        ..mlx5_ib_alloc_ucontext_resp::default()
    }
}

/// DEVICE.QUERY_CONTEXT, for clients that import a context.
pub(crate) fn query_context(call: &mut Call<'_>) -> Result<(), Errno> {
    let context = call.file.context.ok_or(Errno::EINVAL)?;
    let comp_vectors = call.device.config.comp_vectors;
    call.output_optional(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, &comp_vectors)?;
    call.output_optional(
        UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT,
        &IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS,
    )?;
    let response = context_response(call.device, &context);
    call.output_or_zero(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, &response)
}

/// QUERY_DEVICE.
pub(crate) const QUERY_DEVICE: Write = Write {
    command: IB_USER_VERBS_CMD_QUERY_DEVICE,
    request: size_of::<ib_uverbs_query_device>(),
    response: size_of::<ib_uverbs_query_device_resp>(),
    handler: query,
};

/// Extended QUERY_DEVICE. Request and response may have any length.
pub(crate) const EX_QUERY_DEVICE: Write = Write {
    command: IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
    request: 0,
    response: 0,
    handler: query_ex,
};

fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    if !call.file.has_context() {
        return Err(Errno::EINVAL);
    }
    let _request: ib_uverbs_query_device = call.request()?;
    let response = attributes(call.device);
    call.respond(&response)
}

/// On-demand paging (`enum ib_odp_general_cap_bits`): explicit and implicit regions.
const PAGING: u64 = 1 | 1 << 1;

/// Valid bits of a CQE's timestamp (`mlx5_ib_query_device`).
pub(crate) const TIMESTAMP_MASK: u64 = u64::MAX >> 1;

fn query_ex(call: &mut Call<'_>) -> Result<(), Errno> {
    if !call.file.has_context() {
        return Err(Errno::EINVAL);
    }
    let request: ib_uverbs_ex_query_device = call.request()?;
    if request.comp_mask != 0 || request.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    // From here on as `mlx5_ib_query_device`.
    let room = call.len(UVERBS_ATTR_UHW_OUT);
    let shortest = std::mem::offset_of!(mlx5_ib_query_device_resp, tso_caps);
    if call.has(UVERBS_ATTR_UHW_OUT) && room != 0 && room < shortest {
        return Err(Errno::EINVAL);
    }
    if call.has(UVERBS_ATTR_UHW_IN) && call.driver_input()?.iter().any(|byte| *byte != 0) {
        return Err(Errno::EINVAL);
    }
    call.driver_output(driver_attributes(call.device, room).as_bytes())?;
    let ethernet = call.device.config.is_ethernet();
    let base = attributes(call.device);
    let config = &call.device.config;
    let placement = if config.placement { PLACEMENT } else { 0 };
    let response = ib_uverbs_ex_query_device_resp {
        base,
        response_length: call.response_length::<ib_uverbs_ex_query_device_resp>(),
        device_cap_flags_ex: u64::from(base.device_cap_flags) | placement,
        odp_caps: ib_uverbs_odp_caps {
            general_caps: match config.paging {
                Paging { connected: 0, uc: 0, ud: 0 } => 0,
                _ => PAGING,
            },
            per_transport_caps: ib_uverbs_odp_caps_per_transport_caps {
                rc_odp_caps: config.paging.connected,
                uc_odp_caps: config.paging.uc,
                ud_odp_caps: config.paging.ud,
            },
            ..ib_uverbs_odp_caps::default()
        },
        timestamp_mask: TIMESTAMP_MASK,
        hca_core_clock: config.clock_khz,
        max_dm_size: config.device_memory,
        tm_caps: tag_caps(call.device),
        rss_caps: match ethernet {
            true => ib_uverbs_rss_caps {
                supported_qpts: 1 << IB_UVERBS_QPT_RAW_PACKET,
                max_rwq_indirection_tables: config.max_steering,
                max_rwq_indirection_table_size: config.max_spread,
                reserved: 0,
            },
            false => ib_uverbs_rss_caps::default(),
        },
        max_wq_type_rq: config.log_max_rq.map_or(0, |log| 1 << log),
        raw_packet_caps: match ethernet {
            true => IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING | IB_UVERBS_RAW_PACKET_CAP_IP_CSUM,
            false => 0,
        },
        cq_moderation_caps: ib_uverbs_cq_moderation_caps {
            max_cq_moderation_count: MAX_CQ_COUNT,
            max_cq_moderation_period: MAX_CQ_PERIOD,
            ..ib_uverbs_cq_moderation_caps::default()
        },
        ..ib_uverbs_ex_query_device_resp::default()
    };
    call.respond(&response)
}

/// Attributes of the driver, for an output of `room` bytes. Hashing on Ethernet is the only
/// offload: segmentation, pacing, parsing, striding and tunnels are absent.
fn driver_attributes(device: &Device, room: usize) -> mlx5_ib_query_device_resp {
    mlx5_ib_query_device_resp {
        rss_caps: match device.config.is_ethernet() {
            true => mlx5_ib_rss_caps {
                rx_hash_fields_mask: TOLD_FIELDS,
                rx_hash_function: MLX5_RX_HASH_FUNC_TOEPLITZ,
                ..mlx5_ib_rss_caps::default()
            },
            false => mlx5_ib_rss_caps::default(),
        },
        cqe_comp_caps: mlx5_ib_cqe_comp_caps {
            max_num: device.config.max_mini_cqes,
            supported_format: (MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM).into(),
        },
        flags: MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP,
        dci_streams_caps: mlx5_ib_dci_streams_caps {
            max_log_num_concurent: device.config.log_max_dci_streams,
            max_log_num_errored: device.config.log_max_dci_streams,
        },
        response_length: room.min(size_of::<mlx5_ib_query_device_resp>()) as u32,
        ..mlx5_ib_query_device_resp::default()
    }
}

/// `IB_DEVICE_FLUSH_GLOBAL` and `IB_DEVICE_ATOMIC_WRITE` (Linux 6.2, `ib_verbs.h`).
const PLACEMENT: u64 = 1 << 38 | 1 << 40;

/// Tag-matching capabilities (`mlx5_ib_query_device`): one SGE for each tag, and the device fetches
/// rendezvous data (`IB_TM_CAP_RNDV_RC`).
fn tag_caps(device: &Device) -> ib_uverbs_tm_caps {
    match device.config.log_max_tags {
        0 => ib_uverbs_tm_caps::default(),
        log_tags => ib_uverbs_tm_caps {
            max_rndv_hdr_size: 64,
            max_num_tags: (1 << log_tags) - 1,
            flags: 1,
            max_ops: 1 << device.config.log_max_wqebbs,
            max_sge: 1,
            reserved: 0,
        },
    }
}

/// Device attributes (`copy_query_dev_fields`, filled in by `mlx5_ib_query_device`).
pub fn attributes(device: &Device) -> ib_uverbs_query_device_resp {
    let config = &device.config;
    let max_mcast_qp = config.max_mcast_qp;
    let flags = IB_UVERBS_DEVICE_CHANGE_PHY_PORT
        | IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT
        | IB_UVERBS_DEVICE_SYS_IMAGE_GUID
        | IB_UVERBS_DEVICE_RC_RNR_NAK_GEN
        | IB_UVERBS_DEVICE_BAD_PKEY_CNTR
        | IB_UVERBS_DEVICE_BAD_QKEY_CNTR
        | IB_UVERBS_DEVICE_MEM_WINDOW
        | IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B
        | IB_UVERBS_DEVICE_XRC;
    let frames = match config.is_ethernet() {
        true => IB_UVERBS_DEVICE_RAW_IP_CSUM | IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING,
        false => 0,
    };
    let told = ib_uverbs_query_device_resp {
        fw_ver: config.fw_ver,
        node_guid: config.guid.into(),
        sys_image_guid: config.guid.into(),
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: config.vendor_id,
        vendor_part_id: config.part.into(),
        hw_ver: 0,
        max_qp: config.max_qp,
        max_qp_wr: 1 << config.log_max_wqebbs,
        device_cap_flags: (flags | frames) as u32,
        max_sge: config.max_sge,
        max_sge_rd: config.max_sge,
        max_cq: config.max_cq,
        max_cqe: (1 << config.log_max_cqes) - 1,
        max_mr: config.max_mkey,
        max_mw: config.max_mkey,
        max_pd: config.max_pd,
        max_qp_rd_atom: u32::from(config.max_dest_rd_atomic),
        max_res_rd_atom: config.max_qp.saturating_mul(u32::from(config.max_dest_rd_atomic)),
        max_qp_init_rd_atom: u32::from(config.max_rd_atomic),
        atomic_cap: IB_ATOMIC_HCA,
        max_mcast_grp: max_mcast_qp,
        max_mcast_qp_attach: max_mcast_qp,
        max_total_mcast_qp_attach: max_mcast_qp.saturating_mul(max_mcast_qp),
        max_ah: config.max_ah,
        max_srq: config.max_srq,
        max_srq_wr: (1 << config.log_max_rq_entries) - 1,
        // An SRQ WQE begins with a link segment.
        max_srq_sge: (u32::from(config.max_rq_desc) / 16).saturating_sub(1),
        max_pkeys: config.pkey_table_len,
        local_ca_ack_delay: config.local_ca_ack_delay,
        phys_port_cnt: 1,
        ..ib_uverbs_query_device_resp::default()
    };
    if device.rings.is_some() { rdmavt::verbs::attributes(told) } else { told }
}
