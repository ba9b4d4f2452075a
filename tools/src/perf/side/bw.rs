//! Bandwidth: as many messages in flight as allowed, on all queue pairs.
#![allow(unsafe_code, reason = "posts by address and key: see the module above")]

use std::sync::atomic::{Ordering, fence};

use uverbs::raw::Data;
use uverbs::{PostError, Wr};

use super::{Line, Side, failed, id, not_posted, operation, wrong_arrival};
use crate::base::error::Error;
use crate::link::operation::Operation;
use crate::link::verify::Pattern;
use crate::perf::shape::{Shape, Test};

/// Maximum completions per poll.
const BURST: usize = 64;

impl Side {
    /// Sets the number of messages to send on each queue pair.
    pub(crate) fn order(&mut self, messages: u64) {
        for line in &mut self.lines {
            line.todo = messages;
        }
    }

    /// Leaves at most one message per queue pair, which reports the unsignaled ones before it.
    pub(crate) fn close(&mut self) {
        for line in &mut self.lines {
            line.todo = line.todo.min(u64::from(line.silent > 0));
        }
    }

    /// Number of messages posted in total.
    pub(crate) fn posted(&self) -> u64 {
        self.lines.iter().map(|line| line.posted).sum()
    }

    /// Returns `true` if all ordered messages are complete.
    pub(crate) fn is_done(&self) -> bool {
        self.lines.iter().all(|line| line.todo == 0 && line.outstanding == 0)
    }

    /// Polls once, posts receives again, and posts as many sends as there is room for. Returns the
    /// number of messages known to be complete, and whether anything was done.
    #[inline]
    pub(crate) fn pump(&mut self, so_far: u64) -> Result<(u64, bool), Error> {
        let (sent, mut busy) = self.collect(so_far)?;
        for line in &mut self.lines {
            if line.todo > 0 {
                let source = self.inline.as_deref();
                let posted = post_some(line, &self.shape, source);
                busy |= posted.map_err(|error| not_posted(self.who, "a message", so_far, error))?;
            }
        }
        Ok((sent, busy))
    }

    #[inline]
    fn collect(&mut self, so_far: u64) -> Result<(u64, bool), Error> {
        let mut sent = 0;
        // Completed receives, posted again after the burst.
        let mut slots = [0u64; BURST];
        let mut came = 0;
        let mut burst = self.cq.poll(BURST);
        while let Some(completion) = burst.next() {
            let receive = completion.is_recv();
            if let Err(failure) = completion.result() {
                return Err(failed(self.who, receive, so_far, failure));
            }
            let id = completion.id();
            if receive {
                let len = completion.byte_len().saturating_sub(self.shape.head());
                if len != self.size {
                    return Err(wrong_arrival(self.who, so_far, len, self.size));
                }
                slots[came] = id;
                came += 1;
            } else if let Some(line) = self.lines.get_mut(id as u32 as usize) {
                let count = (id >> 32) as u32;
                line.outstanding = line.outstanding.saturating_sub(count);
                sent += u64::from(count);
            }
        }
        drop(burst);
        for &id in &slots[..came] {
            let (line, slot) = (id as u32, (id >> 32) as u32);
            if self.shape.check {
                self.verify_receive(line, slot)?;
            }
            self.receive(line, slot)?;
        }
        self.received += came as u64;
        Ok((sent, sent > 0 || came > 0))
    }

    fn verify_receive(&mut self, line: u32, slot: u32) -> Result<(), Error> {
        let Some(memory) = &self.memory.receives else { return Ok(()) };
        fence(Ordering::Acquire);
        let receives = self.shape.receives(self.size) as usize;
        let place = line as usize * receives + slot as usize;
        let at = place * self.memory.room + self.shape.head() as usize;
        memory.read(at, &mut self.copy)?;
        Ok(Pattern::new(0, self.who.other()).check(&self.copy)?)
    }

    /// After a run: compares memory with the sent messages. `writes`: the peer wrote here; `reads`:
    /// this side has read.
    pub(crate) fn verify_end(&mut self, active: bool, peer_active: bool) -> Result<(), Error> {
        if !self.shape.check || self.shape.test != Test::Bw {
            return Ok(());
        }
        fence(Ordering::Acquire);
        for at in 0..self.lines.len() {
            let memory = match self.shape.op {
                Operation::Write if peer_active => &self.memory.incoming,
                Operation::Read if active => &self.memory.outgoing,
                Operation::FetchAdd | Operation::CompareSwap if active => {
                    self.verify_word(at, self.lines[at].posted)?;
                    continue;
                }
                _ => return Ok(()),
            };
            memory.read(at * self.memory.stride, &mut self.copy)?;
            Pattern::new(0, self.who.other()).check(&self.copy)?;
        }
        Ok(())
    }
}

/// Posts a list to a queue pair if there is room for it, and rings; returns whether it did.
#[inline]
fn post_some(line: &mut Line, shape: &Shape, inline: Option<&[u8]>) -> Result<bool, PostError> {
    let room = shape.tx_depth - line.outstanding;
    let wanted = u32::try_from(line.todo).unwrap_or(u32::MAX).min(shape.post_list);
    if room < wanted {
        return Ok(false);
    }
    let mut batch = line.qp.batch();
    for at in 1..=wanted {
        line.todo -= 1;
        line.silent += 1;
        // The last message is signaled, and also the last before the queue is full, since only a
        // completion makes room.
        let tells = line.silent >= shape.cq_mod
            || line.todo == 0
            || (at == wanted && room - at < shape.post_list);
        let wr = Wr::new(id(line.number, line.silent));
        let wr = if tells { wr } else { wr.unsignaled() };
        let op = operation(shape.op, line.remote, line.posted, || 0);
        let data = match inline {
            Some(inline) => Data::Inline(inline),
            None => Data::One(line.local),
        };
        // SAFETY: the memory belongs to the side, is dropped after its queue pairs, and there is no
        // reference to it.
        unsafe { batch.post(wr, op, data) }?;
        line.posted += 1;
        if tells {
            line.silent = 0;
        }
    }
    batch.ring();
    line.outstanding += wanted;
    Ok(true)
}
