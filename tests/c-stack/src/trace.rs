//! Tells work of the stack under test from work of this library, which is the kernel's part.
//!
//! The software HCA makes system calls, allocates and takes time to answer a call. Programs that
//! count the client's share (`tests/control_path`, `c/heap.c`) must leave that out: a tracer does
//! so by marks, code in the process by [`uverbs_softhca_inside`].
//!
//! A mark is a `write` to an invalid descriptor, [`MARK`]: `>` when a call comes in, `= name` with
//! its name, `<` when it is answered. The kernel refuses the call, and a tracer sees it. Meant for
//! processes with one thread.
//!
//! # Safety
//!
//! A system call is made with a slice as its only buffer.
#![allow(unsafe_code, reason = "a system call that no hook of this library sees")]

use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use libc::c_int;
use nix::errno::Errno;

/// Descriptor of marks.
pub(crate) const MARK: c_int = -1000;

/// Number of calls that are being answered.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Nanoseconds spent in this library, if asked for.
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// Settings from the environment.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    marks: bool,
    time: bool,
}

fn wanted() -> Wanted {
    static WANTED: OnceLock<Wanted> = OnceLock::new();
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    *WANTED.get_or_init(|| Wanted {
        marks: set("UVERBS_SOFTHCA_MARKED"),
        time: set("UVERBS_SOFTHCA_TIMED"),
    })
}

/// Reads the environment at load, so that no call has to.
pub(crate) fn load() {
    wanted();
}

fn mark(text: &str) {
    let errno = Errno::last();
    // SAFETY: a buffer and its length; the descriptor is invalid, so the kernel reads no byte.
    unsafe { libc::syscall(libc::SYS_write, MARK, text.as_ptr(), text.len()) };
    errno.set();
}

/// Call that is being answered.
#[derive(Debug)]
pub(crate) struct Inside {
    since: Option<Instant>,
}

/// Begins to answer a call.
pub(crate) fn enter() -> Inside {
    let Wanted { marks, time } = wanted();
    if marks {
        mark(">");
    }
    INSIDE.fetch_add(1, Ordering::Relaxed);
    Inside { since: time.then(Instant::now) }
}

impl Inside {
    /// Names the call.
    pub(crate) fn is(&self, name: fmt::Arguments<'_>) {
        if wanted().marks {
            let mut text = String::from("= ");
            // Writing to a string cannot fail.
            let _ = text.write_fmt(name);
            mark(&text);
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            let spent = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            NANOSECONDS.fetch_add(spent, Ordering::Relaxed);
        }
        INSIDE.fetch_sub(1, Ordering::Relaxed);
        if wanted().marks {
            mark("<");
        }
    }
}

/// Returns 1 while a call is being answered.
#[unsafe(no_mangle)]
extern "C" fn uverbs_softhca_inside() -> c_int {
    c_int::from(INSIDE.load(Ordering::Relaxed) != 0)
}

/// Nanoseconds spent in this library, with `UVERBS_SOFTHCA_TIMED`.
#[unsafe(no_mangle)]
extern "C" fn uverbs_softhca_nanoseconds() -> u64 {
    NANOSECONDS.load(Ordering::Relaxed)
}
