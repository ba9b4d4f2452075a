//! Front of a device of rdmavt, Omni-Path's `hfi1`: rings in memory that the program maps, and
//! sends that POST_SEND carries, over the HCA's queues.
//!
//! | file | contents | in Linux |
//! |---|---|---|
//! | `verbs` | commands that differ from mlx5_ib's | `sw/rdmavt/`, `core/uverbs_cmd.c` |
//! | `sends` | work requests become WQEs | `sw/rdmavt/qp.c` |
//! | `receives` | a ring's receives become WQEs | `sw/rdmavt/qp.c`, `srq.c` |
//! | `completions` | CQEs become a ring's entries | `sw/rdmavt/cq.c` |
//! | `memory` | memory of rings | `sw/rdmavt/mmap.c` |
//!
//! The HCA works on WQEs and CQEs, which only the front sees. Before each step of the HCA the front
//! gives it the receives that programs posted; after each step it hands out the completions.

use std::collections::BTreeMap;

use nix::errno::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::wc as ib;
use uverbs_kernel_abi::wc::ib_uverbs_wc;

mod completions;
mod memory;
mod receives;
mod sends;
pub(crate) mod verbs;

pub(crate) use completions::Event;

use self::completions::{Completions, Cqe};
use self::memory::Memory;
use self::receives::Receives;
use self::sends::Sends;
use crate::backend::Backend;
use crate::backend::context::QpState;
use crate::backend::number::{Cqn, Qpn, Queue, Srqn, UarNumber};

/// Most work requests of a queue, SGEs of a work request, and entries of a completion queue.
pub(super) const MAX_WR: u32 = 4095;
pub(super) const MAX_SGE: u32 = 16;
pub(super) const MAX_CQE: u32 = 0xffff;

/// Queues of a queue pair.
#[derive(Debug)]
struct Queues {
    sends: Sends,
    /// Own receives; `None` with a shared queue.
    receives: Option<Receives>,
    srq: Option<Srqn>,
    /// Doorbell record of a queue pair without own receives.
    record: Memory,
    /// The queue pair failed, and its receives were flushed: later ones stay in the ring
    /// (`rvt_error_qp`).
    closed: bool,
}

impl Queues {
    /// Memory of the doorbell record, whose second word is the send queue's.
    fn doorbells(&self) -> &Memory {
        self.receives.as_ref().map_or(&self.record, Receives::doorbells)
    }

    fn doorbell_record(&self) -> u64 {
        self.doorbells().addr(0)
    }

    /// Rings the send queue.
    fn ring(&self, hca: &mut dyn Backend, qpn: Qpn) {
        self.sends.ring(hca, self.doorbells(), qpn);
    }
}

/// Ring that a program may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapped {
    Cq(Cqn),
    Qp(Qpn),
    Srq(Srqn),
}

/// Rings of a device.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    cqs: BTreeMap<Cqn, Completions>,
    qps: BTreeMap<Qpn, Queues>,
    srqs: BTreeMap<Srqn, Receives>,
    /// Mappings to come: file and offset. Each is mapped once (`rvt_mmap`).
    pending: BTreeMap<(u64, u64), Mapped>,
    /// Offset of the last mapping, in pages.
    last_offset: u64,
    last_uar: u32,
    /// The last command sent a lone work request.
    pub(super) lone_send: bool,
}

impl Rings {
    /// Number for the doorbells of one queue pair or completion queue.
    fn uar(&mut self) -> UarNumber {
        self.last_uar += 1;
        UarNumber(self.last_uar)
    }

    /// Offset at which `file` maps a ring (`rvt_create_mmap_info`).
    fn offset(&mut self, file: u64, of: Mapped) -> u64 {
        self.pending.retain(|_, pending| *pending != of);
        self.last_offset += 1;
        // A ring has fewer pages than this.
        let offset = self.last_offset << 32;
        self.pending.insert((file, offset), of);
        offset
    }

    /// Maps a ring (`rvt_mmap`).
    ///
    /// # Errors
    ///
    /// `EINVAL` for an offset that is not pending in this file, or a length above the ring's.
    pub(crate) fn map(&mut self, file: u64, len: usize, offset: u64) -> Result<Pages, Errno> {
        let of = *self.pending.get(&(file, offset)).ok_or(Errno::EINVAL)?;
        let ring = match of {
            Mapped::Cq(cqn) => self.cqs.get(&cqn).map(|cq| &cq.ring),
            Mapped::Qp(qpn) => {
                self.qps.get(&qpn).and_then(|qp| qp.receives.as_ref()).map(|own| &own.ring)
            }
            Mapped::Srq(srqn) => self.srqs.get(&srqn).map(|srq| &srq.ring),
        };
        let pages = ring.ok_or(Errno::EINVAL)?.memory.map(len)?;
        self.pending.remove(&(file, offset));
        Ok(pages)
    }

    /// Forgets destroyed objects.
    pub(crate) fn forget_cq(&mut self, cqn: Cqn) {
        self.cqs.remove(&cqn);
    }

    pub(crate) fn forget_qp(&mut self, qpn: Qpn) {
        self.qps.remove(&qpn);
    }

    pub(crate) fn forget_srq(&mut self, srqn: Srqn) {
        self.srqs.remove(&srqn);
    }

    /// The queue pair was reset.
    pub(crate) fn reset(&mut self, qpn: Qpn) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            qp.sends.reset();
            qp.doorbells().store(4, 0);
            if let Some(own) = &mut qp.receives {
                own.reset();
            }
            qp.closed = false;
        }
    }

    /// Gives the HCA the receives that programs posted. True if there was one.
    pub(crate) fn pump(&mut self, hca: &dyn Backend) -> bool {
        let mut any = false;
        for srq in self.srqs.values_mut() {
            any |= srq.pump();
        }
        for (&qpn, qp) in &mut self.qps {
            let state = hca.query_qp(Queue::Qp(qpn)).map_or(QpState::Reset, |(state, _)| state);
            if qp.closed || state == QpState::Reset {
                continue;
            }
            if let Some(own) = &mut qp.receives {
                any |= own.pump();
            }
            qp.closed = state == QpState::Err;
        }
        any
    }

    /// Hands out what the HCA completed. Returns the events of completion queues.
    pub(crate) fn collect(&mut self, hca: &dyn Backend) -> Vec<(Cqn, Event)> {
        let mut events = Vec::new();
        let cqns: Vec<_> = self.cqs.keys().copied().collect();
        for cqn in cqns {
            let produced = hca.produced(cqn);
            while let Some(cqe) = self.cqs.get_mut(&cqn).and_then(|cq| cq.next(produced)) {
                let Some((wc, solicited)) = self.entry(&cqe) else { continue };
                let Some(cq) = self.cqs.get_mut(&cqn) else { continue };
                events.extend(cq.enter(&wc, solicited).map(|event| (cqn, event)));
            }
        }
        events
    }

    /// Entry of a CQE, and whether it fires a request for solicited events; `None` for a send
    /// without completion.
    fn entry(&mut self, cqe: &Cqe) -> Option<(ib_uverbs_wc, bool)> {
        let qp = self.qps.get_mut(&Qpn(cqe.qpn))?;
        if !cqe.is_send() {
            let receives = match qp.srq {
                Some(srqn) => self.srqs.get_mut(&srqn)?,
                None => qp.receives.as_mut()?,
            };
            let wr_id = receives.complete(cqe.wqe);
            return Some((cqe.receive(wr_id), cqe.is_solicited()));
        }
        let sent = qp.sends.flying.pop_front()?;
        let failed = cqe.status != ib::IB_WC_SUCCESS;
        // `rvt_qp_complete_swqe`.
        let wc = ib_uverbs_wc {
            wr_id: sent.wr_id,
            status: cqe.status,
            opcode: sent.opcode,
            byte_len: sent.bytes,
            qp_num: cqe.qpn,
            ..Default::default()
        };
        (sent.signaled || failed).then_some((wc, failed))
    }
}
