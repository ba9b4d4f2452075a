//! libc's own functions, which the hooks hide.
//!
//! # Safety
//!
//! `dlsym(RTLD_NEXT)` finds the next object's function of the same name. The signatures are from
//! the manual, and the same in every libc of Linux.
#![allow(unsafe_code, reason = "functions found by name are transmuted to their C signatures")]

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_uint, mode_t, off_t, size_t, ssize_t};

/// Function found by name, looked up once.
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Address of the function; null if libc lacks it.
    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string; no memory of this library is accessed.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        // Two threads may look it up; both find the same address.
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! symbols {
    ($($name:ident: $kind:ty;)*) => {$(
        /// Returns libc's function of this name; `None` if it is missing.
        pub(crate) fn $name() -> Option<$kind> {
            // Name of the function, with NUL.
            const NAME: &CStr = match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!("a name with a NUL in it"),
            };
            static SYMBOL: Symbol = Symbol::new(NAME);
            let address = SYMBOL.address();
            // SAFETY: null is `None`; otherwise libc's function of that name, with this signature.
            unsafe { std::mem::transmute::<*mut c_void, Option<$kind>>(address) }
        }
    )*};
}

symbols! {
    open: unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
    open64: unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
    openat: unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
    openat64: unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
    close: unsafe extern "C" fn(c_int) -> c_int;
    dup: unsafe extern "C" fn(c_int) -> c_int;
    ioctl: unsafe extern "C" fn(c_int, libc::Ioctl, ...) -> c_int;
    write: unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
    mmap: unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    mmap64: unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    stat: unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;
    stat64: unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;
    statx: unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint, *mut c_void) -> c_int;
    access: unsafe extern "C" fn(*const c_char, c_int) -> c_int;
    socket: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
}

/// `mode_t` as passed through `...`.
pub(crate) type PassedMode = c_uint;

const _: () = assert!(size_of::<mode_t>() <= size_of::<PassedMode>());
