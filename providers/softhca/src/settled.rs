//! Threads that have begun when whoever starts them goes on.
//!
//! A new thread frees memory before its own code runs, for which glibc maps and unmaps some
//! (malloc's `arena.c`, `alloc_new_heap`). libfabric and UCX write over the text of `munmap` while
//! the program runs, to hear of memory that goes. A thread that is in there meanwhile goes on in
//! the middle of an instruction, and crashes. So a device's threads have begun before the call
//! returns that opens it, and none begins later.

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

/// How long a thread may take to begin, on a machine with more work than processors.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts a thread, and waits until it has begun.
///
/// # Errors
///
/// What the system says when there are no more threads.
pub(crate) fn start(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (begun, has_begun) = sync_channel(1);
    thread::Builder::new().name(name).spawn(move || {
        let _ = begun.send(());
        run();
    })?;
    let _ = has_begun.recv_timeout(PATIENCE);
    Ok(())
}
