//! Marks of phases for a tracer (`trace.rs`), or their times.
//!
//! # Safety
//!
//! A mark is a buffer and its length. The function for reports is `c/heap.c`'s.
#![allow(unsafe_code, reason = "marks, and a function found by name")]

use std::ffi::{CString, c_char};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// `src/trace.rs`.
const MARK: libc::c_int = -1000;

type Report = unsafe extern "C" fn(*const c_char);

/// `uverbs_heap_report`, where it is preloaded.
fn report() -> Option<Report> {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"uverbs_heap_report".as_ptr()) };
    // SAFETY: null is `None`; else the function of that name, whose signature this is.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<Report>>(found) }
}

/// Phases and when they began, where times are wanted.
static TIMES: Mutex<Option<Vec<(String, Instant)>>> = Mutex::new(None);

/// From now on times are taken, and no marks made.
pub(crate) fn take_times() {
    *TIMES.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::with_capacity(64));
}

/// A phase begins.
pub(crate) fn phase(name: &str) {
    if let Some(times) = &mut *TIMES.lock().unwrap_or_else(PoisonError::into_inner) {
        times.push((name.to_owned(), Instant::now()));
        return;
    }
    let line = format!("# {name}");
    // SAFETY: a buffer and its length; the descriptor is none.
    let written = unsafe { libc::write(MARK, line.as_ptr().cast(), line.len()) };
    assert!(written < 0, "a mark was written");
    if let (Some(report), Ok(name)) = (report(), CString::new(name)) {
        // SAFETY: a C string.
        unsafe { report(name.as_ptr()) };
    }
}

/// A line for each phase but the last: its name and nanoseconds.
pub(crate) fn print_times() {
    let times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
    for pair in times.iter().flat_map(|times| times.windows(2)) {
        println!("{}: {}", pair[0].0, (pair[1].1 - pair[0].1).as_nanos());
    }
}
