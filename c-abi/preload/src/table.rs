//! Which of the program's descriptors are ours, and what is behind each.
//!
//! It is read by every `read` and `write` of the program, in signal handlers, too: so it takes no
//! lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libc::{EMFILE, c_int};

/// What is behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A socket of librdmacm's.
    Rdma = 1,
    /// One of the system's: librdmacm couldn't connect it.
    Plain,
    /// One of the system's in a program that forks: nothing is known of it yet.
    Undecided,
    /// As above: it listens.
    Listening,
    /// As above: it is connected, and changes to librdmacm's by its first byte.
    Active,
    /// As above: it was accepted.
    Passive,
    /// A thread is changing it.
    Switching,
    /// An epoll of the system's; librdmacm's, of its sockets, stands here.
    Epoll,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Rdma,
        Self::Plain,
        Self::Undecided,
        Self::Listening,
        Self::Active,
        Self::Passive,
        Self::Switching,
        Self::Epoll,
    ];
}

/// What stands behind a descriptor, and the number that the kernel or librdmacm has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) inner: c_int,
}

impl Entry {
    pub(crate) fn new(kind: Kind, inner: c_int) -> Self {
        Self { kind, inner }
    }

    fn to_bits(self) -> u64 {
        u64::from(self.kind as u8) << 32 | u64::from(self.inner as u32)
    }

    /// Zero is none.
    fn of_bits(bits: u64) -> Option<Self> {
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u64 == bits >> 32)?;
        Some(Self { kind, inner: bits as u32 as c_int })
    }
}

/// Descriptors from here on are never ours (`IDX_MAX_INDEX`).
const MOST: usize = 1 << 16;
static ENTRIES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// How many descriptors have this one behind them.
static USERS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

fn at<T>(table: &'static [T; MOST], fd: c_int) -> Option<&'static T> {
    usize::try_from(fd).ok().and_then(|fd| table.get(fd))
}

/// What is behind a descriptor; `None` if it isn't ours.
pub(crate) fn get(fd: c_int) -> Option<Entry> {
    // Acquire: pairs with the release of who put it there, and made what is behind it.
    Entry::of_bits(at(&ENTRIES, fd)?.load(Ordering::Acquire))
}

/// Puts something behind a descriptor that had nothing.
///
/// # Errors
///
/// `EMFILE` for numbers that the table hasn't.
pub(crate) fn insert(fd: c_int, entry: Entry) -> Result<(), c_int> {
    let (place, users) = (at(&ENTRIES, fd).ok_or(EMFILE)?, at(&USERS, entry.inner).ok_or(EMFILE)?);
    users.fetch_add(1, Ordering::Relaxed);
    place.store(entry.to_bits(), Ordering::Release);
    Ok(())
}

/// Puts something else behind a descriptor, unless another thread has done so. True if it was done.
pub(crate) fn replace(fd: c_int, from: Entry, to: Entry) -> bool {
    let (Some(place), Some(users)) = (at(&ENTRIES, fd), at(&USERS, to.inner)) else { return false };
    let order = (Ordering::AcqRel, Ordering::Acquire);
    if place.compare_exchange(from.to_bits(), to.to_bits(), order.0, order.1).is_err() {
        return false;
    }
    if from.inner != to.inner {
        users.fetch_add(1, Ordering::Relaxed);
        leave(from.inner);
    }
    true
}

/// Takes away what is behind a descriptor; and whether no other one has it.
pub(crate) fn remove(fd: c_int) -> Option<(Entry, bool)> {
    let entry = Entry::of_bits(at(&ENTRIES, fd)?.swap(0, Ordering::AcqRel))?;
    Some((entry, leave(entry.inner)))
}

fn leave(inner: c_int) -> bool {
    at(&USERS, inner).is_some_and(|users| users.fetch_sub(1, Ordering::AcqRel) == 1)
}
