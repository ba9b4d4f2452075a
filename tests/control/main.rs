//! The control path: devices, objects, states, and errors that name their cause.

mod async_events;
mod bad_input;
mod bad_posts;
mod cards;
mod control;
mod ece;
mod hints;
mod limits;
mod reports;
mod states;
mod wide_lids;
