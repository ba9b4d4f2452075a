//! Address handles (`ib_user_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The GRH part of [`ib_uverbs_ah_attr`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_global_route {
    /// Network order.
    pub dgid: [u8; 16],
    /// 20 bits.
    pub flow_label: u32,
    /// Index in the port's GID table.
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u8,
}

/// Destination of an address handle.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ah_attr {
    pub grh: ib_uverbs_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    /// `enum ib_rate` code; 0: as fast as the port.
    pub static_rate: u8,
    /// 1: `grh` counts; always on RoCE.
    pub is_global: u8,
    /// From 1.
    pub port_num: u8,
    pub reserved: u8,
}

/// Request of `CREATE_AH`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_ah {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    pub user_handle: u64,
    pub pd_handle: u32,
    pub reserved: u32,
    pub attr: ib_uverbs_ah_attr,
}

/// Response of `CREATE_AH`; the provider's response follows at byte 4.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_create_ah_resp {
    pub ah_handle: u32,
}

/// Request of `DESTROY_AH`; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_destroy_ah {
    pub ah_handle: u32,
}
