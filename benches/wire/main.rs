//! Two processes of this host: a software HCA each over shared memory, the same over UDP, and TCP
//! sockets. `cargo bench --bench wire`, a minute
//!
//! Half round trips and rate of 64-byte messages, and bandwidth of RDMA WRITEs (over TCP: of bytes
//! written). Ways alternate, so that neighbours hit all of them, and the best of several rounds
//! counts for rates and bandwidths, the median round for latencies. `--quick` takes fewer and
//! shorter rounds. Lines for machines: `ratio CASE VALUE`, shared memory's figure over the other's,
//! or the other's over shared memory's for times, so that more than 1 is better than the other.

mod soft;
mod tcp;

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of a small message.
pub(crate) const SMALL: usize = 64;
/// Sizes of WRITEs.
pub(crate) const SIZES: [usize; 3] = [4096, 65_536, 1 << 20];
/// Bytes of the memory that is written to.
pub(crate) const MEMORY: usize = 4 << 20;

/// How much of each case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) trips: usize,
    pub(crate) messages: usize,
    /// Bytes written in each bandwidth case.
    pub(crate) bytes: usize,
    rounds: usize,
}

impl Plan {
    fn of(quick: bool) -> Self {
        match quick {
            true => Self { trips: 2_000, messages: 20_000, bytes: 64 << 20, rounds: 1 },
            false => Self { trips: 20_000, messages: 200_000, bytes: 512 << 20, rounds: 5 },
        }
    }
}

/// What one round found out: microseconds, messages and bytes per second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) p50: f64,
    pub(crate) p999: f64,
    pub(crate) rate: f64,
    pub(crate) bandwidth: [f64; SIZES.len()],
}

impl Figures {
    pub(crate) fn latency(&mut self, mut times: Vec<Duration>) {
        times.sort_unstable();
        let at = |permille: usize| times[(times.len() - 1) * permille / 1000].as_secs_f64() * 1e6;
        (self.p50, self.p999) = (at(500), at(999));
    }

    /// The median of latencies, the best of the rest.
    fn of(rounds: &[Self]) -> Self {
        let median = |of: fn(&Self) -> f64| {
            let mut all = rounds.iter().map(of).collect::<Vec<_>>();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let best = |of: &dyn Fn(&Self) -> f64| rounds.iter().map(of).fold(0.0, f64::max);
        Self {
            p50: median(|one| one.p50),
            p999: median(|one| one.p999),
            rate: best(&|one| one.rate),
            bandwidth: std::array::from_fn(|at| best(&|one| one.bandwidth[at])),
        }
    }
}

/// The process at the other end, and lines to and from it.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    fn start(way: &str, quick: bool) -> Fallible<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--serve", way]).args(quick.then_some("--quick"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (to, from) = (to.ok_or("no pipe")?, from.ok_or("no pipe")?);
        Ok(Self { child, to, from: BufReader::new(from) })
    }

    pub(crate) fn say(&mut self, line: &str) -> Fallible<()> {
        Ok(writeln!(self.to, "{line}")?)
    }

    pub(crate) fn hear(&mut self) -> Fallible<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn end(mut self) -> Fallible<()> {
        drop(self.to);
        match self.child.wait()?.success() {
            true => Ok(()),
            false => Err("the other process failed".into()),
        }
    }
}

/// The server's side of the pipes.
pub(crate) fn heard() -> Fallible<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

const WAYS: [&str; 3] = ["shm", "udp", "tcp"];

fn main() -> Fallible<()> {
    let args = std::env::args().skip(1).collect::<Vec<_>>();
    let quick = args.iter().any(|arg| arg == "--quick");
    let plan = Plan::of(quick);
    if let Some(at) = args.iter().position(|arg| arg == "--serve") {
        return match args.get(at + 1).map_or("", String::as_str) {
            "tcp" => tcp::serve(&plan),
            way => soft::serve(way, &plan),
        };
    }
    let mut rounds = WAYS.map(|_| Vec::new());
    for _ in 0..plan.rounds {
        for (way, rounds) in WAYS.iter().zip(&mut rounds) {
            let mut peer = Peer::start(way, quick)?;
            rounds.push(match *way {
                "tcp" => tcp::run(&mut peer, &plan)?,
                way => soft::run(way, &mut peer, &plan)?,
            });
            peer.end()?;
        }
    }
    report(&rounds.map(|rounds| Figures::of(&rounds)));
    Ok(())
}

fn report([shm, udp, tcp]: &[Figures; 3]) {
    for (way, figures) in WAYS.iter().zip([shm, udp, tcp]) {
        let [small, middle, large] = figures.bandwidth.map(|bytes| bytes / 1e9);
        println!(
            "{way}  half round trip {:>6.1} us (p99.9 {:>7.1}), {:>8.0} messages/s, WRITE of 4 KiB \
             {small:>5.2}, 64 KiB {middle:>5.2}, 1 MiB {large:>5.2} GB/s",
            figures.p50, figures.p999, figures.rate
        );
    }
    let memcpy = memcpy();
    println!("memcpy of 1 MiB {:.2} GB/s", memcpy / 1e9);
    for (name, other) in [("udp", udp), ("tcp", tcp)] {
        println!("ratio half_trip_{name}_over_shm {:.2}", other.p50 / shm.p50);
        println!("ratio half_trip_p999_{name}_over_shm {:.2}", other.p999 / shm.p999);
        println!("ratio rate_shm_over_{name} {:.2}", shm.rate / other.rate);
        for (size, at) in [("4k", 0), ("64k", 1), ("1m", 2)] {
            let ratio = shm.bandwidth[at] / other.bandwidth[at];
            println!("ratio write_{size}_shm_over_{name} {ratio:.2}");
        }
    }
    println!("ratio write_1m_shm_over_memcpy {:.2}", shm.bandwidth[2] / memcpy);
}

/// Bytes per second that one thread copies, 1 MiB at a time, among as much memory as the WRITEs.
fn memcpy() -> f64 {
    let from = vec![1_u8; MEMORY];
    let mut to = vec![0_u8; MEMORY];
    let mut best = 0.0_f64;
    for _ in 0..20 {
        let start = Instant::now();
        for (to, from) in to.chunks_mut(1 << 20).zip(from.chunks(1 << 20)) {
            to.copy_from_slice(black_box(from));
        }
        black_box(&mut to);
        best = best.max(MEMORY as f64 / start.elapsed().as_secs_f64());
    }
    best
}
