//! The uverbs kernel ABI as Rust types.
