//! Where the process is: in the stack under test, or in this library, which is there in the
//! kernel's place.
//!
//! What the software HCA does to answer a call (system calls, memory, time) is none of the
//! client's. Who counts the client's (`tests/control_path`, `c/heap.c`) learns here which is which:
//! a tracer by marks, the rest by asking.
//!
//! A mark is a `write` to a descriptor that can't be, [`MARK`]: `>` when a call comes in, `= name`
//! to say which, `<` when it is answered. The kernel refuses it, and a tracer sees it pass. Meant
//! for processes with one thread.
//!
//! # Safety
//!
//! A system call whose one buffer is a slice.
#![allow(unsafe_code, reason = "a system call that no hook of this library sees")]

use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use libc::c_int;
use nix::errno::Errno;

/// The descriptor of marks.
pub(crate) const MARK: c_int = -1000;

/// Calls that are being answered.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Nanoseconds in here, if they are wanted.
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// What the environment wants.
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

/// Reads the environment, so that it is not read in the middle of things.
pub(crate) fn load() {
    wanted();
}

fn mark(text: &str) {
    let errno = Errno::last();
    // SAFETY: a buffer and its length; the descriptor is none, so the kernel reads nothing.
    unsafe { libc::syscall(libc::SYS_write, MARK, text.as_ptr(), text.len()) };
    errno.set();
}

/// One call that is being answered.
#[derive(Debug)]
pub(crate) struct Inside {
    since: Option<Instant>,
}

/// A call has come in.
pub(crate) fn enter() -> Inside {
    let Wanted { marks, time } = wanted();
    if marks {
        mark(">");
    }
    INSIDE.fetch_add(1, Ordering::Relaxed);
    Inside { since: time.then(Instant::now) }
}

impl Inside {
    /// Says which call it is.
    pub(crate) fn is(&self, name: fmt::Arguments<'_>) {
        if wanted().marks {
            let mut text = String::from("= ");
            // Writing to a string can't fail.
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

/// Whether a call is being answered.
#[unsafe(no_mangle)]
extern "C" fn uverbs_softhca_inside() -> c_int {
    c_int::from(INSIDE.load(Ordering::Relaxed) != 0)
}

/// Nanoseconds that were spent here, with `UVERBS_SOFTHCA_TIMED`.
#[unsafe(no_mangle)]
extern "C" fn uverbs_softhca_nanoseconds() -> u64 {
    NANOSECONDS.load(Ordering::Relaxed)
}
