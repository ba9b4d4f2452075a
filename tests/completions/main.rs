//! Completions: queues, entries, channels and timestamps.

mod cq_sizes;
mod entries;
mod events;
mod timestamps;
