//! [`Ucma`]: the commands of one event channel of the connection manager. Kernel `ucma.c`;
//! rdma-core `librdmacm/cma.c`.

use std::sync::Arc;

use uverbs_kernel_abi::qp::ib_uverbs_qp_attr;
use uverbs_kernel_abi::rdma_cm::{
    RDMA_USER_CM_CMD_ACCEPT, RDMA_USER_CM_CMD_BIND, RDMA_USER_CM_CMD_CONNECT,
    RDMA_USER_CM_CMD_CREATE_ID, RDMA_USER_CM_CMD_DESTROY_ID, RDMA_USER_CM_CMD_DISCONNECT,
    RDMA_USER_CM_CMD_GET_EVENT, RDMA_USER_CM_CMD_INIT_QP_ATTR, RDMA_USER_CM_CMD_JOIN_MCAST,
    RDMA_USER_CM_CMD_LEAVE_MCAST, RDMA_USER_CM_CMD_LISTEN, RDMA_USER_CM_CMD_MIGRATE_ID,
    RDMA_USER_CM_CMD_NOTIFY, RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_CMD_REJECT,
    RDMA_USER_CM_CMD_RESOLVE_ADDR, RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE,
    RDMA_USER_CM_CMD_RESOLVE_ROUTE, RDMA_USER_CM_CMD_SET_OPTION, RDMA_USER_CM_CMD_WRITE_CM_EVENT,
    RDMA_USER_CM_QUERY_ADDR, RDMA_USER_CM_QUERY_GID, RDMA_USER_CM_QUERY_IB_SERVICE,
    RDMA_USER_CM_QUERY_PATH, rdma_ucm_accept, rdma_ucm_bind, rdma_ucm_conn_param, rdma_ucm_connect,
    rdma_ucm_create_id, rdma_ucm_create_id_resp, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp,
    rdma_ucm_disconnect, rdma_ucm_ece, rdma_ucm_event_resp, rdma_ucm_get_event,
    rdma_ucm_ib_service, rdma_ucm_init_qp_attr, rdma_ucm_join_mcast, rdma_ucm_listen,
    rdma_ucm_migrate_id, rdma_ucm_migrate_resp, rdma_ucm_notify, rdma_ucm_query,
    rdma_ucm_query_addr_resp, rdma_ucm_query_ib_service_resp, rdma_ucm_query_path_resp,
    rdma_ucm_reject, rdma_ucm_resolve_addr, rdma_ucm_resolve_ib_service, rdma_ucm_resolve_route,
    rdma_ucm_set_option, rdma_ucm_write_cm_event,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Errno;
use crate::doors::cm::{CmCommand, CmDoor};
use crate::error::Error;
use crate::memory::process::Process;

/// Bytes of a `struct ib_path_rec_data` (kernel `rdma/ib_user_sa.h`).
pub const PATH_LEN: usize = 72;
/// Room for paths. An id has at most two, and the kernel fills one entry less than there is room
/// for (`ucma.c`, `ucma_query_path`). librdmacm has the same room (`cma.c`, `ucma_query_path`).
const PATHS: usize = 6;
/// Bytes of a `struct ib_user_service_rec` (kernel `rdma/ib_user_sa.h`).
pub const SERVICE_LEN: usize = 176;
/// Initial room for service records, as in librdmacm (`ucma_query_ib_service`), and the maximum.
const SERVICES: usize = 6;
const MOST_SERVICES: usize = 1024;

/// A `struct sockaddr` with the length of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SockAddr {
    bytes: [u8; 128],
    len: u16,
}

impl SockAddr {
    /// No address.
    pub const NONE: Self = Self { bytes: [0; 128], len: 0 };

    /// An address from its bytes; `None` if it exceeds the room in commands.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut all = [0; 128];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { bytes: all, len: bytes.len() as u16 })
    }

    /// Bytes of the address.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The commands of one event channel. An id is a number that the kernel assigns. The kernel checks
/// that it belongs to the channel. Cloning shares the door.
#[derive(Clone, Debug)]
pub struct Ucma {
    door: Arc<dyn CmDoor>,
    /// Process that opened the file. A forked child shares it, and must not end its parent's ids.
    process: Process,
}

impl Ucma {
    /// Commands through `door`, for this process.
    #[must_use]
    pub fn new(door: Arc<dyn CmDoor>) -> Self {
        Self { door, process: Process::current() }
    }

    /// The door.
    #[must_use]
    pub fn door(&self) -> &Arc<dyn CmDoor> {
        &self.door
    }

    /// Sends a command whose response is a struct.
    fn ask<A: FromBytes + IntoBytes>(
        &self,
        verb: &'static str,
        number: u32,
        request: &mut (impl IntoBytes + FromBytes),
    ) -> Result<A, Error> {
        let mut answer = A::new_zeroed();
        let answer_bytes = answer.as_mut_bytes();
        self.send(verb, number, request.as_mut_bytes(), Some(answer_bytes), None)?;
        Ok(answer)
    }

    /// Sends a command without a response.
    fn tell(
        &self,
        verb: &'static str,
        number: u32,
        request: &mut (impl IntoBytes + FromBytes + Immutable),
    ) -> Result<(), Error> {
        self.send(verb, number, request.as_mut_bytes(), None, None)
    }

    fn send(
        &self,
        verb: &'static str,
        number: u32,
        request: &mut [u8],
        answer: Option<&mut [u8]>,
        value: Option<&[u8]>,
    ) -> Result<(), Error> {
        if !self.process.is_current() {
            return Err(Error::OtherProcess { verb });
        }
        let command = CmCommand { number, request, answer, value };
        self.door.command(command).map_err(|errno| Error::cm(verb, errno))
    }

    /// Creates an id in a port space (`RDMA_PS_*`) and returns its number. Its events carry `uid`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(&self, uid: u64, port_space: u16, qp_type: u8) -> Result<u32, Error> {
        let mut request = rdma_ucm_create_id { uid, ps: port_space, qp_type, ..Default::default() };
        let answer: rdma_ucm_create_id_resp =
            self.ask("rdma_create_id", RDMA_USER_CM_CMD_CREATE_ID, &mut request)?;
        Ok(answer.id)
    }

    /// Destroys an id, and its connection, if any.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_destroy_id")]
    pub fn destroy_id(&self, id: u32) -> Result<(), Error> {
        let mut request = rdma_ucm_destroy_id { id, ..Default::default() };
        let _: rdma_ucm_destroy_id_resp =
            self.ask("rdma_destroy_id", RDMA_USER_CM_CMD_DESTROY_ID, &mut request)?;
        Ok(())
    }

    /// Moves an id of the channel with the file `from` to this one.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate_id(&self, id: u32, from: &Self) -> Result<(), Error> {
        use std::os::fd::AsRawFd;
        let fd = from.door.file().as_raw_fd() as u32;
        let mut request = rdma_ucm_migrate_id { id, fd, ..Default::default() };
        let _: rdma_ucm_migrate_resp =
            self.ask("rdma_migrate_id", RDMA_USER_CM_CMD_MIGRATE_ID, &mut request)?;
        Ok(())
    }

    /// Binds an id to a local address.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EADDRINUSE`, `EADDRNOTAVAIL`, `ENODEV` for an address whose interface
    /// has no RDMA device, `EACCES` for a port below 1024.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, id: u32, addr: &SockAddr) -> Result<(), Error> {
        let addr_size = addr.len;
        let mut request = rdma_ucm_bind { id, addr_size, addr: addr.bytes, ..Default::default() };
        self.tell("rdma_bind_addr", RDMA_USER_CM_CMD_BIND, &mut request)
    }

    /// Starts to resolve the device and the interface for `to`. An event reports the result.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENETUNREACH` or `EHOSTUNREACH` without a route.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        id: u32,
        from: &SockAddr,
        to: &SockAddr,
        timeout_ms: u32,
    ) -> Result<(), Error> {
        let mut request = rdma_ucm_resolve_addr {
            id,
            timeout_ms,
            src_size: from.len,
            dst_size: to.len,
            src_addr: from.bytes,
            dst_addr: to.bytes,
            ..Default::default()
        };
        self.tell("rdma_resolve_addr", RDMA_USER_CM_CMD_RESOLVE_ADDR, &mut request)
    }

    /// Starts to resolve the path. An event reports the result.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` before the address was resolved, and for a timeout of 0.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, id: u32, timeout_ms: u32) -> Result<(), Error> {
        let mut request = rdma_ucm_resolve_route { id, timeout_ms };
        self.tell("rdma_resolve_route", RDMA_USER_CM_CMD_RESOLVE_ROUTE, &mut request)
    }

    /// Device, port and addresses of an id.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    pub fn query_addr(&self, id: u32) -> Result<rdma_ucm_query_addr_resp, Error> {
        let mut request =
            rdma_ucm_query { id, option: RDMA_USER_CM_QUERY_ADDR, ..Default::default() };
        self.ask("rdma_query_addr", RDMA_USER_CM_CMD_QUERY, &mut request)
    }

    /// [`query_addr`](Self::query_addr), with InfiniBand addresses (`struct sockaddr_ib`) of the
    /// ports, whatever family the id's addresses have.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    pub fn query_gid(&self, id: u32) -> Result<rdma_ucm_query_addr_resp, Error> {
        let mut request =
            rdma_ucm_query { id, option: RDMA_USER_CM_QUERY_GID, ..Default::default() };
        self.ask("rdma_query_gid", RDMA_USER_CM_CMD_QUERY, &mut request)
    }

    /// The paths of an id, each a `struct ib_path_rec_data`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    pub fn query_path(&self, id: u32) -> Result<Vec<[u8; PATH_LEN]>, Error> {
        let mut request =
            rdma_ucm_query { id, option: RDMA_USER_CM_QUERY_PATH, ..Default::default() };
        let mut answer = [0; size_of::<rdma_ucm_query_path_resp>() + PATH_LEN * PATHS];
        let (number, request) = (RDMA_USER_CM_CMD_QUERY, request.as_mut_bytes());
        self.send("rdma_query_path", number, request, Some(&mut answer), None)?;
        let (head, paths) = answer.split_at(size_of::<rdma_ucm_query_path_resp>());
        let count =
            rdma_ucm_query_path_resp::read_from_bytes(head).map_or(0, |head| head.num_paths);
        Ok(paths.as_chunks().0.iter().copied().take(count as usize).collect())
    }

    /// The attributes that a queue pair of this id needs for `state` (`IB_QPS_*`).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` before the id has a device, or the peer's response.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn init_qp_attr(&self, id: u32, state: u32) -> Result<ib_uverbs_qp_attr, Error> {
        let mut request = rdma_ucm_init_qp_attr { id, qp_state: state, ..Default::default() };
        self.ask("rdma_init_qp_attr", RDMA_USER_CM_CMD_INIT_QP_ATTR, &mut request)
    }

    /// Requests a connection from the peer. Events report the result.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` before the route was resolved, and for private data that does
    /// not fit the message.
    #[doc(alias = "rdma_connect")]
    pub fn connect(
        &self,
        id: u32,
        param: rdma_ucm_conn_param,
        ece: rdma_ucm_ece,
    ) -> Result<(), Error> {
        let mut request = rdma_ucm_connect { conn_param: param, id, ece, ..Default::default() };
        self.tell("rdma_connect", RDMA_USER_CM_CMD_CONNECT, &mut request)
    }

    /// Listens for connection requests. A backlog of 0 selects the system's default.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, id: u32, backlog: i32) -> Result<(), Error> {
        let mut request = rdma_ucm_listen { id, backlog };
        self.tell("rdma_listen", RDMA_USER_CM_CMD_LISTEN, &mut request)
    }

    /// Accepts a request, with `param` and the negotiated vendor options, or the peer's reply,
    /// without parameters. Later events carry `uid`.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_accept")]
    pub fn accept(
        &self,
        id: u32,
        uid: u64,
        param: Option<(rdma_ucm_conn_param, rdma_ucm_ece)>,
    ) -> Result<(), Error> {
        let (conn_param, ece) = param.unwrap_or_default();
        let mut request = rdma_ucm_accept { uid, conn_param, id, ece, ..Default::default() };
        self.tell("rdma_accept", RDMA_USER_CM_CMD_ACCEPT, &mut request)
    }

    /// Rejects a request, with private data for the requester. A reason of 0 means that the program
    /// rejected it.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for private data that exceeds the command's room; [`Error::Kernel`].
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, id: u32, reason: u8, private_data: &[u8]) -> Result<(), Error> {
        let mut request = rdma_ucm_reject { id, reason, ..Default::default() };
        request.private_data_len =
            put_private_data("rdma_reject", &mut request.private_data, private_data)?;
        self.tell("rdma_reject", RDMA_USER_CM_CMD_REJECT, &mut request)
    }

    /// Disconnects; both sides get an event.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self, id: u32) -> Result<(), Error> {
        self.tell("rdma_disconnect", RDMA_USER_CM_CMD_DISCONNECT, &mut rdma_ucm_disconnect { id })
    }

    /// Tells the connection manager of a queue pair's asynchronous event (`IB_EVENT_*`).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EISCONN` if it is already connected.
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, id: u32, event: u32) -> Result<(), Error> {
        self.tell("rdma_notify", RDMA_USER_CM_CMD_NOTIFY, &mut rdma_ucm_notify { id, event })
    }

    /// Sets an option (`RDMA_OPTION_*`).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_set_option")]
    pub fn set_option(&self, id: u32, level: u32, name: u32, value: &[u8]) -> Result<(), Error> {
        let verb = "rdma_set_option";
        let optlen = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let mut request =
            rdma_ucm_set_option { id, level, optname: name, optlen, ..Default::default() };
        let number = RDMA_USER_CM_CMD_SET_OPTION;
        self.send(verb, number, request.as_mut_bytes(), None, Some(value))
    }

    /// Starts to join a multicast group. An event that carries `uid` reports the result. Returns
    /// the number of the membership.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(
        &self,
        id: u32,
        uid: u64,
        group: &SockAddr,
        flags: u16,
    ) -> Result<u32, Error> {
        let mut request = rdma_ucm_join_mcast {
            uid,
            id,
            addr_size: group.len,
            join_flags: flags,
            addr: group.bytes,
            ..Default::default()
        };
        let answer: rdma_ucm_create_id_resp =
            self.ask("rdma_join_multicast", RDMA_USER_CM_CMD_JOIN_MCAST, &mut request)?;
        Ok(answer.id)
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, membership: u32) -> Result<(), Error> {
        let mut request = rdma_ucm_destroy_id { id: membership, ..Default::default() };
        let _: rdma_ucm_destroy_id_resp =
            self.ask("rdma_leave_multicast", RDMA_USER_CM_CMD_LEAVE_MCAST, &mut request)?;
        Ok(())
    }

    /// Starts to look up a service of InfiniBand's subnet administration. An event reports the
    /// result. Since Linux 6.17.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on older kernels, and where the device's port has no subnet
    /// administration (RoCE, iWARP); [`Error::Kernel`]: `EINVAL` for an id that is not bound to a
    /// device, or has resolved an address before.
    #[doc(alias = "rdma_resolve_addrinfo")]
    pub fn resolve_ib_service(&self, id: u32, service: &rdma_ucm_ib_service) -> Result<(), Error> {
        let verb = "rdma_resolve_addrinfo";
        let ask = |id| {
            let mut request = rdma_ucm_resolve_ib_service { id, ibs: *service, reserved: 0 };
            self.tell(verb, RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE, &mut request)
        };
        ask(id).map_err(|error| match error.errno() {
            Some(Errno::EOPNOTSUPP) => {
                let what = "InfiniBand service lookup on this port".to_owned();
                Error::Unsupported { verb, what }
            }
            // A kernel that knows the command looks for the id first (`ucma_write`).
            Some(Errno::EINVAL) if refused_with(ask(NOBODY), Errno::EINVAL) => too_old(verb),
            _ => error,
        })
    }

    /// Service records of a lookup, each a `struct ib_user_service_rec`. Since Linux 6.17.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on older kernels; [`Error::Kernel`]: `ENODATA` if none was found.
    pub fn query_ib_service(&self, id: u32) -> Result<Vec<[u8; SERVICE_LEN]>, Error> {
        const HEAD: usize = size_of::<rdma_ucm_query_ib_service_resp>();
        let verb = "rdma_query_addrinfo";
        let mut room = SERVICES;
        loop {
            let option = RDMA_USER_CM_QUERY_IB_SERVICE;
            let mut request = rdma_ucm_query { id, option, ..Default::default() };
            let mut answer = vec![0; HEAD + SERVICE_LEN * room];
            let (number, request) = (RDMA_USER_CM_CMD_QUERY, request.as_mut_bytes());
            let asked = self.send(verb, number, request, Some(&mut answer), None);
            asked.map_err(|error| match error.errno() {
                Some(Errno::ENOSYS) => too_old(verb),
                _ => error,
            })?;
            let (head, records) = answer.split_at(HEAD);
            let head = rdma_ucm_query_ib_service_resp::read_from_bytes(head);
            let count = head.map_or(0, |head| head.num_service_recs as usize);
            if count <= room || room >= MOST_SERVICES {
                return Ok(records.as_chunks().0.iter().copied().take(count).collect());
            }
            room = count.min(MOST_SERVICES);
        }
    }

    /// Queues a program's event behind pending events of an id: `RDMA_CM_EVENT_USER`, or
    /// `RDMA_CM_EVENT_INTERNAL`. Since Linux 6.17.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on older kernels; [`Error::Kernel`]: `EINVAL` for other events, and
    /// for the id of a request that is not accepted yet.
    #[doc(alias = "rdma_write_cm_event")]
    pub fn write_event(&self, id: u32, event: u32, status: i32, arg: u64) -> Result<(), Error> {
        let verb = "rdma_write_cm_event";
        let write = |id| {
            let status = status as u32;
            let mut request = rdma_ucm_write_cm_event { id, event, status, ..Default::default() };
            request.set_arg(arg);
            self.tell(verb, RDMA_USER_CM_CMD_WRITE_CM_EVENT, &mut request)
        };
        write(id).map_err(|error| match error.errno() {
            Some(Errno::EINVAL) if refused_with(write(NOBODY), Errno::EINVAL) => too_old(verb),
            _ => error,
        })
    }

    /// Returns the next event, if one is pending.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "rdma_get_cm_event")]
    pub fn next_event(&self) -> Result<Option<rdma_ucm_event_resp>, Error> {
        let mut request = rdma_ucm_get_event::default();
        match self.ask("rdma_get_cm_event", RDMA_USER_CM_CMD_GET_EVENT, &mut request) {
            Ok(event) => Ok(Some(event)),
            Err(Error::Kernel { errno: Errno::EAGAIN, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// An id that the kernel will not assign soon: it counts from 0.
const NOBODY: u32 = u32::MAX;

fn refused_with<T>(result: Result<T, Error>, errno: Errno) -> bool {
    result.is_err_and(|error| error.errno() == Some(errno))
}

/// Error for a kernel without the command.
fn too_old(verb: &'static str) -> Error {
    Error::Unsupported { verb, what: "kernels before Linux 6.17".to_owned() }
}

/// Copies private data into a command, and returns its length.
///
/// # Errors
///
/// [`Error::Limit`] for more than 255 bytes: the length has one byte.
pub fn put_private_data(
    verb: &'static str,
    room: &mut [u8; 256],
    data: &[u8],
) -> Result<u8, Error> {
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    Error::limit(verb, "length of the private data", len, 255)?;
    room[..data.len()].copy_from_slice(data);
    Ok(data.len() as u8)
}
