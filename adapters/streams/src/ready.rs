//! Readiness of a stream or a socket.

/// Directions of a stream that are waited for ([`RdmaStream::ready`](super::RdmaStream::ready)), or
/// worth a try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Bytes are there, or the end.
    pub read: bool,
    /// Bytes may go, or never again.
    pub write: bool,
}
