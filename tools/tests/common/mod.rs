//! Runs the built program, with a time limit.
#![allow(dead_code, reason = "each test binary includes this file and uses its part")]

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "as above")]
pub(crate) use support::skip;

/// Limit of a run, for a busy machine and unoptimised code.
const LIMIT: Duration = Duration::from_secs(120);

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit status; `None` if a signal ended the program.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

/// Command `uverbs` with these arguments, in the C locale, with pipes for its output.
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

/// Runs a command to its end. A command that exceeds the limit is killed, and the test fails.
pub(crate) fn run(command: &mut Command) -> Run {
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    // Both pipes are read during the run: a full pipe would stop the program.
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

/// Waits until the program handles SIGINT: before that the signal would kill it.
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

/// Sends SIGINT `after` the program can handle it.
pub(crate) fn interrupt(child: &Child, after: Duration) {
    wait_for_handler(child);
    std::thread::sleep(after);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
}

impl Run {
    /// Fails the test unless the run succeeded; the message has the output.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, Some(0), "{self:?}");
        self
    }

    /// Report as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that the run failed with this status, with empty stdout and one line on stderr that
    /// begins with the program's name. Returns that line.
    #[track_caller]
    pub(crate) fn complaint(&self, status: i32) -> &str {
        assert_eq!(self.status, Some(status), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let lines: Vec<_> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines[0].strip_prefix("uverbs: ").unwrap_or_else(|| panic!("{self:?}"))
    }
}
