//! The usual completion: a success of a queue pair that is known, without a buffer.

/// What takes a completion's view. Not a closure: those aren't always inlined.
pub trait Sink<V> {
    /// What it makes of it.
    type Output;

    /// Takes the view of a completion, and its work request's number.
    fn take(self, view: V, wr_id: u64) -> Self::Output;
}

/// What [`CqOps::next_usual`](super::CqOps::next_usual) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual<R> {
    /// A completion, which the sink took.
    Taken(R),
    /// There is none.
    Nothing,
    /// Something that is for [`next`](super::CqOps::next).
    Unusual,
}
