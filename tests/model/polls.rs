//! Polls in every way, and compares completions with the model.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use uverbs::{Completed, Completion, CompletionQueue, Failure, Frame, WorkCompletion};

use crate::choices::Choices;
use crate::frames::Place;
use crate::pair::{Pair, pair_of};
use crate::work::{Arrival, Hold, Id, Must, Work};
use crate::world::World;

/// How the frame of a completion came.
#[derive(Debug)]
pub(crate) enum Given {
    Taken(Option<Frame>),
    /// Left in the completion: back in its slab.
    Left,
    /// The completion was forgotten.
    Forgotten,
}

/// A completion, as the program saw it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) id: Id,
    pub(crate) result: Result<Completed, Failure>,
    pub(crate) is_recv: bool,
    pub(crate) len: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) qpn: u32,
    pub(crate) given: Given,
}

impl From<WorkCompletion> for Seen {
    fn from(done: WorkCompletion) -> Self {
        let WorkCompletion { id, result, is_recv, byte_len, immediate, qpn, frame, .. } = done;
        Self { id, result, is_recv, len: byte_len, immediate, qpn, given: Given::Taken(frame) }
    }
}

/// Looks at a completion, and takes, leaves or forgets it.
fn look(choices: &mut Choices, mut completion: Completion<'_>) -> Seen {
    let given = match choices.below(20) {
        0 => Given::Forgotten,
        1..5 => Given::Left,
        _ => Given::Taken(completion.take_frame()),
    };
    let seen = Seen {
        id: completion.id(),
        result: completion.result(),
        is_recv: completion.is_recv(),
        len: completion.byte_len(),
        immediate: completion.immediate(),
        qpn: completion.qpn(),
        given,
    };
    if matches!(seen.given, Given::Forgotten) {
        std::mem::forget(completion);
    }
    seen
}

/// Polls once, in any way.
pub(crate) fn poll(choices: &mut Choices, cq: &mut CompletionQueue) -> (&'static str, Vec<Seen>) {
    let most = choices.within(1, 12);
    let mut seen = Vec::new();
    let way = match choices.below(5) {
        0 => {
            let mut burst = cq.poll(most);
            while let Some(completion) = burst.next() {
                seen.push(look(choices, completion));
            }
            "a burst"
        }
        1 => {
            let mut burst = cq.poll(100_000);
            while seen.len() < most {
                let Some(completion) = burst.next() else { break };
                seen.push(look(choices, completion));
            }
            std::mem::forget(burst);
            "a forgotten burst"
        }
        2 => {
            let mut places: [WorkCompletion; 8] = Default::default();
            let count = cq.poll_into(&mut places);
            seen.extend(places.into_iter().take(count).map(Seen::from));
            "an array"
        }
        3 => {
            let count = cq.poll_with(most, |completion| seen.push(completion_of(completion)));
            assert_eq!(count, seen.len());
            "a closure"
        }
        _ => {
            let last = choices.within(1, most);
            // Past the hook, which would print it.
            let poll = || {
                cq.poll_with(most, |completion| {
                    seen.push(look(choices, completion));
                    if seen.len() == last {
                        resume_unwind(Box::new(()));
                    }
                })
            };
            let panicked = catch_unwind(AssertUnwindSafe(poll)).is_err();
            assert_eq!(panicked, seen.len() == last);
            "a closure that panics"
        }
    };
    (way, seen)
}

fn completion_of(completion: Completion<'_>) -> Seen {
    WorkCompletion::from(completion).into()
}

impl World {
    pub(crate) fn poll_some(&mut self, side: usize) -> String {
        let at = self.choices.below(2);
        let (way, seen) = poll(&mut self.choices, &mut self.sides[side].cqs[at]);
        let told: Vec<_> = seen.iter().map(|seen| (seen.id, seen.result)).collect();
        seen.into_iter().for_each(|seen| self.complete(side, seen));
        format!("side {side} polls queue {at} by {way}: {told:?}")
    }

    /// Polls until the queue is empty.
    pub(crate) fn poll_all(&mut self, side: usize) {
        for at in 0..self.sides[side].cqs.len() {
            loop {
                let mut seen = Vec::new();
                let cq = &mut self.sides[side].cqs[at];
                let count = cq.poll_with(64, |completion| seen.push(completion_of(completion)));
                seen.into_iter().for_each(|seen| self.complete(side, seen));
                if count == 0 {
                    break;
                }
            }
        }
    }

    /// Compares a completion with the work request.
    pub(crate) fn complete(&mut self, side: usize, seen: Seen) {
        let id = seen.id;
        let shared = self.sides[side].srq_queue;
        let is_shared = self.works.all.get(&id).is_some_and(|work| work.queue == shared);
        let (passed, work) = self.works.complete(id, !is_shared);
        assert_eq!(work.side, side, "{id} completes on the other side");
        assert_eq!(seen.is_recv, work.completed.is_none(), "{id}");
        for (id, work) in passed {
            // Done without a completion: its frames are free.
            match work.is_loose {
                true => self.give(id, &work, &work.unfinished(), Given::Left),
                false => self.succeed(id, &work, Given::Left),
            }
        }
        if work.is_loose {
            self.give(id, &work, &work.unfinished(), seen.given);
            return;
        }
        let pair = if is_shared {
            let of = |pair: &Pair| pair.ends[side].qpn == seen.qpn;
            self.pairs.iter().position(|pair| of(pair) && pair.ends[side].is_shared)
        } else {
            pair_of(&self.pairs, work.queue).map(|(pair, _)| pair)
        };
        // A receive of a shared queue, taken by a queue pair that was dropped.
        let Some(pair) = pair else { return self.give(id, &work, &Arrival::Unknown, seen.given) };
        if !is_shared {
            assert_eq!(seen.qpn, self.pairs[pair].ends[side].qpn);
        }
        match seen.result {
            Err(failure) => self.failed(id, &work, pair, failure, seen.given),
            Ok(done) if seen.is_recv => self.received(id, work, pair, done, seen),
            Ok(done) => {
                assert_eq!(Some(done), work.completed, "{id}");
                if let Arrival::Answer(_, bytes) = &work.arrival {
                    assert_eq!(seen.len as usize, bytes.len(), "{id}");
                }
                self.succeed(id, &work, seen.given);
            }
        }
    }

    fn received(&mut self, id: Id, work: Work, pair: usize, done: Completed, seen: Seen) {
        let message = self.pairs[pair].sent[1 - work.side].pop_front();
        let message = message.unwrap_or_else(|| panic!("{id} receives what was never sent"));
        assert_eq!(done, message.completed, "{id}");
        assert_eq!((seen.len as usize, seen.immediate), (message.len, message.immediate), "{id}");
        assert!(message.bytes.len() <= work.room, "{id} has no room for its message");
        for spot in &work.writes {
            self.memories.landed(*spot, Some(&message.bytes));
        }
        self.give(id, &work, &Arrival::Received(message.bytes), seen.given);
    }

    pub(crate) fn succeed(&mut self, id: Id, work: &Work, given: Given) {
        if let Some(used) = work.by {
            let same = self.keys.is_same(used);
            assert!(work.must != Must::Fail || !same, "{id} succeeded by a key that opens nothing");
        }
        if work.must != Must::Fail {
            work.writes.iter().for_each(|spot| self.memories.landed(*spot, None));
        }
        if let Some(used) = work.rekeys {
            self.keys.changed(used, true);
        }
        self.give(id, work, &work.arrival, given);
    }

    fn failed(&mut self, id: Id, work: &Work, pair: usize, failure: Failure, given: Given) {
        let spoiled = self.pairs[pair].is_spoiled;
        assert!(spoiled, "{id} failed: {failure:?}, by no fault of the program's");
        if let Some(used) = work.rekeys {
            self.keys.changed(used, false);
        }
        self.give(id, work, &work.unfinished(), given);
    }

    /// Gives the program back the frames of a work request.
    pub(crate) fn give(&mut self, id: Id, work: &Work, arrival: &Arrival, given: Given) {
        if !work.is_loose {
            self.let_go(work);
        }
        let posted = work.frames();
        let used = if matches!(arrival, Arrival::Unknown) { posted } else { work.used() };
        self.frames.arrive(used, arrival);
        if let (Hold::Shared(address), false) = (&work.hold, work.is_loose) {
            self.frames.lent.returned(*address, None);
        }
        match given {
            Given::Taken(Some(frame)) => self.frames.back(work.side, frame, posted, id),
            Given::Taken(None) => assert!(posted.is_empty(), "{id} comes back without its frame"),
            Given::Left => self.frames.free(posted, id),
            Given::Forgotten => self.frames.place(posted, Place::Lost),
        }
    }
}
