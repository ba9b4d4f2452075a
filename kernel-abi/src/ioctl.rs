//! The single ioctl of uverbs: its number, header and attributes (`rdma_user_ioctl_cmds.h`).
//!
//! A command is one [`ib_uverbs_ioctl_hdr`] followed by `num_attrs` [`ib_uverbs_attr`]; object,
//! method and attribute ids are in [`crate::objects`].

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Type byte of the RDMA ioctls.
pub const RDMA_IOCTL_MAGIC: u8 = 0x1b;

/// Request number of the uverbs ioctl, 0xc0181b01.
pub const RDMA_VERBS_IOCTL: u32 = iowr(RDMA_IOCTL_MAGIC, 1, size_of::<ib_uverbs_ioctl_hdr>());

/// Longest input inside [`ib_uverbs_attr::data`]; a longer one is passed by address (kernel:
/// `uverbs_attr_ptr_is_inline` in `include/rdma/uverbs_ioctl.h`).
pub const UVERBS_ATTR_INLINE_MAX: u16 = size_of::<u64>() as u16;

/// `_IOWR` of `asm-generic/ioctl.h`, as on x86, Arm, RISC-V and s390: number in bits 0-7, type in
/// 8-15, size of the argument in 16-29, direction (read and write) in 30-31. PowerPC, MIPS, SPARC
/// and Alpha divide the word otherwise.
const fn iowr(group: u8, number: u8, size: usize) -> u32 {
    const READ_AND_WRITE: u32 = 3;
    (READ_AND_WRITE << 30) | ((size as u32) << 16) | ((group as u32) << 8) | number as u32
}

const _: () = assert!(RDMA_VERBS_IOCTL == 0xc018_1b01);

// Bits of `ib_uverbs_attr::flags`. MANDATORY: a kernel that does not know the attribute must refuse
// the command. VALID_OUTPUT: set by the kernel on optional outputs that it wrote.
pub const UVERBS_ATTR_F_MANDATORY: u16 = 1 << 0;
pub const UVERBS_ATTR_F_VALID_OUTPUT: u16 = 1 << 1;

/// Header of every command. The attributes (`attrs[]` in C) follow it and are left off here.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_ioctl_hdr {
    /// Bytes of header and attributes together.
    pub length: u16,
    /// `UVERBS_OBJECT_*` or, in the driver namespace, `MLX5_IB_OBJECT_*`.
    pub object_id: u16,
    /// `UVERBS_METHOD_*` of that object.
    pub method_id: u16,
    /// Attributes that follow; no id may occur twice.
    pub num_attrs: u16,
    /// Zero.
    pub reserved1: u64,
    /// `RDMA_DRIVER_*` of the device; the kernel answers another driver's with `EINVAL`
    /// (`ib_uverbs_cmd_verbs`).
    pub driver_id: u32,
    /// Zero.
    pub reserved2: u32,
}

/// One attribute of a command.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_attr {
    /// Id within the method; bit 12 set: the driver namespace.
    pub attr_id: u16,
    /// Bytes of the payload, or of the array of handles; 0 for a single handle or fd.
    pub len: u16,
    /// `UVERBS_ATTR_F_*`.
    pub flags: u16,
    /// C union: `enum_data`, or a reserved `u16`. See [`Self::enum_data`].
    pub attr_data: [u8; 2],
    /// Payload of up to 8 bytes, or its address; a handle; or a file descriptor (C union with
    /// `data_s64`, see [`Self::data_s64`]).
    pub data: u64,
}

/// `ib_uverbs_attr::attr_data` of an attribute with several layouts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_attr_enum_data {
    /// Layout of `data`.
    pub elem_id: u8,
    /// Zero.
    pub reserved: u8,
}

impl ib_uverbs_attr {
    /// `attr_data` as the choice of a layout.
    pub const fn enum_data(&self) -> ib_uverbs_attr_enum_data {
        let [elem_id, reserved] = self.attr_data;
        ib_uverbs_attr_enum_data { elem_id, reserved }
    }

    /// `data` of a file descriptor attribute; -1 for no file.
    pub const fn data_s64(&self) -> i64 {
        self.data.cast_signed()
    }
}
