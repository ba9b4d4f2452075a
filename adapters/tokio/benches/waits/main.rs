//! Round trips of 64 bytes between two processes on the software HCA, in each way in which programs
//! wait. `cargo bench -p uverbs-tokio --bench waits`, a minute
//!
//! Each way runs on one processor and on two, in fresh processes. `--quick` takes a fifth of the
//! time, `--only WAY` one way. Lines for machines: `ratio NAME_<processors> VALUE`, the fastest
//! way's time over this one's. A way whose loop sleeps is compared with its sleeps alone, and
//! connections with connections.

mod connections;
mod side;
mod ways;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::ways::{ALL, Group, Way};

pub(crate) type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Limit of every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// Pause of a loop that sleeps between polls.
pub(crate) const NAP: Duration = Duration::from_micros(10);

fn main() -> Fallible<()> {
    let args = std::env::args().skip(1).collect::<Vec<_>>();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).map(String::as_str)
    };
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let time = Duration::from_millis(if is_quick { 200 } else { 1000 });
    let Some(part) = value("--part") else {
        return all(value("--only"), time, &args);
    };
    let processors = value("--processors").and_then(|text| text.parse().ok()).unwrap_or(1);
    pin_to(processors)?;
    let way = value("--way").and_then(Way::named).ok_or("no such way")?;
    match part {
        "server" => way.serve(),
        "client" => {
            let at = value("--at").ok_or("no address")?.parse()?;
            println!("{}", way.measure(at, time)?.as_secs_f64() * 1e6);
            Ok(())
        }
        _ => {
            println!("{}", way.alone(time)?.as_secs_f64() * 1e6);
            Ok(())
        }
    }
}

/// Runs all ways, and prints their times and ratios.
fn all(only: Option<&str>, time: Duration, args: &[String]) -> Fallible<()> {
    for processors in [1, 2] {
        if processors > processors_here()?.len() {
            println!("skipped: {processors} processors are not to be had here");
            continue;
        }
        let mut rows = Vec::new();
        for way in ALL.iter().filter(|way| only.is_none_or(|only| only == way.name)) {
            let micros = run(way, processors, args)?;
            println!("{processors} processors  {:<18} {micros:>9.1} us", way.name);
            rows.push((way, micros));
        }
        let best = |group: Group| {
            let of = rows.iter().filter(|(way, _)| way.group == group).map(|(_, micros)| *micros);
            of.fold(f64::INFINITY, f64::min)
        };
        for (way, micros) in &rows {
            let floor = match way.group {
                Group::Sleeps => best(Group::Messages).max(2.0 * nap(time).as_secs_f64() * 1e6),
                group => best(group),
            };
            println!("ratio {}_{processors} {:.2}", way.name, floor / micros);
        }
    }
    Ok(())
}

/// Time of a nap on this machine.
fn nap(time: Duration) -> Duration {
    let (start, mut naps) = (Instant::now(), 0);
    while start.elapsed() < time / 10 {
        std::thread::sleep(NAP);
        naps += 1;
    }
    start.elapsed() / naps
}

/// Microseconds of a round trip.
fn run(way: &Way, processors: usize, args: &[String]) -> Fallible<f64> {
    let part = |part: &str, at: &str| -> Fallible<_> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).args(["--part", part, "--way", way.name, "--at", at]);
        command.args(["--processors", &processors.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        Ok((child, line.trim().to_owned()))
    };
    if way.is_alone() {
        let (mut child, line) = part("alone", "")?;
        child.wait()?;
        return Ok(line.parse().map_err(|_| format!("{} failed", way.name))?);
    }
    let (mut server, at) = part("server", "")?;
    let (mut client, line) = part("client", &at)?;
    client.wait()?;
    if line.is_empty() {
        server.kill()?;
    }
    server.wait()?;
    Ok(line.parse().map_err(|_| format!("{} failed", way.name))?)
}

fn processors_here() -> Fallible<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&one| set.is_set(one).unwrap_or(false)).collect())
}

/// Moves this thread, and those that it will start, to so many processors.
fn pin_to(count: usize) -> Fallible<()> {
    let mut set = CpuSet::new();
    for one in processors_here()?.into_iter().take(count) {
        set.set(one)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}
