//! A post that was refused gives the buffer back.

use std::fmt;

use uverbs_core::memory::frame::Frame;
use uverbs_core::queues::work::PostError;

/// Why something was not posted, and what it was: a frame, a shared frame, or a part of exposed memory.
#[derive(Debug)]
pub struct Rejected<D = Frame> {
    /// Why.
    pub error: PostError,
    /// What was to be posted, yours again.
    pub data: D,
}

impl<D> fmt::Display for Rejected<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<D: fmt::Debug> std::error::Error for Rejected<D> {}

impl<D> From<Rejected<D>> for PostError {
    fn from(rejected: Rejected<D>) -> Self {
        rejected.error
    }
}
