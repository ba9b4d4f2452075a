//! Fast path of polling: a successful completion of a queue pair that was seen before, on a queue
//! that holds no buffers.

/// Consumer of a fast-path completion. A trait, because closures are not always inlined.
pub trait Sink<V> {
    /// Result of the sink.
    type Output;

    /// Allows function calls during the poll, which cost the caller registers. The fast path then
    /// also takes receives of out-of-order and shared queues; a buffer of such a receive goes back
    /// to its slab.
    const CALLS: bool;

    /// Takes the view of a completion, and its work request number.
    fn take(self, view: V, wr_id: u64) -> Self::Output;
}

/// Result of [`CqOps::next_usual`](super::CqOps::next_usual).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual<R> {
    /// A completion, which the sink took.
    Taken(R),
    /// The completion queue is empty.
    Nothing,
    /// A completion of the slow path: call [`next`](super::CqOps::next).
    Unusual,
}
