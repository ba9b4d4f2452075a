//! Completion queues: polling and waiting for completions.
//!
//! # Safety
//!
//! One call takes buffers out of the table of a queue pair that the kernel confirmed as destroyed.
#![allow(unsafe_code, reason = "takes buffers back from a queue pair that is gone")]

use std::sync::Arc;
use std::time::Duration;

use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::provider::{CqOps, Notify, PacketInfo, Polled, View};
use uverbs_core::queues::completion::{Completed, Failure, Sender};
use uverbs_core::queues::tag_work::TagInfo;

use crate::provider::Provider;
use crate::{Any, CompletionChannel, Destroyed};

/// A completion queue's polling side: a unique value. The owner polls, with no lock and no
/// system call.
///
/// The kernel's object lives until the last queue pair that completes to it is gone, even if this
/// is dropped before.
#[derive(Debug)]
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue<P: Provider = Any> {
    // Before `core`: its pointers go into memory that `core` keeps.
    pub(crate) cq: P::Cq,
    pub(crate) core: Arc<CqCore>,
    /// Remaining budget of a long burst, beyond the current step.
    left: usize,
    /// Completions that were dropped, as far as the program was told.
    told: u64,
}

impl<P: Provider> CompletionQueue<P> {
    pub(crate) fn new(core: Arc<CqCore>, cq: P::Cq) -> Self {
        if core.context().uverbs().door().wants_progress() {
            core.hold();
        }
        Self { cq, core, left: 0, told: 0 }
    }

    pub(crate) fn core(&self) -> &Arc<CqCore> {
        &self.core
    }

    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.handle()
    }

    /// The device's number.
    #[must_use]
    pub fn cqn(&self) -> u32 {
        self.core.cqn()
    }

    /// Capacity in completions: at least the requested number.
    ///
    /// A completion that overruns the queue is lost, and the queue and all its queue pairs fail.
    /// The capacity is safe if it covers the [granted](crate::QueuePair::cap) `max_send_wr` and
    /// `max_recv_wr` of all its queue pairs.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.core.capacity()
    }

    /// Number of the queue in events: [`CompletionEvent`](crate::CompletionEvent) and
    /// [`AsyncElement::Cq`](crate::event::AsyncElement).
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.core.event_id()
    }

    /// The channel that it reports to, if it was built with one.
    #[must_use]
    pub fn channel(&self) -> Option<CompletionChannel> {
        self.core.channel().cloned().map(CompletionChannel::new)
    }

    /// Arms the queue for one event on the channel: at the next completion, or the next solicited
    /// one.
    ///
    /// A completion that arrived after the last poll may or may not raise the event: poll once more
    /// before sleeping. [`wait`](Self::wait) arms, polls again and sleeps.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a queue without a channel. On soft-RoCE it is a command, which the
    /// kernel may refuse; elsewhere a store.
    #[inline]
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self, notify: Notify) -> Result<(), Error> {
        self.cq.arm(notify)?;
        if self.core.is_held() {
            self.core.armed();
        }
        Ok(())
    }

    /// Resizes the queue to `entries` completions. Unpolled completions stay, in order. Needs a
    /// command to the kernel and a copy; polling keeps its cost.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for 0 entries, for more than the device's limit, and for fewer than the
    /// completions that one of its queue pairs may have outstanding; [`Error::Kernel`]: `EINVAL` if
    /// the unpolled completions don't fit. The queue is then unchanged. [`Error::System`] if the
    /// kernel's new ring can't be mapped (soft-RoCE, Omni-Path): the queue then gets no completions
    /// until another resize succeeds.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// let mut cq = context.create_cq(100)?;
    /// cq.resize(5000)?;
    /// assert!(cq.capacity() >= 5000);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, entries: u32) -> Result<(), Error> {
        self.cq.resize(entries)
    }

    /// Moderates events: an event stands for `count` completions, or for those within `period` of
    /// the last event, whichever comes first. This means fewer but later interrupts. 0 disables a
    /// limit; with both 0, as in a new queue, each armed completion raises an event at once. The
    /// device counts in whole microseconds.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a period over 65535 microseconds; [`Error::Kernel`]: `EOPNOTSUPP` from
    /// a device without moderation (soft-RoCE), `EINVAL` for a period over
    /// [`DeviceAttr::max_cq_moderation_period`](crate::DeviceAttr::max_cq_moderation_period).
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// use std::time::Duration;
    ///
    /// let mut cq = context.create_cq(256)?;
    /// cq.moderate(32, Duration::from_micros(50))?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_modify_cq")]
    pub fn moderate(&mut self, count: u16, period: Duration) -> Result<(), Error> {
        let micros = period.as_micros();
        let period = u16::try_from(micros).map_err(|_| Error::Limit {
            verb: "modify_cq",
            what: "period in microseconds",
            value: u64::try_from(micros).unwrap_or(u64::MAX),
            limit: u16::MAX.into(),
        })?;
        self.core.context().uverbs().moderate_cq(self.core.handle(), count, period)
    }

    /// The provider's own polling side.
    #[must_use]
    pub fn provider(&self) -> &P::Cq {
        &self.cq
    }

    /// Up to `budget` completions, decoded in place, one after the other.
    ///
    /// The queue's entries go back to the device when the burst is dropped.
    ///
    /// After a few empty polls a software HCA does some of its work on this thread, or else yields
    /// the processor. So don't poll its queues in a signal handler. Other devices are only polled.
    ///
    /// ```no_run
    /// # fn f(cq: &mut uverbs::CompletionQueue) -> Result<(), uverbs::Failure> {
    /// let mut burst = cq.poll(32);
    /// while let Some(completion) = burst.next() {
    ///     completion.result()?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// A completion can't outlive its burst, or be kept over the next one:
    ///
    /// ```compile_fail,E0499
    /// # fn f(cq: &mut uverbs::CompletionQueue) {
    /// let mut burst = cq.poll(32);
    /// let first = burst.next();
    /// let second = burst.next();
    /// drop((first, second));
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0597
    /// # fn f(cq: &mut uverbs::CompletionQueue) {
    /// let kept = {
    ///     let mut burst = cq.poll(32);
    ///     burst.next()
    /// };
    /// drop(kept);
    /// # }
    /// ```
    #[inline]
    #[doc(alias = "ibv_poll_cq")]
    #[doc(alias = "ibv_start_poll")]
    pub fn poll(&mut self, budget: usize) -> Burst<'_, P> {
        let mut step = budget as u32;
        if budget > self.core.pace() as usize {
            step = self.begin(budget);
        }
        Burst { queue: self, step }
    }

    /// Calls `each` for up to `budget` completions and returns how many there were.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// let count = cq.poll_with(32, |completion| println!("{} is done", completion.id()));
    /// assert_eq!(count, 0, "nothing was posted");
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[inline]
    pub fn poll_with(&mut self, budget: usize, mut each: impl FnMut(Completion<'_, P>)) -> usize {
        let mut burst = self.poll(budget);
        while let Some(completion) = burst.next() {
            each(completion);
        }
        budget - burst.rest()
    }

    /// Looks for completions that were dropped since the last look because they named no work
    /// request that is outstanding. [`wait`](Self::wait) calls it. A program that only polls calls
    /// it when it has polled nothing for long.
    ///
    /// # Errors
    ///
    /// [`Error::Unmatched`] if there were any: their work requests may never complete.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// let mut cq = context.create_cq(256)?;
    /// cq.check()?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[inline]
    pub fn check(&mut self) -> Result<(), Error> {
        let count = self.cq.strays() - self.told;
        if count == 0 { Ok(()) } else { self.unmatched(count) }
    }

    #[cold]
    #[inline(never)]
    fn unmatched(&mut self, count: u64) -> Result<(), Error> {
        self.told += count;
        Err(Error::Unmatched { verb: "poll_cq", count })
    }

    /// Takes back the buffers that were in flight on a destroyed queue pair or work queue. Returns
    /// the send buffers if its sends completed in this queue, and the receive buffers if its
    /// receives did. Drops its completions that were not polled yet.
    ///
    /// Each buffer comes with its work request's id. A second call for the same queue pair returns
    /// an empty list.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// qp.prepare(&uverbs::Local::default())?;
    /// qp.post_recv(7, pd.slab(64, 1)?.take().expect("it is new"))?;
    /// let gone = qp.destroy().expect("the kernel lets go of it");
    /// let frames = cq.reclaim(&gone);
    /// assert_eq!(frames[0].0, 7);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    pub fn reclaim(&mut self, gone: &Destroyed) -> Vec<(u64, Frame)> {
        self.cq.settle();
        let mut frames = Vec::new();
        let Destroyed { send_cq, recv_cq, shared } = gone;
        if send_cq.as_ref().is_some_and(|cq| Arc::ptr_eq(cq, &self.core)) {
            // SAFETY: `Destroyed` says that the kernel confirmed the destruction and that the
            // posting side is no more; this is the polling side, and `&mut self` makes it unique.
            frames.append(&mut unsafe { shared.send.reclaim() });
        }
        if Arc::ptr_eq(recv_cq, &self.core) {
            // SAFETY: as above.
            frames.append(&mut unsafe { shared.recv.reclaim() });
        }
        frames
    }

    /// Drops the completions of a queue pair that was just reset.
    pub(crate) fn sweep(&mut self, user_index: u32) {
        self.cq.settle();
        self.cq.sweep(user_index);
    }
}

/// Completions of one poll. Dropping it gives their entries back to the device.
#[derive(Debug)]
pub struct Burst<'q, P: Provider = Any> {
    queue: &'q mut CompletionQueue<P>,
    /// Completions until the burst ends, or with [`MORE`] until the remaining budget is checked. A
    /// burst keeps only this counter and its queue, so that it stays in a register.
    step: u32,
}

/// Marks a step behind which there may be another one.
const MORE: u32 = 1 << 31;

impl<P: Provider> CompletionQueue<P> {
    /// Begins a long burst, or a burst with deferred work first, or a burst on a software HCA.
    /// Returns its first step.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, budget: usize) -> u32 {
        if self.core.has_messages() {
            // Also needed if the queue is never empty: buffers of destroyed queue pairs wait to be
            // freed.
            self.cq.settle();
        }
        if self.core.is_held() {
            match self.cq.is_empty() {
                true => self.core.found_nothing(),
                false => self.core.found(),
            }
        }
        self.left = budget;
        self.next_step()
    }

    /// Continues a long burst: returns CQEs to the device early, which would run out of them
    /// otherwise.
    #[cold]
    #[inline(never)]
    fn go_on(&mut self) -> u32 {
        self.cq.publish();
        self.next_step()
    }

    /// Takes a step off the remaining budget.
    fn next_step(&mut self) -> u32 {
        let step = self.core.lag().min(MORE - 1);
        match self.left.checked_sub(step as usize) {
            Some(left) => {
                self.left = left;
                step | MORE
            }
            None => std::mem::take(&mut self.left) as u32,
        }
    }
}

impl<P: Provider> Burst<'_, P> {
    /// The next completion; `None` when the queue is empty or the budget is used up.
    #[inline(always)]
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator's items could outlive the next call"
    )]
    pub fn next(&mut self) -> Option<Completion<'_, P>> {
        if self.step & !MORE == 0 {
            if self.step == 0 {
                return None;
            }
            self.step = self.queue.go_on();
            if self.step == 0 {
                return None;
            }
        }
        let Polled { view, wr_id, frame } = self.queue.cq.next()?;
        self.step -= 1;
        Some(Completion { view, wr_id, frame })
    }

    /// Remaining budget.
    #[inline(always)]
    fn rest(&self) -> usize {
        let rest = (self.step & !MORE) as usize;
        if self.step & MORE == 0 { rest } else { rest + self.queue.left }
    }
}

impl<P: Provider> Drop for Burst<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.queue.cq.publish();
    }
}

/// A completion, decoded in place.
#[derive(Debug)]
#[doc(alias = "ibv_wc")]
pub struct Completion<'b, P: Provider = Any>
where
    P::Cq: 'b,
{
    pub(super) view: <P::Cq as CqOps>::View<'b>,
    pub(super) wr_id: u64,
    pub(super) frame: Option<Frame>,
}

impl<P: Provider> Completion<'_, P> {
    /// The number of the work request.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u64 {
        self.wr_id
    }

    /// Operation that completed, or its failure.
    ///
    /// # Errors
    ///
    /// The failure. After it the queue pair is in ERR, or of UC and UD in SQE, and its outstanding
    /// work requests are flushed. SRD stays in RTS: each request fails alone.
    #[inline]
    pub fn result(&self) -> Result<Completed, Failure> {
        self.view.result()
    }

    /// True for a completion of a receive, also of a failed one.
    #[inline]
    #[must_use]
    pub fn is_recv(&self) -> bool {
        self.view.is_recv()
    }

    /// Bytes received, read, or returned by an atomic; 0 for the rest.
    #[inline]
    #[must_use]
    pub fn byte_len(&self) -> u32 {
        self.view.byte_len()
    }

    /// Immediate data, in host order, of a receive that got some.
    #[inline]
    #[must_use]
    #[doc(alias = "imm_data")]
    pub fn immediate(&self) -> Option<u32> {
        self.view.immediate()
    }

    /// The device's clock at the completion, in ticks.
    /// [`DeviceAttr::hca_core_clock`](crate::DeviceAttr) is the number of ticks in a millisecond;
    /// only the bits of `completion_timestamp_mask` are valid. `None` for a failed completion, and
    /// on a device without a clock.
    #[inline]
    #[must_use]
    #[doc(alias = "ibv_wc_read_completion_ts")]
    pub fn timestamp(&self) -> Option<u64> {
        self.view.timestamp()
    }

    /// The key of this side that a received SEND took away.
    #[inline]
    #[must_use]
    #[doc(alias = "ibv_wc_read_invalidated_rkey")]
    pub fn invalidated(&self) -> Option<u32> {
        self.view.invalidated()
    }

    /// The local queue pair's number; of a raw packet received [another](Self::flow_tag).
    #[inline]
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.view.qpn()
    }

    /// Tag of the [flow rule](crate::flow::FlowRule::tag) that steered a received raw packet; 0 if
    /// the rule has no tag. The field holds the queue pair's number in other completions.
    #[inline]
    #[must_use]
    #[doc(alias = "ibv_wc_read_flow_tag")]
    pub fn flow_tag(&self) -> u32 {
        self.view.qpn()
    }

    /// Checksum results of a received raw packet, and the VLAN tag that the device removed.
    #[must_use]
    #[doc(alias = "IBV_WC_IP_CSUM_OK")]
    #[doc(alias = "ibv_wc_read_cvlan")]
    pub fn packet(&self) -> PacketInfo {
        self.view.packet()
    }

    /// Low bits of the LID that a datagram was sent to (InfiniBand receives only): one of the
    /// 2^`lmc` LIDs that the port [answers to](crate::PortAttr::lmc).
    #[must_use]
    #[doc(alias = "ibv_wc_read_dlid_path_bits")]
    #[doc(alias = "dlid_path_bits")]
    pub fn path_bits(&self) -> u8 {
        self.view.path_bits()
    }

    /// Tag of the message, and the device's wish for an acknowledgement of unexpected messages.
    /// Only completions of a [tag-matching SRQ](crate::tags::ForTags) have it; others give `None`.
    #[must_use]
    #[doc(alias = "ibv_wc_read_tm_info")]
    #[doc(alias = "IBV_WC_TM_SYNC_REQ")]
    pub fn tag_info(&self) -> Option<TagInfo> {
        self.view.tag_info()
    }

    /// Sender of a received datagram; meaningless in other completions.
    #[inline]
    #[must_use]
    pub fn sender(&self) -> Sender {
        self.view.sender()
    }

    /// Takes the buffer that was posted with it. After a receive its length is what arrived. Left
    /// here, it goes back to its slab.
    #[inline]
    pub fn take_frame(&mut self) -> Option<Frame> {
        self.frame.take()
    }
}
