//! The symbols of libc that are interposed, and what happens when the library is loaded and left.
//!
//! # Safety
//!
//! Each function has the C signature of the one it hides, and passes its arguments on untouched
//! unless they mean the device. `open`, `openat` and `ioctl` are variadic in C; here they take the
//! one argument that may follow, which the calling conventions of Linux on x86-64 and AArch64 pass
//! alike. Paths are read as C strings, as libc would; buffers are reached as `user` does.
#![allow(unsafe_code, reason = "takes the place of C functions, which deal in raw pointers")]

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use libc::{c_char, c_int, c_uint, off_t, size_t, ssize_t};
use nix::errno::Errno;
use uverbs_kernel_abi::ioctl::{RDMA_VERBS_IOCTL, ib_uverbs_ioctl_hdr};

use crate::real::PassedMode;
use crate::{device, files, log, real, trace, tree, user};

/// `NETLINK_RDMA` (`linux/netlink.h`).
const NETLINK_RDMA: c_int = 20;
/// The longest command (`ib_uverbs_ioctl` takes a page).
const MOST_BYTES: usize = 4096;

/// What a path means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The device.
    Ours,
    /// An RDMA device of the machine, which the process is not to see.
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
    // SAFETY: the caller's promise, which is also libc's.
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
            // SAFETY: the descriptor has just been made, and nobody else knows of it.
            unsafe { libc::close(fd) };
            fail(errno)
        }
    }
}

macro_rules! opens {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: PassedMode) -> c_int {
            // SAFETY: as for libc, the path is a C string.
            match unsafe { target(path) } {
                Target::Ours => open_device(flags),
                Target::Hidden => fail(Errno::ENOENT),
                Target::Other => match real::$name() {
                    // SAFETY: the caller's own arguments.
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
            // SAFETY: as for libc, the path is a C string.
            match unsafe { target(path) } {
                Target::Ours => open_device(flags),
                Target::Hidden => fail(Errno::ENOENT),
                Target::Other => match real::$name() {
                    // SAFETY: the caller's own arguments.
                    Some(real) => unsafe { real(folder, path, flags, mode) },
                    None => fail(Errno::ENOSYS),
                },
            }
        }
    )*};
}
opens_at! { openat openat64 }

/// The path to ask libc about instead of `path`; `Err` for what is hidden.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn stand_in(path: *const c_char) -> Result<*const c_char, Errno> {
    // SAFETY: the caller's promise.
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
            // SAFETY: as for libc, the path is a C string.
            match (unsafe { stand_in(path) }, real::$name()) {
                // SAFETY: the caller's own arguments, or the path of the stand-in.
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
    // SAFETY: as for libc, the path is a C string.
    match (unsafe { stand_in(path) }, real::statx()) {
        // SAFETY: the caller's own arguments, or the path of the stand-in.
        (Ok(path), Some(real)) => unsafe { real(folder, path, flags, mask, stat) },
        (Err(errno), _) => fail(errno),
        (_, None) => fail(Errno::ENOSYS),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: as for libc, the path is a C string.
    match (unsafe { stand_in(path) }, real::access()) {
        // SAFETY: the caller's own arguments, or the path of the stand-in.
        (Ok(path), Some(real)) => unsafe { real(path, mode) },
        (Err(errno), _) => fail(errno),
        (_, None) => fail(Errno::ENOSYS),
    }
}

/// RDMA netlink would tell of the machine's devices; without it the C stack looks in sysfs.
#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        trace::enter().is(format_args!("socket of RDMA netlink"));
        return fail(Errno::EPROTONOSUPPORT);
    }
    match real::socket() {
        // SAFETY: the caller's own arguments.
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
        // SAFETY: the caller's own argument.
        Some(real) => unsafe { real(fd) },
        None => fail(Errno::ENOSYS),
    };
    let errno = Errno::last();
    drop(door);
    drop(inside);
    errno.set();
    result
}

/// Another descriptor of the open device: what `ibv_import_device` takes.
#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    let Some(real) = real::dup() else { return fail(Errno::ENOSYS) };
    // SAFETY: the caller's own argument.
    let new = unsafe { real(fd) };
    if new < 0 || !files::is_ours(fd) {
        return new;
    }
    match files::share(fd, new) {
        Ok(()) => new,
        Err(errno) => {
            // SAFETY: the descriptor has just been made, and nobody else knows of it.
            unsafe { libc::close(new) };
            fail(errno)
        }
    }
}

/// The kernel's answer to a write command that it doesn't know (`uapi_get_method`).
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    if files::is_ours(fd) {
        Errno::EOPNOTSUPP.set();
        return -1;
    }
    match real::write() {
        // SAFETY: the caller's own arguments.
        Some(real) => unsafe { real(fd, bytes, len) },
        None => fail(Errno::ENOSYS) as ssize_t,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: libc::Ioctl, argument: *mut c_void) -> c_int {
    // The kernel takes 32 bits of it.
    if files::is_ours(fd) && request as u32 == RDMA_VERBS_IOCTL {
        let errno = Errno::last();
        let done = command(fd, argument.expose_provenance());
        // As with the kernel, what succeeds leaves it alone.
        errno.set();
        return finish(done);
    }
    match real::ioctl() {
        // SAFETY: the caller's own arguments.
        Some(real) => unsafe { real(fd, request, argument) },
        None => fail(Errno::ENOSYS),
    }
}

/// One command: copied in, answered, copied out, as the kernel does it.
fn command(fd: c_int, address: usize) -> Result<(), Errno> {
    const HEADER: usize = size_of::<ib_uverbs_ioctl_hdr>();
    let inside = trace::enter();
    let door = files::door(fd)?;
    let mut bytes = vec![0; HEADER];
    user::read(address, &mut bytes)?;
    let length = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    if (HEADER..=MOST_BYTES).contains(&length) {
        let mut all = vec![0; length];
        // Attributes that can't be read are missing, which the device answers in the order of its
        // checks.
        if user::read(address, &mut all).is_ok() {
            bytes = all;
        }
    }
    // A length that is no whole number of words is wrong in any case.
    let mut words = bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect::<Vec<_>>();
    let before = words.clone();
    inside.is(format_args!("ioctl {}", log::name(&words)));
    // SAFETY: the addresses in the command are the program's, with the promises that it owes the
    // kernel; softhca reaches them as `copy_from_user` would.
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
                // SAFETY: the caller's own arguments.
                return match unsafe { map(address, len, protection, flags, fd, offset) } {
                    Ok(address) => address,
                    Err(errno) => {
                        errno.set();
                        libc::MAP_FAILED
                    }
                };
            }
            match real::$name() {
                // SAFETY: the caller's own arguments.
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

/// Maps a page of the device. What the door maps becomes the client's, who unmaps it.
///
/// # Safety
///
/// With `MAP_FIXED` the caller gives up what is mapped at `address`.
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
        // SAFETY: moves a mapping that nobody knows of yet to where the caller wants it.
        let moved = unsafe { libc::mremap(mapped, size, size, how, address) };
        if moved == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // What was mapped is no more at its old place: nothing is left to unmap.
        std::mem::forget(mapping);
        return protect(moved, size, protection);
    }
    let result = protect(mapped, size, protection)?;
    std::mem::forget(mapping);
    Ok(result)
}

fn protect(address: *mut c_void, len: usize, protection: c_int) -> Result<*mut c_void, Errno> {
    // SAFETY: a mapping that nobody uses yet.
    let result = unsafe { libc::mprotect(address, len, protection) };
    Errno::result(result).map(|_| address)
}

/// This process's tree; removed when it ends.
static TREE: OnceLock<(u32, PathBuf)> = OnceLock::new();

unsafe extern "C" {
    /// C's own.
    static mut stdout: *mut libc::FILE;
}

/// Has the program write out each line, so that nothing is lost when it is killed.
fn write_lines() {
    // SAFETY: a pointer that libc has set up before any library is loaded.
    let file = unsafe { stdout };
    // SAFETY: nothing has been written yet; the buffer is libc's to allocate.
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
    // Left by a process of the same number that was killed.
    let _ = std::fs::remove_dir_all(&root);
    if let Err(error) = tree::write(&root, settings) {
        eprintln!("uverbs-c-stack: {}: {error}", root.display());
        std::process::exit(2);
    }
    // SAFETY: runs before `main` and before any other thread.
    unsafe { std::env::set_var("SYSFS_PATH", &root) };
    let _ = TREE.set((std::process::id(), root));
    // SAFETY: the handler stores to an atomic, which may be done in the child of a fork.
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
