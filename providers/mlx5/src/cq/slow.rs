//! Slow path of polling: failures, strays, and queue pairs that are not known yet.
//!
//! # Safety
//!
//! The contract in the head of `cq/mod.rs`.
#![allow(unsafe_code, reason = "reads entries that the device writes")]

use uverbs_core::order::fence;
use uverbs_core::provider::{CqOps, Polled};
use uverbs_core::queues::slots::Taken;
use uverbs_mlx5_prm::cqe::{CqeOpcode, OpOwn};

use super::Cq;
use super::tags::Stray;
use super::take::{take_recv, take_send};
use crate::cqe::{Cqe, OwnedCqe};

/// Meaning of a CQE that is not a success of a known queue pair.
enum Odd {
    /// A failed work request, or one that the program wrote itself; the CQE is consumed.
    Ended(Taken),
    /// No completion for the program; the CQE is consumed.
    Stray,
    /// Not written yet, despite its ownership bit.
    Unwritten,
}

impl Cq {
    /// Slow path of [`next`](CqOps::next): failures, and queue pairs that are not known yet. Skips
    /// strays; `None` if no completion is left.
    #[cold]
    #[inline(never)]
    pub(super) fn next_slow(&mut self) -> Option<Polled<Cqe<'_>>> {
        let mut strays = 0;
        while let Some(op_own) = self.owned(self.ci) {
            fence::cqe_owner_before_body();
            let entry = self.entry(self.ci);
            let opcode = CqeOpcode(OpOwn(op_own).opcode());
            let mut known = self.know(entry);
            if !known && self.core.has_messages() {
                // `learn` may sweep, which moves entries and the consumer index, so look again.
                self.learn();
                continue;
            }
            let mut unloaded = Ok(());
            if !known && self.special.is_some() {
                if self.expand(self.ci) {
                    continue;
                }
                known = self.know_special(entry);
                // SAFETY: software owns the entry.
                match unsafe { self.next_of_tags(entry, opcode) } {
                    Some(Ok(polled)) => return Some(polled),
                    Some(Err(Stray)) if strays + 1 < self.size => {
                        strays += 1;
                        continue;
                    }
                    Some(Err(Stray)) => break,
                    // SAFETY: the CQE's queue pair was just looked up.
                    None if known => unloaded = unsafe { self.unload(entry, op_own) },
                    None => {}
                }
            }
            if let Err(why) = unloaded
                // SAFETY: a success of the last queue pair.
                && let failed @ Some(_) = unsafe { self.fail_unloaded(entry, opcode, why) }
            {
                return failed;
            }
            if known
                && unloaded.is_ok()
                && opcode.0 <= CqeOpcode::RESP_SEND_INV.0
                // SAFETY: a success, and its queue pair was just looked up.
                && let Some(polled) = unsafe { self.succeed(entry, op_own) }
            {
                return Some(polled);
            }
            match self.odd(opcode, entry, known) {
                Odd::Ended(Taken { wr_id, frame, .. }) => {
                    // SAFETY: as in `succeed`.
                    let view = unsafe { Cqe::new(entry, opcode) };
                    return Some(Polled { view, wr_id, frame });
                }
                // At most a ring full of strays, so that the loop ends whatever the device does.
                Odd::Stray if strays + 1 < self.size => strays += 1,
                Odd::Stray | Odd::Unwritten => break,
            }
        }
        if strays != 0 {
            self.publish();
        }
        None
    }

    fn stray(&mut self) -> Odd {
        self.strays = self.strays.saturating_add(1);
        Odd::Stray
    }

    /// Classifies the next CQE, which software owns and which is not a success of a known queue
    /// pair. `known`: its queue pair is the last one.
    #[cold]
    #[inline(never)]
    fn odd(&mut self, opcode: CqeOpcode, entry: OwnedCqe, known: bool) -> Odd {
        if opcode == CqeOpcode::INVALID {
            return Odd::Unwritten;
        }
        self.step();
        let failed = opcode == CqeOpcode::REQ_ERR || opcode == CqeOpcode::RESP_ERR;
        if !known || !failed && opcode != CqeOpcode::REQ {
            return self.stray();
        }
        // SAFETY: `known` says that `last` is in a table, which is not changed until the next call.
        let shared = unsafe { &*self.last };
        let taken = if opcode == CqeOpcode::REQ {
            shared.send.take_unrecorded()
        } else if opcode == CqeOpcode::REQ_ERR {
            // SAFETY: software owns the entry, a failed send of the last queue pair that is not
            // taken yet.
            let frame = unsafe { self.refused_change(entry) };
            // SAFETY: the device completed this send, with an error; this is the only poller.
            let taken = unsafe { take_send(shared, entry) };
            let taken = taken.or_else(|| shared.send.take_unrecorded());
            taken.map(|taken| Taken { frame: taken.frame.or(frame), ..taken })
        } else if entry.is_page_fault()
            && let Some(srq) = &shared.srq
            && srq.repost(entry.wqe_counter().into())
        {
            return Odd::Stray;
        } else {
            // SAFETY: the device completed the oldest receive, with an error; this is the only
            // poller.
            unsafe { take_recv(shared, entry) }
        };
        taken.map_or_else(|| self.stray(), Odd::Ended)
    }
}
