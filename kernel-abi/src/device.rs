//! Context and device attributes (`ib_user_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, big_endian};

/// Request of `GET_CONTEXT` in its write() form; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_get_context {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
}

/// Response of `GET_CONTEXT` in its write() form; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_get_context_resp {
    /// File descriptor of asynchronous events.
    pub async_fd: u32,
    /// Completion vectors, numbered from 0.
    pub num_comp_vectors: u32,
}

/// Request of `QUERY_DEVICE`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_query_device {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
}

/// Response of `QUERY_DEVICE`, and base of [`ib_uverbs_ex_query_device_resp`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_query_device_resp {
    /// Firmware version, in the vendor's encoding.
    pub fw_ver: u64,
    /// Network order.
    pub node_guid: big_endian::U64,
    /// Network order.
    pub sys_image_guid: big_endian::U64,
    /// Bytes.
    pub max_mr_size: u64,
    /// Bit n set: pages of 2^n bytes.
    pub page_size_cap: u64,
    /// IEEE OUI.
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    /// `IB_UVERBS_DEVICE_*`, low 32 bits.
    pub device_cap_flags: u32,
    pub max_sge: u32,
    /// Entries of a scatter list for RDMA READ.
    pub max_sge_rd: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_ee_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub max_ee_init_rd_atom: u32,
    /// `IB_ATOMIC_*`.
    pub atomic_cap: u32,
    pub max_ee: u32,
    pub max_rdd: u32,
    pub max_mw: u32,
    pub max_raw_ipv6_qp: u32,
    pub max_raw_ethy_qp: u32,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub max_total_mcast_qp_attach: u32,
    pub max_ah: u32,
    pub max_fmr: u32,
    pub max_map_per_fmr: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_pkeys: u16,
    /// 4.096 us * 2^n.
    pub local_ca_ack_delay: u8,
    /// Ports, numbered from 1.
    pub phys_port_cnt: u8,
    pub reserved: [u8; 4],
}

/// Request of extended `QUERY_DEVICE`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_query_device {
    /// Zero.
    pub comp_mask: u32,
    pub reserved: u32,
}

/// Operations that may fault pages in, by transport; `IBV_ODP_SUPPORT_*` bits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_odp_caps_per_transport_caps {
    pub rc_odp_caps: u32,
    pub uc_odp_caps: u32,
    pub ud_odp_caps: u32,
}

/// On-demand paging, in [`ib_uverbs_ex_query_device_resp`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_odp_caps {
    /// Bit 0: supported. Bit 1: implicit regions too.
    pub general_caps: u64,
    pub per_transport_caps: ib_uverbs_odp_caps_per_transport_caps,
    pub reserved: u32,
}

/// Receive side scaling, in [`ib_uverbs_ex_query_device_resp`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_rss_caps {
    /// Bit n set: queue pairs of type n.
    pub supported_qpts: u32,
    pub max_rwq_indirection_tables: u32,
    pub max_rwq_indirection_table_size: u32,
    pub reserved: u32,
}

/// Tag matching, in [`ib_uverbs_ex_query_device_resp`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_tm_caps {
    /// Bytes of a rendezvous request.
    pub max_rndv_hdr_size: u32,
    pub max_num_tags: u32,
    pub flags: u32,
    pub max_ops: u32,
    pub max_sge: u32,
    pub reserved: u32,
}

/// Limits of completion moderation, in [`ib_uverbs_ex_query_device_resp`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_cq_moderation_caps {
    pub max_cq_moderation_count: u16,
    /// Microseconds.
    pub max_cq_moderation_period: u16,
    pub reserved: u32,
}

/// Response of extended `QUERY_DEVICE`. An older kernel fills only the first `response_length`
/// bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ex_query_device_resp {
    pub base: ib_uverbs_query_device_resp,
    pub comp_mask: u32,
    /// Bytes the kernel knows of.
    pub response_length: u32,
    pub odp_caps: ib_uverbs_odp_caps,
    /// Valid bits of a completion timestamp.
    pub timestamp_mask: u64,
    /// Kilohertz.
    pub hca_core_clock: u64,
    /// `IB_UVERBS_DEVICE_*`, all 64 bits.
    pub device_cap_flags_ex: u64,
    pub rss_caps: ib_uverbs_rss_caps,
    pub max_wq_type_rq: u32,
    /// `IB_UVERBS_RAW_PACKET_CAP_*`.
    pub raw_packet_caps: u32,
    pub tm_caps: ib_uverbs_tm_caps,
    pub cq_moderation_caps: ib_uverbs_cq_moderation_caps,
    /// Bytes of device memory.
    pub max_dm_size: u64,
    /// As [`ib_uverbs_odp_caps_per_transport_caps`], for XRC.
    pub xrc_odp_caps: u32,
    pub reserved: u32,
}

// Device capabilities. Bits that are missing here may be set by old kernels, and are ignored.
pub const IB_UVERBS_DEVICE_RESIZE_MAX_WR: u64 = 1 << 0;
pub const IB_UVERBS_DEVICE_BAD_PKEY_CNTR: u64 = 1 << 1;
pub const IB_UVERBS_DEVICE_BAD_QKEY_CNTR: u64 = 1 << 2;
pub const IB_UVERBS_DEVICE_RAW_MULTI: u64 = 1 << 3;
pub const IB_UVERBS_DEVICE_AUTO_PATH_MIG: u64 = 1 << 4;
pub const IB_UVERBS_DEVICE_CHANGE_PHY_PORT: u64 = 1 << 5;
pub const IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE: u64 = 1 << 6;
pub const IB_UVERBS_DEVICE_CURR_QP_STATE_MOD: u64 = 1 << 7;
pub const IB_UVERBS_DEVICE_SHUTDOWN_PORT: u64 = 1 << 8;
pub const IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT: u64 = 1 << 10;
pub const IB_UVERBS_DEVICE_SYS_IMAGE_GUID: u64 = 1 << 11;
pub const IB_UVERBS_DEVICE_RC_RNR_NAK_GEN: u64 = 1 << 12;
pub const IB_UVERBS_DEVICE_SRQ_RESIZE: u64 = 1 << 13;
pub const IB_UVERBS_DEVICE_N_NOTIFY_CQ: u64 = 1 << 14;
pub const IB_UVERBS_DEVICE_MEM_WINDOW: u64 = 1 << 17;
pub const IB_UVERBS_DEVICE_UD_IP_CSUM: u64 = 1 << 18;
pub const IB_UVERBS_DEVICE_XRC: u64 = 1 << 20;
pub const IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS: u64 = 1 << 21;
pub const IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A: u64 = 1 << 23;
pub const IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B: u64 = 1 << 24;
pub const IB_UVERBS_DEVICE_RC_IP_CSUM: u64 = 1 << 25;
pub const IB_UVERBS_DEVICE_RAW_IP_CSUM: u64 = 1 << 26;
pub const IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING: u64 = 1 << 29;
pub const IB_UVERBS_DEVICE_RAW_SCATTER_FCS: u64 = 1 << 34;
pub const IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING: u64 = 1 << 36;

// Raw packet capabilities.
pub const IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING: u32 = 1 << 0;
pub const IB_UVERBS_RAW_PACKET_CAP_SCATTER_FCS: u32 = 1 << 1;
pub const IB_UVERBS_RAW_PACKET_CAP_IP_CSUM: u32 = 1 << 2;
pub const IB_UVERBS_RAW_PACKET_CAP_DELAY_DROP: u32 = 1 << 3;

// `atomic_cap` (kernel: `enum ib_atomic_cap`): none; atomic among the device's accesses; also
// atomic with the host's processors.
pub const IB_ATOMIC_NONE: u32 = 0;
pub const IB_ATOMIC_HCA: u32 = 1;
pub const IB_ATOMIC_GLOB: u32 = 2;

// `UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT`: optional features of the kernel's core.
pub const IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS: u64 = 1 << 0;
