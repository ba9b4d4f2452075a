//! The device's connection manager: what Linux's `ib_cm`, `rdma_cm` and `rdma_ucm` are, for the
//! programs of this process that ask the device's own door
//! ([`DeviceSource::open_cm`](uverbs_core::doors::DeviceSource::open_cm)).
//!
//! It speaks the messages of InfiniBand's connection manager (IBTA vol 1, chapter 12) on queue pair
//! 1, over the device's wire, so the other side can be any other connection manager.
//!
//! | file | what | in Linux |
//! |---|---|---|
//! | `commands` | the commands of a door | `ucma.c` |
//! | `connections`, `groups`, `paths` | those of connections, multicast groups and paths | `ucma.c`, `cma.c` |
//! | `manager` | ids, files and what leads to them | `cma.c` |
//! | `held` | requests that wait for a listener | none |
//! | `incoming` | what a message does to an id | `cm.c`, `cma.c:cma_ib_handler` |
//! | `timers` | what is sent again, and what ends by itself | `cm.c` |
//! | `refusals` | messages that say no | `cm.c` |
//! | `id` | one id and its connection | `struct rdma_cm_id`, `struct cm_id_private` |
//! | `queue` | the events of a door | `ucma.c`: event lists |
//! | `fields` | what commands are made of | `rdma_user_cm.h` |
//! | `header`, `mad` | bytes of messages | `cm_msgs.h` |
//!
//! Top to bottom; each uses only those below it. The door stands above, in `cm_door`.

mod commands;
mod connections;
mod fields;
mod groups;
mod header;
mod held;
mod id;
mod incoming;
mod mad;
mod manager;
mod paths;
mod queue;
mod refusals;
mod timers;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;

pub(crate) use manager::{Host, Manager};
