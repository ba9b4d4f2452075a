//! For tests and fuzzers: the kernel's part of the commands, and posts that name no device.

mod call;
mod kernel;
mod ledger;
mod liar;
mod memory;
mod posts;

pub use call::Call;
pub use kernel::{Kernel, Model, State};
pub use ledger::Ledger;
pub use liar::{Liar, objects};
pub use memory::SharedMemory;
pub use posts::{free, post_recv, post_send, post_send_to, slab};
