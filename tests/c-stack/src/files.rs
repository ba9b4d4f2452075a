//! Descriptors of the device: their numbers, and the door of each.
//!
//! A descriptor is an open [`STAND_IN`]. This is a character device, as clients expect from
//! `fstat`, and it cannot be mapped, so an mmap that bypasses the hooks fails. A number is looked
//! up by one atomic load, since every `close` and `write` of the process does so.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use uverbs_core::doors::UverbsDoor;

use c_stack::log::Logged;

/// File that the descriptors are opened on.
pub(crate) const STAND_IN: &std::ffi::CStr = c"/dev/null";
/// Its device number, as in sysfs.
pub(crate) const STAND_IN_NUMBER: &str = "1:3";

/// Limit of descriptor numbers.
const MOST: usize = 4096;

static OURS: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];
static DOORS: Mutex<BTreeMap<RawFd, Arc<Logged>>> = Mutex::new(BTreeMap::new());
/// Set in a forked child.
static FORKED: AtomicBool = AtomicBool::new(false);

fn doors() -> MutexGuard<'static, BTreeMap<RawFd, Arc<Logged>>> {
    DOORS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn flag(fd: RawFd) -> Option<&'static AtomicBool> {
    OURS.get(usize::try_from(fd).ok()?)
}

/// Returns true for a descriptor of the device.
pub(crate) fn is_ours(fd: RawFd) -> bool {
    flag(fd).is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Assigns a door to a descriptor.
///
/// # Errors
///
/// `EMFILE` for a number too large for the table.
pub(crate) fn insert(fd: RawFd, door: Arc<dyn UverbsDoor>) -> Result<(), Errno> {
    let flag = flag(fd).ok_or(Errno::EMFILE)?;
    // An entry that exists belongs to a descriptor that was closed without our hook.
    let stale = doors().insert(fd, Arc::new(Logged::new(fd, door)));
    flag.store(true, Ordering::Relaxed);
    // Dropped without the lock: this frees objects, and closes descriptors.
    drop(stale);
    Ok(())
}

/// Assigns the door of descriptor `fd` also to `also`.
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

/// Returns the door of a descriptor.
///
/// # Errors
///
/// `EIO` in a forked child; `EBADF` if another thread closed the descriptor just now.
pub(crate) fn door(fd: RawFd) -> Result<Arc<Logged>, Errno> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Errno::EIO);
    }
    doors().get(&fd).cloned().ok_or(Errno::EBADF)
}

/// Removes a descriptor that is about to be closed. Returns its door, to be dropped after the
/// close.
pub(crate) fn remove(fd: RawFd) -> Option<Arc<Logged>> {
    flag(fd)?.store(false, Ordering::Relaxed);
    if FORKED.load(Ordering::Relaxed) {
        // A thread that the child lacks may hold this lock, or the device's.
        return None;
    }
    doors().remove(&fd)
}

/// Marks this process as a forked child.
pub(crate) extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Returns true in a forked child.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}
