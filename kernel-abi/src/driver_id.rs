//! Numbers of kernel drivers (`rdma_driver_id` in `ib_user_ioctl_verbs.h`), used in
//! `ib_uverbs_ioctl_hdr::driver_id` and `RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID`.

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

// Drivers.
pub const RDMA_DRIVER_UNKNOWN: u32 = 0;
pub const RDMA_DRIVER_MLX5: u32 = 1;
pub const RDMA_DRIVER_MLX4: u32 = 2;
pub const RDMA_DRIVER_CXGB3: u32 = 3;
pub const RDMA_DRIVER_CXGB4: u32 = 4;
pub const RDMA_DRIVER_MTHCA: u32 = 5;
pub const RDMA_DRIVER_BNXT_RE: u32 = 6;
pub const RDMA_DRIVER_OCRDMA: u32 = 7;
pub const RDMA_DRIVER_NES: u32 = 8;
pub const RDMA_DRIVER_I40IW: u32 = 9;
pub const RDMA_DRIVER_IRDMA: u32 = RDMA_DRIVER_I40IW;
pub const RDMA_DRIVER_VMW_PVRDMA: u32 = 10;
pub const RDMA_DRIVER_QEDR: u32 = 11;
pub const RDMA_DRIVER_HNS: u32 = 12;
pub const RDMA_DRIVER_USNIC: u32 = 13;
pub const RDMA_DRIVER_RXE: u32 = 14;
pub const RDMA_DRIVER_HFI1: u32 = 15;
pub const RDMA_DRIVER_QIB: u32 = 16;
pub const RDMA_DRIVER_EFA: u32 = 17;
pub const RDMA_DRIVER_SIW: u32 = 18;
pub const RDMA_DRIVER_ERDMA: u32 = 19;
pub const RDMA_DRIVER_MANA: u32 = 20;
pub const RDMA_DRIVER_IONIC: u32 = 21;
