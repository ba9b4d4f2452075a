//! Abilities and limits of a device, from which both fronts derive their answers: QUERY_HCA_CAP of
//! the firmware (`firmware/device/caps.rs`), and QUERY_DEVICE and QUERY_PORT of uverbs
//! (`kernel/verbs/device`). Limits that a program may set are in [`HcaConfig`] and
//! [`Profile`](super::profile::Profile).

use crate::hca::HcaConfig;
use crate::hca::ethernet::MAX_SPREAD;
use uverbs_front::backend::config::Paging;
use uverbs_front::backend::context::LinkLayer;

// Queues.

/// Number of completion vectors, all of which are equal.
pub(crate) const COMP_VECTORS: u32 = 8;
/// Maximum event queues. The doorbell has a byte for the number.
pub(crate) const MAX_EQ: u32 = 1 << 6;
/// Log2 of the largest event queue.
pub(crate) const LOG_MAX_EQES: u8 = 20;
/// Bytes of the largest send WQE (`max_wqe_sz_sq`).
pub(crate) const MAX_SQ_DESC: u16 = 1024;
/// Bytes of the largest receive WQE (`max_wqe_sz_rq`).
pub(crate) const MAX_RQ_DESC: u16 = 512;
/// Maximum SGEs of a work request: limited by the smaller of the two WQEs.
pub(crate) const MAX_SGE: u32 = 30;

// Doorbell pages, numbers.

/// Bytes of a BlueFlame register, both halves together (`log_bf_reg_size` 9).
pub(crate) const BF_REG_SIZE: u32 = 512;
/// Log2 of object numbers (`log_max_pd` and similar): 24 bits, one of which is reserved.
pub(crate) const LOG_MAX_NUMBER: u32 = 23;
/// Log2 of the maximum users of the command interface.
pub(crate) const LOG_MAX_UCTX: u8 = 12;
/// Maximum umems.
pub(crate) const MAX_UMEM: u32 = 1 << 16;
/// Maximum counter sets. The number is a byte of the queue pair's context; 0 means no set.
pub(crate) const MAX_COUNTERS: u32 = u8::MAX as u32;
/// Log2 of the QPNs in one reservation.
pub(crate) const LOG_RESERVED_QPNS: u64 = 6;

// Memory.

/// Bytes of device memory. The driver's bitmap has 256 pages at most (Linux
/// `include/linux/mlx5/driver.h`, `MLX5_MAX_MEMIC_PAGES`).
pub(crate) const DEVICE_MEMORY_LEN: u64 = 256 << 10;
/// Granularity of lengths of device memory (`MLX5_MEMIC_BASE_SIZE`), and the largest log2 of an
/// alignment in such units (`log_max_memic_addr_alignment`).
pub(crate) const DEVICE_MEMORY_UNIT: u64 = 64;
pub(crate) const LOG_MAX_DEVICE_MEMORY_ALIGNMENT: u32 = 6;

/// Bits of [`Paging`].
pub(crate) mod paged {
    pub(crate) const SEND: u32 = 1;
    pub(crate) const RECEIVE: u32 = 1 << 1;
    pub(crate) const WRITE: u32 = 1 << 2;
    pub(crate) const READ: u32 = 1 << 3;
    pub(crate) const ATOMIC: u32 = 1 << 4;
    pub(crate) const SRQ_RECEIVE: u32 = 1 << 5;
}

/// In process the processor resolves each access.
pub(crate) const PAGED_IN_PROCESS: Paging = Paging {
    connected: paged::SEND | paged::RECEIVE | paged::WRITE | paged::READ | paged::ATOMIC,
    uc: paged::SEND | paged::RECEIVE | paged::WRITE,
    ud: paged::SEND | paged::RECEIVE,
};
/// In a virtual machine the guest's driver resolves page faults, which it does for connections
/// only. A datagram's receive needs an SRQ: the driver knows no other receive for UD.
pub(crate) const PAGED_IN_GUEST: Paging = Paging {
    connected: PAGED_IN_PROCESS.connected | paged::SRQ_RECEIVE,
    uc: 0,
    ud: paged::SEND | paged::SRQ_RECEIVE,
};

// Ethernet.

/// Maximum number each of TIRs, TISes, RQ tables and flow tables.
pub(crate) const MAX_STEERING: u32 = 1 << 16;
/// Log2 of the largest RQ table.
pub(crate) const LOG_MAX_RQT_SIZE: u32 = MAX_SPREAD.ilog2();
/// Log2 of the maximum flow counters that one command allocates.
pub(crate) const LOG_MAX_COUNTER_ROW: u64 = 9;
/// Bytes of the longest header that a flow adds.
pub(crate) const MAX_ENCAP_HEADER: usize = 128;

// Port and clock.

/// `gid_table_size` of an Ethernet port, and of an InfiniBand port, of this family.
const GID_TABLE_LEN: [u32; 2] = [255, 8];
/// P_Keys in the table: RoCE has only the default key (`mlx5_query_port_roce`).
const PKEY_TABLE_LEN: [u16; 2] = [1, 128];
/// Values of IBTA PortInfo (14.2.5.6): PortState Active, PortPhysicalState LinkUp, LinkWidth 4X.
pub(crate) const PORT_ACTIVE: u8 = 4;
pub(crate) const LINK_UP: u8 = 5;
pub(crate) const WIDTH_4X: u8 = 2;
/// EDR: 25 Gb/s a lane (`IB_SPEED_EDR`).
pub(crate) const SPEED_EDR: u8 = 1 << 5;
/// LID of a subnet manager. The port configures itself, so no manager runs there.
pub(crate) const MANAGER_LID: u16 = 1;
/// Log2 of the longest time to an ACK, in units of 4.096 us, as ConnectX-6 reports it.
pub(crate) const LOCAL_CA_ACK_DELAY: u8 = 16;
/// Frequency of the clock, which counts nanoseconds.
pub(crate) const CLOCK_KHZ: u64 = 1_000_000;

impl HcaConfig {
    pub(crate) fn is_ethernet(&self) -> bool {
        self.link == LinkLayer::Ethernet
    }

    pub(crate) fn gid_table_len(&self) -> u32 {
        GID_TABLE_LEN[usize::from(!self.is_ethernet())]
    }

    pub(crate) fn pkey_table_len(&self) -> u16 {
        PKEY_TABLE_LEN[usize::from(!self.is_ethernet())]
    }

    /// Log2 of the maximum entries of a tag list. 0 on Ethernet: libmlx5 changes tag lists by a
    /// queue pair that it connects to itself without a GRH (`create_cmd_qp`), which Linux refuses
    /// on Ethernet (`rdma_check_ah_attr`).
    pub(crate) fn log_max_tags(&self) -> u8 {
        if self.is_ethernet() { 0 } else { self.log_max_tags }
    }

    /// Log2 of the maximum receive queues of raw packets, rounded down. None on InfiniBand.
    pub(crate) fn log_max_rq(&self) -> Option<u32> {
        self.is_ethernet().then(|| self.max_qp.max(1).ilog2())
    }
}
