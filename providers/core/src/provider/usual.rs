//! The usual completion: a success of a queue pair that was seen before, on a queue that holds no
//! buffers.

/// What takes the view of a usual completion. Not a closure: those aren't always inlined.
pub trait Sink<V> {
    /// What it makes of it.
    type Output;

    /// Whether calls may be made on the way, which cost its caller registers. Then a receive of a
    /// queue that completes in any order is usual, too, as those of a shared queue; if it has a
    /// buffer, that goes back to its slab.
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
