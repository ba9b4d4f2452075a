//! The side of a session that receives.

use std::time::{Duration, Instant};

use uverbs::dc::DcTarget;
use uverbs::xrc::{ForXrc, XrcTarget};
use uverbs::{
    Any, CompletionQueue, Context, DatagramEndpoint, Device, Endpoint, ExposedMemory,
    ProtectionDomain, QueuePair, SharedReceiveQueue, Slab, Uc, Ud,
};

use crate::kind::Kind;
use crate::sender::{LIMIT, differs, local};
use crate::trouble::Trouble;

/// How long the last messages of an unreliable transport may take.
const LATE: Duration = Duration::from_millis(200);

/// Object that takes messages.
enum Way {
    Rc(QueuePair),
    Uc(QueuePair<Any, Uc>),
    Ud(QueuePair<Any, Ud>),
    Srq { srq: SharedReceiveQueue, _qp: Box<QueuePair> },
    Xrc { srq: SharedReceiveQueue<Any, ForXrc>, _target: XrcTarget },
    Dc { srq: SharedReceiveQueue, _target: DcTarget },
}

/// See the [module](self).
pub(crate) struct Receiver {
    kind: Kind,
    way: Way,
    cq: CompletionQueue,
    memory: ExposedMemory,
    slab: Slab,
    size: usize,
}

impl Receiver {
    /// Creates a receiver of `count` messages of `size` bytes at a time from the sender of this
    /// line, and the line that tells the sender of it.
    pub(crate) fn new(
        device: &Device,
        kind: Kind,
        (count, size): (u32, usize),
        line: &str,
    ) -> Result<(Self, String), Trouble> {
        let context = device.open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(64)?;
        let (way, mut text) = Way::new((&context, &pd, &cq), kind, line)?;
        let slab = pd.slab(kind.head() + size.max(1), count as usize)?;
        let memory = pd.expose(8 + size.next_multiple_of(8), local().access)?;
        let at = memory.remote(0);
        text.push_str(&format!(" memory={:x}:{:x}", at.addr, at.rkey));
        Ok((Self { kind, way, cq, memory, slab, size }, text))
    }

    /// Posts receives, as many as there are frames.
    pub(crate) fn expect(&mut self) -> Result<(), Trouble> {
        while let Some(frame) = self.slab.take() {
            match &mut self.way {
                Way::Rc(qp) => qp.post_recv(1, frame)?,
                Way::Uc(qp) => qp.post_recv(1, frame)?,
                Way::Ud(qp) => qp.post_recv(1, frame)?,
                Way::Srq { srq, .. } | Way::Dc { srq, .. } => srq.post(1, frame)?,
                Way::Xrc { srq, .. } => srq.post(1, frame)?,
            }
        }
        Ok(())
    }

    /// Takes the expected messages, in turn. Messages of an unreliable transport may be missing:
    /// returns their number.
    pub(crate) fn take(&mut self, first: u32) -> Result<u32, Trouble> {
        let (kind, end) = (self.kind, first + self.slab.count());
        let limit = if kind.is_reliable() { LIMIT } else { LATE };
        let mut next = first;
        while next < end {
            let start = Instant::now();
            let done = match self.cq.wait(limit) {
                Err(_) if start.elapsed() >= limit && kind.is_reliable() => {
                    return Err(Trouble::Silent { kind, what: "message" });
                }
                Err(_) if start.elapsed() >= limit => return Ok(end - next),
                other => other?,
            };
            done.result?;
            let message = done.immediate.unwrap_or(u32::MAX);
            let wrong = |at| Trouble::Corrupt { kind, what: "message", message, at };
            // A message that is late belongs to the round before: its receive is used up all the
            // same.
            if !kind.is_reliable() && message < first {
                continue;
            }
            let skipped = message.checked_sub(next).ok_or(wrong(0))?;
            if message >= end || (skipped > 0 && kind.is_reliable()) {
                return Err(wrong(0));
            }
            next = message + 1;
            let frame = done.frame.ok_or(wrong(0))?;
            let head = kind.head();
            let len = done.byte_len as usize;
            if len != head + self.size {
                return Err(wrong(len));
            }
            if let Some(at) = differs(&frame[head..len], message) {
                return Err(wrong(at));
            }
        }
        Ok(0)
    }

    /// Checks that the word that the peer counts in has this value.
    pub(crate) fn counted(&self, rounds: u32) -> Result<(), Trouble> {
        let mut word = [0; 8];
        self.memory.read(0, &mut word)?;
        match self.kind.reaches_memory() && word != u64::from(rounds).to_ne_bytes() {
            false => Ok(()),
            true => {
                let (kind, what) = (self.kind, "counter");
                Err(Trouble::Corrupt { kind, what, message: rounds, at: 0 })
            }
        }
    }
}

impl Way {
    fn new(
        (context, pd, cq): (&Context, &ProtectionDomain, &CompletionQueue),
        kind: Kind,
        line: &str,
    ) -> Result<(Self, String), Trouble> {
        let wrong = |_| Trouble::Line(line.to_owned());
        let local = local();
        let queues = || context.queue_pair(pd, cq).max_send_wr(1).max_recv_wr(32);
        let shared = || context.shared_receive_queue(pd).max_wr(32);
        Ok(match kind {
            Kind::Rc | Kind::Stream => {
                let mut qp = queues().build()?;
                let line_back = qp.prepare(&local)?.to_string();
                qp.connect(&line.parse::<Endpoint>().map_err(wrong)?)?;
                (Self::Rc(qp), line_back)
            }
            Kind::Uc => {
                let mut qp = queues().uc().build()?;
                let line_back = qp.prepare(&local)?.to_string();
                qp.connect(&line.parse::<Endpoint>().map_err(wrong)?)?;
                (Self::Uc(qp), line_back)
            }
            Kind::Ud => {
                let mut qp = queues().ud().build()?;
                line.parse::<DatagramEndpoint>().map_err(wrong)?;
                let line_back = qp.bring_up(&local)?.to_string();
                (Self::Ud(qp), line_back)
            }
            Kind::Srq => {
                let srq = shared().build()?;
                let mut qp = queues().max_recv_wr(0).shared_receives(&srq).build()?;
                let line_back = qp.prepare(&local)?.to_string();
                qp.connect(&line.parse::<Endpoint>().map_err(wrong)?)?;
                (Self::Srq { srq, _qp: Box::new(qp) }, line_back)
            }
            Kind::Xrc => {
                let domain = context.xrc_domain()?;
                let srq = shared().xrc(&domain, cq).build()?;
                let mut target = context.xrc_target(&domain)?;
                let here = target.prepare(&local)?;
                target.connect(&line.parse::<Endpoint>().map_err(wrong)?)?;
                let line_back = format!("{here} {}", srq.remote());
                (Self::Xrc { srq, _target: target }, line_back)
            }
            Kind::Dc => {
                let srq = shared().build()?;
                let mut target = context.dc_target(pd, cq, &srq, 0xdc)?;
                let here = target.bring_up(&local)?;
                (Self::Dc { srq, _target: target }, here.to_string())
            }
        })
    }
}
