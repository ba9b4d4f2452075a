//! State that a queue pair shares with the completion queues of its completions.

use std::any::Any;
use std::sync::Arc;

use crate::queues::slots::SlotTable;
use crate::queues::srq::SrqShared;
use crate::queues::user_index::UserIndex;

/// State that a queue pair shares with the completion queues of its completions. Also used for an
/// XRC shared receive queue, whose completions name the queue and not the queue pair.
#[derive(Debug)]
pub struct QpShared {
    /// Number that completions carry (the user index of CQE version 1), unique in the context while
    /// this lives.
    pub user_index: UserIndex,
    /// Queue pair number.
    pub qpn: u32,
    /// Slots of the send queue.
    pub send: SlotTable,
    /// Slots of the receive queue; [`SlotTable::none`] with a shared receive queue.
    pub recv: SlotTable,
    /// Shared receive queue, if the queue pair uses one.
    pub srq: Option<Arc<SrqShared>>,
    /// Data of the provider's poller for queue pairs that need special handling.
    pub special: Option<Box<dyn Any + Send + Sync>>,
}
