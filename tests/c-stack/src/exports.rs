//! What a C program that knows of this library can ask of the device under it: to show what is
//! pending, and to work.
//!
//! The program declares these functions weak, so that it also runs without the library.
//!
//! # Safety
//!
//! Names come as C strings, numbers go to where the caller points.
#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::OnceLock;

use libc::{c_char, c_int};

use crate::{capture, device, log};

/// The file that captures go to.
fn file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let open = || {
        let path = std::env::var_os("UVERBS_SOFTHCA_CAPTURE").filter(|path| !path.is_empty())?;
        OpenOptions::new().append(true).create(true).open(path).ok()
    };
    FILE.get_or_init(open).as_ref()
}

fn add(text: &str) -> c_int {
    let added = file().map(|mut file| file.write_all(text.as_bytes()));
    if matches!(added, Some(Ok(()))) { 0 } else { -1 }
}

/// # Safety
///
/// `text` is a C string.
unsafe fn read(text: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Writes what is pending to the capture file, under a name. 0, or -1 without file or device.
#[unsafe(no_mangle)]
unsafe extern "C" fn uverbs_softhca_capture(name: *const c_char) -> c_int {
    // SAFETY: the header of the function in C says so.
    let name = unsafe { read(name) };
    device::get().map_or(-1, |device| add(&capture::text(&name, &device.pending())))
}

/// Adds a line to the capture file.
#[unsafe(no_mangle)]
unsafe extern "C" fn uverbs_softhca_note(line: *const c_char) -> c_int {
    // SAFETY: as above.
    add(&(unsafe { read(line) } + "\n"))
}

/// Adds a line `# name` to the record of commands.
#[unsafe(no_mangle)]
unsafe extern "C" fn uverbs_softhca_mark(name: *const c_char) {
    // SAFETY: as above.
    log::mark(&unsafe { read(name) });
}

/// Lets a stepped device work until it is idle, and zeroes the doorbell pages.
#[unsafe(no_mangle)]
extern "C" fn uverbs_softhca_settle() -> c_int {
    device::get().map_or(-1, |device| {
        capture::settle(device);
        0
    })
}

/// Bytes of the process that the device has pinned: regions, rings, records.
#[unsafe(no_mangle)]
extern "C" fn uverbs_softhca_pinned() -> u64 {
    device::get().map_or(0, uverbs_softhca::SoftHca::pinned_bytes)
}

/// Length of a queue pair's send ring in WQEBBs, and the counter of the next one. 0, or -1 for no
/// such ring.
#[unsafe(no_mangle)]
unsafe extern "C" fn uverbs_softhca_place(qpn: u32, ring: *mut u32, next: *mut u32) -> c_int {
    let Some((entries, counter)) = device::get().and_then(|device| capture::place(device, qpn))
    else {
        return -1;
    };
    // SAFETY: the caller points to two numbers.
    unsafe { ring.write(entries) };
    // SAFETY: as above.
    unsafe { next.write(counter.into()) };
    0
}
