//! `uverbs rping`: the server reads the client's buffer and writes it back, like rdma-core's
//! `rping`.

use std::time::{Duration, Instant};

use serde::Serialize;
use uverbs::cm::{Connection, Param};
use uverbs::{
    AccessFlags, Completed, CompletionQueue, Device, ExposedMemory, ProtectionDomain, QueuePair,
    Refused, Remote, Slab,
};

use crate::base::error::Error;
use crate::base::output;
use crate::base::peer_text::shown;
use crate::base::units::parse_size;
use crate::link::meet::MeetArgs;
use crate::link::polled::PolledConnection;

/// Port of `rping`.
const PORT: u16 = 7174;
/// Bytes of a message: address, key, length, big-endian.
const MESSAGE: usize = 16;
/// Sizes of `rping` (`RPING_MIN_BUFSIZE`, `RPING_BUFSIZE`).
const SIZES: std::ops::Range<u64> = 26..65_536;
/// Number of posted receives.
const RECEIVES: u64 = 2;

/// Have the server read the client's memory and write it back.
///
/// Either side may be rdma-core's rping. Each ping is two RDMA operations and four messages: the
/// client says where its data are, the server READs them and says so, the client says where they
/// may go, the server WRITEs them there and says so. The client compares. The sides connect by IP
/// address.
///
/// The server serves one client, and ends when that leaves.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES:\n  \
    uverbs rping --server\n  \
    uverbs rping 192.0.2.7 --iters 1000\n\n\
WITH rping ON THE OTHER SIDE:\n  \
    rping -s\n  \
    uverbs rping 192.0.2.7\n\n\
EXIT STATUS:\n  \
    0  all data came back as they went\n  \
    1  some did not, or the other side fell silent or broke off\n  \
    2  bad arguments")]
pub(crate) struct Args {
    #[command(flatten)]
    meet: MeetArgs,

    /// Bytes of a ping, 26 to 65535; on the server, the maximum that it accepts [default: 64; on
    /// the server 65535]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,

    /// Number of pings; rping's letter is -C [default: 10]
    #[arg(
        short = 'n',
        visible_short_alias = 'C',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1 << 31)
    )]
    iters: Option<u64>,

    /// Print each ping
    #[arg(long)]
    text: bool,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    pings: u64,
    size: u64,
    nanoseconds: u64,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let server = args.meet.host().is_none();
    let size = args.size.unwrap_or(if server { SIZES.end - 1 } else { 64 });
    if !SIZES.contains(&size) {
        let why = format!("a ping has {} to {} bytes", SIZES.start, SIZES.end - 1);
        return Err(Error::Argument { option: "--size", value: size.to_string(), why });
    }
    let start = Instant::now();
    let pings = match args.meet.host() {
        Some(host) => client(args, host, size as usize, args.iters.unwrap_or(10))?,
        None => serve(args, size as usize)?,
    };
    if args.json {
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        return output::json(&Report { pings, size, nanoseconds });
    }
    let what = if server { "served" } else { "came back unchanged" };
    output::print(&format!("{pings} pings {what}\n"))
}

/// Data of a ping: its number, then letters that begin at another one each time.
fn ping(number: u64, size: usize) -> Vec<u8> {
    let mut bytes = format!("rdma-ping-{number}: ").into_bytes();
    let letters = (b'A'..=b'z').cycle().skip(number as usize % usize::from(b'z' - b'A' + 1));
    bytes.extend(letters.take(size));
    bytes.truncate(size);
    bytes[size - 1] = 0;
    bytes
}

/// Printable line of a ping: a C string, whose bytes the other side may have changed.
fn line(data: &[u8]) -> String {
    shown(data.split(|byte| *byte == 0).next().unwrap_or(&[])) + "\n"
}

fn client(args: &Args, host: &str, size: usize, pings: u64) -> Result<u64, Error> {
    let route = args.meet.by().route(host, PORT)?;
    let (made, mut qp) = Made::on(&route.device()?, size, args.meet.by().timeout)?;
    route.init(&mut qp)?;
    made.expect(&mut qp, RECEIVES)?;
    let connection = route.connect(qp, &param()).map_err(Refused::into_error)?;
    let mut end = made.connected(connection);
    for number in 0..pings {
        let data = ping(number, size);
        end.source.write(0, &data)?;
        end.send(&end.source.clone(), size)?;
        end.told(number)?.ok_or_else(|| gone(number))?;
        end.send(&end.sink.clone(), size)?;
        end.told(number)?.ok_or_else(|| gone(number))?;
        let mut back = vec![0; size];
        end.sink.read(0, &mut back)?;
        if let Some(at) = (0..size).find(|at| back[*at] != data[*at]) {
            let what = format!("byte {at} came back as {:#04x}, not {:#04x}", back[at], data[at]);
            return Err(Error::Unexpected { iteration: number, what });
        }
        if args.text {
            output::print(&line(&back))?;
        }
    }
    end.link.part()?;
    Ok(pings)
}

fn gone(iteration: u64) -> Error {
    Error::Unexpected { iteration, what: "the other side disconnected".to_owned() }
}

fn serve(args: &Args, most: usize) -> Result<u64, Error> {
    let request = args.meet.request(PORT)?;
    let (made, mut qp) = Made::on(&request.device()?, most, args.meet.by().timeout)?;
    request.init(&mut qp)?;
    made.expect(&mut qp, RECEIVES)?;
    let connection = request.accept(qp, &param()).map_err(Refused::into_error)?;
    let mut end = made.connected(connection);
    let mut pings = 0;
    while let Some((from, size)) = end.told(pings)? {
        let part = |memory: &ExposedMemory| {
            memory.part(0, size).map_err(|_| Error::Unexpected {
                iteration: pings,
                what: format!("the client's data have {size} bytes, more than --size {most}"),
            })
        };
        let into = part(&end.sink)?;
        end.post(pings, "READ", |qp| qp.batch_of(|batch| batch.read(1, into, from)))?;
        let mut data = vec![0; size];
        end.sink.read(0, &mut data)?;
        if args.text {
            output::print(&line(&data))?;
        }
        end.send(&end.sink.clone(), 0)?;
        let Some((to, room)) = end.told(pings)? else { return Err(gone(pings)) };
        if room < size {
            let what = format!("the client has room for {room} of {size} bytes");
            return Err(Error::Unexpected { iteration: pings, what });
        }
        let from = part(&end.sink)?;
        end.post(pings, "WRITE", |qp| qp.batch_of(|batch| batch.write(1, from, to)))?;
        end.send(&end.sink.clone(), 0)?;
        pings += 1;
    }
    Ok(pings)
}

/// Connection parameters of `rping`'s requests and accepts.
fn param() -> Param {
    Param {
        responder_resources: Some(1),
        initiator_depth: Some(1),
        rnr_retry_count: 7,
        ..Param::default()
    }
}

/// Makes a batch with one work request.
trait BatchOf {
    fn batch_of<E: Into<uverbs::Error>>(
        &mut self,
        write: impl FnOnce(&mut uverbs::Batch<'_>) -> Result<(), E>,
    ) -> Result<(), uverbs::Error>;
}

impl BatchOf for QueuePair {
    fn batch_of<E: Into<uverbs::Error>>(
        &mut self,
        write: impl FnOnce(&mut uverbs::Batch<'_>) -> Result<(), E>,
    ) -> Result<(), uverbs::Error> {
        let mut batch = self.batch();
        write(&mut batch).map_err(Into::into)?;
        batch.ring();
        Ok(())
    }
}

/// Objects that a side creates before it is connected.
struct Made {
    _pd: ProtectionDomain,
    cq: CompletionQueue,
    slab: Slab,
    /// Memory that the peer reads, and memory that it writes; at the server only its device uses
    /// them.
    source: ExposedMemory,
    sink: ExposedMemory,
    timeout: Duration,
}

/// A connected side.
struct End {
    link: PolledConnection,
    source: ExposedMemory,
    sink: ExposedMemory,
    /// Messages that came during another wait.
    early: std::collections::VecDeque<(Remote, usize)>,
}

impl Made {
    fn on(device: &Device, size: usize, timeout: Duration) -> Result<(Self, QueuePair), Error> {
        let context = device.open()?;
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let cq = context.completion_queue(64).channel(&channel).build()?;
        let qp = context.queue_pair(&pd, &cq).max_send_wr(16).max_recv_wr(8).build()?;
        let slab = pd.slab(MESSAGE, RECEIVES as usize)?;
        let source = pd.expose(size, AccessFlags::REMOTE_READ)?;
        let sink = pd.expose(size, AccessFlags::REMOTE_WRITE)?;
        Ok((Self { _pd: pd, cq, slab, source, sink, timeout }, qp))
    }

    fn expect(&self, qp: &mut QueuePair, count: u64) -> Result<(), Error> {
        for id in 0..count {
            let Some(frame) = self.slab.take() else { break };
            qp.post_recv(id, frame).map_err(uverbs::Error::from)?;
        }
        Ok(())
    }

    fn connected(self, connection: Connection) -> End {
        let Self { cq, source, sink, timeout, .. } = self;
        let link = PolledConnection::new(connection, cq, timeout);
        End { link, source, sink, early: Default::default() }
    }
}

/// Work request id of messages, whose completions are not awaited.
const SEND: u64 = 100;

impl End {
    /// Sends address, key and length of memory to the other side.
    fn send(&mut self, memory: &ExposedMemory, size: usize) -> Result<(), Error> {
        let mut message = [0; MESSAGE];
        message[..8].copy_from_slice(&memory.addr().to_be_bytes());
        message[8..12].copy_from_slice(&memory.rkey().to_be_bytes());
        message[12..].copy_from_slice(&(size as u32).to_be_bytes());
        let sent = self.link.queue_pair().post_send_inline(SEND, &message);
        Ok(sent.map_err(uverbs::Error::from)?)
    }

    /// Receives the other side's next message; `None` if it has left.
    fn told(&mut self, iteration: u64) -> Result<Option<(Remote, usize)>, Error> {
        loop {
            if let Some(message) = self.early.pop_front() {
                return Ok(Some(message));
            }
            if !self.step(iteration, "a message")? {
                return Ok(None);
            }
        }
    }

    /// Posts an operation and waits for its completion.
    fn post(
        &mut self,
        iteration: u64,
        what: &'static str,
        post: impl FnOnce(&mut QueuePair) -> Result<(), uverbs::Error>,
    ) -> Result<(), Error> {
        post(self.link.queue_pair())?;
        loop {
            match self.completion(iteration, what)? {
                Some(Completed::Read | Completed::Write) => return Ok(()),
                Some(_) => {}
                None => return Err(gone(iteration)),
            }
        }
    }

    fn step(&mut self, iteration: u64, what: &'static str) -> Result<bool, Error> {
        Ok(self.completion(iteration, what)?.is_some())
    }

    /// Waits for the next completion; `None` if the other side has left.
    fn completion(
        &mut self,
        iteration: u64,
        what: &'static str,
    ) -> Result<Option<Completed>, Error> {
        let Some(done) = self.link.next(iteration, what)? else { return Ok(None) };
        if let Some(mut frame) = done.frame {
            let Some(message) = frame.first_chunk::<MESSAGE>().filter(|_| frame.len() == MESSAGE)
            else {
                let what = format!("a message of {} bytes came, not {MESSAGE}", frame.len());
                return Err(Error::Unexpected { iteration, what });
            };
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *message;
            let addr = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            let rkey = u32::from_be_bytes([i, j, k, l]);
            let size = u32::from_be_bytes([m, n, o, p]);
            self.early.push_back((Remote { addr, rkey }, size as usize));
            frame.set_len(MESSAGE);
            self.link.queue_pair().post_recv(0, frame).map_err(uverbs::Error::from)?;
        }
        Ok(done.result.ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_as_long_as_it_has_to_be() {
        for size in [26, 27, 64, 65_535] {
            let bytes = ping(u64::from(u32::MAX), size);
            assert_eq!((bytes.len(), bytes[size - 1]), (size, 0));
            assert!(bytes.starts_with(b"rdma-ping-4294967295: "));
        }
        assert_eq!(&ping(1, 26)[..18], b"rdma-ping-1: BCDEF");
    }

    #[test]
    fn a_ping_is_shown_in_one_line_and_moves_no_cursor() {
        assert_eq!(line(&ping(1, 26)), "rdma-ping-1: BCDEFGHIJKLM\n");
        assert_eq!(line(b"one\x1b]0;title\x07\n\0two\0"), "one\\u{1b}]0;title\\u{7}\\n\n");
        assert_eq!(line("\u{202e}gpj".as_bytes()), "\\u{202e}gpj\n");
    }
}
