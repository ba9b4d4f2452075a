//! Skips and replays of fuzz corpora, for the tests of all crates. Depends on none of them.

mod replay;
mod skip;

pub use replay::replay;
pub use skip::skip;
