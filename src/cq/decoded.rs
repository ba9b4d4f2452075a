//! Decoded completions, and polls that store them.

use uverbs_core::memory::frame::Frame;
use uverbs_core::provider::{CqOps, Decoded, Sink, Usual, View};
use uverbs_core::queues::completion::{Completed, Failure, Sender, Status};

use super::queue::{Completion, CompletionQueue};
use crate::provider::Provider;

/// A decoded completion, independent of its queue.
#[derive(Debug)]
#[non_exhaustive]
pub struct WorkCompletion {
    /// The number of the work request.
    pub id: u64,
    /// Completed operation, or its failure.
    pub result: Result<Completed, Failure>,
    /// True for a completion of a receive.
    pub is_recv: bool,
    /// Bytes received, read, or returned by an atomic; 0 for the rest.
    pub byte_len: u32,
    /// Immediate data, in host order.
    pub immediate: Option<u32>,
    /// The local queue pair's number; of a raw packet received the tag of the rule that it came by
    /// ([`Completion::flow_tag`]).
    pub qpn: u32,
    /// Sender of a received datagram; meaningless in other completions.
    pub sender: Sender,
    /// The buffer that was posted with it.
    pub frame: Option<Frame>,
}

impl Default for WorkCompletion {
    /// An empty place for [`CompletionQueue::poll_into`]; as a completion it would be a failed one.
    fn default() -> Self {
        let failure = Failure { status: Status::General, syndrome: 0, vendor_syndrome: 0 };
        Self {
            id: 0,
            result: Err(failure),
            is_recv: false,
            byte_len: 0,
            immediate: None,
            qpn: 0,
            sender: Sender::default(),
            frame: None,
        }
    }
}

impl<P: Provider> CompletionQueue<P> {
    /// Fills `to` from the front and returns how many completions there were.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// use uverbs::WorkCompletion;
    ///
    /// let mut done: [WorkCompletion; 16] = Default::default();
    /// let count = cq.poll_into(&mut done);
    /// for completion in &mut done[..count] {
    ///     completion.result?;
    ///     drop(completion.frame.take());
    /// }
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[inline]
    pub fn poll_into(&mut self, to: &mut [WorkCompletion]) -> usize {
        let step = self.core.pace() as usize;
        if step != 0 && self.cq.is_empty() {
            // A burst may have been forgotten.
            self.cq.publish();
            return 0;
        }
        if to.len() <= step { self.fill_usual(to) } else { self.fill_steps(to, step) }
    }

    /// Fills `to` in steps, so that the device never runs out of CQEs.
    #[cold]
    #[inline(never)]
    fn fill_steps(&mut self, to: &mut [WorkCompletion], step: usize) -> usize {
        if step == 0 {
            return self.fill(to, 0);
        }
        let mut count = 0;
        for part in to.chunks_mut(step) {
            let found = self.fill_usual(part);
            count += found;
            if found != part.len() {
                break;
            }
        }
        count
    }

    /// Fills `to`, at most a step: places without a frame from queues without frames, so that no
    /// call is in the loop; the rest by [`fill`](Self::fill).
    #[inline(never)]
    fn fill_usual(&mut self, to: &mut [WorkCompletion]) -> usize {
        let mut count = 0;
        for place in &mut *to {
            if place.frame.is_some() {
                return self.fill(to, count);
            }
            match self.cq.next_usual(Place(place)) {
                Usual::Taken(()) => count += 1,
                Usual::Nothing => break,
                Usual::Unusual => return self.fill(to, count),
            }
        }
        self.cq.publish();
        count
    }

    /// Fills `to` behind the first `count` completions, and returns their number.
    #[inline(never)]
    fn fill(&mut self, to: &mut [WorkCompletion], mut count: usize) -> usize {
        let rest = to.get_mut(count..).unwrap_or_default();
        let mut burst = self.poll(rest.len());
        for place in rest {
            let Some(completion) = burst.next() else { break };
            *place = completion.into();
            count += 1;
        }
        count
    }
}

/// Destination of a completion without a frame, which has no frame yet.
struct Place<'a>(&'a mut WorkCompletion);

impl<V: View> Sink<V> for Place<'_> {
    type Output = ();

    const CALLS: bool = false;

    #[inline(always)]
    fn take(self, view: V, wr_id: u64) {
        // All fields but the frame, whose drop would be a call.
        let to = self.0;
        let Decoded { result, is_recv, byte_len, immediate, qpn, sender, .. } = view.decode();
        (to.id, to.result, to.is_recv, to.byte_len) = (wr_id, result, is_recv, byte_len);
        (to.immediate, to.qpn, to.sender) = (immediate, qpn, sender);
    }
}

impl<P: Provider> From<Completion<'_, P>> for WorkCompletion {
    #[inline]
    fn from(completion: Completion<'_, P>) -> Self {
        let Completion { view, wr_id, frame } = completion;
        let Decoded { result, is_recv, byte_len, immediate, qpn, sender, .. } = view.decode();
        Self { id: wr_id, result, is_recv, byte_len, immediate, qpn, sender, frame }
    }
}
