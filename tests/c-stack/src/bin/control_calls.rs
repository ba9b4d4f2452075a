//! Compares the control path with C's on a kernel's device: every system call of both programs by
//! phase, and the time of each phase. Fails if ours makes more calls in a phase.
//!
//! `control-calls WHICH GID C OURS FURTHER [RUNS]`: `all` compares all calls, `device` the calls on
//! the device; index of the GID that C connects to; the two programs (`c/control.c` and
//! `control-path`, or `c/connect.c` and `connect-path`); number of further objects of each kind;
//! number of timed runs of each, in alternation. `UVERBS_TEST_DEVICE` names the device. `cargo
//! xtask vm` runs it in its machines.

use std::process::{Command, ExitCode, Stdio};

use c_stack::calls::names;
use c_stack::calls::table::{self, Compared, title};
use c_stack::calls::trace::{self, Phase};

/// Further objects of each kind in timed runs: each takes a millisecond in an emulated machine.
const TIMED: u64 = 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [which @ ("all" | "device"), gid, c, ours, further, ref runs @ ..] = words[..] else {
        return usage();
    };
    let Ok(further) = further.parse() else { return usage() };
    let runs = match runs {
        [] => 0,
        [runs] => match runs.parse() {
            Ok(runs) => runs,
            Err(_) => return usage(),
        },
        _ => return usage(),
    };
    let times = || if runs > 0 { times(gid, [c, ours], runs) } else { Ok(()) };
    match compare(which == "device", gid, [c, ours], further).and_then(|()| times()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("control-calls: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: control-calls all|device GID C OURS FURTHER [RUNS]");
    ExitCode::from(2)
}

fn command(program: &str, mode: &str, further: u64, gid: &str) -> Command {
    let mut command = Command::new(program);
    command.args([mode, &further.to_string()]).env("UVERBS_TEST_GID", gid);
    command
}

/// Prints the calls of both programs.
fn compare(only_device: bool, gid: &str, programs: [&str; 2], further: u64) -> Result<(), String> {
    let [c, ours] =
        programs.map(|program| trace::trace(&mut command(program, "calls", further, gid)));
    let (c, ours) = (c?, ours?);
    let names = |side: &[Phase]| side.iter().map(|phase| phase.name.clone()).collect::<Vec<_>>();
    if names(&c) != names(&ours) {
        return Err(format!("phases differ: {:?}, ours {:?}", names(&c), names(&ours)));
    }
    is_counted(&c, &ours, further)?;
    let Compared { rows, lists, more, more_on_device, .. } = table::compare(&c, &ours, further);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("Linux {}, glibc {}\n", kernel.trim(), names::libc_version());
    println!("{}\n{lists}", table::calls(&rows));
    let more = if only_device { more_on_device } else { more };
    if more.is_empty() { Ok(()) } else { Err(format!("more calls than C:\n{}", more.join("\n"))) }
}

/// Prints the time of each phase: the minimum of all runs, since the machine's other work only
/// adds.
fn times(gid: &str, programs: [&str; 2], runs: usize) -> Result<(), String> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (program, times) in programs.iter().zip(&mut times) {
            times.push(timed(&mut command(program, "times", TIMED, gid))?);
        }
    }
    println!("| phase | C, us | ours, us | C / ours |\n|---|---|---|---|");
    for (at, (name, _)) in times[0][0].iter().enumerate() {
        if times.iter().flatten().any(|run| run.get(at).is_none_or(|(other, _)| other != name)) {
            return Err(format!("{name} was not timed in each run"));
        }
        let least = |runs: &[Vec<(String, u64)>]| runs.iter().map(|run| run[at].1).min();
        let [c, ours] = times.each_ref().map(|runs| least(runs).unwrap_or(0));
        let ratio = c as f64 / ours as f64;
        println!("| {name} | {} | {} | {ratio:.2} |", c / 1000, ours / 1000);
    }
    Ok(())
}

/// Required calls of a phase: its name, a call, and the call's count per object.
type Held = (&'static str, &'static str, u64);

/// Required calls of the `control` programs.
const OBJECTS: [Held; 11] = [
    ("open device", "device open", 1),
    ("open device", "device ioctl 0.3", 1),
    ("reg MR, further", "device ioctl 0.0(0x9)", 1),
    ("create CQ, further", "device ioctl 3.0", 1),
    ("create QP, further", "device ioctl 4.0", 1),
    ("connect QP", "device ioctl 0.0(0x1a)", 3),
    ("connect QP, further", "device ioctl 0.0(0x1a)", 3),
    ("destroy QP, further", "device ioctl 4.1", 1),
    ("destroy CQ, further", "device ioctl 3.1", 1),
    ("dereg MR, further", "device ioctl 7.1", 1),
    ("close device", "device close", 1),
];

/// Required calls of the `connect` programs: queue pairs of both ends. A phase is a connection's
/// life.
const CONNECTIONS: [Held; 3] = [
    ("connection", "device ioctl 4.0", 2),
    ("connection, further", "device ioctl 4.0", 2),
    ("connection, further", "device ioctl 4.1", 2),
];

/// Checks that both programs made the required calls, so that the tracer missed none.
fn is_counted(c: &[Phase], ours: &[Phase], further: u64) -> Result<(), String> {
    let connects = c.iter().any(|phase| phase.name == "connection");
    let held: &[Held] = if connects { &CONNECTIONS } else { &OBJECTS };
    for (name, call, each) in held {
        let count = if name.ends_with(", further") { each * further } else { *each };
        for side in [c, ours] {
            let phase = side.iter().find(|phase| phase.name == *name);
            if phase.and_then(|phase| phase.calls.get(*call)) != Some(&count) {
                return Err(format!("{name}: not {count} of {call}: {phase:?}"));
            }
        }
    }
    Ok(())
}

/// Nanoseconds of a run by phase.
fn timed(command: &mut Command) -> Result<Vec<(String, u64)>, String> {
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let (name, time) = line.rsplit_once(": ")?;
        Some((title(name, TIMED), time.parse().ok()?))
    };
    let times: Option<Vec<_>> = text.lines().map(line).collect();
    times.ok_or_else(|| format!("{command:?}: {text}"))
}
