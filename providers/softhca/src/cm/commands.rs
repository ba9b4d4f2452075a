//! The commands of a door, with the checks and errnos of Linux's `ucma.c` and `cma.c`.

use std::net::{IpAddr, SocketAddr};

use uverbs_core::Errno;
use uverbs_core::doors::cm::CmCommand;
use uverbs_kernel_abi::event::IB_EVENT_COMM_EST;
use uverbs_kernel_abi::qp as abi;
use uverbs_kernel_abi::rdma_cm::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::header::{self, IpHeader, gid, ip};
use super::id::{Connection, Id, IdNumber, Space, State};
use super::incoming::no;
use super::mad::{Ids, Message, Rep, Req, SidrRep, SidrReq, room};
use super::manager::{Manager, Membership, Param, UDP_QKEY, event};
use super::queue::Queued;
use crate::wire::Address;

/// How long acknowledgements are waited for, and how long this side takes to give one, as codes
/// (`cm.c:cm_ack_timeout`): those that Linux has for rxe.
const ACK_TIMEOUT: u8 = 17;
const ACK_DELAY: u8 = 15;
/// Requests that a listener keeps unless it says otherwise (`net.rdma_ucm.max_backlog`).
const BACKLOG: usize = 1024;
/// The multicast queue pair.
const MULTICAST_QPN: u32 = 0x00ff_ffff;
/// Linux's own ENOTSUPP, which no header of user space has (`include/linux/errno.h`).
const KERNEL_ENOTSUPP: Errno = Errno::from_raw(524);
const REMOTE: u32 = 0b1110;
const REMOTE_WRITE: u32 = 0b0010;

/// The request's struct.
///
/// # Errors
///
/// `EFAULT` for one that is cut short, as where the kernel reads past a buffer.
fn read<T: FromBytes>(request: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(request).map(|(request, _)| request).map_err(|_| Errno::EFAULT)
}

/// Gives an answer.
///
/// # Errors
///
/// `ENOSPC` without room for it.
fn give<T: IntoBytes + Immutable>(room: Option<&mut [u8]>, answer: &T) -> Result<(), Errno> {
    let bytes = answer.as_bytes();
    let room = room.and_then(|room| room.get_mut(..bytes.len())).ok_or(Errno::ENOSPC)?;
    room.copy_from_slice(bytes);
    Ok(())
}

impl Manager {
    /// One command of the door `file`.
    ///
    /// # Errors
    ///
    /// Those of `ucma_write` and of its handlers.
    pub(crate) fn command(&mut self, file: u64, command: CmCommand<'_>) -> Result<(), Errno> {
        let CmCommand { number, request, answer, value } = command;
        let request = &*request;
        let room = answer.map(|(_, room)| room);
        match number {
            RDMA_USER_CM_CMD_CREATE_ID => self.create_id(file, &read(request)?, room),
            RDMA_USER_CM_CMD_DESTROY_ID => self.destroy_id(file, &read(request)?, room),
            RDMA_USER_CM_CMD_BIND => {
                let request: rdma_ucm_bind = read(request)?;
                let addr = address(&request.addr, request.addr_size)?.ok_or(Errno::EINVAL)?;
                self.bind(file, request.id, addr)
            }
            RDMA_USER_CM_CMD_RESOLVE_ADDR => self.resolve_addr(file, &read(request)?),
            RDMA_USER_CM_CMD_RESOLVE_ROUTE => self.resolve_route(file, &read(request)?),
            RDMA_USER_CM_CMD_QUERY => self.query(file, &read(request)?, room),
            RDMA_USER_CM_CMD_CONNECT => self.connect(file, &read(request)?),
            RDMA_USER_CM_CMD_LISTEN => self.listen(file, &read(request)?),
            RDMA_USER_CM_CMD_ACCEPT => self.accept(file, &read(request)?),
            RDMA_USER_CM_CMD_REJECT => self.reject(file, &read(request)?),
            RDMA_USER_CM_CMD_DISCONNECT => {
                let request: rdma_ucm_disconnect = read(request)?;
                self.end_connection(file, request.id)
            }
            RDMA_USER_CM_CMD_INIT_QP_ATTR => self.init_qp_attr(file, &read(request)?, room),
            RDMA_USER_CM_CMD_GET_EVENT => self.get_event(file, room),
            RDMA_USER_CM_CMD_SET_OPTION => {
                let value = value.map_or(&[][..], |(_, value)| value);
                self.set_option(file, &read(request)?, value)
            }
            RDMA_USER_CM_CMD_NOTIFY => self.notify(file, &read(request)?),
            RDMA_USER_CM_CMD_MIGRATE_ID => self.migrate(file, &read(request)?, room),
            RDMA_USER_CM_CMD_JOIN_MCAST => self.join(file, &read(request)?, room),
            RDMA_USER_CM_CMD_LEAVE_MCAST => self.leave(file, &read(request)?, room),
            // The forms of old kernels, which nobody asks where `BIND` works.
            RDMA_USER_CM_CMD_BIND_IP
            | RDMA_USER_CM_CMD_RESOLVE_IP
            | RDMA_USER_CM_CMD_QUERY_ROUTE
            | RDMA_USER_CM_CMD_JOIN_IP_MCAST
            | RDMA_USER_CM_CMD_GET_OPTION => Err(Errno::ENOSYS),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The id with this number, which the door must own (`ucma_get_ctx`).
    fn of(&mut self, file: u64, number: IdNumber) -> Result<&mut Id, Errno> {
        let gone = self.gone;
        let id = self.ids.get_mut(&number).ok_or(Errno::ENOENT)?;
        if id.file != file {
            return Err(Errno::EINVAL);
        }
        if gone && id.state == State::Over { Err(Errno::ENXIO) } else { Ok(id) }
    }

    fn create_id(
        &mut self,
        file: u64,
        request: &rdma_ucm_create_id,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let space = match request.ps {
            RDMA_PS_TCP => Space::Tcp,
            RDMA_PS_UDP => Space::Udp,
            _ => return Err(Errno::EINVAL),
        };
        if self.gone {
            return Err(Errno::ENODEV);
        }
        let number = self.insert(Id::new(file, request.uid, space));
        let given = give(room, &rdma_ucm_create_id_resp { id: number });
        if given.is_err() {
            self.ids.remove(&number);
        }
        given
    }

    fn destroy_id(
        &mut self,
        file: u64,
        request: &rdma_ucm_destroy_id,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let id = self.ids.get(&request.id).ok_or(Errno::ENOENT)?;
        if id.file != file {
            return Err(Errno::EINVAL);
        }
        give(room, &rdma_ucm_destroy_id_resp::default())?;
        self.destroy(request.id);
        Ok(())
    }

    fn bind(&mut self, file: u64, number: IdNumber, addr: SocketAddr) -> Result<(), Errno> {
        let (is_known, any) = (self.own_gid(addr.ip()).is_some(), self.is_any(addr.ip()));
        let id = self.of(file, number)?;
        if id.state != State::Idle {
            return Err(Errno::EINVAL);
        }
        if !any && !is_known {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let (space, reuse) = (id.space, id.reuse);
        let addr = self.claim_port(number, space, addr, reuse)?;
        let id = self.of(file, number)?;
        (id.local, id.state) = (Some(addr), State::Bound);
        Ok(())
    }

    fn resolve_addr(&mut self, file: u64, request: &rdma_ucm_resolve_addr) -> Result<(), Errno> {
        let number = request.id;
        let from = address(&request.src_addr, request.src_size)?;
        let mut to = address(&request.dst_addr, request.dst_size)?.ok_or(Errno::EINVAL)?;
        if from.is_some_and(|from| from.is_ipv4() != to.is_ipv4()) {
            return Err(Errno::EINVAL);
        }
        let state = self.of(file, number)?.state;
        match (state, from) {
            (State::Idle, Some(from)) => self.bind(file, number, from)?,
            (State::Idle | State::Bound, _) => {}
            _ => return Err(Errno::EINVAL),
        }
        let source = self.source_for(to.ip()).ok_or(Errno::ENETUNREACH)?;
        // A loopback address is one's own.
        if self.is_any(to.ip()) {
            to.set_ip(source);
        }
        let id = self.of(file, number)?;
        let mut local = id.local.unwrap_or(SocketAddr::new(source, 0));
        let (space, reuse) = (id.space, id.reuse);
        if self.is_any(local.ip()) {
            local.set_ip(source);
        }
        let local = self.claim_port(number, space, local, reuse)?;
        let id = self.of(file, number)?;
        (id.local, id.peer, id.state) = (Some(local), Some(to), State::AddressResolved);
        let lid = 0;
        id.connection.here = Address { gid: gid(local.ip()), lid };
        id.connection.there = Address { gid: gid(to.ip()), lid };
        self.tell(number, event::ADDR_RESOLVED, 0, Param::None);
        Ok(())
    }

    fn resolve_route(&mut self, file: u64, request: &rdma_ucm_resolve_route) -> Result<(), Errno> {
        let id = self.of(file, request.id)?;
        if request.timeout_ms == 0 || id.state != State::AddressResolved {
            return Err(Errno::EINVAL);
        }
        id.state = State::RouteResolved;
        self.tell(request.id, event::ROUTE_RESOLVED, 0, Param::None);
        Ok(())
    }

    fn query(
        &mut self,
        file: u64,
        request: &rdma_ucm_query,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let guid = self.host.guid;
        self.of(file, request.id)?;
        let id = self.ids.get(&request.id).ok_or(Errno::ENOENT)?;
        if request.option != RDMA_USER_CM_QUERY_ADDR {
            return Err(Errno::ENOSYS);
        }
        let mut answer = rdma_ucm_query_addr_resp::default();
        answer.src_size = put_address(id.local, &mut answer.src_addr);
        answer.dst_size = put_address(id.peer, &mut answer.dst_addr);
        let has_device = id.connection.here.gid != [0; 16]
            || id.local.is_some_and(|local| !self.is_any(local.ip()));
        if has_device {
            (answer.node_guid, answer.port_num, answer.pkey) = (guid.to_be(), 1, 0xffff);
        }
        give(room, &answer)
    }

    fn listen(&mut self, file: u64, request: &rdma_ucm_listen) -> Result<(), Errno> {
        let id = self.of(file, request.id)?;
        if id.state == State::Idle {
            let any = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
            self.bind(file, request.id, any)?;
        }
        let id = self.of(file, request.id)?;
        if id.state != State::Bound {
            return Err(Errno::EINVAL);
        }
        // Who listens shares its address with nobody.
        let (space, local) = (id.space, id.local.ok_or(Errno::EINVAL)?);
        self.claim_port(request.id, space, local, false)?;
        let id = self.of(file, request.id)?;
        id.backlog = usize::try_from(request.backlog).map_or(BACKLOG, |backlog| match backlog {
            0 => BACKLOG,
            backlog => backlog.min(BACKLOG),
        });
        id.state = State::Listening;
        Ok(())
    }

    fn connect(&mut self, file: u64, request: &rdma_ucm_connect) -> Result<(), Errno> {
        let number = request.id;
        let param = request.conn_param;
        let (guid, mtu) = (self.host.guid, self.host.mtu);
        let (local_id, psn) = (self.random(), self.random() & 0xff_ffff);
        let id = self.of(file, number)?;
        if id.state != State::RouteResolved || param.valid == 0 {
            return Err(Errno::EINVAL);
        }
        let (Some(local), Some(peer)) = (id.local, id.peer) else { return Err(Errno::EINVAL) };
        let ip_header = IpHeader { from: local, to: peer.ip() };
        let data = &param.private_data[..usize::from(param.private_data_len)];
        let service_id = (id.space as u64) << 16 | u64::from(peer.port());
        let message = match id.space {
            Space::Tcp => {
                let mut private = [0; room::REQ];
                ip_header.write(&mut private);
                put(&mut private[header::LEN..], data)?;
                Message::Req(Req {
                    local_id,
                    service_id,
                    ca_guid: guid,
                    qpn: param.qp_num & 0xff_ffff,
                    responder_resources: param.responder_resources,
                    initiator_depth: param.initiator_depth,
                    transport: 0,
                    flow_control: param.flow_control != 0,
                    psn,
                    retry: param.retry_count.min(7),
                    rnr_retry: param.rnr_retry_count.min(7),
                    mtu,
                    srq: param.srq != 0,
                    sgid: id.connection.here.gid,
                    dgid: id.connection.there.gid,
                    traffic_class: id.tos,
                    hop_limit: 64,
                    ack_timeout: id.ack_timeout.unwrap_or(ACK_TIMEOUT),
                    private,
                })
            }
            Space::Udp => {
                let mut private = [0; room::SIDR_REQ];
                ip_header.write(&mut private);
                put(&mut private[header::LEN..], data)?;
                Message::SidrReq(SidrReq { request_id: local_id, service_id, private })
            }
        };
        let connection = &mut id.connection;
        *connection = Connection {
            local_id,
            service_id,
            tid: u64::from(number) << 32 | u64::from(local_id),
            here: connection.here,
            there: connection.there,
            psn,
            qpn: param.qp_num & 0xff_ffff,
            retry: param.retry_count.min(7),
            rnr_retry: param.rnr_retry_count.min(7),
            mtu,
            ..Connection::default()
        };
        id.state = State::ReqSent;
        self.send_of(number, message, true);
        Ok(())
    }

    fn accept(&mut self, file: u64, request: &rdma_ucm_accept) -> Result<(), Errno> {
        let (number, param) = (request.id, request.conn_param);
        let guid = self.host.guid;
        let id = self.of(file, number)?;
        let ids = Ids { local: id.connection.local_id, remote: id.connection.remote_id };
        if param.valid == 0 {
            // The side that asked has its answer.
            if id.state != State::RepReceived {
                return Err(Errno::EINVAL);
            }
            id.state = State::Established;
            self.send_of(number, Message::Rtu(ids), false);
            return Ok(());
        }
        if id.state != State::ReqReceived {
            return Err(Errno::EINVAL);
        }
        let data = &param.private_data[..usize::from(param.private_data_len)];
        let message = match id.space {
            Space::Tcp => {
                let mut private = [0; room::REP];
                put(&mut private, data)?;
                Message::Rep(Rep {
                    ids,
                    qpn: param.qp_num & 0xff_ffff,
                    psn: id.connection.psn,
                    responder_resources: param.responder_resources,
                    initiator_depth: param.initiator_depth,
                    ack_delay: ACK_DELAY,
                    flow_control: param.flow_control != 0,
                    rnr_retry: param.rnr_retry_count.min(7),
                    srq: param.srq != 0,
                    ca_guid: guid,
                    private,
                })
            }
            Space::Udp => {
                let mut answer = SidrRep::new(id.connection.remote_id, id.connection.service_id);
                answer.qpn = param.qp_num & 0xff_ffff;
                if param.qkey != 0 {
                    answer.qkey = param.qkey;
                }
                put(&mut answer.private, data)?;
                Message::SidrRep(answer)
            }
        };
        id.uid = request.uid;
        id.connection.qpn = param.qp_num & 0xff_ffff;
        match id.space {
            Space::Tcp => {
                id.state = State::RepSent;
                self.send_of(number, message, true);
            }
            // Nothing answers this: the peer asks again if it doesn't arrive.
            Space::Udp => {
                id.state = State::Over;
                self.send_of(number, message, false);
            }
        }
        Ok(())
    }

    fn reject(&mut self, file: u64, request: &rdma_ucm_reject) -> Result<(), Errno> {
        let data = &request.private_data[..usize::from(request.private_data_len)];
        if data.len() > room::REJ || !matches!(request.reason, 0 | 28 | 35) {
            return Err(Errno::EINVAL);
        }
        let id = self.of(file, request.id)?;
        if !matches!(id.state, State::ReqReceived | State::RepReceived) {
            return Err(Errno::EINVAL);
        }
        let message = no(id, data);
        id.state = State::Over;
        self.send_of(request.id, message, false);
        Ok(())
    }

    fn end_connection(&mut self, file: u64, number: IdNumber) -> Result<(), Errno> {
        let id = self.of(file, number)?;
        let connection = &id.connection;
        let ids = Ids { local: connection.local_id, remote: connection.remote_id };
        match id.state {
            State::Established => {
                let remote_qpn = connection.remote_qpn;
                id.state = State::DreqSent;
                self.send_of(number, Message::Dreq { ids, remote_qpn }, true);
                Ok(())
            }
            State::DreqReceived => {
                self.send_of(number, Message::Drep(ids), false);
                self.wait_out(number);
                Ok(())
            }
            state if (state as u8) < State::ReqSent as u8 => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    fn init_qp_attr(
        &mut self,
        file: u64,
        request: &rdma_ucm_init_qp_attr,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let number = request.id;
        let id = self.of(file, number)?;
        let state = u8::try_from(request.qp_state).map_err(|_| Errno::EINVAL)?;
        if state > abi::IB_QPS_ERR || id.connection.here.gid == [0; 16] {
            return Err(Errno::EINVAL);
        }
        let mut answer = abi::ib_uverbs_qp_attr { port_num: 1, ..Default::default() };
        answer.qp_state = state.into();
        let id = self.ids.get(&number).ok_or(Errno::ENOENT)?;
        let connection = &id.connection;
        if id.space == Space::Udp {
            answer.qp_attr_mask =
                abi::IB_QP_STATE | abi::IB_QP_PKEY_INDEX | abi::IB_QP_PORT | abi::IB_QP_QKEY;
            answer.qkey = UDP_QKEY;
            return give(room, &answer);
        }
        let is_known = !matches!(
            id.state,
            State::Idle | State::Bound | State::AddressResolved | State::RouteResolved
        );
        match state {
            abi::IB_QPS_INIT => {
                answer.qp_attr_mask = abi::IB_QP_STATE
                    | abi::IB_QP_PKEY_INDEX
                    | abi::IB_QP_PORT
                    | abi::IB_QP_ACCESS_FLAGS;
                answer.qp_access_flags = match (is_known, connection.responder_resources) {
                    (false, _) => 0,
                    (true, 0) => REMOTE_WRITE,
                    (true, _) => REMOTE,
                };
            }
            abi::IB_QPS_RTR if connection.remote_id != 0 => {
                answer.qp_attr_mask = abi::IB_QP_STATE
                    | abi::IB_QP_AV
                    | abi::IB_QP_PATH_MTU
                    | abi::IB_QP_DEST_QPN
                    | abi::IB_QP_RQ_PSN
                    | abi::IB_QP_MAX_DEST_RD_ATOMIC
                    | abi::IB_QP_MIN_RNR_TIMER;
                answer.ah_attr = self.path_of(id);
                answer.path_mtu = connection.mtu.into();
                answer.dest_qp_num = connection.remote_qpn;
                answer.rq_psn = connection.psn;
                answer.max_dest_rd_atomic = connection.responder_resources;
            }
            abi::IB_QPS_RTS if connection.remote_id != 0 => {
                answer.qp_attr_mask = abi::IB_QP_STATE
                    | abi::IB_QP_SQ_PSN
                    | abi::IB_QP_RETRY_CNT
                    | abi::IB_QP_RNR_RETRY
                    | abi::IB_QP_MAX_QP_RD_ATOMIC
                    | abi::IB_QP_TIMEOUT;
                answer.sq_psn = connection.remote_psn;
                answer.retry_cnt = connection.retry;
                answer.rnr_retry = connection.rnr_retry;
                answer.max_rd_atomic = connection.initiator_depth;
                answer.timeout = id.ack_timeout.unwrap_or(ACK_TIMEOUT);
            }
            _ => return Err(Errno::EINVAL),
        }
        give(room, &answer)
    }

    fn get_event(&mut self, file: u64, room: Option<&mut [u8]>) -> Result<(), Errno> {
        let queue = self.files.get_mut(&file).ok_or(Errno::EBADF)?;
        if room.as_ref().is_none_or(|room| room.len() < size_of::<rdma_ucm_event_resp>()) {
            return Err(Errno::ENOSPC);
        }
        let Queued { event, .. } = queue.pop().ok_or(Errno::EAGAIN)?;
        give(room, &event)
    }

    fn set_option(
        &mut self,
        file: u64,
        request: &rdma_ucm_set_option,
        value: &[u8],
    ) -> Result<(), Errno> {
        let id = self.of(file, request.id)?;
        let int = || <[u8; 4]>::try_from(value).map(i32::from_ne_bytes).map_err(|_| Errno::EINVAL);
        let byte = || match value {
            &[byte] => Ok(byte),
            _ => Err(Errno::EINVAL),
        };
        match (request.level, request.optname) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => id.tos = byte()?,
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
                let reuse = int()? != 0;
                let allowed =
                    if reuse { id.state != State::Listening } else { id.state == State::Idle };
                if !allowed {
                    return Err(Errno::EINVAL);
                }
                id.reuse = reuse;
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
                int()?;
                if !matches!(id.state, State::Idle | State::Bound) {
                    return Err(Errno::EINVAL);
                }
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) if id.space == Space::Tcp => {
                id.ack_timeout = Some(byte()? & 31);
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => return Err(Errno::EINVAL),
            _ => return Err(Errno::ENOSYS),
        }
        Ok(())
    }

    fn notify(&mut self, file: u64, request: &rdma_ucm_notify) -> Result<(), Errno> {
        self.of(file, request.id)?;
        match request.event {
            IB_EVENT_COMM_EST if self.establish(request.id) => Ok(()),
            IB_EVENT_COMM_EST => Err(Errno::EISCONN),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The command comes to the new door, and names the old one by the file that tells of its
    /// events.
    fn migrate(
        &mut self,
        to: u64,
        request: &rdma_ucm_migrate_id,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let from = self.file_of_bell(request.fd as i32).ok_or(Errno::EINVAL)?;
        self.of(from, request.id)?.file = to;
        let unread = self.files.get_mut(&from).map(|queue| queue.take_of(request.id));
        for queued in unread.into_iter().flatten() {
            if let Some(request) = queued.request.and_then(|number| self.ids.get_mut(&number)) {
                request.file = to;
            }
            if let Some(queue) = self.files.get_mut(&to) {
                queue.push(queued);
            }
        }
        give(room, &rdma_ucm_migrate_resp::default())
    }

    fn join(
        &mut self,
        file: u64,
        request: &rdma_ucm_join_mcast,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let group = address(&request.addr, request.addr_size)?.ok_or(Errno::EINVAL)?;
        let id = self.of(file, request.id)?;
        let is_bound = matches!(id.state, State::Bound | State::AddressResolved);
        if id.space != Space::Udp || !is_bound || request.join_flags > 1 {
            return Err(Errno::EINVAL);
        }
        let IpAddr::V4(_) = group.ip() else { return Err(KERNEL_ENOTSUPP) };
        if group.ip().is_unspecified() {
            return Err(Errno::EINVAL);
        }
        let (local, tos) = (id.local.ok_or(Errno::EINVAL)?, id.tos);
        let source =
            if self.is_any(local.ip()) { self.source_for(group.ip()) } else { Some(local.ip()) };
        let (index, _) = source.and_then(|ip| self.own_gid(ip)).ok_or(Errno::ENODEV)?;
        let number = self.next_number();
        give(room, &rdma_ucm_create_id_resp { id: number })?;
        self.memberships.insert(number, Membership { id: request.id });
        let mut event = rdma_ucm_event_resp {
            uid: request.uid,
            id: number,
            event: event::MULTICAST_JOIN,
            ..Default::default()
        };
        event.set_ud(rdma_ucm_ud_param {
            qp_num: MULTICAST_QPN,
            qkey: UDP_QKEY,
            ah_attr: self.path(index, gid(group.ip()), tos),
            ..Default::default()
        });
        if let Some(queue) = self.files.get_mut(&file) {
            queue.push(Queued { owner: request.id, request: None, event });
        }
        Ok(())
    }

    fn leave(
        &mut self,
        file: u64,
        request: &rdma_ucm_destroy_id,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let membership = *self.memberships.get(&request.id).ok_or(Errno::ENOENT)?;
        self.of(file, membership.id)?;
        self.memberships.remove(&request.id);
        give(room, &rdma_ucm_destroy_id_resp::default())
    }
}

/// The address of a command; `None` for none at all.
///
/// # Errors
///
/// `EAFNOSUPPORT` for another family, `EINVAL` for a size that isn't its own.
fn address(bytes: &[u8; 128], size: u16) -> Result<Option<SocketAddr>, Errno> {
    if size == 0 {
        return Ok(None);
    }
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let (mut raw, len) = ([0; 16], if family == libc::AF_INET { 16 } else { 28 });
    let ip = match family {
        libc::AF_INET => {
            raw[10..12].fill(0xff);
            raw[12..].copy_from_slice(&bytes[4..8]);
            ip(raw)
        }
        libc::AF_INET6 => {
            raw.copy_from_slice(&bytes[8..24]);
            IpAddr::V6(raw.into())
        }
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    if size == len { Ok(Some(SocketAddr::new(ip, port))) } else { Err(Errno::EINVAL) }
}

/// Puts an address where an answer has it, and gives its length.
fn put_address(addr: Option<SocketAddr>, room: &mut [u8; 128]) -> u16 {
    let Some(addr) = addr else { return 0 };
    room[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let (family, len) = match addr.ip() {
        IpAddr::V4(ip) => {
            room[4..8].copy_from_slice(&ip.octets());
            (libc::AF_INET, 16)
        }
        IpAddr::V6(ip) => {
            room[8..24].copy_from_slice(&ip.octets());
            (libc::AF_INET6, 28)
        }
    };
    room[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    len
}

/// Puts private data into a message's room.
///
/// # Errors
///
/// `EINVAL` for more than there is room for.
fn put(room: &mut [u8], data: &[u8]) -> Result<(), Errno> {
    room.get_mut(..data.len()).ok_or(Errno::EINVAL)?.copy_from_slice(data);
    Ok(())
}
