//! The side of a session that sends.

use std::time::{Duration, Instant};

use uverbs::dc::{DcDestination, DcEndpoint};
use uverbs::transport::{Dci, XrcIni};
use uverbs::xrc::RemoteSrq;
use uverbs::{
    AccessFlags, AckTimeout, Any, CompletionQueue, Context, DatagramEndpoint, Destination, Device,
    Endpoint, Frame, Local, ProtectionDomain, QueuePair, Remote, Uc, Ud, WorkCompletion,
};

use crate::kind::Kind;
use crate::trouble::Trouble;

/// No wait for a completion is longer: retries end before.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Access rights of peers, and this side's patience: a second for an acknowledgement, seven times,
/// since the machine may be busy with other things.
pub(crate) fn local() -> Local {
    Local {
        access: AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC,
        timeout: AckTimeout::from_code(18).unwrap_or(AckTimeout::DEFAULT),
        ..Local::default()
    }
}

/// Byte of a message: it depends on place and number, so that a byte in the wrong place shows.
pub(crate) fn pattern(at: usize, message: u32) -> u8 {
    (at as u8) ^ (at >> 8) as u8 ^ (message.wrapping_mul(0x9e37_79b9) >> 24) as u8
}

/// The first byte that isn't the pattern's.
pub(crate) fn differs(bytes: &[u8], message: u32) -> Option<usize> {
    (0..bytes.len()).find(|&at| bytes[at] != pattern(at, message))
}

/// A queue pair of a kind, with where its messages go once that is known.
enum Way {
    Rc(QueuePair),
    Uc(QueuePair<Any, Uc>),
    Ud(QueuePair<Any, Ud>, Option<Destination>),
    Xrc(QueuePair<Any, XrcIni>, Option<RemoteSrq>),
    Dc(QueuePair<Any, Dci>, Option<DcDestination>),
}

/// See the [module](self).
pub(crate) struct Sender {
    kind: Kind,
    way: Way,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    _context: Context,
    /// The peer's memory, once it is known.
    memory: Option<Remote>,
}

/// A word of a line that its name begins.
pub(crate) fn word<'l>(line: &'l str, name: &str) -> Result<&'l str, Trouble> {
    let found = line.split_whitespace().find_map(|word| word.strip_prefix(name));
    found.ok_or_else(|| Trouble::Line(line.to_owned()))
}

impl Sender {
    /// A queue pair, and the line that tells the peer of it.
    pub(crate) fn new(device: &Device, kind: Kind) -> Result<(Self, String), Trouble> {
        let context = device.open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(64)?;
        let queues = context.queue_pair(&pd, &cq).max_send_wr(32).max_recv_wr(1);
        let local = local();
        let (way, line) = match kind {
            Kind::Uc => {
                let mut qp = queues.uc().build()?;
                let line = qp.prepare(&local)?.to_string();
                (Way::Uc(qp), line)
            }
            Kind::Ud => {
                let mut qp = queues.ud().build()?;
                let line = qp.bring_up(&local)?.to_string();
                (Way::Ud(qp, None), line)
            }
            Kind::Xrc => {
                let mut qp = queues.xrc().build()?;
                let line = qp.prepare(&local)?.to_string();
                (Way::Xrc(qp, None), line)
            }
            Kind::Dc => {
                let mut qp = queues.dci().build()?;
                qp.bring_up(&local)?;
                (Way::Dc(qp, None), "initiator".to_owned())
            }
            Kind::Rc | Kind::Srq | Kind::Stream => {
                let mut qp = queues.build()?;
                let line = qp.prepare(&local)?.to_string();
                (Way::Rc(qp), line)
            }
        };
        Ok((Self { kind, way, cq, pd, _context: context, memory: None }, line))
    }

    /// Messages go to the receiver of this line from now on.
    pub(crate) fn connect(&mut self, line: &str) -> Result<(), Trouble> {
        let wrong = |_| Trouble::Line(line.to_owned());
        match &mut self.way {
            Way::Rc(qp) => qp.connect(&line.parse::<Endpoint>().map_err(wrong)?)?,
            Way::Uc(qp) => qp.connect(&line.parse::<Endpoint>().map_err(wrong)?)?,
            Way::Ud(qp, to) => {
                *to = Some(qp.destination(&line.parse::<DatagramEndpoint>().map_err(wrong)?)?);
            }
            Way::Xrc(qp, to) => {
                qp.connect(&line.parse::<Endpoint>().map_err(wrong)?)?;
                *to = Some(line.parse().map_err(wrong)?);
            }
            Way::Dc(qp, to) => {
                *to = Some(qp.destination(&line.parse::<DcEndpoint>().map_err(wrong)?)?);
            }
        }
        if self.kind.reaches_memory() {
            let text = word(line, "memory=")?;
            let hex = |text: &str| u64::from_str_radix(text, 16).ok();
            let parts = text.split_once(':').and_then(|(addr, key)| Some((hex(addr)?, hex(key)?)));
            let (addr, rkey) = parts.ok_or_else(|| Trouble::Line(line.to_owned()))?;
            self.memory = Some(Remote { addr, rkey: rkey as u32 });
        }
        Ok(())
    }

    /// Sends so many messages of this size, and takes their completions.
    pub(crate) fn send(&mut self, first: u32, count: u32, size: usize) -> Result<(), Trouble> {
        let slab = self.pd.slab(size.max(1), count as usize)?;
        for message in first..first + count {
            let frame = self.filled(slab.take().ok_or(Trouble::Short)?, size, message);
            self.post(frame, message)?;
        }
        for _ in 0..count {
            self.done("send")?;
        }
        Ok(())
    }

    /// WRITE, READ and an atomic on the peer's memory. Its first word is a counter.
    pub(crate) fn reach(&mut self, round: u32, size: usize) -> Result<(), Trouble> {
        let Some(memory) = self.memory else { return Ok(()) };
        let bytes = Remote { addr: memory.addr + 8, ..memory };
        let slab = self.pd.slab(size.max(8), 2)?;
        let [written, read] =
            [slab.take().ok_or(Trouble::Short)?, slab.take().ok_or(Trouble::Short)?];
        let written = self.filled(written, size, round);
        macro_rules! operation {
            ($named:ident, $directed:ident, $frame:expr, $at:expr $(, $more:expr)?) => {
                match &mut self.way {
                    Way::Xrc(qp, Some(to)) => {
                        let mut batch = qp.batch();
                        batch.$directed(1, $frame, $at $(, $more)?, to)?;
                        batch.ring();
                    }
                    Way::Dc(qp, Some(to)) => {
                        let mut batch = qp.batch();
                        batch.$directed(1, $frame, $at $(, $more)?, to)?;
                        batch.ring();
                    }
                    Way::Rc(qp) => {
                        let mut batch = qp.batch();
                        batch.$named(1, $frame, $at $(, $more)?)?;
                        batch.ring();
                    }
                    _ => return Ok(()),
                }
            };
        }
        operation!(write, write_to, written, bytes);
        self.done("WRITE")?;
        let mut read = read;
        read.set_len(size);
        operation!(read, read_from, read, bytes);
        let mut read = self.done("READ")?.frame.ok_or(Trouble::Short)?;
        if let Some(at) = differs(&read[..size], round) {
            return Err(Trouble::Corrupt { kind: self.kind, what: "READ", message: round, at });
        }
        read.set_len(8);
        operation!(fetch_add, fetch_add_at, read, memory, 1);
        let counted = self.done("atomic")?.frame.ok_or(Trouble::Short)?;
        match counted[..8].iter().ne(&u64::from(round).to_ne_bytes()) {
            false => Ok(()),
            true => {
                let (kind, what) = (self.kind, "atomic");
                Err(Trouble::Corrupt { kind, what, message: round, at: 0 })
            }
        }
    }

    fn filled(&self, mut frame: Frame, size: usize, message: u32) -> Frame {
        frame.set_len(size);
        for (at, byte) in frame.iter_mut().enumerate() {
            *byte = pattern(at, message);
        }
        frame
    }

    /// SEND with the message's number as immediate data.
    fn post(&mut self, frame: Frame, message: u32) -> Result<(), Trouble> {
        macro_rules! sends {
            ($qp:expr, $to:expr) => {{
                let mut batch = $qp.batch();
                batch.send_imm_to(u64::from(message), frame, message, $to)?;
                batch.ring();
            }};
        }
        match &mut self.way {
            Way::Ud(qp, Some(to)) => sends!(qp, to),
            Way::Xrc(qp, Some(to)) => sends!(qp, to),
            Way::Dc(qp, Some(to)) => sends!(qp, to),
            Way::Rc(qp) => {
                let mut batch = qp.batch();
                batch.send_imm(u64::from(message), frame, message)?;
                batch.ring();
            }
            Way::Uc(qp) => {
                let mut batch = qp.batch();
                batch.send_imm(u64::from(message), frame, message)?;
                batch.ring();
            }
            Way::Ud(_, None) | Way::Xrc(_, None) | Way::Dc(_, None) => return Err(Trouble::Short),
        }
        Ok(())
    }

    /// The next completion, a success.
    fn done(&mut self, what: &'static str) -> Result<WorkCompletion, Trouble> {
        let start = Instant::now();
        let done = match self.cq.wait(LIMIT) {
            Err(_) if start.elapsed() >= LIMIT => {
                return Err(Trouble::Silent { kind: self.kind, what });
            }
            other => other?,
        };
        done.result?;
        Ok(done)
    }
}
