//! Queues that complete to a completion queue, for completions that name them by a [`Token`].
//!
//! # Safety
//!
//! A completion takes a slot only if its token names a queue that completes here and a work request
//! that is published and not retired, or in a queue in turns an outstanding slot. So no completion,
//! however wrong, takes a slot that the poster may write. Which of the work requests in flight is
//! complete is the kernel's word.
#![allow(unsafe_code, reason = "takes buffers by what the kernel's completions say")]

use std::sync::Arc;

use crate::objects::cq::Roles;
use crate::queues::by_index::ByIndex;
use crate::queues::shared::QpShared;
use crate::queues::slots::{SlotTable, Taken};
use crate::queues::srq::SrqShared;
use crate::queues::token::{Queue, Token};

/// Queue or queues that a user index names.
#[derive(Debug)]
enum Owner {
    /// A queue pair, and its queues that complete here. Another poller owns the slots of the other
    /// queue.
    Qp(Arc<QpShared>, Roles, [Done; 2]),
    /// A shared receive queue, and the number of its queue pairs whose receives complete here.
    Srq(Arc<SrqShared>, usize),
}

/// Work requests of a queue that completed before an earlier one: a bit for each slot.
#[derive(Debug)]
struct Done {
    bits: Box<[u64]>,
    /// The queue's oldest work request that was in flight when the bits were noted.
    tail: u32,
}

impl Done {
    /// A clear bit for each slot.
    fn new(slots: &SlotTable) -> Self {
        let bits = vec![0; slots.units().div_ceil(64) as usize].into();
        Self { bits, tail: slots.tail() }
    }

    /// Clears the bits if they are of before a reset, which reclaimed the slots.
    fn renew(&mut self, tail: u32) {
        if self.tail != tail {
            self.bits.fill(0);
            self.tail = tail;
        }
    }

    /// Sets the bit of a slot. False if it was set before.
    fn note(&mut self, slot: u32) -> bool {
        let Some(word) = self.bits.get_mut((slot / 64) as usize) else { return false };
        let bit = 1 << (slot % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Clears the bit of a slot. Returns true if it was set.
    fn forget(&mut self, slot: u32) -> bool {
        let Some(word) = self.bits.get_mut((slot / 64) as usize) else { return false };
        let there = *word >> (slot % 64) & 1 != 0;
        *word &= !(1 << (slot % 64));
        there
    }
}

/// Result of a work request, as far as its slot is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It failed, and its queue pair with it.
    Failed,
    /// It failed alone; its queue pair continues.
    FailedAlone,
    /// It succeeded.
    Done {
        /// Bytes that a receive placed in its own buffer; 0 if they are elsewhere.
        bytes: u32,
    },
}

/// Queue pairs and shared receive queues that complete to one completion queue, by user index.
#[derive(Debug, Default)]
pub struct Known {
    table: ByIndex<Owner>,
}

impl Known {
    /// Adds a queue pair whose completions arrive here from now on. An entry with the same index
    /// stays, because work requests in flight may use it. An index is reused only after its detach
    /// message was read, so no entry should have it.
    pub fn attach(&mut self, shared: Arc<QpShared>, roles: Roles) {
        if roles.recv
            && let Some((srq, index)) = shared_of(&shared)
        {
            let owner = self.table.get_or_insert_with(index, || Owner::Srq(srq.clone(), 0));
            if let Owner::Srq(_, users) = owner {
                *users += 1;
            }
        }
        let index = shared.user_index.value();
        let done = [&shared.send, &shared.recv].map(Done::new);
        self.table.get_or_insert_with(index, || Owner::Qp(shared, roles, done));
    }

    /// Removes a destroyed queue pair, whose completions were dropped before.
    pub fn detach(&mut self, shared: &Arc<QpShared>) {
        let index = shared.user_index.value();
        let Some(Owner::Qp(there, roles, _)) = self.table.get(index) else { return };
        if !Arc::ptr_eq(there, shared) {
            return;
        }
        let took = roles.recv;
        drop(self.table.remove(index));
        if took
            && let Some((_, index)) = shared_of(shared)
            && let Some(Owner::Srq(_, users)) = self.table.get_mut(index)
        {
            *users -= 1;
            if *users == 0 {
                drop(self.table.remove(index));
            }
        }
    }

    /// True if a queue has this index.
    #[inline]
    #[must_use]
    pub fn has(&self, user_index: u32) -> bool {
        self.table.get(user_index).is_some()
    }

    /// Queue pair with a user index.
    #[must_use]
    pub fn queue_pair(&self, user_index: u32) -> Option<&QpShared> {
        match self.table.get(user_index)? {
            Owner::Qp(shared, ..) => Some(shared),
            Owner::Srq(..) => None,
        }
    }

    /// Number of queue pairs and shared receive queues.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if no queue completes here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// User index that the receive completions of a queue pair with a shared receive queue carry,
    /// and the queue pair's number, which tells its receives from other queue pairs'.
    #[must_use]
    pub fn shared_receives(&self, user_index: u32) -> Option<(u32, u32)> {
        let Owner::Qp(shared, ..) = self.table.get(user_index)? else {
            return None;
        };
        Some((shared_of(shared)?.1, shared.qpn))
    }

    /// Takes and retires the work request that a completion names, if it is in flight.
    ///
    /// # Safety
    ///
    /// The caller is the only poller, and the device completed that work request if it is in
    /// flight. `ended` returns its result.
    #[inline(always)]
    pub unsafe fn take(&self, token: Token, ended: impl FnOnce() -> Ended) -> Option<Taken> {
        let (shared, roles) = match self.table.get(token.user_index)? {
            Owner::Qp(shared, roles, _) => (shared, roles),
            // SAFETY: the contract of `take` is the contract of `take_shared`.
            Owner::Srq(srq, _) => return unsafe { take_shared(srq, token, ended()) },
        };
        let (slots, is_ours) = match token.queue {
            Queue::Send => (&shared.send, roles.send),
            Queue::Recv => (&shared.recv, roles.recv),
        };
        if !is_ours || !slots.is_in_flight(token.index) {
            return None;
        }
        // SAFETY: the kernel completed it, and it is in flight; this is the only poller.
        let mut taken = unsafe { slots.take(token.index) };
        match ended() {
            // A failure puts the whole queue pair into the error state. It is noted before the
            // poster gets the slot back, because a work request posted there afterwards needs
            // another system call.
            Ended::Failed => {
                shared.send.fail();
                shared.recv.fail();
            }
            Ended::Done { bytes } if token.queue == Queue::Recv => {
                if let Some(frame) = &mut taken.frame {
                    frame.arrived(bytes);
                }
            }
            Ended::FailedAlone | Ended::Done { .. } => {}
        }
        // Equal to the end in the slot: each element is one unit.
        let end = token.index.wrapping_add(1);
        // SAFETY: it was just taken, and the slots before it were passed over.
        unsafe { slots.retire(end) };
        Some(taken)
    }

    /// Takes the work request that a completion names, if it is in flight. Retires the oldest work
    /// requests up to the first that is not complete. For queue pairs that complete out of order,
    /// each work request with its own completion.
    ///
    /// # Safety
    ///
    /// The contract of [`take`](Self::take).
    #[inline(always)]
    pub unsafe fn take_out_of_order(&mut self, token: Token, ended: Ended) -> Option<Taken> {
        let owner = self.table.get_mut(token.user_index)?;
        let Owner::Qp(shared, roles, [sends, receives]) = owner else { return None };
        let (slots, done, is_ours) = match token.queue {
            Queue::Send => (&shared.send, sends, roles.send),
            Queue::Recv => (&shared.recv, receives, roles.recv),
        };
        if !is_ours {
            return None;
        }
        let mask = slots.units() - 1;
        let mut taken = if slots.is_in_turns() {
            // SAFETY: the kernel completed it; this is the only poller.
            unsafe { slots.take_turn(token.index) }?
        } else {
            done.renew(slots.tail());
            if !slots.is_in_flight(token.index) || !done.note(token.index & mask) {
                return None;
            }
            // SAFETY: the kernel completed it, for the first time, and it is in flight; this is the
            // only poller.
            unsafe { slots.take_alone(token.index) }
        };
        match ended {
            // Noted before the poster gets the slot back, as in `take`.
            Ended::Failed => {
                shared.send.fail();
                shared.recv.fail();
            }
            Ended::Done { bytes } if token.queue == Queue::Recv => {
                if let Some(frame) = &mut taken.frame {
                    frame.arrived(bytes);
                }
            }
            Ended::FailedAlone | Ended::Done { .. } => {}
        }
        let mut end = slots.tail();
        if slots.is_in_turns() {
            end = end.wrapping_add(1);
        } else {
            while done.forget(end & mask) {
                end = end.wrapping_add(1);
            }
            done.tail = end;
        }
        // SAFETY: all slots before `end` were taken, or as many as there are before it.
        unsafe { slots.retire(end) };
        Some(taken)
    }
}

/// The shared receive queue of a queue pair, and its user index.
fn shared_of(qp: &QpShared) -> Option<(&Arc<SrqShared>, u32)> {
    let srq = qp.srq.as_ref()?;
    Some((srq, srq.user_index()?))
}

/// Takes the receive of a shared queue that a completion names, if that one is in flight.
///
/// # Safety
///
/// The contract of [`Known::take`].
unsafe fn take_shared(srq: &SrqShared, token: Token, ended: Ended) -> Option<Taken> {
    if token.queue != Queue::Recv {
        return None;
    }
    // SAFETY: the kernel completed it, and `take` returns only what is in flight.
    let mut taken = unsafe { srq.take(token.index) }?;
    if let Ended::Done { bytes } = ended
        && let Some(frame) = &mut taken.frame
    {
        frame.arrived(bytes);
    }
    Some(taken)
}
