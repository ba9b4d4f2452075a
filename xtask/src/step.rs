//! Steps: a command with a name and a limit of time, and the summary of many.

use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How a step ended.
#[derive(Clone)]
pub(crate) enum Outcome {
    Passed,
    /// Passed, with what it counted.
    Counted(String),
    Failed(String),
    Skipped(String),
}

/// Runs steps one after the other, goes on after a failure, and sums up.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration, Outcome)>,
}

impl Steps {
    /// Runs one step.
    pub(crate) fn step(&mut self, name: impl Into<String>, run: impl FnOnce() -> Outcome) {
        let name = name.into();
        eprintln!("\n== {name}");
        let started = Instant::now();
        let outcome = run();
        if let Outcome::Failed(why) | Outcome::Skipped(why) = &outcome {
            eprintln!("== {name}: {why}");
        }
        self.done.push((name, started.elapsed(), outcome));
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
        println!("\nsteps: {passed} passed, {failed} failed, {skipped} skipped");
        ExitCode::from(u8::from(failed > 0))
    }
}

/// A cargo command.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words);
    command
}

/// Runs a command to its end, or kills it after `limit`.
pub(crate) fn run(mut command: Command, limit: Duration) -> Outcome {
    let shown = format!("{command:?}");
    let mut child = match command.stdin(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) => return Outcome::Failed(format!("{shown}: {error}")),
    };
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
