//! What a program made of an open device and hasn't destroyed. Closing the device ends it, as the
//! kernel does when C's library closes the file.
//!
//! # Safety
//!
//! An address is that of a box that was given away here and not taken back, with the function that
//! drops what is in it.
#![allow(unsafe_code, reason = "boxes that C holds by pointer")]

use std::collections::BTreeMap;
use std::ptr::{drop_in_place, with_exposed_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Kinds of objects, in the order in which they can be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Flow,
    Counters,
    Qp,
    Table,
    Wq,
    Window,
    Mr,
    Ah,
    Srq,
    Cq,
    Memory,
    ParentDomain,
    Pd,
    ThreadDomain,
    Xrcd,
    Channel,
}

/// Drops what is in a box at this address.
type End = unsafe fn(usize);

#[derive(Default)]
pub(crate) struct Left {
    objects: Mutex<BTreeMap<(Kind, usize), End>>,
}

impl Left {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<(Kind, usize), End>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an object away, to be taken back by [`take`](Self::take).
    pub(crate) fn give<T>(&self, kind: Kind, object: Box<T>) -> *mut T {
        let object = Box::into_raw(object);
        self.objects().insert((kind, object.expose_provenance()), end::<T>);
        object
    }

    /// Takes an object back.
    ///
    /// # Safety
    ///
    /// It was given away here as this kind, and not taken back since.
    pub(crate) unsafe fn take<T>(&self, kind: Kind, object: *mut T) -> Box<T> {
        self.objects().remove(&(kind, object.addr()));
        // SAFETY: by the contract of `take`.
        unsafe { Box::from_raw(object) }
    }

    /// Ends all that is left. The memory stays, with C's struct in it: programs may look at that,
    /// with C's library they can.
    ///
    /// # Safety
    ///
    /// The program calls nothing with them any more.
    pub(crate) unsafe fn end(&self) {
        let left = std::mem::take(&mut *self.objects());
        for ((_, object), end) in left {
            // SAFETY: it was given away with this function, and not taken back.
            unsafe { end(object) };
        }
    }
}

/// # Safety
///
/// There is a `T`, which nobody uses any more.
unsafe fn end<T>(object: usize) {
    // SAFETY: by the contract of `end`.
    unsafe { drop_in_place(with_exposed_provenance_mut::<T>(object)) };
}
