//! Queues of the driver.
//!
//! | file | content |
//! |---|---|
//! | `messages` | rings and buffers of a queue that sends and receives short messages |
//! | `gsi` | management datagrams on queue pair 1 |
//! | `neighbours` | MAC addresses of peers |

pub(crate) mod gsi;
pub(crate) mod messages;
pub(crate) mod neighbours;
