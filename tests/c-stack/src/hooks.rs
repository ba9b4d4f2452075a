//! Interposed functions of libc, and the code that runs when the library is loaded and unloaded.
//!
//! # Safety
//!
//! Each function has the C signature of libc's, and passes its arguments on unchanged unless they
//! name the device. `open`, `openat` and `ioctl` are variadic in C. Here they take the one optional
//! argument, which the calling conventions of Linux on x86-64 and AArch64 pass like a fixed one.
//! Paths are read as C strings, as libc does; `user` accesses buffers.
#![allow(unsafe_code, reason = "takes the place of C functions, which deal in raw pointers")]

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use libc::{c_char, c_int, c_uint, off_t, size_t, ssize_t};
use nix::errno::Errno;
use uverbs_kernel_abi::ioctl::{RDMA_VERBS_IOCTL, ib_uverbs_ioctl_hdr};

use c_stack::log;

use crate::real::PassedMode;
use crate::{device, files, real, trace, tree, user};

/// `NETLINK_RDMA` (`linux/netlink.h`).
const NETLINK_RDMA: c_int = 20;
/// Maximum bytes of a command (`ib_uverbs_ioctl` accepts a page).
const MOST_BYTES: usize = 4096;

/// Meaning of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The device's node.
    Ours,
    /// Another RDMA device of the machine, hidden from the process.
    Hidden,
    Other,
}

/// # Safety
///
/// `path` is null or a C string.
unsafe fn target(path: *const c_char) -> Target {
    if path.is_null() {
        return Target::Other;
    }
    // SAFETY: by the contract of `target`, which is also libc's.
    let path = unsafe { CStr::from_ptr(path) };
    match path.to_bytes().strip_prefix(b"/dev/infiniband/") {
        None | Some(b"") => Target::Other,
        Some(name) if name == device::NODE.as_bytes() => Target::Ours,
        Some(_) => Target::Hidden,
    }
}

fn fail(errno: Errno) -> c_int {
    errno.set();
    -1
}

fn finish(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => fail(errno),
    }
}

fn open_device(flags: c_int) -> c_int {
    let inside = trace::enter();
    inside.is(format_args!("open"));
    let Some(open) = real::open() else { return fail(Errno::ENOSYS) };
    if files::is_forked() {
        return fail(Errno::EIO);
    }
    let door = match device::open() {
        Ok(door) => door,
        Err(errno) => return fail(errno),
    };
    // SAFETY: a C string and flags without O_CREAT.
    let fd = unsafe { open(files::STAND_IN.as_ptr(), flags & !(libc::O_CREAT | libc::O_EXCL)) };
    if fd < 0 {
        return fd;
    }
    match files::insert(fd, door) {
        Ok(()) => fd,
        Err(errno) => {
            // SAFETY: a new descriptor, unknown to other code.
            unsafe { libc::close(fd) };
            fail(errno)
        }
    }
}

macro_rules! opens {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: PassedMode) -> c_int {
            // SAFETY: by libc's contract the path is a C string.
            match unsafe { target(path) } {
                Target::Ours => open_device(flags),
                Target::Hidden => fail(Errno::ENOENT),
                Target::Other => match real::$name() {
                    // SAFETY: the arguments of the caller.
                    Some(real) => unsafe { real(path, flags, mode) },
                    None => fail(Errno::ENOSYS),
                },
            }
        }
    )*};
}
opens! { open open64 }

macro_rules! opens_at {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            folder: c_int,
            path: *const c_char,
            flags: c_int,
            mode: PassedMode,
        ) -> c_int {
            // SAFETY: by libc's contract the path is a C string.
            match unsafe { target(path) } {
                Target::Ours => open_device(flags),
                Target::Hidden => fail(Errno::ENOENT),
                Target::Other => match real::$name() {
                    // SAFETY: the arguments of the caller.
                    Some(real) => unsafe { real(folder, path, flags, mode) },
                    None => fail(Errno::ENOSYS),
                },
            }
        }
    )*};
}
opens_at! { openat openat64 }

/// Path that libc is asked for instead of `path`; `Err` for a hidden one.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn stand_in(path: *const c_char) -> Result<*const c_char, Errno> {
    // SAFETY: by the contract of `stand_in`.
    match unsafe { target(path) } {
        Target::Ours => Ok(files::STAND_IN.as_ptr()),
        Target::Hidden => Err(Errno::ENOENT),
        Target::Other => Ok(path),
    }
}

macro_rules! stats {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, stat: *mut c_void) -> c_int {
            // SAFETY: by libc's contract the path is a C string.
            match (unsafe { stand_in(path) }, real::$name()) {
                // SAFETY: the arguments of the caller, or the stand-in's path.
                (Ok(path), Some(real)) => unsafe { real(path, stat) },
                (Err(errno), _) => fail(errno),
                (_, None) => fail(Errno::ENOSYS),
            }
        }
    )*};
}
stats! { stat stat64 }

#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    stat: *mut c_void,
) -> c_int {
    // SAFETY: by libc's contract the path is a C string.
    match (unsafe { stand_in(path) }, real::statx()) {
        // SAFETY: the arguments of the caller, or the stand-in's path.
        (Ok(path), Some(real)) => unsafe { real(folder, path, flags, mask, stat) },
        (Err(errno), _) => fail(errno),
        (_, None) => fail(Errno::ENOSYS),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: by libc's contract the path is a C string.
    match (unsafe { stand_in(path) }, real::access()) {
        // SAFETY: the arguments of the caller, or the stand-in's path.
        (Ok(path), Some(real)) => unsafe { real(path, mode) },
        (Err(errno), _) => fail(errno),
        (_, None) => fail(Errno::ENOSYS),
    }
}

/// Refuses RDMA netlink, which would list the machine's devices; the C stack then uses sysfs.
#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        trace::enter().is(format_args!("socket of RDMA netlink"));
        return fail(Errno::EPROTONOSUPPORT);
    }
    match real::socket() {
        // SAFETY: the arguments of the caller.
        Some(real) => unsafe { real(domain, kind, protocol) },
        None => fail(Errno::ENOSYS),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    let inside = files::is_ours(fd).then(trace::enter);
    let door = inside.as_ref().and_then(|inside| {
        inside.is(format_args!("close"));
        files::remove(fd)
    });
    let result = match real::close() {
        // SAFETY: the argument of the caller.
        Some(real) => unsafe { real(fd) },
        None => fail(Errno::ENOSYS),
    };
    let errno = Errno::last();
    drop(door);
    drop(inside);
    errno.set();
    result
}

/// Duplicates a descriptor of the device, for `ibv_import_device`.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    let Some(real) = real::dup() else { return fail(Errno::ENOSYS) };
    // SAFETY: the argument of the caller.
    let new = unsafe { real(fd) };
    if new < 0 || !files::is_ours(fd) {
        return new;
    }
    match files::share(fd, new) {
        Ok(()) => new,
        Err(errno) => {
            // SAFETY: a new descriptor, unknown to other code.
            unsafe { libc::close(new) };
            fail(errno)
        }
    }
}

/// Answers write commands as the kernel does an unknown one (`uapi_get_method`).
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    if files::is_ours(fd) {
        Errno::EOPNOTSUPP.set();
        return -1;
    }
    match real::write() {
        // SAFETY: the arguments of the caller.
        Some(real) => unsafe { real(fd, bytes, len) },
        None => fail(Errno::ENOSYS) as ssize_t,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: libc::Ioctl, argument: *mut c_void) -> c_int {
    // The kernel uses 32 bits of the request number.
    if files::is_ours(fd) && request as u32 == RDMA_VERBS_IOCTL {
        let errno = Errno::last();
        let done = command(fd, argument.expose_provenance());
        // Success leaves `errno` unchanged, as in the kernel.
        errno.set();
        return finish(done);
    }
    match real::ioctl() {
        // SAFETY: the arguments of the caller.
        Some(real) => unsafe { real(fd, request, argument) },
        None => fail(Errno::ENOSYS),
    }
}

/// Executes a command: copied in, answered, copied out, as in the kernel.
fn command(fd: c_int, address: usize) -> Result<(), Errno> {
    const HEADER: usize = size_of::<ib_uverbs_ioctl_hdr>();
    let inside = trace::enter();
    let door = files::door(fd)?;
    let mut bytes = vec![0; HEADER];
    user::read(address, &mut bytes)?;
    let length = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    if (HEADER..=MOST_BYTES).contains(&length) {
        let mut all = vec![0; length];
        // If attributes are unreadable, the device gets none, and answers in the order of its
        // checks.
        if user::read(address, &mut all).is_ok() {
            bytes = all;
        }
    }
    // A length that is not a multiple of a word fails the device's checks.
    let mut words = bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect::<Vec<_>>();
    let before = words.clone();
    inside.is(format_args!("ioctl {}", log::name(&words)));
    // SAFETY: the program keeps the kernel's contract for the addresses in its command. softhca
    // accesses them like `copy_from_user`.
    let result = unsafe { door.ioctl(&mut words) };
    for (at, (new, old)) in words.iter().zip(&before).enumerate() {
        if new != old {
            user::write(address + at * size_of::<u64>(), &new.to_ne_bytes())?;
        }
    }
    result
}

macro_rules! mmaps {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            address: *mut c_void,
            len: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            if flags & libc::MAP_ANONYMOUS == 0 && files::is_ours(fd) {
                // SAFETY: the arguments of the caller.
                return match unsafe { map(address, len, protection, flags, fd, offset) } {
                    Ok(address) => address,
                    Err(errno) => {
                        errno.set();
                        libc::MAP_FAILED
                    }
                };
            }
            match real::$name() {
                // SAFETY: the arguments of the caller.
                Some(real) => unsafe { real(address, len, protection, flags, fd, offset) },
                None => {
                    Errno::ENOSYS.set();
                    libc::MAP_FAILED
                }
            }
        }
    )*};
}
mmaps! { mmap mmap64 }

/// Maps a page of the device. The client owns the mapping, and unmaps it.
///
/// # Safety
///
/// With `MAP_FIXED` the caller gives up the mapping at `address`.
unsafe fn map(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> Result<*mut c_void, Errno> {
    // `rdma_user_mmap_io` refuses a private mapping.
    if flags & libc::MAP_TYPE == libc::MAP_PRIVATE {
        return Err(Errno::EINVAL);
    }
    let inside = trace::enter();
    inside.is(format_args!("mmap"));
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    let mapping = files::door(fd)?.mmap(len, offset, protection & libc::PROT_WRITE != 0)?;
    let (mapped, size) = (mapping.as_mut_ptr().cast::<c_void>(), mapping.len());
    if flags & libc::MAP_FIXED != 0 {
        let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: moves a new mapping, unknown to other code, to the caller's address.
        let moved = unsafe { libc::mremap(mapped, size, size, how, address) };
        if moved == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // The mapping has moved: nothing to unmap at its first address.
        std::mem::forget(mapping);
        return protect(moved, size, protection);
    }
    let result = protect(mapped, size, protection)?;
    std::mem::forget(mapping);
    Ok(result)
}

fn protect(address: *mut c_void, len: usize, protection: c_int) -> Result<*mut c_void, Errno> {
    // SAFETY: a new mapping, unused yet.
    let result = unsafe { libc::mprotect(address, len, protection) };
    Errno::result(result).map(|_| address)
}

/// Process number and sysfs tree; the tree is removed when the process ends.
static TREE: OnceLock<(u32, PathBuf)> = OnceLock::new();

unsafe extern "C" {
    /// libc's `stdout`.
    static mut stdout: *mut libc::FILE;
}

/// Makes stdout line buffered, so that killed programs lose no line.
fn write_lines() {
    // SAFETY: libc sets the pointer before it loads libraries.
    let file = unsafe { stdout };
    // SAFETY: nothing was written yet; libc allocates the buffer.
    unsafe { libc::setvbuf(file, std::ptr::null_mut(), libc::_IOLBF, 0) };
}

/// Runs when the library is loaded, before `main`.
extern "C" fn load() {
    trace::load();
    if std::env::var_os("UVERBS_SOFTHCA_LINES").is_some_and(|value| !value.is_empty()) {
        write_lines();
    }
    let settings = match device::Settings::from_env() {
        Ok(settings) => settings,
        Err(why) => {
            eprintln!("uverbs-c-stack: {why}");
            std::process::exit(2);
        }
    };
    let root = tree::root();
    // Left by a killed process of the same number.
    let _ = std::fs::remove_dir_all(&root);
    if let Err(error) = tree::write(&root, settings) {
        eprintln!("uverbs-c-stack: {}: {error}", root.display());
        std::process::exit(2);
    }
    // SAFETY: runs before `main` and before any other thread.
    unsafe { std::env::set_var("SYSFS_PATH", &root) };
    let _ = TREE.set((std::process::id(), root));
    // SAFETY: the handler stores to an atomic, which is allowed in a forked child.
    unsafe { libc::pthread_atfork(None, None, Some(files::forked)) };
}

/// Runs when the process ends.
extern "C" fn leave() {
    if let Some((owner, root)) = TREE.get()
        && *owner == std::process::id()
    {
        let _ = std::fs::remove_dir_all(root);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[used]
#[unsafe(link_section = ".fini_array")]
static LEAVE: extern "C" fn() = leave;
