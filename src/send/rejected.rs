//! A post that was refused gives the buffer back.

use std::fmt;

use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::queues::work::PostError;

/// Rejected post: the reason, and the data that wasn't posted, such as a frame or a part of exposed
/// memory.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// # let mut qp = context.queue_pair(&pd, &cq).build()?;
/// let frame = pd.slab(64, 1)?.take().expect("it is new");
/// let rejected = qp.post_send(1, frame).unwrap_err();
/// println!("{rejected}"); // not connected yet
/// let frame = rejected.data;
/// # Ok::<(), uverbs::Error>(())
/// ```
pub struct Rejected<D = Frame> {
    /// Reason.
    pub error: PostError,
    /// Data of the rejected post, handed back.
    pub data: D,
}

impl<D> fmt::Display for Rejected<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// `{:?}` prints the sentence, `{:#?}` the fields.
impl<D: fmt::Debug> fmt::Debug for Rejected<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        let Self { error, data } = self;
        f.debug_struct("Rejected").field("error", error).field("data", data).finish()
    }
}

impl<D: fmt::Debug> std::error::Error for Rejected<D> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<D> From<Rejected<D>> for PostError {
    /// Drops the data of the post: a frame goes back to its slab.
    fn from(rejected: Rejected<D>) -> Self {
        rejected.error
    }
}

impl<D> From<Rejected<D>> for Error {
    /// Drops the data of the post: a frame goes back to its slab.
    #[cold]
    fn from(rejected: Rejected<D>) -> Self {
        Self::Post(rejected.error)
    }
}

impl<D> From<Rejected<D>> for std::io::Error {
    /// Drops the data of the post: a frame goes back to its slab.
    #[cold]
    fn from(rejected: Rejected<D>) -> Self {
        rejected.error.into()
    }
}
