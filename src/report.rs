//! Reports on a device: counters, and objects with their holders.

pub use uverbs_core::report::Gap;
pub use uverbs_core::report::counters::{Counter, CounterSet, Counters};
pub use uverbs_core::report::resources::{Holder, Resource, ResourceKind, Resources};
