//! Commands of a door, with the checks and errnos of Linux's `ucma.c` and `cma.c`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_core::doors::cm::CmCommand;
use uverbs_kernel_abi::qp::{
    IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UD, IB_UVERBS_QPT_XRC_INI, IB_UVERBS_QPT_XRC_TGT,
};
use uverbs_kernel_abi::rdma_cm::*;

use super::fields::{address, give, put_address, put_gid, read};
use super::header::gid;
use super::id::{Id, IdNumber, Service, State};
use super::manager::{Manager, Param, event};
use super::queue::Queued;
use crate::backend::address::Address;

/// Default backlog of a listener (`net.rdma_ucm.max_backlog`).
const BACKLOG: usize = 1024;
const UNSPECIFIED_4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const UNSPECIFIED_6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
/// Errno of the IPoIB port space: no interface here has IPoIB (kernel `cma.c`,
/// `cma_acquire_dev_by_src_ip`).
const NO_IPOIB: Errno = Errno::EINVAL;

impl Manager {
    /// Executes one command of the door `file`.
    ///
    /// # Errors
    ///
    /// The errors of `ucma_write` and of its handlers.
    pub(crate) fn command(&mut self, file: u64, command: CmCommand<'_>) -> Result<(), Errno> {
        let result = self.carry_out(file, command);
        self.ids.settle();
        result
    }

    fn carry_out(&mut self, file: u64, command: CmCommand<'_>) -> Result<(), Errno> {
        let CmCommand { number, request, answer: room, value } = command;
        let request = &*request;
        match number {
            RDMA_USER_CM_CMD_CREATE_ID => self.create_id(file, &read(request)?, room),
            RDMA_USER_CM_CMD_DESTROY_ID => self.destroy_id(file, &read(request)?, room),
            RDMA_USER_CM_CMD_BIND => {
                let request: rdma_ucm_bind = read(request)?;
                let addr = address(&request.addr, request.addr_size)?.ok_or(Errno::EINVAL)?;
                self.bind(file, request.id, addr, None)
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
                self.set_option(file, &read(request)?, value.unwrap_or_default())
            }
            RDMA_USER_CM_CMD_NOTIFY => self.notify(file, &read(request)?),
            RDMA_USER_CM_CMD_MIGRATE_ID => self.migrate(file, &read(request)?, room),
            RDMA_USER_CM_CMD_JOIN_MCAST => self.join(file, &read(request)?, room),
            RDMA_USER_CM_CMD_LEAVE_MCAST => self.leave(file, &read(request)?, room),
            RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE => self.resolve_service(file, &read(request)?),
            RDMA_USER_CM_CMD_WRITE_CM_EVENT => self.write_event(file, &read(request)?),
            // Old forms of commands, unused by programs that know `BIND`.
            RDMA_USER_CM_CMD_BIND_IP
            | RDMA_USER_CM_CMD_RESOLVE_IP
            | RDMA_USER_CM_CMD_QUERY_ROUTE
            | RDMA_USER_CM_CMD_JOIN_IP_MCAST
            | RDMA_USER_CM_CMD_GET_OPTION => Err(Errno::ENOSYS),
            _ => Err(Errno::EINVAL),
        }
    }

    fn create_id(
        &mut self,
        file: u64,
        request: &rdma_ucm_create_id,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        // `ucma_get_qp_type`: the IB port space leaves the type to the program.
        let service = match (request.ps, request.qp_type) {
            (RDMA_PS_TCP, _) | (RDMA_PS_IB, IB_UVERBS_QPT_RC) => Service::Connections,
            (RDMA_PS_UDP | RDMA_PS_IPOIB, _) | (RDMA_PS_IB, IB_UVERBS_QPT_UD) => Service::Datagrams,
            (RDMA_PS_IB, IB_UVERBS_QPT_XRC_INI) => Service::XrcInitiator,
            (RDMA_PS_IB, IB_UVERBS_QPT_XRC_TGT) => Service::XrcTarget,
            _ => return Err(Errno::EINVAL),
        };
        if self.gone {
            return Err(Errno::ENODEV);
        }
        let number = self.insert(Id::new(file, request.uid, request.ps, service));
        let given = give(room, &rdma_ucm_create_id_resp { id: number });
        if given.is_err() {
            self.ids.remove(number);
        }
        given
    }

    fn destroy_id(
        &mut self,
        file: u64,
        request: &rdma_ucm_destroy_id,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let id = self.ids.get(request.id).ok_or(Errno::ENOENT)?;
        if id.file != file {
            return Err(Errno::EINVAL);
        }
        give(room, &rdma_ucm_destroy_id_resp { events_reported: id.told })?;
        self.destroy(request.id);
        Ok(())
    }

    /// Binds an id, for a peer if there is one (`cma.c:rdma_bind_addr_dst`).
    fn bind(
        &mut self,
        file: u64,
        number: IdNumber,
        addr: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<(), Errno> {
        let (is_known, any) = (self.own_gid(addr.ip()).is_some(), self.is_any(addr.ip()));
        let id = self.of(file, number)?;
        if id.state != State::Idle {
            return Err(Errno::EINVAL);
        }
        // The address stays if it can't be had.
        id.local = Some(addr);
        if !any && !is_known {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let (space, reuse) = (id.space, id.reuse);
        if !any && space == RDMA_PS_IPOIB {
            return Err(NO_IPOIB);
        }
        // The peer's address takes the family of the own one.
        let nobody = if addr.is_ipv4() { UNSPECIFIED_4 } else { UNSPECIFIED_6 };
        id.peer = Some(match peer {
            Some(peer) if peer.is_ipv4() == addr.is_ipv4() => peer,
            peer => SocketAddr::new(nobody, peer.map_or(0, |peer| peer.port())),
        });
        let addr = self.claim_port(number, addr, reuse)?;
        let id = self.of(file, number)?;
        (id.local, id.state) = (Some(addr), State::Bound);
        Ok(())
    }

    /// `cma.c:rdma_resolve_addr`, `resolve_prepare_src`, `addr_handler`.
    fn resolve_addr(&mut self, file: u64, request: &rdma_ucm_resolve_addr) -> Result<(), Errno> {
        let number = request.id;
        let from = address(&request.src_addr, request.src_size)?;
        let mut to = address(&request.dst_addr, request.dst_size)?.ok_or(Errno::EINVAL)?;
        let id = self.of(file, number)?;
        if id.state == State::Bound {
            id.peer = Some(to);
        } else {
            let any = if to.is_ipv4() { UNSPECIFIED_4 } else { UNSPECIFIED_6 };
            let from = from.unwrap_or(SocketAddr::new(any, 0));
            self.bind(file, number, from, Some(to))?;
        }
        let id = self.of(file, number)?;
        let mut local = id.local.ok_or(Errno::EINVAL)?;
        if local.is_ipv4() != to.is_ipv4() {
            return Err(Errno::EINVAL);
        }
        let is_ipoib = id.space == RDMA_PS_IPOIB;
        let source = self.source_for(to.ip()).ok_or(Errno::ENETUNREACH)?;
        // A loopback address means the local address.
        if self.is_any(to.ip()) {
            to.set_ip(source);
        }
        if is_ipoib {
            self.tell(number, event::ADDR_ERROR, -NO_IPOIB.raw(), Param::None);
            return Ok(());
        }
        if self.is_any(local.ip()) {
            local.set_ip(source);
        }
        self.check_route(local.ip(), to.ip())?;
        let asks = self.host.asks;
        let id = self.of(file, number)?;
        let state = if asks { State::AddressQuery } else { State::AddressResolved };
        (id.local, id.peer, id.state) = (Some(local), Some(to), state);
        let lid = 0;
        id.connection.here = Address { gid: gid(local.ip()), lid };
        id.connection.there = Address { gid: gid(to.ip()), lid };
        match asks {
            true => self.ask(number, Duration::from_millis(request.timeout_ms.into())),
            false => self.tell(number, event::ADDR_RESOLVED, 0, Param::None),
        }
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
        let id = self.ids.get(request.id).ok_or(Errno::ENOENT)?;
        let mut answer = rdma_ucm_query_addr_resp::default();
        match request.option {
            RDMA_USER_CM_QUERY_ADDR => {
                answer.src_size = put_address(id.local, &mut answer.src_addr);
                answer.dst_size = put_address(id.peer, &mut answer.dst_addr);
            }
            RDMA_USER_CM_QUERY_GID => {
                let (own, peer) = self.gids_of(id);
                let (from, to) = (id.service_id(id.local), id.service_id(id.peer));
                answer.src_size = put_gid(own, from, &mut answer.src_addr);
                answer.dst_size = put_gid(peer, to, &mut answer.dst_addr);
            }
            RDMA_USER_CM_QUERY_PATH => return self.give_path(id, room),
            // RoCE has no services to find, so the result is always empty
            // (`ucma_query_ib_service`).
            RDMA_USER_CM_QUERY_IB_SERVICE => return Err(Errno::ENODATA),
            _ => return Err(Errno::ENOSYS),
        }
        if self.has_device(id) {
            (answer.node_guid, answer.port_num) = (guid.to_be(), 1);
        }
        give(room, &answer)
    }

    /// RoCE has no subnet administration to query (`cma.c:rdma_resolve_ib_service`).
    fn resolve_service(
        &mut self,
        file: u64,
        request: &rdma_ucm_resolve_ib_service,
    ) -> Result<(), Errno> {
        let id = self.of(file, request.id)?;
        let (is_bound, id) = (id.state == State::Bound, request.id);
        if !is_bound || !self.ids.get(id).is_some_and(|id| self.has_device(id)) {
            return Err(Errno::EINVAL);
        }
        Err(Errno::EOPNOTSUPP)
    }

    fn write_event(&mut self, file: u64, request: &rdma_ucm_write_cm_event) -> Result<(), Errno> {
        if ![event::USER, event::INTERNAL].contains(&request.event) {
            return Err(Errno::EINVAL);
        }
        if self.of(file, request.id)?.uid == 0 {
            return Err(Errno::EINVAL);
        }
        let (status, argument) = (request.status as i32, Param::Argument(request.arg()));
        self.tell(request.id, request.event, status, argument);
        Ok(())
    }

    fn listen(&mut self, file: u64, request: &rdma_ucm_listen) -> Result<(), Errno> {
        let id = self.of(file, request.id)?;
        if id.state == State::Idle {
            self.bind(file, request.id, SocketAddr::new(UNSPECIFIED_4, 0), None)?;
        }
        let id = self.of(file, request.id)?;
        if id.state != State::Bound {
            return Err(Errno::EINVAL);
        }
        // A listener's address can't be shared.
        if id.reuse {
            let local = id.local.ok_or(Errno::EINVAL)?;
            self.claim_port(request.id, local, false)?;
        }
        let id = self.of(file, request.id)?;
        id.reuse = false;
        id.backlog = usize::try_from(request.backlog).map_or(BACKLOG, |backlog| match backlog {
            0 => BACKLOG,
            backlog => backlog.min(BACKLOG),
        });
        id.state = State::Listening;
        self.ask_again();
        Ok(())
    }

    fn get_event(&mut self, file: u64, room: Option<&mut [u8]>) -> Result<(), Errno> {
        let queue = self.files.get_mut(&file).ok_or(Errno::EBADF)?;
        if room.as_ref().is_none_or(|room| room.len() < size_of::<rdma_ucm_event_resp>()) {
            return Err(Errno::ENOSPC);
        }
        let Queued { owner, event, .. } = queue.pop().ok_or(Errno::EAGAIN)?;
        if let Some(id) = self.ids.get_mut(owner) {
            id.told = id.told.wrapping_add(1);
        }
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
                let only = int()? != 0;
                if !matches!(id.state, State::Idle | State::Bound) {
                    return Err(Errno::EINVAL);
                }
                id.family_only = Some(only);
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) if id.service.connects() => {
                id.ack_timeout = Some(byte()?);
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => return Err(Errno::EINVAL),
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => return self.set_path(request.id, value),
            _ => return Err(Errno::ENOSYS),
        }
        Ok(())
    }

    /// Moves an id from an old door to a new one. The command comes to the new door, and names the
    /// old door by its event file.
    fn migrate(
        &mut self,
        to: u64,
        request: &rdma_ucm_migrate_id,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let from = self.file_of_bell(request.fd as i32).ok_or(Errno::EINVAL)?;
        let id = self.of(from, request.id)?;
        id.file = to;
        let events_reported = id.told;
        let unread = self.files.get_mut(&from).map(|queue| queue.take_of(request.id));
        for queued in unread.into_iter().flatten() {
            if let Some(request) = queued.request.and_then(|number| self.ids.get_mut(number)) {
                request.file = to;
            }
            if let Some(queue) = self.files.get_mut(&to) {
                queue.push(queued);
            }
        }
        give(room, &rdma_ucm_migrate_resp { events_reported })
    }
}
