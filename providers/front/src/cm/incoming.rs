//! Handling of received messages.

use std::net::SocketAddr;

use uverbs_kernel_abi::rdma_cm::{
    RDMA_MAX_PRIVATE_DATA, rdma_ucm_conn_param, rdma_ucm_ece, rdma_ucm_event_resp,
    rdma_ucm_ud_param,
};

use super::header::{self, IpHeader};
use super::id::{Connection, Id, IdNumber, Service, State};
use super::mad::{EXTENDED, Ece, Ids, Mad, Message, Rej, Rep, Req, SidrRep, SidrReq, XRC, room};
use super::manager::{Manager, Param, event};
use super::queue::Queued;
use super::refusals::{CONSUMER, INVALID_SERVICE, OF_REQ, SIDR_REFUSED, TIMEOUT, of_request};
use crate::backend::address::Address;

/// Reasons of a REJ (IBTA table 110).
const STALE: u16 = 10;
/// Time that a connection's packets may still be in flight: 2^17 times four microseconds.
const TIMEWAIT: std::time::Duration = std::time::Duration::from_millis(512);

/// Statuses of a SIDR_REP (IBTA 12.11.3).
const SIDR_UNSUPPORTED: u8 = 1;

impl Manager {
    /// Takes a message from queue pair 1.
    pub(crate) fn receive(&mut self, from: Address, to: Address, bytes: &[u8]) {
        let Some(Mad { tid, message }) = Mad::parse(bytes) else { return };
        if self.gone {
            return;
        }
        let (from, to) = (self.of_wire(from), self.of_wire(to));
        match message {
            Message::Req(req) => self.request(from, to, tid, &req),
            Message::Rep(rep) => self.reply(from, to, tid, &rep),
            Message::Rtu(ids) => self.ready(from, ids),
            Message::Rej(rej) => self.refused(from, &rej),
            Message::Dreq { ids, remote_qpn } => self.disconnect(from, to, tid, ids, remote_qpn),
            Message::Drep(ids) => self.disconnected(from, ids),
            Message::SidrReq(req) => self.datagram_request(from, to, tid, &req),
            Message::SidrRep(rep) => self.datagram_reply(from, &rep),
        }
        self.ids.settle();
    }

    /// Id of a connection, by the peer's address and the local communication id.
    fn of_peer(&mut self, from: Address, local_id: u32) -> Option<IdNumber> {
        let number = self.by_local_id(local_id)?;
        (self.ids.get(number)?.connection.there == from).then_some(number)
    }

    /// Id of a connection, by the peer's address and both communication ids.
    fn of_ids(&mut self, from: Address, ids: Ids) -> Option<IdNumber> {
        let number = self.of_peer(from, ids.remote)?;
        (self.ids.get(number)?.connection.remote_id == ids.local).then_some(number)
    }

    pub(super) fn request(&mut self, from: Address, to: Address, tid: u64, req: &Req) {
        let is_same = |id: &Id| {
            let connection = &id.connection;
            connection.remote_guid == req.ca_guid
                && connection.there == from
                && connection.tid == tid
        };
        self.ids.settle();
        let is_known = |(_, id): (_, &Id)| is_same(id) && id.state != State::Over;
        if self.ids.by_remote_id(req.local_id).any(is_known) {
            // A duplicate: either the program has yet to answer, or a timer repeats the answer.
            return;
        }
        let refuse = |reason| of_request(tid, req, reason);
        let header = IpHeader::read(&req.private);
        let listener = header
            .zip(service(req))
            .and_then(|(header, service)| self.listener(req.service_id, service, header.to));
        let (Some(header), Some(listener)) = (header, listener) else {
            // With a listener of another kind or at another address, the connection manager's user
            // rejects the request (cma.c, `cma_ib_req_handler`, `cma_ib_check_req_qp_type`; cm.c,
            // `cm_destroy_id`).
            let served = self.is_served(req.service_id);
            if !served && header.is_some() && self.hold(from, to, tid, req) {
                return;
            }
            let reason = if served { CONSUMER } else { INVALID_SERVICE };
            return self.send(to, from, &refuse(reason));
        };
        self.ids.settle();
        let is_stale = |(_, id): &(_, &Id)| {
            id.connection.remote_guid == req.ca_guid
                && matches!(id.state, State::RepSent | State::Established)
        };
        let stale = self.ids.of_peers_queue_pair(from, req.qpn).find(is_stale);
        if let Some((old, _)) = stale {
            // The peer has forgotten that connection, so this side ends it.
            self.end(old);
            return self.send(to, from, &refuse(STALE));
        }
        let connection = Connection {
            local_id: self.new_local_id(),
            remote_id: req.local_id,
            remote_guid: req.ca_guid,
            service_id: req.service_id,
            tid,
            here: to,
            there: from,
            psn: self.random() & 0xff_ffff,
            remote_psn: req.psn,
            remote_qpn: req.qpn,
            // Each side may have as many READs outstanding as the peer serves.
            initiator_depth: req.responder_resources,
            responder_resources: req.initiator_depth,
            retry: req.retry,
            rnr_retry: req.rnr_retry,
            mtu: req.mtu,
            ..Connection::default()
        };
        let param = rdma_ucm_conn_param {
            qp_num: req.qpn,
            flow_control: req.flow_control.into(),
            retry_count: req.retry,
            rnr_retry_count: req.rnr_retry,
            srq: req.srq.into(),
            initiator_depth: req.responder_resources,
            responder_resources: req.initiator_depth,
            private_data: padded(&req.private[header::LEN..]),
            private_data_len: (room::REQ - header::LEN) as u8,
            ..Default::default()
        };
        self.offer(listener, header, connection, Param::Peer(param, told_ece(req.ece)));
    }

    /// Reports a request, with a new id, to its listener. Beyond the backlog it is dropped
    /// silently, and the peer asks again.
    fn offer(
        &mut self,
        listener: IdNumber,
        header: IpHeader,
        connection: Connection,
        param: Param,
    ) {
        let Some(of) = self.ids.get(listener) else { return };
        let (file, uid, backlog) = (of.file, of.uid, of.backlog);
        let (space, service) = (of.space, of.service);
        let port = (connection.service_id & 0xffff) as u16;
        let unread = self.files.get(&file).map_or(0, |queue| queue.requests_of(listener));
        if unread >= backlog {
            return;
        }
        let mut id = Id::new(file, 0, space, service);
        (id.state, id.requested) = (State::ReqReceived, true);
        id.local = Some(SocketAddr::new(header.to, port));
        id.peer = Some(header.from);
        id.connection = connection;
        let number = self.insert(id);
        let mut event = rdma_ucm_event_resp {
            uid,
            id: number,
            event: event::CONNECT_REQUEST,
            ..Default::default()
        };
        param.put_into(&mut event);
        if let Some(queue) = self.files.get_mut(&file) {
            queue.push(Queued { owner: listener, request: Some(number), event });
        }
    }

    fn reply(&mut self, from: Address, to: Address, tid: u64, rep: &Rep) {
        let Some(number) = self.of_peer(from, rep.ids.remote) else { return };
        let Some(id) = self.ids.get_mut(number) else { return };
        if !id.service.connects() {
            return;
        }
        match id.state {
            State::ReqSent => {}
            // The RTU was lost.
            State::Established if id.connection.remote_id == rep.ids.local => {
                let ids = Ids { local: rep.ids.remote, remote: rep.ids.local };
                return self.send(to, from, &Mad { tid, message: Message::Rtu(ids) });
            }
            _ => return,
        }
        id.state = State::RepReceived;
        // `cm.c:cm_rep_get_qpn`.
        let qpn = if id.service == Service::XrcInitiator { rep.eecn } else { rep.qpn };
        let connection = &mut id.connection;
        connection.awaited = None;
        connection.remote_id = rep.ids.local;
        connection.remote_guid = rep.ca_guid;
        connection.remote_qpn = qpn;
        connection.remote_psn = rep.psn;
        connection.initiator_depth = rep.responder_resources;
        connection.responder_resources = rep.initiator_depth;
        connection.rnr_retry = rep.rnr_retry;
        let param = rdma_ucm_conn_param {
            qp_num: qpn,
            flow_control: rep.flow_control.into(),
            // A REP has no retry count (`cma.c:cma_set_rep_event_data`).
            retry_count: 0,
            rnr_retry_count: rep.rnr_retry,
            srq: rep.srq.into(),
            initiator_depth: rep.responder_resources,
            responder_resources: rep.initiator_depth,
            private_data: padded(&rep.private),
            private_data_len: room::REP as u8,
            ..Default::default()
        };
        self.tell(number, event::CONNECT_RESPONSE, 0, Param::Peer(param, told_ece(rep.ece)));
    }

    /// Handles an RTU: the connection is established.
    fn ready(&mut self, from: Address, ids: Ids) {
        if let Some(number) = self.of_ids(from, ids) {
            self.establish(number);
        }
    }

    /// Establishes the connection of an accepted request. False if it was established before, or
    /// does not exist.
    pub(super) fn establish(&mut self, number: IdNumber) -> bool {
        let Some(id) = self.ids.get_mut(number) else { return false };
        if id.state != State::RepSent {
            return false;
        }
        id.state = State::Established;
        id.connection.awaited = None;
        self.tell(number, event::ESTABLISHED, 0, Param::Connection(Default::default()));
        true
    }

    fn refused(&mut self, from: Address, rej: &Rej) {
        if rej.reason == TIMEOUT {
            self.forget_held(from, rej.ids.local);
        }
        // A peer that gave up before it knew the local communication id names only its side's.
        let number = if rej.reason == TIMEOUT && rej.ids.remote == 0 {
            let guid = u64::from_be_bytes(rej.info);
            self.ids.settle();
            let is_named = |(_, id): &(_, &Id)| {
                id.connection.remote_guid == guid && id.connection.there == from
            };
            self.ids.by_remote_id(rej.ids.local).find(is_named).map(|(number, _)| number)
        } else if rej.message == OF_REQ {
            // A peer that rejects a request may have no communication id for it.
            self.of_peer(from, rej.ids.remote)
        } else {
            self.of_ids(from, rej.ids)
        };
        let Some(number) = number else { return };
        let Some(id) = self.ids.get_mut(number) else { return };
        if matches!(id.state, State::Over | State::Timewait) || !id.service.connects() {
            return;
        }
        // An accepted request can't be rejected any more: the REJ is for a late duplicate.
        let was_accepted =
            matches!(id.state, State::RepReceived | State::Established | State::DreqSent);
        if rej.message == OF_REQ && was_accepted {
            return;
        }
        let param = rdma_ucm_conn_param {
            private_data: padded(&rej.private),
            private_data_len: room::REJ as u8,
            ..Default::default()
        };
        self.reject_id(number, rej.reason, param);
    }

    /// Ends an id without a connection, and tells the program why.
    fn reject_id(&mut self, number: IdNumber, reason: u16, param: rdma_ucm_conn_param) {
        let Some(id) = self.ids.get_mut(number) else { return };
        id.state = State::Over;
        id.connection.awaited = None;
        self.tell(number, event::REJECTED, reason.into(), Param::Connection(param));
    }

    fn disconnect(&mut self, from: Address, to: Address, tid: u64, ids: Ids, qpn: u32) {
        let answer = Ids { local: ids.remote, remote: ids.local };
        let answer = Mad { tid, message: Message::Drep(answer) };
        let Some(number) = self.of_ids(from, ids) else {
            // An unknown connection's DREQ is answered, too (`cm.c:cm_dreq_handler`).
            return self.send(to, from, &answer);
        };
        let Some(id) = self.ids.get_mut(number) else { return };
        match id.state {
            State::RepSent | State::Established if id.connection.qpn == qpn => {
                id.state = State::DreqReceived;
                id.connection.awaited = None;
                id.connection.tid = tid;
                self.tell(number, event::DISCONNECTED, 0, Param::None);
            }
            // Both sides disconnect at the same time.
            State::DreqSent => {
                self.send(to, from, &answer);
                self.end(number);
            }
            State::Timewait | State::Over => self.send(to, from, &answer),
            _ => {}
        }
    }

    fn disconnected(&mut self, from: Address, ids: Ids) {
        if let Some(number) = self.of_ids(from, ids)
            && self.ids.get(number).is_some_and(|id| id.state == State::DreqSent)
        {
            self.end(number);
        }
    }

    /// Handles the end of the peer's process, which a connection manager in the peer's kernel would
    /// report by the messages of its ids (`cm.c:cm_destroy_id`).
    pub(crate) fn peer_left(&mut self, peer: Address) {
        let peer = self.of_wire(peer);
        let ids = self.ids.of_peer(peer).filter(|(_, id)| id.service.connects());
        for number in ids.map(|(number, _)| number).collect::<Vec<_>>() {
            let Some(id) = self.ids.get_mut(number) else { continue };
            match id.state {
                State::Established => {
                    id.state = State::DreqReceived;
                    self.tell(number, event::DISCONNECTED, 0, Param::None);
                }
                State::DreqSent => self.end(number),
                State::ReqSent | State::RepReceived | State::ReqReceived | State::RepSent => {
                    self.reject_id(number, CONSUMER, Default::default());
                }
                _ => {}
            }
        }
        self.forget_held_of(peer);
        self.ids.settle();
    }

    /// Ends a connection: tells the program, and enters the time-wait state.
    fn end(&mut self, number: IdNumber) {
        self.wait_out(number);
        self.tell(number, event::DISCONNECTED, 0, Param::None);
    }

    pub(super) fn wait_out(&mut self, number: IdNumber) {
        let ends = self.now + TIMEWAIT;
        if let Some(id) = self.ids.get_mut(number) {
            id.state = State::Timewait;
            id.connection.awaited = None;
            id.connection.ends = Some(ends);
        }
    }

    fn datagram_request(&mut self, from: Address, to: Address, tid: u64, req: &SidrReq) {
        self.ids.settle();
        let is_known = |(_, id): (_, &Id)| {
            id.service == Service::Datagrams
                && id.connection.there == from
                && id.state == State::ReqReceived
        };
        if self.ids.by_remote_id(req.request_id).any(is_known) {
            return;
        }
        let header = IpHeader::read(&req.private);
        let listener =
            header.and_then(|header| self.listener(req.service_id, Service::Datagrams, header.to));
        let (Some(header), Some(listener)) = (header, listener) else {
            let mut message = SidrRep::new(req.request_id, req.service_id);
            let served = self.is_served(req.service_id);
            message.status = if served { SIDR_REFUSED } else { SIDR_UNSUPPORTED };
            message.qkey = 0;
            return self.send(to, from, &Mad { tid, message: Message::SidrRep(message) });
        };
        let connection = Connection {
            local_id: self.new_local_id(),
            remote_id: req.request_id,
            service_id: req.service_id,
            tid,
            here: to,
            there: from,
            ..Connection::default()
        };
        let param = rdma_ucm_ud_param {
            private_data: padded(&req.private[header::LEN..]),
            private_data_len: (room::SIDR_REQ - header::LEN) as u8,
            ..Default::default()
        };
        self.offer(listener, header, connection, Param::Datagram(param));
    }

    fn datagram_reply(&mut self, from: Address, rep: &SidrRep) {
        let Some(number) = self.of_peer(from, rep.request_id) else { return };
        let Some(id) = self.ids.get_mut(number) else { return };
        if id.state != State::ReqSent || id.service != Service::Datagrams {
            return;
        }
        id.connection.awaited = None;
        id.state = State::Over;
        let mut param = rdma_ucm_ud_param {
            private_data: padded(&rep.private),
            private_data_len: room::SIDR_REP as u8,
            ..Default::default()
        };
        let what = if rep.status == 0 {
            param.qp_num = rep.qpn;
            param.qkey = rep.qkey;
            if let Some(id) = self.ids.get(number) {
                param.ah_attr = self.path_of(id);
            }
            event::ESTABLISHED
        } else {
            event::UNREACHABLE
        };
        self.tell(number, what, rep.status.into(), Param::Datagram(param));
    }
}

/// Service of a listener that takes a request (`cm.c:cm_req_get_qp_type`).
fn service(req: &Req) -> Option<Service> {
    match (req.transport, req.extended) {
        (0, _) => Some(Service::Connections),
        (EXTENDED, XRC) => Some(Service::XrcTarget),
        _ => None,
    }
}

/// Private data as in events: as long as the message's field, padded with zeros.
fn padded(data: &[u8]) -> [u8; RDMA_MAX_PRIVATE_DATA] {
    let mut all = [0; RDMA_MAX_PRIVATE_DATA];
    all[..data.len()].copy_from_slice(data);
    all
}

fn told_ece(ece: Ece) -> rdma_ucm_ece {
    rdma_ucm_ece { vendor_id: ece.vendor, attr_mod: ece.options }
}
