//! Additions of Linux 6.17: services by name or number, and events that a program writes.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::union;

// Search keys of a service.
pub const RDMA_USER_CM_IB_SERVICE_FLAG_ID: u32 = 1;
pub const RDMA_USER_CM_IB_SERVICE_FLAG_NAME: u32 = 2;
pub const RDMA_USER_CM_IB_SERVICE_NAME_SIZE: usize = 64;

/// Search keys of a service (Linux 6.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_ib_service {
    pub service_id: u64,
    pub service_name: [u8; RDMA_USER_CM_IB_SERVICE_NAME_SIZE],
    /// `RDMA_USER_CM_IB_SERVICE_FLAG_*`: the valid one of the two.
    pub flags: u32,
    pub reserved: u32,
}

impl Default for rdma_ucm_ib_service {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of `RESOLVE_IB_SERVICE`. Linux 6.17.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_resolve_ib_service {
    pub id: u32,
    pub reserved: u32,
    pub ibs: rdma_ucm_ib_service,
}

/// Response of `QUERY` for `RDMA_USER_CM_QUERY_IB_SERVICE`; records of 176 bytes follow
/// (`struct ib_user_service_rec` of `rdma/ib_user_sa.h`). Linux 6.17.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_query_ib_service_resp {
    pub num_service_recs: u32,
    pub reserved: u32,
}

/// Request of `WRITE_CM_EVENT`. Linux 6.17.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_write_cm_event {
    pub id: u32,
    pub reserved: u32,
    /// `RDMA_CM_EVENT_USER` or `RDMA_CM_EVENT_INTERNAL` (`rdma/rdma_cm.h`).
    pub event: u32,
    pub status: u32,
    /// A `u64`; the rest is unused.
    pub param: [u8; 304],
}

impl rdma_ucm_write_cm_event {
    /// `param`.
    #[must_use]
    pub fn arg(&self) -> u64 {
        union::view(&self.param)
    }

    /// Sets `param`.
    pub fn set_arg(&mut self, arg: u64) {
        union::fill(&mut self.param, arg);
    }
}

impl Default for rdma_ucm_write_cm_event {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
