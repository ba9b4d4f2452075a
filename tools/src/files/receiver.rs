//! Receiver: offers memory, takes the pieces, and names the file when it is complete.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use uverbs::cm::Param;
use uverbs::{AccessFlags, ExposedMemory, Refused};

use super::message::{HASH, Message};
use super::{Happened, PIECE_MOST, PORT, RecvArgs, Side, expect, made, out_of_turn};
use crate::base::error::Error;
use crate::base::interrupt::Incomplete;
use crate::base::output;
use crate::base::progress::{Length, Progress};

/// Pieces that may wait for their hash.
const WAITING: usize = 8;
/// Time for the sender to leave after the verdict.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) fn receive(args: &RecvArgs) -> Result<(), Error> {
    if args.piece > PIECE_MOST {
        let why = format!("a piece has at most {PIECE_MOST} bytes");
        return Err(Error::Argument { option: "--piece", value: args.piece.to_string(), why });
    }
    if !args.out.is_dir() {
        let why = "it is no directory".to_owned();
        let value = args.out.display().to_string();
        return Err(Error::Argument { option: "--out", value, why });
    }
    let request = args.by.request(&args.waits, PORT)?;
    let (pd, cq, mut qp) = made(&request.device()?)?;
    request.init(&mut qp)?;
    expect(&mut qp, &pd)?;
    let len = args.piece * u64::from(args.pieces);
    let window = pd.expose(len as usize, AccessFlags::REMOTE_WRITE)?;
    let connection = request.accept(qp, &Param::default()).map_err(Refused::into_error)?;
    let timeout = args.by.timeout;
    let mut side = Side::new(connection, cq, &pd, timeout)?;
    let done = take(args, &mut side, &window);
    let verdict = done.as_ref().err().map(ToString::to_string).unwrap_or_default();
    if side.say(&Message::Verdict { trouble: verdict }).is_ok() {
        let end = Instant::now() + FAREWELL;
        // The sender leaves when it has the verdict; its other messages are ignored.
        while Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            if matches!(
                side.next_within(0, "the sender's leaving", left),
                Ok(Happened::Left) | Err(_)
            ) {
                break;
            }
        }
    }
    let (path, len) = done?;
    output::print(&format!("{}: {len} bytes, as announced\n", path.display()))
}

/// Receives the file; returns its path and length.
fn take(args: &RecvArgs, side: &mut Side, window: &ExposedMemory) -> Result<(PathBuf, u64), Error> {
    let (len, name) = match side.next(0, "the sender's announcement")? {
        Happened::Said(Message::Announce { len, name }) => (len, name),
        Happened::Said(other) => return Err(out_of_turn(&other)),
        _ => return Err(left()),
    };
    let path = args.out.join(name);
    if !args.force && path.symlink_metadata().is_ok() {
        let error = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(Error::File { path, error });
    }
    let failed = |error| Error::File { path: path.clone(), error };
    // The default permissions of a new file: what the umask leaves.
    let mode = Permissions::from_mode(0o666);
    let file = tempfile::Builder::new().permissions(mode).tempfile_in(&args.out);
    let mut file = file.map_err(failed)?;
    let _incomplete = Incomplete::new(file.path().to_owned())?;
    let at = window.remote(0);
    let piece = args.piece as u32;
    let offer = Message::Offer { addr: at.addr, rkey: at.rkey, piece, pieces: args.pieces };
    side.say(&offer)?;
    let found = hashed(args, side, window, len, &mut file, &path)?;
    let hash = loop {
        match side.next(0, "the file's SHA-256")? {
            Happened::Said(Message::Hashed { hash }) => break hash,
            Happened::Said(Message::Abort { why }) => return Err(gave_up(&why)),
            Happened::Said(other) => return Err(out_of_turn(&other)),
            Happened::Left => return Err(left()),
            Happened::Written(_) => {}
        }
    };
    if found != hash {
        let why = "its SHA-256 is not the sender's: it changed while it was sent".to_owned();
        return Err(Error::Record { path, why });
    }
    file.as_file().sync_all().map_err(failed)?;
    let kept = match args.force {
        true => file.persist(&path),
        false => file.persist_noclobber(&path),
    };
    kept.map_err(|error| failed(error.error))?;
    // Makes the name durable, too.
    let directory = std::fs::File::open(&args.out).and_then(|directory| directory.sync_all());
    directory.map_err(failed)?;
    Ok((path.clone(), len))
}

/// Writes the pieces to the file as they arrive; returns their hash, which another thread computes.
fn hashed(
    args: &RecvArgs,
    side: &mut Side,
    window: &ExposedMemory,
    len: u64,
    file: &mut NamedTempFile,
    path: &Path,
) -> Result<[u8; HASH], Error> {
    thread::scope(|scope| {
        let (hasher, waiting) = sync_channel::<Vec<u8>>(WAITING);
        let (back, spare) = channel();
        let thread = scope.spawn(move || {
            let mut hasher = Sha256::new();
            for piece in waiting {
                hasher.update(&piece);
                // Returns the buffer for reuse. Fails after the last piece.
                let _ = back.send(piece);
            }
            hasher.finalize().into()
        });
        let spare = || spare.try_recv().unwrap_or_default();
        pieces(args, side, window, len, (file, path), (hasher, spare))?;
        // Resumes a panic of the hash thread.
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Takes the pieces: to the file, and to the thread of the hash.
fn pieces(
    args: &RecvArgs,
    side: &mut Side,
    window: &ExposedMemory,
    len: u64,
    (file, path): (&mut NamedTempFile, &Path),
    (hasher, spare): (SyncSender<Vec<u8>>, impl Fn() -> Vec<u8>),
) -> Result<(), Error> {
    let mut progress = Progress::new(Length::Count(len, "bytes"), "receiving", args.quiet);
    let (mut taken, mut done) = (0u64, 0u64);
    while done < len {
        let count = match side.next(taken, "a piece of the file")? {
            Happened::Said(Message::Piece { count }) => u64::from(count),
            Happened::Said(Message::Abort { why }) => return Err(gave_up(&why)),
            Happened::Said(other) => return Err(out_of_turn(&other)),
            Happened::Left => return Err(left()),
            Happened::Written(_) => continue,
        };
        if count == 0 || count > args.piece || count > len - done {
            let left = len - done;
            let what = format!("a piece has {count} bytes, of {left} that are left");
            return Err(Error::Unexpected { iteration: taken, what });
        }
        let mut piece = spare();
        piece.resize(count as usize, 0);
        // Copy the piece: the sender may overwrite the slot until and after the credit.
        window.read((taken % u64::from(args.pieces) * args.piece) as usize, &mut piece)?;
        (taken, done) = (taken + 1, done + count);
        side.say(&Message::Credit { taken })?;
        let written = file.write_all(&piece);
        written.map_err(|error| Error::File { path: path.to_owned(), error })?;
        // Fails only if the hash thread panicked; `hashed` reports it.
        let _ = hasher.send(piece);
        progress.tick(done, Instant::now());
    }
    Ok(())
}

fn gave_up(why: &str) -> Error {
    Error::Peer(format!("the sender gave up: {why}"))
}

fn left() -> Error {
    Error::Peer("the sender left before all of the file was here".to_owned())
}
