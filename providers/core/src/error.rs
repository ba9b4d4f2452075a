//! Errors of the control path. Each names the verb, and carries the limit and the value or the errno.

use std::fmt;
use std::time::Duration;

use nix::errno::Errno;

use crate::attr::QpState;

/// What went wrong in a verb of the control path.
///
/// Errors of posting are [`crate::queues::work::PostError`]; a failed work request is a completion's
/// [`crate::queues::completion::Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused the call.
    Kernel {
        /// The verb, with its C name's spelling less the prefix: `create_qp`.
        verb: &'static str,
        /// What the kernel said.
        errno: Errno,
        /// What usually causes it, where we know.
        hint: Option<&'static str>,
    },
    /// A value is over (or under) a limit; the kernel was not asked.
    Limit {
        /// The verb.
        verb: &'static str,
        /// The attribute.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// The nearest value that would do.
        limit: u64,
    },
    /// A value makes no sense here; the kernel was not asked.
    Invalid {
        /// The verb.
        verb: &'static str,
        /// The attribute.
        what: &'static str,
        /// What was given, as text.
        value: String,
        /// What would do.
        why: &'static str,
    },
    /// A QP transition lacks an attribute that it needs.
    MissingAttribute {
        /// The verb.
        verb: &'static str,
        /// The attribute that is missing.
        attribute: &'static str,
    },
    /// The queue pair is in a state that doesn't allow this.
    State {
        /// The verb.
        verb: &'static str,
        /// The state it is in.
        state: QpState,
        /// The state it needs.
        needs: QpState,
    },
    /// No device has this name.
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// The names there are.
        available: Vec<String>,
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
        /// Bytes asked for.
        wanted: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The device, its driver or this build lacks something.
    Unsupported {
        /// The verb.
        verb: &'static str,
        /// What is lacking.
        what: String,
    },
    /// Nothing happened in the time given.
    TimedOut {
        /// The verb.
        verb: &'static str,
        /// How long it waited.
        waited: Duration,
    },
    /// The device is gone: pulled out, or its driver was unloaded. Nothing completes any more.
    DeviceGone {
        /// The verb.
        verb: &'static str,
    },
    /// The device was opened by another process: this one is a forked child of it. Nothing was asked of the device.
    OtherProcess {
        /// The verb.
        verb: &'static str,
    },
    /// The operating system refused something that is not an uverbs call (a mapping, a thread, a socket).
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        errno: Errno,
    },
}

impl Error {
    /// The errno, where the system gave one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Kernel { errno, .. } | Self::System { errno, .. } => Some(*errno),
            Self::PermissionDenied { .. } => Some(Errno::EACCES),
            Self::Memlock { .. } => Some(Errno::ENOMEM),
            Self::DeviceGone { .. } => Some(Errno::EIO),
            _ => None,
        }
    }

    /// The errno as a number, as [`std::io::Error::raw_os_error`] gives it.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.errno().map(|errno| errno as i32)
    }

    /// The verb that failed, where it was one.
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
            | Self::OtherProcess { verb }
            | Self::TimedOut { verb, .. } => Some(verb),
            Self::NoSuchDevice { .. } | Self::PermissionDenied { .. } => Some("open_device"),
            Self::System { .. } => None,
        }
    }

    /// The kernel's refusal of `verb`, with the usual cause where we know one.
    #[must_use]
    pub fn kernel(verb: &'static str, errno: Errno) -> Self {
        let hint = match errno {
            Errno::EIO => Some("the device is gone or its firmware is in fatal error"),
            Errno::ENOTTY => Some("the kernel is older than 4.20, which brought uverbs ioctls"),
            Errno::EPROTONOSUPPORT => {
                Some("this kernel or driver lacks the method or an attribute")
            }
            Errno::ENOSPC => Some("the device is out of this resource"),
            Errno::EBUSY => Some("another object still uses it"),
            Errno::ENOMEM => Some("out of memory, or RLIMIT_MEMLOCK (ulimit -l) is too low"),
            _ => None,
        };
        Self::Kernel { verb, errno, hint }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { verb, errno, hint } => {
                write!(f, "{verb}: the kernel refused it with {errno:?} ({})", errno.desc())?;
                hint.map_or(Ok(()), |hint| write!(f, "; {hint}"))
            }
            Self::Limit { verb, what, value, limit } => {
                let side = if value > limit { "at most" } else { "at least" };
                write!(f, "{verb}: {what} is {value}, and can be {side} {limit}")
            }
            Self::Invalid { verb, what, value, why } => {
                write!(f, "{verb}: {what} is {value}; {why}")
            }
            Self::MissingAttribute { verb, attribute } => {
                write!(f, "{verb}: the attribute {attribute} is missing")
            }
            Self::State { verb, state, needs } => {
                write!(f, "{verb}: the queue pair is in {state}, and must be in {needs}")
            }
            Self::NoSuchDevice { name, available } if available.is_empty() => {
                write!(f, "no RDMA device `{name}`: this machine has none")
            }
            Self::NoSuchDevice { name, available } => {
                write!(f, "no RDMA device `{name}`; there are: {}", available.join(", "))
            }
            Self::PermissionDenied { path } => {
                write!(f, "no permission to open {path}; it needs read and write access")
            }
            Self::Memlock { verb, wanted, limit } => write!(
                f,
                "{verb}: {wanted} bytes can't be pinned while RLIMIT_MEMLOCK is {limit} bytes; raise it (ulimit -l)"
            ),
            Self::Unsupported { verb, what } => write!(f, "{verb}: {what} is not supported"),
            Self::TimedOut { verb, waited } => write!(f, "{verb}: nothing in {waited:?}"),
            Self::DeviceGone { verb } => write!(f, "{verb}: the device is gone"),
            Self::OtherProcess { verb } => {
                write!(f, "{verb}: another process opened the device, of which this is a fork")
            }
            Self::System { what, errno } => write!(f, "{what}: {errno:?} ({})", errno.desc()),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NoSuchDevice { .. } => std::io::ErrorKind::NotFound,
            Error::PermissionDenied { .. } => std::io::ErrorKind::PermissionDenied,
            Error::TimedOut { .. } => std::io::ErrorKind::TimedOut,
            Error::Unsupported { .. } => std::io::ErrorKind::Unsupported,
            Error::Kernel { .. } | Error::System { .. } | Error::Memlock { .. } => {
                std::io::ErrorKind::Other
            }
            _ => std::io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}
