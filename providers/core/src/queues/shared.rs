//! What a queue pair shares with the completion queues that its completions go to.

use std::any::Any;
use std::sync::Arc;

use crate::queues::slots::SlotTable;
use crate::queues::srq::SrqShared;
use crate::queues::user_index::UserIndex;

/// What a queue pair shares with the completion queues that its completions go to; or a shared
/// receive queue of XRC, whose completions name it and not the queue pair.
#[derive(Debug)]
pub struct QpShared {
    /// The number that completions carry (CQE version 1's user index), unique in the context while
    /// this lives.
    pub user_index: UserIndex,
    /// The queue pair's number.
    pub qpn: u32,
    /// The send queue's slots.
    pub send: SlotTable,
    /// The receive queue's slots; [`SlotTable::none`] where receives are another's.
    pub recv: SlotTable,
    /// Where receives come from, if the queue pair has no queue of its own for them.
    pub srq: Option<Arc<SrqShared>>,
    /// What the provider's polling side needs besides, of a queue pair that it takes special care
    /// of.
    pub special: Option<Box<dyn Any + Send + Sync>>,
}
