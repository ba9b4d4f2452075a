//! Objects that the kernel refused to destroy.

use std::fmt;

use uverbs_core::error::Error;

/// A refusal to destroy, with the object, which goes on as before: `EBUSY` while a multicast group
/// or a memory window uses it is ordinary, and it can be tried again.
///
/// `?` makes an [`Error`] of it, and drops the object.
pub struct Refused<T> {
    /// Why.
    pub error: Error,
    /// The object, which still exists.
    pub object: T,
}

impl<T> Refused<T> {
    /// Why; the object is dropped.
    #[must_use]
    pub fn into_error(self) -> Error {
        self.error
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> From<Refused<T>> for std::io::Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error.into()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> std::error::Error for Refused<T> {}
