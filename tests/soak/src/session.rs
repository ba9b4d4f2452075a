//! A session: one stream, over which both sides agree on the messages of the sender.
//!
//! The guest sends the line `KIND ROUNDS MESSAGES SIZE` and a line of its sender, the host a line
//! of its receiver. In each round the host answers `ready`, the guest sends the messages and
//! `sent`, and the host checks them and answers `good LOST`. After the last round the guest sends
//! `bye`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use uverbs::Device;
use uverbs_streams::{RdmaStream, StreamOptions};

use crate::kind::Kind;
use crate::random::Random;
use crate::receiver::Receiver;
use crate::sender::{Sender, differs, pattern};
use crate::trouble::Trouble;

/// How long a line may take: longer than anything that the peer waits for.
const LINE: Duration = Duration::from_secs(40);
/// Interval at which hosts are checked for life.
const ALIVE: Duration = Duration::from_secs(2);

/// Request of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) rounds: u32,
    pub(crate) messages: u32,
    pub(crate) size: usize,
}

/// Result of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) messages: u64,
    /// Lost messages of an unreliable transport, as the host counts them.
    pub(crate) lost: u64,
}

impl Plan {
    pub(crate) fn random(random: &mut Random, kind: Kind) -> Self {
        let sizes = [1, 64, 1000, 4096, 20_000, 64 << 10];
        let size = random.of(&sizes).min(kind.longest());
        let rounds = 1 + random.below(4) as u32;
        Self { kind, rounds, messages: 1 + random.below(16) as u32, size }
    }

    fn line(&self) -> String {
        let Self { kind, rounds, messages, size } = self;
        format!("{kind} {rounds} {messages} {size}")
    }

    fn read(line: &str) -> Result<Self, Trouble> {
        let wrong = || Trouble::Line(line.to_owned());
        let [kind, rounds, messages, size] =
            line.split(' ').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
        Ok(Self {
            kind: kind.parse()?,
            rounds: number(rounds)?,
            messages: number(messages)?,
            size: number(size)?,
        })
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, Trouble> {
    text.parse().map_err(|_| Trouble::Line(text.to_owned()))
}

/// A stream by lines.
struct Lines(BufReader<RdmaStream>);

impl Lines {
    fn new(stream: RdmaStream) -> Result<Self, Trouble> {
        stream.set_read_timeout(Some(LINE)).map_err(Trouble::Stream)?;
        stream.set_write_timeout(Some(LINE)).map_err(Trouble::Stream)?;
        Ok(Self(BufReader::new(stream)))
    }

    fn say(&mut self, line: &str) -> Result<(), Trouble> {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(Trouble::Stream)
    }

    /// Returns the next line; `None` if the peer has closed.
    fn hear(&mut self) -> Result<Option<String>, Trouble> {
        let mut line = String::new();
        self.0.read_line(&mut line).map_err(Trouble::Stream)?;
        Ok(line.strip_suffix('\n').map(str::to_owned))
    }

    fn heard(&mut self) -> Result<String, Trouble> {
        let closed = || Trouble::Stream(std::io::ErrorKind::UnexpectedEof.into());
        self.hear()?.ok_or_else(closed)
    }

    fn wait_for(&mut self, wanted: &str) -> Result<(), Trouble> {
        let line = self.heard()?;
        if line == wanted { Ok(()) } else { Err(Trouble::Line(line)) }
    }
}

/// How both sides' streams are made.
pub(crate) fn options(device: &Device) -> StreamOptions {
    StreamOptions::new().on(device).limit(Duration::from_secs(20)).keep_alive(ALIVE)
}

/// The guest's side, of one session.
pub(crate) fn visit(
    device: &Device,
    options: &StreamOptions,
    host: SocketAddr,
    plan: Plan,
) -> Result<Done, Trouble> {
    let mut lines = Lines::new(options.connect(host).map_err(Trouble::Stream)?)?;
    lines.say(&plan.line())?;
    let Plan { kind, rounds, messages, size } = plan;
    let mut done = Done::default();
    if kind == Kind::Stream {
        for round in 0..rounds {
            echo(&mut lines, plan, round)?;
            done.messages += u64::from(messages);
        }
        lines.say("bye")?;
        return Ok(done);
    }
    let (mut sender, line) = Sender::new(device, kind)?;
    lines.say(&line)?;
    sender.connect(&lines.heard()?)?;
    for round in 0..rounds {
        lines.wait_for("ready")?;
        sender.send(round * messages, messages, size)?;
        sender.reach(round, size)?;
        lines.say("sent")?;
        let line = lines.heard()?;
        let lost = line.strip_prefix("good ").ok_or_else(|| Trouble::Line(line.clone()))?;
        done.lost += number::<u64>(lost)?;
        done.messages += u64::from(messages);
    }
    lines.say("bye")?;
    Ok(done)
}

/// One round of a session of the stream itself: bytes there and back.
fn echo(lines: &mut Lines, plan: Plan, round: u32) -> Result<(), Trouble> {
    let len = plan.size * plan.messages as usize;
    let bytes: Vec<u8> = (0..len).map(|at| pattern(at, round)).collect();
    let mut back = vec![0; len];
    // In pieces that fit both directions, so that neither side waits for the other.
    for (piece, back) in bytes.chunks(4096).zip(back.chunks_mut(4096)) {
        lines.0.get_mut().write_all(piece).map_err(Trouble::Stream)?;
        lines.0.read_exact(back).map_err(Trouble::Stream)?;
    }
    match differs(&back, round) {
        None => Ok(()),
        Some(at) => Err(Trouble::Corrupt { kind: plan.kind, what: "byte of", message: round, at }),
    }
}

/// The host's side.
pub(crate) fn serve(device: &Device, stream: RdmaStream) -> Result<(Kind, Done), Trouble> {
    let mut lines = Lines::new(stream)?;
    let plan = Plan::read(&lines.heard()?)?;
    let Plan { kind, rounds, messages, size } = plan;
    let mut done = Done::default();
    if kind == Kind::Stream {
        let mut piece = vec![0; 4096];
        for _ in 0..rounds {
            let mut left = size * messages as usize;
            while left > 0 {
                let piece = &mut piece[..left.min(4096)];
                lines.0.read_exact(piece).map_err(Trouble::Stream)?;
                lines.0.get_mut().write_all(piece).map_err(Trouble::Stream)?;
                left -= piece.len();
            }
            done.messages += u64::from(messages);
        }
        lines.wait_for("bye")?;
        return Ok((kind, done));
    }
    let line = lines.heard()?;
    let (mut receiver, line) = Receiver::new(device, kind, (messages, size), &line)?;
    lines.say(&line)?;
    for round in 0..rounds {
        receiver.expect()?;
        lines.say("ready")?;
        if kind.is_reliable() {
            done.lost += u64::from(receiver.take(round * messages)?);
            lines.wait_for("sent")?;
        } else {
            lines.wait_for("sent")?;
            done.lost += u64::from(receiver.take(round * messages)?);
        }
        receiver.counted(round + 1)?;
        lines.say(&format!("good {}", done.lost))?;
        done.messages += u64::from(messages);
    }
    lines.wait_for("bye")?;
    Ok((kind, done))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::kind::KINDS;
    use crate::wire::{listening, opened};
    use uverbs::softhca::SoftHca;
    use uverbs::softhca::wire::Fabric;

    #[test]
    fn every_kind_gets_through() {
        let fabric = Fabric::new();
        let [here, there] = [(); 2].map(|()| SoftHca::builder().fabric(&fabric).build().unwrap());
        let host = Host::start(there.clone()).unwrap();
        let device = opened(&here);
        let options = options(&device);
        for kind in KINDS {
            for size in [1, 5000] {
                let size = size.min(kind.longest());
                let plan = Plan { kind, rounds: 3, messages: 5, size };
                let done = visit(&device, &options, listening(&there), plan).unwrap();
                assert_eq!(done, Done { messages: 15, lost: 0 }, "{kind}");
            }
        }
        drop(options);
        let counts = host.stop().unwrap();
        assert_eq!(counts.done, 2 * KINDS.len() as u64);
        assert_eq!((counts.broken, counts.messages), (0, counts.done * 15));
        assert_eq!(here.objects().values().sum::<usize>(), 0);
        assert_eq!(there.objects().values().sum::<usize>(), 0);
    }

    #[test]
    fn plans_travel_as_lines() {
        let plan = Plan { kind: Kind::Dc, rounds: 2, messages: 16, size: 4096 };
        assert_eq!(Plan::read(&plan.line()).unwrap(), plan);
        for line in ["", "dc 1 2", "dc 1 2 x", "tcp 1 2 3", "dc 1 2 3 4"] {
            assert!(matches!(Plan::read(line), Err(Trouble::Line(_))), "{line}");
        }
    }
}
