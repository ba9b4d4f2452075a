//! Progress bar on stderr, for a terminal and runs of more than a second.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time until the bar appears.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two updates.
const REFRESH: Duration = Duration::from_millis(200);
/// Maximum cells of the bar.
const BAR: usize = 30;

/// Length of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    /// A number of items, and their name.
    Count(u64, &'static str),
    /// Milliseconds.
    Time(u64),
    /// Decided by the other process.
    Unknown,
}

/// The bar, or none. Dropping it clears the line for later output.
pub(crate) struct Progress {
    length: Length,
    /// Name of this part of a longer run.
    part: String,
    started: Instant,
    next: Option<Instant>,
    shown: bool,
}

impl Progress {
    pub(crate) fn new(length: Length, part: &str, quiet: bool) -> Self {
        let terminal = io::stderr().is_terminal()
            && std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb");
        let wanted = terminal && !quiet && !matches!(length, Length::Unknown);
        let started = Instant::now();
        let next = wanted.then(|| started + PATIENCE);
        Self { length, part: part.to_owned(), started, next, shown: false }
    }

    /// Shows the progress (a count, or milliseconds) at `now`, a time that was read anyway.
    pub(crate) fn tick(&mut self, done: u64, now: Instant) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + REFRESH);
        let width = terminal_size::terminal_size_of(io::stderr())
            .map_or(80, |(terminal_size::Width(width), _)| usize::from(width));
        let line = line(self.length, &self.part, done, now - self.started, width);
        // Errors are ignored: the terminal may be gone.
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
        self.shown = true;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// The bar's line, shorter than the terminal is wide: a wrapped line could not be cleared.
fn line(length: Length, part: &str, done: u64, elapsed: Duration, width: usize) -> String {
    let (total, what, left) = match length {
        Length::Unknown => return String::new(),
        // Estimated from the speed of the whole run.
        Length::Count(total, what) => {
            let left = total.saturating_sub(done) as f64;
            let each = elapsed.as_secs_f64() / done.max(1) as f64;
            (total, format!(" of {total} {what}"), left * each)
        }
        Length::Time(total) => (total, String::new(), total.saturating_sub(done) as f64 / 1e3),
    };
    let share = (done as f64 / total.max(1) as f64).min(1.0);
    let left = match done {
        0 => "warming up".to_owned(),
        _ => format!("{} left", clock(left)),
    };
    let text = format!("{part} {:.0} %{what}, {left}", share * 100.0);
    let text = text.trim_start();
    let cells = width.saturating_sub(text.chars().count() + 4).min(BAR);
    let full = (share * cells as f64).round() as usize;
    let line = match cells {
        0..8 => text.to_owned(),
        _ => format!("[{}{}] {text}", "#".repeat(full), "-".repeat(cells - full)),
    };
    line.chars().take(width.saturating_sub(1)).collect()
}

/// Formats seconds for people.
fn clock(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_time_left_is_that_of_what_is_left() {
        let count = Length::Count(1_000, "iterations");
        let text = line(count, "", 250, 10 * SECOND, 200);
        assert!(text.ends_with("] 25 % of 1000 iterations, 30 s left"), "{text}");
        // A timed run depends neither on its speed nor on its warm-up.
        let text = line(Length::Time(5_000), "", 2_000, 60 * SECOND, 200);
        assert!(text.ends_with("] 40 %, 3 s left"), "{text}");
        assert!(line(Length::Time(5_000), "", 0, SECOND, 200).ends_with("0 %, warming up"));
        assert_eq!(line(Length::Unknown, "", 5, SECOND, 80), "");
        assert_eq!([0.2, 61.0, 7_300.0].map(clock), ["1 s", "1 min 1 s", "2 h 1 min"]);
    }

    #[test]
    fn no_line_wraps() {
        let count = Length::Count(1_000_000_000_000, "iterations");
        for width in 0..200 {
            let text = line(count, "8388608 bytes, 23 of 23:", 999_999_999_999, SECOND, width);
            assert!(text.len() < width.max(1), "{width}: {text}");
        }
        let text = line(Length::Count(100, "messages"), "", 50, SECOND, 60);
        assert!(text.starts_with("[####") && text.contains("----]"), "{text}");
    }
}
