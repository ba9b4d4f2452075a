//! Messages: taken from send queues, and delivered in an order that the seed decides.

use std::time::{Duration, Instant};

use uverbs_kernel_abi::efa::io::{
    EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH, EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_AH,
    EFA_IO_COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE, EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP,
    EFA_IO_COMP_STATUS_OK, EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_STATUS,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR, EFA_IO_RDMA_READ, EFA_IO_RDMA_WRITE, efa_io_rx_desc,
};
use uverbs_kernel_abi::efa::{EFA_QUERY_DEVICE_CAPS_RDMA_READ, EFA_QUERY_DEVICE_CAPS_RDMA_WRITE};
use uverbs_kernel_abi::qp::IB_QPS_RTS;
use zerocopy::FromBytes;

use super::message::{Checked, MAX_MESSAGE, MAX_RDMA, Message, Refusal};
use super::objects::{Ah, Object, Qp};
use super::parcel::{HEADER, Parcel};
use super::port;
use super::request::{self, Content};
use super::world::World;
use crate::srd::Gid;

/// RNR retries that have no end.
const FOREVER: u8 = 7;
/// Time between RNR retries to a device on the wire.
const RNR_WAIT: Duration = Duration::from_millis(1);

impl Qp {
    /// Takes the next element of the send queue.
    pub(crate) fn next_send(&mut self) -> Vec<u8> {
        let sq = &mut self.sq;
        let mut element = vec![0; sq.wqe];
        let index = (sq.taken & (sq.elements - 1)) as usize;
        sq.llq.read(sq.offset + index * sq.wqe, &mut element);
        sq.taken = sq.taken.wrapping_add(1);
        element
    }

    /// Takes the next SGE of the receive queue.
    pub(crate) fn next_recv(&mut self) -> efa_io_rx_desc {
        let rq = &mut self.rq;
        let mut bytes = [0; size_of::<efa_io_rx_desc>()];
        rq.ring.read((rq.taken & (rq.elements - 1)) as usize * bytes.len(), &mut bytes);
        rq.taken = rq.taken.wrapping_add(1);
        efa_io_rx_desc::read_from_bytes(&bytes).unwrap_or_default()
    }
}

impl World {
    /// Takes the elements that doorbells announced. False if they announced none.
    pub(crate) fn take_sends(&mut self) -> bool {
        let mut took = false;
        for handle in self.handles(|object| matches!(object, Object::Qp(_))) {
            let Some(qp) = self.qp_mut(handle) else { continue };
            let count = qp.sq.announced();
            if count == 0 || qp.state != IB_QPS_RTS {
                // In the error state everything is flushed.
                if count != 0 && qp.has_failed() {
                    self.fail(handle);
                }
                continue;
            }
            took = true;
            if count > qp.sq.elements {
                self.fail(handle);
                continue;
            }
            self.take(handle, count);
        }
        took
    }

    /// Takes `count` elements of a queue pair.
    fn take(&mut self, handle: u32, count: u32) {
        for _ in 0..count {
            let Some(qp) = self.qp_mut(handle) else { return };
            let turn = qp.sq.taken >> qp.sq.elements.trailing_zeros();
            let element = qp.next_send();
            let (phase, req_id, op) = request::head(&element);
            if u32::from(phase) != turn & 1 {
                // Not written since the turn before.
                qp.sq.taken = qp.sq.taken.wrapping_sub(1);
                self.fail(handle);
                return;
            }
            match request::parse(&element) {
                Ok(request) => self.messages.push(Message {
                    from: handle,
                    request,
                    tries: 0,
                    not_before: None,
                }),
                Err(status) => self.complete_send(handle, req_id, op, status),
            }
        }
    }

    /// Delivers one message, which the seed chooses. False if none can be delivered.
    pub(crate) fn deliver_one(&mut self) -> bool {
        if self.messages.is_empty() {
            return false;
        }
        let index = self.random(self.messages.len());
        let index = match self.is_ready(&self.messages[index]) {
            true => Some(index),
            false => self.messages.iter().position(|message| self.is_ready(message)),
        };
        let Some(index) = index else { return false };
        let message = self.messages.swap_remove(index);
        let Some(board) = self.board_of(message.from) else { return true };
        let (to, parcel) = match self.pack(board, &message) {
            Ok(packed) => packed,
            Err(refusal) => return self.finish(message, Err(refusal)),
        };
        let peer = self.boards.iter().position(|board| board.gid == to);
        if let Some(peer) = peer {
            let outcome = self.arrive(peer, &parcel);
            return self.finish(message, if parcel.is_srd { outcome } else { Ok(Vec::new()) });
        }
        match &self.boards[board].port {
            Some(_) if port::is_address(to) => {
                self.post(board, to, &parcel, message);
                true
            }
            // A datagram is lost.
            _ if !parcel.is_srd => self.finish(message, Ok(Vec::new())),
            _ => {
                let status = EFA_IO_COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE;
                self.finish(message, Err(Refusal::Failed(status)))
            }
        }
    }

    /// True if a message is due, and its destination has room.
    fn is_ready(&self, message: &Message) -> bool {
        if message.not_before.is_some_and(|time| time > Instant::now()) {
            return false;
        }
        let Some((board, qp)) = self.board_of(message.from).zip(self.qp(message.from)) else {
            return true;
        };
        let to = self.ah(board, |ah| ah.number == message.request.ah && ah.pd == qp.pd);
        let (Some(to), Some(port)) = (to, &self.boards[board].port) else { return true };
        let has_room = match qp.is_srd {
            true => port.has_room(to.gid),
            // A datagram completes when it has left the device.
            false => port.sends_now(to.gid, HEADER + message.request.len() as usize),
        };
        has_room || self.boards.iter().any(|board| board.gid == to.gid)
    }

    /// Checks a work request at its sender. Returns its destination, and the message with its data.
    fn pack(&self, board: usize, message: &Message) -> Checked<(Gid, Parcel)> {
        let failed = Refusal::Failed;
        let request = &message.request;
        let Some(qp) = self.qp(message.from) else {
            return Err(failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP));
        };
        let (pd, qpn, is_srd) = (qp.pd, qp.qpn, qp.is_srd);
        let needed = match request.op {
            EFA_IO_RDMA_READ => EFA_QUERY_DEVICE_CAPS_RDMA_READ,
            EFA_IO_RDMA_WRITE => EFA_QUERY_DEVICE_CAPS_RDMA_WRITE,
            _ => 0,
        };
        if self.boards[board].caps & needed != needed || (needed != 0 && !is_srd) {
            return Err(failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP));
        }
        let most = if needed == 0 { MAX_MESSAGE } else { MAX_RDMA };
        if request.len() > most.into() {
            return Err(failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH));
        }
        let fits = |ah: &Ah| ah.number == request.ah && ah.pd == pd;
        let to = self.ah(board, fits);
        let to = to.ok_or(failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_AH))?;
        let data = match request.op {
            EFA_IO_RDMA_READ => Vec::new(),
            _ => self.read(board, pd, &request.content)?,
        };
        let parcel = Parcel {
            from: self.boards[board].gid,
            src_qpn: qpn,
            qpn: request.qpn,
            qkey: request.qkey,
            is_srd,
            op: request.op,
            imm: request.imm,
            remote: request.remote,
            data,
        };
        Ok((to.gid, parcel))
    }

    /// Completes a work request with the answer of its target, or repeats it. False if it waits for
    /// a receive of the peer, and is alone.
    pub(crate) fn finish(&mut self, mut message: Message, outcome: Checked<Vec<u8>>) -> bool {
        let (from, request) = (message.from, &message.request);
        let board = self.board_of(from);
        let Some((board, qp)) = board.zip(self.qp(from)) else { return true };
        let (pd, retries) = (qp.pd, qp.rnr_retry);
        let placed = outcome.and_then(|bytes| match &request.content {
            _ if request.op != EFA_IO_RDMA_READ => Ok(()),
            Content::Pieces(pieces) if bytes.len() as u64 == request.len() => {
                self.scatter(board, pd, pieces, 0, &bytes)
            }
            _ => Err(Refusal::Failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_STATUS)),
        });
        let status = match placed {
            Ok(()) => EFA_IO_COMP_STATUS_OK,
            Err(Refusal::Failed(status)) => status,
            Err(Refusal::NotReady) if retries == FOREVER || message.tries < retries => {
                message.tries = message.tries.saturating_add(1);
                let waits = self.boards[board].port.is_some();
                message.not_before = waits.then(|| Instant::now() + RNR_WAIT);
                self.messages.push(message);
                // Idle if it is the only one: a receive must be posted first.
                return self.messages.len() > 1;
            }
            Err(Refusal::NotReady) => EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR,
        };
        let (req_id, op) = (request.req_id, request.op);
        self.complete_send(from, req_id, op, status);
        true
    }
}
