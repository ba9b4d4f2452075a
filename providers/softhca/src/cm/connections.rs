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
use super::mad::{Ece, Ids, Message, Rep, Req, SidrRep, SidrReq, room};
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
        let (local_id, psn) = (self.new_local_id(), self.random() & 0xff_ffff);
        let id = self.of(file, number)?;
        if id.state != State::RouteResolved || param.valid == 0 {
            return Err(Errno::EINVAL);
        }
        let (Some(local), Some(peer)) = (id.local, id.peer) else { return Err(Errno::EINVAL) };
        // The program may have set the MTU.
        let mtu = id.path_mtu.unwrap_or(mtu);
        let ip_header = IpHeader { from: local, to: peer.ip() };
        let data = &param.private_data[..usize::from(param.private_data_len)];
        let service_id = u64::from(id.space) << 16 | u64::from(peer.port());
        let message = match id.service {
            Service::Connections => {
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
                    ece: asked_ece(request.ece),
                    sgid: id.connection.here.gid,
                    dgid: id.connection.there.gid,
                    traffic_class: id.tos,
                    hop_limit: 64,
                    ack_timeout: id.ack_timeout.unwrap_or(ACK_TIMEOUT),
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
            retry: param.retry_count.min(7),
            rnr_retry: param.rnr_retry_count.min(7),
            mtu,
            ..Connection::default()
        };
        id.state = State::ReqSent;
        self.send_of(number, message, true);
        Ok(())
    }

    pub(super) fn accept(&mut self, file: u64, request: &rdma_ucm_accept) -> Result<(), Errno> {
        let (number, param) = (request.id, request.conn_param);
        let guid = self.host.guid;
        let id = self.of(file, number)?;
        let ids = Ids { local: id.connection.local_id, remote: id.connection.remote_id };
        if param.valid == 0 {
            // The connecting side accepts the peer's reply.
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
        let message = match id.service {
            Service::Connections => {
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
                    ece: asked_ece(request.ece),
                    ca_guid: guid,
                    private,
                })
            }
            Service::Datagrams => {
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
        match id.service {
            Service::Connections => {
                id.state = State::RepSent;
                self.send_of(number, message, true);
            }
            // This answer is never acknowledged: if it is lost, the peer asks again.
            Service::Datagrams => {
                id.state = State::Over;
                self.send_of(number, message, false);
            }
        }
        Ok(())
    }

    pub(super) fn reject(&mut self, file: u64, request: &rdma_ucm_reject) -> Result<(), Errno> {
        let data = &request.private_data[..usize::from(request.private_data_len)];
        if data.len() > room::REJ || !matches!(request.reason, 0 | 28 | 35) {
            return Err(Errno::EINVAL);
        }
        let id = self.of(file, request.id)?;
        if !matches!(id.state, State::ReqReceived | State::RepReceived) {
            return Err(Errno::EINVAL);
        }
        let reason = if request.reason == 0 { CONSUMER } else { request.reason.into() };
        let message = no(id, reason, data);
        id.state = State::Over;
        self.send_of(request.id, message, false);
        Ok(())
    }

    pub(super) fn end_connection(&mut self, file: u64, number: IdNumber) -> Result<(), Errno> {
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
            state if state < State::ReqSent => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    pub(super) fn init_qp_attr(
        &mut self,
        file: u64,
        request: &rdma_ucm_init_qp_attr,
        room: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let number = request.id;
        let id = self.of(file, number)?;
        let state = u8::try_from(request.qp_state).map_err(|_| Errno::EINVAL)?;
        let (local, routed) = (id.local, id.connection.here.gid != [0; 16]);
        // A local address gives an id its device, too (kernel `rdma_bind_addr_dst`).
        let has_device = routed || local.is_some_and(|local| !self.is_any(local.ip()));
        if state > abi::IB_QPS_ERR || !has_device {
            return Err(Errno::EINVAL);
        }
        let mut answer = abi::ib_uverbs_qp_attr { port_num: 1, ..Default::default() };
        answer.qp_state = state.into();
        let id = self.ids.get(&number).ok_or(Errno::ENOENT)?;
        let connection = &id.connection;
        if id.service == Service::Datagrams {
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

    pub(super) fn notify(&mut self, file: u64, request: &rdma_ucm_notify) -> Result<(), Errno> {
        self.of(file, request.id)?;
        match request.event {
            IB_EVENT_COMM_EST if self.establish(request.id) => Ok(()),
            IB_EVENT_COMM_EST => Err(Errno::EISCONN),
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
