//! `uverbs send-file` and `uverbs recv-file`: copies a file to another machine by RDMA WRITE.

#[cfg(test)]
pub(crate) mod fuzz;
mod message;
mod receiver;
mod sender;

use std::path::PathBuf;
use std::time::Duration;

use uverbs::cm::Connection;
use uverbs::{
    Batch, CompletionQueue, Device, Frame, PostError, ProtectionDomain, QueuePair, Remote, Slab,
};

use crate::base::error::Error;
use crate::base::units::parse_size;
use crate::link::meet::{ByArgs, Waits};
use crate::link::polled::PolledConnection;
use message::{MOST, Message};

pub(crate) use receiver::receive;
pub(crate) use sender::send;

const PORT: u16 = 7475;
/// Posted receives of each side, and so the maximum pieces in flight.
const RECEIVES: u32 = 64;
/// Maximum bytes of a piece.
const PIECE_MOST: u64 = 1 << 26;

/// Send a file to `uverbs recv-file` on another machine.
///
/// The file's length is announced; the receiver says where in its memory pieces may go, and they
/// are RDMA-written there. The file may be larger than memory. It is read twice at the same time:
/// to be sent, and for its SHA-256, which follows the last piece.
///
/// When it ends well, the receiver has the whole file under its name, and its hash was compared.
/// A file that changes meanwhile, a full disk and a receiver that dies end in an error, and no part
/// of the file is left under its name.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES:\n  \
    uverbs recv-file --out /data                     # on 192.0.2.7\n  \
    uverbs send-file disk.img 192.0.2.7\n\n\
EXIT STATUS:\n  \
    0  the receiver has the file\n  \
    1  it has not, and why\n  \
    2  bad arguments")]
pub(crate) struct SendArgs {
    /// The file
    file: PathBuf,

    /// The receiver's name or address
    host: String,

    /// Name of the file at the receiver [default: the file's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    by: ByArgs,

    /// Show no progress bar
    #[arg(long)]
    quiet: bool,
}

/// Receive a file from `uverbs send-file`.
///
/// The file is written under a temporary name in the directory. It gets the announced name once it
/// is complete and its SHA-256 is the sender's. A file that has the name already is left as it
/// is, and the sender is refused, unless --force is given. Names of hidden files, and names with
/// characters that a terminal doesn't show, are refused.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES:\n  \
    uverbs recv-file\n  \
    uverbs recv-file --out /data --force\n\n\
EXIT STATUS:\n  \
    0  the file is there\n  \
    1  it is not, and why\n  \
    2  bad arguments")]
pub(crate) struct RecvArgs {
    /// Directory to write to
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    out: PathBuf,

    /// Replace an existing file of the same name
    #[arg(long)]
    force: bool,

    /// Bytes of a chunk
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_size)]
    piece: u64,

    /// Maximum number of chunks in flight
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(RECEIVES) / 2))]
    pieces: u32,

    #[command(flatten)]
    waits: Waits,

    #[command(flatten)]
    by: ByArgs,

    /// Show no progress bar
    #[arg(long)]
    quiet: bool,
}

/// A connected side: messages, and completions of pieces.
struct Side {
    link: PolledConnection,
    /// Buffers of outgoing messages. They are not sent inline, since siw takes only 80 inline
    /// bytes.
    out: Slab,
    timeout: Duration,
}

/// Event of a side.
enum Happened {
    /// A message arrived.
    Said(Message),
    /// A piece was written to the peer's memory.
    Written(Option<Frame>),
    /// The peer left.
    Left,
}

/// Numbers of work requests.
const MESSAGE: u64 = 1;
const WRITE: u64 = 2;
/// Maximum work requests in flight.
const SENDS: u32 = 2 * RECEIVES;

/// A queue pair in RESET, and the objects that it needs.
fn made(device: &Device) -> Result<(ProtectionDomain, CompletionQueue, QueuePair), Error> {
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let cq = context.completion_queue(4 * RECEIVES).channel(&channel).build()?;
    let qp = context.queue_pair(&pd, &cq).max_send_wr(SENDS).max_recv_wr(RECEIVES).build()?;
    Ok((pd, cq, qp))
}

/// Posts the receives of a queue pair in INIT.
fn expect(qp: &mut QueuePair, pd: &ProtectionDomain) -> Result<(), Error> {
    let slab = pd.slab(MOST, RECEIVES as usize)?;
    while let Some(frame) = slab.take() {
        qp.post_recv(0, frame).map_err(uverbs::Error::from)?;
    }
    Ok(())
}

impl Side {
    fn new(
        connection: Connection,
        cq: CompletionQueue,
        pd: &ProtectionDomain,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let out = pd.slab(MOST, SENDS as usize)?;
        Ok(Self { link: PolledConnection::new(connection, cq, timeout), out, timeout })
    }

    fn say(&mut self, message: &Message) -> Result<(), Error> {
        let mut batch = self.link.queue_pair().batch();
        put(&mut batch, &self.out, message)?;
        batch.ring();
        Ok(())
    }

    /// Writes a piece, and reports it: a SEND arrives after earlier WRITEs. Immediate data would do
    /// the same, but iWARP has none.
    fn write(&mut self, piece: Frame, to: Remote) -> Result<(), Error> {
        let count = piece.len() as u32;
        let mut batch = self.link.queue_pair().batch();
        batch.write(WRITE, piece, to).map_err(uverbs::Error::from)?;
        put(&mut batch, &self.out, &Message::Piece { count })?;
        batch.ring();
        Ok(())
    }

    /// Waits for the next event.
    fn next(&mut self, piece: u64, what: &'static str) -> Result<Happened, Error> {
        self.next_within(piece, what, self.timeout)
    }

    fn next_within(
        &mut self,
        piece: u64,
        what: &'static str,
        limit: Duration,
    ) -> Result<Happened, Error> {
        loop {
            let Some(done) = self.link.next_within(piece, what, limit)? else {
                return Ok(Happened::Left);
            };
            match (done.is_recv, done.frame) {
                (true, Some(mut frame)) => {
                    let message = Message::parse(&frame)?;
                    frame.set_len(MOST);
                    let posted = self.link.queue_pair().post_recv(0, frame);
                    posted.map_err(uverbs::Error::from)?;
                    return Ok(Happened::Said(message));
                }
                (_, frame) if done.id == WRITE => return Ok(Happened::Written(frame)),
                _ => {}
            }
        }
    }
}

/// Adds a message to a batch. There are as many frames as queue entries.
fn put(batch: &mut Batch<'_>, out: &Slab, message: &Message) -> Result<(), Error> {
    let bytes = message.to_bytes();
    let mut frame = out.take().ok_or(uverbs::Error::from(PostError::Full))?;
    frame.set_len(bytes.len());
    frame.copy_from_slice(&bytes);
    Ok(batch.send(MESSAGE, frame).map_err(uverbs::Error::from)?)
}

/// Error of an unexpected message.
fn out_of_turn(message: &Message) -> Error {
    Error::Peer(format!("the other side said {message:?} out of turn"))
}
