//! Sender: reads the file, writes it to the receiver's memory, and waits for the verdict.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use uverbs::cm::Param;
use uverbs::{Frame, Refused, Remote};

use super::message::{HASH, Message};
use super::{Happened, PIECE_MOST, PORT, RECEIVES, SendArgs, Side, expect, made, out_of_turn};
use crate::base::error::Error;
use crate::base::output;
use crate::base::peer_text::{NAME_RULE, is_name};
use crate::base::progress::{Length, Progress};

/// Time for the receiver to flush the file to its disk before it answers.
const FLUSH: Duration = Duration::from_secs(600);
/// Bytes read at a time for the hash.
const BLOCK: usize = 1 << 20;
/// Interval of looks at the receiver's messages while the hash is behind.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes by which the pieces may be ahead of the hash, for which the receiver waits at the end.
const AHEAD: u64 = 64 << 20;

pub(crate) fn send(args: &SendArgs) -> Result<(), Error> {
    let failed = |error| Error::File { path: args.file.clone(), error };
    let mut file = File::open(&args.file).map_err(failed)?;
    let len = length(&mut file).map_err(failed)?;
    let announce = Message::Announce { len, name: name(args)? };
    let mut sending = Sending::connect(args, &announce)?;
    let start = Instant::now();
    let trouble = match sending.pieces(&mut file, len, args.quiet) {
        Ok(trouble) => trouble,
        Err(Broken::Here(error)) => {
            let why = error.to_string();
            // The receiver should know; if the message is lost, it sees that this side leaves.
            let _ = sending.side.say(&Message::Abort { why });
            let _ = sending.side.link.part();
            return Err(failed(error));
        }
        Err(Broken::There(error)) => return Err(error),
    };
    let took = start.elapsed();
    sending.side.link.part()?;
    if !trouble.is_empty() {
        return Err(Error::Peer(format!("the receiver has not kept the file: {trouble}")));
    }
    let rate = len as f64 / took.as_secs_f64() / 1e6;
    output::print(&format!("{len} bytes in {:.3} s, {rate:.1} MB/s\n", took.as_secs_f64()))
}

/// Length of the file. A file without a size, such as a block device, is read through; so is a file
/// of sysfs, which ends before its size.
fn length(file: &mut File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if let (true, Some(last)) = (metadata.is_file(), metadata.len().checked_sub(1))
        && matches!(file.read_at(&mut [0], last), Ok(1))
    {
        return Ok(metadata.len());
    }
    let len = io::copy(file, &mut io::sink())?;
    file.rewind()?;
    Ok(len)
}

/// Thread that hashes the file while it is sent.
struct Hashing {
    thread: Option<JoinHandle<io::Result<[u8; HASH]>>>,
    /// Bytes hashed, after each block.
    blocks: Receiver<u64>,
    done: u64,
}

impl Hashing {
    fn start(file: &File, len: u64) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (tell, blocks) = channel();
        let run = move || hash(&file, len, &tell);
        let thread = thread::Builder::new().name("hash".to_owned()).spawn(run)?;
        Ok(Self { thread: Some(thread), blocks, done: 0 })
    }

    /// Waits for the next block of a file that is not hashed yet. False if none came in time.
    fn advance(&mut self, limit: Duration) -> io::Result<bool> {
        match self.blocks.recv_timeout(limit) {
            Ok(done) => self.done = done,
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            // It failed.
            Err(RecvTimeoutError::Disconnected) => {
                self.end()?;
            }
        }
        Ok(true)
    }

    /// The hash. Waits for the end of the thread.
    fn end(&mut self) -> io::Result<[u8; HASH]> {
        let ended = self.thread.take().map(JoinHandle::join);
        let ended = ended.ok_or_else(|| io::Error::other("the thread of the hash has ended"))?;
        ended.unwrap_or_else(|_| Err(io::Error::other("the thread of the hash panicked")))
    }
}

/// Hashes the first `len` bytes of a file, and tells of each block.
fn hash(file: &File, len: u64, tell: &Sender<u64>) -> io::Result<[u8; HASH]> {
    let (mut hasher, mut done, mut block) = (Sha256::new(), 0, vec![0; BLOCK]);
    while done < len {
        let count = (len - done).min(BLOCK as u64) as usize;
        file.read_exact_at(&mut block[..count], done).map_err(shorter)?;
        hasher.update(&block[..count]);
        done += count as u64;
        // Fails once the transfer has failed.
        if tell.send(done).is_err() {
            break;
        }
    }
    Ok(hasher.finalize().into())
}

/// Error of a read of announced bytes.
fn shorter(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => changed("it became shorter"),
        _ => error,
    }
}

fn name(args: &SendArgs) -> Result<String, Error> {
    let own = || args.file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = args.name.clone().or_else(own).unwrap_or_default();
    if is_name(&name) {
        return Ok(name);
    }
    Err(Error::Argument { option: "--name", value: name, why: NAME_RULE.to_owned() })
}

/// Cause of an error: the file, or the connection.
enum Broken {
    Here(io::Error),
    There(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::There(error)
    }
}

impl From<uverbs::Error> for Broken {
    fn from(error: uverbs::Error) -> Self {
        Self::There(error.into())
    }
}

struct Sending {
    side: Side,
    /// Frames that are not in flight.
    frames: Vec<Frame>,
    at: Remote,
    piece: u64,
    pieces: u64,
    /// Pieces taken by the receiver.
    taken: u64,
    verdict: Option<String>,
}

impl Sending {
    fn connect(args: &SendArgs, announce: &Message) -> Result<Self, Error> {
        let route = args.by.route(&args.host, PORT)?;
        let (pd, cq, mut qp) = made(&route.device()?)?;
        route.init(&mut qp)?;
        expect(&mut qp, &pd)?;
        let connection = route.connect(qp, &Param::default()).map_err(Refused::into_error)?;
        let timeout = args.by.timeout;
        let mut side = Side::new(connection, cq, &pd, timeout)?;
        side.say(announce)?;
        let (at, piece, pieces) = loop {
            match side.next(0, "the receiver's offer")? {
                Happened::Said(Message::Offer { addr, rkey, piece, pieces }) => {
                    break (Remote { addr, rkey }, u64::from(piece), u64::from(pieces));
                }
                Happened::Said(Message::Verdict { trouble }) => {
                    let _ = side.link.part();
                    return Err(Error::Peer(format!("the receiver refuses the file: {trouble}")));
                }
                Happened::Said(other) => return Err(out_of_turn(&other)),
                Happened::Left => return Err(left()),
                Happened::Written(_) => {}
            }
        };
        if !(1..=PIECE_MOST).contains(&piece) || !(1..=u64::from(RECEIVES) / 2).contains(&pieces) {
            let why = format!("the receiver offers {pieces} pieces of {piece} bytes");
            return Err(Error::Peer(why));
        }
        let slab = pd.slab(piece as usize, pieces as usize)?;
        let frames = std::iter::from_fn(|| slab.take()).collect();
        Ok(Self { side, frames, at, piece, pieces, taken: 0, verdict: None })
    }

    /// Sends the file; returns the receiver's verdict.
    fn pieces(&mut self, file: &mut File, len: u64, quiet: bool) -> Result<String, Broken> {
        let mut progress = Progress::new(Length::Count(len, "bytes"), "sending", quiet);
        let mut hashing = Hashing::start(file, len).map_err(Broken::Here)?;
        let (mut sent, mut done) = (0u64, 0u64);
        // Tested before the last piece: with it the receiver has all announced bytes.
        let longer = |file: &mut File| match file.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Broken::Here(changed("it became longer"))),
            Err(error) => Err(Broken::Here(error)),
        };
        if len == 0 {
            longer(file)?;
        }
        while done < len && self.verdict.is_none() {
            let room = sent - self.taken < self.pieces;
            let Some(mut frame) = room.then(|| self.frames.pop()).flatten() else {
                self.hear(sent, "room for a piece", self.side.timeout)?;
                continue;
            };
            let count = (len - done).min(self.piece) as usize;
            frame.set_len(count);
            file.read_exact(&mut frame).map_err(shorter).map_err(Broken::Here)?;
            self.wait_for_hash(&mut hashing, done.saturating_sub(AHEAD), sent)?;
            if self.verdict.is_some() {
                break;
            }
            if done + count as u64 == len {
                longer(file)?;
            }
            let offset = sent % self.pieces * self.piece;
            let to = Remote { addr: self.at.addr.wrapping_add(offset), ..self.at };
            self.side.write(frame, to)?;
            (sent, done) = (sent + 1, done + count as u64);
            progress.tick(done, Instant::now());
        }
        if self.verdict.is_none() {
            self.wait_for_hash(&mut hashing, len, sent)?;
        }
        if self.verdict.is_none() {
            let hash = hashing.end().map_err(Broken::Here)?;
            self.side.say(&Message::Hashed { hash })?;
        }
        drop(progress);
        loop {
            if let Some(trouble) = self.verdict.take() {
                return Ok(trouble);
            }
            self.hear(sent, "the receiver's verdict", FLUSH)?;
        }
    }

    /// Waits until so many bytes are hashed, or for the receiver's verdict.
    fn wait_for_hash(
        &mut self,
        hashing: &mut Hashing,
        bytes: u64,
        sent: u64,
    ) -> Result<(), Broken> {
        let mut last = Instant::now();
        while hashing.done < bytes && self.verdict.is_none() {
            if hashing.advance(LOOK).map_err(Broken::Here)? {
                last = Instant::now();
            } else if last.elapsed() > self.side.timeout {
                return Err(Broken::Here(io::ErrorKind::TimedOut.into()));
            }
            match self.hear(sent, "a message", Duration::ZERO) {
                Ok(()) | Err(Error::Silence { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for one event.
    fn hear(&mut self, sent: u64, what: &'static str, limit: Duration) -> Result<(), Error> {
        match self.side.next_within(sent, what, limit)? {
            Happened::Written(frame) => self.frames.extend(frame),
            Happened::Said(Message::Credit { taken }) if taken <= sent && taken >= self.taken => {
                self.taken = taken;
            }
            Happened::Said(Message::Verdict { trouble }) => self.verdict = Some(trouble),
            Happened::Said(other) => return Err(out_of_turn(&other)),
            Happened::Left => return Err(left()),
        }
        Ok(())
    }
}

fn changed(how: &str) -> io::Error {
    io::Error::other(format!("the file changed while it was sent: {how}"))
}

fn left() -> Error {
    Error::Peer("the receiver left before it had the file".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_standard() {
        // FIPS 180-2, appendix B.1.
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"abcd").unwrap();
        file.rewind().unwrap();
        assert_eq!(length(&mut file).unwrap(), 4);
        let limit = Duration::from_secs(20);
        let mut hashing = Hashing::start(&file, 3).unwrap();
        assert!(hashing.advance(limit).unwrap());
        assert_eq!(hashing.done, 3);
        assert_eq!(hashing.end().unwrap()[..4], [0xba, 0x78, 0x16, 0xbf]);
        let longer = Hashing::start(&file, 5).unwrap().advance(limit);
        assert!(longer.unwrap_err().to_string().contains("shorter"));
    }

    #[test]
    fn a_file_that_ends_before_its_size_is_read_through() {
        let mut file = File::open("/sys/class/net/lo/mtu").unwrap();
        let len = length(&mut file).unwrap();
        assert!(file.metadata().unwrap().len() > len);
        let mut text = String::new();
        assert_eq!(file.read_to_string(&mut text).unwrap() as u64, len);
    }
}
