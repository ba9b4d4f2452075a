//! The two sides: connected queue pairs, their buffers, and polled completions that are not handled
//! yet.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Serialize;
use uverbs::raw::SendOp;
use uverbs::{
    AccessFlags, Completed, CompletionQueue, Context, Device, ExposedMemory, Frame, Local,
    PostError, ProtectionDomain, Remote, RnrTimer, Slab,
};

use super::config::Config;
use crate::base::error::{BecauseOf, Error};
use crate::base::select::Two;
use crate::base::setup::{Place, Wanted, ack_timeout};
use crate::base::sleep::Sleep;
use crate::link::doorbell::Rings;
use crate::link::receives::Receives;
use crate::link::transport::{Connection, Link, Reach};
use crate::link::verify::{Pattern, Who};

/// Empty polls between two looks at the clock and at the other side's completions.
const PATIENCE: u32 = 64;
/// Maximum outstanding sends of a side, which uses one.
const SENDS: u32 = 4;

/// A side.
pub(super) struct Side {
    pub(super) who: Who,
    pub(super) qp: Link,
    receives: Receives,
    connection: Connection,
    cq: CompletionQueue,
    outgoing: Outgoing,
    /// Memory that the peer writes or reads; the peer's [`Self::peer`] is its address.
    memory: Option<ExposedMemory>,
    peer: Option<Remote>,
    /// Completed receive, until it is taken.
    arrived: Option<Arrived>,
    /// Completion of the last send, from its poll to the next post.
    sent: Option<Sent>,
    copy: Vec<u8>,
    pub(super) about: About,
}

/// Buffer of the next message.
enum Outgoing {
    Frame(Frame),
    Inline(Vec<u8>),
    /// In flight; the completion returns it.
    Away,
}

/// A message that was received.
pub(super) struct Arrived {
    pub(super) kind: Completed,
    pub(super) len: u32,
    pub(super) immediate: Option<u32>,
    pub(super) frame: Option<Frame>,
}

/// A send that completed.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) kind: Completed,
    pub(super) len: u32,
}

/// Description of a side in a report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct About {
    #[serde(flatten)]
    pub(super) place: Place,
    pub(super) lid: u16,
    pub(super) qpn: u32,
    pub(super) psn: u32,
    /// Granted inline bytes.
    pub(super) max_inline_data: u32,
    pub(super) rings: Rings,
}

/// A side before it is connected.
struct Prepared {
    side: Side,
    receives: Option<Slab>,
    endpoint: Reach,
}

impl Prepared {
    fn new(who: Who, device: &Device, embedded: bool, config: &Config) -> Result<Self, Error> {
        let context = device.open()?;
        let (gid_index, mut place) = wanted(config).find(&context, embedded)?;
        let pd = context.alloc_pd()?;
        let (cq, shared, mut qp) = make(&context, &pd, config)?;
        let size = config.size as usize;
        let outgoing = if config.size <= config.inline {
            Outgoing::Inline(vec![0; size])
        } else {
            pd.slab(size, 1)?.take().map_or(Outgoing::Away, Outgoing::Frame)
        };
        let receives = if config.opcode.needs_receives() {
            // With RDMA WRITE, the buffers of receives stay unused.
            let len =
                if config.opcode.needs_memory() { 8 } else { size + config.connection.head() };
            Some(pd.slab(len, config.rx_depth as usize)?)
        } else {
            None
        };
        let rights =
            AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
        let memory =
            if config.opcode.needs_memory() { Some(pd.expose(size, rights)?) } else { None };
        let attr = context.query_device()?;
        let rd_atomic = attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom).clamp(1, 16) as u8;
        let local = Local {
            rd_atomic,
            timeout: ack_timeout(embedded),
            access: rights,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::DEFAULT,
            ..Local::default()
        };
        let endpoint = prepare(&mut qp, config, gid_index, local)?;
        if let Some(mtu) = endpoint.mtu() {
            place.mtu = mtu.bytes();
        }
        let about = About {
            place,
            lid: endpoint.lid(),
            qpn: endpoint.qpn(),
            psn: endpoint.psn(),
            max_inline_data: qp.cap().max_inline_data,
            rings: Rings::of(&context, &pd, std::iter::once(qp.sq()))?,
        };
        let side = Side {
            who,
            qp,
            receives: shared,
            connection: config.connection,
            cq,
            outgoing,
            memory,
            peer: None,
            arrived: None,
            sent: None,
            copy: vec![0; size],
            about,
        };
        Ok(Self { side, receives, endpoint })
    }

    fn connect(self, peer: &Reach, memory: Option<Remote>) -> Result<Side, Error> {
        let Self { mut side, receives, .. } = self;
        side.peer = memory;
        // Posted before the connection: the peer's first message must find a receive.
        let mut id = 0;
        while let Some(frame) = receives.as_ref().and_then(Slab::take) {
            side.receive(id, frame)?;
            id += 1;
        }
        side.qp.connect(peer)?;
        Ok(side)
    }
}

/// Creates a queue pair for the options, and its completion queue.
pub(super) fn make(
    context: &Context,
    pd: &ProtectionDomain,
    config: &Config,
) -> Result<(CompletionQueue, Receives, Link), Error> {
    let completions = config.connection.completions(config.rx_depth).saturating_add(SENDS);
    let mut cq = context.completion_queue(completions);
    if config.events {
        cq = cq.channel(&context.create_comp_channel()?);
    }
    let cq = cq.build().because_of("--rx-depth", config.rx_depth)?;
    let sort = (config.connection, config.use_srq);
    let receives = Receives::new(context, pd, &cq, sort, config.rx_depth);
    let receives = receives.because_of("--rx-depth", config.rx_depth)?;
    let qp = context
        .queue_pair(pd, &cq)
        .max_send_wr(SENDS)
        .max_recv_wr(config.rx_depth)
        .max_inline_data(config.inline)
        .doorbell(config.doorbell.mode());
    match Link::build(qp, config.connection, &receives, &cq) {
        Ok(qp) => Ok((cq, receives, qp)),
        Err(error @ uverbs::Error::Limit { what, .. }) if what.contains("inline") => {
            Err(Error::Refused { option: "--inline", value: config.inline.to_string(), error })
        }
        // All other requested sizes are small and fixed.
        Err(error @ uverbs::Error::Limit { .. }) => {
            Err(Error::Refused { option: "--rx-depth", value: config.rx_depth.to_string(), error })
        }
        Err(error) => Err(error.into()),
    }
}

/// Requirements of the options on the device.
pub(super) fn wanted(config: &Config) -> Wanted {
    Wanted {
        port: config.port,
        gid_index: config.gid_index,
        mtu: config.mtu,
        size: config.size,
        atomics: config.opcode.is_atomic(),
        connection: config.connection,
    }
}

/// Moves the queue pair to INIT, with the port, GID and MTU of the options.
pub(super) fn prepare(
    qp: &mut Link,
    config: &Config,
    gid_index: Option<u32>,
    local: Local,
) -> Result<Reach, Error> {
    Ok(qp.prepare(&Local { port: config.port, gid_index, mtu: config.mtu, ..local })?)
}

impl Side {
    /// Address and key of the peer's memory.
    pub(super) fn remote(&self) -> Result<Remote, Error> {
        self.peer.ok_or_else(|| self.absent("the peer's memory", 0))
    }

    /// Writes the next message into its send buffer.
    pub(super) fn fill(&mut self, pattern: &Pattern, iteration: u64) -> Result<(), Error> {
        match &mut self.outgoing {
            Outgoing::Frame(frame) => pattern.fill(frame),
            Outgoing::Inline(bytes) => pattern.fill(bytes),
            Outgoing::Away => return Err(self.absent("the send buffer", iteration)),
        }
        Ok(())
    }

    /// Writes a message into the memory that the peer reads.
    pub(super) fn expose(&mut self, pattern: &Pattern, iteration: u64) -> Result<(), Error> {
        pattern.fill(&mut self.copy);
        let Some(memory) = &self.memory else { return Err(self.absent("the memory", iteration)) };
        Ok(memory.write(0, &self.copy)?)
    }

    /// The memory that the peer writes to.
    pub(super) fn memory(&self, iteration: u64) -> Result<&ExposedMemory, Error> {
        self.memory.as_ref().ok_or_else(|| self.absent("the memory", iteration))
    }

    /// A copy of that memory.
    pub(super) fn copied(&mut self, iteration: u64) -> Result<&[u8], Error> {
        let Some(memory) = &self.memory else { return Err(self.absent("the memory", iteration)) };
        memory.read(0, &mut self.copy)?;
        Ok(&self.copy)
    }

    /// Last byte of the memory, which an RDMA WRITE changes last.
    pub(super) fn last_byte(&self, iteration: u64) -> Result<u8, Error> {
        let memory = self.memory(iteration)?;
        let mut last = [0];
        memory.read(memory.len().saturating_sub(1), &mut last)?;
        Ok(last[0])
    }

    /// Result of an RDMA READ or an atomic.
    pub(super) fn answer(&self, iteration: u64) -> Result<&[u8], Error> {
        match &self.outgoing {
            Outgoing::Frame(frame) => Ok(frame),
            _ => Err(self.absent("the answer", iteration)),
        }
    }

    /// Posts a work request with the current message, and rings.
    pub(super) fn post(&mut self, iteration: u64, op: SendOp) -> Result<(), Error> {
        self.sent = None;
        let mut batch = self.qp.batch();
        let posted = if let Outgoing::Inline(bytes) = &self.outgoing {
            batch.inline(iteration, op, bytes)
        } else if let Outgoing::Frame(frame) = std::mem::replace(&mut self.outgoing, Outgoing::Away)
        {
            batch.frame(iteration, op, frame, 0)
        } else {
            Err(PostError::Full)
        };
        let who = self.who;
        posted.map_err(|error| Error::Post {
            iteration,
            what: format!("the {who}'s message"),
            error,
        })?;
        batch.ring();
        Ok(())
    }

    /// Posts a receive.
    pub(super) fn receive(&mut self, iteration: u64, frame: Frame) -> Result<(), Error> {
        let posted = self.receives.post(self.qp.recv_queue(), iteration, frame);
        posted.map_err(|rejected| Error::Post {
            iteration,
            what: format!("a receive of the {}", self.who),
            error: rejected.error,
        })
    }

    /// Polls, and notes the completions.
    pub(super) fn poll(&mut self, iteration: u64) -> Result<(), Error> {
        let head = self.connection.head() as u32;
        let mut burst = self.cq.poll(8);
        while let Some(mut completion) = burst.next() {
            let receive = completion.is_recv();
            let kind = completion.result().map_err(|failure| {
                let what = if receive { "receive" } else { "message" };
                Error::Completion { iteration, what: format!("the {}'s {what}", self.who), failure }
            })?;
            let frame = completion.take_frame();
            let len = completion.byte_len();
            if !receive {
                self.sent = Some(Sent { kind, len });
                if let Some(frame) = frame {
                    self.outgoing = Outgoing::Frame(frame);
                }
            } else if self.arrived.is_some() {
                let what = format!("the {} received a message that nobody sent", self.who);
                return Err(Error::Unexpected { iteration, what });
            } else {
                let immediate = completion.immediate();
                let len = len.saturating_sub(head);
                self.arrived = Some(Arrived { kind, len, immediate, frame });
            }
        }
        Ok(())
    }

    pub(super) fn has_arrived(&self) -> bool {
        self.arrived.is_some()
    }

    pub(super) fn take_arrived(&mut self, iteration: u64) -> Result<Arrived, Error> {
        self.arrived.take().ok_or_else(|| self.absent("the message", iteration))
    }

    pub(super) fn sent(&self) -> Option<Sent> {
        self.sent
    }

    /// Error of this program: a value is missing that the order of calls guarantees. Reported
    /// instead of a panic.
    #[cold]
    fn absent(&self, what: &str, iteration: u64) -> Error {
        Error::Unexpected { iteration, what: format!("{what} of the {} is not there", self.who) }
    }
}

/// Both sides.
pub(super) struct Pair<'a> {
    pub(super) client: Side,
    pub(super) server: Side,
    embedded: bool,
    /// Sleeps instead of polling.
    events: bool,
    timeout: std::time::Duration,
    /// Set by Ctrl-C.
    stop: &'a AtomicBool,
}

impl<'a> Pair<'a> {
    /// Opens the devices, creates both queue pairs, and connects them.
    pub(super) fn connect(
        devices: &Two,
        config: &Config,
        stop: &'a AtomicBool,
    ) -> Result<Self, Error> {
        let Two { client, server, embedded } = devices;
        let client = Prepared::new(Who::Client, client, *embedded, config)?;
        let server = Prepared::new(Who::Server, server, *embedded, config)?;
        let endpoints = (client.endpoint, server.endpoint);
        let remote =
            |prepared: &Prepared| prepared.side.memory.as_ref().map(|memory| memory.remote(0));
        let memories = (remote(&client), remote(&server));
        Ok(Self {
            server: server.connect(&endpoints.0, memories.0)?,
            client: client.connect(&endpoints.1, memories.1)?,
            embedded: *embedded,
            events: config.events,
            timeout: config.timeout,
            stop,
        })
    }

    pub(super) fn side(&mut self, who: Who) -> &mut Side {
        match who {
            Who::Client => &mut self.client,
            Who::Server => &mut self.server,
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Polls until `done`, within the time limit of a message. Returns `false` after Ctrl-C.
    #[inline]
    pub(super) fn wait(
        &mut self,
        iteration: u64,
        what: &'static str,
        mut done: impl FnMut(&mut Self) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let mut idle = 0u32;
        let mut since = None;
        let mut sleep = Sleep::default();
        while !done(self)? {
            idle = idle.wrapping_add(1);
            if self.events || idle.is_multiple_of(PATIENCE) {
                // The reason may be in the other side's completions.
                self.client.poll(iteration)?;
                self.server.poll(iteration)?;
                if self.is_stopped() {
                    return Ok(false);
                }
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                if waited >= self.timeout {
                    return Err(Error::Silence { iteration, what, waited });
                }
            }
            match self.embedded {
                _ if self.events => sleep.idle([&mut self.client.cq, &mut self.server.cq])?,
                // A software HCA may need this processor; a real device does not.
                true => {
                    self.client.cq.give_way();
                    self.server.cq.give_way();
                }
                false => spin_loop(),
            }
        }
        Ok(true)
    }
}
