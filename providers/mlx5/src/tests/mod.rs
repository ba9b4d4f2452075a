//! Queues over heap memory and behind a door that only answers, and what they write and read, byte
//! by byte.
//!
//! Those over heap memory make no system call, so Miri can run them.

mod cq;
mod create;
mod datagram;
mod dc;
mod door;
mod fixture;
mod packet;
mod rekey;
mod rq;
mod sq;
mod srq;
mod wqe;
