//! One end: its queue pairs, the memory they send from and to, and what is posted and polled.
//!
//! # Safety
//!
//! Posts are raw, since all messages of a queue pair go from one place in memory, as perftest's do, and a frame is in one post
//! at a time. The contract of raw posts is that the memory stays registered and is left alone until the completion. All of it is
//! [`ExposedMemory`] that the side owns and that is dropped after its queue pairs; the program reaches it by atomic accesses
//! only, so that even a message that is overwritten on its way is a wrong measurement and no undefined behaviour.
#![allow(unsafe_code, reason = "posts by address and key")]

use std::sync::atomic::{Ordering, fence};

use serde::{Deserialize, Serialize};
use uverbs::{
    AccessFlags, AckTimeout, Completed, CompletionQueue, Context, Data, Device, Endpoint,
    ExposedMemory, Local, Mtu, PortState, PostError, QueuePair, Remote, SendOp, Sge, Wr,
};

use super::options::{Operation, Shape, Test};
use crate::error::{BecauseOf, Error};
use crate::pingpong::verify::{Pattern, Who};

/// Completions that one poll takes.
const BURST: usize = 64;
/// Messages of two queue pairs share no cache line.
const ALIGN: usize = 64;

/// One end.
pub(super) struct Side {
    // The queue pairs go before the memory.
    lines: Vec<Line>,
    cq: CompletionQueue,
    memory: Memory,
    pub(super) who: Who,
    shape: Shape,
    size: u32,
    /// The message, where it goes inline.
    inline: Option<Vec<u8>>,
    copy: Vec<u8>,
    /// lat: the one message under way.
    turn: Turn,
    /// bw: messages received.
    pub(super) received: u64,
    pub(super) about: About,
}

/// A queue pair.
struct Line {
    qp: QueuePair,
    number: u32,
    local: Sge,
    remote: Remote,
    /// Left to post.
    todo: u64,
    /// Posted, ever.
    posted: u64,
    outstanding: u32,
    /// Of those the last ones that no completion will tell of.
    silent: u32,
}

/// A message has a place for each queue pair, in each of these.
struct Memory {
    stride: usize,
    /// Sent from here; answers come here.
    outgoing: ExposedMemory,
    /// The peer's place: what it writes, reads, or adds to.
    incoming: ExposedMemory,
    /// Places for SENDs, as many to a queue pair as it has receives.
    receives: Option<ExposedMemory>,
}

/// lat: what is known of the one message under way.
#[derive(Default)]
struct Turn {
    /// Own work request completed.
    sent: bool,
    /// The receive that the peer's message took, when it has been polled: perhaps before anybody waits for it.
    arrived: Option<u32>,
    /// The same, when it has been seen.
    held: Option<u32>,
}

/// What the peer must know of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hand {
    pub(super) endpoint: Endpoint,
    pub(super) memory: Remote,
}

/// What a record says of an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) end: String,
    pub(super) device: String,
    pub(super) driver: String,
    pub(super) firmware: String,
    pub(super) embedded: bool,
    pub(super) port: u8,
    pub(super) link_layer: String,
    pub(super) gid: Option<String>,
    pub(super) gid_type: Option<String>,
    /// Bytes.
    pub(super) mtu: Option<u32>,
    /// Of the first queue pair, as the device granted it.
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_inline_data: u32,
}

/// A side before it is connected.
pub(super) struct Prepared {
    side: Side,
    pub(super) hands: Vec<Hand>,
}

impl Prepared {
    pub(super) fn new(
        who: Who,
        device: &Device,
        embedded: bool,
        shape: &Shape,
        size: u32,
    ) -> Result<Self, Error> {
        let context = device.open()?;
        let about = about(&context, who, embedded, shape, size)?;
        let receives = shape.receives(size);
        let pd = context.alloc_pd()?;
        let each = shape.tx_depth.saturating_add(receives);
        let (option, value) = if shape.qps > 1 {
            ("--qps", shape.qps)
        } else if receives > shape.tx_depth {
            ("--rx-depth", receives)
        } else {
            ("--tx-depth", shape.tx_depth)
        };
        let cq = context.create_cq(each.saturating_mul(shape.qps)).because_of(option, value)?;
        let stride = (size as usize).next_multiple_of(ALIGN);
        let lines = shape.qps as usize;
        let memory = Memory {
            stride,
            outgoing: pd.expose(stride * lines, AccessFlags::empty())?,
            incoming: pd.expose(stride * lines, rights(shape, who))?,
            receives: match shape.op {
                Operation::Send => {
                    Some(pd.expose(stride * lines * receives as usize, AccessFlags::empty())?)
                }
                _ => None,
            },
        };
        let inline = (size <= shape.inline).then(|| vec![0; size as usize]);
        let mut side = Side {
            lines: Vec::with_capacity(lines),
            cq,
            memory,
            who,
            shape: shape.clone(),
            size,
            inline,
            copy: vec![0; size as usize],
            turn: Turn::default(),
            received: 0,
            about,
        };
        let local = local(&context, shape)?;
        let mut hands = Vec::with_capacity(lines);
        for at in 0..lines {
            let qp = context
                .queue_pair(&pd, &side.cq)
                .max_send_wr(shape.tx_depth)
                .max_recv_wr(receives)
                .max_inline_data(shape.inline)
                .doorbell(shape.doorbell.mode())
                .build();
            let mut qp = qp.map_err(|error| blame(error, shape))?;
            let endpoint = qp.prepare(&local).because_of("--gid-index", shown(shape.gid_index))?;
            let remote = side.memory.incoming.remote(at * stride);
            hands.push(Hand { endpoint, memory: remote });
            side.lines.push(Line {
                qp,
                number: at as u32,
                local: side.memory.outgoing.sge(at * stride, size),
                remote: Remote { addr: 0, rkey: 0 },
                todo: 0,
                posted: 0,
                outstanding: 0,
                silent: 0,
            });
        }
        if let (Some(line), Some(hand)) = (side.lines.first(), hands.first()) {
            let cap = line.qp.cap();
            side.about.max_send_wr = cap.max_send_wr;
            side.about.max_recv_wr = cap.max_recv_wr;
            side.about.max_inline_data = cap.max_inline_data;
            side.about.mtu = hand.endpoint.mtu.bytes();
        }
        Ok(Self { side, hands })
    }

    /// Connects each queue pair with the peer's of the same number, which has as many.
    pub(super) fn connect(self, peers: &[Hand]) -> Result<Side, Error> {
        let Self { mut side, hands } = self;
        if peers.len() != hands.len() {
            let what = format!("the peer has {} queue pairs, not {}", peers.len(), hands.len());
            return Err(Error::Peer(what));
        }
        // Before the connection stands: the peer's first message must find a receive.
        let receives = side.shape.receives(side.size);
        for line in 0..side.lines.len() as u32 {
            for slot in 0..receives {
                side.receive(line, slot)?;
            }
        }
        for (line, peer) in side.lines.iter_mut().zip(peers) {
            line.remote = peer.memory;
            line.qp.connect(&peer.endpoint)?;
        }
        side.fill()?;
        Ok(side)
    }
}

impl Side {
    /// What is sent, and what the peer reads, before the first message.
    fn fill(&mut self) -> Result<(), Error> {
        if !self.shape.check || self.shape.op.is_atomic() {
            return Ok(());
        }
        for at in 0..self.lines.len() {
            Pattern::new(0, self.who).fill(&mut self.copy);
            self.memory.outgoing.write(at * self.memory.stride, &self.copy)?;
            if self.shape.op == Operation::Read {
                self.memory.incoming.write(at * self.memory.stride, &self.copy)?;
            }
            if let Some(inline) = &mut self.inline {
                inline.copy_from_slice(&self.copy);
            }
        }
        Ok(())
    }

    /// Posts a receive.
    fn receive(&mut self, line: u32, slot: u32) -> Result<(), Error> {
        let Some(memory) = &self.memory.receives else { return Ok(()) };
        let receives = self.shape.receives(self.size);
        let Some(to) = self.lines.get_mut(line as usize) else { return Ok(()) };
        let place = line as usize * receives as usize + slot as usize;
        let sge = memory.sge(place * self.memory.stride, self.size);
        let mut batch = to.qp.recv_batch();
        // SAFETY: the memory is the side's, dropped after its queue pairs, and nobody has a reference to it.
        let posted = unsafe { batch.post_raw(id(line, slot), &[sge]) };
        posted.map_err(|error| not_posted(self.who, "a receive", self.received, error))?;
        batch.ring();
        Ok(())
    }

    fn post_failed(&self, at: u64, error: PostError) -> Error {
        not_posted(self.who, "a message", at, error)
    }

    // Latency: one message at a time, on the first queue pair. Iterations count from 1.

    /// What can be done before the clock runs.
    pub(super) fn prepare(&mut self, iteration: u64) -> Result<(), Error> {
        self.turn.sent = false;
        let check = self.shape.check;
        match self.shape.op {
            Operation::Write | Operation::Send if check => {
                self.message(iteration, self.who).fill(&mut self.copy);
                match &mut self.inline {
                    Some(inline) => inline.copy_from_slice(&self.copy),
                    None => self.memory.outgoing.write(0, &self.copy)?,
                }
            }
            // The peer polls for the last byte.
            Operation::Write => match &mut self.inline {
                Some(inline) => {
                    if let Some(last) = inline.last_mut() {
                        *last = iteration as u8;
                    }
                }
                None => self.memory.outgoing.write(self.last(), &[iteration as u8])?,
            },
            Operation::Read | Operation::FetchAdd | Operation::CompareSwap if check => {
                // What the last one brought must not pass for this one's.
                self.copy.fill(0xee);
                self.memory.outgoing.write(0, &self.copy)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Posts the message, and rings.
    #[inline]
    pub(super) fn post(&mut self, iteration: u64) -> Result<(), Error> {
        let Some(line) = self.lines.first_mut() else { return Ok(()) };
        let op = operation(self.shape.op, line.remote, line.posted);
        let data = match &self.inline {
            Some(inline) => Data::Inline(inline),
            None => Data::One(line.local),
        };
        line.posted += 1;
        let mut batch = line.qp.batch();
        // SAFETY: the memory is the side's, dropped after its queue pairs, and nobody has a reference to it.
        let posted = unsafe { batch.raw().post(Wr::new(id(0, 1)), op, data) };
        match posted {
            Ok(()) => batch.ring(),
            Err(error) => return Err(self.post_failed(iteration, error)),
        }
        Ok(())
    }

    /// Whether what this side waits for is there: the peer's message, or for what is one-sided the answer.
    #[inline]
    pub(super) fn seen(&mut self, iteration: u64) -> Result<bool, Error> {
        match self.shape.op {
            Operation::Write => {
                let mut last = [0];
                self.memory.incoming.read(self.last(), &mut last)?;
                Ok(last[0] == iteration as u8)
            }
            Operation::Send => {
                self.look(iteration)?;
                self.turn.held = self.turn.arrived.take();
                Ok(self.turn.held.is_some())
            }
            _ => {
                self.look(iteration)?;
                Ok(self.turn.sent)
            }
        }
    }

    /// Whether this side's own message was acknowledged. Its memory is its own again then.
    #[inline]
    pub(super) fn acknowledged(&mut self, iteration: u64) -> Result<bool, Error> {
        if !self.turn.sent {
            self.look(iteration)?;
        }
        Ok(self.turn.sent)
    }

    /// Polls, for what there is or for why there is nothing.
    #[inline]
    pub(super) fn look(&mut self, iteration: u64) -> Result<(), Error> {
        let mut burst = self.cq.poll(4);
        while let Some(completion) = burst.next() {
            let kind = completion.result();
            let kind =
                kind.map_err(|failure| failed(self.who, completion.is_recv(), iteration, failure))?;
            if !completion.is_recv() {
                self.turn.sent = true;
            } else if self.turn.arrived.is_some() {
                let what = format!("the {} received a message that nobody sent", self.who);
                return Err(Error::Unexpected { iteration, what });
            } else if kind == Completed::Recv && completion.byte_len() == self.size {
                self.turn.arrived = Some((completion.id() >> 32) as u32);
            } else {
                let len = completion.byte_len();
                return Err(wrong_arrival(self.who, iteration, len, self.size));
            }
        }
        Ok(())
    }

    /// Compares what came with what was sent, where that was asked for.
    pub(super) fn verify(&mut self, iteration: u64) -> Result<(), Error> {
        if !self.shape.check {
            return Ok(());
        }
        // The message was seen by a relaxed load or by a completion; what is read of it is read after.
        fence(Ordering::Acquire);
        let stride = self.memory.stride;
        let (memory, at) = match self.shape.op {
            Operation::Write => (&self.memory.incoming, 0),
            Operation::Send => match (&self.memory.receives, self.turn.held) {
                (Some(receives), Some(slot)) => (receives, slot as usize * stride),
                _ => return Ok(()),
            },
            Operation::Read => (&self.memory.outgoing, 0),
            Operation::FetchAdd | Operation::CompareSwap => {
                return self.verify_word(0, iteration);
            }
        };
        memory.read(at, &mut self.copy)?;
        let wanted = match self.shape.op {
            Operation::Read => Pattern::new(0, self.who.other()),
            _ => self.message(iteration, self.who.other()),
        };
        Ok(wanted.check(&self.copy)?)
    }

    /// Gives the receive back.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self.turn.held.take() {
            Some(slot) => self.receive(0, slot),
            None => Ok(()),
        }
    }

    /// The old value that the last atomic of a queue pair brought: all before it, and nothing else, changed the word.
    fn verify_word(&self, line: usize, iteration: u64) -> Result<(), Error> {
        // None at all, when it was interrupted early.
        let posted = self.lines.get(line).map_or(0, |line| line.posted);
        let Some(wanted) = posted.checked_sub(1) else { return Ok(()) };
        let got = self.memory.outgoing.load(line * self.memory.stride)?;
        if got == wanted {
            return Ok(());
        }
        Err(crate::pingpong::WrongWord {
            iteration,
            what: "the old value",
            of: self.who.other(),
            wanted,
            got,
        }
        .into())
    }

    fn message(&self, iteration: u64, from: Who) -> Pattern {
        let pattern = Pattern::new(iteration, from);
        match self.shape.op {
            Operation::Write => pattern.ending_with(iteration as u8),
            _ => pattern,
        }
    }

    /// Where the last byte of a message is.
    #[inline]
    fn last(&self) -> usize {
        (self.size as usize).saturating_sub(1)
    }

    // Bandwidth: as many messages outstanding as allowed, on all queue pairs.

    /// So many messages more on each queue pair.
    pub(super) fn order(&mut self, messages: u64) {
        for line in &mut self.lines {
            line.todo = messages;
        }
    }

    /// No more messages than are needed to learn of all that were posted.
    pub(super) fn close(&mut self) {
        for line in &mut self.lines {
            line.todo = line.todo.min(u64::from(line.silent > 0));
        }
    }

    /// Messages posted, ever.
    pub(super) fn posted(&self) -> u64 {
        self.lines.iter().map(|line| line.posted).sum()
    }

    /// Whether all that was ordered is complete.
    pub(super) fn is_done(&self) -> bool {
        self.lines.iter().all(|line| line.todo == 0 && line.outstanding == 0)
    }

    /// Polls once, gives receives back, and posts what there is room for. Gives the messages that are known to be complete now, and
    /// whether anything was done.
    #[inline]
    pub(super) fn pump(&mut self, so_far: u64) -> Result<(u64, bool), Error> {
        let (sent, mut busy) = self.collect(so_far)?;
        for line in &mut self.lines {
            if line.todo > 0 {
                let source = self.inline.as_deref();
                let posted = post_some(line, &self.shape, source);
                busy |= posted.map_err(|error| not_posted(self.who, "a message", so_far, error))?;
            }
        }
        Ok((sent, busy))
    }

    #[inline]
    fn collect(&mut self, so_far: u64) -> Result<(u64, bool), Error> {
        let mut sent = 0;
        // Receives that came, to be given back after the burst.
        let mut slots = [0u64; BURST];
        let mut came = 0;
        let mut burst = self.cq.poll(BURST);
        while let Some(completion) = burst.next() {
            let receive = completion.is_recv();
            if let Err(failure) = completion.result() {
                return Err(failed(self.who, receive, so_far, failure));
            }
            let id = completion.id();
            if receive {
                if completion.byte_len() != self.size {
                    let len = completion.byte_len();
                    return Err(wrong_arrival(self.who, so_far, len, self.size));
                }
                slots[came] = id;
                came += 1;
            } else if let Some(line) = self.lines.get_mut(id as u32 as usize) {
                let count = (id >> 32) as u32;
                line.outstanding = line.outstanding.saturating_sub(count);
                sent += u64::from(count);
            }
        }
        drop(burst);
        for &id in &slots[..came] {
            let (line, slot) = (id as u32, (id >> 32) as u32);
            if self.shape.check {
                self.verify_receive(line, slot)?;
            }
            self.receive(line, slot)?;
        }
        self.received += came as u64;
        Ok((sent, sent > 0 || came > 0))
    }

    fn verify_receive(&mut self, line: u32, slot: u32) -> Result<(), Error> {
        let Some(memory) = &self.memory.receives else { return Ok(()) };
        fence(Ordering::Acquire);
        let receives = self.shape.receives(self.size) as usize;
        let place = line as usize * receives + slot as usize;
        memory.read(place * self.memory.stride, &mut self.copy)?;
        Ok(Pattern::new(0, self.who.other()).check(&self.copy)?)
    }

    /// After a run: what is in memory is what was sent. `writes` says that the peer wrote here, `reads` that this side has read.
    pub(super) fn verify_end(&mut self, active: bool, peer_active: bool) -> Result<(), Error> {
        if !self.shape.check || self.shape.test != Test::Bw {
            return Ok(());
        }
        fence(Ordering::Acquire);
        for at in 0..self.lines.len() {
            let memory = match self.shape.op {
                Operation::Write if peer_active => &self.memory.incoming,
                Operation::Read if active => &self.memory.outgoing,
                Operation::FetchAdd | Operation::CompareSwap if active => {
                    self.verify_word(at, self.lines[at].posted)?;
                    continue;
                }
                _ => return Ok(()),
            };
            memory.read(at * self.memory.stride, &mut self.copy)?;
            Pattern::new(0, self.who.other()).check(&self.copy)?;
        }
        Ok(())
    }
}

/// Posts one list to a queue pair, if there is room for it, and rings. Gives whether it did.
#[inline]
fn post_some(line: &mut Line, shape: &Shape, inline: Option<&[u8]>) -> Result<bool, PostError> {
    let room = shape.tx_depth - line.outstanding;
    let wanted = u32::try_from(line.todo).unwrap_or(u32::MAX).min(shape.post_list);
    if room < wanted {
        return Ok(false);
    }
    let mut batch = line.qp.batch();
    for at in 1..=wanted {
        line.todo -= 1;
        line.silent += 1;
        // The last of all tells, and so does the last before there is no room: nothing else would ever make some.
        let tells = line.silent >= shape.cq_mod
            || line.todo == 0
            || (at == wanted && room - at < shape.post_list);
        let wr = Wr::new(id(line.number, line.silent));
        let wr = if tells { wr } else { wr.unsignaled() };
        let op = operation(shape.op, line.remote, line.posted);
        let data = match inline {
            Some(inline) => Data::Inline(inline),
            None => Data::One(line.local),
        };
        // SAFETY: the memory is the side's, dropped after its queue pairs, and nobody has a reference to it.
        unsafe { batch.raw().post(wr, op, data) }?;
        line.posted += 1;
        if tells {
            line.silent = 0;
        }
    }
    batch.ring();
    line.outstanding += wanted;
    Ok(true)
}

/// A work request's number: its queue pair, and for a send how many messages its completion tells of, for a receive its place.
#[inline]
fn id(line: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(line)
}

/// The `posted`th operation of a queue pair, from 0. The word that atomics change counts them.
#[inline]
fn operation(op: Operation, remote: Remote, posted: u64) -> SendOp {
    match op {
        Operation::Write => SendOp::Write(remote),
        Operation::Read => SendOp::Read(remote),
        Operation::Send => SendOp::Send,
        Operation::FetchAdd => SendOp::FetchAdd { remote, add: 1 },
        Operation::CompareSwap => {
            SendOp::CompareSwap { remote, compare: posted, swap: posted.wrapping_add(1) }
        }
    }
}

#[cold]
fn not_posted(who: Who, what: &str, iteration: u64, error: PostError) -> Error {
    Error::Post { iteration, what: format!("{what} of the {who}"), error }
}

#[cold]
fn failed(who: Who, receive: bool, iteration: u64, failure: uverbs::Failure) -> Error {
    let what = if receive { "receive" } else { "message" };
    Error::Completion { iteration, what: format!("a {what} of the {who}"), failure }
}

#[cold]
fn wrong_arrival(who: Who, iteration: u64, len: u32, size: u32) -> Error {
    let what = format!("the {who} received {len} bytes, not {size}");
    Error::Unexpected { iteration, what }
}

fn shown(index: Option<u32>) -> String {
    index.map_or("by default".to_owned(), |index| index.to_string())
}

/// Refuses what this device or port can't do, by the option's name.
fn about(
    context: &Context,
    who: Who,
    embedded: bool,
    shape: &Shape,
    size: u32,
) -> Result<About, Error> {
    let refuse = |option, value: String, why: String| Err(Error::Argument { option, value, why });
    let device = context.query_device()?;
    let name = context.device().name();
    if shape.port == 0 || shape.port > device.phys_port_count {
        let why = format!("{name} has ports 1 to {}", device.phys_port_count);
        return refuse("--port", shape.port.to_string(), why);
    }
    if shape.op.is_atomic() && device.atomic_cap.raw() == 0 {
        return refuse("atomic", String::new(), format!("{name} has no atomics"));
    }
    let port = context.query_port(shape.port)?;
    if port.state != PortState::Active {
        return Err(Error::Verb(uverbs::Error::Invalid {
            verb: "query_port",
            what: "the port's state",
            value: port.state.to_string(),
            why: "nothing can be sent until its link is up",
        }));
    }
    if size > port.max_message_size {
        let why = format!("a message of {name} has at most {} bytes", port.max_message_size);
        return refuse("--size", size.to_string(), why);
    }
    if let Some(mtu) = shape.mtu.filter(|mtu| Some(*mtu) > port.active_mtu.bytes()) {
        let why = format!("the port's MTU is {}", port.active_mtu);
        return refuse("--mtu", mtu.to_string(), why);
    }
    let gid = match shape.gid_index {
        Some(index) => {
            let gid = context.query_gid(shape.port, index).because_of("--gid-index", index)?;
            if gid.gid.is_zero() {
                let why = "this entry of the port's GID table is empty".to_owned();
                return refuse("--gid-index", index.to_string(), why);
            }
            Some(gid)
        }
        None => context.best_gid(shape.port)?,
    };
    Ok(About {
        end: who.to_string(),
        device: name.to_owned(),
        driver: crate::select::driver(context.device()),
        firmware: device.firmware(),
        embedded,
        port: shape.port,
        link_layer: port.link_layer.to_string(),
        gid: gid.map(|entry| entry.gid.to_string()),
        gid_type: gid.map(|entry| entry.kind.to_string()),
        mtu: None,
        max_send_wr: 0,
        max_recv_wr: 0,
        max_inline_data: 0,
    })
}

/// What the peer does to this end's memory in this test, and nothing else.
fn rights(shape: &Shape, who: Who) -> AccessFlags {
    let peer_acts = match shape.test {
        Test::Lat => who == Who::Server || !shape.op.is_one_sided(),
        Test::Bw => who == Who::Server || shape.bidirectional,
    };
    match shape.op {
        _ if !peer_acts => AccessFlags::empty(),
        Operation::Write => AccessFlags::REMOTE_WRITE,
        Operation::Read => AccessFlags::REMOTE_READ,
        Operation::Send => AccessFlags::empty(),
        Operation::FetchAdd | Operation::CompareSwap => AccessFlags::REMOTE_ATOMIC,
    }
}

/// How the queue pairs are brought up.
fn local(context: &Context, shape: &Shape) -> Result<Local, Error> {
    let plain = Local::default();
    let mut rd_atomic = plain.rd_atomic;
    if let Some(outs) = shape.outs {
        let device = context.query_device()?;
        let most = device.max_qp_rd_atom.min(device.max_qp_init_rd_atom);
        if u32::from(outs) > most {
            let why = format!("{} has at most {most}", context.device().name());
            return Err(Error::Argument { option: "--outs", value: outs.to_string(), why });
        }
        rd_atomic = outs;
    }
    Ok(Local {
        port: shape.port,
        gid_index: shape.gid_index,
        mtu: shape.mtu.and_then(Mtu::from_bytes),
        rd_atomic,
        timeout: AckTimeout::from_code(shape.qp_timeout).unwrap_or(plain.timeout),
        service_level: shape.sl,
        traffic_class: shape.traffic_class,
        ..plain
    })
}

/// Names the option that a queue pair was refused for.
fn blame(error: uverbs::Error, shape: &Shape) -> Error {
    let uverbs::Error::Limit { what, .. } = error else {
        return Err::<(), _>(error).because_of("--qps", shape.qps).unwrap_err();
    };
    let (option, value) = if what.contains("inline") {
        ("--inline", shape.inline)
    } else if what.contains("recv") {
        ("--rx-depth", shape.rx_depth.unwrap_or(0))
    } else if what.contains("send") {
        ("--tx-depth", shape.tx_depth)
    } else {
        ("--qps", shape.qps)
    };
    Error::Refused { option, value: value.to_string(), error }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::options::{Family, Options};
    use super::*;
    use crate::select;

    const SIZE: u32 = 8;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        options: Options,
    }

    fn shape(family: Family, args: &str) -> Shape {
        let words = std::iter::once("perf").chain(args.split(' '));
        Only::parse_from(words).options.plan(family).unwrap().shape
    }

    /// One message of `who`, who does `does`, to an end that is set up for `granted`.
    fn one(who: Who, does: &Shape, granted: &Shape) -> Result<(), String> {
        let devices = select::two(Some("softhca"), true).unwrap();
        let make = |who, device, shape| Prepared::new(who, device, true, shape, SIZE).unwrap();
        let active = make(who, &devices.client, does);
        let passive = make(who.other(), &devices.server, granted);
        let hands = active.hands.clone();
        let mut active = active.connect(&passive.hands).unwrap();
        let _passive = passive.connect(&hands).unwrap();
        active.order(1);
        while !active.is_done() {
            active.pump(0).map_err(|error| error.to_string())?;
            std::thread::yield_now();
        }
        Ok(())
    }

    #[test]
    fn a_peer_may_do_what_is_measured_and_nothing_else() {
        let refused = |met: Result<(), String>| met.is_err_and(|why| why.contains("remote access"));
        let (write, read, atomic) = (Family::Write, Family::Read, Family::Atomic);
        let shapes = [write, read, atomic].map(|family| shape(family, "bw -I 0"));
        for (does, granted) in (0..3).flat_map(|does| (0..3).map(move |granted| (does, granted))) {
            let met = one(Who::Client, &shapes[does], &shapes[granted]);
            match does == granted {
                true => assert_eq!(met, Ok(()), "{}", shapes[does].op),
                false => assert!(
                    refused(met.clone()),
                    "{} of {}: {met:?}",
                    shapes[does].op,
                    shapes[granted].op
                ),
            }
        }
        // The memory of who only measures is nobody's business.
        for family in [write, read, atomic] {
            let (alone, both) = (shape(family, "bw -I 0"), shape(family, "bw -I 0 -b"));
            assert!(refused(one(Who::Server, &both, &alone)), "{}", both.op);
            assert_eq!(one(Who::Server, &both, &both), Ok(()), "{}", both.op);
        }
        let send = shape(Family::Send, "bw");
        assert!(shapes.iter().all(|does| refused(one(Who::Client, does, &send))));
    }
}
