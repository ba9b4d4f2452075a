//! Objects of the device.

use uverbs_kernel_abi::qp::{
    IB_QPS_ERR, IB_QPS_RTR, IB_QPS_RTS, IB_QPS_SQD, IB_QPS_SQE, ib_uverbs_qp_cap,
};

use super::area::Area;
use super::channel::Channel;
use super::counters::Counter;

/// An object of an open file.
#[derive(Debug)]
pub(crate) enum Object {
    Pd,
    Mr(Mr),
    Ah(Ah),
    Channel(Channel),
    Counter(Counter),
    Cq(Cq),
    Qp(Box<Qp>),
}

/// A memory region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mr {
    pub(crate) pd: u32,
    /// First address by which work requests name it.
    pub(crate) iova: u64,
    /// Address in the program's memory.
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) access: u32,
    /// lkey and rkey: 24 bits.
    pub(crate) key: u32,
}

/// An address handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ah {
    pub(crate) pd: u32,
    pub(crate) gid: [u8; 16],
    pub(crate) number: u16,
}

/// One ring of a completion queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SubCq {
    /// Entries written.
    pub(crate) produced: u32,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) ring: Area,
    pub(crate) register: Area,
    /// Entries of a ring.
    pub(crate) entries: u32,
    pub(crate) entry_size: u32,
    /// Entries have the GID of a sender without an address handle.
    pub(crate) has_gids: bool,
    pub(crate) rings: Vec<SubCq>,
    pub(crate) channel: Option<u32>,
    pub(crate) user_handle: u64,
    /// Value of the register that was acted on last.
    pub(crate) seen: u32,
    pub(crate) armed: bool,
    /// Events sent.
    pub(crate) events: u32,
}

#[cfg(test)]
impl Cq {
    /// A queue of 64 entries of 32 bytes.
    pub(crate) fn sample(channel: Option<u32>) -> Self {
        Self {
            ring: Area::new("softefa-test", 64 * 32).unwrap(),
            register: Area::new("softefa-test", size_of::<u32>()).unwrap(),
            entries: 64,
            entry_size: 32,
            has_gids: false,
            rings: vec![SubCq::default()],
            channel,
            user_handle: 1,
            seen: 0,
            armed: false,
            events: 0,
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) pd: u32,
    pub(crate) qpn: u16,
    pub(crate) is_srd: bool,
    /// A WRITE with immediate data takes no receive.
    pub(crate) is_unsolicited: bool,
    pub(crate) state: u8,
    pub(crate) qkey: u32,
    pub(crate) sq_psn: u32,
    pub(crate) rnr_retry: u8,
    pub(crate) cap: ib_uverbs_qp_cap,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    /// Operations that are counted, with the handle of their counter.
    pub(crate) counters: Vec<(u32, u32)>,
    pub(crate) sq: SendQueue,
    pub(crate) rq: RecvQueue,
}

/// A send queue.
#[derive(Debug)]
pub(crate) struct SendQueue {
    pub(crate) llq: Area,
    /// Offset of the first element.
    pub(crate) offset: usize,
    pub(crate) register: Area,
    pub(crate) elements: u32,
    pub(crate) wqe: usize,
    /// Elements taken, free running.
    pub(crate) taken: u32,
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    pub(crate) ring: Area,
    pub(crate) register: Area,
    pub(crate) elements: u32,
    /// Elements taken, free running.
    pub(crate) taken: u32,
}

impl Qp {
    /// True if it takes messages.
    pub(crate) fn receives(&self) -> bool {
        [IB_QPS_RTR, IB_QPS_RTS, IB_QPS_SQD, IB_QPS_SQE].contains(&self.state)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state == IB_QPS_ERR
    }
}

impl SendQueue {
    /// Restarts at the first element.
    pub(crate) fn reset(&mut self) {
        self.taken = 0;
        self.register.write(0, &[0; 4]);
    }

    /// Elements that the doorbell announced beyond those taken.
    pub(crate) fn announced(&self) -> u32 {
        (self.register.register(0).wrapping_sub(self.taken)) & 0xffff
    }
}

impl RecvQueue {
    /// Restarts at the first element.
    pub(crate) fn reset(&mut self) {
        self.taken = 0;
        self.register.write(0, &[0; 4]);
    }

    /// Elements that the doorbell announced beyond those taken.
    pub(crate) fn announced(&self) -> u32 {
        (self.register.register(0).wrapping_sub(self.taken)) & 0xffff
    }
}
