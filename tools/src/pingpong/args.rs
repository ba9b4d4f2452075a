//! Arguments of `uverbs pingpong`, and checks that need no device.

use std::fmt;
use std::time::Duration;

use uverbs::Mtu;
use uverbs::any_transport::TransportName;

use super::config::{Config, Remote, Role};
use crate::base::error::Error;
use crate::base::select::PortArgs;
use crate::base::units::{parse_bytes, parse_mtu, parse_size, parse_timeout};
use crate::link::doorbell::Doorbell;
use crate::link::operation::Operation;
use crate::link::{tcp, transports};

/// Send verified messages to and fro, and measure how long they take.
///
/// Client and server are two reliable-connected (RC) queue pairs in this process, driven by one
/// thread: two software HCAs on one fabric where the machine has no RDMA device, or two queue pairs
/// of one device in loopback.
///
/// Every byte of every message is checked on arrival. Its value depends on the iteration, the side
/// it comes from and its offset. The first byte that differs is named, and ends the run with exit
/// status 1. Filling and checking are not in the times measured.
///
/// Latencies are half the round trip for send, send-imm, write and write-imm: from before the ping
/// is posted until the pong has been seen, by its completion or, for write, by its last byte in
/// memory. For read, compare-swap and fetch-add they are the time of one operation, from before it
/// is posted until its completion has been polled; each side does its own.
///
/// With --server or HOST the two sides are two processes, and either may be ibv_rc_pingpong, with
/// --connection UC ibv_uc_pingpong and with UD ibv_ud_pingpong. Both must be given the same --size,
/// --mtu and --iters. Messages are then SENDs, as many bytes come back as were sent, and the
/// defaults are that program's.
///
/// Ctrl-C ends the run, and what was measured until then is reported.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
UNITS:\n  \
    Sizes are bytes; K, M and G stand for 2^10, 2^20 and 2^30. In reports, kB, MB, GB and Gb/s are \
    powers of ten. Times in JSON are nanoseconds.\n\n\
EXAMPLES:\n  \
    uverbs pingpong\n  \
    uverbs pingpong --opcode write --size 1M --iters 1000\n  \
    uverbs pingpong --device mlx5_0 --gid-index 3 --inline 64\n  \
    uverbs pingpong --opcode fetch-add --json | jq .latency.p99\n\n\
WITH ibv_rc_pingpong ON THE OTHER SIDE:\n  \
    uverbs pingpong --server -d mlx5_0 -g 3\n  \
    ibv_rc_pingpong -d mlx5_0 -g 3 192.0.2.7\n\n\
EXIT STATUS:\n  \
    0  all messages arrived unharmed, also when Ctrl-C ended the run\n  \
    1  one did not, the peer fell silent or made no sense, or a call was refused\n  \
    2  bad arguments, no such device, or arguments that the device can't do")]
pub(crate) struct Args {
    /// Name or address of the server. Without it and without --server, both sides are in this
    /// process
    #[arg(conflicts_with = "server")]
    host: Option<String>,

    /// Wait for a client in another process
    #[arg(long)]
    server: bool,

    /// TCP port of the server, on which both sides meet [default: 18515]
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Transport. UC lacks read and atomics, UD supports SENDs of one packet. XRC and DC (ConnectX
    /// only) support all, and receive in a shared queue. SRD (EFA only) lacks atomics. DC needs
    /// both sides in this process
    #[arg(short = 'c', long, value_name = "TYPE", ignore_case = true)]
    #[arg(value_parser = transports::parser())]
    #[arg(default_value_t = TransportName::Rc)]
    connection: TransportName,

    /// Receive in a shared receive queue
    #[arg(long = "use-srq")]
    use_srq: bool,

    /// Operation
    #[arg(long, value_enum, default_value_t = Operation::Send)]
    opcode: Operation,

    /// Bytes of a message, such as 64, 4K or 1M; an atomic has always 8 [default: 64; with another
    /// process 4096, over UD 1024]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,

    /// Iterations to measure [default: 10000; with another process 1000]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1 << 40)
    )]
    iters: Option<u64>,

    /// Iterations to warm up with, verified but not measured [default: a tenth of --iters, 1000 at
    /// most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    warmup: Option<u64>,

    /// Send messages of up to this number of bytes inline, in the WQE; 0 for none [default: 64]
    #[arg(
        short = 'I',
        long,
        visible_alias = "inline_size",
        value_name = "BYTES",
        value_parser = parse_bytes
    )]
    inline: Option<u64>,

    #[command(flatten)]
    at: PortArgs,

    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the port's; with another process 1024]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_mtu)]
    mtu: Option<Mtu>,

    /// Posted receives on each side [default: 16, or as many as fit into 64 MiB; with another
    /// process 500]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rx_depth: Option<u32>,

    /// Service level, 0 to 15, with another process [default: 0]
    #[arg(
        short = 'S',
        long,
        value_name = "SL",
        value_parser = clap::value_parser!(u8).range(..=15)
    )]
    sl: Option<u8>,

    /// With another process: check the first byte of each page of each message; the client needs
    /// the option, too
    #[arg(long)]
    chk: bool,

    /// Seconds that the server waits for a client [default: 600]
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        value_parser = parse_timeout
    )]
    wait: Option<Duration>,

    /// Sleep until a completion comes, instead of polling for it (ibv_rc_pingpong's -e)
    #[arg(short, long)]
    events: bool,

    /// Doorbell method of the send queues
    #[arg(long, value_enum, default_value_t = Doorbell::Blueflame)]
    doorbell: Doorbell,

    /// Seconds to wait for a message; fractions are allowed
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "10",
        allow_negative_numbers = true,
        value_parser = parse_timeout
    )]
    timeout: Duration,

    /// Print one JSON object on stdout, and no other output
    #[arg(long)]
    json: bool,

    /// Print the result only: no header, no histogram, no progress, no note about the device
    #[arg(long)]
    quiet: bool,
}

/// Maximum bytes of receive buffers at the default depth.
const RECEIVE_BYTES: u64 = 64 << 20;

impl Args {
    /// Fills in the defaults, and refuses contradictions.
    pub(crate) fn config(&self) -> Result<Config, Error> {
        let refuse = |option, value: u64, why: &str| {
            Err(Error::Argument { option, value: value.to_string(), why: why.to_owned() })
        };
        let opcode = self.opcode;
        let remote = self.is_remote();
        let connection = self.connection;
        self.refuse_for_transport()?;
        let size = self.size.unwrap_or(match () {
            () if opcode.is_atomic() => 8,
            () if remote && connection.is_datagram() => 1024,
            () if remote => 4096,
            () => 64,
        });
        if opcode.is_atomic() && size != 8 {
            return refuse("--size", size, "an atomic has 8 bytes, neither less nor more");
        }
        // 31 bits: the byte count of a completion and of a DMA segment (IBTA vol 1, 9.7.7: 2^31 at
        // most).
        let Some(size) = u32::try_from(size).ok().filter(|size| *size <= 1 << 31) else {
            return refuse("--size", size, "a message has at most 2147483648 bytes (2G)");
        };
        if self.events && opcode == Operation::Write {
            let (value, why) = (String::new(), "a peer that only writes raises no event");
            return Err(Error::Argument { option: "--events", value, why: why.to_owned() });
        }
        let inline = match self.inline {
            Some(inline) if inline > 0 && opcode.is_one_sided() => {
                return refuse(
                    "--inline",
                    inline,
                    "the answer of a read or an atomic can't be inline",
                );
            }
            _ if opcode.is_one_sided() => 0,
            inline => inline.unwrap_or(64),
        };
        let Ok(inline) = u32::try_from(inline) else {
            return refuse("--inline", inline, "no work request holds so many bytes");
        };
        let fitting = (RECEIVE_BYTES / u64::from(size)).clamp(1, if remote { 500 } else { 16 });
        let iters = self.iters.unwrap_or(if remote { 1_000 } else { 10_000 });
        let warmup = if remote { 0 } else { iters.div_ceil(10).min(1_000) };
        // UD messages are limited by the port's MTU.
        let mtu = if remote && !connection.is_datagram() { Mtu::from_bytes(1024) } else { None };
        Ok(Config {
            connection,
            use_srq: self.use_srq,
            opcode,
            size,
            iters,
            warmup: self.warmup.unwrap_or(warmup),
            inline,
            port: self.at.ib_port,
            gid_index: self.at.gid_index,
            mtu: self.mtu.or(mtu),
            rx_depth: self.rx_depth.unwrap_or(fitting as u32),
            events: self.events,
            doorbell: self.doorbell,
            timeout: self.timeout,
            device: self.at.device.clone(),
            json: self.json,
            quiet: self.quiet,
        })
    }

    /// Refuses operations that the transport lacks (IBTA vol 1, 9.6 and table 36).
    fn refuse_for_transport(&self) -> Result<(), Error> {
        let (connection, opcode) = (self.connection, self.opcode);
        let refuse =
            |option, value: String, why: String| Err(Error::Argument { option, value, why });
        if connection == TransportName::Dc && self.is_remote() {
            let why =
                "rdma-core has no ping-pong of it; `uverbs perf` has two processes".to_owned();
            return refuse("--connection", connection.to_string(), why);
        }
        if !connection.is_reliable() && opcode.is_one_sided() {
            let why = format!("{opcode} has an answer, and only RC, XRC, DC and SRD have answers");
            return refuse("--connection", connection.to_string(), why);
        }
        if let Some(why) = transports::lacks(connection, opcode) {
            return refuse("--connection", connection.to_string(), why);
        }
        if connection == TransportName::Srd && opcode == Operation::Write {
            let why = transports::NO_LAST_BYTE.to_owned();
            return refuse("--connection", connection.to_string(), why);
        }
        if !connection.is_datagram() {
            return Ok(());
        }
        match self.mtu {
            Some(mtu) => refuse("--mtu", mtu.to_string(), "datagrams go by the port's".to_owned()),
            None => Ok(()),
        }
    }

    /// Returns `true` if the other side is another process.
    fn is_remote(&self) -> bool {
        self.server || self.host.is_some()
    }

    /// Parameters of a run with another process; `None` if both sides are in this process. Options
    /// of the other form are refused.
    pub(super) fn remote(&self) -> Result<Option<Remote>, Error> {
        let refuse = |option, value: &dyn fmt::Display, why: &str| {
            Err(Error::Argument { option, value: value.to_string(), why: why.to_owned() })
        };
        if !self.is_remote() {
            let why = "only with --server or HOST";
            return match self {
                Self { port: Some(port), .. } => refuse("--port", port, why),
                Self { sl: Some(sl), .. } => refuse("--sl", sl, why),
                Self { wait: Some(wait), .. } => refuse("--wait", &wait.as_secs_f64(), why),
                Self { chk: true, .. } => {
                    refuse("--chk", &"", "all bytes are checked in this form")
                }
                _ => Ok(None),
            };
        }
        if self.opcode != Operation::Send {
            let why = "with another process messages are SENDs, as the C programs' are";
            return refuse("--opcode", &self.opcode, why);
        }
        if let Some(warmup @ 1..) = self.warmup {
            return refuse("--warmup", &warmup, "with another process each iteration counts");
        }
        if let (Some(wait), false) = (self.wait, self.server) {
            return refuse("--wait", &wait.as_secs_f64(), "only a server waits");
        }
        let role = self.host.clone().map_or(Role::Server, |host| Role::Client { host });
        Ok(Some(Remote {
            role,
            port: self.port.unwrap_or(tcp::PORT),
            service_level: self.sl.unwrap_or(0),
            check: self.chk,
            wait: self.wait.unwrap_or(Duration::from_secs(600)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
    }

    fn config(args: &[&str]) -> Result<Config, String> {
        let only = Only::try_parse_from(std::iter::once("pingpong").chain(args.iter().copied()));
        only.map_err(|error| error.to_string())?.args.config().map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_follow_from_each_other() {
        let plain = config(&[]).unwrap();
        assert_eq!((plain.size, plain.iters, plain.warmup), (64, 10_000, 1_000));
        assert_eq!((plain.inline, plain.rx_depth), (64, 16));
        assert_eq!(config(&["--opcode", "atomic"]).unwrap().size, 8);
        assert_eq!(config(&["--opcode", "read"]).unwrap().inline, 0);
        assert_eq!(config(&["--size", "16M"]).unwrap().rx_depth, 4);
        assert_eq!(config(&["--size", "1G"]).unwrap().rx_depth, 1);
        assert_eq!(config(&["--iters", "5"]).unwrap().warmup, 1);
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        for (args, says) in [
            (&["--size", "0"][..], "at least 1 byte"),
            (&["--size", "3G"], "--size 3221225472: a message has at most"),
            (&["--opcode", "cas", "--size", "7"], "--size 7: an atomic has 8 bytes"),
            (&["--opcode", "read", "--inline", "8"], "--inline 8: the answer"),
            (&["--inline", "5G"], "--inline 5368709120:"),
            (&["--iters", "0"], "'0' for '--iters"),
            (&["--mtu", "1500"], "an MTU is 256"),
            (&["-c", "UC", "--opcode", "read"], "--connection UC: read has an answer, and only RC"),
            (&["-c", "DC", "host"], "--connection DC: rdma-core has no ping-pong of it"),
            (&["-c", "srd", "--opcode", "write"], "--connection SRD: the bytes of a WRITE come"),
            (&["-c", "SRD", "-m", "1024"], "--mtu 1024: datagrams go by the port's"),
            (&["-c", "ud", "--opcode", "cas"], "--connection UD: compare-swap has an answer"),
            (&["-c", "UD", "--opcode", "write-imm"], "--connection UD: a datagram can't write-imm"),
            (&["-c", "UD", "-m", "1024"], "--mtu 1024: datagrams go by the port's"),
            (&["-c", "RD"], "[possible values: RC, UC, UD, XRC, DC, SRD]"),
            (&["--timeout", "0"], "must be over 0"),
            (&["--timeout", "nan"], "must be over 0"),
            (&["--rx-depth", "0"], "'0' for '--rx-depth"),
        ] {
            let error = config(args).unwrap_err();
            assert!(error.contains(says), "{args:?}: {error}");
        }
    }
}
