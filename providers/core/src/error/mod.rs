//! Errors. Control path errors name the verb and carry the limit and value, or the errno. Data path
//! errors convert into them.

mod hint;
mod text;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::Errno;
use crate::attr::QpState;
use crate::connection::{ConnectionError, ConnectionErrorKind};
use crate::queues::completion::{Failure, Status};
use crate::queues::work::PostError;
use crate::sentence_in_debug;

/// A result whose error is [`Error`], unless another is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a control path verb.
///
/// Verbs of the control path return it. The data path has smaller errors ([`PostError`],
/// [`Failure`], [`OutOfRange`]). Each converts into this type, so `?` works on all of them in a
/// function that returns [`Result`]. This type converts into [`std::io::Error`], which keeps it as
/// its source.
///
/// [`to_errno`](Self::to_errno) returns the `errno` that a C program would get. `{}` and `{:?}`
/// print a sentence, `{:#?}` the fields.
///
/// ```
/// # use uverbs_core::error::Error;
/// let error = Error::Limit { verb: "create_cq", what: "cqe", value: 1 << 30, limit: 4096 };
/// assert_eq!(format!("{error:?}"), "create_cq: cqe is 1073741824, must be at most 4096");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused the call. Methods list special errnos; these come from many:
    ///
    /// | errno | cause | remedy |
    /// |---|---|---|
    /// | `EIO` | the device was removed, or its firmware failed | drop its objects, list devices |
    /// | `ENOMEM` | no memory of kernel or device, `RLIMIT_MEMLOCK` | less; `ulimit -l` |
    /// | `ENOSPC` | the device has no more of these objects | destroy some |
    /// | `EBUSY` | another object or call uses it | destroy that first, or retry |
    /// | `EINVAL` | a value that this driver rejects | compare with the device's limits |
    /// | `EPERM` | a missing capability, a privileged Q_Key | mostly `CAP_NET_RAW` |
    /// | `EACCES` of `modify_qp` | SELinux denies the P_Key | a rule |
    /// | `EAGAIN` of a creation | the rdma cgroup, the device's resources | `rdma.max` |
    /// | `ETIMEDOUT` | the peer's MAC address was not resolved | `ip neigh` |
    /// | `EREMOTEIO` | the firmware refused the command | its syndrome in `dmesg` |
    /// | `EOPNOTSUPP`, `EPROTONOSUPPORT` | device, driver or kernel lacks it | another way |
    /// | `EMFILE` | no file descriptor is left | `ulimit -n`, or fewer open devices |
    Kernel {
        /// The verb: its C name without the prefix, such as `create_qp`.
        verb: &'static str,
        /// The kernel's errno.
        errno: Errno,
        /// Usual cause, if known.
        hint: Option<Cow<'static, str>>,
    },
    /// A value exceeds (or is below) a limit. The library rejected it, or found it to be the cause
    /// of the kernel's `EINVAL`.
    Limit {
        /// The verb.
        verb: &'static str,
        /// The attribute.
        what: &'static str,
        /// Requested value.
        value: u64,
        /// The nearest permitted value.
        limit: u64,
    },
    /// A value is invalid here. The library rejected it without calling the kernel.
    Invalid {
        /// The verb.
        verb: &'static str,
        /// The attribute.
        what: &'static str,
        /// Given value, as text.
        value: String,
        /// Accepted values.
        why: &'static str,
    },
    /// A QP transition lacks an attribute that it needs.
    MissingAttribute {
        /// The verb.
        verb: &'static str,
        /// The attribute that is missing.
        attribute: &'static str,
    },
    /// The queue pair is in the wrong state.
    State {
        /// The verb.
        verb: &'static str,
        /// Current state.
        state: QpState,
        /// Required state.
        needs: QpState,
    },
    /// Device not found: none with this name, or none at all.
    NoSuchDevice {
        /// Requested name; empty if any device was accepted.
        name: String,
        /// Names of the existing devices.
        available: Vec<String>,
    },
    /// No device of this machine can be opened.
    NoUsableDevice {
        /// The devices and the reason of each.
        passed: Vec<(String, String)>,
        /// Errno of the first one.
        errno: Errno,
    },
    /// The process may not open the device node.
    PermissionDenied {
        /// The node.
        path: String,
    },
    /// Memory could not be pinned: `RLIMIT_MEMLOCK` is too low (the kernel says only `ENOMEM`).
    Memlock {
        /// The verb.
        verb: &'static str,
        /// Requested bytes.
        wanted: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The device, its driver or this build lacks a feature.
    Unsupported {
        /// The verb.
        verb: &'static str,
        /// Missing feature.
        what: String,
    },
    /// The time limit expired.
    TimedOut {
        /// The verb.
        verb: &'static str,
        /// Duration of the wait.
        waited: Duration,
        /// Cause, if one was found.
        why: Option<String>,
    },
    /// The device was removed, or its driver unloaded. Outstanding work requests will not complete.
    DeviceGone {
        /// The verb.
        verb: &'static str,
    },
    /// Completions named no outstanding work request, and were dropped. The work requests that they
    /// belong to may never complete. Device or driver is at fault; destroy the queue pairs.
    Unmatched {
        /// The verb.
        verb: &'static str,
        /// Completions dropped since the last such error.
        count: u64,
    },
    /// The device was opened by another process, of which this one is a forked child. No command
    /// was sent.
    OtherProcess {
        /// The verb.
        verb: &'static str,
    },
    /// A software HCA could not be started, or a PCI function without a kernel driver not opened.
    SoftHca {
        /// Its name, with its address if it has one.
        name: String,
        /// Errno of a software HCA: `EINVAL` for a malformed address, `EADDRNOTAVAIL` for an
        /// address that this host lacks, `EADDRINUSE` for an address in use. Errno of a function:
        /// `EBUSY` if another process has it, `EACCES` without access to its node, `EINVAL` for a
        /// malformed option.
        errno: Errno,
        /// Cause.
        why: String,
    },
    /// The operating system refused a call other than uverbs (a mapping, a thread, a socket).
    System {
        /// Attempted operation.
        what: &'static str,
        /// Errno of the operation.
        errno: Errno,
    },
    /// An entry of a port's GID table is empty.
    EmptyGid {
        /// The port.
        port: u8,
        /// Requested entry.
        index: u32,
        /// Entries of the port that are in use.
        used: Vec<u32>,
    },
    /// A work request was not posted.
    Post(PostError),
    /// A work request was posted and failed.
    Failed(Failure),
    /// An access outside of exposed memory.
    OutOfRange(OutOfRange),
    /// Text that can't be parsed as an endpoint.
    Endpoint(EndpointError),
    /// A connection attempt failed, or a connection ended.
    Connection(ConnectionError),
}

/// Text that can't be parsed as an endpoint: the invalid part and its text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EndpointError {
    /// The part: `qpn`.
    pub part: &'static str,
    /// Text that was found; empty if the part is missing.
    pub found: String,
}

impl Error {
    /// The errno, if the system reported one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Kernel { errno, .. }
            | Self::SoftHca { errno, .. }
            | Self::NoUsableDevice { errno, .. }
            | Self::System { errno, .. } => Some(*errno),
            Self::PermissionDenied { .. } => Some(Errno::EACCES),
            Self::Memlock { .. } => Some(Errno::ENOMEM),
            Self::EmptyGid { .. } => Some(Errno::ENODATA),
            Self::DeviceGone { .. } | Self::Unmatched { .. } => Some(Errno::EIO),
            _ => None,
        }
    }

    /// The system's errno, if it reported one; otherwise the errno that libibverbs and its
    /// providers return in that case.
    ///
    /// | error | errno |
    /// |---|---|
    /// | [`Limit`](Self::Limit), [`Invalid`](Self::Invalid) | `EINVAL` |
    /// | [`MissingAttribute`](Self::MissingAttribute), [`State`](Self::State) | `EINVAL` |
    /// | [`OutOfRange`](Self::OutOfRange), [`Endpoint`](Self::Endpoint) | `EINVAL` |
    /// | [`NoSuchDevice`](Self::NoSuchDevice) | `ENODEV` |
    /// | [`EmptyGid`](Self::EmptyGid) | `ENODATA` |
    /// | [`DeviceGone`](Self::DeviceGone), [`Unmatched`](Self::Unmatched) | `EIO` |
    /// | [`OtherProcess`](Self::OtherProcess) | `EPERM` |
    /// | [`PermissionDenied`](Self::PermissionDenied) | `EACCES` |
    /// | [`Memlock`](Self::Memlock) | `ENOMEM` |
    /// | [`Unsupported`](Self::Unsupported) | `EOPNOTSUPP` |
    /// | [`TimedOut`](Self::TimedOut) | `ETIMEDOUT` |
    /// | [`Post`](Self::Post) | [`PostError::to_errno`]: `ENOMEM` for a full queue |
    /// | [`Connection`](Self::Connection) | [`ConnectionError::to_errno`], such as `ECONNREFUSED` |
    /// | [`Failed`](Self::Failed) | `ETIMEDOUT` after retries, `ECANCELED` if flushed, or `EIO` |
    #[must_use]
    pub fn to_errno(&self) -> Errno {
        match self {
            Self::Kernel { errno, .. }
            | Self::SoftHca { errno, .. }
            | Self::NoUsableDevice { errno, .. }
            | Self::System { errno, .. } => *errno,
            Self::Limit { .. }
            | Self::Invalid { .. }
            | Self::MissingAttribute { .. }
            | Self::State { .. }
            | Self::OutOfRange(_)
            | Self::Endpoint(_) => Errno::EINVAL,
            Self::NoSuchDevice { .. } => Errno::ENODEV,
            Self::DeviceGone { .. } | Self::Unmatched { .. } => Errno::EIO,
            Self::OtherProcess { .. } => Errno::EPERM,
            Self::EmptyGid { .. } => Errno::ENODATA,
            Self::PermissionDenied { .. } => Errno::EACCES,
            Self::Memlock { .. } => Errno::ENOMEM,
            Self::Unsupported { .. } => Errno::EOPNOTSUPP,
            Self::TimedOut { .. } => Errno::ETIMEDOUT,
            Self::Post(error) => error.to_errno(),
            Self::Connection(error) => error.to_errno(),
            Self::Failed(failure) => match failure.status {
                Status::RetryExceeded | Status::RnrRetryExceeded => Errno::ETIMEDOUT,
                Status::Flushed => Errno::ECANCELED,
                _ => Errno::EIO,
            },
        }
    }

    /// The verb that failed, if known.
    #[must_use]
    pub fn verb(&self) -> Option<&'static str> {
        match self {
            Self::Kernel { verb, .. }
            | Self::Limit { verb, .. }
            | Self::Invalid { verb, .. }
            | Self::MissingAttribute { verb, .. }
            | Self::State { verb, .. }
            | Self::Memlock { verb, .. }
            | Self::Unsupported { verb, .. }
            | Self::DeviceGone { verb }
            | Self::Unmatched { verb, .. }
            | Self::OtherProcess { verb }
            | Self::TimedOut { verb, .. } => Some(verb),
            Self::NoSuchDevice { .. }
            | Self::NoUsableDevice { .. }
            | Self::SoftHca { .. }
            | Self::PermissionDenied { .. } => Some("open_device"),
            Self::EmptyGid { .. } => Some("query_gid"),
            Self::Post(_) => Some("post"),
            Self::Connection(_) => Some("rdma_connect"),
            Self::System { .. } | Self::Failed(_) | Self::OutOfRange(_) | Self::Endpoint(_) => None,
        }
    }

    /// Rejects a value above its limit.
    ///
    /// # Errors
    ///
    /// [`Limit`](Self::Limit).
    #[doc(hidden)]
    pub fn limit(
        verb: &'static str,
        what: &'static str,
        value: u32,
        limit: u32,
    ) -> Result<(), Self> {
        if value <= limit {
            return Ok(());
        }
        Err(Self::Limit { verb, what, value: value.into(), limit: limit.into() })
    }
}

sentence_in_debug!(enum Error {
    Kernel { verb, errno, hint },
    Limit { verb, what, value, limit },
    Invalid { verb, what, value, why },
    MissingAttribute { verb, attribute },
    State { verb, state, needs },
    NoSuchDevice { name, available },
    NoUsableDevice { passed, errno },
    PermissionDenied { path },
    Memlock { verb, wanted, limit },
    Unsupported { verb, what },
    TimedOut { verb, waited, why },
    DeviceGone { verb },
    Unmatched { verb, count },
    OtherProcess { verb },
    SoftHca { name, errno, why },
    System { what, errno },
    EmptyGid { port, index, used },
    Post(inner),
    Failed(inner),
    OutOfRange(inner),
    Endpoint(inner),
    Connection(inner),
});

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kernel { errno, .. }
            | Self::SoftHca { errno, .. }
            | Self::System { errno, .. } => Some(errno),
            Self::Post(error) => Some(error),
            Self::Failed(failure) => Some(failure),
            Self::OutOfRange(error) => Some(error),
            Self::Endpoint(error) => Some(error),
            Self::Connection(error) => Some(error),
            _ => None,
        }
    }
}

impl EndpointError {
    /// Value behind `name=` in `text`.
    #[doc(hidden)]
    pub fn part<'t>(text: &'t str, name: &'static str) -> Result<&'t str, Self> {
        text.split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .ok_or(Self { part: name, found: String::new() })
    }

    /// Number behind `name=` in `text`, decimal or hexadecimal with `0x`, at most `max`.
    #[doc(hidden)]
    pub fn number(text: &str, name: &'static str, max: u64) -> Result<u64, Self> {
        let found = Self::part(text, name)?;
        let value = match found.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => found.parse(),
        };
        let value = value.ok().filter(|value| *value <= max);
        value.ok_or_else(|| Self { part: name, found: found.to_owned() })
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.found.is_empty() {
            write!(
                f,
                "endpoint text has no {}; give all that the peer's endpoint prints",
                self.part
            )
        } else {
            write!(f, "endpoint field {} is invalid: {:?}", self.part, self.found)
        }
    }
}

sentence_in_debug!(struct EndpointError { part, found });

impl std::error::Error for EndpointError {}

/// Each small error is a variant of [`Error`], and through it an [`std::io::Error`].
macro_rules! compose {
    ($($variant:ident: $small:ty,)*) => {$(
        impl From<$small> for Error {
            #[cold]
            fn from(error: $small) -> Self {
                Self::$variant(error)
            }
        }

        impl From<$small> for std::io::Error {
            #[cold]
            fn from(error: $small) -> Self {
                Error::from(error).into()
            }
        }
    )*};
}

compose! {
    Post: PostError,
    Failed: Failure,
    OutOfRange: OutOfRange,
    Endpoint: EndpointError,
    Connection: ConnectionError,
}

impl From<ConnectionErrorKind> for Error {
    #[cold]
    fn from(kind: ConnectionErrorKind) -> Self {
        Self::Connection(kind.into())
    }
}

impl From<Error> for std::io::Error {
    /// Maps to the kind of [`Error::to_errno`]; a full queue is `WouldBlock`.
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NoSuchDevice { .. } => std::io::ErrorKind::NotFound,
            Error::Post(PostError::Full) => std::io::ErrorKind::WouldBlock,
            error => Self::from(error.to_errno()).kind(),
        };
        Self::new(kind, error)
    }
}

/// An access past the end of exposed memory, or to a word that is not aligned to eight bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange {
    /// Start of the range.
    pub offset: usize,
    /// Length of the range in bytes.
    pub wanted: usize,
    /// Length of the memory in bytes.
    pub len: usize,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, wanted, len } = self;
        write!(
            f,
            "can't access {wanted} bytes at offset {offset} of exposed memory of {len} bytes"
        )?;
        if *wanted == 8 && !offset.is_multiple_of(8) {
            write!(f, "; the offset of a word must be a multiple of 8")
        } else {
            Ok(())
        }
    }
}

sentence_in_debug!(struct OutOfRange { offset, wanted, len });

impl std::error::Error for OutOfRange {}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io::ErrorKind;

    use super::*;

    /// Function of a program that uses each kind of error.
    fn program(step: u32) -> Result<()> {
        let failure =
            Failure { status: Status::RnrRetryExceeded, syndrome: 0x16, vendor_syndrome: 0 };
        match step {
            0 => Err(PostError::Full)?,
            1 => Err(failure)?,
            2 => Err(OutOfRange { offset: 60, wanted: 8, len: 64 })?,
            3 => Err(EndpointError { part: "qpn", found: String::new() })?,
            _ => Err(Error::kernel("create_qp", Errno::ENOSPC)),
        }
    }

    #[test]
    fn small_errors_become_the_large_one_and_stay_its_source() {
        let expected = [
            (Errno::ENOMEM, ErrorKind::WouldBlock, "poll its completions"),
            (Errno::ETIMEDOUT, ErrorKind::TimedOut, "receiver-not-ready"),
            (Errno::EINVAL, ErrorKind::InvalidInput, "8 bytes at offset 60"),
            (Errno::EINVAL, ErrorKind::InvalidInput, "has no qpn"),
            (Errno::ENOSPC, ErrorKind::StorageFull, "No space left"),
        ];
        for (step, (errno, kind, text)) in (0..).zip(expected) {
            let error = program(step).unwrap_err();
            assert_eq!(error.to_errno(), errno, "{error:?}");
            assert!(error.to_string().contains(text), "{error}");
            let source = error.source().expect("a cause").to_string();
            assert!(error.to_string().contains(&source), "{error}: {source}");
            let io = std::io::Error::from(error.clone());
            assert_eq!((io.kind(), io.to_string()), (kind, error.to_string()));
            let inner = io.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
            assert_eq!(inner, Some(&error));
        }
        let io = std::io::Error::from(PostError::Full);
        assert_eq!(io.kind(), ErrorKind::WouldBlock, "without a detour, too");
    }

    #[test]
    fn every_refusal_to_post_has_cs_errno() {
        for (error, errno) in [
            (PostError::Full, Errno::ENOMEM),
            (PostError::State, Errno::EINVAL),
            (PostError::TooManySges, Errno::ENOMEM),
            (PostError::InlineTooLong, Errno::ENOMEM),
            (PostError::MessageTooLong, Errno::EINVAL),
            (PostError::BadData, Errno::EINVAL),
            (PostError::ForeignBuffer, Errno::EINVAL),
            (PostError::ForeignAddress, Errno::EINVAL),
            (PostError::BadOperation, Errno::EINVAL),
            (PostError::DeviceGone, Errno::EIO),
            (PostError::DoorbellRefused, Errno::EAGAIN),
        ] {
            assert_eq!(Error::from(error).to_errno(), errno);
        }
    }
}
