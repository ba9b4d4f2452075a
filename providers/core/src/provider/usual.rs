//! The usual completion: a success of a queue pair that was seen before, without a buffer.

/// What takes the view of a usual completion. Not a closure: those aren't always inlined.
pub trait Sink<V> {
    /// What it makes of it.
    type Output;

    /// Whether calls may be made on the way, which cost its caller registers: then a receive of a
    /// shared queue is usual, too. A buffer that it has is let go.
    const CALLS: bool;

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
