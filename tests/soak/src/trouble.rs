//! Failures of a session, and faults that end the whole run.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use uverbs::Error;

use crate::kind::Kind;

/// Why a session ended early.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Bytes that arrived differ from those sent: never excused.
    Corrupt { kind: Kind, what: &'static str, message: u32, at: usize },
    /// No bytes and no error within the limit.
    Silent { kind: Kind, what: &'static str },
    /// A verb, or a work request.
    Verb(Error),
    /// The stream over which both sides talk.
    Stream(io::Error),
    /// A line that makes no sense.
    Line(String),
    /// A frame or an address that must be there is not.
    Short,
}

impl Trouble {
    /// Returns `true` if a peer that went, or a device that was taken away, explains it.
    pub(crate) fn is_excusable(&self) -> bool {
        !matches!(self, Self::Corrupt { .. } | Self::Line(_) | Self::Short)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt { kind, what, message, at } => {
                write!(f, "{kind}: byte {at} of {what} {message} changed on the way")
            }
            Self::Silent { kind, what } => write!(f, "{kind}: no {what} within the limit"),
            Self::Verb(error) => error.fmt(f),
            Self::Stream(error) => write!(f, "stream: {error}"),
            Self::Short => f.write_str("a frame or an address is missing"),
            Self::Line(line) => write!(f, "no such line: {line:?}"),
        }
    }
}

impl std::error::Error for Trouble {}

impl<E: Into<Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Verb(error.into())
    }
}

/// Why the run failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "fault")]
pub(crate) enum Fault {
    /// Bytes changed, or a session failed although its peer and its device stayed.
    Session { process: String, why: String },
    /// Something grew from cycle to cycle.
    Grew { process: String, what: String, from: u64, to: u64 },
    /// Something was left when all was quiet.
    Left { process: String, what: String, count: u64 },
    /// Counters that contradict each other.
    Counters { process: String, why: String },
    /// A process that ended without being killed.
    Died { process: String, status: String },
    /// A process that didn't answer within its limit.
    Silent { process: String, waited: u64 },
    /// This machine lacks something that the run needs.
    Refused { why: String },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session { process, why } => write!(f, "{process}: {why}"),
            Self::Grew { process, what, from, to } => {
                write!(f, "{process}: {what} grew from {from} to {to}")
            }
            Self::Left { process, what, count } => write!(f, "{process}: left {count} {what}"),
            Self::Counters { process, why } => write!(f, "{process}: counters: {why}"),
            Self::Died { process, status } => write!(f, "{process} ended by itself: {status}"),
            Self::Silent { process, waited } => write!(f, "{process}: silent for {waited} s"),
            Self::Refused { why } => write!(f, "refused: {why}"),
        }
    }
}
