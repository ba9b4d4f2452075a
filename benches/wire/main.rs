//! Two processes of this host: a software HCA each over shared memory, the same over UDP, TCP
//! sockets, and UDP sockets. `cargo bench --bench wire`, a minute
//!
//! Half round trips of 64-byte messages, also after idleness, and their rate; bandwidth of RDMA
//! WRITEs (over TCP: of bytes written) with the processor time that both processes take for a byte,
//! and of RDMA READs. Ways alternate, so that neighbours hit all of them, and the best of several
//! rounds counts for rates, bandwidths and processor time, the median round for latencies.
//! `--quick` takes fewer and shorter rounds.
//! `--device NAME` adds an RDMA device of the machine, both processes on it (soft-RoCE, in the
//! guests of `cargo xtask vm`); the software HCAs leave it UDP port 4791 then. `--only WAY`
//! measures one of `shm`, `udp`, `tcp`, `datagrams` and that device, for a profile.
//!
//! Lines for machines: `ratio CASE VALUE`, with one way's figure over another's, or the other way
//! round for times, so that more than 1 is better than the other.

mod datagrams;
mod soft;
mod tcp;

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

pub(crate) type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of a small message.
pub(crate) const SMALL: usize = 64;
/// Sizes of WRITEs and READs.
pub(crate) const SIZES: [usize; 3] = [4096, 65_536, 1 << 20];
/// Idleness of both sides before some round trips.
const REST: Duration = Duration::from_millis(10);
/// Bytes of the memory that is written to and read.
pub(crate) const MEMORY: usize = 4 << 20;

/// How much of each case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    trips: usize,
    /// Round trips after idleness.
    rests: usize,
    pub(crate) messages: usize,
    /// Bytes written in each bandwidth case.
    pub(crate) bytes: usize,
    rounds: usize,
}

impl Plan {
    fn of(quick: bool) -> Self {
        match quick {
            true => Self { trips: 2_000, rests: 20, messages: 20_000, bytes: 64 << 20, rounds: 1 },
            false => {
                Self { trips: 20_000, rests: 50, messages: 200_000, bytes: 512 << 20, rounds: 5 }
            }
        }
    }

    /// Round trips of a round.
    pub(crate) fn all_trips(&self) -> usize {
        self.trips + self.trips / 10 + self.rests
    }
}

/// Results of one round: microseconds, messages and bytes per second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    p50: f64,
    p999: f64,
    /// Median half round trip after `REST`.
    rested: f64,
    pub(crate) rate: f64,
    pub(crate) bandwidth: [f64; SIZES.len()],
    /// Bandwidth of READs; 0 without READs.
    pub(crate) reads: [f64; SIZES.len()],
    /// Nanoseconds of processor time for a byte that was written, of both processes.
    pub(crate) processor: f64,
}

impl Figures {
    /// Makes [all trips](Plan::all_trips). `trip` makes one, and returns its half time.
    pub(crate) fn of_trips(
        plan: &Plan,
        mut trip: impl FnMut() -> Fallible<Duration>,
    ) -> Fallible<Self> {
        for _ in 0..plan.trips / 10 {
            trip()?;
        }
        let mut times = (0..plan.trips).map(|_| trip()).collect::<Fallible<Vec<_>>>()?;
        let mut rested = Vec::with_capacity(plan.rests);
        for _ in 0..plan.rests {
            std::thread::sleep(REST);
            rested.push(trip()?);
        }
        let at = |times: &mut Vec<Duration>, permille: usize| {
            times.sort_unstable();
            times[(times.len() - 1) * permille / 1000].as_secs_f64() * 1e6
        };
        let (p50, p999) = (at(&mut times, 500), at(&mut times, 999));
        Ok(Self { p50, p999, rested: at(&mut rested, 500), ..Self::default() })
    }

    /// Notes nanoseconds that all WRITEs took of processors.
    pub(crate) fn processor(&mut self, nanoseconds: f64, plan: &Plan) {
        self.processor = nanoseconds / (plan.bytes * SIZES.len()) as f64;
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
            rested: median(|one| one.rested),
            rate: best(&|one| one.rate),
            bandwidth: std::array::from_fn(|at| best(&|one| one.bandwidth[at])),
            reads: std::array::from_fn(|at| best(&|one| one.reads[at])),
            processor: rounds.iter().map(|one| one.processor).fold(f64::INFINITY, f64::min),
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
    fn start(way: &str, args: &[String]) -> Fallible<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--serve", way]).args(args);
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

/// Nanoseconds of processor time that this process has taken.
pub(crate) fn processor() -> Fallible<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |time: TimeVal| time.tv_sec() as f64 * 1e9 + time.tv_usec() as f64 * 1e3;
    Ok(of(usage.user_time()) + of(usage.system_time()))
}

fn main() -> Fallible<()> {
    let args = std::env::args().skip(1).collect::<Vec<_>>();
    let behind = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).map(String::as_str)
    };
    let device = behind("--device");
    let plan = Plan::of(args.iter().any(|arg| arg == "--quick"));
    match behind("--serve") {
        Some("tcp") => return tcp::serve(&plan),
        Some("datagrams") => return datagrams::serve(&plan),
        Some(way) => return soft::serve(&soft::device(way, true, device), &plan),
        None => {}
    }
    let ways = ["shm", "udp", "tcp", "datagrams"].into_iter().chain(device);
    let only = behind("--only");
    let ways = ways.filter(|way| only.is_none_or(|only| *way == only)).collect::<Vec<_>>();
    let mut rounds = vec![Vec::new(); ways.len()];
    for _ in 0..plan.rounds {
        for (way, rounds) in ways.iter().zip(&mut rounds) {
            let mut peer = Peer::start(way, &args)?;
            rounds.push(match *way {
                "tcp" => tcp::run(&mut peer, &plan)?,
                "datagrams" => datagrams::run(&mut peer, &plan)?,
                way => soft::run(&soft::device(way, false, device), &mut peer, &plan)?,
            });
            peer.end()?;
        }
    }
    let figures = rounds.iter().map(|rounds| Figures::of(rounds)).collect::<Vec<_>>();
    report(&ways, &figures, only.is_none());
    Ok(())
}

fn report(ways: &[&str], figures: &[Figures], compare: bool) {
    for (way, figures) in ways.iter().zip(figures) {
        let [small, middle, large] = figures.bandwidth.map(|bytes| bytes / 1e9);
        println!(
            "{way}  half round trip {:>6.1} us (p99.9 {:>7.1}, rested {:>6.1}), \
             {:>8.0} messages/s, WRITE of 4 KiB {small:>5.2}, 64 KiB {middle:>5.2}, \
             1 MiB {large:>5.2} GB/s, {:>5.3} ns/byte",
            figures.p50, figures.p999, figures.rested, figures.rate, figures.processor
        );
        let [small, middle, large] = figures.reads.map(|bytes| bytes / 1e9);
        if large > 0.0 {
            println!(
                "{way}  READ of 4 KiB {small:>5.2}, 64 KiB {middle:>5.2}, 1 MiB {large:>5.2} GB/s"
            );
        }
    }
    if !compare {
        return;
    }
    let memcpy = memcpy();
    println!("memcpy of 1 MiB {:.2} GB/s", memcpy / 1e9);
    let all = ways.iter().zip(figures);
    // Shared memory over all others, UDP over plain datagrams and the machine's device.
    for ((one, of), (name, other)) in [(0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4)]
        .into_iter()
        .filter_map(|(one, other)| all.clone().nth(one).zip(all.clone().nth(other)))
    {
        println!("ratio half_trip_{name}_over_{one} {:.2}", other.p50 / of.p50);
        println!("ratio half_trip_p999_{name}_over_{one} {:.2}", other.p999 / of.p999);
        println!("ratio half_trip_rested_{name}_over_{one} {:.2}", other.rested / of.rested);
        println!("ratio rate_{one}_over_{name} {:.2}", of.rate / other.rate);
        for (size, at) in [("4k", 0), ("64k", 1), ("1m", 2)] {
            let ratio = of.bandwidth[at] / other.bandwidth[at];
            println!("ratio write_{size}_{one}_over_{name} {ratio:.2}");
            if of.reads[at] > 0.0 && other.reads[at] > 0.0 {
                let ratio = of.reads[at] / other.reads[at];
                println!("ratio read_{size}_{one}_over_{name} {ratio:.2}");
            }
        }
        println!("ratio processor_{name}_over_{one} {:.2}", other.processor / of.processor);
    }
    println!("ratio write_1m_shm_over_memcpy {:.2}", figures[0].bandwidth[2] / memcpy);
    println!("ratio read_1m_shm_over_memcpy {:.2}", figures[0].reads[2] / memcpy);
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
