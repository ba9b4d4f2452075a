//! Completions and events.

use uverbs_kernel_abi::comp_cntr::IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV;
use uverbs_kernel_abi::efa::io::{
    EFA_IO_CDESC_COMMON_HAS_IMM_MASK, EFA_IO_CDESC_COMMON_OP_TYPE_MASK,
    EFA_IO_CDESC_COMMON_PHASE_MASK, EFA_IO_CDESC_COMMON_Q_TYPE_MASK,
    EFA_IO_CDESC_COMMON_UNSOLICITED_MASK, EFA_IO_COMP_STATUS_FLUSHED, EFA_IO_COMP_STATUS_OK,
    EFA_IO_RDMA_WRITE, EFA_IO_RECV_QUEUE, EFA_IO_RX_DESC_FIRST_MASK, EFA_IO_SEND,
    EFA_IO_SEND_QUEUE, efa_io_cdesc_common, efa_io_rx_cdesc, efa_io_rx_cdesc_ex,
};
use uverbs_kernel_abi::qp::IB_QPS_ERR;
use zerocopy::IntoBytes;

use super::arrive::UNKNOWN;
use super::counters::{self, COMPLETED, FAILED};
use super::message::{Late, Received};
use super::objects::{Cq, Object};
use super::request;
use super::world::World;

/// Register of a completion queue (rdma-core `efa_io_regs_defs.h`).
const ARM: u32 = 1 << 31;
const SEQUENCE: u32 = 29;

/// Offset of the byte with the phase.
const FLAGS: usize = std::mem::offset_of!(efa_io_cdesc_common, flags);

impl World {
    /// Completes a send of a queue pair.
    pub(crate) fn complete_send(&mut self, qp: u32, req_id: u16, op: u8, status: u8) {
        let Some((qpn, cq)) = self.qp(qp).map(|qp| (qp.qpn, qp.send_cq)) else { return };
        let common = common(req_id, status, EFA_IO_SEND_QUEUE, op, qpn);
        let base = efa_io_rx_cdesc { common, ..Default::default() };
        let entry = if status == EFA_IO_COMP_STATUS_OK { COMPLETED } else { FAILED };
        self.count(qp, counters::sent(op), entry);
        self.write(cq, 0, efa_io_rx_cdesc_ex { base, u: [0; 16] });
        if self.repeats {
            self.write(cq, 0, efa_io_rx_cdesc_ex { base, u: [0; 16] });
        }
    }

    /// Completes a receive of a queue pair, at a later step: receives complete in any order.
    pub(crate) fn complete_recv(&mut self, qp: u32, received: Received) {
        self.late.push(Late { qp, received });
    }

    /// Writes a completion of a receive, which the seed chooses. False if all are written.
    pub(crate) fn release_one(&mut self) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let index = self.random(self.late.len());
        let late = self.late.swap_remove(index);
        self.write_recv(late);
        true
    }

    fn write_recv(&mut self, Late { qp, received }: Late) {
        let Some((qpn, cq)) = self.qp(qp).map(|qp| (qp.qpn, qp.recv_cq)) else { return };
        let Received { req_id, op, len, ah, src_qpn, imm, from, is_unsolicited } = received;
        let mut common = common(req_id, 0, EFA_IO_RECV_QUEUE, op, qpn);
        if imm.is_some() {
            common.flags |= EFA_IO_CDESC_COMMON_HAS_IMM_MASK;
        }
        if is_unsolicited {
            common.flags |= EFA_IO_CDESC_COMMON_UNSOLICITED_MASK;
        }
        let base = efa_io_rx_cdesc {
            common,
            length: (len as u16).to_le(),
            ah: ah.to_le(),
            src_qp_num: src_qpn.to_le(),
            imm: imm.unwrap_or(0).to_le(),
        };
        let mut u = [0; 16];
        if op == EFA_IO_RDMA_WRITE {
            u[..2].copy_from_slice(&((len >> 16) as u16).to_le_bytes());
        } else if ah == UNKNOWN && self.cq_mut(cq).is_some_and(|cq| cq.has_gids) {
            u = from;
        }
        if !is_unsolicited {
            self.count(qp, IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV, COMPLETED);
        }
        // A repeated or forged unsolicited completion looks like another one.
        let repeats = self.repeats && !is_unsolicited;
        if repeats {
            // Forged: of another queue pair that had the number.
            let req_id = (received.req_id ^ 0x8000).to_le();
            let common = efa_io_cdesc_common { req_id, ..common };
            let base = efa_io_rx_cdesc { common, length: 1u16.to_le(), ..base };
            self.write(cq, usize::MAX, efa_io_rx_cdesc_ex { base, u });
        }
        self.write(cq, usize::MAX, efa_io_rx_cdesc_ex { base, u });
        if repeats {
            self.write(cq, usize::MAX, efa_io_rx_cdesc_ex { base, u });
        }
    }

    /// Writes an entry to a ring of a completion queue, at most the last one; its phase last.
    fn write(&mut self, cq: u32, ring: usize, entry: efa_io_rx_cdesc_ex) {
        let Some(cq) = self.cq_mut(cq) else { return };
        let ring = ring.min(cq.rings.len() - 1);
        let produced = cq.rings[ring].produced;
        cq.rings[ring].produced = produced.wrapping_add(1);
        let mut bytes = entry.as_bytes().to_vec();
        bytes.truncate(cq.entry_size as usize);
        let is_odd = produced >> cq.entries.trailing_zeros() & 1 != 0;
        bytes[FLAGS] |= if is_odd { 0 } else { EFA_IO_CDESC_COMMON_PHASE_MASK };
        let index = ring as u32 * cq.entries + (produced & (cq.entries - 1));
        let at = (index * cq.entry_size) as usize;
        // Everything but the flags, then the flags.
        cq.ring.write(at, &bytes[..FLAGS]);
        cq.ring.write(at + FLAGS + 1, &bytes[FLAGS + 1..]);
        cq.ring.write(at + FLAGS, &bytes[FLAGS..=FLAGS]);
    }

    /// Brings a queue pair to the error state: what was rung is flushed.
    pub(crate) fn fail(&mut self, handle: u32) {
        for late in self.late.extract_if(.., |late| late.qp == handle).collect::<Vec<_>>() {
            self.write_recv(late);
        }
        let waiting = self.take_outstanding(|of| of.message.from == handle);
        let own = self.messages.extract_if(.., |message| message.from == handle);
        let own = own.chain(waiting).map(|message| (message.request.req_id, message.request.op));
        let mut sends = own.collect::<Vec<_>>();
        let Some(qp) = self.qp_mut(handle) else { return };
        qp.state = IB_QPS_ERR;
        for _ in 0..qp.sq.announced().min(qp.sq.elements) {
            let (_, req_id, op) = request::head(&qp.next_send());
            sends.push((req_id, op));
        }
        let mut receives = Vec::new();
        for _ in 0..qp.rq.announced().min(qp.rq.elements) {
            let sge = qp.next_recv();
            if u32::from_le(sge.lkey_ctrl) & EFA_IO_RX_DESC_FIRST_MASK != 0 {
                receives.push(u16::from_le(sge.req_id));
            }
        }
        let (qpn, recv_cq) = (qp.qpn, qp.recv_cq);
        for (req_id, op) in sends {
            self.complete_send(handle, req_id, op, EFA_IO_COMP_STATUS_FLUSHED);
        }
        for req_id in receives {
            let common =
                common(req_id, EFA_IO_COMP_STATUS_FLUSHED, EFA_IO_RECV_QUEUE, EFA_IO_SEND, qpn);
            let base = efa_io_rx_cdesc { common, ..Default::default() };
            self.count(handle, IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV, FAILED);
            self.write(recv_cq, usize::MAX, efa_io_rx_cdesc_ex { base, u: [0; 16] });
        }
    }

    /// Looks at the registers of completion queues, and raises the events that are due.
    pub(crate) fn raise_events(&mut self) {
        for handle in self.handles(|object| matches!(object, Object::Cq(_))) {
            let board = self.board_of(handle).and_then(|board| self.boards.get(board));
            let assumes_arms = board.is_some_and(|board| board.assumes_arms);
            let Some(cq) = self.cq_mut(handle) else { continue };
            let Some((channel, user_handle)) = cq.event(assumes_arms) else { continue };
            // A queue whose event finds no room in the pipe stays armed.
            if let Some(channel) = self.channel_mut(channel)
                && channel.report(handle, user_handle)
                && let Some(cq) = self.cq_mut(handle)
            {
                (cq.armed, cq.events) = (false, cq.events.wrapping_add(1));
            }
        }
    }
}

impl Cq {
    /// The event that is due: its channel, and the queue's user handle.
    ///
    /// The register is memory, and shows the last store alone. With `assumes_arms` each store
    /// counts as one after an arm: a program that has taken the last event, as the sequence shows,
    /// has at most one event too many, as after an arm that a poll overtook.
    fn event(&mut self, assumes_arms: bool) -> Option<(u32, u64)> {
        let value = self.register.register(0);
        if value != self.seen {
            self.seen = value;
            // Arms with the number of an earlier event are void.
            let is_current = value >> SEQUENCE & 3 == self.events & 3;
            self.armed |= is_current && (assumes_arms || value & ARM != 0);
        }
        let produced = self.rings.iter().fold(0, |sum: u32, ring| sum.wrapping_add(ring.produced));
        let has_new = produced as u16 != value as u16;
        let channel = self.channel?;
        (self.armed && has_new).then_some((channel, self.user_handle))
    }
}

fn common(req_id: u16, status: u8, queue: u8, op: u8, qpn: u16) -> efa_io_cdesc_common {
    let flags = queue << EFA_IO_CDESC_COMMON_Q_TYPE_MASK.trailing_zeros()
        | op << EFA_IO_CDESC_COMMON_OP_TYPE_MASK.trailing_zeros();
    efa_io_cdesc_common { req_id: req_id.to_le(), status, flags, qp_num: qpn.to_le() }
}

#[cfg(test)]
mod tests {
    use super::super::channel::Channel;
    use super::super::world::{Fabric, Owner};
    use super::*;

    /// Handles of a channel and its completion queue, and of another queue of the channel.
    const CHANNEL: u32 = 7;
    const CQ: u32 = 8;
    const OTHER: u32 = 9;

    #[test]
    fn an_event_waits_for_room_in_the_pipe() {
        let fabric = Fabric::new(1);
        let mut world = fabric.lock();
        let (theirs, channel) = Channel::open().unwrap();
        let owner = Owner { file: 0, board: 0 };
        world.objects.insert(CHANNEL, (owner, Object::Channel(channel)));
        world.objects.insert(CQ, (owner, Object::Cq(Cq::sample(Some(CHANNEL)))));
        while world.channel_mut(CHANNEL).unwrap().report(OTHER, 0) {}
        world.cq_mut(CQ).unwrap().register.write(0, &ARM.to_le_bytes());
        world.write(CQ, 0, efa_io_rx_cdesc_ex::default());
        world.raise_events();
        let state = |world: &mut World| world.cq_mut(CQ).map(|cq| (cq.armed, cq.events));
        assert_eq!(state(&mut world), Some((true, 0)));
        assert!(world.channel_mut(CHANNEL).unwrap().retract(OTHER) > 0);
        world.raise_events();
        assert_eq!(state(&mut world), Some((false, 1)));
        assert_eq!(world.channel_mut(CHANNEL).unwrap().retract(CQ), 1);
        nix::unistd::close(theirs as i32).unwrap();
    }
}
