//! A progress bar on stderr, for a person at a terminal who waits for more than a second.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown before this: a run that is over by then needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two pictures.
const REFRESH: Duration = Duration::from_millis(100);

/// The bar, or its absence. Dropping it clears the line, so that what is written next starts on it.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    wanted: bool,
    total: u64,
    /// What is counted: iterations.
    unit: &'static str,
    next: Instant,
}

impl Progress {
    pub(crate) fn new(total: u64, unit: &'static str, quiet: bool) -> Self {
        let wanted = !quiet && std::io::stderr().is_terminal();
        Self { bar: None, wanted, total, unit, next: Instant::now() + PATIENCE }
    }

    /// Says how far it is, at a time that was measured anyway.
    pub(crate) fn tick(&mut self, done: u64, now: Instant) {
        if !self.wanted || now < self.next {
            return;
        }
        self.next = now + REFRESH;
        let (total, unit) = (self.total, self.unit);
        self.bar.get_or_insert_with(|| bar(total, unit)).set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template(&format!("{{bar:40}} {{pos}}/{{len}} {unit}, {{eta}} left"));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("##-"))
}
