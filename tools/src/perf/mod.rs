//! `uverbs perf`: latency, bandwidth and message rate, recorded so that two runs can be compared.

mod bw;
mod chart;
pub(crate) mod clock;
mod compare;
mod draw;
pub(crate) mod ends;
pub(crate) mod exchange;
pub(crate) mod lat;
mod machine;
mod meter;
mod options;
mod plot;
mod record;
mod report;
pub(crate) mod shape;
pub(crate) mod side;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::base::error::Error;
use crate::base::interrupt;
use crate::base::keeper::Keeper;
use crate::base::output;
use crate::base::select;
use crate::link::tcp::{Listener, Stream};
use crate::link::verify::Who;
use chart::Chart;
use clock::Clock;
use ends::{Bench, Ends};
use exchange::Control;
use options::Options;
use record::{Measured, Record};
use shape::{Family, Plan, Role, Test};

/// Measure latency, bandwidth and message rate, record them, and compare recordings.
///
/// In the way of perftest: `uverbs perf write lat` is ib_write_lat, `uverbs perf send bw` is
/// ib_send_bw, and so on, with the same options where there is the same thing.
///
/// Without HOST and without --server both ends are in this process, driven by one thread: two queue
/// pairs of one device in loopback, or two software HCAs where the machine has no RDMA device. With
/// them there are two processes, which meet over TCP; where the machine has no RDMA device, give
/// each a software HCA on the network (-d softhca@loopback, or softhca@ADDRESS between machines).
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

const AFTER: &str = "\
WHAT IS MEASURED:\n  \
    write lat, send lat: half the round trip, from before the post until the answer was seen, by \
    its last byte in memory (write) or its completion (send).\n\n  \
    read lat, atomic lat: one operation, from before the post until its completion was \
    polled.\n\n  \
    bw: messages complete over the time from the first post to the last completion, and in each of \
    many short intervals, so that jitter shows.\n\n  \
    Every sample of lat goes into a histogram (HdrHistogram, three digits). It is a closed loop: a \
    stall is one sample, not as many as would have been sent meanwhile (coordinated omission). A \
    percentile that has too few samples above it is shown as `-`. The clock's own cost is told, \
    and \
    not taken off. Messages of a queue pair all go from one place in memory to one, as in \
    perftest.\n\n\
TWO PROCESSES:\n  \
    The server waits for one client, which must be started with the same operation, test, \
    --connection, --size (or --all), --qps, --bidirectional and --check; what differs is refused \
    by \
    name. The client measures and records. The exchange is plain text without any \
    authentication: for networks you trust.\n\n\
PERFTEST:\n  \
    Its letters and long options are here where the thing is: --ib-dev, --qp, --inline_size, \
    --post_list, --tclass, --out_json_file and so on. Others are refused with what to use instead. \
    There are no rdma_cm and no rate limits. --events sleeps where perftest does, and in write bw, \
    too; write lat has nothing to sleep on, since a WRITE raises no event where it arrives.\n\n\
TRANSPORTS:\n  \
    --connection UC has write and send, UD has send of one packet, up to the port's MTU. Nobody \
    repeats what is lost there: bw counts it, lat waits for it in vain. Messages per second are \
    those that were sent.\n\n\
UNITS:\n  \
    Sizes are bytes; K, M and G stand for 2^10, 2^20 and 2^30. In reports MB/s and Gb/s are powers \
    of ten. Times in JSON are nanoseconds.\n\n\
EXAMPLES:\n  \
    uverbs perf write lat\n  \
    uverbs perf write lat -d mlx5_0 -x 3 --cpu 2 -D 10 --out quiet.json\n  \
    uverbs perf send bw -s 4K -t 256 -l 16 -Q 16\n  \
    uverbs perf read bw --all --svg sizes.svg\n  \
    uverbs perf compare quiet.json busy.json\n  \
    uverbs perf write bw --server           (on one machine, and on another:)\n  \
    uverbs perf write bw that.machine\n\n\
EXIT STATUS:\n  \
    0  measured; also when Ctrl-C ended the run early: the report says so\n  \
    1  a failed completion, changed contents, a silent or differing peer, a file that can't be \
    written\n  \
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

/// Files that are written at the end; created at the beginning, so that errors come early.
struct Keepers {
    out: Option<Keeper>,
    svg: Option<Keeper>,
    png: Option<Keeper>,
}

impl Keepers {
    fn new(plan: &Plan) -> Result<Self, Error> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(Keeper::new).transpose();
        Ok(Self { out: open(&plan.out)?, svg: open(&plan.svg)?, png: open(&plan.png)? })
    }
}

fn measure(plan: &Plan) -> Result<(), Error> {
    let keepers = Keepers::new(plan)?;
    let two_processes = plan.role != Role::Both;
    let devices = match two_processes {
        true => select::reachable(plan.device.as_deref())?,
        false => select::two(plan.device.as_deref(), plan.quiet || plan.json)?,
    };
    let stop = interrupt::watch()?;
    let clock = Clock::new();
    let mut record = Record::new(&plan.shape, &clock, two_processes);
    let control = meet(plan, &stop)?;
    // After the devices: threads inherit the processors, and the software HCA's threads may use
    // all.
    if let Some(cpu) = plan.shape.cpu {
        pin(cpu)?;
    }
    let bench = Bench {
        shape: &plan.shape,
        size: 0,
        clock: &clock,
        stop: &stop,
        embedded: devices.embedded,
        quiet: plan.quiet || plan.json,
        part: "",
    };
    sizes(plan, &devices, control, &bench, &mut record)?;
    if matches!(plan.role, Role::Server { .. }) {
        return if plan.quiet { Ok(()) } else { output::print("served the client to its end\n") };
    }
    publish(plan, &record, keepers)
}

/// Measures all sizes, one after the other, and prints a row for each.
fn sizes(
    plan: &Plan,
    devices: &select::Two,
    mut control: Option<Control>,
    bench: &Bench<'_>,
    record: &mut Record,
) -> Result<(), Error> {
    let (utf8, width) = (output::is_utf8(), output::width());
    let serves = matches!(plan.role, Role::Server { .. });
    let count = plan.sizes.len();
    for (at, &size) in plan.sizes.iter().enumerate() {
        let part = match count {
            1 => String::new(),
            _ => format!("{size} bytes, {} of {count}:", at + 1),
        };
        let bench = Bench { size, part: &part, ..*bench };
        let mut ends = match control.take() {
            Some(control) => {
                let who = if serves { Who::Server } else { Who::Client };
                Ends::one(who, devices, control, &bench)?
            }
            None => Ends::both(devices, &bench)?,
        };
        if at == 0 {
            record.ends = ends.about();
            if !plan.json && !plan.quiet {
                output::print(&report::header(record, utf8))?;
            }
            if !plan.json && !serves {
                output::print(&report::columns(plan.shape.test, width))?;
            }
        }
        let (measured, interrupted) = one(&mut ends, &bench)?;
        if let Ends::One(_, kept) = ends {
            control = Some(kept);
        }
        // The client of a --bidirectional run reports the server's figures, too.
        if let Some(measured) = measured.filter(|_| !serves) {
            if !plan.json {
                output::print(&report::row(&measured, utf8, width))?;
            }
            record.results.push(measured);
        }
        if interrupted {
            record.interrupted = true;
            break;
        }
    }
    Ok(())
}

/// Measures one size; returns also whether the user ended it.
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

/// Reports and writes the results.
fn publish(plan: &Plan, record: &Record, keepers: Keepers) -> Result<(), Error> {
    // The recording first: it cannot be repeated.
    if let Some(keeper) = keepers.out {
        let text = serde_json::to_string_pretty(record);
        let text = text.map_err(|error| Error::Output(error.into()))?;
        keeper.keep((text + "\n").as_bytes())?;
    }
    let name = record.ends.first().map_or(String::new(), |end| end.place.device.clone());
    let chart = Chart::of_run(name, record)?;
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
    let (utf8, width) = (output::is_utf8(), output::width());
    let mut text = if plan.quiet { String::new() } else { report::footer(record, width) };
    let wanted = plan.plot || (std::io::stdout().is_terminal() && !plan.quiet);
    if let Some(chart) = chart.filter(|_| wanted) {
        text.push('\n');
        text.push_str(&plot::draw(&chart, utf8, width));
    }
    output::print(&text)
}

/// Connects to the other process, if there is one.
fn meet(plan: &Plan, stop: &AtomicBool) -> Result<Option<Control>, Error> {
    let limit = plan.shape.timeout();
    let stream = match &plan.role {
        Role::Both => return Ok(None),
        Role::Client { host, port } => Stream::connect(host, *port, limit)?,
        Role::Server { port, wait } => {
            let listener = Listener::bind(*port)?;
            if !plan.quiet {
                output::complain(&format!("waiting for a client on TCP port {}", listener.port()));
            }
            listener.accept(*wait, limit, stop)?
        }
    };
    Ok(Some(Control::new(stream)))
}

/// Runs this thread on one processor.
fn pin(cpu: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    let pinned = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|errno| Error::Argument {
        option: "--cpu",
        value: cpu.to_string(),
        why: match permitted().as_str() {
            "" => format!("this program may not run there ({})", errno.desc()),
            there => format!("this program may run on {there}"),
        },
    })
}

/// Processors that this thread may run on, such as `0-3, 8`; empty if the kernel doesn't tell.
fn permitted() -> String {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return String::new() };
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true)) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): (usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(", ")
}
