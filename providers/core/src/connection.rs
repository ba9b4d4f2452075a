//! Error of a connection attempt, or of a connection that ended.

use std::fmt;
use std::time::Duration;

use crate::Errno;

/// Description of a failed attempt to connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The peer's address, with its port: `10.0.0.1:7471`.
    pub to: String,
    /// Time limit of each step.
    pub limit: Duration,
}

/// Error of a connection attempt, or of a connection that ended.
///
/// ```
/// # mod uverbs {
/// #     pub use uverbs_core::error::Error;
/// #     pub mod cm { pub use uverbs_core::connection::*; }
/// # }
/// use uverbs::Error;
/// use uverbs::cm::ConnectionErrorKind;
///
/// fn may_come_later(error: &Error) -> bool {
///     let Error::Connection(error) = error else { return false };
///     match error.kind {
///         ConnectionErrorKind::Unreachable { .. } => true,
///         ConnectionErrorKind::Rejected { reason, .. } => {
///             reason == ConnectionErrorKind::NO_LISTENER
///         }
///         _ => false,
///     }
/// }
/// # let _ = may_come_later;
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ConnectionError {
    /// Kind of failure.
    pub kind: ConnectionErrorKind,
    /// The attempt, if known.
    pub attempt: Option<Box<Attempt>>,
}

/// Kinds of connection failures. IBTA vol 1, 12.6 (the messages), 12.6.7.2 (the reasons of a
/// rejection).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionErrorKind {
    /// A name could not be resolved to an address.
    NameUnresolved {
        /// The host, with the service behind a colon if one was requested.
        name: String,
        /// Cause.
        reason: NameError,
    },
    /// No device, no route or no neighbour was found for the address.
    AddressUnresolved {
        /// Cause.
        errno: Errno,
    },
    /// No path to the address was found.
    RouteUnresolved {
        /// Cause.
        errno: Errno,
    },
    /// The peer's host did not answer.
    Unreachable {
        /// Cause.
        errno: Errno,
    },
    /// The connection manager failed.
    Failed {
        /// Cause.
        errno: Errno,
    },
    /// The peer rejected the request.
    Rejected {
        /// The reason: [`NO_LISTENER`](Self::NO_LISTENER), [`STALE`](Self::STALE),
        /// [`CONSUMER`](Self::CONSUMER), or others of IBTA vol 1, table 110. iWARP reports a
        /// negative errno instead.
        reason: i32,
        /// Private data of the rejection, padded with zeros to the message's 148 bytes.
        private_data: Vec<u8>,
    },
    /// The peer ended the connection.
    Disconnected,
    /// The device was removed.
    DeviceRemoved,
    /// An event that is wrong at this step, by its number.
    Unexpected(u32),
}

impl ConnectionErrorKind {
    /// No program listens at this port ("invalid service ID").
    pub const NO_LISTENER: i32 = 8;
    /// The peer still has a connection to a queue pair by this number and address ("stale
    /// connection"). The peer ends that connection, and the next attempt may succeed (`cm.c`,
    /// `cm_match_req`).
    pub const STALE: i32 = 10;
    /// The peer's program rejected the request ("consumer reject").
    pub const CONSUMER: i32 = 28;
    /// The peer's program does not support the vendor's options ("vendor option not supported").
    pub const VENDOR_OPTIONS: i32 = 35;

    /// The error of this kind for `attempt`.
    #[must_use]
    pub fn of(self, attempt: Attempt) -> ConnectionError {
        ConnectionError { kind: self, attempt: Some(Box::new(attempt)) }
    }
}

impl From<ConnectionErrorKind> for ConnectionError {
    fn from(kind: ConnectionErrorKind) -> Self {
        Self { kind, attempt: None }
    }
}

impl ConnectionError {
    /// Value of `errno` after librdmacm's synchronous calls (`cma.c:ucma_complete`).
    #[must_use]
    pub fn to_errno(&self) -> Errno {
        match &self.kind {
            ConnectionErrorKind::NameUnresolved { reason, .. } => reason.to_errno(),
            ConnectionErrorKind::AddressUnresolved { errno }
            | ConnectionErrorKind::RouteUnresolved { errno }
            | ConnectionErrorKind::Unreachable { errno }
            | ConnectionErrorKind::Failed { errno } => *errno,
            ConnectionErrorKind::Rejected { .. } => Errno::ECONNREFUSED,
            ConnectionErrorKind::Disconnected => Errno::ECONNRESET,
            ConnectionErrorKind::DeviceRemoved => Errno::ENODEV,
            ConnectionErrorKind::Unexpected(_) => Errno::EPROTO,
        }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ConnectionErrorKind as Kind;

        if let Some(Attempt { to, .. }) = self.attempt.as_deref() {
            write!(f, "{to}: ")?;
        }
        // Names the time limit if it expired.
        let within = match (self.to_errno(), self.attempt.as_deref()) {
            (Errno::ETIMEDOUT, Some(Attempt { limit, .. })) => format!(" within {limit:?}"),
            _ => String::new(),
        };
        match &self.kind {
            Kind::NameUnresolved { name, reason } => write!(f, "can't resolve {name}: {reason}"),
            Kind::AddressUnresolved { errno: Errno::ENODEV } => {
                f.write_str("the network interface of the route has no RDMA device")
            }
            Kind::AddressUnresolved { errno } => {
                write!(f, "the address was not resolved{within}: {errno}")
            }
            Kind::RouteUnresolved { errno } => {
                write!(f, "no path was found{within}: {errno}; InfiniBand needs a subnet manager")
            }
            // Expired in the kernel, whose time limit exceeds most programs' limits.
            Kind::Unreachable { errno } => write!(
                f,
                "the peer did not answer: {errno}; is its host up, and does UDP port 4791 pass?"
            ),
            Kind::Failed { errno } => write!(f, "connecting failed: {errno}"),
            Kind::Rejected { reason: Kind::NO_LISTENER, .. } => {
                f.write_str("rejected: no program listens at this port (reason 8)")
            }
            Kind::Rejected { reason: Kind::STALE, .. } => f.write_str(
                "rejected: the peer still has an old connection of this queue pair number and ends \
                 it now; connect again (reason 10)",
            ),
            Kind::Rejected { reason: Kind::CONSUMER, private_data } => {
                f.write_str("rejected by the peer's program (reason 28)")?;
                printable(private_data).map_or(Ok(()), |text| write!(f, ": {text}"))
            }
            Kind::Rejected { reason, .. } => write!(f, "rejected with reason {reason}"),
            Kind::Disconnected => f.write_str("the peer ended the connection"),
            Kind::DeviceRemoved => f.write_str("the device was removed"),
            Kind::Unexpected(event) => write!(f, "unexpected connection manager event {event}"),
        }
    }
}

/// Private data that is a line of text, without the zeros that pad the message.
fn printable(data: &[u8]) -> Option<&str> {
    let end = data.iter().rposition(|byte| *byte != 0)? + 1;
    let text = std::str::from_utf8(&data[..end]).ok()?;
    (!text.contains(char::is_control)).then_some(text)
}

crate::sentence_in_debug!(struct ConnectionError { kind, attempt });

impl std::error::Error for ConnectionError {}

/// Error of `getaddrinfo` (POSIX, `netdb.h`) for a name without address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NameError {
    /// `EAI_*`.
    pub code: i32,
    /// The errno of `EAI_SYSTEM`; meaningless with other codes.
    pub errno: Errno,
}

impl NameError {
    /// The nearest errno: `ENOENT` for a missing name, `EAGAIN` if it may exist later.
    #[must_use]
    pub fn to_errno(self) -> Errno {
        match self.code {
            libc::EAI_SYSTEM => self.errno,
            libc::EAI_MEMORY => Errno::ENOMEM,
            libc::EAI_AGAIN => Errno::EAGAIN,
            libc::EAI_FAMILY | libc::EAI_BADFLAGS | libc::EAI_SOCKTYPE => Errno::EINVAL,
            _ => Errno::ENOENT,
        }
    }
}

/// `EAI_ADDRFAMILY` of glibc's `netdb.h`, which the `libc` crate doesn't have.
const EAI_ADDRFAMILY: i32 = -9;

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            libc::EAI_NONAME => f.write_str("no such host or service"),
            libc::EAI_SERVICE => f.write_str("no such service in this port space"),
            libc::EAI_NODATA | EAI_ADDRFAMILY => {
                f.write_str("the host has no address of this family")
            }
            libc::EAI_AGAIN => f.write_str("no name server answered"),
            libc::EAI_FAIL => f.write_str("a name server failed"),
            libc::EAI_MEMORY => f.write_str("out of memory"),
            libc::EAI_SYSTEM => write!(f, "{}", self.errno),
            code => write!(f, "getaddrinfo answered {code}"),
        }
    }
}

crate::sentence_in_debug!(struct NameError { code, errno });

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_peer_and_what_it_waited_for() {
        let tried = Attempt { to: "10.0.0.9:7471".to_owned(), limit: Duration::from_secs(2) };
        let late = ConnectionErrorKind::AddressUnresolved { errno: Errno::ETIMEDOUT };
        let text = format!("the address was not resolved: {}", Errno::ETIMEDOUT);
        assert_eq!(ConnectionError::from(late.clone()).to_string(), text);
        let error = late.of(tried.clone());
        let text =
            format!("10.0.0.9:7471: the address was not resolved within 2s: {}", Errno::ETIMEDOUT);
        assert_eq!(error.to_string(), text);
        assert_eq!(error.attempt, Some(Box::new(tried.clone())));
        let refused = ConnectionErrorKind::Rejected {
            reason: ConnectionErrorKind::NO_LISTENER,
            private_data: Vec::new(),
        };
        let text = "10.0.0.9:7471: rejected: no program listens at this port (reason 8)";
        assert_eq!(refused.of(tried).to_string(), text);
    }

    #[test]
    fn a_rejection_prints_the_text_of_its_program() {
        let text = |private_data: &[u8]| {
            let private_data = private_data.to_vec();
            let kind = ConnectionErrorKind::Rejected {
                reason: ConnectionErrorKind::CONSUMER,
                private_data,
            };
            ConnectionError::from(kind).to_string()
        };
        let bare = "rejected by the peer's program (reason 28)";
        assert_eq!(text(b"full today\0\0\0"), format!("{bare}: full today"));
        for data in [&b""[..], &[0; 148], b"\x01\x02", &[0xff; 3], b"a\nb"] {
            assert_eq!(text(data), bare);
        }
    }
}
