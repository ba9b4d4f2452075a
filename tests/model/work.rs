//! Outstanding work requests, and their expected completions.

use std::collections::{BTreeMap, VecDeque};

use uverbs::{Completed, Frame};

use crate::memory::Spot;

/// Number of a work request, unique in a world.
pub(crate) type Id = u64;
/// Number of a queue. A queue pair that is made anew has others.
pub(crate) type Queue = u32;

/// Change of a chain of frames by a work request that completed.
#[derive(Clone, Debug)]
pub(crate) enum Arrival {
    /// The device has read them only.
    Same,
    /// A message fills them from the front.
    Received(Vec<u8>),
    /// The answer of a READ or an atomic, at this offset of the first one.
    Answer(usize, Vec<u8>),
    /// Any bytes, and any length.
    Unknown,
}

/// Addresses of a frame and of the later ones of its chain.
pub(crate) fn addresses(frame: &Frame) -> Vec<usize> {
    frame.pieces().map(|piece| piece.as_ptr() as usize).collect()
}

/// Buffers of a work request.
#[derive(Clone, Debug)]
pub(crate) enum Hold {
    /// Bytes that were copied, or a handle of memory.
    Nothing,
    /// Frames, by address: the completion gives them back.
    Frames(Vec<usize>),
    /// A handle of the shared frame at this address.
    Shared(usize),
}

/// The outcome that a work request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Must {
    /// Unless something else spoils the connection.
    Succeed,
    Fail,
}

/// A key that is bound, laid out or used: its place in the world's list, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyUse {
    pub(crate) key: u32,
    pub(crate) version: u32,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Bytes that fill the receive: empty for a WRITE with immediate data.
    pub(crate) bytes: Vec<u8>,
    /// Length that the receive tells.
    pub(crate) len: usize,
    pub(crate) immediate: Option<u32>,
    pub(crate) completed: Completed,
}

#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) queue: Queue,
    pub(crate) side: usize,
    pub(crate) signaled: bool,
    pub(crate) hold: Hold,
    /// How it completes; of a receive the message says that.
    pub(crate) completed: Option<Completed>,
    pub(crate) arrival: Arrival,
    pub(crate) writes: Vec<Spot>,
    pub(crate) reads: Vec<Spot>,
    pub(crate) must: Must,
    /// A key of the peer's that it uses.
    pub(crate) by: Option<KeyUse>,
    /// An indirect key of this side that it uses.
    pub(crate) own: Option<KeyUse>,
    /// The peer's memory that it names by that memory's own key.
    pub(crate) names: Option<u32>,
    /// A key of this side that it gives or takes away.
    pub(crate) rekeys: Option<KeyUse>,
    /// Bytes of a receive.
    pub(crate) room: usize,
    /// All its frames are used, and not the first one alone.
    pub(crate) is_chain: bool,
    /// Message that the peer receives.
    pub(crate) message: Option<Message>,
    /// Its queue pair was forgotten or dropped: it may complete or not.
    pub(crate) is_loose: bool,
}

impl Work {
    pub(crate) fn new(queue: Queue, side: usize) -> Self {
        Self {
            queue,
            side,
            signaled: true,
            hold: Hold::Nothing,
            completed: None,
            arrival: Arrival::Same,
            writes: Vec::new(),
            reads: Vec::new(),
            must: Must::Succeed,
            by: None,
            own: None,
            names: None,
            rekeys: None,
            room: 0,
            is_chain: false,
            message: None,
            is_loose: false,
        }
    }

    /// Notes the frames that it takes along: all that follow the first one, be they used or not.
    pub(crate) fn holds(&mut self, frame: &Frame, is_chain: bool) {
        self.hold = Hold::Frames(addresses(frame));
        self.is_chain = is_chain;
    }

    /// Returns the possible effects on its frames if it failed or never completed.
    pub(crate) fn unfinished(&self) -> Arrival {
        match (&self.arrival, self.completed) {
            (Arrival::Same, Some(_)) => Arrival::Same,
            _ => Arrival::Unknown,
        }
    }

    pub(crate) fn uses(&self, key: u32) -> bool {
        [self.by, self.own].iter().flatten().any(|used| used.key == key)
    }

    pub(crate) fn frames(&self) -> &[usize] {
        if let Hold::Frames(frames) = &self.hold { frames } else { &[] }
    }

    /// The frames that the device reads or writes.
    pub(crate) fn used(&self) -> &[usize] {
        let frames = self.frames();
        if self.is_chain { frames } else { &frames[..frames.len().min(1)] }
    }
}

/// All that is outstanding.
#[derive(Default)]
pub(crate) struct Works {
    pub(crate) all: BTreeMap<Id, Work>,
    order: BTreeMap<Queue, VecDeque<Id>>,
    last: Id,
    last_queue: Queue,
}

impl Works {
    pub(crate) fn new_id(&mut self) -> Id {
        self.last += 1;
        self.last
    }

    pub(crate) fn new_queue(&mut self) -> Queue {
        self.last_queue += 1;
        self.last_queue
    }

    pub(crate) fn add(&mut self, id: Id, work: Work) {
        self.order.entry(work.queue).or_default().push_back(id);
        self.all.insert(id, work);
    }

    /// Takes a work request that completed, and with it, of a queue that completes in order, those
    /// before it: they are done, and asked for no completion.
    pub(crate) fn complete(&mut self, id: Id, in_order: bool) -> (Vec<(Id, Work)>, Work) {
        let work = self.all.remove(&id);
        let work = work.unwrap_or_else(|| panic!("{id} is not outstanding"));
        let order = self.order.get_mut(&work.queue).expect("its queue");
        let at = order.iter().position(|other| *other == id).expect("in its queue");
        let before = if in_order { order.drain(..at).collect() } else { Vec::new() };
        order.retain(|other| *other != id);
        let mut passed = Vec::new();
        for id in before {
            let work = self.all.remove(&id).expect("outstanding");
            assert!(!work.signaled, "the completion of {id} never came");
            passed.push((id, work));
        }
        (passed, work)
    }

    /// Takes all of queues that are no more.
    pub(crate) fn close(&mut self, queues: &[Queue]) -> Vec<(Id, Work)> {
        let ids = queues.iter().flat_map(|queue| self.order.remove(queue).unwrap_or_default());
        ids.map(|id| (id, self.all.remove(&id).expect("outstanding"))).collect()
    }

    pub(crate) fn of(&mut self, queue: Queue) -> impl Iterator<Item = (&Id, &mut Work)> {
        self.all.iter_mut().filter(move |(_, work)| work.queue == queue)
    }

    pub(crate) fn count(&self, queue: Queue) -> usize {
        self.order.get(&queue).map_or(0, VecDeque::len)
    }
}
