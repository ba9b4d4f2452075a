//! Flow steering, counters and flow actions (`ib_user_verbs.h`, `ib_user_ioctl_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, big_endian};

/// Request of extended `CREATE_FLOW`; the specifications follow `flow_attr`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_flow {
    /// Zero.
    pub comp_mask: u32,
    pub qp_handle: u32,
    pub flow_attr: ib_uverbs_flow_attr,
}

/// Response of extended `CREATE_FLOW`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_flow_resp {
    pub comp_mask: u32,
    pub flow_handle: u32,
}

/// Request of extended `DESTROY_FLOW`; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_destroy_flow {
    pub comp_mask: u32,
    pub flow_handle: u32,
}

/// A rule. Its `num_of_specs` specifications (`flow_specs[]`) follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_attr {
    pub r#type: u32,
    /// Bytes of the specifications that follow.
    pub size: u16,
    pub priority: u16,
    pub num_of_specs: u8,
    pub reserved: [u8; 2],
    pub port: u8,
    pub flags: u32,
}

/// Head of every specification; `flow_spec_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_hdr {
    pub r#type: u32,
    /// Bytes of the whole specification.
    pub size: u16,
    pub reserved: u16,
}

/// Ethernet header fields, in network order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_eth_filter {
    pub dst_mac: [u8; 6],
    pub src_mac: [u8; 6],
    pub ether_type: big_endian::U16,
    pub vlan_tag: big_endian::U16,
}

/// Matches an Ethernet header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_eth {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub val: ib_uverbs_flow_eth_filter,
    pub mask: ib_uverbs_flow_eth_filter,
}

/// IPv4 header fields, in network order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_ipv4_filter {
    pub src_ip: big_endian::U32,
    pub dst_ip: big_endian::U32,
    pub proto: u8,
    pub tos: u8,
    pub ttl: u8,
    pub flags: u8,
}

/// Matches an IPv4 header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_ipv4 {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub val: ib_uverbs_flow_ipv4_filter,
    pub mask: ib_uverbs_flow_ipv4_filter,
}

/// Ports, in network order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_tcp_udp_filter {
    pub dst_port: big_endian::U16,
    pub src_port: big_endian::U16,
}

/// Matches a TCP or UDP header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_tcp_udp {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub val: ib_uverbs_flow_tcp_udp_filter,
    pub mask: ib_uverbs_flow_tcp_udp_filter,
}

/// IPv6 header fields, in network order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_ipv6_filter {
    pub src_ip: [u8; 16],
    pub dst_ip: [u8; 16],
    pub flow_label: big_endian::U32,
    pub next_hdr: u8,
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub reserved: u8,
}

/// Matches an IPv6 header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_ipv6 {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub val: ib_uverbs_flow_ipv6_filter,
    pub mask: ib_uverbs_flow_ipv6_filter,
}

/// A tunnel's id, in network order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_tunnel_filter {
    pub tunnel_id: big_endian::U32,
}

/// Matches a tunnel.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_tunnel {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub val: ib_uverbs_flow_tunnel_filter,
    pub mask: ib_uverbs_flow_tunnel_filter,
}

/// ESP header fields.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_esp_filter {
    pub spi: u32,
    pub seq: u32,
}

/// Matches an ESP header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_esp {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub val: ib_uverbs_flow_spec_esp_filter,
    pub mask: ib_uverbs_flow_spec_esp_filter,
}

/// GRE header fields, in network order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_gre_filter {
    pub c_ks_res0_ver: big_endian::U16,
    pub protocol: big_endian::U16,
    pub key: big_endian::U32,
}

/// Matches a GRE header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_gre {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub val: ib_uverbs_flow_gre_filter,
    pub mask: ib_uverbs_flow_gre_filter,
}

/// An MPLS label with its traffic class, bottom bit and TTL, in network order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_mpls_filter {
    pub label: big_endian::U32,
}

/// Matches an MPLS label.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_mpls {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub val: ib_uverbs_flow_mpls_filter,
    pub mask: ib_uverbs_flow_mpls_filter,
}

/// Action: put `tag_id` into completions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_action_tag {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub tag_id: u32,
    pub reserved1: u32,
}

/// Action: drop.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_action_drop {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
}

/// Action: apply the flow action `handle`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_action_handle {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub handle: u32,
    pub reserved1: u32,
}

/// Action: count in the counters object `handle`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_spec_action_count {
    /// Head of the specification: C also gives its three fields without the name `hdr`.
    pub hdr: ib_uverbs_flow_spec_hdr,
    pub handle: u32,
    pub reserved1: u32,
}

// `UVERBS_ATTR_READ_COUNTERS_FLAGS`.
pub const IB_UVERBS_READ_COUNTERS_PREFER_CACHED: u32 = 1 << 0;

/// `UVERBS_ATTR_FLOW_ACTION_ESP_ATTRS`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_action_esp {
    pub spi: u32,
    pub seq: u32,
    pub tfc_pad: u32,
    /// `IB_UVERBS_FLOW_ACTION_ESP_FLAGS_*`.
    pub flags: u32,
    pub hard_limit_pkts: u64,
}

/// `UVERBS_ATTR_FLOW_ACTION_ESP_ENCAP`: one of a chain of headers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_action_esp_encap {
    /// Address of a filter struct.
    pub val_ptr: u64,
    /// Address of the next link, or 0.
    pub next_ptr: u64,
    /// Bytes at `val_ptr`.
    pub len: u16,
    pub r#type: u16,
    /// A hole that the C compiler leaves; zero.
    pub _pad0: [u8; 4],
}

/// `UVERBS_ATTR_FLOW_ACTION_ESP_KEYMAT` of AES-GCM.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_action_esp_keymat_aes_gcm {
    pub iv: u64,
    /// `IB_UVERBS_FLOW_ACTION_IV_ALGO_*`.
    pub iv_algo: u32,
    pub salt: u32,
    pub icv_len: u32,
    pub key_len: u32,
    pub aes_key: [u32; 8],
}

/// `UVERBS_ATTR_FLOW_ACTION_ESP_REPLAY` with a bitmap.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_flow_action_esp_replay_bmp {
    pub size: u32,
}

// Layouts of `UVERBS_ATTR_FLOW_ACTION_ESP_KEYMAT`.
pub const IB_UVERBS_FLOW_ACTION_ESP_KEYMAT_AES_GCM: u8 = 0;

// `iv_algo`.
pub const IB_UVERBS_FLOW_ACTION_IV_ALGO_SEQ: u32 = 0;

// Layouts of `UVERBS_ATTR_FLOW_ACTION_ESP_REPLAY`.
pub const IB_UVERBS_FLOW_ACTION_ESP_REPLAY_NONE: u8 = 0;
pub const IB_UVERBS_FLOW_ACTION_ESP_REPLAY_BMP: u8 = 1;

// `ib_uverbs_flow_action_esp::flags`. The zeros name defaults.
pub const IB_UVERBS_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO: u32 = 0;
pub const IB_UVERBS_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD: u32 = 1 << 0;
pub const IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TUNNEL: u32 = 0;
pub const IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TRANSPORT: u32 = 1 << 1;
pub const IB_UVERBS_FLOW_ACTION_ESP_FLAGS_DECRYPT: u32 = 0;
pub const IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ENCRYPT: u32 = 1 << 2;
pub const IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW: u32 = 1 << 3;

// `ib_uverbs_flow_attr::type`.
pub const IB_FLOW_ATTR_NORMAL: u32 = 0;
pub const IB_FLOW_ATTR_ALL_DEFAULT: u32 = 1;
pub const IB_FLOW_ATTR_MC_DEFAULT: u32 = 2;
pub const IB_FLOW_ATTR_SNIFFER: u32 = 3;

// `ib_uverbs_flow_attr::flags`.
pub const IB_FLOW_ATTR_FLAGS_DONT_TRAP: u32 = 1 << 1;
pub const IB_FLOW_ATTR_FLAGS_EGRESS: u32 = 1 << 2;

// `ib_uverbs_flow_spec_hdr::type`.
pub const IB_FLOW_SPEC_ETH: u32 = 0x20;
pub const IB_FLOW_SPEC_IPV4: u32 = 0x30;
pub const IB_FLOW_SPEC_IPV6: u32 = 0x31;
pub const IB_FLOW_SPEC_ESP: u32 = 0x34;
pub const IB_FLOW_SPEC_TCP: u32 = 0x40;
pub const IB_FLOW_SPEC_UDP: u32 = 0x41;
pub const IB_FLOW_SPEC_VXLAN_TUNNEL: u32 = 0x50;
pub const IB_FLOW_SPEC_GRE: u32 = 0x51;
pub const IB_FLOW_SPEC_MPLS: u32 = 0x60;
pub const IB_FLOW_SPEC_INNER: u32 = 0x100;
pub const IB_FLOW_SPEC_ACTION_TAG: u32 = 0x1000;
pub const IB_FLOW_SPEC_ACTION_DROP: u32 = 0x1001;
pub const IB_FLOW_SPEC_ACTION_HANDLE: u32 = 0x1002;
pub const IB_FLOW_SPEC_ACTION_COUNT: u32 = 0x1003;

// `mlx5_ib_flow_counters_desc::description`.
pub const IB_COUNTER_PACKETS: u32 = 0;
pub const IB_COUNTER_BYTES: u32 = 1;
