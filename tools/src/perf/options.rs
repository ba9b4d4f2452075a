//! Options of `uverbs perf`, and checks that need no device.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use uverbs::Mtu;
use uverbs::any_transport::TransportName;

use super::shape::{Family, Plan, Role, Shape, Test};
use crate::base::error::Error;
use crate::base::select::PortArgs;
use crate::base::units::{parse_bytes, parse_mtu, parse_size, parse_timeout};
use crate::link::doorbell::Doorbell;
use crate::link::operation::Operation;
use crate::link::{tcp, transports};

/// Maximum memory for receives.
const RECEIVE_BYTES_MAX: u64 = 4 << 30;
/// Sizes of `--all`, as powers of two: perftest's.
const ALL: std::ops::RangeInclusive<u32> = 1..=23;
/// Sizes of `--all` over UD, as powers of two: up to the largest MTU.
const ALL_UD: std::ops::RangeInclusive<u32> = 1..=12;
/// perftest's defaults.
const TX_DEPTH: u32 = 128;
const CQ_MOD: u32 = 100;

/// One measurement, after its operation was named.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measurement to run
    #[arg(value_enum, value_name = "lat|bw")]
    test: Test,

    /// Name or address of the server. Without it and without --server, both ends are in this
    /// process
    #[arg(value_name = "HOST", conflicts_with = "server")]
    host: Option<String>,

    /// Be the server: wait for one client, serve it, and end
    #[arg(long)]
    server: bool,

    /// TCP port of the server, on which both ends meet
    #[arg(short, long, value_name = "PORT", default_value_t = tcp::PORT)]
    port: u16,

    /// Seconds that a server waits for its client
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "60",
        allow_negative_numbers = true,
        value_parser = parse_timeout
    )]
    wait: Duration,

    #[command(flatten)]
    at: PortArgs,

    /// Bytes of a message [default: lat 2, bw 64K, over UD 1K; an atomic has always 8]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "all")]
    size: Option<u64>,

    /// All sizes from 2 bytes to 8 MiB, over UD to 4 KiB, in powers of two, with new queue pairs
    /// for each size
    #[arg(short, long)]
    all: bool,

    /// Messages to measure; with --qps, on each queue pair [default: lat 10000, bw --duration 2]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1 << 40),
        conflicts_with = "duration"
    )]
    iters: Option<u64>,

    /// Seconds to measure, in place of --iters
    #[arg(
        short = 'D',
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        value_parser = parse_timeout
    )]
    duration: Option<Duration>,

    /// Messages to warm up with, not measured [default: a tenth of --iters, 1000 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    warmup: Option<u64>,

    /// Send messages of up to this number of bytes inline, in the WQE [default: lat 220,
    /// over SRD 32, bw 0]
    #[arg(
        short = 'I',
        long,
        visible_alias = "inline_size",
        value_name = "BYTES",
        value_parser = parse_bytes
    )]
    inline: Option<u64>,

    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the port's]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_mtu)]
    mtu: Option<Mtu>,

    /// Atomic operation
    #[arg(short = 'A', long, visible_alias = "atomic_type", value_enum)]
    atomic_type: Option<Atomic>,

    /// Outstanding READs or atomics on each queue pair [default: 16, or the device's limit]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    outs: Option<u8>,

    /// bw: messages outstanding on each queue pair [default: 128]
    #[arg(short = 't', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tx_depth: Option<u32>,

    /// send: posted receives on each queue pair [default: 512, or as many as fit into 64 MiB]
    #[arg(short = 'r', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rx_depth: Option<u32>,

    /// bw: number of queue pairs
    #[arg(
        short,
        long,
        visible_alias = "qp",
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=16384)
    )]
    qps: u32,

    /// bw: signal one message in this number [default: 100, but at most --tx-depth, and 1 for SRD]
    #[arg(short = 'Q', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cq_mod: Option<u32>,

    /// bw: messages per doorbell [default: 1]
    #[arg(
        short = 'l',
        long,
        visible_alias = "post_list",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    post_list: Option<u32>,

    /// bw: both ends send
    #[arg(short, long)]
    bidirectional: bool,

    /// Acknowledgement timeout of the queue pairs, as a code: 4.096 us times two to the code; 0
    /// waits for ever [default: 14; on the software HCA 19]
    #[arg(
        short = 'u',
        long,
        value_name = "CODE",
        value_parser = clap::value_parser!(u8).range(..32)
    )]
    qp_timeout: Option<u8>,

    /// Service level
    #[arg(
        short = 'S',
        long,
        value_name = "SL",
        default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(..16)
    )]
    sl: u8,

    /// Traffic class (DSCP and ECN on RoCE v2)
    #[arg(
        short = 'T',
        long,
        visible_aliases = ["tclass", "tos"],
        value_name = "CLASS",
        default_value_t = 0
    )]
    traffic_class: u8,

    /// Transport. UC supports write and send, UD send of one packet. XRC and DC (ConnectX only)
    /// support all, with one shared receive queue for all queue pairs. SRD (EFA only) lacks atomics
    #[arg(short = 'c', long, value_name = "TYPE", ignore_case = true)]
    #[arg(value_parser = transports::parser())]
    #[arg(default_value_t = TransportName::Rc)]
    connection: TransportName,

    /// send: one shared receive queue for all queue pairs, with as many receives as theirs together
    #[arg(long = "use-srq")]
    use_srq: bool,

    /// Doorbell method of the send queues
    #[arg(long, value_enum, default_value_t = Doorbell::Blueflame)]
    doorbell: Doorbell,

    /// Pin the measuring thread to this processor. The software HCA's threads are not moved
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,

    /// Sleep until a completion comes, instead of polling for it
    #[arg(short, long)]
    events: bool,

    /// Verify contents, too: lat each message, bw the final contents of memory (send: each message)
    #[arg(long)]
    check: bool,

    /// Seconds to wait for a completion, a message, or an answer of the other process
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "10",
        allow_negative_numbers = true,
        value_parser = parse_timeout
    )]
    timeout: Duration,

    /// Print one JSON document with all results on stdout, and no other output
    #[arg(long)]
    json: bool,

    /// Record the run: write the JSON document to this file, whole or not at all
    #[arg(long, visible_alias = "out_json_file", value_name = "FILE")]
    out: Option<PathBuf>,

    /// Plot percentiles (lat) or the rate over time (bw), with --all both over size, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the plot as PNG to this file
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,

    /// Plot on stdout, too (the default on a terminal)
    #[arg(long, conflicts_with = "json")]
    plot: bool,

    /// Print the result only: no header, no plot, no progress, no note about the device
    #[arg(long, conflicts_with = "plot")]
    quiet: bool,

    /// Ignored, for scripts that were written for perftest: CPU frequencies are never checked
    #[arg(short = 'F', long = "CPU-freq")]
    freq: bool,
}

/// Atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Atomic {
    /// Adds one to the peer's word
    #[value(aliases = ["FETCH_AND_ADD", "faa"])]
    FetchAdd,
    /// Compares the peer's word with what it has to be, and swaps in the next
    #[value(aliases = ["CMP_AND_SWAP", "cas"])]
    CompareSwap,
}

impl Options {
    /// Fills in the defaults, and refuses contradictions.
    pub(super) fn plan(&self, family: Family) -> Result<Plan, Error> {
        let lat = self.test == Test::Lat;
        let op = self.operation(family)?;
        self.refuse_for_transport(op)?;
        if lat {
            self.refuse_for_latency()?;
            if self.events && op == Operation::Write {
                let why = "nothing wakes the end that a WRITE came to; it polls memory";
                return refuse("--events", "given", why);
            }
        }
        let sizes = self.sizes(op)?;
        let inline = self.inline(op)?;
        let tx_depth = if lat { 1 } else { self.tx_depth.unwrap_or(TX_DEPTH) };
        let post_list = self.post_list.unwrap_or(1);
        for (option, value) in [("--post-list", Some(post_list)), ("--cq-mod", self.cq_mod)] {
            if let Some(value) = value.filter(|value| *value > tx_depth) {
                let why = format!("no more than --tx-depth, {tx_depth}, can be outstanding");
                return refuse(option, value, &why);
            }
        }
        self.check_receives(op, &sizes)?;
        if self.outs.is_some() && !op.is_one_sided() {
            return refuse("--outs", self.outs.unwrap_or(0), "it is for read and atomic");
        }
        let srd = self.connection == TransportName::Srd;
        let role = self.role()?;
        let (iters, duration_s) = match (self.iters, self.duration) {
            (None, None) if lat => (Some(10_000), None),
            (None, None) => (None, Some(2.0)),
            (iters, duration) => (iters, duration.map(|duration| duration.as_secs_f64())),
        };
        let shape = Shape {
            op,
            test: self.test,
            iters,
            duration_s,
            warmup: self.warmup.unwrap_or(iters.map_or(1_000, |n| n.div_ceil(10).min(1_000))),
            inline,
            qps: self.qps,
            tx_depth,
            rx_depth: self.rx_depth,
            cq_mod: self.cq_mod.unwrap_or(if srd { 1 } else { CQ_MOD.min(tx_depth) }),
            post_list,
            outs: self.outs,
            bidirectional: self.bidirectional,
            port: self.at.ib_port,
            gid_index: self.at.gid_index,
            mtu: self.mtu.and_then(Mtu::bytes),
            qp_timeout: self.qp_timeout,
            sl: self.sl,
            traffic_class: self.traffic_class,
            doorbell: self.doorbell,
            connection: self.connection,
            use_srq: self.use_srq,
            cpu: self.cpu,
            events: self.events,
            check: self.check,
            timeout_s: self.timeout.as_secs_f64(),
        };
        Ok(Plan {
            sizes,
            shape,
            role,
            device: self.at.device.clone(),
            json: self.json,
            out: self.out.clone(),
            svg: self.svg.clone(),
            png: self.png.clone(),
            plot: self.plot,
            quiet: self.quiet,
        })
    }

    fn check_receives(&self, op: Operation, sizes: &[u32]) -> Result<(), Error> {
        let (Some(depth), Some(&size)) = (self.rx_depth, sizes.last()) else { return Ok(()) };
        if op != Operation::Send {
            return refuse("--rx-depth", depth, "only send has receives");
        }
        let bytes = u64::from(depth) * u64::from(size) * u64::from(self.qps);
        if bytes > RECEIVE_BYTES_MAX {
            let why = format!("{bytes} bytes of receives, more than {RECEIVE_BYTES_MAX}");
            return refuse("--rx-depth", depth, &why);
        }
        Ok(())
    }

    fn operation(&self, family: Family) -> Result<Operation, Error> {
        match (family, self.atomic_type) {
            (Family::Atomic, None | Some(Atomic::FetchAdd)) => Ok(Operation::FetchAdd),
            (Family::Atomic, Some(Atomic::CompareSwap)) => Ok(Operation::CompareSwap),
            (_, Some(_)) => refuse("--atomic-type", "given", "it is for atomic"),
            (Family::Write, None) => Ok(Operation::Write),
            (Family::Read, None) => Ok(Operation::Read),
            (Family::Send, None) => Ok(Operation::Send),
        }
    }

    /// Refuses operations that the transport lacks (IBTA vol 1, 9.6 and table 36).
    fn refuse_for_transport(&self, op: Operation) -> Result<(), Error> {
        let connection = self.connection;
        if !connection.is_reliable() && op.is_one_sided() {
            let why = format!("{op} has an answer, and only RC, XRC, DC and SRD have answers");
            return refuse("--connection", connection, &why);
        }
        if let Some(why) = transports::lacks(connection, op) {
            return refuse("--connection", connection, &why);
        }
        let srd = connection == TransportName::Srd;
        if srd && op == Operation::Write && self.test == Test::Lat {
            return refuse("--connection", connection, transports::NO_LAST_BYTE);
        }
        if let (Some(mtu), true) = (self.mtu, connection.is_datagram()) {
            return refuse("--mtu", mtu, "datagrams go by the port's");
        }
        if let (Some(cq_mod @ 2..), true) = (self.cq_mod, srd) {
            let why = "messages of SRD complete in any order, so each has its completion";
            return refuse("--cq-mod", cq_mod, why);
        }
        match self.qp_timeout {
            Some(code) if srd => refuse("--qp-timeout", code, "SRD has the device's own"),
            Some(code) if !connection.is_reliable() => {
                let why = format!("nothing is acknowledged over {connection}");
                refuse("--qp-timeout", code, &why)
            }
            _ => Ok(()),
        }
    }

    /// Refuses options that contradict one message at a time on one queue pair.
    fn refuse_for_latency(&self) -> Result<(), Error> {
        let given = [
            ("--tx-depth", self.tx_depth),
            ("--cq-mod", self.cq_mod),
            ("--post-list", self.post_list),
            ("--qps", (self.qps > 1).then_some(self.qps)),
            ("--bidirectional", self.bidirectional.then_some(1)),
        ];
        match given.into_iter().find_map(|(option, value)| Some((option, value?))) {
            Some((option, value)) => {
                refuse(option, value, "it is for bw: lat has one message under way at a time")
            }
            None => Ok(()),
        }
    }

    fn sizes(&self, op: Operation) -> Result<Vec<u32>, Error> {
        if op.is_atomic() {
            let why = "an atomic has 8 bytes, neither less nor more";
            return match self.size {
                _ if self.all => refuse("--all", "given", why),
                Some(size) if size != 8 => refuse("--size", size, why),
                _ => Ok(vec![8]),
            };
        }
        if self.all {
            let all = if self.connection.is_datagram() { ALL_UD } else { ALL };
            return Ok(all.map(|shift| 1 << shift).collect());
        }
        let size = self.size.unwrap_or(match (self.test, self.connection) {
            (Test::Lat, _) => 2,
            (Test::Bw, connection) if connection.is_datagram() => 1 << 10,
            (Test::Bw, _) => 64 << 10,
        });
        // 31 bits: IBTA vol 1, 9.7.7.
        match u32::try_from(size).ok().filter(|size| *size <= 1 << 31) {
            Some(size) => Ok(vec![size]),
            None => refuse("--size", size, "a message has at most 2147483648 bytes (2G)"),
        }
    }

    fn inline(&self, op: Operation) -> Result<u32, Error> {
        match self.inline {
            Some(inline) if inline > 0 && op.is_one_sided() => {
                refuse("--inline", inline, "the answer of a read or an atomic can't be inline")
            }
            _ if op.is_one_sided() => Ok(0),
            None => Ok(match (self.test, self.connection) {
                // The room of EFA's short work requests.
                (Test::Lat, TransportName::Srd) => 32,
                (Test::Lat, _) => 220,
                (Test::Bw, _) => 0,
            }),
            Some(inline) => match u32::try_from(inline) {
                Ok(inline) => Ok(inline),
                Err(_) => refuse("--inline", inline, "no work request holds so many bytes"),
            },
        }
    }

    fn role(&self) -> Result<Role, Error> {
        if self.server {
            for (option, given) in
                [("--out", &self.out), ("--svg", &self.svg), ("--png", &self.png)]
            {
                if let Some(path) = given {
                    return refuse(option, path.display(), "the client measures and records");
                }
            }
            if self.json {
                return refuse("--json", "given", "the client measures and records");
            }
            return Ok(Role::Server { port: self.port, wait: self.wait });
        }
        Ok(match &self.host {
            Some(host) => Role::Client { host: host.clone(), port: self.port },
            None => Role::Both,
        })
    }
}

fn refuse<T>(option: &'static str, value: impl fmt::Display, why: &str) -> Result<T, Error> {
    Err(Error::Argument { option, value: value.to_string(), why: why.to_owned() })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        options: Options,
    }

    fn plan(family: Family, args: &str) -> Result<Plan, String> {
        let words = std::iter::once("perf").chain(args.split_whitespace());
        let only = Only::try_parse_from(words).map_err(|error| error.to_string())?;
        only.options.plan(family).map_err(|error| error.to_string())
    }

    #[test]
    fn the_letters_of_perftest_are_understood() {
        let plan = plan(
            Family::Write,
            "bw -d mlx5_0 -i 2 -x 3 -s 4K -n 5 -t 64 -q 4 -I 32 -Q 16 -l 8 -m 1024 -u 10 -S 3 -b \
            -p 1 -F -c rc host",
        );
        let Plan { shape, sizes, role, device, .. } = plan.unwrap();
        assert_eq!((sizes, device), (vec![4096], Some("mlx5_0".to_owned())));
        assert_eq!(role, Role::Client { host: "host".to_owned(), port: 1 });
        assert_eq!((shape.port, shape.gid_index, shape.iters), (2, Some(3), Some(5)));
        assert_eq!((shape.tx_depth, shape.qps, shape.inline), (64, 4, 32));
        assert_eq!((shape.cq_mod, shape.post_list, shape.mtu), (16, 8, Some(1024)));
        assert_eq!((shape.qp_timeout, shape.sl, shape.bidirectional), (Some(10), 3, true));
    }

    #[test]
    fn defaults_are_those_of_perftest_where_it_has_some() {
        let lat = plan(Family::Send, "lat").unwrap();
        assert_eq!((lat.sizes, lat.shape.iters, lat.shape.warmup), (vec![2], Some(10_000), 1000));
        assert_eq!((lat.shape.inline, lat.shape.tx_depth, lat.role), (220, 1, Role::Both));
        let bw = plan(Family::Send, "bw").unwrap().shape;
        assert_eq!((bw.iters, bw.duration_s, bw.inline), (None, Some(2.0), 0));
        assert_eq!((bw.tx_depth, bw.cq_mod, bw.post_list), (128, 100, 1));
        assert_eq!((bw.receives(64), bw.receives(1 << 20), bw.receives(1 << 30)), (512, 64, 1));
        assert_eq!(plan(Family::Send, "bw -t 16").unwrap().shape.cq_mod, 16);
        let all = plan(Family::Read, "bw -a").unwrap().sizes;
        assert_eq!((all.len(), all[0], all[22]), (23, 2, 8 << 20));
        assert_eq!(plan(Family::Atomic, "lat").unwrap().shape.op, Operation::FetchAdd);
        let cas = plan(Family::Atomic, "lat -A CMP_AND_SWAP").unwrap().shape;
        assert_eq!((cas.op, cas.inline), (Operation::CompareSwap, 0));
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        for (family, args, says) in [
            (Family::Write, "lat -q 2", "--qps 2: it is for bw"),
            (Family::Write, "lat -b", "--bidirectional 1: it is for bw"),
            (Family::Write, "lat -t 2", "--tx-depth 2: it is for bw"),
            (Family::Write, "bw -t 8 -l 9", "--post-list 9: no more than --tx-depth, 8,"),
            (Family::Write, "bw -t 8 -Q 9", "--cq-mod 9: no more than --tx-depth, 8,"),
            (Family::Write, "bw -r 8", "--rx-depth 8: only send has receives"),
            (Family::Write, "bw -A faa", "--atomic-type given: it is for atomic"),
            (Family::Write, "lat -o 4", "--outs 4: it is for read and atomic"),
            (Family::Atomic, "lat -s 16", "--size 16: an atomic has 8 bytes"),
            (Family::Atomic, "lat -a", "--all given: an atomic has 8 bytes"),
            (Family::Read, "lat -I 8", "--inline 8: the answer of a read"),
            (Family::Send, "bw -s 1G -r 8", "--rx-depth 8: 8589934592 bytes of receives"),
            (Family::Send, "bw -s 3G", "--size 3221225472: a message has at most"),
            (Family::Send, "bw --server --out x", "--out x: the client measures"),
            (Family::Send, "bw --server --json", "--json given: the client measures"),
            (Family::Send, "bw --server host", "cannot be used with"),
            (Family::Send, "bw -n 5 -D 5", "cannot be used with"),
            (Family::Send, "bw -s 5 -a", "cannot be used with"),
            (Family::Send, "bw -n 0", "'0' for '--iters"),
            (Family::Send, "bw -D 0", "must be over 0"),
            (Family::Send, "bw -c RD", "[possible values: RC, UC, UD, XRC, DC, SRD]"),
            (
                Family::Read,
                "bw -c UC",
                "--connection UC: read has an answer, and only RC, XRC, DC and SRD",
            ),
            (Family::Atomic, "lat -c ud", "--connection UD: fetch-add has an answer"),
            (Family::Write, "lat -c UD", "--connection UD: a datagram can't write, only be sent"),
            (Family::Write, "lat -c SRD", "--connection SRD: the bytes of a WRITE come in any"),
            (Family::Atomic, "bw -c srd", "--connection SRD: SRD has no atomics"),
            (Family::Read, "bw -c SRD -u 10", "--qp-timeout 10: SRD has the device's own"),
            (Family::Send, "lat -c UD -m 1024", "--mtu 1024: datagrams go by the port's"),
            (Family::Write, "bw -c UC -u 10", "--qp-timeout 10: nothing is acknowledged over UC"),
            (Family::Write, "lat -e", "--events given: nothing wakes the end that a WRITE came to"),
            (Family::Send, "bw -S 16", "16 is not in 0..16"),
            (Family::Send, "jitter", "[possible values: lat, bw]"),
        ] {
            let error = plan(family, args).unwrap_err();
            assert!(error.contains(says), "{args:?}: {error}");
        }
    }
}
