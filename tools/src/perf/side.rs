//! An end: its queue pairs, their memory, posts and polls.
//!
//! # Safety
//!
//! Posts are raw: like in perftest, all messages of a queue pair are sent from one place in memory,
//! while a frame is in one post at a time. The contract of raw posts is that memory stays
//! registered and unchanged until the completion. All memory is [`ExposedMemory`] of the side,
//! dropped after its queue pairs. The program accesses it by atomics only, so that a message
//! overwritten in flight is a wrong measurement, but not undefined behaviour.
#![allow(unsafe_code, reason = "posts by address and key")]

mod bw;
mod lat;
mod setup;

use uverbs::any_transport::{AnyEndpoint, AnyQueuePair, AnyReceives, TransportName};
use uverbs::raw::{SendOp, Sge};
use uverbs::{
    AccessFlags, CompletionQueue, Context, Device, ExposedMemory, Local, PostError,
    ProtectionDomain, Remote,
};

use self::lat::Turn;
pub(crate) use self::setup::About;
pub(crate) use self::setup::wanted;
use self::setup::{blame, local, rights};
use super::shape::Shape;
use crate::base::error::{BecauseOf, Error};
use crate::link::doorbell::Rings;
use crate::link::operation::Operation;
use crate::link::verify::{Pattern, Who};

/// Messages of two queue pairs share no cache line.
const ALIGN: usize = 64;

/// An end.
pub(crate) struct Side {
    // Dropped before the memory.
    lines: Vec<Line>,
    receives: AnyReceives,
    cq: CompletionQueue,
    memory: Memory,
    pub(crate) who: Who,
    shape: Shape,
    size: u32,
    /// Bytes of an inline message.
    inline: Option<Vec<u8>>,
    copy: Vec<u8>,
    /// lat: the message in flight.
    turn: Turn,
    /// bw: number of messages received.
    pub(crate) received: u64,
    pub(crate) about: About,
}

/// A queue pair.
struct Line {
    qp: AnyQueuePair,
    number: u32,
    local: Sge,
    remote: Remote,
    /// Number of messages left to post.
    todo: u64,
    /// Number of messages posted in total.
    posted: u64,
    outstanding: u32,
    /// Trailing work requests that are not signaled: no completion reports them.
    silent: u32,
}

/// Memory of a side. Each part has a place for each queue pair.
struct Memory {
    stride: usize,
    /// Distance between two receives.
    room: usize,
    /// Source of sends; responses are written here.
    outgoing: ExposedMemory,
    /// Memory that the peer writes, reads or adds to.
    incoming: ExposedMemory,
    /// Places of receives: as many per queue pair as it has receives.
    receives: Option<ExposedMemory>,
}

impl Memory {
    fn new(pd: &ProtectionDomain, who: Who, shape: &Shape, size: u32) -> Result<Self, Error> {
        let stride = (size as usize).next_multiple_of(ALIGN);
        let room = (size as usize + shape.head() as usize).next_multiple_of(ALIGN);
        let lines = stride * shape.qps as usize;
        let receives = if shape.op.needs_receives() {
            let bytes = room * (shape.qps * shape.receives(size)) as usize;
            Some(pd.expose(bytes, AccessFlags::empty())?)
        } else {
            None
        };
        Ok(Self {
            stride,
            room,
            outgoing: pd.expose(lines, AccessFlags::empty())?,
            incoming: pd.expose(lines, rights(shape, who))?,
            receives,
        })
    }
}

/// Creates a CQ with room for all completions of all queue pairs, and their receive queues.
pub(crate) fn queues(
    context: &Context,
    pd: &ProtectionDomain,
    shape: &Shape,
    size: u32,
) -> Result<(CompletionQueue, AnyReceives), Error> {
    let receives = shape.receives(size);
    let all = completions(shape.connection, receives.saturating_mul(shape.qps));
    let all = all.saturating_add(shape.tx_depth.saturating_mul(shape.qps));
    let (option, value) = if shape.qps > 1 {
        ("--qps", shape.qps)
    } else if receives > shape.tx_depth {
        ("--rx-depth", receives)
    } else {
        ("--tx-depth", shape.tx_depth)
    };
    let mut queue = context.completion_queue(all);
    if shape.events {
        queue = queue.channel(&context.create_comp_channel()?);
    }
    let cq = queue.build().because_of(option, value)?;
    if !shape.use_srq && !shape.connection.needs_shared_receives() {
        return Ok((cq, AnyReceives::own()));
    }
    let count = receives.saturating_mul(shape.qps);
    let shared = AnyReceives::shared(context, pd, &cq, shape.connection, count);
    Ok((cq, shared.because_of("--rx-depth", receives)?))
}

/// CQEs to reserve for `receives`. A DC target's CQ needs room for its whole shared queue, whose
/// size is rounded up.
fn completions(connection: TransportName, receives: u32) -> u32 {
    match connection {
        TransportName::Dc => {
            receives.saturating_add(1).checked_next_power_of_two().unwrap_or(u32::MAX)
        }
        _ => receives,
    }
}

/// Creates a queue pair.
pub(crate) fn queue_pair(
    context: &Context,
    pd: &ProtectionDomain,
    (cq, receives): (&CompletionQueue, &AnyReceives),
    shape: &Shape,
    size: u32,
) -> Result<AnyQueuePair, Error> {
    let qp = context
        .queue_pair(pd, cq)
        .max_send_wr(shape.tx_depth)
        .max_recv_wr(shape.receives(size))
        .max_inline_data(shape.inline)
        .doorbell(shape.doorbell.mode());
    AnyQueuePair::build(qp, shape.connection, receives).map_err(|error| blame(error, shape))
}

/// Address of a queue pair and its memory, for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hand {
    pub(crate) endpoint: AnyEndpoint,
    pub(crate) memory: Remote,
}

/// A side before it is connected.
pub(crate) struct Prepared {
    pub(crate) side: Side,
    pub(crate) hands: Vec<Hand>,
}

impl Prepared {
    pub(crate) fn new(
        who: Who,
        device: &Device,
        embedded: bool,
        shape: &Shape,
        size: u32,
    ) -> Result<Self, Error> {
        let context = device.open()?;
        let (gid_index, place) = wanted(shape, size).find(&context, embedded)?;
        let pd = context.alloc_pd()?;
        let (cq, receives) = queues(&context, &pd, shape, size)?;
        let inline = (size <= shape.inline).then(|| vec![0; size as usize]);
        let about = About {
            end: who.to_string(),
            place,
            max_send_wr: 0,
            max_recv_wr: 0,
            max_inline_data: 0,
            rings: Rings::default(),
        };
        let side = Side {
            lines: Vec::with_capacity(shape.qps as usize),
            receives,
            cq,
            memory: Memory::new(&pd, who, shape, size)?,
            who,
            shape: shape.clone(),
            size,
            inline,
            copy: vec![0; size as usize],
            turn: Turn::default(),
            received: 0,
            about,
        };
        let mut prepared = Self { side, hands: Vec::with_capacity(shape.qps as usize) };
        let local = local(&context, shape, gid_index, embedded)?;
        for at in 0..shape.qps {
            prepared.add_line(&context, &pd, at, &local)?;
        }
        let Self { side, .. } = &mut prepared;
        side.about.rings =
            Rings::of(&context, &pd, side.lines.iter_mut().map(|line| line.qp.provider()))?;
        if let Some(line) = side.lines.first_mut() {
            let cap = line.qp.cap();
            side.about.max_send_wr = cap.max_send_wr;
            side.about.max_recv_wr = cap.max_recv_wr;
            side.about.max_inline_data = cap.max_inline_data;
        }
        Ok(prepared)
    }

    /// Adds a queue pair in INIT.
    fn add_line(
        &mut self,
        context: &Context,
        pd: &ProtectionDomain,
        number: u32,
        local: &Local,
    ) -> Result<(), Error> {
        let Self { side, hands } = self;
        let shape = &side.shape;
        let mut qp = queue_pair(context, pd, (&side.cq, &side.receives), shape, side.size)?;
        let endpoint = qp.bring_up(local)?;
        if let Some(mtu) = endpoint.mtu() {
            side.about.place.mtu = mtu.bytes();
        }
        let at = number as usize * side.memory.stride;
        hands.push(Hand { endpoint, memory: side.memory.incoming.remote(at) });
        side.lines.push(Line {
            qp,
            number,
            local: side.memory.outgoing.sge(at, side.size),
            remote: Remote { addr: 0, rkey: 0 },
            todo: 0,
            posted: 0,
            outstanding: 0,
            silent: 0,
        });
        Ok(())
    }

    /// Connects each queue pair to the peer's of the same number. Both sides have equally many.
    pub(crate) fn connect(self, peers: &[Hand]) -> Result<Side, Error> {
        let Self { mut side, hands } = self;
        if peers.len() != hands.len() {
            let what = format!("the peer has {} queue pairs, not {}", peers.len(), hands.len());
            return Err(Error::Peer(what));
        }
        // Posted before the connection: the peer's first message must find a receive.
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
    /// Fills the memory of outgoing messages and the memory that the peer reads, before the first
    /// message.
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
        let sge = memory.sge(place * self.memory.room, self.size + self.shape.head());
        let (own, id) = (to.qp.recv_queue(), id(line, slot));
        // SAFETY: the memory belongs to the side, is dropped after its queue pairs, and there is no
        // reference to it.
        let posted = unsafe { self.receives.post_raw(own, id, &[sge]) };
        posted.map_err(|error| not_posted(self.who, "a receive", self.received, error))
    }

    /// Completion queue, to sleep on.
    pub(crate) fn queue(&mut self) -> &mut CompletionQueue {
        &mut self.cq
    }

    fn post_failed(&self, at: u64, error: PostError) -> Error {
        not_posted(self.who, "a message", at, error)
    }
}

/// Work request id: the queue pair, and for a send the number of messages that its completion
/// reports, for a receive its place.
#[inline]
fn id(line: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(line)
}

/// Operation number `posted` of a queue pair, from 0, with immediate data if it has some. The word
/// of atomics counts them.
#[inline]
fn operation(op: Operation, remote: Remote, posted: u64, imm: impl FnOnce() -> u32) -> SendOp {
    match op {
        Operation::SendImm => SendOp::SendImm(imm()),
        Operation::WriteImm => SendOp::WriteImm(remote, imm()),
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::options::Options;
    use super::super::shape::Family;
    use super::*;
    use crate::base::select;

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

    /// Sends a message from `who` by the shape `does`, to an end that is set up for `granted`.
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
        // A side that only measures exposes no memory.
        for family in [write, read, atomic] {
            let (alone, both) = (shape(family, "bw -I 0"), shape(family, "bw -I 0 -b"));
            assert!(refused(one(Who::Server, &both, &alone)), "{}", both.op);
            assert_eq!(one(Who::Server, &both, &both), Ok(()), "{}", both.op);
        }
        let send = shape(Family::Send, "bw");
        assert!(shapes.iter().all(|does| refused(one(Who::Client, does, &send))));
    }
}
