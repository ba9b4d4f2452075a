//! Completion channels: sleeping until a completion queue has something.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use uverbs_core::error::Error;
use uverbs_core::objects::channel::Channel;

use crate::CompletionQueue;
use crate::provider::Provider;

/// A completion channel: a file that becomes readable when an armed completion queue gets a
/// completion. A cheap handle: clones share it, and the queues that report to it keep it open.
///
/// A completion queue built with a channel sleeps in [`CompletionQueue::wait`], which handles the
/// channel. A program with an event loop arms its queues, watches the channel's file ([`AsFd`]),
/// takes the events out, and polls the queues that they name:
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// use std::time::Duration;
/// use uverbs::Notify;
///
/// let channel = context.create_comp_channel()?;
/// let mut cq = context.completion_queue(256).channel(&channel).build()?;
/// # let mut qp = context.queue_pair(&pd, &cq).build()?;
/// # qp.prepare(&Default::default())?;
/// # qp.connect_to_self()?;
/// # qp.post_recv(1, pd.slab(64, 1)?.take().expect("it is new"))?;
/// cq.arm(Notify::Any)?;
/// // What completed before it was armed may raise no event: poll once more.
/// assert_eq!(cq.poll_with(16, |completion| println!("{}", completion.id())), 0);
/// # qp.post_send_inline(2, b"to myself")?;
/// let event = channel.next_within(Duration::from_secs(20))?;
/// assert!(event.is_of(&cq));
/// # Ok::<(), uverbs::Error>(())
/// ```
///
/// Events need no acknowledgement: the library counts what it reads. Destroying a queue drops its
/// unread events and doesn't wait for acknowledgements.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel {
    core: Arc<Channel>,
}

/// A completion queue that was armed has something.
///
/// The queue is then no longer armed. An earlier poll may have emptied the queue already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "ibv_ack_cq_events")]
pub struct CompletionEvent {
    /// The queue's [`event_id`](CompletionQueue::event_id), which no other object of this process
    /// ever gets.
    pub cq: u64,
}

impl CompletionEvent {
    /// True if the event belongs to `cq`.
    #[must_use]
    pub fn is_of<P: Provider>(&self, cq: &CompletionQueue<P>) -> bool {
        self.cq == cq.event_id()
    }
}

impl CompletionChannel {
    pub(crate) fn new(core: Arc<Channel>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Arc<Channel> {
        &self.core
    }

    /// The next event, if there is one now.
    ///
    /// Each event is returned once; [`CompletionQueue::wait`] consumes the events that wake it. If
    /// the program watches the channel's file, no other thread should `wait` on a queue of this
    /// channel: it would move the other queues' events from the file into the library, where only
    /// this call finds them.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`]; [`Error::OtherProcess`] in a forked child; [`Error::Kernel`] for a
    /// failed read.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn try_next(&self) -> Result<Option<CompletionEvent>, Error> {
        Ok(self.core.try_next()?.map(|cq| CompletionEvent { cq }))
    }

    /// The next event, waited for no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]; as [`try_next`](Self::try_next).
    #[doc(alias = "ibv_get_cq_event")]
    pub fn next_within(&self, timeout: Duration) -> Result<CompletionEvent, Error> {
        self.core.next_within(timeout).map(|cq| CompletionEvent { cq })
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core.as_fd()
    }
}
