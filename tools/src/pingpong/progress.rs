//! A progress bar on stderr, for a person at a terminal who waits for more than a second.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown before this: a run that is over by then needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two pictures.
const REFRESH: Duration = Duration::from_millis(100);

/// The bar, or its absence. Dropping it clears the line, so that what is written next starts on it.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    wanted: bool,
    total: u64,
    next: Instant,
}

impl Progress {
    pub(super) fn new(total: u64, quiet: bool) -> Self {
        let wanted = !quiet && std::io::stderr().is_terminal();
        Self { bar: None, wanted, total, next: Instant::now() + PATIENCE }
    }

    /// Says how far it is, at a time that was measured anyway.
    pub(super) fn tick(&mut self, done: u64, now: Instant) {
        if !self.wanted || now < self.next {
            return;
        }
        self.next = now + REFRESH;
        let total = self.total;
        self.bar.get_or_insert_with(|| bar(total)).set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} iterations, {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("##-"))
}
