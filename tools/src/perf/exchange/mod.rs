//! Exchange between two processes over TCP: messages, a JSON line each.
//!
//! Both sides send their parameters, and continue only if these are equal. Then the client sends
//! the addresses of its queue pairs, the server answers with its own, and both send `ready`. During
//! the run each sends a sign of life twice a second, and at the end `done`, or `failed` with the
//! reason.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod message;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub(super) use message::Done;
use message::{Hello, LINE, Message, Qp};

use super::shape::Shape;
use super::side::Hand;
use crate::base::error::Error;
use crate::base::peer_text::beginning;
use crate::link::tcp::{Stream, TcpError, check};
use crate::link::verify::Who;

const PROGRAM: &str = "uverbs perf";
const VERSION: u32 = 2;
/// Time between two signs of life.
const BEAT: Duration = Duration::from_millis(500);
/// Minimum wait for a sign of life.
const SILENCE_MIN: Duration = Duration::from_secs(2);
/// Time between two looks at the peer while idle.
const LOOK: Duration = Duration::from_millis(100);
/// Maximum messages handled at a time: eight seconds of signs of life.
const HEARD: usize = 16;
/// Time that the peer may take to bring up a queue pair.
const PER_QP: Duration = Duration::from_millis(10);

/// The connection to the other process.
#[derive(Debug)]
pub(crate) struct Control {
    stream: Stream,
    peer: Who,
    limit: Duration,
    /// Bytes that are read but not parsed.
    pending: Vec<u8>,
    heard: Instant,
    beaten: Instant,
}

impl Control {
    pub(crate) fn new(stream: Stream) -> Self {
        let (peer, limit, now) = (stream.peer, stream.limit, Instant::now());
        Self { stream, peer, limit, pending: Vec::new(), heard: now, beaten: now }
    }

    /// Exchanges the parameters. A difference is an error on both sides, with the option's name.
    pub(super) fn agree(
        &mut self,
        shape: &Shape,
        size: u32,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let deadline = self.stream.deadline();
        let own = terms(shape, size);
        let hello = Hello { program: PROGRAM.to_owned(), version: VERSION, terms: own.clone() };
        self.send(&Message::Hello(hello), deadline, stop)?;
        let hello = match self.message(deadline, stop)? {
            Message::Hello(hello) if hello.program == PROGRAM => hello,
            other => return Err(self.nonsense(&other.line())),
        };
        let peer = self.peer;
        if hello.version != VERSION {
            return Err(Error::Peer(format!(
                "the {peer} is another version of `uverbs perf`: it speaks {}, this one {VERSION}",
                hello.version
            )));
        }
        match differences(&own, &hello.terms) {
            differs if differs.is_empty() => Ok(()),
            differs => Err(Error::Peer(format!(
                "the {peer} measures something else: {}",
                differs.join(", ")
            ))),
        }
    }

    /// Exchanges the addresses of queue pairs.
    pub(super) fn swap(&mut self, own: &[Hand], stop: &AtomicBool) -> Result<Vec<Hand>, Error> {
        let deadline =
            self.stream.deadline() + PER_QP * u32::try_from(own.len()).unwrap_or(u32::MAX);
        // In turn: together they could fill both buffers while neither side reads.
        if self.peer == Who::Server {
            self.send_hands(own, deadline, stop)?;
            return self.read_hands(own.len(), deadline, stop);
        }
        let theirs = self.read_hands(own.len(), deadline, stop)?;
        self.send_hands(own, deadline, stop)?;
        Ok(theirs)
    }

    fn send_hands(
        &mut self,
        own: &[Hand],
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let mut hands = own.iter().enumerate();
        hands.try_for_each(|(at, hand)| self.send(&Message::Qp(Qp::new(at, hand)), deadline, stop))
    }

    fn read_hands(
        &mut self,
        count: usize,
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<Vec<Hand>, Error> {
        let mut hands = Vec::with_capacity(count);
        for at in 0..count {
            let qp = match self.message(deadline, stop)? {
                Message::Qp(qp) => qp,
                other => return Err(self.nonsense(&other.line())),
            };
            let hand = match qp.number == at {
                true => qp.hand(),
                false => Err(format!("it has another number, {}", qp.number)),
            };
            let peer = self.peer;
            let wrong = |why| Error::Peer(format!("the {peer}'s queue pair {at}: {why}"));
            hands.push(hand.map_err(wrong)?);
        }
        Ok(hands)
    }

    /// Tells the peer that this side can receive, and waits for the same message.
    pub(super) fn ready(&mut self, qps: u32, stop: &AtomicBool) -> Result<(), Error> {
        let deadline = self.stream.deadline() + PER_QP * qps;
        self.send(&Message::Ready, deadline, stop)?;
        match self.message(deadline, stop)? {
            Message::Ready => Ok(()),
            other => Err(self.nonsense(&other.line())),
        }
    }

    /// Tells the peer that this side has sent all its messages.
    pub(super) fn done(&mut self, done: Done, stop: &AtomicBool) -> Result<(), Error> {
        let deadline = self.stream.deadline();
        self.send(&Message::Done(done), deadline, stop)
    }

    /// Tells the peer why this side gives up. Errors are ignored: the peer may be gone.
    pub(crate) fn give_up(&mut self, error: &Error) {
        let never = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(1);
        let _ = self.send(&Message::Failed(plain(&error.to_string())), deadline, &never);
    }

    /// Sends a sign of life if one is due. Never waits. [`hear`](Self::hear) reports a broken
    /// connection, after the peer's earlier messages.
    pub(super) fn beat(&mut self) {
        if self.beaten.elapsed() < BEAT {
            return;
        }
        self.beaten = Instant::now();
        // Sent whole or not at all, since a partial line would be invalid. If the buffer is full,
        // the peer has enough to read.
        let _ = self.stream.send_some(&Message::Alive.line());
    }

    /// Handles the messages that the peer has sent. Never waits; a peer that is silent for too long
    /// is an error.
    pub(super) fn hear(&mut self) -> Result<Option<Done>, Error> {
        let mut read = false;
        // A limited number of lines, so that a peer that sends without end cannot keep this side.
        for _ in 0..HEARD {
            let Some(message) = self.take()? else {
                if !read && self.stream.fill(&mut self.pending, LINE)? {
                    read = true;
                    continue;
                }
                break;
            };
            self.heard = Instant::now();
            match message {
                Message::Alive => {}
                Message::Done(done) => return Ok(Some(done)),
                other => return Err(self.nonsense(&other.line())),
            }
        }
        let limit = self.limit.max(SILENCE_MIN);
        match self.heard.elapsed() > limit {
            true => Err(TcpError::Silent { peer: self.peer, limit }.into()),
            false => Ok(None),
        }
    }

    /// Waits until the peer is done, and shows signs of life meanwhile.
    pub(super) fn wait_done(&mut self, stop: &AtomicBool) -> Result<Done, Error> {
        loop {
            if let Some(done) = self.hear()? {
                return Ok(done);
            }
            self.beat();
            self.stream.wait(Instant::now() + LOOK, stop)?;
        }
    }

    /// Restarts the time of the peer's silence: before, it was not the peer's turn.
    pub(super) fn start(&mut self) {
        self.heard = Instant::now();
    }

    fn send(
        &mut self,
        message: &Message,
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        Ok(self.stream.send(&message.line(), deadline, stop)?)
    }

    /// Waits for the next message other than a sign of life.
    fn message(&mut self, deadline: Instant, stop: &AtomicBool) -> Result<Message, Error> {
        loop {
            match self.take()? {
                // A peer may send signs of life for ever, so the deadline is tested here, too.
                Some(Message::Alive) => {
                    check(stop)?;
                    if Instant::now() >= deadline {
                        return Err(self.only_alive());
                    }
                }
                Some(message) => return Ok(message),
                None if self.stream.fill(&mut self.pending, LINE)? => {}
                None => self.stream.wait(deadline, stop)?,
            }
        }
    }

    /// Takes the next message, if one has arrived. An error if the peer gave up.
    fn take(&mut self) -> Result<Option<Message>, Error> {
        let end = self.pending.iter().position(|byte| *byte == b'\n');
        let line: Vec<u8> = match end {
            Some(end) if end < LINE => self.pending.drain(..=end).collect(),
            None if self.pending.len() <= LINE => return Ok(None),
            _ => return Err(self.nonsense(&self.pending)),
        };
        match Message::parse(&line) {
            Some(Message::Failed(why)) => {
                Err(Error::Peer(format!("the {} failed: {}", self.peer, plain(&why))))
            }
            Some(message) => Ok(Some(message)),
            None => Err(self.nonsense(&line)),
        }
    }

    #[cold]
    fn only_alive(&self) -> Error {
        let (peer, seconds) = (self.peer, self.limit.as_secs_f64());
        Error::Peer(format!("the {peer} said only that it lives for {seconds} s (--timeout)"))
    }

    #[cold]
    fn nonsense(&self, line: &[u8]) -> Error {
        let line = beginning(line.strip_suffix(b"\n").unwrap_or(line), 40);
        Error::Peer(format!("the {} doesn't speak as `uverbs perf` does: \"{line}\"", self.peer))
    }
}

/// Terms that both sides must have in common, by the options' names.
fn terms(shape: &Shape, size: u32) -> Vec<(String, String)> {
    [
        ("operation", shape.op.to_string()),
        ("test", shape.test.to_string()),
        ("--connection", shape.connection.to_string()),
        ("--size", size.to_string()),
        ("--qps", shape.qps.to_string()),
        ("--bidirectional", shape.bidirectional.to_string()),
        ("--check", shape.check.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn differences(own: &[(String, String)], theirs: &[(String, String)]) -> Vec<String> {
    let value = |of: &[(String, String)], name: &str| {
        of.iter().find(|(other, _)| other == name).map(|(_, value)| plain(value))
    };
    let missing = || "nothing".to_owned();
    let mut differs = Vec::new();
    for (name, ours) in own {
        let their = value(theirs, name).unwrap_or_else(missing);
        if their != *ours {
            differs.push(format!("{name} {ours} here and {their} there"));
        }
    }
    let more = theirs.iter().filter(|(name, _)| value(own, name).is_none());
    differs.extend(more.map(|(name, _)| format!("{} there only", plain(name))));
    differs
}

/// Short printable form of a text from the peer.
fn plain(text: &str) -> String {
    beginning(text.as_bytes(), 200)
}
