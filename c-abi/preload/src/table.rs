//! Table of the program's descriptors that stand for sockets of this library.
//!
//! Every `read` and `write` of the program reads the table, also in signal handlers: it takes no
//! lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libc::{EMFILE, c_int};

/// Kind of object that a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A socket of librdmacm.
    Rdma = 1,
    /// A TCP socket of the system: librdmacm could not connect.
    Plain,
    /// A TCP socket of a forking program, neither listening nor connected.
    Undecided,
    /// A TCP socket of a forking program that listens.
    Listening,
    /// A TCP socket of a forking program that called `connect`; the first byte switches it to
    /// librdmacm.
    Active,
    /// A TCP socket of a forking program that `accept` returned; the first byte switches it to
    /// librdmacm.
    Passive,
    /// A thread is switching the socket to librdmacm.
    Switching,
    /// An epoll of the system; `inner` is librdmacm's epoll, which holds its sockets.
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

/// An entry of the table: kind of object, and its number in the kernel or librdmacm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) kind: Kind,
    pub(crate) inner: c_int,
}

impl Descriptor {
    pub(crate) fn new(kind: Kind, inner: c_int) -> Self {
        Self { kind, inner }
    }

    fn to_bits(self) -> u64 {
        u64::from(self.kind as u8) << 32 | u64::from(self.inner as u32)
    }

    /// Decodes an entry. Zero: the descriptor has no entry.
    fn of_bits(bits: u64) -> Option<Self> {
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u64 == bits >> 32)?;
        Some(Self { kind, inner: bits as u32 as c_int })
    }
}

/// Size of the table; higher descriptors are never taken (`IDX_MAX_INDEX`).
const MOST: usize = 1 << 16;
static ENTRIES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// Number of descriptors per object: `dup` adds one.
static USERS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

fn at<T>(table: &'static [T; MOST], fd: c_int) -> Option<&'static T> {
    usize::try_from(fd).ok().and_then(|fd| table.get(fd))
}

/// Entry of a descriptor; `None` if it is the system's.
pub(crate) fn get(fd: c_int) -> Option<Descriptor> {
    // Acquire pairs with the release of the thread that created the object and inserted the entry.
    Descriptor::of_bits(at(&ENTRIES, fd)?.load(Ordering::Acquire))
}

/// Inserts the entry of a descriptor that had none.
///
/// # Errors
///
/// `EMFILE` if the descriptor's number is beyond the table.
pub(crate) fn insert(fd: c_int, entry: Descriptor) -> Result<(), c_int> {
    let (place, users) = (at(&ENTRIES, fd).ok_or(EMFILE)?, at(&USERS, entry.inner).ok_or(EMFILE)?);
    users.fetch_add(1, Ordering::Relaxed);
    place.store(entry.to_bits(), Ordering::Release);
    Ok(())
}

/// Replaces an entry unless another thread changed it. Returns true if replaced.
pub(crate) fn replace(fd: c_int, from: Descriptor, to: Descriptor) -> bool {
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

/// Removes an entry. The flag is true if no other descriptor stands for the object.
pub(crate) fn remove(fd: c_int) -> Option<(Descriptor, bool)> {
    let entry = Descriptor::of_bits(at(&ENTRIES, fd)?.swap(0, Ordering::AcqRel))?;
    Some((entry, leave(entry.inner)))
}

fn leave(inner: c_int) -> bool {
    at(&USERS, inner).is_some_and(|users| users.fetch_sub(1, Ordering::AcqRel) == 1)
}
