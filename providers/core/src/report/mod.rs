//! Reports on a device: its place, its counters, the objects that processes hold.
//!
//! A report is read in parts. A part that can't be read is a [`Gap`], and the rest goes on.

pub mod counters;
pub mod place;
pub mod resources;

use std::fmt;

use crate::Errno;

/// Part of a report that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The part, such as `hw_counters of port 1`.
    pub what: String,
    /// Errno of reading it. `EBADMSG`: the answer is cut short, or is no number.
    pub errno: Errno,
}

impl Gap {
    /// A part and the errno of reading it.
    #[doc(hidden)]
    #[must_use]
    pub fn new(what: impl Into<String>, errno: Errno) -> Self {
        Self { what: what.into(), errno }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, errno } = self;
        match *errno {
            Errno::EPERM | Errno::EACCES => write!(f, "{what}: no permission ({errno:?})"),
            Errno::ENODEV => write!(f, "{what}: the device is gone"),
            Errno::EBADMSG => write!(f, "{what}: cut short, or not a number"),
            Errno::ETIMEDOUT => write!(f, "{what}: the kernel's answer did not end"),
            _ => write!(f, "{what}: {errno:?} ({errno})"),
        }
    }
}
