//! The engine: executes WQEs and packets on the device's state.
//!
//! | file | what |
//! |---|---|
//! | `scheduler` | a slice of work: frames from the wire, timers, turns |
//! | `doorbell`, `records` | UAR stores and doorbell records |
//! | `deliver` | finds the queue pair of a packet |
//! | `requester`, `requests`, `replies` | requests, responses (IBTA vol 1, 9.7.3 to 9.7.6) |
//! | `loans`, `lent_answers` | payload that is lent instead of sent |
//! | `fetch`, `parts` | send WQEs: read, decoded, checked |
//! | `responder`, `answers` | executes requests and answers them (IBTA vol 1, 9.7.4, 9.7.5) |
//! | `fetches` | READs, atomics and duplicate requests (IBTA vol 1, 9.7.5.1.5) |
//! | `refusal` | checks of a request, and reasons to refuse it |
//! | `receives` | finds the receive WQE of a message |
//! | `datagram`, `dct` | datagrams (IBTA vol 1, 9.8.3), targets of dynamic connections |
//! | `mads` | management datagrams of the device itself (IBTA vol 1, 13.5.1) |
//! | `frames`, `frame_send`, `frame_receive` | whole Ethernet frames |
//! | `complete`, `flush` | CQEs of success and error, flushing after an error |
//! | `page_faults`, `resume` | queues that stop for a page of memory, and resume |
//! | `placement` | FLUSH and ATOMIC WRITE (IBTA annex A19) |
//! | `streams` | streams of a DC initiator |
//! | `tags` | tag matching |
//! | `patience` | timers that wait for a peer without processor time |
//! | `congestion` | congestion notifications (IBTA annex A17.9.3) |
//! | `turn` | budgets and result of a turn |

pub(crate) mod completion;
pub(crate) mod datagram;
mod ethernet;
mod local;
mod requester;
mod responder;
mod scheduler;
mod wqe;
