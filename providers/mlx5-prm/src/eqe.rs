//! Event queue entries: asynchronous messages of the device (Linux `include/linux/mlx5/device.h`,
//! `mlx5_eqe`).

use crate::bits::{layout, named};
use zerocopy::byteorder::big_endian::U32;

named! {
    /// Kind of event (`enum mlx5_event`).
    pub struct EventType(u8) {
        /// An armed completion queue got a CQE.
        COMP = 0x00,
        /// First packet while ready to receive.
        COMM_EST = 0x02,
        /// The send queue is drained.
        SQ_DRAINED = 0x03,
        /// A completion queue is in error.
        CQ_ERROR = 0x04,
        /// A work queue is in error.
        WQ_CATAS_ERROR = 0x05,
        /// The state of a port changed.
        PORT_CHANGE = 0x09,
        /// Commands are completed.
        CMD = 0x0a,
        /// The device requests pages, or returns some.
        PAGE_REQUEST = 0x0b,
        /// A page of memory that a queue uses is missing.
        PAGE_FAULT = 0x0c,
        /// A work queue got an invalid request.
        WQ_INVAL_REQ_ERROR = 0x10,
        /// A request lacked the access right.
        WQ_ACCESS_ERROR = 0x11,
        /// A shared receive queue is in error.
        SRQ_CATAS_ERROR = 0x12,
        /// A queue pair with an SRQ took its last receive.
        SRQ_LAST_WQE = 0x13,
        /// A shared receive queue fell below its limit.
        SRQ_RQ_LIMIT = 0x14,
        /// A target of dynamic connections is drained.
        DCT_DRAINED = 0x1c,
        /// A packet for a target of dynamic connections had a wrong DC key.
        DCT_KEY_VIOLATION = 0x1d,
    }
}

named! {
    /// Kind of an event's queue (`MLX5_EVENT_QUEUE_TYPE_*`). A queue's number is unique within its
    /// kind.
    pub struct EventQueueType(u8) {
        /// A queue pair, or a shared receive queue.
        QP = 0,
        /// A receive queue.
        RQ = 1,
        /// A send queue.
        SQ = 2,
        /// A target of dynamic connections.
        DCT = 6,
    }
}

/// `sub_type` of [`EventType::PORT_CHANGE`]: down.
pub const MLX5_PORT_CHANGE_SUBTYPE_DOWN: u8 = 1;
/// `sub_type` of [`EventType::PORT_CHANGE`]: active.
pub const MLX5_PORT_CHANGE_SUBTYPE_ACTIVE: u8 = 4;

/// `sub_type` of [`EventType::PAGE_FAULT`]: in the memory of a work request.
pub const MLX5_PFAULT_SUBTYPE_WQE: u8 = 0;
/// `sub_type` of [`EventType::PAGE_FAULT`]: in memory that a peer's request named.
pub const MLX5_PFAULT_SUBTYPE_RDMA: u8 = 1;

named! {
    /// Queue and operation of a page fault, 3 bits (`enum wqe_page_fault_type`).
    pub struct PageFaultType(u8) {
        /// A receive of an SRQ.
        RMP = 0,
        /// A SEND or WRITE whose data can't be read.
        REQ_SEND_OR_WRITE = 1,
        /// A receive of a queue pair's receive queue.
        RESP = 2,
        /// A READ or an atomic whose response can't be written.
        REQ_READ_OR_ATOMIC = 3,
        /// A peer's request that reads memory (`MLX5_PFAULT_RDMA` of Linux's `hw/mlx5/mlx5_ib.h`).
        RDMA_READ = 4,
        /// A peer's request that writes memory (with `MLX5_PFAULT_WRITE`).
        RDMA_WRITE = 6,
    }
}

layout! {
    /// An event queue entry. Its data depend on the type: see the constructors.
    pub struct mlx5_eqe[64] {
        /// Zero.
        pub rsvd0: u8,
        /// Kind of event.
        pub type_: u8,
        /// Zero.
        pub rsvd1: u8,
        /// Kind of event within the type.
        pub sub_type: u8,
        /// Zero.
        pub rsvd2: [u8; 28],
        /// Data of the event.
        pub data: [U32; 7],
        /// Zero.
        pub rsvd3: [u8; 2],
        /// Signature.
        pub signature: u8,
        /// The owner bit flips with each lap.
        pub owner: u8,
    }
}

impl mlx5_eqe {
    /// Builds an event without data.
    #[must_use]
    pub fn new(kind: EventType) -> Self {
        Self { type_: kind.0, ..Self::default() }
    }

    /// [`EventType::COMP`] (`mlx5_eqe_comp`).
    #[must_use]
    pub fn completion(cqn: u32) -> Self {
        let mut eqe = Self::new(EventType::COMP);
        eqe.data[6].set(cqn);
        eqe
    }

    /// An event of a queue (`mlx5_eqe_qp_srq`).
    #[must_use]
    pub fn queue(kind: EventType, queue: EventQueueType, number: u32) -> Self {
        let mut eqe = Self::new(kind);
        eqe.data[5].set(u32::from(queue.0) << 24);
        eqe.data[6].set(number);
        eqe
    }

    /// [`EventType::CQ_ERROR`] (`mlx5_eqe_cq_err`): syndrome 1 is an overrun.
    #[must_use]
    pub fn cq_error(cqn: u32, syndrome: u8) -> Self {
        let mut eqe = Self::new(EventType::CQ_ERROR);
        eqe.data[0].set(cqn);
        eqe.data[2].set(syndrome.into());
        eqe
    }

    /// [`EventType::CMD`] (`mlx5_eqe_cmd`): one bit for each entry of the command queue.
    #[must_use]
    pub fn command(vector: u32) -> Self {
        let mut eqe = Self::new(EventType::CMD);
        eqe.data[0].set(vector);
        eqe
    }

    /// [`EventType::PAGE_FAULT`] of a work request (`mlx5_eqe_page_fault.wqe`): all of its memory
    /// is needed. `packet` bytes arrived for a receive.
    #[must_use]
    pub fn wqe_fault(kind: PageFaultType, token: u32, queue: u32, index: u16, packet: u16) -> Self {
        let mut eqe = Self::new(EventType::PAGE_FAULT);
        eqe.sub_type = MLX5_PFAULT_SUBTYPE_WQE;
        eqe.data[1].set(index.into());
        eqe.data[2].set(packet.into());
        eqe.data[3].set(token);
        eqe.data[6].set(u32::from(kind.0) << 24 | queue);
        eqe
    }

    /// [`EventType::PAGE_FAULT`] of a peer's request (`mlx5_eqe_page_fault.rdma`): `len` bytes from
    /// `va` on are needed, `packet` of them for the next packet.
    #[must_use]
    pub fn rdma_fault(
        kind: PageFaultType,
        token: u32,
        rkey: u32,
        (va, len): (u64, u32),
        packet: u16,
    ) -> Self {
        let mut eqe = Self::new(EventType::PAGE_FAULT);
        eqe.sub_type = MLX5_PFAULT_SUBTYPE_RDMA;
        eqe.data[1].set(rkey);
        eqe.data[2].set(packet.into());
        eqe.data[3].set(len);
        eqe.data[4].set((va >> 32) as u32);
        eqe.data[5].set(va as u32);
        eqe.data[6].set(u32::from(kind.0) << 24 | token);
        eqe
    }

    /// [`EventType::PAGE_REQUEST`] (`mlx5_eqe_page_req`): a function needs `count` pages, or
    /// returns pages if the count is negative.
    #[must_use]
    pub fn page_request(function: u16, count: i32) -> Self {
        let mut eqe = Self::new(EventType::PAGE_REQUEST);
        eqe.data[0].set(function.into());
        eqe.data[1].set(count.cast_unsigned());
        eqe
    }

    /// Function and count of [`mlx5_eqe::page_request`].
    #[must_use]
    pub fn requested_pages(&self) -> (u16, i32) {
        (self.data[0].get() as u16, self.data[1].get().cast_signed())
    }

    /// [`EventType::PORT_CHANGE`] (`mlx5_eqe_port_state`).
    #[must_use]
    pub fn port(sub_type: u8, port: u8) -> Self {
        let mut eqe = Self::new(EventType::PORT_CHANGE);
        eqe.sub_type = sub_type;
        eqe.data[2].set(u32::from(port) << 28);
        eqe
    }
}
