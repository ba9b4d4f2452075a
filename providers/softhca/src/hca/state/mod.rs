//! State of the device: objects, tables, lists. The modules here do not read rings or packets; the
//! engine does.
//!
//! | file | what |
//! |---|---|
//! | `common` | parts that all queue pairs use: tables, port, events, counters |
//! | `qp`, `requester`, `responder` | a queue pair, its state machine, and its two halves |
//! | `wqe`, `frame`, `receive` | a send WQE in flight, an Ethernet frame, a receive in use |
//! | `keys`, `access`, `umr` | key table; scatter and gather; the WQE that changes a key |
//! | `cq`, `block`, `srq`, `tags` | CQEs, arming, overrun; compressed CQEs; SRQs; tag lists |
//! | `dct`, `groups` | targets of dynamic connections; multicast groups |
//! | `doorbells` | UAR pages and the records that are read after a store |
//! | `schedule`, `events`, `port` | queues with work; async events; the wire, with back-pressure |
//! | `mads` | management datagrams of queue pair 1 |
//! | `congestion` | the window of a congested connection |
//! | `faults` | open page faults |

pub(crate) mod access;
pub(crate) mod block;
pub(crate) mod common;
pub(crate) mod congestion;
pub(crate) mod cq;
pub(crate) mod dct;
pub(crate) mod doorbells;
pub(crate) mod events;
pub(crate) mod faults;
pub(crate) mod frame;
pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod mads;
pub(crate) mod port;
pub(crate) mod qp;
pub(crate) mod receive;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod schedule;
pub(crate) mod srq;
pub(crate) mod tags;
pub(crate) mod umr;
pub(crate) mod wqe;
