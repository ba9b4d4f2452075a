//! Verdict on a run of the machine. A run passes with exactly one verdict of the guest that agrees
//! with the programs' ends, within the limits of time, and without a complaint of the kernel. Any
//! other run is a failure with its reason.

use std::fmt;
use std::time::Duration;

use uverbs_vm_init::report::{End, Line};

/// Limits of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From the start to the first process.
    pub(crate) boot: Duration,
    /// Without a line from the guest.
    pub(crate) silence: Duration,
    /// From the start to the end.
    pub(crate) total: Duration,
    /// From the verdict to the power-off.
    pub(crate) stop: Duration,
}

/// Reason why a whole run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Complaint of the kernel: its line.
    Kernel(String),
    NoVerdict,
    TwoVerdicts,
    /// Counts of the verdict that differ from the programs that ended.
    Disagreement {
        said: (usize, usize),
        seen: (usize, usize),
    },
    /// Reason why the guest gave up.
    Trouble(String),
    /// Malformed line on the results port.
    Noise(String),
    NoBoot(Duration),
    Silence(Duration),
    TooLong(Duration),
    NoStop(Duration),
    /// End of QEMU other than by the guest's power-off.
    Qemu(String),
    /// End or failed start of the device's server.
    Server(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(line) => write!(f, "the kernel says: {line}"),
            Self::NoVerdict => write!(f, "no verdict: the guest stopped before it was done"),
            Self::TwoVerdicts => write!(f, "two verdicts"),
            Self::Disagreement { said, seen } => write!(
                f,
                "the verdict counts {} passed and {} failed, but {} and {} ended so",
                said.0, said.1, seen.0, seen.1
            ),
            Self::Trouble(what) => write!(f, "the guest gave up: {what}"),
            Self::Noise(line) => write!(f, "not a line of ours on the results port: {line:?}"),
            Self::NoBoot(limit) => write!(f, "no first process after {} s", limit.as_secs()),
            Self::Silence(limit) => write!(f, "stalled: silent for {} s", limit.as_secs()),
            Self::TooLong(limit) => write!(f, "not done after {} s", limit.as_secs()),
            Self::NoStop(limit) => {
                write!(f, "still running {} s after its verdict", limit.as_secs())
            }
            Self::Qemu(why) => write!(f, "QEMU ended: {why}"),
            Self::Server(why) => write!(f, "the device's server: {why}"),
        }
    }
}

/// Program that ended, or that was running at the run's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) output: Vec<String>,
    /// End of the program, and its milliseconds.
    pub(crate) end: Option<(End, u64)>,
}

/// State of a run so far.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) ran: Vec<Ran>,
    booted: bool,
    said: Option<(usize, usize)>,
    failure: Option<Failure>,
    kernel: Option<String>,
}

impl Verdict {
    /// Takes a line of the results port. Returns the program that it ended, if any.
    pub(crate) fn result(&mut self, text: &str) -> Option<&Ran> {
        let Some(line) = Line::parse(text) else {
            self.fail(Failure::Noise(text.to_owned()));
            return None;
        };
        match line {
            Line::Hello => self.booted = true,
            Line::Alive => {}
            Line::Start(name) => self.ran.push(Ran { name, output: Vec::new(), end: None }),
            Line::Out(text) => {
                if let Some(ran) = self.ran.last_mut() {
                    ran.output.push(text);
                }
            }
            Line::End(end, ms) => {
                let ran = self.ran.last_mut().filter(|ran| ran.end.is_none());
                let Some(ran) = ran else {
                    self.fail(Failure::Noise(text.to_owned()));
                    return None;
                };
                ran.end = Some((end, ms));
                return self.ran.last();
            }
            Line::Trouble(what) => self.fail(Failure::Trouble(what)),
            Line::Verdict { .. } if self.said.is_some() => self.fail(Failure::TwoVerdicts),
            Line::Verdict { passed, failed } => self.said = Some((passed, failed)),
        }
        None
    }

    /// Takes a line of the kernel's log.
    pub(crate) fn kernel(&mut self, line: &str) {
        if self.kernel.is_none() && is_complaint(line) {
            self.kernel = Some(line.trim().to_owned());
        }
    }

    /// Notes a failure. Only the first one is reported.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Returns true if the run has failed already.
    pub(crate) fn is_lost(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns true if the kernel complained.
    pub(crate) fn has_complaint(&self) -> bool {
        self.kernel.is_some()
    }

    /// Returns true if the guest gave a verdict.
    pub(crate) fn is_said(&self) -> bool {
        self.said.is_some()
    }

    /// Checks the limits against the current durations.
    pub(crate) fn time(
        &mut self,
        limits: &Limits,
        running: Duration,
        silent: Duration,
        said: Option<Duration>,
    ) {
        if let Some(said) = said {
            if said > limits.stop {
                self.fail(Failure::NoStop(limits.stop));
            }
        } else if !self.booted && running > limits.boot {
            self.fail(Failure::NoBoot(limits.boot));
        } else if self.booted && silent > limits.silence {
            self.fail(Failure::Silence(limits.silence));
        } else if running > limits.total {
            self.fail(Failure::TooLong(limits.total));
        }
    }

    /// Ends the run, and returns its failure. Failed programs are no failure of the run; a verdict
    /// that does not count them is. The verdict leaves out the first `besides` programs, the
    /// set-up.
    pub(crate) fn close(&mut self, besides: usize) -> Option<Failure> {
        // A complaint of the kernel explains the other failures.
        if let Some(line) = self.kernel.take() {
            return Some(Failure::Kernel(line));
        }
        if let Some(failure) = self.failure.take() {
            return Some(failure);
        }
        let Some(said) = self.said else {
            return Some(Failure::NoVerdict);
        };
        let counted = self.ran.get(besides..).unwrap_or_default();
        let passed = counted.iter().filter(|ran| ran.is_success()).count();
        let seen = (passed, counted.len() - passed);
        (said != seen).then_some(Failure::Disagreement { said, seen })
    }
}

impl Ran {
    pub(crate) fn is_success(&self) -> bool {
        self.end.is_some_and(|(end, _)| end.is_success())
    }
}

/// Beginnings of kernel messages that fail a run.
const COMPLAINTS: [&str; 16] = [
    "WARNING: ",
    "BUG: ",
    "Oops: ",
    "Oops!",
    "Call Trace:",
    "Kernel panic",
    "general protection fault",
    "Unable to handle kernel",
    "divide error:",
    "invalid opcode:",
    "kernel BUG at",
    "refcount_t: ",
    "UBSAN: ",
    "unregister_netdevice: waiting",
    "rcu: INFO:",
    "INFO: task ",
];

/// Returns true if a line of the kernel's log is a complaint.
fn is_complaint(line: &str) -> bool {
    let message = message(line);
    COMPLAINTS.iter().any(|start| message.starts_with(start))
        || message.contains("soft lockup")
        || message.contains("hard LOCKUP")
        || message.contains("detected stalls on CPUs")
        || message.contains("self-detected stall")
}

/// Text of a line without its time `[    1.234567] `, its caller `[   T12] ` and the prefix of
/// lockups.
fn message(line: &str) -> &str {
    let mut rest = line.trim();
    while let Some((_, after)) = rest.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
        rest = after.trim_start();
    }
    rest.strip_prefix("watchdog: ").unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(results: &[&str], log: &[&str]) -> Option<Failure> {
        let mut verdict = Verdict::default();
        for line in results {
            verdict.result(line);
        }
        for line in log {
            verdict.kernel(line);
        }
        verdict.close(0)
    }

    const GOOD: [&str; 5] =
        ["hello", "start a", "out text", "end 12 exit 0", "verdict 1 passed 0 failed"];

    #[test]
    fn one_verdict_that_agrees() {
        assert_eq!(run(&GOOD, &["[    0.000000] Linux version 6.1"]), None);
        let failed = ["hello", "start a", "end 12 signal 11", "verdict 0 passed 1 failed"];
        assert_eq!(run(&failed, &[]), None);
    }

    #[test]
    fn no_verdict_or_two() {
        assert_eq!(run(&GOOD[..4], &[]), Some(Failure::NoVerdict));
        assert_eq!(run(&[], &[]), Some(Failure::NoVerdict));
        let twice = [&GOOD[..], &["verdict 1 passed 0 failed"]].concat();
        assert_eq!(run(&twice, &[]), Some(Failure::TwoVerdicts));
    }

    #[test]
    fn counts_that_disagree() {
        for (said, counts) in
            [("verdict 2 passed 0 failed", (2, 0)), ("verdict 0 passed 1 failed", (0, 1))]
        {
            let lines = [&GOOD[..4], &[said]].concat();
            let disagreement = Failure::Disagreement { said: counts, seen: (1, 0) };
            assert_eq!(run(&lines, &[]), Some(disagreement));
        }
        // A program that never ended did not pass.
        let lines = ["hello", "start a", "verdict 1 passed 0 failed"];
        let disagreement = Failure::Disagreement { said: (1, 0), seen: (0, 1) };
        assert_eq!(run(&lines, &[]), Some(disagreement));
    }

    #[test]
    fn lines_that_are_none() {
        for noise in ["", "what", "end 1 exit 0", "verdict passed"] {
            let lines = [&["hello", noise], &GOOD[1..]].concat();
            assert_eq!(run(&lines, &[]), Some(Failure::Noise(noise.to_owned())));
        }
    }

    #[test]
    fn complaints() {
        for line in [
            "[    3.141592] WARNING: CPU: 1 PID: 77 at drivers/infiniband/core/verbs.c:1 f+0x1/0x2",
            "[    3.141592][   T77] WARNING: kernel/none.c:1 at f+0x1/0x2, CPU#1: sh/77",
            "[    3.141592] BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "[    3.141592] Oops: 0002 [#1] PREEMPT SMP NOPTI",
            "[    3.141592] Call Trace:",
            "[    3.141592] Kernel panic - not syncing: sysrq triggered crash",
            "[    3.141592] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "[    3.141592] INFO: task init:1 blocked for more than 120 seconds.",
            "[    3.141592] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [init:1]",
            "[    3.141592] refcount_t: underflow; use-after-free.",
        ] {
            assert_eq!(run(&GOOD, &[line]), Some(Failure::Kernel(line.to_owned())));
        }
    }

    #[test]
    fn what_is_no_complaint() {
        for line in [
            "[    0.1] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on",
            "[    0.1] Warning: unable to open an initial console.",
            "[    0.1] mlx5_core 0000:00:02.0: firmware version: 16.35.2000",
            "[    0.1] rcu: Hierarchical RCU implementation.",
            "[    0.1] BUGs are elsewhere",
            "",
            "[",
        ] {
            assert_eq!(run(&GOOD, &[line]), None, "{line}");
        }
    }

    #[test]
    fn a_complaint_comes_first() {
        let line = "[    3.1] Kernel panic - not syncing: sysrq triggered crash";
        assert_eq!(run(&GOOD[..2], &[line]), Some(Failure::Kernel(line.to_owned())));
    }

    #[test]
    fn limits() {
        let s = Duration::from_secs;
        let limits = Limits { boot: s(60), silence: s(30), total: s(300), stop: s(20) };
        let at = |booted, running, silent, said: Option<u64>| {
            let mut verdict = Verdict { booted, ..Verdict::default() };
            verdict.time(&limits, s(running), s(silent), said.map(s));
            verdict.failure
        };
        assert_eq!(at(false, 60, 60, None), None);
        assert_eq!(at(false, 61, 1, None), Some(Failure::NoBoot(s(60))));
        assert_eq!(at(true, 299, 30, None), None);
        assert_eq!(at(true, 100, 31, None), Some(Failure::Silence(s(30))));
        assert_eq!(at(true, 301, 1, None), Some(Failure::TooLong(s(300))));
        assert_eq!(at(true, 301, 31, Some(20)), None);
        assert_eq!(at(true, 301, 31, Some(21)), Some(Failure::NoStop(s(20))));
    }
}
