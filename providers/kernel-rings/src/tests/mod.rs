//! Queues over a driver of the tests' own.

mod create;
mod driver;
mod kernel;
mod queues;
mod rig;
mod srq;
