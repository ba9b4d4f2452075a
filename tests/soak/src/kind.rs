//! Kinds of sessions.

use std::fmt;
use std::str::FromStr;

use uverbs::GRH_LEN;

use crate::trouble::Trouble;

/// Transport or interface of a session's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The stream itself, there and back.
    Stream,
    Rc,
    Uc,
    Ud,
    /// RC to a queue pair that receives in a shared queue.
    Srq,
    Xrc,
    Dc,
}

/// All of them.
pub(crate) const KINDS: [Kind; 7] =
    [Kind::Stream, Kind::Rc, Kind::Uc, Kind::Ud, Kind::Srq, Kind::Xrc, Kind::Dc];

impl Kind {
    /// Returns `true` if a completed message has arrived.
    pub(crate) fn is_reliable(self) -> bool {
        !matches!(self, Self::Uc | Self::Ud)
    }

    /// Returns `true` if it supports READ, WRITE and atomics in addition to messages.
    pub(crate) fn reaches_memory(self) -> bool {
        self.is_reliable() && self != Self::Stream
    }

    /// Bytes before the message in a receive.
    pub(crate) fn head(self) -> usize {
        if self == Self::Ud { GRH_LEN } else { 0 }
    }

    /// The longest message.
    pub(crate) fn longest(self) -> usize {
        if self == Self::Ud { 2048 } else { 64 << 10 }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Srq => "srq",
            Self::Xrc => "xrc",
            Self::Dc => "dc",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = Trouble;

    fn from_str(name: &str) -> Result<Self, Trouble> {
        let found = KINDS.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| Trouble::Line(name.to_owned()))
    }
}
