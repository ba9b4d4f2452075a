//! Receives of a connection's end, or of a side's shared queue.

use uverbs::provider::RecvOps;
use uverbs::{Any, Frame, PostError, RecvBatch, Unposted};

use crate::frames::{FRAME, Place};
use crate::memory::{Reach, SLOT};
use crate::pair::PIECES;
use crate::sends::{Data, hold};
use crate::work::{Id, Work};
use crate::world::World;

struct Plan {
    id: Id,
    work: Work,
    /// `None`: a receive without memory.
    into: Option<Data>,
}

impl World {
    pub(crate) fn receive(&mut self, pair: usize, side: usize) -> String {
        self.poll_repeated(side);
        let count = self.choices.within(1, 4);
        let plans: Vec<_> = (0..count).filter_map(|_| self.plan_receive(pair, side)).collect();
        let is_rung = self.choices.percent(80);
        let Self { pairs, sides, frames, .. } = self;
        let end = &mut pairs[pair].ends[side];
        let queue = end.rq;
        frames.begin(queue);
        let (posted, refused) = match (&mut end.qp, &mut sides[side].srq) {
            (_, Some(srq)) if end.is_shared => post_all(srq.batch(), plans, is_rung),
            (Some(qp), _) if !end.is_shared => post_all(qp.recv_batch(), plans, is_rung),
            _ => (Vec::new(), plans.into_iter().map(|plan| (plan, None)).collect()),
        };
        let scatters = end.scatters;
        for (Plan { work, into, .. }, error) in refused {
            let fits = match error {
                Some(PostError::Full) => self.works.count(queue) + posted.len() > 0,
                Some(PostError::BadOperation) => scatters && work.own.is_some(),
                Some(PostError::TooManySges) => work.frames().len() > PIECES as usize,
                Some(_) => false,
                None => true,
            };
            assert!(fits, "{error:?}");
            self.never(&work, None);
            if error.is_some() && work.is_chain {
                self.frames.open(work.frames());
            }
            if let Some(Data::Frame(frame) | Data::Chain(frame)) = into {
                self.frames.keep(side, frame);
            }
        }
        let ids: Vec<_> = posted.iter().map(|(id, _)| *id).collect();
        for (id, work) in posted {
            if !is_rung {
                self.never(&work, Some(Place::Unrung(queue)));
                continue;
            }
            self.frames.place(work.frames(), Place::Posted(id));
            for pair in &mut self.pairs {
                let mut waiting = pair.sent[1 - side].iter();
                let is_used = pair.ends[side].rq == queue;
                pair.is_spoiled |= is_used && waiting.any(|sent| sent.bytes.len() > work.room);
            }
            self.works.add(id, work);
        }
        format!("end {side} of pair {pair} receives, rung: {is_rung}: {ids:?}")
    }

    fn plan_receive(&mut self, pair: usize, side: usize) -> Option<Plan> {
        let Self { choices, frames, memories, keys, works, pairs, .. } = self;
        let end = &pairs[pair].ends[side];
        let id = works.new_id();
        let mut work = Work::new(end.rq, side);
        // Memory of a shared queue would be written by a connection that isn't known yet.
        let own = [Reach::ByItsKey, Reach::ByWindows, Reach::ByIndirectKeys];
        // A queue with inline CQEs refuses parts of indirect keys.
        let way = if end.scatters && choices.percent(25) { 3 } else { choices.below(20) };
        let into = match way {
            0 => None,
            1 | 2 if !end.is_shared => {
                let into = memories.pick(choices, side, &own, true)?;
                let part = memories.part(into, 1)?;
                memories.claim(into, pair, None);
                work.writes.push(into);
                work.room = SLOT;
                Some(Data::Exposed(part))
            }
            3 | 4 if !end.is_shared => {
                let (into, part, used) = keys.part(choices, memories, (pair, side), true)?;
                memories.claim(into, pair, None);
                work.writes.push(into);
                (work.room, work.own) = (SLOT, Some(used));
                Some(Data::Indirect(part))
            }
            5..9 => {
                let frame = frames.chain(choices, side, PIECES as usize)?;
                work.room = FRAME * frame.pieces().count();
                Some(Data::Chain(frame))
            }
            _ => {
                work.room = FRAME;
                Some(Data::Frame(frames.take(choices, side)?))
            }
        };
        if let Some(data) = &into {
            hold(&mut work, data);
        }
        Some(Plan { id, work, into })
    }
}

type Posted = (Vec<(Id, Work)>, Vec<(Plan, Option<PostError>)>);

/// Posts receives to a queue. A batch that is not rung has no destructor: to drop it is to forget
/// it.
fn post_all<Q: RecvOps>(
    mut batch: RecvBatch<'_, Any, Q>,
    plans: Vec<Plan>,
    is_rung: bool,
) -> Posted {
    let (mut posted, mut refused) = (Vec::new(), Vec::new());
    for Plan { id, work, into } in plans {
        match post(&mut batch, id, into) {
            Ok(()) => posted.push((id, work)),
            Err((error, into)) => refused.push((Plan { id, work, into }, Some(error))),
        }
    }
    if is_rung {
        batch.ring();
    }
    (posted, refused)
}

fn post<Q: RecvOps>(
    batch: &mut RecvBatch<'_, Any, Q>,
    id: Id,
    into: Option<Data>,
) -> Result<(), (PostError, Option<Data>)> {
    let whole = |Unposted { error, data }: Unposted<Frame>| (error, Some(Data::Frame(data)));
    match into {
        None => batch.post_empty(id).map_err(|error| (error, None)),
        Some(Data::Frame(frame)) => batch.post(id, frame).map_err(whole),
        Some(Data::Chain(frame)) => {
            let done = batch.post(id, frame.chain());
            done.map_err(|rejected| (rejected.error, Some(Data::Chain(rejected.data.of))))
        }
        Some(Data::Exposed(part)) => {
            batch.post(id, part).map_err(|rejected| (rejected.error, None))
        }
        Some(Data::Indirect(part)) => {
            batch.post(id, part).map_err(|rejected| (rejected.error, None))
        }
        Some(Data::Part(..) | Data::Shared(_) | Data::Inline(_)) => {
            unreachable!("no receive fills one")
        }
    }
}
