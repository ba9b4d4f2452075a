//! Values in a queue pair's context that WQEs and CQEs depend on (PRM "Queue Pair Context").

use crate::bits::named;

named! {
    /// Service type (`st`; Linux `include/linux/mlx5/qp.h`, `MLX5_QP_ST_*`).
    pub struct ServiceType(u8) {
        /// Reliable connection.
        RC = 0x0,
        /// Unreliable connection.
        UC = 0x1,
        /// Unreliable datagram.
        UD = 0x2,
        /// Extended reliable connection.
        XRC = 0x3,
        /// Raw, obsolete.
        MLX = 0x4,
        /// Dynamically connected initiator.
        DCI = 0x5,
        /// Dynamically connected target.
        DCT = 0x6,
        /// Subnet management.
        QP0 = 0x7,
        /// General services.
        QP1 = 0x8,
        /// Raw Ethernet type.
        RAW_ETHERTYPE = 0x9,
        /// Raw IPv6.
        RAW_IPV6 = 0xa,
        /// Sniffer.
        SNIFFER = 0xb,
        /// Memory registration.
        REG_UMR = 0xc,
        /// IEEE 1588.
        PTP_1588 = 0xd,
        /// Synchronous memory registration.
        SYNC_UMR = 0xe,
    }
}

named! {
    /// Queue pair state (Linux `include/linux/mlx5/qp.h`, `MLX5_QP_STATE_*`).
    pub struct QpState(u8) {
        /// Reset.
        RST = 0,
        /// Initialized.
        INIT = 1,
        /// Ready to receive.
        RTR = 2,
        /// Ready to send.
        RTS = 3,
        /// Send queue error.
        SQER = 4,
        /// Send queue drained.
        SQD = 5,
        /// Error.
        ERR = 6,
        /// Send queue draining.
        SQ_DRAINING = 7,
        /// Suspended.
        SUSPENDED = 9,
    }
}

named! {
    /// Path migration state.
    pub struct PmState(u8) {
        /// Armed.
        ARMED = 0,
        /// Rearm.
        REARM = 1,
        /// Migrated.
        MIGRATED = 3,
    }
}

named! {
    /// Path MTU.
    pub struct Mtu(u8) {
        /// 256 bytes.
        MTU_256 = 1,
        /// 512 bytes.
        MTU_512 = 2,
        /// 1024 bytes.
        MTU_1024 = 3,
        /// 2048 bytes.
        MTU_2048 = 4,
        /// 4096 bytes.
        MTU_4096 = 5,
        /// Raw Ethernet queues.
        RAW_ETHERNET = 7,
    }
}

impl Mtu {
    /// Payload bytes per packet; `None` for raw Ethernet and unknown values.
    #[must_use]
    pub const fn bytes(self) -> Option<usize> {
        match self.0 {
            1..=5 => Some(128 << self.0),
            _ => None,
        }
    }
}
