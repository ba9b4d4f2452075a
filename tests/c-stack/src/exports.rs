//! Functions for C programs that know of this library: they capture pending writes and let the
//! device work. The programs declare them weak, so that they also run without the library.
//!
//! # Safety
//!
//! Names come as C strings, and results are written to the caller's pointers.
#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::OnceLock;

use libc::{c_char, c_int};

use c_stack::{capture, log};

use crate::device;

/// File for captures.
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
    // SAFETY: by the contract of `read`.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Appends a capture named `name` to the file. Returns 0, or -1 without file or device.
#[unsafe(no_mangle)]
unsafe extern "C" fn uverbs_softhca_capture(name: *const c_char) -> c_int {
    // SAFETY: by contract of the function's C header: a C string.
    let name = unsafe { read(name) };
    device::get().map_or(-1, |device| add(&capture::text(&name, &device.pending())))
}

/// Appends a line to the capture file.
#[unsafe(no_mangle)]
unsafe extern "C" fn uverbs_softhca_note(line: *const c_char) -> c_int {
    // SAFETY: by contract of the function's C header: a C string.
    add(&(unsafe { read(line) } + "\n"))
}

/// Appends a line `# name` to the command log.
#[unsafe(no_mangle)]
unsafe extern "C" fn uverbs_softhca_mark(name: *const c_char) {
    // SAFETY: by contract of the function's C header: a C string.
    log::mark(&unsafe { read(name) });
}

/// Steps the device until it is idle, and zeroes the doorbell pages.
#[unsafe(no_mangle)]
extern "C" fn uverbs_softhca_settle() -> c_int {
    if let Some(device) = device::efa() {
        while device.step() {}
        return 0;
    }
    device::get().map_or(-1, |device| {
        capture::settle(device);
        0
    })
}

/// Pinned bytes of the process: regions, rings, records.
#[unsafe(no_mangle)]
extern "C" fn uverbs_softhca_pinned() -> u64 {
    device::get().map_or(0, uverbs_softhca::SoftHca::pinned_bytes)
}

/// Writes the length of a queue pair's send ring in WQEBBs, and its producer counter. Returns 0, or
/// -1 if there is no such ring.
#[unsafe(no_mangle)]
unsafe extern "C" fn uverbs_softhca_place(qpn: u32, ring: *mut u32, next: *mut u32) -> c_int {
    let Some((entries, counter)) = device::get().and_then(|device| capture::place(device, qpn))
    else {
        return -1;
    };
    // SAFETY: by contract of the function's C header: valid for a number.
    unsafe { ring.write(entries) };
    // SAFETY: by contract of the function's C header: valid for a number.
    unsafe { next.write(counter.into()) };
    0
}
