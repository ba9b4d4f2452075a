//! Compares connection set-up with C's: system calls of each side, and time. Fails if a side of
//! ours makes more calls.
//!
//! `connect-rate GID C OURS N RUNS`: index of the GID to connect to; the two programs
//! (`c/connections.c` and `connections`); number of connections that each makes in turn; number of
//! timed runs of each, in alternation. `UVERBS_TEST_DEVICE` names the device. `cargo xtask vm` runs
//! it in its machines.
//!
//! Output for scripts: `ratio calls SIDE VALUE`, `ratio p50 VALUE`, `ratio rate VALUE`. Above 1,
//! ours is better.

use std::process::{Child, Command, ExitCode, Stdio};

use c_stack::calls::names;
use c_stack::calls::trace::{self, Phase, count, is_memory};

/// Port of the first run. Each run takes the next, since a port may stay in use for a while.
const FIRST_PORT: u16 = 7500;

struct Runs<'a> {
    gid: &'a str,
    count: u64,
    port: u16,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let usage = "usage: connect-rate GID C OURS N RUNS";
    let [gid, c, ours, count, runs] = words[..] else { return failed(usage) };
    let (Ok(count), Ok(times)) = (count.parse(), runs.parse()) else { return failed(usage) };
    let mut runs = Runs { gid, count, port: FIRST_PORT };
    let done = runs.compare_calls([c, ours]).and_then(|()| runs.compare_times([c, ours], times));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&why),
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("connect-rate: {why}");
    ExitCode::FAILURE
}

impl Runs<'_> {
    /// Creates server and client of a run.
    fn sides(&mut self, program: &str, mode: &str) -> [Command; 2] {
        self.port += 1;
        ["server", "client"].map(|side| {
            let mut command = Command::new(program);
            command.args([side, mode, &self.count.to_string(), &self.port.to_string()]);
            command.env("UVERBS_TEST_GID", self.gid).stdin(Stdio::null());
            command
        })
    }

    /// Counts the calls of one side, the server if `of_server`; the other side runs untraced.
    fn calls(&mut self, program: &str, of_server: bool) -> Result<Phase, String> {
        let [server, client] = self.sides(program, "calls");
        let (mut traced, mut other) = if of_server { (server, client) } else { (client, server) };
        let other = start(&mut other)?;
        let phases = trace::trace(&mut traced)?;
        other.end()?;
        let further = phases.into_iter().find(|phase| phase.name.ends_with(", further"));
        let further = further.ok_or_else(|| format!("{traced:?} marked no phase"))?;
        match further.calls.get("device ioctl 4.0") {
            Some(&made) if made == self.count => Ok(further),
            _ => Err(format!("not {} queue pairs: {further:?}", self.count)),
        }
    }

    /// Prints the calls of both programs on both sides.
    fn compare_calls(&mut self, programs: [&str; 2]) -> Result<(), String> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        println!("Linux {}, glibc {}\n", kernel.trim(), names::libc_version());
        let mut more = Vec::new();
        println!("| calls of a connection | C | ours |\n|---|---|---|");
        let mut lists = String::new();
        for (side, of_server) in [("client", false), ("server", true)] {
            let [c, ours] = programs.map(|program| self.calls(program, of_server));
            let (c, ours) = (c?.calls, ours?.calls);
            lists += &names::listed(side, &c, &ours);
            let [c, ours] = [c, ours].map(|calls| count(&calls, |name| !is_memory(name)));
            let each = |calls: u64| calls as f64 / self.count as f64;
            println!("| {side} | {:.2} | {:.2} |", each(c), each(ours));
            println!("ratio calls {side} {:.3}", c as f64 / ours as f64);
            if ours > c {
                more.push(format!("{side}: {ours}, C {c}"));
            }
        }
        println!("\n{lists}");
        if more.is_empty() { Ok(()) } else { Err(format!("more calls than C: {more:?}")) }
    }

    /// Sorted nanoseconds until each connection was established, and the total.
    fn times(&mut self, program: &str) -> Result<(Vec<u64>, u64), String> {
        let [mut server, mut client] = self.sides(program, "times");
        let server = start(server.stdout(Stdio::null()))?;
        let output = client.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("{client:?}: {error}"))?;
        server.end()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut each: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let whole = text.lines().find_map(|line| line.strip_prefix("client, further: "));
        match whole.and_then(|whole| whole.parse().ok()) {
            Some(whole) if output.status.success() && each.len() as u64 == self.count => {
                each.sort_unstable();
                Ok((each, whole))
            }
            _ => Err(format!("{client:?}: {} {text}", output.status)),
        }
    }

    /// Prints the times of the best run of each program.
    fn compare_times(&mut self, programs: [&str; 2], runs: usize) -> Result<(), String> {
        let mut best = [[u64::MAX; 2]; 2];
        for _ in 0..runs {
            for (program, best) in programs.iter().zip(&mut best) {
                let (each, whole) = self.times(program)?;
                *best = [best[0].min(each[each.len() / 2]), best[1].min(whole)];
            }
        }
        if runs == 0 {
            return Ok(());
        }
        let [[c_p50, c_whole], [p50, whole]] = best;
        let rate = |whole: u64| self.count as f64 * 1e9 / whole as f64;
        println!("| | C | ours |\n|---|---|---|");
        println!("| until one stands, p50, us | {} | {} |", c_p50 / 1000, p50 / 1000);
        println!("| connections a second | {:.0} | {:.0} |", rate(c_whole), rate(whole));
        println!("ratio p50 {:.3}", c_p50 as f64 / p50 as f64);
        println!("ratio rate {:.3}", c_whole as f64 / whole as f64);
        Ok(())
    }
}

/// Running program. It is killed when dropped, after the other side failed.
struct Started(Child);

fn start(command: &mut Command) -> Result<Started, String> {
    command.spawn().map(Started).map_err(|error| format!("{command:?}: {error}"))
}

impl Started {
    fn end(mut self) -> Result<(), String> {
        match self.0.wait() {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("the other side: {other:?}")),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
