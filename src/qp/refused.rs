//! Calls that took an object and gave it back.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use uverbs_core::error::Error;

/// A refused call that took an object, with the object, which stays usable.
///
/// Calls that connect, accept, disconnect or destroy take the object by value. `EBUSY` of a
/// destruction is normal while a multicast group, a flow rule or a memory window uses the object:
/// retry after that one has ended.
///
/// `?` makes an [`Error`] or a boxed error of it; an [`Error`] has dropped the object.
///
/// ```no_run
/// # use uverbs::cm::{Param, Route};
/// # fn again(route: Route, qp: uverbs::QueuePair) -> uverbs::Result<()> {
/// if let Err(refused) = route.connect(qp, &Param::default()) {
///     let (error, qp) = refused.into_parts();
///     println!("{error}: {} is in {:?}", qp.qpn(), qp.state());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Refused<T> {
    /// Reason.
    pub error: Error,
    /// Never locked. It makes this type `Sync`, as boxed errors must be, where `T` is not.
    object: Box<Mutex<T>>,
}

impl<T> Refused<T> {
    pub(crate) fn new(error: Error, object: T) -> Self {
        Self { error, object: Box::new(Mutex::new(object)) }
    }

    /// The reason; drops the object.
    #[must_use]
    pub fn into_error(self) -> Error {
        self.error
    }

    /// The object, which still exists.
    #[must_use]
    pub fn into_object(self) -> T {
        self.into_parts().1
    }

    /// Reason and object.
    #[must_use]
    pub fn into_parts(self) -> (Error, T) {
        (self.error, self.object.into_inner().unwrap_or_else(PoisonError::into_inner))
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

#[cfg(test)]
mod tests {
    use uverbs_core::Errno;

    use super::*;
    use crate::QueuePair;

    #[test]
    fn it_is_a_boxed_error_of_any_kind() {
        fn boxed(
            refused: Refused<QueuePair>,
        ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            Err(refused)?
        }
        let _ = boxed;
        let refused = Refused::new(Error::kernel("destroy_qp", Errno::EBUSY), 7);
        let text = refused.to_string();
        let error = Box::<dyn std::error::Error + Send + Sync>::from(refused);
        assert_eq!(error.to_string(), text);
        let object = error.downcast::<Refused<i32>>().unwrap().into_object();
        assert_eq!(object, 7);
    }
}
