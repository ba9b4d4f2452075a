//! A side of a ping-pong with another process: queue pair, buffers, messages.
//!
//! As in the C program, a side sends once its last message completed and the peer's has arrived.
//! The client sends first. Receives are posted again when one is left
//! (`rc_pingpong.c:parse_single_wc`). A received message is sent back unchanged.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uverbs::any_transport::{AnyEndpoint, AnyQueuePair, AnyReceives};
use uverbs::attr::Ece;
use uverbs::xrc::RemoteSrq;
use uverbs::{
    AccessFlags, Completed, CompletionQueue, DatagramEndpoint, Device, Endpoint, Frame, Local, Mtu,
    PostError, RnrTimer, WorkCompletion,
};

use super::address::Address;
use super::exchange::Way;
use crate::base::error::Error;
use crate::base::sleep::Sleep;
use crate::link::verify::{Mismatch, Who};
use crate::perf::side::{queue_pair, queues, wanted};
use crate::pingpong::config::{Config, Remote, Role};
use crate::pingpong::side;

/// Fill byte of the C program's buffer.
const FILL: u8 = 0x7b;
/// First byte of each page of the C program, with its `-c`.
const PAGE_START: u8 = 0;

/// Q_Key of the C program's datagrams (`ud_pingpong.c:pp_init_ctx`).
const QKEY: u32 = 0x1111_1111;

/// Work request ids.
const RECV: u64 = 1;
const SEND: u64 = 2;

/// Frames in addition to the posted receives: one in flight, one just received.
const SPARE: u32 = 2;

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Number of messages in each direction.
    pub(super) iters: u64,
    /// Time from before the first message until the last was sent and received.
    pub(super) time: Duration,
    /// Ctrl-C ended the run early.
    pub(super) interrupted: bool,
}

/// A side.
pub(super) struct Session<'a> {
    pub(super) config: &'a Config,
    pub(super) remote: &'a Remote,
    /// Set by Ctrl-C.
    pub(super) stop: &'a AtomicBool,
    device: String,
    qp: AnyQueuePair,
    shared: AnyReceives,
    /// Address of this side's queue pair, for the peer.
    here: AnyEndpoint,
    cq: CompletionQueue,
    /// MTU of a connection.
    mtu: Option<Mtu>,
    /// Bytes of each frame before the message.
    head: usize,
    address: Address,
    /// Unused frames.
    free: Vec<Frame>,
    /// The next message to send.
    outgoing: Option<Frame>,
    receives: u32,
    sent: u64,
    received: u64,
    page: usize,
    sleep: Sleep,
}

impl<'a> Session<'a> {
    /// Creates a queue pair in INIT, with posted receives.
    pub(super) fn new(
        device: &Device,
        config: &'a Config,
        remote: &'a Remote,
        stop: &'a AtomicBool,
    ) -> Result<Self, Error> {
        let context = device.open()?;
        let (shape, size) = (side::shape(config), config.size);
        let (gid_index, _) = wanted(&shape, size).find(&context, false)?;
        let pd = context.alloc_pd()?;
        let (cq, shared) = queues(&context, &pd, &shape, size)?;
        let mut qp = queue_pair(&context, &pd, (&cq, &shared), &shape, size)?;
        let head = config.connection.recv_offset();
        let slab = pd.slab(head + config.size as usize, (config.rx_depth + SPARE) as usize)?;
        let free = std::iter::from_fn(|| slab.take()).collect();
        let local = Local {
            access: AccessFlags::empty(),
            // Both sides need equal values, and the C program uses 1.
            rd_atomic: 1,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::DEFAULT,
            service_level: remote.service_level,
            qkey: QKEY,
            port: config.port,
            gid_index,
            mtu: config.mtu,
            ..Local::default()
        };
        let here = qp.bring_up(&local)?;
        let mtu = here.mtu();
        let (lid, qpn, psn, gid) = (here.lid(), here.qpn(), here.psn().unwrap_or(0), here.gid());
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
        let page = page.ok().flatten().and_then(|size| usize::try_from(size).ok()).unwrap_or(4096);
        let mut session = Self {
            config,
            remote,
            stop,
            device: device.name().to_owned(),
            qp,
            shared,
            here,
            cq,
            mtu,
            head,
            address: Address { lid, qpn, psn, gid },
            free,
            outgoing: None,
            receives: 0,
            sent: 0,
            received: 0,
            page,
            sleep: Sleep::default(),
        };
        session.fill_receives()?;
        Ok(session)
    }

    /// Address of the queue pair.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// XRC receivers.
    pub(super) fn way(&self) -> Option<Way> {
        match &self.here {
            AnyEndpoint::Xrc { target, srq, .. } => Some(Way { target: *target, srqn: srq.srqn() }),
            _ => None,
        }
    }

    /// Name of the device.
    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// Connects the queue pair. The C program does not send its MTU: both sides are given the same.
    pub(super) fn connect(&mut self, peer: &Address, way: Option<Way>) -> Result<(), Error> {
        let &Address { lid, qpn, psn, gid } = peer;
        let endpoint =
            |mtu| Endpoint { lid, qpn, psn, mtu, rd_atomic: 1, gid, ece: Ece::default() };
        let reach = match (self.mtu, way) {
            (Some(mtu), Some(Way { target, srqn })) => {
                AnyEndpoint::Xrc { initiator: endpoint(mtu), target, srq: RemoteSrq::new(srqn)? }
            }
            (Some(mtu), None) => AnyEndpoint::Connected(endpoint(mtu)),
            (None, _) => AnyEndpoint::Datagram(DatagramEndpoint { lid, qpn, qkey: QKEY, gid }),
        };
        self.qp.connect(&reach).map_err(|error| match error {
            uverbs::Error::MissingAttribute { .. } => Error::Peer(
                "the peer told no GID, without which RoCE has no route: start it with --gid-idx"
                    .to_owned(),
            ),
            other => Error::Verb(other),
        })
    }

    /// Exchanges all messages.
    pub(super) fn run(&mut self) -> Result<Outcome, Error> {
        let started = Instant::now();
        let (mut send_is_out, mut answer_is_due) = (false, true);
        if self.is_client() {
            let mut first = self.free.pop().ok_or_else(|| self.wrong("no frame for a message"))?;
            first.set_len(self.head + self.config.size as usize);
            first.fill(FILL);
            if self.remote.check {
                first
                    .iter_mut()
                    .skip(self.head)
                    .step_by(self.page)
                    .for_each(|byte| *byte = PAGE_START);
            }
            self.outgoing = Some(first);
            self.send()?;
            send_is_out = true;
        }
        let iters = self.config.iters;
        let mut idle_since = None;
        while self.sent < iters || self.received < iters {
            let mut completions: [WorkCompletion; 2] = Default::default();
            let count = self.cq.poll_into(&mut completions);
            // A message out of turn is no progress: a peer that sends without end must not keep
            // this side.
            let mut progress = false;
            for completion in completions.into_iter().take(count) {
                if completion.is_recv {
                    self.arrived(completion)?;
                    progress |= answer_is_due;
                    answer_is_due = false;
                } else {
                    self.gone(completion)?;
                    progress = true;
                    send_is_out = false;
                }
                if self.sent < iters && !send_is_out && !answer_is_due {
                    self.send()?;
                    (send_is_out, answer_is_due) = (true, true);
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if progress {
                idle_since = None;
            } else {
                self.idle(&mut idle_since, answer_is_due)?;
            }
        }
        let both = self.sent.min(self.received);
        Ok(Outcome { iters: both, time: started.elapsed(), interrupted: both < iters })
    }

    fn is_client(&self) -> bool {
        self.remote.role != Role::Server
    }

    fn peer(&self) -> Who {
        if self.is_client() { Who::Server } else { Who::Client }
    }

    /// Current iteration, from 1.
    fn iteration(&self) -> u64 {
        self.received + 1
    }

    #[cold]
    fn wrong(&self, what: &str) -> Error {
        Error::Unexpected { iteration: self.iteration(), what: what.to_owned() }
    }

    fn idle(
        &mut self,
        since: &mut Option<(Instant, u32)>,
        answer_is_due: bool,
    ) -> Result<(), Error> {
        let (since, polls) = since.get_or_insert_with(|| (Instant::now(), 0));
        *polls = polls.wrapping_add(1);
        if self.config.events || polls.is_multiple_of(64) {
            let waited = since.elapsed();
            if waited >= self.config.timeout {
                let what = match self.peer() {
                    _ if !answer_is_due => "an acknowledgement",
                    Who::Client => "the client's message",
                    Who::Server => "the server's message",
                };
                return Err(Error::Silence { iteration: self.iteration(), what, waited });
            }
            if self.config.events {
                return Ok(self.sleep.idle([&mut self.cq])?);
            }
            // The peer may need this processor.
            std::thread::yield_now();
        } else {
            spin_loop();
        }
        Ok(())
    }

    /// Handles a received message.
    fn arrived(&mut self, completion: WorkCompletion) -> Result<(), Error> {
        let (iteration, from) = (self.iteration(), self.peer());
        let kind = completion.result.map_err(|failure| Error::Completion {
            iteration,
            what: format!("the receive of the {from}'s message"),
            failure,
        })?;
        let frame = completion.frame.ok_or_else(|| self.wrong("a receive without its buffer"))?;
        let size = self.config.size;
        let len = completion.byte_len.saturating_sub(self.head as u32);
        if kind != Completed::Recv || len != size {
            let what = format!(
                "the {from} sent {kind:?} of {len} bytes, not a message of {size} (--size must be \
                 the same on both sides)"
            );
            return Err(Error::Unexpected { iteration, what });
        }
        if self.remote.check {
            let mut starts = frame.iter().skip(self.head).enumerate().step_by(self.page);
            if let Some((offset, &got)) = starts.find(|(_, byte)| **byte != PAGE_START) {
                return Err(Mismatch { iteration, from, offset, wanted: PAGE_START, got }.into());
            }
        }
        self.receives -= 1;
        self.received += 1;
        // A peer that sends out of turn has left one here already.
        self.free.extend(self.outgoing.replace(frame));
        if self.receives <= 1 {
            self.fill_receives()?;
        }
        Ok(())
    }

    /// Handles the completion of a send.
    fn gone(&mut self, completion: WorkCompletion) -> Result<(), Error> {
        let iteration = self.iteration();
        completion.result.map_err(|failure| Error::Completion {
            iteration,
            what: format!("the message to the {}", self.peer()),
            failure,
        })?;
        self.sent += 1;
        self.free.extend(completion.frame);
        Ok(())
    }

    fn fill_receives(&mut self) -> Result<(), Error> {
        while self.receives < self.config.rx_depth {
            let frame = self.free.pop().ok_or_else(|| self.wrong("no frame for a receive"))?;
            let iteration = self.iteration();
            let posted = self.shared.post(self.qp.recv_queue(), RECV, frame);
            posted.map_err(|rejected| Error::Post {
                iteration,
                what: "a receive".to_owned(),
                error: rejected.error,
            })?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Sends the next message, if it is due.
    fn send(&mut self) -> Result<(), Error> {
        let frame = self.outgoing.take().ok_or_else(|| self.wrong("nothing to send"))?;
        let mut batch = self.qp.batch();
        let posted = if self.config.size <= self.config.inline {
            let posted = batch.send_inline(SEND, &frame[self.head..]);
            self.free.push(frame);
            posted
        } else {
            batch.send(SEND, frame.part(self.head..)).map_err(PostError::from)
        };
        match posted {
            Ok(()) => {
                batch.ring();
                Ok(())
            }
            Err(error) => Err(Error::Post {
                iteration: self.received + 1,
                what: "a message".to_owned(),
                error,
            }),
        }
    }
}
