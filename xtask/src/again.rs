//! Test programs that failed beside other work are run once more alone.
//!
//! A machine of two processors runs several test programs and builds at a time, and a test with a
//! limit of time may miss it then. The summary names each program that passed alone, so that a
//! test which often needs it is seen. A crash counts at once.

use std::process::Command;
use std::time::Duration;

use crate::step::{Outcome, cargo, run};

/// Limit of all programs together.
const LIMIT: Duration = Duration::from_secs(10 * 60);
/// A failure of more programs has another cause than load.
const MOST: usize = 3;

/// Options of `cargo test` that select the failed programs, from what it printed. Empty if the
/// failure is no test's.
fn failed_programs(printed: &str) -> Vec<String> {
    let crashed = printed.contains("(signal: ") || printed.contains("could not compile");
    let after = |line: &str| {
        let (_, selection) = line.split_once("to rerun pass `")?;
        Some(selection.trim_end().trim_end_matches('`').to_owned())
    };
    let failed: Vec<_> = printed.lines().filter_map(after).collect();
    if crashed || failed.len() > MOST { Vec::new() } else { failed }
}

/// Runs the failed programs of `cargo test` once more, in its environment. `first` is its outcome.
pub(crate) fn alone(command: &Command, printed: &str, first: Outcome) -> Outcome {
    let failed = failed_programs(printed);
    if failed.is_empty() {
        return first;
    }
    for selection in &failed {
        eprintln!("--- once more, alone: {selection}");
        let mut again = cargo(&["test"]);
        match selection.split_once(" --test ") {
            // The features of the whole workspace, or else it is built anew.
            Some((_, name)) => again.args(["--workspace", "--test", name]),
            None => again.args(selection.split_whitespace()),
        };
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => again.env(name, value),
                None => again.env_remove(name),
            };
        }
        match run(again, LIMIT) {
            Outcome::Passed => {}
            _ => return first,
        }
    }
    Outcome::Counted(format!("passed alone, failed before: {}", failed.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_programs_are_found_and_crashes_are_not_repeated() {
        let one = "error: test failed, to rerun pass `-p tools --test network`\n";
        let two = "error: doctest failed, to rerun pass `-p core --doc`\n";
        let both = format!("test a ... ok\n{one}test result: FAILED\n{two}");
        assert_eq!(failed_programs(&both), ["-p tools --test network", "-p core --doc"]);
        assert!(failed_programs("error: no such command").is_empty());
        assert!(failed_programs(&one.repeat(MOST + 1)).is_empty());
        let crash = "process didn't exit successfully: `a` (signal: 11, SIGSEGV)";
        assert!(failed_programs(&format!("{one}{crash}")).is_empty());
    }
}
