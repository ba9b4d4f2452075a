//! The `uverbs` command line.
fn main() {}
