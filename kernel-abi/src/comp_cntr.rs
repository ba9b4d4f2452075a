//! Completion counters (`ib_user_ioctl_verbs.h` of Linux 7.3).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Memory that a command names: the program's, or a dma-buf.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_buffer_desc {
    /// `IB_UVERBS_BUFFER_TYPE_*`.
    pub r#type: u32,
    /// File descriptor of a dma-buf.
    pub fd: i32,
    /// Flags that the kernel must know: none so far.
    pub flags: u32,
    /// Flags that the kernel may ignore.
    pub optional_flags: u32,
    /// Address, or offset in the dma-buf.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
}

// `ib_uverbs_buffer_desc::type`.
pub const IB_UVERBS_BUFFER_TYPE_DMABUF: u32 = 0;
pub const IB_UVERBS_BUFFER_TYPE_VA: u32 = 1;

// Counts of a counter.
pub const IB_UVERBS_COMP_CNTR_ENTRY_COMP: u32 = 0;
pub const IB_UVERBS_COMP_CNTR_ENTRY_ERR: u32 = 1;

// Changes of a count.
pub const IB_UVERBS_COMP_CNTR_MODIFY_OP_SET: u32 = 0;
pub const IB_UVERBS_COMP_CNTR_MODIFY_OP_INC: u32 = 1;

// Operations of a queue pair that a counter counts.
pub const IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_SEND: u32 = 1 << 0;
pub const IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV: u32 = 1 << 1;
pub const IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_READ: u32 = 1 << 2;
pub const IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ: u32 = 1 << 3;
pub const IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE: u32 = 1 << 4;
pub const IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE: u32 = 1 << 5;
