//! The contract between uverbs and its providers, and the doors to the kernel.
//!
//! | module | content |
//! |---|---|
//! | [`doors`] | one open uverbs file: the kernel's, and wrappers that record or inject faults |
//! | [`commands`] | the verbs, packed as ioctls that leave through a door |
//! | [`connection`] | errors of connections |
//! | [`discovery`] | discovery of devices: RDMA netlink, then sysfs |
//! | [`attr`] | attributes of devices, ports and queue pairs, typed |
//! | [`objects`] | the kernel's objects, as handles that own them |
//! | [`memory`] | memory that a device reads or writes |
//! | [`queues`] | work requests, completions, and the slots between them |
//! | [`order`] | fences, and accesses that a device sees |
//! | [`provider`] | traits that a provider implements |
//! | [`report`] | places, counters and objects of devices |
//! | [`thread`] | threads of the library, which block all signals |
//! | [`environment`] | environment variables |
//! | [`private_file`] | files that only the user may read |
//! | [`trace`] | trace of a process's RDMA calls, if requested |

pub mod attr;
pub mod commands;
pub mod connection;
pub mod discovery;
pub mod doors;
pub mod environment;
pub mod errno;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod memory;
pub mod objects;
pub mod order;
pub mod private_file;
pub mod provider;
pub mod queues;
pub mod report;
mod sentence;
mod sync;
#[cfg(test)]
mod testing;
pub mod thread;
pub mod trace;

pub use errno::Errno;
pub use error::Error;
