//! Keep-alives: an empty WRITE at intervals, whose acknowledgement shows that the peer's host is
//! alive. One thread serves all streams that were made with the same options, as rsocket's single
//! thread does for the process.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use uverbs::process::start_thread;

use super::engine::Engine;
use super::waiting::{Limit, Waiting};

/// Streams that send keep-alives equally often.
#[derive(Debug)]
pub(super) struct KeepAlives {
    pub(super) every: Duration,
    streams: Mutex<Streams>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Streams {
    /// Streams with the time of their next keep-alive. The list doesn't keep streams alive.
    list: Vec<(Weak<Waiting<Engine>>, Instant)>,
    /// True while the thread runs.
    run: bool,
}

/// A stream's place among them: when it is dropped, with the stream or before, the thread looks who
/// is left.
#[derive(Debug)]
pub(super) struct Kept {
    by: Arc<KeepAlives>,
    stream: Weak<Waiting<Engine>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // With the lock: not between the thread's look and its sleep.
        self.by.lock().list.retain(|(stream, _)| !stream.ptr_eq(&self.stream));
        self.by.changed.notify_one();
    }
}

impl KeepAlives {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, streams: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a stream send keep-alives until it ends.
    ///
    /// # Errors
    ///
    /// The system's error if it cannot make a thread.
    pub(super) fn keep(self: &Arc<Self>, stream: &Arc<Waiting<Engine>>) -> io::Result<Kept> {
        let mut streams = self.lock();
        if !streams.run {
            let all = Arc::clone(self);
            let name = format!("keep-alive {}", self.every.as_secs());
            start_thread(&name, move || all.run())?;
            streams.run = true;
        }
        streams.list.push((Arc::downgrade(stream), Instant::now() + self.every));
        drop(streams);
        self.changed.notify_one();
        Ok(Kept { by: Arc::clone(self), stream: Arc::downgrade(stream) })
    }

    /// The thread. It ends with the last stream.
    fn run(&self) {
        let mut streams = self.lock();
        loop {
            let now = Instant::now();
            let mut due = Vec::new();
            for (stream, next) in streams.list.iter_mut().filter(|(_, next)| *next <= now) {
                *next = now + self.every;
                due.extend(stream.upgrade());
            }
            // The last handle of a stream may be dropped here, which takes its time.
            drop(streams);
            for stream in due {
                // Reads and writes report the failure.
                let _ = stream.run(Limit::Now, |engine| engine.keep_alive().map(Some));
            }
            streams = self.lock();
            streams.list.retain(|(stream, _)| stream.strong_count() > 0);
            let Some(next) = streams.list.iter().map(|(_, next)| *next).min() else {
                streams.run = false;
                return;
            };
            let sleep = next.saturating_duration_since(Instant::now());
            let slept = self.changed.wait_timeout(streams, sleep);
            (streams, _) = slept.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
