//! Messages that reject, and a SIDR_REP that accepts.

use super::id::{Connection, Id, Service, State};
use super::mad::{Ids, Mad, Message, Rej, Req, SidrRep, room};
use super::manager::UDP_QKEY;

/// Rejected message of a REJ (IBTA vol 1, 12.6.7): the request, the reply, another.
pub(super) const OF_REQ: u8 = 0;
pub(super) const OF_REP: u8 = 1;
pub(super) const OF_OTHER: u8 = 2;
/// REJ reason: the sender gave up (IBTA table 110).
pub(super) const TIMEOUT: u16 = 4;
/// REJ reason: no listener (IBTA table 110).
pub(super) const INVALID_SERVICE: u16 = 8;
/// REJ reason: the program rejects (IBTA table 110).
pub(super) const CONSUMER: u16 = 28;
/// SIDR_REP status: rejected (IBTA 12.11.3).
pub(super) const SIDR_REFUSED: u8 = 2;

/// REJ by the program. The private data must fit.
pub(super) fn refusal(ids: Ids, message: u8, reason: u16, data: &[u8]) -> Message {
    let mut private = [0; room::REJ];
    let len = data.len().min(room::REJ);
    private[..len].copy_from_slice(&data[..len]);
    Message::Rej(Rej { ids, message, reason, info: [0; 8], private })
}

/// REJ for a request that got no id here.
pub(super) fn of_request(tid: u64, req: &Req, reason: u16) -> Mad {
    let ids = Ids { local: 0, remote: req.local_id };
    Mad { tid, message: refusal(ids, 0, reason, &[]) }
}

impl SidrRep {
    /// SIDR_REP that accepts, with the port space's Q_Key and without a queue pair yet.
    pub(super) fn new(request_id: u32, service_id: u64) -> Self {
        let private = [0; room::SIDR_REP];
        Self { request_id, status: 0, qpn: 0, service_id, qkey: UDP_QKEY, private }
    }
}

/// SIDR_REP that rejects. The private data must fit.
pub(super) fn sidr_refusal(connection: &Connection, data: &[u8]) -> Message {
    let mut message = SidrRep::new(connection.remote_id, connection.service_id);
    let len = data.len().min(room::SIDR_REP);
    message.private[..len].copy_from_slice(&data[..len]);
    (message.status, message.qkey) = (SIDR_REFUSED, 0);
    Message::SidrRep(message)
}

/// Rejection by an id of either kind. It names the rejected message (`cm.c:cm_format_rej`).
pub(super) fn no(id: &Id, reason: u16, data: &[u8]) -> Message {
    let ids = Ids { local: id.connection.local_id, remote: id.connection.remote_id };
    let message = match id.state {
        State::ReqReceived => OF_REQ,
        State::RepReceived => OF_REP,
        _ => OF_OTHER,
    };
    match id.service {
        Service::Datagrams => sidr_refusal(&id.connection, data),
        _ => refusal(ids, message, reason, data),
    }
}
