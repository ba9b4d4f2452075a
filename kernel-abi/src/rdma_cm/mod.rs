//! Commands of the connection manager (`rdma_user_cm.h`), written to `/dev/infiniband/rdma_cm`.

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

mod service;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::ah::ib_uverbs_ah_attr;
use crate::union;

pub use service::*;

/// Version of this interface.
pub const RDMA_USER_CM_ABI_VERSION: u32 = 4;
/// Bytes of private data that a command has room for.
pub const RDMA_MAX_PRIVATE_DATA: usize = 256;

// Commands.
pub const RDMA_USER_CM_CMD_CREATE_ID: u32 = 0;
pub const RDMA_USER_CM_CMD_DESTROY_ID: u32 = 1;
pub const RDMA_USER_CM_CMD_BIND_IP: u32 = 2;
pub const RDMA_USER_CM_CMD_RESOLVE_IP: u32 = 3;
pub const RDMA_USER_CM_CMD_RESOLVE_ROUTE: u32 = 4;
pub const RDMA_USER_CM_CMD_QUERY_ROUTE: u32 = 5;
pub const RDMA_USER_CM_CMD_CONNECT: u32 = 6;
pub const RDMA_USER_CM_CMD_LISTEN: u32 = 7;
pub const RDMA_USER_CM_CMD_ACCEPT: u32 = 8;
pub const RDMA_USER_CM_CMD_REJECT: u32 = 9;
pub const RDMA_USER_CM_CMD_DISCONNECT: u32 = 10;
pub const RDMA_USER_CM_CMD_INIT_QP_ATTR: u32 = 11;
pub const RDMA_USER_CM_CMD_GET_EVENT: u32 = 12;
pub const RDMA_USER_CM_CMD_GET_OPTION: u32 = 13;
pub const RDMA_USER_CM_CMD_SET_OPTION: u32 = 14;
pub const RDMA_USER_CM_CMD_NOTIFY: u32 = 15;
pub const RDMA_USER_CM_CMD_JOIN_IP_MCAST: u32 = 16;
pub const RDMA_USER_CM_CMD_LEAVE_MCAST: u32 = 17;
pub const RDMA_USER_CM_CMD_MIGRATE_ID: u32 = 18;
pub const RDMA_USER_CM_CMD_QUERY: u32 = 19;
pub const RDMA_USER_CM_CMD_BIND: u32 = 20;
pub const RDMA_USER_CM_CMD_RESOLVE_ADDR: u32 = 21;
pub const RDMA_USER_CM_CMD_JOIN_MCAST: u32 = 22;
// Linux 6.17.
pub const RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE: u32 = 23;
pub const RDMA_USER_CM_CMD_WRITE_CM_EVENT: u32 = 24;

// Options of `QUERY`.
pub const RDMA_USER_CM_QUERY_ADDR: u32 = 0;
pub const RDMA_USER_CM_QUERY_PATH: u32 = 1;
pub const RDMA_USER_CM_QUERY_GID: u32 = 2;
// Linux 6.17.
pub const RDMA_USER_CM_QUERY_IB_SERVICE: u32 = 3;

// Port spaces.
pub const RDMA_PS_IPOIB: u16 = 0x0002;
pub const RDMA_PS_TCP: u16 = 0x0106;
pub const RDMA_PS_UDP: u16 = 0x0111;
pub const RDMA_PS_IB: u16 = 0x013f;

// Levels and names of options.
pub const RDMA_OPTION_ID: u32 = 0;
pub const RDMA_OPTION_ID_TOS: u32 = 0;
pub const RDMA_OPTION_ID_REUSEADDR: u32 = 1;
pub const RDMA_OPTION_ID_AFONLY: u32 = 2;
pub const RDMA_OPTION_ID_ACK_TIMEOUT: u32 = 3;
pub const RDMA_OPTION_IB: u32 = 1;
pub const RDMA_OPTION_IB_PATH: u32 = 1;

// How a multicast group is joined.
pub const RDMA_MC_JOIN_FLAG_FULLMEMBER: u16 = 0;
pub const RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER: u16 = 1;
pub const RDMA_MC_JOIN_FLAG_RESERVED: u16 = 2;

/// Before each command. The kernel answers through the address in `response`, not by a read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_cmd_hdr {
    pub cmd: u32,
    /// Bytes behind this header.
    pub r#in: u16,
    /// Room for the response.
    pub out: u16,
}

/// Request of `CREATE_ID`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_create_id {
    /// Comes back in each event.
    pub uid: u64,
    /// Address of the response.
    pub response: u64,
    /// `RDMA_PS_*`.
    pub ps: u16,
    /// `IB_QPT_*`; counts for `RDMA_PS_IB` alone.
    pub qp_type: u8,
    pub reserved: [u8; 5],
}

/// Response of `CREATE_ID`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_create_id_resp {
    pub id: u32,
}

/// Request of `DESTROY_ID` and of `LEAVE_MCAST`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_destroy_id {
    pub response: u64,
    pub id: u32,
    pub reserved: u32,
}

/// Response of `DESTROY_ID` and of `LEAVE_MCAST`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_destroy_id_resp {
    /// Number of events of this id that were read.
    pub events_reported: u32,
}

/// Request of `BIND_IP`: the form of old kernels.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_bind_ip {
    pub response: u64,
    /// `struct sockaddr_in6`, or a shorter address.
    pub addr: [u8; 28],
    pub id: u32,
}

/// Request of `BIND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_bind {
    pub id: u32,
    pub addr_size: u16,
    pub reserved: u16,
    /// `struct __kernel_sockaddr_storage`.
    pub addr: [u8; 128],
}

impl Default for rdma_ucm_bind {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of `RESOLVE_IP`: the form of old kernels.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_resolve_ip {
    pub src_addr: [u8; 28],
    pub dst_addr: [u8; 28],
    pub id: u32,
    pub timeout_ms: u32,
}

/// Request of `RESOLVE_ADDR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_resolve_addr {
    pub id: u32,
    pub timeout_ms: u32,
    pub src_size: u16,
    pub dst_size: u16,
    pub reserved: u32,
    pub src_addr: [u8; 128],
    pub dst_addr: [u8; 128],
}

impl Default for rdma_ucm_resolve_addr {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of `RESOLVE_ROUTE`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_resolve_route {
    pub id: u32,
    pub timeout_ms: u32,
}

/// Request of `QUERY` and `QUERY_ROUTE`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_query {
    pub response: u64,
    pub id: u32,
    /// `RDMA_USER_CM_QUERY_*`.
    pub option: u32,
}

/// Response of `QUERY_ROUTE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_query_route_resp {
    /// Network order.
    pub node_guid: u64,
    /// `struct ib_user_path_rec`.
    pub ib_route: [[u8; 64]; 2],
    pub src_addr: [u8; 28],
    pub dst_addr: [u8; 28],
    pub num_paths: u32,
    pub port_num: u8,
    pub reserved: [u8; 3],
    pub ibdev_index: u32,
    pub reserved1: u32,
}

impl Default for rdma_ucm_query_route_resp {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Response of `QUERY` for `RDMA_USER_CM_QUERY_ADDR` and `_GID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_query_addr_resp {
    /// Network order.
    pub node_guid: u64,
    pub port_num: u8,
    pub reserved: u8,
    /// Host order.
    pub pkey: u16,
    pub src_size: u16,
    pub dst_size: u16,
    pub src_addr: [u8; 128],
    pub dst_addr: [u8; 128],
    /// Index of the device in RDMA netlink, from 0.
    pub ibdev_index: u32,
    pub reserved1: u32,
}

impl Default for rdma_ucm_query_addr_resp {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Response of `QUERY` for `RDMA_USER_CM_QUERY_PATH`; `path_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_query_path_resp {
    pub num_paths: u32,
    pub reserved: u32,
}

/// Options of enhanced connection establishment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_ece {
    pub vendor_id: u32,
    pub attr_mod: u32,
}

/// Parameters that both sides of a connection agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_conn_param {
    pub qp_num: u32,
    pub qkey: u32,
    pub private_data: [u8; 256],
    pub private_data_len: u8,
    /// 1: the queue pair has a shared receive queue.
    pub srq: u8,
    /// READs and atomics that this side serves at the same time.
    pub responder_resources: u8,
    /// READs and atomics that this side has outstanding at the same time.
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    /// 1: the rest counts.
    pub valid: u8,
}

impl Default for rdma_ucm_conn_param {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Destination of datagrams to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_ud_param {
    pub qp_num: u32,
    pub qkey: u32,
    pub ah_attr: ib_uverbs_ah_attr,
    pub private_data: [u8; 256],
    pub private_data_len: u8,
    pub reserved: [u8; 7],
}

impl Default for rdma_ucm_ud_param {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of `CONNECT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_connect {
    pub conn_param: rdma_ucm_conn_param,
    pub id: u32,
    pub reserved: u32,
    pub ece: rdma_ucm_ece,
}

impl Default for rdma_ucm_connect {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of `LISTEN`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_listen {
    pub id: u32,
    /// 0 or more than the limit: `net.rdma_ucm.max_backlog`.
    pub backlog: i32,
}

/// Request of `ACCEPT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_accept {
    /// User data in later events of the id.
    pub uid: u64,
    pub conn_param: rdma_ucm_conn_param,
    pub id: u32,
    pub reserved: u32,
    pub ece: rdma_ucm_ece,
}

impl Default for rdma_ucm_accept {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of `REJECT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_reject {
    pub id: u32,
    pub private_data_len: u8,
    /// IBTA vol 1, table 110; 0 stands for 28, consumer reject.
    pub reason: u8,
    pub reserved: u16,
    pub private_data: [u8; 256],
}

impl Default for rdma_ucm_reject {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of `DISCONNECT`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_disconnect {
    pub id: u32,
}

/// Request of `INIT_QP_ATTR`, whose response is
/// [`ib_uverbs_qp_attr`](crate::qp::ib_uverbs_qp_attr).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_init_qp_attr {
    pub response: u64,
    pub id: u32,
    /// The state that is asked for.
    pub qp_state: u32,
}

/// Request of `NOTIFY`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_notify {
    pub id: u32,
    /// `IB_EVENT_*`.
    pub event: u32,
}

/// Request of `JOIN_IP_MCAST`: the form of old kernels.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_join_ip_mcast {
    pub response: u64,
    pub uid: u64,
    pub addr: [u8; 28],
    pub id: u32,
}

/// Request of `JOIN_MCAST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_join_mcast {
    pub response: u64,
    pub uid: u64,
    pub id: u32,
    pub addr_size: u16,
    /// `RDMA_MC_JOIN_FLAG_*`.
    pub join_flags: u16,
    pub addr: [u8; 128],
}

impl Default for rdma_ucm_join_mcast {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of `GET_EVENT`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_get_event {
    pub response: u64,
}

/// Response of `GET_EVENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rdma_ucm_event_resp {
    /// User data of the id, or of its listener for a new request.
    pub uid: u64,
    pub id: u32,
    /// `enum rdma_cm_event_type` (`rdma/rdma_cm.h`).
    pub event: u32,
    /// 0, a negative errno, or the reason of a rejection.
    pub status: i32,
    /// [`rdma_ucm_conn_param`] or [`rdma_ucm_ud_param`], or since Linux 6.17 a `u64`.
    pub param: [u8; 304],
    pub reserved: u32,
    pub ece: rdma_ucm_ece,
}

impl rdma_ucm_event_resp {
    /// `param` of an id for connections.
    #[must_use]
    pub fn conn(&self) -> rdma_ucm_conn_param {
        union::view(&self.param)
    }

    /// `param` of an id for datagrams.
    #[must_use]
    pub fn ud(&self) -> rdma_ucm_ud_param {
        union::view(&self.param)
    }

    /// `param` of an event that a program wrote ([`rdma_ucm_write_cm_event`]).
    #[must_use]
    pub fn arg(&self) -> u64 {
        union::view(&self.param)
    }

    /// Sets `param` to the argument of an event that a program wrote.
    pub fn set_arg(&mut self, arg: u64) {
        union::fill(&mut self.param, arg);
    }

    /// Sets `param` to the parameters of an id for connections.
    pub fn set_conn(&mut self, conn: rdma_ucm_conn_param) {
        union::fill(&mut self.param, conn);
    }

    /// Sets `param` to the parameters of an id for datagrams.
    pub fn set_ud(&mut self, ud: rdma_ucm_ud_param) {
        union::fill(&mut self.param, ud);
    }
}

impl Default for rdma_ucm_event_resp {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Request of `SET_OPTION`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_set_option {
    /// Address of the value.
    pub optval: u64,
    pub id: u32,
    pub level: u32,
    pub optname: u32,
    pub optlen: u32,
}

/// Request of `MIGRATE_ID`, sent to the new file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_migrate_id {
    pub response: u64,
    pub id: u32,
    /// The old file.
    pub fd: u32,
}

/// Response of `MIGRATE_ID`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct rdma_ucm_migrate_resp {
    pub events_reported: u32,
}
