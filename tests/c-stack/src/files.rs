//! Descriptors of the device: which numbers are ours, and the door behind each.
//!
//! A descriptor is a real one, of [`STAND_IN`]: a character device, so that `fstat` tells what the
//! client wants to see, and one that can't be mapped, so that an mmap that slips past the hooks
//! fails. Whether a number is ours is one atomic load, since every `close` and `write` of the
//! process asks.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use uverbs_core::doors::UverbsDoor;

use crate::log::Logged;

/// What the descriptors really are.
pub(crate) const STAND_IN: &std::ffi::CStr = c"/dev/null";
/// Its device number, as in sysfs.
pub(crate) const STAND_IN_NUMBER: &str = "1:3";

/// Numbers that can be ours.
const MOST: usize = 4096;

static OURS: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];
static DOORS: Mutex<BTreeMap<RawFd, Arc<Logged>>> = Mutex::new(BTreeMap::new());
/// Set in the child of a fork.
static FORKED: AtomicBool = AtomicBool::new(false);

fn doors() -> MutexGuard<'static, BTreeMap<RawFd, Arc<Logged>>> {
    DOORS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn flag(fd: RawFd) -> Option<&'static AtomicBool> {
    OURS.get(usize::try_from(fd).ok()?)
}

/// Whether a descriptor is the device's.
pub(crate) fn is_ours(fd: RawFd) -> bool {
    flag(fd).is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Puts a door behind a descriptor.
///
/// # Errors
///
/// `EMFILE` for a number too large for the table.
pub(crate) fn insert(fd: RawFd, door: Arc<dyn UverbsDoor>) -> Result<(), Errno> {
    let flag = flag(fd).ok_or(Errno::EMFILE)?;
    // A door that is still there belongs to a number that went without a close that we saw.
    let stale = doors().insert(fd, Arc::new(Logged::new(fd, door)));
    flag.store(true, Ordering::Relaxed);
    // Closed without the lock: that frees its objects, and closes descriptors.
    drop(stale);
    Ok(())
}

/// Puts the door behind a descriptor of ours behind another one, too.
///
/// # Errors
///
/// As [`insert`] and [`door`].
pub(crate) fn share(fd: RawFd, also: RawFd) -> Result<(), Errno> {
    let flag = flag(also).ok_or(Errno::EMFILE)?;
    let door = door(fd)?;
    let stale = doors().insert(also, door);
    flag.store(true, Ordering::Relaxed);
    drop(stale);
    Ok(())
}

/// The door behind a descriptor of ours.
///
/// # Errors
///
/// `EIO` in the child of a fork; `EBADF` when another thread has just closed it.
pub(crate) fn door(fd: RawFd) -> Result<Arc<Logged>, Errno> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Errno::EIO);
    }
    doors().get(&fd).cloned().ok_or(Errno::EBADF)
}

/// A descriptor of ours is about to be closed. Gives the door, to be dropped behind the close.
pub(crate) fn remove(fd: RawFd) -> Option<Arc<Logged>> {
    flag(fd)?.store(false, Ordering::Relaxed);
    if FORKED.load(Ordering::Relaxed) {
        // The lock may be held by a thread that isn't here, and so may the device's.
        return None;
    }
    doors().remove(&fd)
}

/// This process is the child of a fork.
pub(crate) extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether this process is the child of a fork.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}
