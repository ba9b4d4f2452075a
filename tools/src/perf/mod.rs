//! `uverbs perf`: latency, bandwidth and message rate, recorded so that two runs can be compared.

mod bw;
mod chart;
mod clock;
mod compare;
mod draw;
mod ends;
mod exchange;
mod lat;
mod machine;
mod meter;
mod options;
mod plot;
mod record;
mod report;
mod side;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::error::Error;
use crate::pingpong::verify::Who;
use crate::{output, select};
use chart::Chart;
use clock::Clock;
use ends::{Bench, Ends};
use exchange::{Control, Listener};
use options::{Family, Options, Plan, Role, Test};
use record::{Keeper, Measured, Record};

/// Measure latency, bandwidth and message rate, record them, and compare recordings.
///
/// In the way of perftest: `uverbs perf write lat` is ib_write_lat, `uverbs perf send bw` is ib_send_bw, and so on, with the same
/// letters for options where there is the same thing.
///
/// Without HOST and without --server both ends are in this process, driven by one thread: two queue pairs of one device in loopback,
/// or two software HCAs where the machine has no RDMA device. With them there are two processes, which find each other over TCP. The
/// software HCA lives inside a process, so two processes can't meet on it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

const AFTER: &str = "\
WHAT IS MEASURED:\n  \
    write, send lat   half the round trip: from before the post until the answer was seen, by its last\n                    \
    byte in memory (write) or its completion (send), over two\n  \
    read, atomic lat  one operation: from before the post until its completion was polled\n  \
    bw                messages complete over the time from the first post to the last completion, and\n                    \
    in each of many short intervals, so that jitter shows\n\n  \
    Every sample of lat goes into a histogram (HdrHistogram, three digits). It is a closed loop: a\n  \
    stall is one sample, not as many as would have been sent meanwhile (coordinated omission). A\n  \
    percentile that has too few samples above it is shown as `-`. The clock's own cost is told, and\n  \
    not taken off. Messages of a queue pair all go from one place in memory to one, as in perftest.\n\n\
TWO PROCESSES:\n  \
    The server waits for one client, which must be started with the same operation, test, --size (or\n  \
    --all), --qps, --bidirectional and --check; what differs is refused by name. Measuring and recording\n  \
    is the client's. The exchange is plain text without any authentication: for networks you trust.\n\n\
NOT HERE:\n  \
    Other transports than RC, events instead of polling (-e), rdma_cm (-R), rate limits. -F is ignored.\n\n\
UNITS:\n  \
    Sizes are bytes; K, M and G stand for 2^10, 2^20 and 2^30. In reports MB/s and Gb/s are powers of\n  \
    ten. Times in JSON are nanoseconds.\n\n\
EXAMPLES:\n  \
    uverbs perf write lat\n  \
    uverbs perf write lat -d mlx5_0 -x 3 --cpu 2 -D 10 --out quiet.json --svg quiet.svg\n  \
    uverbs perf send bw -s 4K -t 256 -l 16 -Q 16\n  \
    uverbs perf read bw --all --json | jq '.results[] | [.size, .bandwidth.bytes_per_s]'\n  \
    uverbs perf write bw --server            # on one machine, and on another:\n  \
    uverbs perf write bw that.machine\n  \
    uverbs perf compare quiet.json busy.json\n\n\
EXIT STATUS:\n  \
    0  measured; also when Ctrl-C ended the run early: then it says so, and reports what there is\n  \
    1  a failed completion, changed contents, a silent or differing peer, a file that can't be written\n  \
    2  bad arguments, no such device, or arguments that the device can't do";

#[derive(Debug, Subcommand)]
enum What {
    /// RDMA WRITE: ib_write_lat, ib_write_bw
    #[command(after_long_help = AFTER)]
    Write(Options),
    /// RDMA READ: ib_read_lat, ib_read_bw
    #[command(after_long_help = AFTER)]
    Read(Options),
    /// SEND into receives: ib_send_lat, ib_send_bw
    #[command(after_long_help = AFTER)]
    Send(Options),
    /// Fetch-and-add, or compare-and-swap: ib_atomic_lat, ib_atomic_bw
    #[command(after_long_help = AFTER)]
    Atomic(Options),
    Compare(compare::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    match &args.what {
        What::Write(options) => measure(&options.plan(Family::Write)?),
        What::Read(options) => measure(&options.plan(Family::Read)?),
        What::Send(options) => measure(&options.plan(Family::Send)?),
        What::Atomic(options) => measure(&options.plan(Family::Atomic)?),
        What::Compare(args) => compare::run(args),
    }
}

/// Files that are written at the end, opened at the beginning.
struct Keepers {
    out: Option<Keeper>,
    svg: Option<Keeper>,
    png: Option<Keeper>,
}

impl Keepers {
    fn new(plan: &Plan) -> Result<Self, Error> {
        let open = |path: &Option<std::path::PathBuf>| path.as_deref().map(Keeper::new).transpose();
        Ok(Self { out: open(&plan.out)?, svg: open(&plan.svg)?, png: open(&plan.png)? })
    }
}

fn measure(plan: &Plan) -> Result<(), Error> {
    let keepers = Keepers::new(plan)?;
    let two_processes = plan.role != Role::Both;
    let devices = select::two(plan.device.as_deref(), plan.quiet || plan.json)?;
    if two_processes && devices.embedded {
        let (option, value) = match &plan.role {
            Role::Client { host, .. } => ("HOST", host.clone()),
            _ => ("--server", "given".to_owned()),
        };
        let why = "the software HCA lives inside one process, and two can't meet on it; leave this out, and both ends are in this one";
        return Err(Error::Argument { option, value, why: why.to_owned() });
    }
    let stop = Arc::new(AtomicBool::new(false));
    let clock = Clock::new();
    let mut record = Record::new(&plan.shape, &clock, two_processes);
    let mut control = meet(plan, &stop)?;
    on_interrupt(&stop)?;
    // Behind the devices: a thread's processors are inherited, and the software HCA's own threads are to have all.
    if let Some(cpu) = plan.shape.cpu {
        pin(cpu)?;
    }
    let utf8 = output::is_utf8();
    let serves = matches!(plan.role, Role::Server { .. });
    for (at, &size) in plan.sizes.iter().enumerate() {
        let bench = Bench {
            shape: &plan.shape,
            size,
            clock: &clock,
            stop: &stop,
            embedded: devices.embedded,
            quiet: plan.quiet || plan.json,
        };
        let mut ends = match control.take() {
            Some(control) => {
                let who = if serves { Who::Server } else { Who::Client };
                Ends::one(who, &devices, control, &bench)?
            }
            None => Ends::both(&devices, &bench)?,
        };
        if at == 0 {
            record.ends = ends.about();
            if !plan.json && !plan.quiet {
                output::print(&report::header(&record, utf8))?;
            }
            if !plan.json && !serves {
                output::print(&report::columns(plan.shape.test))?;
            }
        }
        let (measured, interrupted) = one(&mut ends, &bench)?;
        if let Ends::One(_, kept) = ends {
            control = Some(kept);
        }
        // A server of --bidirectional has figures of its own, which the client has, too.
        if let Some(measured) = measured.filter(|_| !serves) {
            if !plan.json {
                output::print(&report::row(&measured, utf8))?;
            }
            record.results.push(measured);
        }
        if interrupted {
            record.interrupted = true;
            break;
        }
    }
    if serves {
        return if plan.quiet { Ok(()) } else { output::print("served the client to its end\n") };
    }
    publish(plan, &record, keepers, utf8)
}

/// Measures one size. Gives also whether the user ended it.
fn one(ends: &mut Ends, bench: &Bench<'_>) -> Result<(Option<Measured>, bool), Error> {
    let shape = bench.shape;
    match shape.test {
        Test::Lat => match lat::run(ends, bench)? {
            Some(run) => {
                let measured = Measured::of_latency(shape, bench.size, &run)?;
                Ok((Some(measured), run.interrupted))
            }
            None => Ok((None, false)),
        },
        Test::Bw => Ok(match bw::run(ends, bench)? {
            Some(run) => (Some(Measured::of_bandwidth(shape, bench.size, &run)), run.interrupted),
            None => (None, false),
        }),
    }
}

/// Reports and writes what was measured.
fn publish(plan: &Plan, record: &Record, keepers: Keepers, utf8: bool) -> Result<(), Error> {
    // The recording first: it can't be had again.
    if let Some(keeper) = keepers.out {
        let text = serde_json::to_string_pretty(record);
        let text = text.map_err(|error| Error::Output(error.into()))?;
        keeper.keep((text + "\n").as_bytes())?;
    }
    let shape = &plan.shape;
    let last = record.results.last();
    let chart = match last {
        Some(last) => {
            let title = format!("{} {}, {} bytes", shape.op, shape.test, last.size);
            let name = record.ends.first().map_or(String::new(), |end| end.device.clone());
            Chart::new(title, &[(name, record, last)])?
        }
        None => None,
    };
    if let Some(chart) = &chart {
        if let Some(keeper) = keepers.svg {
            keeper.keep(&draw::svg(chart)?)?;
        }
        if let Some(keeper) = keepers.png {
            keeper.keep(&draw::png(chart)?)?;
        }
    } else if plan.svg.is_some() || plan.png.is_some() {
        let why = "too little was measured: no whole interval, or no sample";
        return Err(Error::Plot(why.to_owned()));
    }
    if plan.json {
        return output::json(record);
    }
    let mut text = if plan.quiet { String::new() } else { report::footer(record) };
    let wanted = plan.plot || (std::io::stdout().is_terminal() && !plan.quiet);
    if let Some(chart) = chart.filter(|_| wanted) {
        text.push('\n');
        text.push_str(&plot::draw(&chart, utf8));
    }
    output::print(&text)
}

/// Meets the other process, if there is to be one.
fn meet(plan: &Plan, stop: &AtomicBool) -> Result<Option<Control>, Error> {
    let limit = plan.shape.timeout();
    match &plan.role {
        Role::Both => Ok(None),
        Role::Client { host, port } => Control::connect(host, *port, limit).map(Some),
        Role::Server { port, wait } => {
            let listener = Listener::bind(*port)?;
            if !plan.quiet {
                output::complain(&format!("waiting for a client on TCP port {}", listener.port()));
            }
            listener.accept(*wait, limit, stop).map(Some)
        }
    }
}

/// Ctrl-C ends the run, a second one the program.
fn on_interrupt(stop: &Arc<AtomicBool>) -> Result<(), Error> {
    let done = flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(stop))
        .and_then(|_| flag::register(SIGINT, Arc::clone(stop)));
    done.map(|_| ())
        .map_err(|error| Error::System { what: "sigaction", errno: uverbs::Errno::of(&error) })
}

/// Runs this thread on one processor alone.
fn pin(cpu: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    let pinned = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|errno| Error::Argument {
        option: "--cpu",
        value: cpu.to_string(),
        why: format!("this program may not run there ({})", errno.desc()),
    })
}
