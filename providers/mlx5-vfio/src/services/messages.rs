//! Rings and buffers of a queue of the driver: each send and each receive has a slot of one size.
//!
//! Receives stay posted. Numbers and lengths in completions come from the device, so they are
//! reduced to the rings' and the slots' sizes.

use uverbs_core::order::fence;
use uverbs_mlx5_prm::cmd::mkey::mkc;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::simple::{alloc_pd_out, dealloc_pd_in};
use uverbs_mlx5_prm::cqe::{CqeOpcode, mlx5_cqe64};
use uverbs_mlx5_prm::ctrl::{FmCeSe, MLX5_SEND_WQE_BB, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
use uverbs_mlx5_prm::doorbell::MLX5_BF_OFFSET;
use uverbs_mlx5_prm::opcode::Opcode;
use zerocopy::IntoBytes;

use crate::command::SHORT;
use crate::dma::{Buffer, PAGE};
use crate::error::Error;
use crate::function::Function;
use crate::objects::cq::CqRing;
use crate::objects::destroy;
use crate::objects::region::{create_key, destroy_key};

/// Bytes of a receive WQE: one SGE.
pub(super) const RECEIVE_WQE: usize = size_of::<mlx5_wqe_data_seg>();

/// Sizes of a queue. The receive ring must fill whole pages, or be the only one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) log_receives: u32,
    pub(crate) log_sends: u32,
    /// Log2 of the WQEBBs of a send.
    pub(crate) log_wqebbs: u32,
    /// Bytes of the longest received and sent message.
    pub(crate) receive_room: usize,
    pub(crate) send_room: usize,
}

impl Sizes {
    fn receives(&self) -> usize {
        1 << self.log_receives
    }

    /// Bytes of the receive ring, as many as its pages have.
    fn receive_ring(&self) -> usize {
        (self.receives() * RECEIVE_WQE).next_multiple_of(PAGE)
    }

    /// Log2 of the WQEBBs of the send ring.
    pub(crate) fn log_ring(&self) -> u32 {
        self.log_sends + self.log_wqebbs
    }

    fn send_ring(&self) -> usize {
        (MLX5_SEND_WQE_BB << self.log_ring()).next_multiple_of(PAGE)
    }
}

/// Event of a queue.
#[derive(Debug)]
pub(crate) enum Done {
    /// A message arrived.
    Received(mlx5_cqe64, Vec<u8>),
    /// A send left.
    Sent,
    /// A WQE failed, and with it the queue.
    Failed,
}

/// Rings and buffers.
#[derive(Debug)]
pub(crate) struct Messages {
    sizes: Sizes,
    pub(crate) pd: u32,
    pub(crate) cq: CqRing,
    /// Receive ring, send ring, then a page with the doorbell record.
    rings: Buffer,
    /// Slots of receives, then of sends.
    slots: Buffer,
    key: u32,
    received: u32,
    sent: u32,
    /// Sends without a completion.
    in_flight: u32,
}

impl Messages {
    pub(crate) fn create(function: &Function, sizes: Sizes) -> Result<Self, Error> {
        let output = function.command(CmdOpcode::ALLOC_PD, 0, &[0; SHORT], alloc_pd_out::SIZE)?;
        let pd = alloc_pd_out::PD.get32(&output);
        let most = sizes.log_receives.max(sizes.log_sends) + 1;
        let made = (|| {
            let rings = function.buffer(sizes.receive_ring() + sizes.send_ring() + PAGE)?;
            let sends = sizes.send_room << sizes.log_sends;
            let slots = function.buffer(sizes.receives() * sizes.receive_room + sends)?;
            let cq = CqRing::create(function, most)?;
            let key = create_key(function, pd, &slots, &[mkc::LR, mkc::LW]);
            let key = key.inspect_err(|_| cq.destroy(function))?;
            let (received, sent, in_flight) = (0, 0, 0);
            Ok(Self { sizes, pd, cq, rings, slots, key, received, sent, in_flight })
        })();
        made.inspect_err(|_| free(function, pd))
    }

    /// Destroys what [`Messages::create`] made. The queues that use it must be destroyed; if that
    /// was refused (`in_use`), its memory stays allocated.
    pub(crate) fn destroy(&self, function: &Function, in_use: bool) {
        if in_use {
            [&self.rings, &self.slots].iter().for_each(|memory| memory.bury());
        }
        destroy_key(function, self.key, &self.slots);
        self.cq.destroy(function);
        free(function, self.pd);
    }

    /// Address for the device of the doorbell record.
    pub(crate) fn record(&self) -> u64 {
        self.rings.iova() + self.record_at() as u64
    }

    fn record_at(&self) -> usize {
        self.rings.len() - PAGE
    }

    /// Pages of the receive ring, and of the send ring.
    pub(crate) fn pages(&self) -> (Vec<u8>, Vec<u8>) {
        let all = self.rings.page_addresses().flat_map(u64::to_be_bytes).collect::<Vec<_>>();
        let (rq, rest) = all.split_at(self.sizes.receive_ring() / PAGE * 8);
        (rq.to_vec(), rest[..rest.len() - 8].to_vec())
    }

    /// Posts all receives.
    pub(crate) fn post_receives(&mut self) -> Result<(), Error> {
        (0..self.sizes.receives()).try_for_each(|_| self.post_receive())
    }

    fn post_receive(&mut self) -> Result<(), Error> {
        let slot = self.received as usize & (self.sizes.receives() - 1);
        let room = self.sizes.receive_room;
        let address = self.slots.iova() + (slot * room) as u64;
        let data = mlx5_wqe_data_seg::new(room as u32, self.key, address);
        self.rings.write(slot * RECEIVE_WQE, data.as_bytes())?;
        self.received = self.received.wrapping_add(1);
        fence::wqe_before_record();
        self.rings.store_record(self.record_at(), self.received & 0xffff)
    }

    /// True if a send has a slot.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < 1 << self.sizes.log_sends
    }

    /// True if a send is in flight.
    pub(crate) fn is_sending(&self) -> bool {
        self.in_flight != 0
    }

    /// Sends a message from the queue `number`. `head`: segments between control and data segment.
    pub(crate) fn send(
        &mut self,
        function: &Function,
        number: u32,
        head: &[u8],
        message: &[u8],
    ) -> Result<(), Error> {
        let (value, limit) = (message.len() as u64, self.sizes.send_room as u64);
        if value > limit {
            return Err(Error::Limit { what: "bytes of a message", value, limit });
        }
        let slot = self.sent as usize & ((1 << self.sizes.log_sends) - 1);
        let at = self.sizes.receives() * self.sizes.receive_room + slot * self.sizes.send_room;
        self.slots.write(at, message)?;
        let wqebb = self.sent << self.sizes.log_wqebbs;
        let segments = 2 + head.len().div_ceil(16) as u8;
        let index = OpmodIdxOpcode::ZERO.with_wqe_index(wqebb as u16).with_opcode(Opcode::SEND.0);
        let queue = QpnDs::ZERO.with_qpn(number).with_ds(segments);
        let signaled = FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE);
        let ctrl = mlx5_wqe_ctrl_seg::new(index, queue, signaled, 0);
        let address = self.slots.iova() + at as u64;
        let data = mlx5_wqe_data_seg::new(message.len() as u32, self.key, address);
        let place = self.sizes.receive_ring() + slot * (MLX5_SEND_WQE_BB << self.sizes.log_wqebbs);
        self.rings.write(place, &[ctrl.as_bytes(), head, data.as_bytes()].concat())?;
        self.sent = self.sent.wrapping_add(1);
        self.in_flight += 1;
        fence::wqe_before_record();
        let sent = self.sent << self.sizes.log_wqebbs;
        self.rings.store_record(self.record_at() + 4, sent & 0xffff)?;
        // The doorbell is the first eight bytes of the WQE (PRM "Doorbell").
        let word = u64::from(index.0) << 32 | u64::from(queue.0);
        function.ring_soon(MLX5_BF_OFFSET as u64, word)
    }

    /// Takes a completion. Without one, asks for an event at the next.
    pub(crate) fn poll(&mut self, function: &Function) -> Result<Option<Done>, Error> {
        let cqe = match self.cq.poll()? {
            Some(cqe) => cqe,
            None => {
                self.cq.arm(function)?;
                return Ok(None);
            }
        };
        match cqe.opcode() {
            CqeOpcode::REQ => {
                self.in_flight = self.in_flight.saturating_sub(1);
                Ok(Some(Done::Sent))
            }
            CqeOpcode::RESP_SEND | CqeOpcode::RESP_SEND_IMM => {
                let slot = usize::from(cqe.wqe_counter.get()) & (self.sizes.receives() - 1);
                let len = (cqe.byte_cnt.get() as usize).min(self.sizes.receive_room);
                let mut message = vec![0; len];
                self.slots.read(slot * self.sizes.receive_room, &mut message)?;
                self.post_receive()?;
                Ok(Some(Done::Received(cqe, message)))
            }
            _ => Ok(Some(Done::Failed)),
        }
    }
}

fn free(function: &Function, pd: u32) {
    destroy(function, CmdOpcode::DEALLOC_PD, (dealloc_pd_in::PD, pd), None);
}
