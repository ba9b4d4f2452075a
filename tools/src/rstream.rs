//! `uverbs rstream`: messages to and fro over a stream, like rdma-core's `rstream` and `riostream`.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use uverbs::ExposedMemory;
use uverbs_streams::{RdmaStream, StreamOptions};

use crate::base::error::Error;
use crate::base::output;
use crate::base::units::parse_size;
use crate::link::meet::MeetArgs;

/// Port of the C programs.
const PORT: u16 = 7471;
/// Bytes exchanged before the test, so that both sides begin at once.
const GREETING: usize = 16;
/// Buffer size of the C programs.
const BUFFER: u32 = 1 << 19;
/// Maximum transfer: the C programs' counts have 31 bits.
const LONGEST: u64 = 1 << 30;

/// Send messages to and fro over a stream, and measure how fast that is.
///
/// Either side may be rdma-core's rstream, or with --mapped its riostream: a stream that speaks
/// rsocket's protocol, connected by IP address. In each round the client sends so many transfers,
/// then the server. With --mapped they are written into the other side's memory, which looks for
/// the last byte of the last.
///
/// Both sides must be given the same --size, --count and --iters.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES:\n  \
    uverbs rstream --server\n  \
    uverbs rstream 192.0.2.7 --size 64K --count 1000\n\n\
WITH rstream ON THE OTHER SIDE:\n  \
    rstream -S 65536 -C 1000 -I 1\n  \
    uverbs rstream 192.0.2.7 --size 64K --count 1000 --iters 1\n\n\
EXIT STATUS:\n  \
    0  all bytes arrived\n  \
    1  one was not what it had to be, or the other side fell silent or broke off\n  \
    2  bad arguments")]
pub(crate) struct Args {
    #[command(flatten)]
    meet: MeetArgs,

    /// Bytes of a transfer, such as 64, 4K or 1M [default: 1000]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,

    /// Transfers of each side in a round
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=1 << 31)
    )]
    count: u64,

    /// Number of rounds [default: 1]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1 << 31)
    )]
    iters: Option<u64>,

    /// Write into the other side's memory, as riostream does
    #[arg(long)]
    mapped: bool,

    /// Check every byte (-T v of the C programs; both sides need the option)
    #[arg(long)]
    chk: bool,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    size: u64,
    transfers: u64,
    rounds: u64,
    /// Bytes in both directions.
    bytes: u64,
    nanoseconds: u64,
    bytes_per_second: f64,
    checked: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let size = args.size.unwrap_or(1000);
    if size > LONGEST {
        let why = format!("a transfer has at most {LONGEST} bytes");
        return Err(Error::Argument { option: "--size", value: size.to_string(), why });
    }
    let options = StreamOptions::new().send_buffer(BUFFER).recv_buffer(BUFFER);
    let options = options.mappings(u16::from(args.mapped));
    let stream = args.meet.stream(options, PORT)?;
    let mut test = Test {
        stream: &stream,
        bytes: vec![0; size as usize],
        sent: 0,
        got: 0,
        check: args.chk,
        timeout: args.meet.by().timeout,
    };
    let first = args.meet.host().is_some();
    let rounds = args.iters.unwrap_or(1);
    let took = match args.mapped {
        false => test.streamed(first, rounds, args.count),
        true => test.mapped(first, rounds, args.count),
    };
    let took = took.map_err(|error| Error::Stream { what: "the test", error })?;
    let bytes = size * args.count * rounds * 2;
    let report = Report {
        size,
        transfers: args.count,
        rounds,
        bytes,
        nanoseconds: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        bytes_per_second: bytes as f64 / took.as_secs_f64(),
        checked: args.chk,
    };
    if args.json {
        return output::json(&report);
    }
    output::print(&format!(
        "{size} bytes, {} transfers each way, {rounds} rounds: {:.3} s, {:.1} MB/s\n",
        args.count,
        took.as_secs_f64(),
        report.bytes_per_second / 1e6
    ))
}

/// Part of one side.
struct Test<'s> {
    stream: &'s RdmaStream,
    bytes: Vec<u8>,
    /// The C programs' pattern: each byte is the previous one plus one, over all sent bytes.
    sent: u8,
    got: u8,
    check: bool,
    timeout: Duration,
}

impl Test<'_> {
    fn streamed(&mut self, first: bool, rounds: u64, count: u64) -> io::Result<Duration> {
        let len = self.bytes.len();
        self.exchange(first, 1, GREETING)?;
        let start = Instant::now();
        for _ in 0..rounds {
            self.exchange(first, count, len)?;
        }
        Ok(start.elapsed())
    }

    /// Sends `count` transfers of `len` bytes, and receives as many; `first` decides the order.
    fn exchange(&mut self, first: bool, count: u64, len: usize) -> io::Result<()> {
        for sends in [first, !first] {
            for _ in 0..count {
                if sends { self.send(len)? } else { self.receive(len)? }
            }
        }
        Ok(())
    }

    fn send(&mut self, len: usize) -> io::Result<()> {
        self.bytes.resize(len.max(self.bytes.len()), 0);
        if self.check {
            fill(&mut self.bytes[..len], &mut self.sent);
        }
        let mut stream = self.stream;
        stream.write_all(&self.bytes[..len])
    }

    fn receive(&mut self, len: usize) -> io::Result<()> {
        self.bytes.resize(len.max(self.bytes.len()), 0);
        let mut stream = self.stream;
        stream.read_exact(&mut self.bytes[..len])?;
        if self.check { verify(&self.bytes[..len], &mut self.got) } else { Ok(()) }
    }

    fn mapped(&mut self, first: bool, rounds: u64, count: u64) -> io::Result<Duration> {
        let len = self.bytes.len();
        let memory = self.stream.map(len, 0)?;
        // 0xff is not the first mark: marks count from 0.
        memory.write(len - 1, &[0xff])?;
        let check = std::mem::take(&mut self.check);
        self.exchange(first, 1, GREETING)?;
        self.check = check;
        self.bytes.truncate(len);
        let mut mark = 0u8;
        let start = Instant::now();
        for _ in 0..rounds {
            for sends in [first, !first] {
                match sends {
                    true => self.put(count, mark)?,
                    false => self.watch(&memory, mark)?,
                }
                mark = mark.wrapping_add(1);
            }
        }
        Ok(start.elapsed())
    }

    /// Writes `count` transfers; the last one ends with the mark.
    fn put(&mut self, count: u64, mark: u8) -> io::Result<()> {
        let last = self.bytes.len() - 1;
        for transfer in 1..=count {
            self.bytes[last] = mark.wrapping_sub(1);
            if transfer == count {
                self.bytes[last] = mark;
                if self.check {
                    fill(&mut self.bytes[..last], &mut self.sent);
                }
            }
            let mut done = 0;
            while done <= last {
                done += self.stream.write_at(&self.bytes[done..], done as u64)?;
            }
        }
        Ok(())
    }

    /// Waits until the last byte of the memory is the mark.
    fn watch(&mut self, memory: &ExposedMemory, mark: u8) -> io::Result<()> {
        let last = memory.len() - 1;
        let start = Instant::now();
        let mut seen = [0];
        loop {
            memory.read(last, &mut seen)?;
            if seen == [mark] {
                break;
            }
            if start.elapsed() > self.timeout {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
        if self.check {
            memory.read(0, &mut self.bytes[..last])?;
            return verify(&self.bytes[..last], &mut self.got);
        }
        Ok(())
    }
}

fn fill(bytes: &mut [u8], next: &mut u8) {
    for byte in bytes {
        *byte = *next;
        *next = next.wrapping_add(1);
    }
}

fn verify(bytes: &[u8], next: &mut u8) -> io::Result<()> {
    for (at, byte) in bytes.iter().enumerate() {
        if byte != next {
            let why = format!("byte {at} of a transfer is {byte:#04x} and has to be {next:#04x}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        *next = next.wrapping_add(1);
    }
    Ok(())
}
