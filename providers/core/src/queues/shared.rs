//! What a queue pair shares with the completion queues that its completions go to.

use crate::queues::slots::SlotTable;
use crate::queues::user_index::UserIndex;

/// What a queue pair shares with the completion queues that its completions go to.
#[derive(Debug)]
pub struct QpShared {
    /// The number that completions carry (CQE version 1's user index), unique in the context while
    /// this lives.
    pub user_index: UserIndex,
    /// The send queue's slots.
    pub send: SlotTable,
    /// The receive queue's slots.
    pub recv: SlotTable,
}
