//! Objects: keys, queues, events and counters, as commands and WQEs change them.

mod counters;
mod moderation;
mod pages;
mod pending;
mod queues;
mod shared;
mod windows;
