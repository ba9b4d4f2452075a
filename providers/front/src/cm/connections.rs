//! Commands of connections: connect, accept, reject, disconnect.

use uverbs_core::Errno;
use uverbs_kernel_abi::event::IB_EVENT_COMM_EST;
use uverbs_kernel_abi::qp as abi;
use uverbs_kernel_abi::rdma_cm::{
    rdma_ucm_accept, rdma_ucm_connect, rdma_ucm_ece, rdma_ucm_init_qp_attr, rdma_ucm_notify,
    rdma_ucm_reject,
};

use super::fields::give;
use super::header::{self, IpHeader};
use super::id::{Connection, IdNumber, Service, State};
use super::mad::{EXTENDED, Ece, Ids, Message, Rep, Req, SidrRep, SidrReq, XRC, room};
use super::manager::{Manager, UDP_QKEY};
use super::refusals::{CONSUMER, no};

/// Timeout codes for acknowledgements: time that this side waits, and time that it takes itself
/// (`cm.c:cm_ack_timeout`); the values that Linux has for rxe.
const ACK_TIMEOUT: u8 = 17;
const ACK_DELAY: u8 = 15;
/// Access rights of the peer (`IB_ACCESS_*`): write, read and atomics; only write.
const REMOTE: u32 = 0b1110;
const REMOTE_WRITE: u32 = 0b0010;

impl Manager {
    pub(super) fn connect(&mut self, file: u64, request: &rdma_ucm_connect) -> Result<(), Errno> {
        let number = request.id;
        let param = request.conn_param;
        let (guid, mtu) = (self.host.guid, self.host.mtu);
        if param.valid == 0 {
            return Err(Errno::EINVAL);
        }
        let (local_id, psn) = (self.new_local_id(), self.random() & 0xff_ffff);
        self.of(file, number)?;
        let id = self.ids.get(number).ok_or(Errno::ENOENT)?;
        let (sgid, dgid) = self.gids_of(id);
        let id = self.of(file, number)?;
        if id.state != State::RouteResolved {
            return Err(Errno::EINVAL);
        }
        let (Some(local), Some(peer)) = (id.local, id.peer) else { return Err(Errno::EINVAL) };
        // The program may have set the MTU.
        let mtu = id.path_mtu.unwrap_or(mtu);
        let ip_header = IpHeader { from: local, to: peer.ip() };
        let data = &param.private_data[..usize::from(param.private_data_len)];
        let service_id = u64::from(id.space) << 16 | u64::from(peer.port());
        let message = match id.service {
            Service::Connections | Service::XrcInitiator | Service::XrcTarget => {
                // By `cm.c:cm_format_req`, an XRC initiator tells nothing of receives.
                let xrc = id.service == Service::XrcInitiator;
                let receives = u8::from(!xrc);
                let mut private = [0; room::REQ];
                ip_header.write(&mut private);
                put(&mut private[header::LEN..], data)?;
                Message::Req(Req {
                    local_id,
                    service_id,
                    ca_guid: guid,
                    qpn: param.qp_num & 0xff_ffff,
                    responder_resources: param.responder_resources * receives,
                    initiator_depth: param.initiator_depth,
                    transport: if xrc { EXTENDED } else { 0 },
                    extended: if xrc { XRC } else { 0 },
                    flow_control: param.flow_control != 0,
                    psn,
                    retry: param.retry_count.min(7) * receives,
                    rnr_retry: param.rnr_retry_count.min(7) * receives,
                    mtu,
                    srq: param.srq != 0 && !xrc,
                    ece: asked_ece(request.ece),
                    sgid,
                    dgid,
                    traffic_class: id.tos,
                    hop_limit: 64,
                    ack_timeout: id.ack_timeout.unwrap_or(ACK_TIMEOUT) & 31,
                    private,
                })
            }
            Service::Datagrams => {
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
            initiator_depth: param.initiator_depth,
            responder_resources: param.responder_resources,
            retry: param.retry_count.min(7),
            rnr_retry: param.rnr_retry_count.min(7),
            mtu,
            ..Connection::default()
        };
        id.state = State::ReqSent;
        self.send_of(number, message, true);
        Ok(())
    }

    /// Accepts, in either role. An id that can't accept rejects instead (`cma.c:rdma_accept`).
    pub(super) fn accept(&mut self, file: u64, request: &rdma_ucm_accept) -> Result<(), Errno> {
        let number = request.id;
        let id = self.of_device(file, number)?;
        let is_connecting = id.state >= State::ReqSent
            && !matches!(id.state, State::DreqReceived | State::Timewait);
        if !is_connecting {
            return Err(Errno::EINVAL);
        }
        let accepted = match id.service {
            Service::Datagrams => self.answer_datagrams(number, request),
            _ if request.conn_param.valid == 0 => self.ready_to_use(number),
            _ => self.answer(number, request),
        };
        if accepted.is_err() {
            let _ = self.refuse(number, CONSUMER, &[]);
        }
        accepted
    }

    /// Accepts the peer's reply, by an RTU (`cma.c:cma_rep_recv`).
    fn ready_to_use(&mut self, number: IdNumber) -> Result<(), Errno> {
        let id = self.ids.get_mut(number).ok_or(Errno::ENOENT)?;
        if id.state != State::RepReceived {
            return Err(Errno::EINVAL);
        }
        let ids = Ids { local: id.connection.local_id, remote: id.connection.remote_id };
        id.state = State::Established;
        self.send_of(number, Message::Rtu(ids), false);
        Ok(())
    }

    /// Accepts a request for a connection, by a REP (`cm.c:ib_send_cm_rep`).
    fn answer(&mut self, number: IdNumber, request: &rdma_ucm_accept) -> Result<(), Errno> {
        let (guid, param) = (self.host.guid, request.conn_param);
        let id = self.ids.get_mut(number).ok_or(Errno::ENOENT)?;
        let mut private = [0; room::REP];
        put(&mut private, &param.private_data[..usize::from(param.private_data_len)])?;
        if id.state != State::ReqReceived {
            return Err(Errno::EINVAL);
        }
        let xrc = id.service == Service::XrcTarget;
        let connection = &mut id.connection;
        connection.qpn = param.qp_num & 0xff_ffff;
        connection.responder_resources = param.responder_resources;
        connection.initiator_depth = param.initiator_depth;
        let message = Message::Rep(Rep {
            ids: Ids { local: connection.local_id, remote: connection.remote_id },
            // By `cm.c:cm_format_rep`, an XRC target tells nothing of sends.
            qpn: if xrc { 0 } else { connection.qpn },
            eecn: if xrc { connection.qpn } else { 0 },
            psn: connection.psn,
            responder_resources: param.responder_resources,
            initiator_depth: if xrc { 0 } else { param.initiator_depth },
            ack_delay: ACK_DELAY,
            flow_control: param.flow_control != 0 && !xrc,
            rnr_retry: param.rnr_retry_count.min(7),
            srq: param.srq != 0 || xrc,
            ece: asked_ece(request.ece),
            ca_guid: guid,
            private,
        });
        (id.uid, id.state) = (request.uid, State::RepSent);
        self.send_of(number, message, true);
        Ok(())
    }

    /// Accepts a request for datagrams (`cma.c:cma_send_sidr_rep`). The answer is never
    /// acknowledged: if it is lost, the peer asks again.
    fn answer_datagrams(
        &mut self,
        number: IdNumber,
        request: &rdma_ucm_accept,
    ) -> Result<(), Errno> {
        let param = request.conn_param;
        let id = self.ids.get_mut(number).ok_or(Errno::ENOENT)?;
        let mut answer = SidrRep::new(id.connection.remote_id, id.connection.service_id);
        if param.valid != 0 {
            answer.qpn = param.qp_num & 0xff_ffff;
            put(&mut answer.private, &param.private_data[..usize::from(param.private_data_len)])?;
        }
        if id.state != State::ReqReceived {
            return Err(Errno::EINVAL);
        }
        id.connection.qpn = answer.qpn;
        if param.valid != 0 {
            id.uid = request.uid;
        }
        id.state = State::Over;
        self.send_of(number, Message::SidrRep(answer), false);
        Ok(())
    }

    pub(super) fn reject(&mut self, file: u64, request: &rdma_ucm_reject) -> Result<(), Errno> {
        if !matches!(request.reason, 0 | 28 | 35) {
            return Err(Errno::EINVAL);
        }
        let reason = if request.reason == 0 { CONSUMER } else { request.reason.into() };
        self.of_device(file, request.id)?;
        let data = &request.private_data[..usize::from(request.private_data_len)];
        self.refuse(request.id, reason, data)
    }

    /// Rejects in any state before the connection is established (`cm.c:cm_send_rej_locked`,
    /// `cm_send_sidr_rep_locked`).
    fn refuse(&mut self, number: IdNumber, reason: u16, data: &[u8]) -> Result<(), Errno> {
        let id = self.ids.get_mut(number).ok_or(Errno::ENOENT)?;
        let (allowed, limit): (&[State], _) = match id.service {
            Service::Datagrams => (&[State::ReqReceived], room::SIDR_REP),
            _ => (
                &[State::ReqSent, State::RepReceived, State::ReqReceived, State::RepSent],
                room::REJ,
            ),
        };
        if data.len() > limit || !allowed.contains(&id.state) {
            return Err(Errno::EINVAL);
        }
        let message = no(id, reason, data);
        id.state = State::Over;
        self.send_of(number, message, false);
        Ok(())
    }

    /// `cma.c:rdma_disconnect`.
    pub(super) fn end_connection(&mut self, file: u64, number: IdNumber) -> Result<(), Errno> {
        let id = self.of_device(file, number)?;
        if id.state < State::Listening {
            return Err(Errno::EINVAL);
        }
        let connection = &id.connection;
        let ids = Ids { local: connection.local_id, remote: connection.remote_id };
        match id.state {
            State::Established => {
                let remote_qpn = connection.remote_qpn;
                id.state = State::DreqSent;
                self.send_of(number, Message::Dreq { ids, remote_qpn }, true);
            }
            State::DreqReceived => {
                self.send_of(number, Message::Drep(ids), false);
                self.wait_out(number);
            }
            _ => {}
        }
        Ok(())
    }

    /// `cma.c:rdma_init_qp_attr`; `cm.c:ib_cm_init_qp_attr`.
    pub(super) fn init_qp_attr(
        &mut self,
        file: u64,
        request: &rdma_ucm_init_qp_attr,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let state = u8::try_from(request.qp_state).map_err(|_| Errno::EINVAL)?;
        if state > abi::IB_QPS_ERR {
            return Err(Errno::EINVAL);
        }
        self.of_device(file, request.id)?;
        let id = self.ids.get(request.id).ok_or(Errno::ENOENT)?;
        let mut answer = abi::ib_uverbs_qp_attr { port_num: 1, ..Default::default() };
        answer.qp_state = state.into();
        let connection = &id.connection;
        answer.qp_attr_mask = abi::IB_QP_STATE | abi::IB_QP_PKEY_INDEX | abi::IB_QP_PORT;
        if id.service == Service::Datagrams {
            answer.qp_attr_mask |= abi::IB_QP_QKEY;
            answer.qkey = UDP_QKEY;
            return give(room, &answer);
        }
        // Before there is a connection, for any state (`cma.c:cma_ib_init_qp_attr`).
        if id.state < State::Listening {
            answer.qp_attr_mask |= abi::IB_QP_ACCESS_FLAGS;
            return give(room, &answer);
        }
        let has_peer = matches!(
            id.state,
            State::ReqReceived | State::RepReceived | State::RepSent | State::Established
        );
        if state != abi::IB_QPS_INIT {
            // Nor does the mask name it (`cm.c:cm_init_qp_rtr_attr`).
            answer.port_num = 0;
        }
        match state {
            abi::IB_QPS_INIT if has_peer || id.state == State::ReqSent => {
                answer.qp_attr_mask |= abi::IB_QP_ACCESS_FLAGS;
                answer.qp_access_flags =
                    if connection.responder_resources == 0 { REMOTE_WRITE } else { REMOTE };
            }
            abi::IB_QPS_RTR if has_peer => {
                answer.qp_attr_mask = abi::IB_QP_STATE
                    | abi::IB_QP_AV
                    | abi::IB_QP_PATH_MTU
                    | abi::IB_QP_DEST_QPN
                    | abi::IB_QP_RQ_PSN;
                if id.service != Service::XrcInitiator {
                    answer.qp_attr_mask |= abi::IB_QP_MAX_DEST_RD_ATOMIC | abi::IB_QP_MIN_RNR_TIMER;
                    answer.max_dest_rd_atomic = connection.responder_resources;
                }
                answer.ah_attr = self.path_of(id);
                answer.path_mtu = connection.mtu.into();
                answer.dest_qp_num = connection.remote_qpn;
                answer.rq_psn = connection.psn;
            }
            abi::IB_QPS_RTS if has_peer => {
                answer.qp_attr_mask = abi::IB_QP_STATE | abi::IB_QP_SQ_PSN | abi::IB_QP_TIMEOUT;
                answer.sq_psn = connection.remote_psn;
                if id.service != Service::XrcTarget {
                    answer.qp_attr_mask |=
                        abi::IB_QP_RETRY_CNT | abi::IB_QP_RNR_RETRY | abi::IB_QP_MAX_QP_RD_ATOMIC;
                    answer.retry_cnt = connection.retry;
                    answer.rnr_retry = connection.rnr_retry;
                    answer.max_rd_atomic = connection.initiator_depth;
                }
                answer.timeout = id.ack_timeout.unwrap_or(ACK_TIMEOUT);
            }
            _ => return Err(Errno::EINVAL),
        }
        give(room, &answer)
    }

    /// `cm.c:cm_establish`.
    pub(super) fn notify(&mut self, file: u64, request: &rdma_ucm_notify) -> Result<(), Errno> {
        let id = self.of_device(file, request.id)?;
        if !id.service.connects() || request.event != IB_EVENT_COMM_EST {
            return Err(Errno::EINVAL);
        }
        match id.state {
            State::RepSent => {
                self.establish(request.id);
                Ok(())
            }
            State::Established => Err(Errno::EISCONN),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// ECE of a command. The vendor has 24 bits in a message.
fn asked_ece(ece: rdma_ucm_ece) -> Ece {
    Ece { vendor: ece.vendor_id & 0xff_ffff, options: ece.attr_mod }
}

/// Copies private data into a message's field.
///
/// # Errors
///
/// `EINVAL` for data longer than the field.
fn put(room: &mut [u8], data: &[u8]) -> Result<(), Errno> {
    room.get_mut(..data.len()).ok_or(Errno::EINVAL)?.copy_from_slice(data);
    Ok(())
}
