//! The engine: what the device does with the state.
//!
//! | file | what |
//! |---|---|
//! | `scheduler` | a slice of work: frames from the wire, timers, turns |
//! | `doorbell`, `records` | UAR stores and doorbell records |
//! | `deliver` | a packet to its queue pair |
//! | `requester`, `requests`, `replies` | requests and their responses (IBTA vol 1, 9.7.3 to 9.7.6) |
//! | `loans`, `lent_answers` | payload that is lent instead of sent |
//! | `fetch`, `parts` | send WQEs: read, decoded, checked |
//! | `responder`, `answers` | requests are executed and answered (IBTA vol 1, 9.7.4, 9.7.5) |
//! | `receives` | where a message finds its receive |
//! | `datagram`, `dct` | datagrams (IBTA vol 1, 9.8.3), and targets of dynamic connections |
//! | `mads` | management datagrams of the device's own (IBTA vol 1, 13.5.1) |
//! | `frames`, `frame_send`, `frame_receive` | whole Ethernet frames |
//! | `complete`, `flush` | completions of either kind, and what an error leaves behind |
//! | `page_faults`, `resume` | queues that wait for pages of memory, and go on |
//! | `placement` | FLUSH and ATOMIC WRITE (IBTA annex A19) |
//! | `streams` | streams of a DC initiator |
//! | `tags` | messages that find their buffers by tags |
//! | `patience` | timers that wait for a peer without processor time |
//! | `congestion` | notifications of congestion (IBTA annex A17.9.3) |
//! | `turn` | budgets of a turn, and what it came to |

mod answers;
pub(crate) mod complete;
mod congestion;
mod datagram;
pub(crate) mod dct;
mod deliver;
mod doorbell;
mod fetch;
mod fetches;
mod flush;
mod frame_receive;
mod frame_send;
mod frames;
mod lent_answers;
mod loans;
mod mads;
mod page_faults;
mod parts;
mod patience;
mod placement;
mod receives;
mod records;
mod refusal;
mod replies;
mod requester;
mod requests;
mod responder;
mod resume;
mod scheduler;
mod streams;
mod tags;
mod turn;
