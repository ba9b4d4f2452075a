//! The engine: executes WQEs and packets on the device's state.
//!
//! | folder | content |
//! |---|---|
//! | `scheduler` | slices of work: frames, timers, turns of queue pairs, page faults |
//! | `wqe` | doorbells, doorbell records; fetching and decoding WQEs; tag matching |
//! | `requester` | request packets; received ACKs, NAKs, READ data (IBTA vol 1, 9.7.3 to 9.7.6) |
//! | `responder` | checks and executes requests; makes and sends ACKs, NAKs and READ responses |
//! | `completion` | CQEs of success and error; flushing after an error |
//! | `datagram` | UD (IBTA vol 1, 9.8.3), DC targets, management datagrams |
//! | `local` | payload and READ responses that a peer on this host copies itself (loans) |
//! | `ethernet` | Ethernet frames of raw packet queues |

pub(crate) mod completion;
pub(crate) mod datagram;
mod ethernet;
mod local;
mod requester;
mod responder;
pub(crate) mod scheduler;
mod wqe;
