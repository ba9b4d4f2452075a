//! Skips, replays of fuzz corpora, and processor time, for the tests of all crates. Depends on none
//! of them.

mod replay;
mod skip;
mod ticks;

pub use replay::replay;
pub use skip::skip;
pub use ticks::processor_ticks;
