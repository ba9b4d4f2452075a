//! Queues of the driver.
//!
//! | file | content |
//! |---|---|
//! | `messages` | rings and buffers of a queue that sends and receives short messages |
//! | `gsi` | management datagrams on queue pair 1 |
//! | `frames` | raw queues that hear ARP and ICMPv6 |
//! | `arp` | their frames |
//! | `neighbours` | MAC addresses of peers |

pub(crate) mod arp;
pub(crate) mod frames;
pub(crate) mod gsi;
pub(crate) mod messages;
pub(crate) mod neighbours;
