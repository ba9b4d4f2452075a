//! Asking a completion queue for an event.

use crate::error::Error;

/// What raises the event that a completion queue was armed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Notify {
    /// The next completion.
    #[default]
    Any,
    /// The next one that failed, or whose sender asked for an event
    /// ([`Wr::solicited`](crate::queues::work::Wr::solicited)).
    Solicited,
}

/// Arms a completion queue beside whoever polls it, as
/// [`CqOps::arm`](crate::provider::CqOps::arm) does, from what was
/// [published](crate::provider::CqOps::publish). A completion that was taken and isn't published
/// may raise the event once more.
pub type Armer = Box<dyn Fn(Notify) -> Result<(), Error> + Send + Sync>;
