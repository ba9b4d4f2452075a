//! State that the poster and the poller share: work requests, completions, and the slots between.

pub mod by_index;
pub mod completion;
pub(crate) mod inbox;
#[cfg(all(test, uverbs_loom))]
mod interleavings;
pub mod known;
pub mod layout;
pub mod placement;
pub mod shared;
pub mod slot;
pub mod slots;
pub mod srq;
pub mod tag_changes;
pub mod tag_message;
pub mod tag_table;
pub mod tag_work;
pub mod token;
pub mod turns;
pub mod user_index;
pub mod work;
