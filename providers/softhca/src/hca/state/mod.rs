//! What the device keeps: objects, tables, lists. Nothing here looks at a ring or a packet by
//! itself; the engine does.
//!
//! | file | what |
//! |---|---|
//! | `common` | what all queue pairs use in common: tables, port, events, counters |
//! | `qp`, `requester`, `responder` | a queue pair, its state machine, and its two halves |
//! | `wqe`, `frame`, `receive` | a send WQE on its way, a frame, a receive that was taken |
//! | `keys`, `access`, `umr` | key table; scatter and gather; the WQE that changes a key |
//! | `cq`, `srq`, `tags` | CQEs, arming, overrun; shared receive queues; lists of tags |
//! | `dct`, `groups` | targets of dynamic connections; multicast groups |
//! | `schedule`, `events`, `port` | who has work; events to be told; the wire, with back-pressure |
//! | `faults` | page faults that wait for an answer |

pub(crate) mod access;
pub(crate) mod block;
pub(crate) mod common;
pub(crate) mod congestion;
pub(crate) mod cq;
pub(crate) mod dct;
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
