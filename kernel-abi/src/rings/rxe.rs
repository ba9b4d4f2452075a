//! Data of soft-RoCE, `rdma_rxe`, that crosses the kernel boundary (`rdma_user_rxe.h`).
//!
//! The queues are memory shared with the kernel, which reads and writes them at any time. These
//! types give the layout; values are copied in and out, and no reference may point into a queue.

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use crate::union;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, big_endian};

/// Mapping of a queue.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct mminfo {
    /// Offset for mmap on the device file.
    pub offset: u64,
    /// Bytes.
    pub size: u32,
    pub pad: u32,
}

/// Response of `CREATE_AH`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_create_ah_resp {
    /// For [`rxe_send_wr_ud::ah_num`].
    pub ah_num: u32,
    pub reserved: u32,
}

/// Response of `CREATE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_create_cq_resp {
    pub mi: mminfo,
}

/// Response of `RESIZE_CQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_resize_cq_resp {
    pub mi: mminfo,
}

/// Response of `CREATE_QP`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_create_qp_resp {
    /// Receive queue; size 0 with an SRQ.
    pub rq_mi: mminfo,
    /// Send queue.
    pub sq_mi: mminfo,
}

/// Response of `CREATE_SRQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_create_srq_resp {
    pub mi: mminfo,
    pub srq_num: u32,
    pub reserved: u32,
}

/// Request of `MODIFY_SRQ`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_modify_srq_cmd {
    /// Address where the kernel writes a [`mminfo`] after a resize.
    pub mmap_info_addr: u64,
}

/// Header of every queue; the elements (`data[]`) follow it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_queue_buf {
    /// Log2 of the bytes of one element.
    pub log2_elem_size: u32,
    /// Number of elements minus one.
    pub index_mask: u32,
    pub pad_1: [u32; 30],
    /// Element to fill next, at most `index_mask`.
    pub producer_index: u32,
    pub pad_2: [u32; 31],
    /// Element to take next, at most `index_mask`. Equal to `producer_index`: the queue is empty.
    pub consumer_index: u32,
    pub pad_3: [u32; 31],
}

/// One entry of a scatter list.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_sge {
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    pub lkey: u32,
}

/// The data of a work request; inline data or scatter entries follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_dma_info {
    /// Bytes in all.
    pub length: u32,
    /// Bytes still to go.
    pub resid: u32,
    /// Entry in progress.
    pub cur_sge: u32,
    pub num_sge: u32,
    /// Bytes done in that entry.
    pub sge_offset: u32,
    pub reserved: u32,
}

/// An element of a receive queue; scatter entries follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_recv_wqe {
    pub wr_id: u64,
    pub reserved: u32,
    pub padding: u32,
    pub dma: rxe_dma_info,
}

/// An element of a send queue; inline data or scatter entries follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_send_wqe {
    pub wr: rxe_send_wr,
    /// `IB_WC_*`.
    pub status: u32,
    pub state: u32,
    pub iova: u64,
    pub mask: u32,
    pub first_psn: u32,
    pub last_psn: u32,
    pub ack_length: u32,
    pub ssn: u32,
    pub has_rd_atomic: u32,
    pub dma: rxe_dma_info,
}

/// The request in a [`rxe_send_wqe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rxe_send_wr {
    pub wr_id: u64,
    pub reserved: u32,
    /// `IB_UVERBS_WR_*`.
    pub opcode: u32,
    /// `IB_SEND_*`.
    pub send_flags: u32,
    /// C union: [`Self::imm_data`] or [`Self::invalidate_rkey`].
    pub ex: [u8; 4],
    /// C union: [`Self::rdma`], [`Self::atomic`], [`Self::ud`] or [`Self::mw`].
    pub wr: [u8; 120],
}

impl Default for rxe_send_wr {
    /// All zero.
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// `rxe_send_wr::wr` of RDMA READ and WRITE.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_send_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
    pub reserved: u32,
}

/// `rxe_send_wr::wr` of atomics.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_send_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
    pub reserved: u32,
}

/// `rxe_send_wr::wr` of datagrams.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_send_wr_ud {
    pub remote_qpn: u32,
    pub remote_qkey: u32,
    pub pkey_index: u16,
    pub reserved: u16,
    /// From [`rxe_create_ah_resp`]; 0: `av` counts.
    pub ah_num: u32,
    pub pad: [u32; 4],
    pub av: rxe_av,
}

/// `rxe_send_wr::wr` of a window's binding.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_send_wr_mw {
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    pub mr_lkey: u32,
    pub mw_rkey: u32,
    pub rkey: u32,
    pub access: u32,
}

impl rxe_send_wr {
    /// `ex` as immediate data.
    pub fn imm_data(&self) -> big_endian::U32 {
        big_endian::U32::from_bytes(self.ex)
    }

    /// `ex` as the invalidated key.
    pub fn invalidate_rkey(&self) -> u32 {
        u32::from_ne_bytes(self.ex)
    }

    /// `wr` of an RDMA READ or WRITE.
    pub fn rdma(&self) -> rxe_send_wr_rdma {
        union::view(&self.wr)
    }

    /// Sets `wr` to the operands of an RDMA READ or WRITE.
    pub fn set_rdma(&mut self, rdma: rxe_send_wr_rdma) {
        union::fill(&mut self.wr, rdma);
    }

    /// `wr` of an atomic.
    pub fn atomic(&self) -> rxe_send_wr_atomic {
        union::view(&self.wr)
    }

    /// Sets `wr` to the operands of an atomic.
    pub fn set_atomic(&mut self, atomic: rxe_send_wr_atomic) {
        union::fill(&mut self.wr, atomic);
    }

    /// `wr` of a datagram.
    pub fn ud(&self) -> rxe_send_wr_ud {
        union::view(&self.wr)
    }

    /// Sets `wr` to the destination of a datagram.
    pub fn set_ud(&mut self, ud: rxe_send_wr_ud) {
        union::fill(&mut self.wr, ud);
    }

    /// `wr` of a window's binding.
    pub fn mw(&self) -> rxe_send_wr_mw {
        union::view(&self.wr)
    }

    /// Sets `wr` to the operands of a memory window's binding.
    pub fn set_mw(&mut self, mw: rxe_send_wr_mw) {
        union::fill(&mut self.wr, mw);
    }
}

/// An address vector.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_av {
    pub port_num: u8,
    /// `RXE_NETWORK_TYPE_*`.
    pub network_type: u8,
    pub dmac: [u8; 6],
    pub grh: rxe_global_route,
    /// `sockaddr_in` or `sockaddr_in6`.
    pub sgid_addr: [u8; 28],
    /// `sockaddr_in` or `sockaddr_in6`.
    pub dgid_addr: [u8; 28],
}

/// The GRH part of [`rxe_av`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_global_route {
    /// Network order (`union rxe_gid`, see [`rxe_gid_global`]).
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    /// A hole that the C compiler leaves; zero.
    pub _pad0: [u8; 1],
}

/// The two halves of a `union rxe_gid`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rxe_gid_global {
    pub subnet_prefix: big_endian::U64,
    pub interface_id: big_endian::U64,
}

// `network_type`.
pub const RXE_NETWORK_TYPE_IPV4: u8 = 1;
pub const RXE_NETWORK_TYPE_IPV6: u8 = 2;
