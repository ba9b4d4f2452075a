//! Phases of a program: marks for a tracer (`trace.rs`), or times.
//!
//! # Safety
//!
//! A mark is a buffer and its length. `c/heap.c` defines the function for reports.
#![allow(unsafe_code, reason = "marks, and a function found by name")]

use std::ffi::{CString, c_char};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Descriptor of marks, `MARK` of `src/trace.rs`.
const MARK: libc::c_int = -1000;

type Report = unsafe extern "C" fn(*const c_char);

/// Returns `uverbs_heap_report` if it is preloaded.
fn report() -> Option<Report> {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"uverbs_heap_report".as_ptr()) };
    // SAFETY: null is `None`; otherwise the function of that name, with this signature.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<Report>>(found) }
}

/// Names and start times of the phases, if times are taken.
static TIMES: Mutex<Option<Vec<(String, Instant)>>> = Mutex::new(None);

/// Takes times instead of making marks.
pub fn take_times() {
    *TIMES.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::with_capacity(64));
}

/// Begins a phase.
pub fn phase(name: &str) {
    if let Some(times) = &mut *TIMES.lock().unwrap_or_else(PoisonError::into_inner) {
        times.push((name.to_owned(), Instant::now()));
        return;
    }
    let line = format!("# {name}");
    // SAFETY: a buffer and its length; the descriptor is invalid, so the kernel reads no byte.
    let written = unsafe { libc::write(MARK, line.as_ptr().cast(), line.len()) };
    assert!(written < 0, "a mark was written");
    if let (Some(report), Ok(name)) = (report(), CString::new(name)) {
        // SAFETY: a C string.
        unsafe { report(name.as_ptr()) };
    }
}

/// Prints name and nanoseconds of each phase except the last.
pub fn print_times() {
    let times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
    for pair in times.iter().flat_map(|times| times.windows(2)) {
        println!("{}: {}", pair[0].0, (pair[1].1 - pair[0].1).as_nanos());
    }
}
