//! Runs the built binary, with a limit on its time.
#![allow(dead_code, reason = "each test binary includes this file and uses its part")]

#[path = "../../../tests/common/skip.rs"]
mod skip;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "as above")]
pub(crate) use skip::skip;

/// No run here may be longer, on a busy machine and without optimisation.
const LIMIT: Duration = Duration::from_secs(120);

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit status; `None` when it was killed by a signal.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

/// `uverbs` with these arguments, in the C locale, its output in pipes.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("LC_ALL", "C");
    command
}

/// Runs `uverbs` with these arguments.
pub(crate) fn uverbs(args: &[&str]) -> Run {
    run(&mut command(args))
}

/// Runs a command to its end; one that hangs is killed, and the test fails.
pub(crate) fn run(command: &mut Command) -> Run {
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    // Both are read while it runs: a full pipe would stop it.
    let out = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let err = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} ran for more than {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Run {
        status: status.code(),
        stdout: out.join().unwrap().unwrap(),
        stderr: err.join().unwrap().unwrap(),
    }
}

/// Waits until the program catches SIGINT: before that it would die of the signal.
pub(crate) fn wait_for_handler(child: &Child) {
    let started = Instant::now();
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("SigCgt:")).unwrap();
        let mask = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        mask & 1 << (2 - 1) != 0
    };
    while !caught() {
        assert!(started.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Presses Ctrl-C, so long after the program can be interrupted.
pub(crate) fn interrupt(child: &Child, after: Duration) {
    wait_for_handler(child);
    std::thread::sleep(after);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
}

impl Run {
    /// Success, or the test fails with all that was said.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, Some(0), "{self:?}");
        self
    }

    /// The report as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Failed with this status, nothing on stdout, and one line on stderr, headed by the program's
    /// name, which is given.
    #[track_caller]
    pub(crate) fn complaint(&self, status: i32) -> &str {
        assert_eq!(self.status, Some(status), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let lines: Vec<_> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines[0].strip_prefix("uverbs: ").unwrap_or_else(|| panic!("{self:?}"))
    }
}
