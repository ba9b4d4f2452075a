//! Steps: a command with a name and a limit of time, and the summary of many.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::again;

/// Skipped tests of all steps so far, as `TEST: REASON`.
static SKIPPED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// How a step ended.
#[derive(Clone)]
pub(crate) enum Outcome {
    Passed,
    /// Passed, with its counts.
    Counted(String),
    Failed(String),
    Skipped(String),
}

/// A step with its name, which may run on another thread.
pub(crate) type Named<'a> = (String, Box<dyn FnOnce() -> Outcome + Send + 'a>);

/// A step of [`Steps::two_at_a_time`].
pub(crate) fn named<'a>(
    name: impl Into<String>,
    run: impl FnOnce() -> Outcome + Send + 'a,
) -> Named<'a> {
    (name.into(), Box::new(run))
}

/// Runs steps one after the other, goes on after a failure, and sums up.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration, Outcome)>,
}

impl Steps {
    /// Runs one step.
    pub(crate) fn step(&mut self, name: impl Into<String>, run: impl FnOnce() -> Outcome) {
        self.done.push(timed(name.into(), run));
    }

    /// True if a step failed so far.
    pub(crate) fn has_failed(&self) -> bool {
        self.done.iter().any(|(.., outcome)| matches!(outcome, Outcome::Failed(_)))
    }

    /// Runs the steps two at a time, beginning them in their order: put the longest first.
    pub(crate) fn two_at_a_time(&mut self, steps: Vec<Named<'_>>) {
        let todo = Mutex::new(steps.into_iter().enumerate());
        let done = Mutex::new(Vec::new());
        let work = || {
            loop {
                let next = todo.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((place, (name, run))) = next else { return };
                let step = timed(name, run);
                done.lock().unwrap_or_else(PoisonError::into_inner).push((place, step));
            }
        };
        thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|&(place, _)| place);
        self.done.extend(done.into_iter().map(|(_, step)| step));
    }

    /// Prints what happened. The last line counts it.
    pub(crate) fn summary(self) -> ExitCode {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        println!();
        for (name, took, outcome) in &self.done {
            let (word, why) = match outcome {
                Outcome::Passed => ("ok", String::new()),
                Outcome::Counted(what) => ("ok", format!(": {what}")),
                Outcome::Failed(why) => ("FAILED", format!(": {why}")),
                Outcome::Skipped(why) => ("skipped", format!(": {why}")),
            };
            println!("{:>8.1} s  {name:<28} {word}{why}", took.as_secs_f64());
            match outcome {
                Outcome::Passed | Outcome::Counted(_) => passed += 1,
                Outcome::Failed(_) => failed += 1,
                Outcome::Skipped(_) => skipped += 1,
            }
        }
        let tests = SKIPPED.lock().unwrap_or_else(PoisonError::into_inner);
        if !tests.is_empty() {
            println!("\ntests that can't run here:");
            tests.iter().for_each(|test| println!("  {test}"));
        }
        let count = tests.len();
        // The end of the output repeats the failures.
        println!();
        for (name, _, outcome) in &self.done {
            if let Outcome::Failed(why) = outcome {
                println!("FAILED  {name}: {why}");
            }
        }
        println!(
            "steps: {passed} passed, {failed} failed, {skipped} skipped; tests skipped: {count}"
        );
        ExitCode::from(u8::from(failed > 0))
    }
}

/// Runs a step, and measures its time.
fn timed(name: String, run: impl FnOnce() -> Outcome) -> (String, Duration, Outcome) {
    eprintln!("\n== {name}");
    let started = Instant::now();
    let outcome = run();
    if let Outcome::Failed(why) | Outcome::Skipped(why) = &outcome {
        eprintln!("== {name}: {why}");
    }
    (name, started.elapsed(), outcome)
}

/// True if this run builds everything once, from nothing.
static ONCE: AtomicBool = AtomicBool::new(false);

/// Makes all cargo commands build without incremental compilation and without debug information
/// but lines. A build from nothing then takes a quarter less processor time and half the space.
pub(crate) fn build_once() {
    ONCE.store(true, Ordering::Relaxed);
}

/// A cargo command.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words);
    if ONCE.load(Ordering::Relaxed) {
        let settings =
            [("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")];
        for (name, value) in settings {
            if std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
    }
    command
}

/// Cargo's folder, with its registry and the programs that it installs.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let home = || std::env::home_dir().map(|home| home.join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home)
}

/// Runs a command to its end, or kills it after `limit`.
pub(crate) fn run(mut command: Command, limit: Duration) -> Outcome {
    let shown = format!("{command:?}");
    match command.stdin(Stdio::null()).spawn() {
        Ok(child) => wait(child, limit),
        Err(error) => Outcome::Failed(format!("{shown}: {error}")),
    }
}

/// Runs a command as [`run`] does, and returns its standard output.
pub(crate) fn output(mut command: Command, limit: Duration) -> Result<String, Outcome> {
    let shown = format!("{command:?}");
    let failed = |error: io::Error| Outcome::Failed(format!("{shown}: {error}"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || stdout.map_or(Ok(String::new()), io::read_to_string));
    match wait(child, limit) {
        Outcome::Passed => {}
        Outcome::Failed(why) => return Err(Outcome::Failed(format!("{shown}: {why}"))),
        other => return Err(other),
    }
    let text = reader.join().map_err(|_| Outcome::Failed(format!("{shown}: unreadable")))?;
    text.map_err(failed)
}

/// Runs `cargo test` as [`run`] does, and notes skipped tests: each prints a line
/// `skipped: TEST: REASON` to standard error. A program that failed is run once more
/// ([`again::alone`]).
pub(crate) fn run_tests(mut command: Command, limit: Duration) -> Outcome {
    let shown = format!("{command:?}");
    let mut child = match command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return Outcome::Failed(format!("{shown}: {error}")),
    };
    let started = Instant::now();
    let reader = child.stderr.take().map(|stderr| thread::spawn(|| forward(stderr, io::stderr())));
    let outcome = wait(child, limit);
    // A killed command may leave a process that keeps the pipe open.
    let was_killed = started.elapsed() > limit;
    let reader = reader.filter(|reader| !was_killed || reader.is_finished());
    let printed = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    let skips = printed.lines().filter_map(skip_in);
    SKIPPED.lock().unwrap_or_else(PoisonError::into_inner).extend(skips);
    match outcome {
        Outcome::Failed(_) => again::alone(&command, &printed, outcome),
        other => other,
    }
}

/// Notes a test that is left out like a test that skips itself.
pub(crate) fn skip_test(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}");
    eprintln!("{line}");
    SKIPPED.lock().unwrap_or_else(PoisonError::into_inner).extend(skip_in(&line));
}

/// Forwards lines, and returns them.
fn forward(from: impl Read, mut to: impl Write) -> String {
    let mut lines = BufReader::new(from);
    let (mut line, mut text) = (Vec::new(), String::new());
    while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        text.push_str(&String::from_utf8_lossy(&line));
        let _ = to.write_all(&line);
        line.clear();
    }
    text
}

/// `TEST: REASON` of a line `skipped: TEST: REASON`.
fn skip_in(line: &str) -> Option<String> {
    let said = line.trim_end().strip_prefix("skipped: ")?;
    said.contains(": ").then(|| said.to_owned())
}

/// Waits for the end of a process, or kills it after `limit`.
pub(crate) fn wait(mut child: Child, limit: Duration) -> Outcome {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Outcome::Passed,
            Ok(Some(status)) => return Outcome::Failed(format!("{status}")),
            Ok(None) if started.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                return Outcome::Failed(format!("not done after {} s", limit.as_secs()));
            }
            Ok(None) => thread::sleep(Duration::from_millis(50)),
            Err(error) => return Outcome::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn two_steps_run_at_a_time_and_are_told_in_order() {
        let begun = AtomicUsize::new(0);
        let step = |name: &str| -> Named<'_> {
            let run = || {
                let mine = begun.fetch_add(1, Ordering::SeqCst);
                // The first step of a pair waits until the second has begun.
                let limit = Instant::now() + Duration::from_secs(20);
                while mine.is_multiple_of(2) && begun.load(Ordering::SeqCst) < mine + 2 {
                    assert!(Instant::now() < limit, "no step runs beside this one");
                    thread::sleep(Duration::from_millis(1));
                }
                Outcome::Passed
            };
            (name.into(), Box::new(run))
        };
        let mut steps = Steps::default();
        steps.two_at_a_time(["a", "b", "c", "d"].map(step).into());
        let names: Vec<&str> = steps.done.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
    }

    #[test]
    fn skipped_tests_are_noted() {
        assert_eq!(skip_in("skipped: links: not root\n"), Some("links: not root".to_owned()));
        assert_eq!(skip_in("skipped: 3\n"), None);
        assert_eq!(skip_in("test a ... ok\n"), None);
        let said = "test b ... \nskipped: a::b: no tea: none\nok\nskipped: c";
        let mut passed_on = Vec::new();
        let text = forward(said.as_bytes(), &mut passed_on);
        assert_eq!(text.lines().filter_map(skip_in).collect::<Vec<_>>(), ["a::b: no tea: none"]);
        assert_eq!(passed_on, said.as_bytes());
    }
}
