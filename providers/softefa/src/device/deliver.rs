//! Messages: taken from send queues, and delivered in an order that the seed decides.

use uverbs_kernel_abi::efa::io::{
    EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH, EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_AH,
    EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY, EFA_IO_COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE,
    EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP, EFA_IO_COMP_STATUS_OK,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS, EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH, EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER, EFA_IO_RDMA_READ, EFA_IO_RDMA_WRITE,
    EFA_IO_RX_DESC_LAST_MASK, EFA_IO_RX_DESC_LKEY_MASK, efa_io_rx_desc,
};
use uverbs_kernel_abi::efa::{EFA_QUERY_DEVICE_CAPS_RDMA_READ, EFA_QUERY_DEVICE_CAPS_RDMA_WRITE};
use uverbs_kernel_abi::mr::{
    IB_UVERBS_ACCESS_LOCAL_WRITE, IB_UVERBS_ACCESS_REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_WRITE,
};
use uverbs_kernel_abi::qp::IB_QPS_RTS;
use zerocopy::FromBytes;

use super::complete::Received;
use super::memory;
use super::objects::{Object, Qp};
use super::request::{self, Content, Piece, Request};
use super::world::{MAX_MESSAGE, World};

/// Bytes in front of a datagram of UD.
const GRH: u64 = 40;
/// Address handle of an unknown sender.
const UNKNOWN: u16 = 0xffff;
/// RNR retries that have no end.
const FOREVER: u8 = 7;

/// A work request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The sending queue pair.
    pub(crate) from: u32,
    pub(crate) request: Request,
    /// Deliveries that found no receive.
    tries: u8,
}

/// Result of a delivery.
enum Outcome {
    Done,
    Failed(u8),
    /// The peer has no receive.
    NotReady,
}

type Checked<T> = Result<T, Outcome>;

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
                Ok(request) => self.messages.push(Message { from: handle, request, tries: 0 }),
                Err(status) => self.complete_send(handle, req_id, op, status),
            }
        }
    }

    /// Delivers one message, which the seed chooses. False without messages.
    pub(crate) fn deliver_one(&mut self) -> bool {
        if self.messages.is_empty() {
            return false;
        }
        let index = self.random(self.messages.len());
        let mut message = self.messages.swap_remove(index);
        let (from, req_id, op) = (message.from, message.request.req_id, message.request.op);
        let Some(retries) = self.qp(from).map(|qp| qp.rnr_retry) else { return true };
        let outcome = self.deliver(from, &message.request).unwrap_or_else(|outcome| outcome);
        let status = match outcome {
            Outcome::Done => EFA_IO_COMP_STATUS_OK,
            Outcome::Failed(status) => status,
            Outcome::NotReady if retries == FOREVER || message.tries < retries => {
                message.tries = message.tries.saturating_add(1);
                self.messages.push(message);
                // Idle if it is the only one: a receive must be posted first.
                return self.messages.len() > 1;
            }
            Outcome::NotReady => EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR,
        };
        self.complete_send(from, req_id, op, status);
        true
    }

    fn deliver(&mut self, from: u32, request: &Request) -> Checked<Outcome> {
        const BAD_AH: u8 = EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_AH;
        let failed = Outcome::Failed;
        let (board, qp) = (self.board_of(from), self.qp(from));
        let (Some(board), Some(qp)) = (board, qp) else { return Ok(Outcome::Done) };
        let (pd, qpn, is_srd) = (qp.pd, qp.qpn, qp.is_srd);
        let needed = match request.op {
            EFA_IO_RDMA_READ => EFA_QUERY_DEVICE_CAPS_RDMA_READ,
            EFA_IO_RDMA_WRITE => EFA_QUERY_DEVICE_CAPS_RDMA_WRITE,
            _ => 0,
        };
        if self.boards[board].caps & needed != needed || (needed != 0 && !is_srd) {
            return Err(failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP));
        }
        if needed == 0 && request.len() > u64::from(MAX_MESSAGE) {
            return Err(failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH));
        }
        let fits = |ah: &super::objects::Ah| ah.number == request.ah && ah.pd == pd;
        let to = self.ah(board, fits).ok_or(failed(BAD_AH))?;
        let peer = self.boards.iter().position(|board| board.gid == to.gid);
        let peer = match peer {
            Some(peer) => peer,
            // A datagram is lost.
            None if !is_srd => return Ok(Outcome::Done),
            None => return Err(failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE)),
        };
        let target = self.objects.iter().find_map(|(handle, (owner, object))| match object {
            Object::Qp(qp) if owner.board == peer && qp.qpn == request.qpn => {
                let takes = qp.receives() && qp.is_srd == is_srd && qp.qkey == request.qkey;
                takes.then_some(*handle)
            }
            _ => None,
        });
        let own_gid = self.boards[board].gid;
        let back = self.ah(peer, |ah| ah.gid == own_gid).map_or(UNKNOWN, |ah| ah.number);
        let Some(target) = target else {
            // The data is read whatever becomes of it.
            self.read(board, pd, &request.content)?;
            return match is_srd {
                true => Err(failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN)),
                false => Ok(Outcome::Done),
            };
        };
        if needed != 0 && back == UNKNOWN {
            return Err(failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER));
        }
        let received = Received {
            req_id: 0,
            op: request.op,
            len: 0,
            ah: back,
            src_qpn: qpn,
            imm: request.imm,
        };
        self.execute(board, pd, request, (peer, target), received)
    }

    /// Carries out a work request at its target.
    fn execute(
        &mut self,
        board: usize,
        pd: u32,
        request: &Request,
        (peer, target): (usize, u32),
        mut received: Received,
    ) -> Checked<Outcome> {
        let failed = Outcome::Failed;
        match request.remote {
            None => self.send(board, pd, request, (peer, target), received),
            Some(remote) if request.op == EFA_IO_RDMA_READ => {
                let at = self.remote(peer, target, remote, IB_UVERBS_ACCESS_REMOTE_READ)?;
                let mut bytes = vec![0; remote.len as usize];
                memory::read(at, &mut bytes)
                    .map_err(|_| failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS))?;
                let Content::Pieces(pieces) = &request.content else { return Ok(Outcome::Done) };
                self.scatter(board, pd, pieces, 0, &bytes)?;
                Ok(Outcome::Done)
            }
            Some(remote) => {
                let at = self.remote(peer, target, remote, IB_UVERBS_ACCESS_REMOTE_WRITE)?;
                let bytes = self.read(board, pd, &request.content)?;
                if request.imm.is_some() {
                    let (req_id, _) = self.take_recv(target).ok_or(Outcome::NotReady)?;
                    (received.req_id, received.len) = (req_id, remote.len);
                }
                memory::write(at, &bytes)
                    .map_err(|_| failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS))?;
                if request.imm.is_some() {
                    self.complete_recv(target, received);
                }
                Ok(Outcome::Done)
            }
        }
    }

    /// Delivers a SEND.
    fn send(
        &mut self,
        board: usize,
        pd: u32,
        request: &Request,
        (peer, target): (usize, u32),
        mut received: Received,
    ) -> Checked<Outcome> {
        let bytes = self.read(board, pd, &request.content)?;
        let Some((is_srd, target_pd)) = self.qp(target).map(|qp| (qp.is_srd, qp.pd)) else {
            return Ok(Outcome::Done);
        };
        let skip = if is_srd { 0 } else { GRH };
        let before = self.qp(target).map_or(0, |qp| qp.rq.taken);
        let Some((req_id, pieces)) = self.take_recv(target) else {
            return if is_srd { Err(Outcome::NotReady) } else { Ok(Outcome::Done) };
        };
        if let Err(outcome) = self.scatter(peer, target_pd, &pieces, skip, &bytes) {
            // The receive stays in the queue.
            if let Some(qp) = self.qp_mut(target) {
                qp.rq.taken = before;
            }
            return if is_srd { Err(at_the_peer(outcome)) } else { Ok(Outcome::Done) };
        }
        received.req_id = req_id;
        received.len = bytes.len() as u32 + skip as u32;
        self.complete_recv(target, received);
        Ok(Outcome::Done)
    }

    /// Takes a receive; `None` from an empty queue.
    fn take_recv(&mut self, target: u32) -> Option<(u16, Vec<Piece>)> {
        let qp = self.qp_mut(target)?;
        let count = qp.rq.announced().min(qp.rq.elements);
        let (mut req_id, mut pieces) = (None, Vec::new());
        for _ in 0..count {
            let sge = qp.next_recv();
            let control = u32::from_le(sge.lkey_ctrl);
            req_id.get_or_insert(u16::from_le(sge.req_id));
            let (low, high) = (u32::from_le(sge.buf_addr_lo), u32::from_le(sge.buf_addr_hi));
            pieces.push(Piece {
                addr: u64::from(high) << 32 | u64::from(low),
                len: u16::from_le(sge.length).into(),
                key: control & EFA_IO_RX_DESC_LKEY_MASK,
            });
            if control & EFA_IO_RX_DESC_LAST_MASK != 0 {
                break;
            }
        }
        Some((req_id?, pieces))
    }

    /// Address of a piece in the program's memory, if its key covers it with these rights.
    fn find(&self, board: usize, pd: u32, piece: Piece, access: u32) -> Option<u64> {
        let mr = self.mr(board, piece.key)?;
        let offset = piece.addr.checked_sub(mr.iova)?;
        let is_inside = offset.checked_add(piece.len.into())? <= mr.len;
        let is_granted = mr.pd == pd && mr.access & access == access;
        (is_inside && is_granted).then(|| mr.addr + offset)
    }

    /// Address of the peer's memory.
    fn remote(&self, peer: usize, target: u32, piece: Piece, access: u32) -> Checked<u64> {
        let pd = self.qp(target).map_or(0, |qp| qp.pd);
        self.find(peer, pd, piece, access)
            .ok_or(Outcome::Failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS))
    }

    /// Bytes of a work request.
    fn read(&self, board: usize, pd: u32, content: &Content) -> Checked<Vec<u8>> {
        let pieces = match content {
            Content::Inline(bytes) => return Ok(bytes.clone()),
            Content::Pieces(pieces) => pieces,
        };
        let bad = || Outcome::Failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY);
        let mut all = Vec::new();
        for piece in pieces {
            let at = self.find(board, pd, *piece, 0).ok_or_else(bad)?;
            let start = all.len();
            all.resize(start + piece.len as usize, 0);
            memory::read(at, &mut all[start..]).map_err(|_| bad())?;
        }
        Ok(all)
    }

    /// Writes bytes to pieces, behind `skip` bytes.
    fn scatter(
        &self,
        board: usize,
        pd: u32,
        pieces: &[Piece],
        skip: u64,
        bytes: &[u8],
    ) -> Checked<()> {
        let room: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        if skip + bytes.len() as u64 > room {
            return Err(Outcome::Failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH));
        }
        let bad = || Outcome::Failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY);
        let (mut skip, mut rest) = (skip, bytes);
        for piece in pieces {
            let at = self.find(board, pd, *piece, IB_UVERBS_ACCESS_LOCAL_WRITE).ok_or_else(bad)?;
            let skipped = skip.min(piece.len.into());
            skip -= skipped;
            let (now, later) =
                rest.split_at(rest.len().min((u64::from(piece.len) - skipped) as usize));
            memory::write(at + skipped, now).map_err(|_| bad())?;
            rest = later;
        }
        Ok(())
    }
}

/// The sender's status for an error of the receiver's.
fn at_the_peer(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH) => {
            Outcome::Failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH)
        }
        Outcome::Failed(_) => Outcome::Failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS),
        other => other,
    }
}
