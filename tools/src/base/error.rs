//! Errors of the commands: a line each, and the exit status.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use uverbs::{Failure, OutOfRange, PostError};

use crate::link::tcp::TcpError;
use crate::link::verify::{Mismatch, WrongWord};

/// Exit status of a failure at run time.
pub(crate) const FAILED: u8 = 1;
/// Exit status of bad arguments, as in clap.
pub(crate) const USAGE: u8 = 2;
/// Exit status of a check of which parts could not be tried.
const UNTRIED: u8 = 3;

/// Reason that a command ended early.
#[derive(Debug)]
pub(crate) enum Error {
    /// An argument that is invalid on any device.
    Argument { option: &'static str, value: String, why: String },
    /// An argument that the device, or the library for it, refused.
    Refused { option: &'static str, value: String, error: uverbs::Error },
    /// A verb failed.
    Verb(uverbs::Error),
    /// The embedded software HCA could not be started.
    Embedded(io::Error),
    /// A work request was not posted.
    Post { iteration: u64, what: String, error: PostError },
    /// A work request failed.
    Completion { iteration: u64, what: String, failure: Failure },
    /// The peer was silent for too long.
    Silence { iteration: u64, what: &'static str, waited: Duration },
    /// Something arrived that was not sent like that.
    Unexpected { iteration: u64, what: String },
    /// A message arrived changed.
    Corrupt(Mismatch),
    /// An atomic's word has a wrong value.
    Word(WrongWord),
    /// An access outside exposed memory: an error of this program.
    Exposed(OutOfRange),
    /// The other process sent something unexpected, or nothing.
    Peer(String),
    /// The TCP connection to the other process failed.
    Tcp(TcpError),
    /// A stream between the two processes.
    Stream { what: &'static str, error: io::Error },
    /// A file that could not be read or written, or a socket that could not be served.
    File { path: PathBuf, error: io::Error },
    /// A file with unexpected contents.
    Record { path: PathBuf, why: String },
    /// End of a program of a pair.
    Program { name: &'static str, end: String },
    /// A plot could not be drawn.
    Plot(String),
    /// The system refused a call that is no verb.
    System { what: &'static str, errno: uverbs::Errno },
    /// End of a check in which something failed, or could not be tried.
    Checked { failed: usize, untried: usize },
    /// The driver of a function failed.
    Vfio(uverbs_mlx5_vfio::Error),
    /// The report could not be written.
    Output(io::Error),
}

impl Error {
    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Argument { .. } | Self::Refused { .. } => USAGE,
            Self::Verb(uverbs::Error::NoSuchDevice { .. }) => USAGE,
            Self::Checked { failed: 0, .. } => UNTRIED,
            _ => FAILED,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument { option, value, why } => write!(f, "{option} {value}: {why}"),
            Self::Refused { option, value, error } => write!(f, "{option} {value}: {error}"),
            Self::Verb(error) => error.fmt(f),
            Self::Embedded(error) => write!(f, "starting the embedded software HCA: {error}"),
            Self::Post { iteration, what, error } => {
                write!(f, "iteration {iteration}: {what} was not posted: {error}")
            }
            Self::Completion { iteration, what, failure } => {
                write!(f, "iteration {iteration}: {what} failed: {failure}")
            }
            Self::Silence { iteration, what, waited } => write!(
                f,
                "iteration {iteration}: {what} did not come within {:.3} s (--timeout)",
                waited.as_secs_f64()
            ),
            Self::Unexpected { iteration, what } => write!(f, "iteration {iteration}: {what}"),
            Self::Corrupt(mismatch) => mismatch.fmt(f),
            Self::Word(wrong) => wrong.fmt(f),
            Self::Exposed(error) => error.fmt(f),
            Self::Peer(what) => f.write_str(what),
            Self::Tcp(error) => error.fmt(f),
            Self::Stream { what, error } => write!(f, "{what}: {error}"),
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Record { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Program { name, end } => write!(f, "{name}: {end}"),
            Self::Plot(why) => write!(f, "drawing the plot: {why}"),
            Self::System { what, errno } => write!(f, "{what}: {}", errno.desc()),
            Self::Checked { failed: 0, untried } => {
                write!(f, "{untried} parts of the check could not be tried")
            }
            Self::Checked { failed, .. } => write!(f, "{failed} parts of the check failed"),
            Self::Vfio(error) => error.fmt(f),
            Self::Output(error) => write!(f, "writing the report: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<uverbs::Error> for Error {
    fn from(error: uverbs::Error) -> Self {
        Self::Verb(error)
    }
}

impl From<uverbs_mlx5_vfio::Error> for Error {
    fn from(error: uverbs_mlx5_vfio::Error) -> Self {
        Self::Vfio(error)
    }
}

impl From<OutOfRange> for Error {
    fn from(error: OutOfRange) -> Self {
        Self::Exposed(error)
    }
}

impl From<TcpError> for Error {
    fn from(error: TcpError) -> Self {
        Self::Tcp(error)
    }
}

impl From<Mismatch> for Error {
    fn from(mismatch: Mismatch) -> Self {
        Self::Corrupt(mismatch)
    }
}

impl From<WrongWord> for Error {
    fn from(wrong: WrongWord) -> Self {
        Self::Word(wrong)
    }
}

/// Errnos by which the kernel rejects an argument. Other errnos concern the running system.
const ARGUMENTS: [uverbs::Errno; 4] = [
    uverbs::Errno::EINVAL,
    uverbs::Errno::ENODATA,
    uverbs::Errno::EOPNOTSUPP,
    uverbs::Errno::ENOSPC,
];

/// Names the option that caused an error.
pub(crate) trait BecauseOf<T> {
    /// Converts an error to an error of this option's argument, unless it concerns the running
    /// system (permissions, memory).
    fn because_of(self, option: &'static str, value: impl fmt::Display) -> Result<T, Error>;
}

impl<T> BecauseOf<T> for Result<T, uverbs::Error> {
    fn because_of(self, option: &'static str, value: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|error| match error {
            uverbs::Error::Kernel { errno, .. } if !ARGUMENTS.contains(&errno) => {
                Error::Verb(error)
            }
            uverbs::Error::Limit { .. }
            | uverbs::Error::Invalid { .. }
            | uverbs::Error::EmptyGid { .. }
            | uverbs::Error::Kernel { .. }
            | uverbs::Error::Unsupported { .. } => {
                Error::Refused { option, value: value.to_string(), error }
            }
            other => Error::Verb(other),
        })
    }
}

/// Checks that an error for the terminal is one line without terminal control characters.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_printable(error: &impl ToString) {
    let text = error.to_string();
    let is_line = !text.is_empty() && !text.contains(|c: char| c.is_control());
    assert!(is_line && text.len() < 4096, "{text:?}");
}
