//! `libuverbs_nodes.so`: preloaded (`LD_PRELOAD`), it shows a program the files of its software
//! HCAs, which the kernel does not know.
//!
//! Programs look for `/sys/class/infiniband/NAME` and for nodes in `/dev/infiniband`. UCX takes a
//! device of libibverbs only if `/dev/infiniband/` and the device's `dev_name` is a character
//! device that it may read and write (`uct_ib_device_is_accessible`). For a node, calls answer what
//! they say of `/dev/null`, which is such a character device. For sysfs they answer what they say
//! of the tree that our libibverbs writes for the process (`device/tree.rs` there). All other paths
//! are passed on.
//!
//! glibc's own functions call each other by other names, so the common ones with a path are here.
//! Calls relative to an open folder need none: the folder is the tree's. Limits, which see the
//! kernel's files: `creat`, `freopen`, `glob`, `ftw`, `nftw`, `fts_open`, `statfs`, inotify; paths
//! relative to an open folder above (`/sys`); paths with `//` or `.` up to the folder of the class.
//!
//! A thread may be cancelled in the functions that are cancellation points (pthreads(7)): glibc
//! then unwinds them, so they have no value to drop during the call.
//!
//! # Safety
//!
//! The functions have the C signatures of those that they hide, and pass the program's arguments on
//! to them. The third argument of `open` and the fourth of `openat` are read and passed on as C
//! passes them, also where the program gave none.
#![allow(unsafe_code, reason = "takes the place of C functions")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a call's arguments are the program's")]

mod paths;

use std::convert::identity;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, FILE, dirent, dirent64, mode_t, size_t, ssize_t, stat, stat64, statx};

use crate::paths::Path;

/// Order and choice of `scandir`, which are passed on.
type Callback = *const c_void;

/// Function behind this library.
struct Behind {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Behind {
    /// The name ends with 0.
    const fn new(name: &'static str) -> Self {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else { panic!() };
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Address of the function; null if libc has none, as glibc before 2.33 of `stat`. Known from
    /// the start of the program, since the search takes the loader's lock: a signal handler may
    /// call `open`.
    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.resolve() } else { known }
    }

    #[cold]
    fn resolve(&self) -> *mut c_void {
        // SAFETY: a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            // The program must not see this failure.
            // SAFETY: the call has no obligation.
            unsafe { libc::dlerror() };
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Result of a failed call.
trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

impl Failed for ssize_t {
    const FAILED: Self = -1;
}

impl<T> Failed for *mut T {
    const FAILED: Self = null_mut();
}

/// Fails a call of a function that libc lacks.
#[cold]
fn lacking<T: Failed>() -> T {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    T::FAILED
}

/// Functions with a path between other arguments; which paths they answer, and what becomes of the
/// result.
macro_rules! with_path {
    ($answer:ident, $back:path; $(
        $name:literal $function:ident(
            $($before:ident: $of:ty),*; $($after:ident: $type:ty),*
        ) -> $result:ty;
    )*) => {$(
        #[unsafe(export_name = $name)]
        unsafe extern "C-unwind" fn $function(
            $($before: $of,)*
            asked: *const c_char,
            $($after: $type),*
        ) -> $result {
            type Function =
                unsafe extern "C-unwind" fn($($of,)* *const c_char, $($type),*) -> $result;
            static BEHIND: Behind = Behind::new(concat!($name, "\0"));
            #[used]
            // The section holds pointers to functions.
            #[unsafe(link_section = ".init_array")]
            static LOADED: extern "C" fn() = loaded;
            extern "C" fn loaded() {
                BEHIND.resolve();
            }
            let function = BEHIND.address();
            if function.is_null() {
                return lacking();
            }
            // SAFETY: libc's function of that name has this type.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>(function) };
            // SAFETY: the arguments are the caller's, by libc's contract.
            unsafe {
                // Leaked if the thread is cancelled during the call.
                let path = ManuallyDrop::new(Path::$answer(asked));
                let result = function($($before,)* path.as_ptr(), $($after),*);
                drop(ManuallyDrop::into_inner(path));
                $back(result)
            }
        }
    )*};
}

with_path! {
    like_null, identity;
    "access" access(; mode: c_int) -> c_int;
    "euidaccess" euidaccess(; mode: c_int) -> c_int;
    "eaccess" eaccess(; mode: c_int) -> c_int;
    "faccessat" faccessat(at: c_int; mode: c_int, flags: c_int) -> c_int;
    "stat" stat_(; to: *mut stat) -> c_int;
    "stat64" stat64_(; to: *mut stat64) -> c_int;
    "lstat" lstat(; to: *mut stat) -> c_int;
    "lstat64" lstat64(; to: *mut stat64) -> c_int;
    "fstatat" fstatat(at: c_int; to: *mut stat, flags: c_int) -> c_int;
    "fstatat64" fstatat64(at: c_int; to: *mut stat64, flags: c_int) -> c_int;
    "statx" statx_(at: c_int; flags: c_int, mask: c_uint, to: *mut statx) -> c_int;
    "__xstat" xstat(version: c_int; to: *mut stat) -> c_int;
    "__xstat64" xstat64(version: c_int; to: *mut stat64) -> c_int;
    "__lxstat" lxstat(version: c_int; to: *mut stat) -> c_int;
    "__lxstat64" lxstat64(version: c_int; to: *mut stat64) -> c_int;
    "__fxstatat" fxstatat(version: c_int, at: c_int; to: *mut stat, flags: c_int) -> c_int;
    "__fxstatat64" fxstatat64(version: c_int, at: c_int; to: *mut stat64, flags: c_int) -> c_int;
    "opendir" opendir(;) -> *mut DIR;
    "scandir" scandir(; list: *mut *mut *mut dirent, choice: Callback, order: Callback) -> c_int;
    "scandir64" scandir64(
        ; list: *mut *mut *mut dirent64, choice: Callback, order: Callback
    ) -> c_int;
    "readlink" readlink(; to: *mut c_char, size: size_t) -> ssize_t;
    "readlinkat" readlinkat(at: c_int; to: *mut c_char, size: size_t) -> ssize_t;
    "__readlink_chk" readlink_chk(; to: *mut c_char, size: size_t, room: size_t) -> ssize_t;
    "chdir" chdir(;) -> c_int;
    "getxattr" getxattr(; name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    "lgetxattr" lgetxattr(; name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    "listxattr" listxattr(; to: *mut c_char, size: size_t) -> ssize_t;
    "llistxattr" llistxattr(; to: *mut c_char, size: size_t) -> ssize_t;
}

// A node can't be opened.
with_path! {
    in_sysfs, identity;
    "open" open(; flags: c_int, mode: mode_t) -> c_int;
    "open64" open64(; flags: c_int, mode: mode_t) -> c_int;
    "openat" openat(at: c_int; flags: c_int, mode: mode_t) -> c_int;
    "openat64" openat64(at: c_int; flags: c_int, mode: mode_t) -> c_int;
    "__open_2" open_2(; flags: c_int) -> c_int;
    "__open64_2" open64_2(; flags: c_int) -> c_int;
    "__openat_2" openat_2(at: c_int; flags: c_int) -> c_int;
    "__openat64_2" openat64_2(at: c_int; flags: c_int) -> c_int;
    "fopen" fopen(; mode: *const c_char) -> *mut FILE;
    "fopen64" fopen64(; mode: *const c_char) -> *mut FILE;
}

// The answer is a path again.
with_path! {
    in_sysfs, paths::back;
    "realpath" realpath(; to: *mut c_char) -> *mut c_char;
    "__realpath_chk" realpath_chk(; to: *mut c_char, room: size_t) -> *mut c_char;
    "canonicalize_file_name" canonicalize_file_name(;) -> *mut c_char;
}
