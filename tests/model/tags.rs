//! A queue that matches tags, and a connection to itself that receives from it.

use std::collections::VecDeque;

use uverbs::tags::{ForTags, TagHandle, TagMessage, TagMessageKind, TagWr};
use uverbs::{Any, Completed, CompletionQueue, Frame, QueuePair, SharedReceiveQueue, Status, Wr};

use crate::frames::Place;
use crate::polls::{Given, Seen};
use crate::work::{Arrival, Id, Queue, Work};
use crate::world::World;
use common::local;

const TAGS: u32 = 6;
const CHANGES: u32 = 8;
const RECEIVES: u32 = 7;
/// The program that owns the queue.
const SIDE: usize = 0;

/// Outstanding change of the list.
#[derive(Debug)]
enum Change {
    Add(u64),
    Remove(u64),
    Nothing,
}

/// A tag of the list.
#[derive(Debug)]
struct Tagged {
    tag: u64,
    handle: TagHandle,
    recv: Id,
    /// The device has it, and no removal is under way.
    is_active: bool,
}

/// A message in flight; `tag` is `None` for a message without a tag.
#[derive(Debug)]
struct Sent {
    tag: Option<u64>,
    data: Vec<u8>,
    whole: Vec<u8>,
}

pub(crate) struct Tags {
    qp: QueuePair,
    srq: SharedReceiveQueue<Any, ForTags>,
    cq: CompletionQueue,
    sends: CompletionQueue,
    sq: Queue,
    rq: Queue,
    /// Queue of the receives that are in the list.
    list: Queue,
    tags: Vec<Tagged>,
    changes: VecDeque<(Id, bool, Change)>,
    sent: VecDeque<Sent>,
    /// Messages that found no tag, of all that were polled.
    unexpected: u16,
    /// Number of messages that rung batches reported to the device.
    told: u16,
    next: u64,
}

impl Tags {
    pub(crate) fn new(world: &mut World) -> Self {
        let of = &world.sides[SIDE];
        let cq = of.context.create_cq(64).expect("create_cq");
        let sends = of.context.create_cq(64).expect("create_cq");
        let srq = of.context.shared_receive_queue(&of.pd).max_wr(RECEIVES).tags(&cq, TAGS);
        let srq = srq.max_tag_changes(CHANGES).build().expect("create_srq");
        let qp = of.context.queue_pair(&of.pd, &sends).max_send_wr(16).max_inline_data(200);
        let mut qp = qp.shared_receives(&srq).build().expect("create_qp");
        qp.prepare(&local()).expect("prepare");
        qp.connect_to_self().expect("prepare");
        let works = &mut world.works;
        let [sq, rq, list] = [(); 3].map(|()| works.new_queue());
        let (tags, changes, sent) = (Vec::new(), VecDeque::new(), VecDeque::new());
        let (unexpected, told, next) = (0, 0, 1);
        Self { qp, srq, cq, sends, sq, rq, list, tags, changes, sent, unexpected, told, next }
    }

    pub(crate) fn step(&mut self, world: &mut World) -> String {
        match world.choices.below(12) {
            0..2 => self.receive(world),
            2..5 => self.send(world),
            5..8 => self.change(world),
            _ => self.poll(world),
        }
    }

    fn receive(&mut self, world: &mut World) -> String {
        let Some(frame) = world.frames.take(&mut world.choices, SIDE) else {
            return "no frame".to_owned();
        };
        world.frames.begin(self.rq);
        let id = world.works.new_id();
        let mut work = Work::new(self.rq, SIDE);
        work.holds(&frame, false);
        match self.srq.post(id, frame) {
            Ok(()) => {
                world.frames.place(work.frames(), Place::Posted(id));
                world.works.add(id, work);
            }
            Err(rejected) => world.frames.keep(SIDE, rejected.data),
        }
        format!("a receive beside the list of tags: {id}")
    }

    fn send(&mut self, world: &mut World) -> String {
        world.frames.begin(self.sq);
        let choices = &mut world.choices;
        let active: Vec<_> = self.tags.iter().filter(|tag| tag.is_active).collect();
        let tag = choices.index(active.len()).map(|at| active[at].tag);
        let unknown = choices.percent(10).then_some(u64::MAX);
        let tag = if choices.percent(70) { tag } else { unknown };
        let kind = if tag.is_some() { TagMessageKind::Eager } else { TagMessageKind::NoTag };
        let header = TagMessage { kind, app_ctx: 7, tag: tag.unwrap_or(0) }.to_bytes();
        let len = choices.within(0, 150);
        let data = choices.bytes(len);
        let whole = [&header[..], &data].concat();
        let id = world.works.new_id();
        let mut work = Work::new(self.sq, SIDE);
        work.completed = Some(Completed::Send);
        if self.qp.post_send_inline(Wr::new(id), &whole).is_ok() {
            work.signaled = true;
            world.works.add(id, work);
            self.sent.push_back(Sent { tag, data, whole });
        }
        format!("a message with tag {tag:?}: {id}")
    }

    /// Adds and removes tags in one batch, which is rung or forgotten.
    fn change(&mut self, world: &mut World) -> String {
        world.frames.begin(self.list);
        let dealt = self.unexpected;
        let mut batch = self.srq.tag_batch();
        let (mut changes, mut added) = (VecDeque::new(), Vec::new());
        let mut removed = Vec::new();
        for _ in 0..world.choices.within(1, 3) {
            let id = world.works.new_id();
            let unsignaled = world.choices.percent(20);
            let wr = if unsignaled { TagWr::new(id).unsignaled() } else { TagWr::new(id) };
            let wr = wr.dealt_with(dealt);
            match world.choices.below(6) {
                0..4 => {
                    let Some(frame) = world.frames.take(&mut world.choices, SIDE) else { continue };
                    let recv = world.works.new_id();
                    let mut work = Work::new(self.list, SIDE);
                    work.holds(&frame, false);
                    match batch.add(wr, self.next, recv, frame) {
                        Ok(handle) => {
                            let tag = self.next;
                            self.next += 1;
                            changes.push_back((id, !unsignaled, Change::Add(tag)));
                            added.push((work, Tagged { tag, handle, recv, is_active: false }));
                        }
                        Err(rejected) => world.frames.keep(SIDE, rejected.data),
                    }
                }
                4 => {
                    let active: Vec<_> = self.tags.iter().filter(|tag| tag.is_active).collect();
                    let Some(at) = world.choices.index(active.len()) else { continue };
                    let Tagged { tag, handle, .. } = *active[at];
                    if !removed.contains(&tag) && batch.remove(wr, handle).is_ok() {
                        removed.push(tag);
                        changes.push_back((id, true, Change::Remove(tag)));
                    }
                }
                _ => {
                    if batch.sync(wr).is_ok() {
                        changes.push_back((id, !unsignaled, Change::Nothing));
                    }
                }
            }
        }
        let is_rung = world.choices.percent(80);
        let told = format!("tags, rung: {is_rung}: {changes:?}");
        if !is_rung {
            for (work, _) in added {
                world.never(&work, Some(Place::Unrung(self.list)));
            }
            return told;
        }
        batch.ring();
        if !changes.is_empty() {
            self.told = dealt;
        }
        self.changes.append(&mut changes);
        for (work, tagged) in added {
            world.frames.place(work.frames(), Place::Posted(tagged.recv));
            world.works.add(tagged.recv, work);
            self.tags.push(tagged);
        }
        for tag in &mut self.tags {
            tag.is_active &= !removed.contains(&tag.tag);
        }
        told
    }

    fn poll(&mut self, world: &mut World) -> String {
        let mut sent = Vec::new();
        self.sends.poll_with(16, |completion| sent.push(completion.id()));
        for id in sent {
            let (_, work) = world.works.complete(id, true);
            world.succeed(id, &work, Given::Taken(None));
        }
        let mut seen = Vec::new();
        let most = world.choices.within(1, 16);
        self.cq.poll_with(most, |completion| {
            seen.push(Seen::from(uverbs::WorkCompletion::from(completion)));
        });
        let told: Vec<_> = seen.iter().map(|seen| (seen.id, seen.result)).collect();
        for Seen { id, result, given, .. } in seen {
            match result {
                Ok(done @ (Completed::TagAdded | Completed::TagsSynced)) => {
                    self.changed(id, done);
                }
                Ok(Completed::TagRemoved) => self.removed(world, id, given),
                Ok(done) => self.message(world, id, done, given),
                Err(failure) => {
                    assert_eq!(failure.status, Status::TagNotFound, "{id}");
                    self.changed(id, Completed::TagRemoved);
                }
            }
        }
        format!("tags polled: {told:?}")
    }

    /// A change is done, and so are those before it that asked for no completion. Gives the tag.
    fn changed(&mut self, id: Id, done: Completed) -> Option<u64> {
        loop {
            let (of, signaled, change) = self.changes.pop_front().expect("a change");
            if let Change::Add(tag) = change {
                for tagged in self.tags.iter_mut().filter(|tagged| tagged.tag == tag) {
                    tagged.is_active = true;
                }
            }
            if of != id {
                assert!(!signaled, "the completion of change {of} never came");
                continue;
            }
            let (tag, wanted) = match change {
                Change::Add(tag) => (Some(tag), Completed::TagAdded),
                Change::Remove(tag) => (Some(tag), Completed::TagRemoved),
                Change::Nothing => (None, Completed::TagsSynced),
            };
            assert_eq!(done, wanted);
            return tag;
        }
    }

    fn removed(&mut self, world: &mut World, id: Id, given: Given) {
        let tag = self.changed(id, Completed::TagRemoved).expect("a removal");
        let at = self.tags.iter().position(|tagged| tagged.tag == tag);
        let tagged = self.tags.swap_remove(at.expect("no message has taken it"));
        let (_, work) = world.works.complete(tagged.recv, false);
        world.give(tagged.recv, &work, &Arrival::Same, given);
    }

    fn message(&mut self, world: &mut World, id: Id, done: Completed, given: Given) {
        let Sent { tag, data, whole } = self.sent.pop_front().expect("a message that was sent");
        let (_, work) = world.works.complete(id, false);
        match done {
            Completed::TagRecv => {
                let at = self.tags.iter().position(|tagged| tagged.recv == id);
                let tagged = self.tags.swap_remove(at.expect("a tag of the list"));
                assert_eq!(Some(tagged.tag), tag, "{id}");
                world.give(id, &work, &Arrival::Received(data), given);
            }
            Completed::RecvUnexpected => {
                assert!(tag.is_some(), "{id}");
                assert_eq!(work.queue, self.rq, "{id}");
                self.unexpected = self.unexpected.wrapping_add(1);
                world.give(id, &work, &Arrival::Received(whole), given);
            }
            Completed::RecvNoTag => {
                assert_eq!((tag, work.queue), (None, self.rq), "{id}");
                world.give(id, &work, &Arrival::Received(whole), given);
            }
            other => panic!("{id}: {other:?}"),
        }
    }

    /// Ends the connection, then the queue: receives without a message come back.
    pub(crate) fn end(self, world: &mut World) {
        let Self { qp, srq, mut cq, mut sends, sq, rq, list, .. } = self;
        [sq, rq, list].iter().for_each(|queue| world.frames.begin(*queue));
        let gone = qp.destroy().expect("destroy_qp");
        let back = sends.reclaim(&gone);
        world.take_back(&[sq], SIDE, back);
        let back: Vec<(Id, Frame)> = srq.destroy().expect("destroy_srq");
        world.take_back(&[rq, list], SIDE, back);
        assert_eq!(cq.poll_with(8, |_| ()), 0, "they are gone with the queue");
    }
}
