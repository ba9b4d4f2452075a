//! The commands, a file for each kind of object. Each checks its input as Linux does, and changes
//! the state.

pub(crate) mod device;
pub(crate) mod memory;
pub(crate) mod packets;
pub(crate) mod queues;
