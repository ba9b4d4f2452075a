//! Work requests that were not posted.

use std::fmt;

use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::queues::work::PostError;

/// Work request that was not posted: the reason, and its data, such as a frame or a part of exposed
/// memory.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// # let mut qp = context.queue_pair(&pd, &cq).build()?;
/// let frame = pd.slab(64, 1)?.take().expect("it is new");
/// let unposted = qp.post_send(1, frame).unwrap_err();
/// println!("{unposted}"); // not connected yet
/// let frame = unposted.data;
/// # Ok::<(), uverbs::Error>(())
/// ```
pub struct Unposted<D = Frame> {
    /// Reason.
    pub error: PostError,
    /// Data of the work request, handed back.
    pub data: D,
}

impl<D> fmt::Display for Unposted<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// `{:?}` prints the sentence, `{:#?}` the fields.
impl<D: fmt::Debug> fmt::Debug for Unposted<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        let Self { error, data } = self;
        f.debug_struct("Unposted").field("error", error).field("data", data).finish()
    }
}

impl<D: fmt::Debug> std::error::Error for Unposted<D> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<D> From<Unposted<D>> for PostError {
    /// Drops the data of the post: a frame goes back to its slab.
    fn from(unposted: Unposted<D>) -> Self {
        unposted.error
    }
}

impl<D> From<Unposted<D>> for Error {
    /// Drops the data of the post: a frame goes back to its slab.
    #[cold]
    fn from(unposted: Unposted<D>) -> Self {
        Self::Post(unposted.error)
    }
}

impl<D> From<Unposted<D>> for std::io::Error {
    /// Drops the data of the post: a frame goes back to its slab.
    #[cold]
    fn from(unposted: Unposted<D>) -> Self {
        unposted.error.into()
    }
}
