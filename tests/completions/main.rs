//! Completions: queues, entries, channels and timestamps.

mod compressed;
mod cq_sizes;
mod entries;
mod events;
mod places;
mod timestamps;
