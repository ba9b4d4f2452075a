//! Objects that the kernel refused to destroy.

use std::fmt;

use uverbs_core::error::Error;

/// Refusal to destroy an object, with the object, which stays usable. `EBUSY` is normal while a
/// multicast group or a memory window uses it; retry afterwards.
///
/// `?` makes an [`Error`] of it, and drops the object.
pub struct Refused<T> {
    /// Reason.
    pub error: Error,
    /// The object, which still exists.
    pub object: T,
}

impl<T> Refused<T> {
    /// The reason; drops the object.
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

/// `{:?}` prints the sentence, `{:#?}` the reason's fields.
impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> std::error::Error for Refused<T> {}
