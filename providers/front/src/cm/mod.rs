//! The device's connection manager, in the role of Linux's `ib_cm`, `rdma_cm` and `rdma_ucm`. It
//! serves the programs of this process that open the device's door
//! ([`DeviceSource::open_cm`](uverbs_core::doors::DeviceSource::open_cm)).
//!
//! It exchanges the messages of InfiniBand's connection manager (IBTA vol 1, chapter 12) on queue
//! pair 1, over the device's wire, so the peer can be any other connection manager.
//!
//! | file | contents | in Linux |
//! |---|---|---|
//! | `commands` | the commands of a door | `ucma.c` |
//! | `connections`, `groups`, `paths` | commands by kind of id | `ucma.c`, `cma.c` |
//! | `manager` | ids, doors, addresses and ports | `cma.c` |
//! | `held` | requests that wait for a listener | none |
//! | `incoming` | received messages | `cm.c`, `cma.c:cma_ib_handler` |
//! | `timers` | repetitions, timeouts, the time-wait state | `cm.c` |
//! | `refusals` | messages that reject | `cm.c` |
//! | `ids` | ids by number, port, peer, timer | `cma.c`: bind lists; `cm.c`: trees of `struct cm` |
//! | `id` | an id and its connection | `struct rdma_cm_id`, `struct cm_id_private` |
//! | `queue` | the events of a door | `ucma.c`: event lists |
//! | `fields` | structs of commands | `rdma_user_cm.h` |
//! | `header`, `mad` | bytes of messages | `cm_msgs.h` |
//!
//! Each row uses only the rows below it. The door itself is in [`cm_door`](crate::cm_door).

mod commands;
mod connections;
mod fields;
mod groups;
mod header;
mod held;
mod id;
mod ids;
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

pub use manager::{Host, Manager};
pub use queue::Bell;
