//! A post that was refused gives the buffer back.

use std::fmt;

use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::queues::work::PostError;

/// Why a buffer was not posted, and the buffer.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// # let mut qp = context.queue_pair(&pd, &cq).build()?;
/// let frame = pd.slab(64, 1)?.take().expect("it is new");
/// let rejected = qp.post_send(1, frame).unwrap_err();
/// println!("{rejected}"); // not connected yet
/// let frame = rejected.frame;
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Debug)]
pub struct Rejected {
    /// Why.
    pub error: PostError,
    /// The buffer, yours again.
    pub frame: Frame,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Rejected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<Rejected> for PostError {
    /// The frame goes back to its slab.
    fn from(rejected: Rejected) -> Self {
        rejected.error
    }
}

impl From<Rejected> for Error {
    /// The frame goes back to its slab.
    #[cold]
    fn from(rejected: Rejected) -> Self {
        Self::Post(rejected.error)
    }
}

impl From<Rejected> for std::io::Error {
    /// The frame goes back to its slab.
    #[cold]
    fn from(rejected: Rejected) -> Self {
        rejected.error.into()
    }
}
