//! Errors of the driver.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus, Delivery};

/// Reason that a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed, or the server of a vfio-user device refused a message.
    System {
        /// The call or message.
        what: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// The other end broke the vfio-user protocol. The connection is closed.
    Protocol {
        /// The violation.
        what: &'static str,
    },
    /// An access outside a region or buffer. Nothing was accessed.
    Range {
        /// Region or buffer.
        what: &'static str,
        /// First byte of the access.
        at: u64,
        /// Bytes of the access.
        len: u64,
        /// Bytes of the region or buffer.
        limit: u64,
    },
    /// The firmware refused a command.
    Refused {
        /// The command.
        opcode: CmdOpcode,
        /// Status of the answer.
        status: CmdStatus,
        /// Syndrome of the answer: the firmware's own number of the reason.
        syndrome: u32,
    },
    /// A command did not reach the firmware.
    Undelivered {
        /// The command.
        opcode: CmdOpcode,
        /// Reason.
        delivery: Delivery,
    },
    /// The device answered with a value that no device may answer.
    Answer {
        /// The register, command or event.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A wait took too long.
    TimedOut {
        /// The event that did not come.
        what: String,
        /// Duration of the wait.
        waited: Duration,
    },
    /// The device failed earlier. Only closing it is left.
    Fatal {
        /// First failure.
        why: String,
    },
    /// A value that the caller may not give.
    Invalid {
        /// The value, and the rule.
        what: String,
    },
    /// The device or the transport lacks a feature.
    Unsupported {
        /// Missing feature.
        what: String,
    },
    /// A limit of this driver.
    Limit {
        /// The quantity.
        what: &'static str,
        /// Requested value.
        value: u64,
        /// Maximum.
        limit: u64,
    },
    /// Another process has the function, which has one owner at a time.
    Busy {
        /// Node or socket of the function.
        path: PathBuf,
    },
    /// This user may not open a node.
    Denied {
        /// The node.
        path: PathBuf,
    },
    /// The process was forked after it opened the function, which stays the parent's.
    Forked,
}

impl Error {
    /// Makes an error of a failed system call.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { what, errno: Errno::of(&error) }
    }

    /// Makes an error of a failed system call by nix.
    pub(crate) fn nix(what: &'static str) -> impl Fn(nix::errno::Errno) -> Self {
        move |errno| Self::System { what, errno: Errno::from_raw(errno as i32) }
    }

    /// Makes an error of a node in `/dev/vfio` that can't be opened. The kernel opens a group once
    /// at a time (`drivers/vfio/group.c`, `vfio_group_fops_open`).
    #[must_use]
    pub fn of_node(path: &Path, error: &io::Error) -> Self {
        match Errno::of(error) {
            Errno::EBUSY => Self::Busy { path: path.to_owned() },
            Errno::EACCES | Errno::EPERM => Self::Denied { path: path.to_owned() },
            errno => Self::System { what: "opening a node of VFIO", errno },
        }
    }

    /// Errno of the error, as a call of the system would return it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::System { errno, .. } => *errno,
            Self::Unsupported { .. } => Errno::EOPNOTSUPP,
            Self::TimedOut { .. } => Errno::ETIMEDOUT,
            Self::Invalid { .. } => Errno::EINVAL,
            Self::Limit { .. } => Errno::ENOMEM,
            Self::Busy { .. } => Errno::EBUSY,
            Self::Denied { .. } => Errno::EACCES,
            Self::Forked => Errno::ENODEV,
            _ => Errno::EIO,
        }
    }

    /// Makes an error of an answer that no device may give.
    pub(crate) fn answer(what: &'static str, value: impl Into<u64>) -> Self {
        Self::Answer { what, value: value.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { what, errno } => write!(f, "{what}: {}", errno.desc()),
            Self::Protocol { what } => {
                write!(f, "the vfio-user server broke the protocol: {what}")
            }
            Self::Range { what, at, len, limit } => {
                write!(f, "{what}: {len} bytes at {at:#x} are outside its {limit:#x} bytes")
            }
            Self::Refused { opcode, status, syndrome } => {
                write!(f, "{opcode}: the firmware answered {status}, syndrome {syndrome:#x}")
            }
            Self::Undelivered { opcode, delivery } => {
                write!(f, "{opcode}: the command queue answered {delivery}")
            }
            Self::Answer { what, value } => {
                write!(f, "the device answered {value:#x} for {what}, which is invalid")
            }
            Self::TimedOut { what, waited } => {
                write!(f, "{what} did not come within {:.3} s", waited.as_secs_f64())
            }
            Self::Fatal { why } => write!(f, "the device failed earlier and must be closed: {why}"),
            Self::Unsupported { what } => write!(f, "unsupported: {what}"),
            Self::Invalid { what } => write!(f, "invalid: {what}"),
            Self::Limit { what, value, limit } => {
                write!(f, "{what} is {value}, must be at most {limit}")
            }
            Self::Busy { path } => {
                let path = path.display();
                let rule = "a function has one owner at a time";
                write!(f, "{path}: in use by another process, and {rule}; fuser {path} names it")
            }
            Self::Denied { path } => {
                let path = path.display();
                write!(f, "{path}: no access; root gives it to a user with `chown USER {path}`")
            }
            Self::Forked => f.write_str("the function belongs to the parent of this process"),
        }
    }
}

impl std::error::Error for Error {}
