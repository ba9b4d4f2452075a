//! Limits that are fair on a busy machine: they exclude the time in which a process was kept from
//! running. A process that hangs is not kept from running, so it meets its limit as on an idle
//! machine.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// However busy the machine is, a wait takes at most so many times its limit.
const MOST: u32 = 10;

/// No wait of a session has a shorter limit.
const LEAST: Duration = Duration::from_secs(1);

/// How long each thread of some processes has waited for a processor.
#[derive(Debug)]
pub(crate) struct Starved {
    processes: Vec<u32>,
    before: HashMap<u32, Duration>,
}

impl Starved {
    /// Begins to look at these processes.
    pub(crate) fn of(processes: &[u32]) -> Self {
        Self { processes: processes.to_owned(), before: waits(processes) }
    }

    /// Returns `true` if `waited` is at least half of `time`, and `time` long enough for a limit to
    /// run out: a session that ended sooner was refused, not starved.
    pub(crate) fn is_half(waited: Duration, time: Duration) -> bool {
        time >= LEAST && waited * 2 >= time
    }

    /// How long the thread that waited most has waited for a processor since.
    pub(crate) fn since(&self) -> Duration {
        let before = |thread: &u32| self.before.get(thread).copied().unwrap_or_default();
        let now = waits(&self.processes).into_iter();
        now.map(|(thread, waited)| waited.saturating_sub(before(&thread))).max().unwrap_or_default()
    }
}

/// Second number of each thread's `schedstat`: nanoseconds on a run queue
/// (Documentation/scheduler/sched-stats.rst).
fn waits(processes: &[u32]) -> HashMap<u32, Duration> {
    let threads = processes.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let waited = threads.flatten().flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let waited = text.split_whitespace().nth(1)?.parse().ok()?;
        Some((thread.file_name().to_str()?.parse().ok()?, Duration::from_nanos(waited)))
    });
    waited.collect()
}

/// A wait for a process, with its limit.
#[derive(Debug)]
pub(crate) struct Patience {
    limit: Duration,
    start: Instant,
    starved: Starved,
}

impl Patience {
    /// Begins to wait for processes.
    pub(crate) fn new(limit: Duration, processes: &[u32]) -> Self {
        Self { limit, start: Instant::now(), starved: Starved::of(processes) }
    }

    /// Begins to wait for threads of this process.
    pub(crate) fn here(limit: Duration) -> Self {
        Self::new(limit, &[std::process::id()])
    }

    /// How long the wait has taken, if that is over the limit.
    pub(crate) fn ended(&self) -> Option<Duration> {
        let waited = self.start.elapsed();
        // The processes are checked only if the limit has passed.
        let over = waited > self.limit
            && (waited > self.limit * MOST || waited > self.limit + self.starved.since());
        over.then_some(waited)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_sleeps_is_not_starved() {
        let limit = Duration::from_millis(100);
        let patience = Patience::here(limit);
        assert_eq!(patience.ended(), None);
        // Other tests' threads are of this process, too, and may be kept from running meanwhile.
        let start = Instant::now();
        while patience.ended().is_none() {
            assert!(start.elapsed() < 2 * MOST * limit, "{patience:?}");
            thread::sleep(Duration::from_millis(10));
        }
        assert!(start.elapsed() >= limit);
    }

    #[test]
    fn who_is_refused_at_once_was_not_starved() {
        let [short, long] = [Duration::from_millis(1), Duration::from_secs(4)];
        assert!(!Starved::is_half(short, short));
        assert!(Starved::is_half(long / 2, long) && !Starved::is_half(long / 2 - short, long));
    }

    #[test]
    fn more_threads_than_processors_are_starved() {
        let starved = Starved::of(&[std::process::id()]);
        let count = 2 * thread::available_parallelism().map_or(1, usize::from);
        let end = Instant::now() + Duration::from_millis(300);
        thread::scope(|scope| {
            let spin = || while Instant::now() < end {};
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(spin)).collect();
            let mut most = Duration::ZERO;
            while threads.iter().any(|thread| !thread.is_finished()) {
                most = most.max(starved.since());
                thread::sleep(Duration::from_millis(5));
            }
            assert!(most > Duration::from_millis(50), "{most:?}");
        });
    }
}
