//! Threads of the library. All crates start their threads here.
//!
//! *Signals.* The kernel gives a signal of the process to any thread that doesn't block it
//! (signal(7)). A program that waits for signals in `sigwait` blocks them in its threads. If a
//! thread of the library did not block them, it would receive them, and their default action would
//! end the program. So each thread blocks all signals from its first instruction on, by inheriting
//! the mask. Also, a signal handler that rings a doorbell would deadlock if it ran on the software
//! HCA's thread.
//!
//! *Start.* A new thread frees memory before its own code runs, and glibc maps and unmaps memory
//! for that (malloc's `arena.c`, `alloc_new_heap`). libfabric and UCX patch the code of `munmap` at
//! run time, to learn of unmapped memory. A thread that executes `munmap` meanwhile continues in
//! the middle of an instruction and crashes. So `start` returns only once the new thread runs its
//! own code.

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

/// Time limit for a thread to begin, for a machine with more work than processors.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts a thread that blocks all signals, and waits until it runs.
///
/// Linux shows 15 bytes of the name (`/proc/PID/task/TID/comm`).
///
/// # Errors
///
/// The system's error if it can't create a thread.
pub fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (begun, has_begun) = sync_channel(1);
    // A thread's name can't hold a NUL.
    let thread = thread::Builder::new().name(name.replace('\0', "?"));
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let spawned = thread.spawn(move || {
        let _ = begun.send(());
        run();
    });
    before.thread_set_mask()?;
    spawned?;
    let _ = has_begun.recv_timeout(PATIENCE);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use nix::sys::signal::Signal;

    use super::*;

    fn mask() -> SigSet {
        SigSet::thread_get_mask().unwrap()
    }

    #[test]
    fn a_thread_blocks_all_signals_and_its_starter_none_more() {
        let before = mask();
        let (told, tells) = channel();
        start("a\0b", move || {
            told.send((mask(), thread::current().name().map(str::to_owned))).unwrap();
        })
        .unwrap();
        let (inside, name) = tells.recv().unwrap();
        let catchable = |signal: &Signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP);
        let open: Vec<_> = Signal::iterator()
            .filter(catchable)
            .filter(|signal| !inside.contains(*signal))
            .collect();
        assert!(open.is_empty(), "{open:?}");
        assert_eq!(name.as_deref(), Some("a?b"));
        assert_eq!(mask(), before);
    }

    #[test]
    fn a_thread_has_begun_when_the_call_returns() {
        let (told, tells) = channel();
        start("begun", move || told.send(()).unwrap()).unwrap();
        tells.recv_timeout(PATIENCE).unwrap();
    }
}
