//! Arming a completion queue for an event.

use crate::error::Error;

/// Completions that raise the event of an armed completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Notify {
    /// The next completion.
    #[default]
    Any,
    /// The next completion that failed, or whose sender asked for an event
    /// ([`Wr::solicited`](crate::queues::work::Wr::solicited)).
    Solicited,
}

/// Arms a completion queue from any thread, while another thread polls it. It arms like
/// [`CqOps::arm`](crate::provider::CqOps::arm), at the consumer index that was last
/// [published](crate::provider::CqOps::publish). A completion that was polled and is not published
/// yet may raise the event again.
pub type Armer = Box<dyn Fn(Notify) -> Result<(), Error> + Send + Sync>;
