//! Errors that end a stream.

use std::{fmt, io};

use uverbs::Failure;

/// Cause of a stream's end other than a close. It is inside the [`io::Error`] that reads and writes
/// return:
///
/// ```
/// use uverbs_streams::StreamError;
///
/// let error = std::io::Error::from(StreamError::Lost);
/// assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
/// let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<StreamError>());
/// assert_eq!(inner, Some(&StreamError::Lost));
/// let limit = StreamError::TooManyMessages { limit: 3 };
/// assert_eq!(format!("{limit:?}"), limit.to_string());
/// assert!(format!("{limit:#?}").starts_with("TooManyMessages {"));
/// ```
///
/// `{:?}` prints the sentence, `{:#?}` the fields.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer's private data are no stream's: it is another program, or another version.
    Hello {
        /// The field.
        what: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// A message that the protocol doesn't know.
    UnknownMessage {
        /// Immediate data of the message.
        immediate: u32,
    },
    /// A message that isn't a WRITE with immediate data (on iWARP: a SEND of four bytes).
    ForeignMessage,
    /// The peer says that it wrote more bytes than it was given room for.
    TooManyBytes {
        /// Bytes that it tells of.
        bytes: u32,
        /// Room that it had.
        room: u64,
    },
    /// The peer sent more messages than it was allowed to.
    TooManyMessages {
        /// Messages that may be unread at a time.
        limit: u16,
    },
    /// The peer went without closing the stream; bytes may be missing.
    Lost,
    /// The device was removed.
    DeviceRemoved,
    /// A message could not be delivered, or the peer did what this side doesn't allow.
    Failed(Failure),
}

impl StreamError {
    /// The kind of the [`io::Error`] that it becomes.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        use uverbs::Status;
        match self {
            Self::Hello { .. }
            | Self::UnknownMessage { .. }
            | Self::ForeignMessage
            | Self::TooManyBytes { .. }
            | Self::TooManyMessages { .. } => io::ErrorKind::InvalidData,
            Self::DeviceRemoved => io::ErrorKind::ConnectionAborted,
            Self::Failed(failure) if failure.status == Status::RetryExceeded => {
                io::ErrorKind::TimedOut
            }
            Self::Lost | Self::Failed(_) => io::ErrorKind::ConnectionReset,
        }
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello { what, value } => {
                write!(
                    f,
                    "the peer speaks another stream protocol: its {what} is {value}; run a \
                     program on streams or rsockets there"
                )
            }
            Self::UnknownMessage { immediate } => {
                write!(f, "the peer sent message {immediate:#010x}, which is not in the protocol")
            }
            Self::ForeignMessage => {
                f.write_str("the peer sent a message that is not part of a stream")
            }
            Self::TooManyBytes { bytes, room } => {
                write!(f, "the peer reports {bytes} bytes, but had room for {room}")
            }
            Self::TooManyMessages { limit } => {
                write!(f, "the peer sent more than {limit} messages that are not read yet")
            }
            Self::Lost => f.write_str(
                "the peer disconnected without closing the stream; bytes may be missing",
            ),
            Self::DeviceRemoved => f.write_str("the device was removed"),
            Self::Failed(failure) => write!(f, "the stream failed: {failure}"),
        }
    }
}

uverbs::unstable::sentence_in_debug!(
    enum StreamError {
        Hello { what, value },
        UnknownMessage { immediate },
        ForeignMessage,
        TooManyBytes { bytes, room },
        TooManyMessages { limit },
        Lost,
        DeviceRemoved,
        Failed(inner),
    }
);

impl std::error::Error for StreamError {}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        Self::new(error.kind(), error)
    }
}
