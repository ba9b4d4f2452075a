//! Live objects of an open device. Closing the device ends them, as the kernel does when C's
//! library closes the file.
//!
//! # Safety
//!
//! Each address belongs to a box that was given away here and not taken back; its function drops
//! the content.
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
    CompCntr,
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

/// Drops the content of the box at this address.
type End = unsafe fn(usize);

#[derive(Default)]
pub(crate) struct Left {
    objects: Mutex<BTreeMap<(Kind, usize), End>>,
}

impl Left {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<(Kind, usize), End>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an object to C, to be taken back by [`take`](Self::take).
    pub(crate) fn give<T>(&self, kind: Kind, object: Box<T>) -> *mut T {
        let object = Box::into_raw(object);
        self.objects().insert((kind, object.expose_provenance()), end::<T>);
        object
    }

    /// Takes an object back from C.
    ///
    /// # Safety
    ///
    /// `object` was given away here as this kind, and not taken back since.
    pub(crate) unsafe fn take<T>(&self, kind: Kind, object: *mut T) -> Box<T> {
        self.objects().remove(&(kind, object.addr()));
        // SAFETY: by the contract of `take`.
        unsafe { Box::from_raw(object) }
    }

    /// Ends the remaining objects. Their memory, with C's struct, stays: programs may read it after
    /// closing the device, as with C's library.
    ///
    /// # Safety
    ///
    /// The program makes no further call with these objects.
    pub(crate) unsafe fn end(&self) {
        let left = std::mem::take(&mut *self.objects());
        for ((_, object), end) in left {
            // SAFETY: the object was given away with this function, and not taken back.
            unsafe { end(object) };
        }
    }
}

/// # Safety
///
/// The address holds a `T` without further users.
unsafe fn end<T>(object: usize) {
    // SAFETY: by the contract of `end`.
    unsafe { drop_in_place(with_exposed_provenance_mut::<T>(object)) };
}
