//! Memory that a device reads or writes: pages, doorbell records, frames, memory exposed to peers.

pub mod allocator;
pub mod bytes;
mod chunks;
pub mod dbrec;
pub mod exposed;
pub mod frame;
pub mod indirect;
pub mod mapping;
pub mod memlock;
pub mod pages;
pub mod per_process;
pub mod pool;
pub mod post;
pub mod process;
pub mod registered;
pub mod shared;
pub mod window;
