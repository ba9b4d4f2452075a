//! Sender: reads the file, writes it to the receiver's memory, and waits for the verdict.

use std::fs::File;
use std::io::{self, Read, Seek};
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

pub(crate) fn send(args: &SendArgs) -> Result<(), Error> {
    let failed = |error| Error::File { path: args.file.clone(), error };
    let mut file = File::open(&args.file).map_err(failed)?;
    let (len, hash) = read_through(&mut file, args.quiet).map_err(failed)?;
    let announce = Message::Announce { len, hash, name: name(args)? };
    let mut sending = Sending::connect(args, &announce)?;
    let start = Instant::now();
    let trouble = match sending.pieces(&mut file, len, &hash, args.quiet) {
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

/// Reads the file once; returns length and hash.
fn read_through(file: &mut File, quiet: bool) -> io::Result<(u64, [u8; HASH])> {
    let total = file.metadata()?.len();
    let mut progress = Progress::new(Length::Count(total, "bytes"), "reading", quiet);
    let (mut hasher, mut len) = (Sha256::new(), 0);
    let mut block = vec![0; BLOCK];
    loop {
        let count = file.read(&mut block)?;
        if count == 0 {
            break;
        }
        hasher.update(&block[..count]);
        len += count as u64;
        progress.tick(len, Instant::now());
    }
    file.rewind()?;
    Ok((len, hasher.finalize().into()))
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
    fn pieces(
        &mut self,
        file: &mut File,
        len: u64,
        hash: &[u8; HASH],
        quiet: bool,
    ) -> Result<String, Broken> {
        let mut progress = Progress::new(Length::Count(len, "bytes"), "sending", quiet);
        let mut hasher = Sha256::new();
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
            file.read_exact(&mut frame).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => Broken::Here(changed("it became shorter")),
                _ => Broken::Here(error),
            })?;
            hasher.update(&frame[..]);
            if done + count as u64 == len {
                longer(file)?;
            }
            let offset = sent % self.pieces * self.piece;
            let to = Remote { addr: self.at.addr.wrapping_add(offset), ..self.at };
            self.side.write(frame, to)?;
            (sent, done) = (sent + 1, done + count as u64);
            progress.tick(done, Instant::now());
        }
        if self.verdict.is_none() && hasher.finalize()[..] != hash[..] {
            return Err(Broken::Here(changed("its contents are others")));
        }
        drop(progress);
        loop {
            if let Some(trouble) = self.verdict.take() {
                return Ok(trouble);
            }
            self.hear(sent, "the receiver's verdict", FLUSH)?;
        }
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
        io::Write::write_all(&mut file, b"abc").unwrap();
        file.rewind().unwrap();
        let (len, hash) = read_through(&mut file, true).unwrap();
        assert_eq!((len, hash[..4].to_vec()), (3, vec![0xba, 0x78, 0x16, 0xbf]));
    }
}
