//! Messages at their target: receives are taken, exposed memory is read and written.

use uverbs_kernel_abi::comp_cntr::{
    IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ,
    IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE,
};
use uverbs_kernel_abi::efa::io::{
    EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH, EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN, EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER, EFA_IO_RDMA_READ, EFA_IO_RX_DESC_LAST_MASK,
    EFA_IO_RX_DESC_LKEY_MASK,
};
use uverbs_kernel_abi::mr::{IB_UVERBS_ACCESS_REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_WRITE};

use super::counters::COMPLETED;
use super::memory;
use super::message::{Checked, Received, Refusal};
use super::objects::Object;
use super::parcel::Parcel;
use super::request::Piece;
use super::world::World;

/// Bytes in front of a datagram of UD.
const GRH: u64 = 40;
/// Address handle of an unknown sender.
pub(super) const UNKNOWN: u16 = 0xffff;
/// Status of a key that does not cover the piece with the right.
const BAD_ADDRESS: Refusal = Refusal::Failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS);

impl World {
    /// Carries out a message at a device. Returns the bytes of a READ.
    pub(crate) fn arrive(&mut self, board: usize, parcel: &Parcel) -> Checked<Vec<u8>> {
        let found = self.objects.iter().find_map(|(handle, (owner, object))| match object {
            Object::Qp(qp) if owner.board == board && qp.qpn == parcel.qpn => {
                let is_same = qp.is_srd == parcel.is_srd && qp.qkey == parcel.qkey;
                (is_same && qp.receives()).then_some((*handle, qp.pd))
            }
            _ => None,
        });
        let (target, pd) =
            found.ok_or(Refusal::Failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN))?;
        let back = self.ah(board, |ah| ah.gid == parcel.from && ah.pd == pd);
        let received = Received {
            req_id: 0,
            op: parcel.op,
            len: 0,
            ah: back.map_or(UNKNOWN, |ah| ah.number),
            src_qpn: parcel.src_qpn,
            imm: parcel.imm,
            from: parcel.from,
            is_unsolicited: false,
        };
        let Some(remote) = parcel.remote else {
            return self.receive(board, pd, parcel, target, received);
        };
        if back.is_none() {
            return Err(Refusal::Failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER));
        }
        if parcel.op == EFA_IO_RDMA_READ {
            let at = self.find(board, pd, remote, IB_UVERBS_ACCESS_REMOTE_READ);
            let at = at.ok_or(BAD_ADDRESS)?;
            let mut bytes = vec![0; remote.len as usize];
            memory::read(at, &mut bytes).map_err(|_| BAD_ADDRESS)?;
            self.count(target, IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ, COMPLETED);
            return Ok(bytes);
        }
        let at = self.find(board, pd, remote, IB_UVERBS_ACCESS_REMOTE_WRITE).ok_or(BAD_ADDRESS)?;
        let before = self.recvs_taken(target);
        let is_unsolicited = self.qp(target).is_some_and(|qp| qp.is_unsolicited);
        let req_id = match parcel.imm {
            Some(_) if is_unsolicited => Some(0),
            Some(_) => Some(self.take_recv(target).ok_or(Refusal::NotReady)?.0),
            None => None,
        };
        if memory::write(at, &parcel.data).is_err() {
            self.put_recv_back(target, before);
            return Err(BAD_ADDRESS);
        }
        self.count(target, IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE, COMPLETED);
        if let Some(req_id) = req_id {
            let len = remote.len;
            self.complete_recv(target, Received { req_id, len, is_unsolicited, ..received });
        }
        Ok(Vec::new())
    }

    /// Delivers a SEND.
    fn receive(
        &mut self,
        board: usize,
        pd: u32,
        parcel: &Parcel,
        target: u32,
        received: Received,
    ) -> Checked<Vec<u8>> {
        let skip = if parcel.is_srd { 0 } else { GRH };
        let before = self.recvs_taken(target);
        let (req_id, pieces) = self.take_recv(target).ok_or(Refusal::NotReady)?;
        if let Err(refusal) = self.scatter(board, pd, &pieces, skip, &parcel.data) {
            self.put_recv_back(target, before);
            return Err(at_the_peer(refusal));
        }
        let len = (parcel.data.len() as u64 + skip) as u32;
        self.complete_recv(target, Received { req_id, len, ..received });
        Ok(Vec::new())
    }

    /// Elements taken from a receive queue.
    fn recvs_taken(&self, target: u32) -> u32 {
        self.qp(target).map_or(0, |qp| qp.rq.taken)
    }

    /// Puts a taken receive back into its queue.
    fn put_recv_back(&mut self, target: u32, before: u32) {
        if let Some(qp) = self.qp_mut(target) {
            qp.rq.taken = before;
        }
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
}

/// The sender's status for an error of the receiver's.
fn at_the_peer(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH) => {
            Refusal::Failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH)
        }
        Refusal::Failed(_) => BAD_ADDRESS,
        Refusal::NotReady => refusal,
    }
}
