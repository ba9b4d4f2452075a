//! Scalable Reliable Datagrams between devices: each message arrives once, in any order, or its
//! peer is lost.
//!
//! Amazon publishes no packet format, so this one is softefa's. A message travels in segments. A
//! *stream* numbers the packets of one device to another; the receiver acknowledges numbers, and
//! takes each once. The sender repeats a packet without acknowledgement, and gives its peer up
//! after five seconds. The next message then begins a new stream. Acknowledgements tell the other
//! device that messages to it were discarded: it waits for no answer to its own stream.
//!
//! - `packet`: layout; `outgoing`, `incoming`: both ends of a stream; `endpoint`: all streams of a
//!   device.
//!
//! The module has no I/O and no clock: the caller carries packets, and tells the time.

pub(crate) mod endpoint;
mod incoming;
mod outgoing;
mod packet;
#[cfg(test)]
mod tests;

/// GID of a device.
pub(crate) type Gid = [u8; 16];
