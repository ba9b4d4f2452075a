//! System calls of a first process. nix has them behind features that no other crate here uses;
//! with those, cargo would build nix and its users twice.
//!
//! # Safety
//!
//! Each call gets null-terminated strings, descriptors and structures that live until it returns,
//! or numbers alone. None touches this process's memory otherwise.
#![allow(unsafe_code, reason = "system calls")]

use std::ffi::{CStr, CString, c_int};
use std::fs::File;
use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::ptr::null;

fn checked(result: c_int) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Mounts a file system that has no device.
pub fn mount(kind: &CStr, place: &str) -> Result<()> {
    let place = CString::new(place)?;
    // SAFETY: three strings that outlive the call; no flags and no data.
    checked(unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, null()) })
}

/// Loads a module, without parameters.
pub fn load_module(file: &File) -> Result<()> {
    let (fd, flags): (c_int, c_int) = (file.as_raw_fd(), 0);
    // SAFETY: an open descriptor, a string that outlives the call, no flags.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, fd, c"".as_ptr(), flags) };
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Puts the loopback interface into service (netdevice(7)).
pub fn loopback_up() -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: a structure of numbers and bytes, all of which may be 0.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: an open descriptor, and the command's structure, which outlives the call.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut request) })
}

/// Kills every process but this one, which must be the first: only that may kill all.
pub fn kill_all() {
    // SAFETY: passes numbers only. The call may find no process to kill.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Switches the machine off.
///
/// # Errors
///
/// It returns only if that failed.
pub fn power_off() -> Error {
    // SAFETY: a number.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    Error::last_os_error()
}

/// Makes a terminal pass bytes as they are.
pub fn make_raw(terminal: &File) -> Result<()> {
    let mut settings = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: room for what is written to it.
    checked(unsafe { libc::tcgetattr(terminal.as_raw_fd(), settings.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, and so wrote it.
    let mut settings = unsafe { settings.assume_init() };
    // SAFETY: a structure of ours.
    unsafe { libc::cfmakeraw(&mut settings) };
    // SAFETY: an open descriptor and a structure that outlives the call.
    checked(unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &settings) })
}

/// Waits until a terminal has sent everything.
pub fn drain(terminal: &File) -> Result<()> {
    // SAFETY: an open descriptor.
    checked(unsafe { libc::tcdrain(terminal.as_raw_fd()) })
}

/// Has a terminal send nothing more.
pub fn stop_output(terminal: &File) -> Result<()> {
    // SAFETY: an open descriptor and a number.
    checked(unsafe { libc::tcflow(terminal.as_raw_fd(), libc::TCOOFF) })
}
