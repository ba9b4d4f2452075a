//! A software Elastic Fabric Adapter (EFA): kernel driver and device.
//!
//! | folder | content |
//! |---|---|
//! | `kernel` | answers the ioctls that `ib_uverbs` and `efa` answer |
//! | `device` | reads rings and doorbells, moves data, writes completions |
//! | `srd` | numbers, acknowledges and repeats packets between devices on a wire |
//!
//! It shares layouts with the provider (`uverbs-kernel-abi`), and no code. The device accesses
//! rings and registers by reading and writing the memfds that the program maps, and the program's
//! memory by `process_vm_readv`: it holds no pointer into either.
//!
//! Messages of all devices of a [`Fabric`] are delivered in an order that the seed decides. Devices
//! of other processes are reached by packets on softhca's wires, in a format of softefa's. The
//! device is strict: a work request with a reserved bit fails, and a doorbell beyond the ring, or
//! an element with the phase of an earlier turn, brings the queue pair to the error state.
//!
//! # Assumptions
//!
//! No public text describes these answers of the device:
//!
//! - A SEND with a wrong Q_Key fails as one to a missing queue pair; over UD it is dropped.
//! - A message that is longer than the receive fails, and leaves the receive in the queue.
//! - After RESET the device reads element 0, with the phase of a new queue.
//! - A flushed work request counts as failed. A WRITE with immediate data counts as a WRITE of the
//!   peer and as a receive, and without a receive as the WRITE alone.
//! - A peer that is silent for five seconds is unresponsive. RNR retries to another process are a
//!   millisecond apart.

mod device;
mod door;
mod embedded;
mod kernel;
mod random;
mod softefa;
mod srd;

pub use device::world::Fabric;
pub use softefa::{SoftEfa, SoftEfaBuilder};
