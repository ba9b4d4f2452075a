//! Connections: how their queue pairs are made, failed, ended and made anew.

use std::collections::BTreeMap;

use uverbs::attr::{QpType, SendOpSet};
use uverbs::{DoorbellMode, Frame, Local, RnrTimer};

use crate::frames::Place;
use crate::pair::{End, INLINE, PIECES, Pair};
use crate::work::{Arrival, Hold, Id, Queue, Work};
use crate::world::World;

impl World {
    /// A queue pair in RESET, of any shape.
    pub(crate) fn new_end(&mut self, side: usize) -> End {
        let Self { choices, sides, works, .. } = self;
        let of = &sides[side];
        let (send, recv) = (&of.cqs[choices.below(2)], &of.cqs[choices.below(2)]);
        let ops = SendOpSet::of(QpType::Rc) | SendOpSet::REKEY;
        let builder = of.context.queue_pair(&of.pd, send).recv_cq(recv);
        let builder = builder.max_send_wr(16).max_recv_wr(16).max_inline_data(INLINE);
        let mut builder = builder.max_send_sge(PIECES).max_recv_sge(PIECES).send_ops(ops);
        if choices.percent(30) {
            builder = builder.doorbell(DoorbellMode::NonCached);
        }
        let is_shared = choices.percent(40) && of.srq.is_some();
        let scatters = !is_shared && choices.percent(30);
        if let (true, Some(srq)) = (is_shared, &of.srq) {
            builder = builder.shared_receives(srq);
        }
        if scatters {
            builder = builder.scatter_to_cqe();
        }
        let qp = builder.build().expect("create_qp");
        let qpn = qp.qpn();
        let (sq, own) = (works.new_queue(), works.new_queue());
        let rq = if is_shared { of.srq_queue } else { own };
        End { qp: Some(qp), qpn, sq, rq, is_shared, scatters }
    }

    /// Connects two ends that are in RESET.
    pub(crate) fn connect(&mut self, pair: usize) {
        let Self { choices, pairs, .. } = self;
        let ends = pairs[pair].ends.each_mut().map(|end| end.qp.as_mut().expect("it is made"));
        let mut local = || Local {
            psn: Some(choices.below(1 << 24) as u32),
            min_rnr_timer: RnrTimer::at_least(10),
            ..common::local()
        };
        let [one, other] = ends;
        let [here, there] = [&mut *one, &mut *other].map(|qp| qp.prepare(&local()).expect("up"));
        one.connect(&there).expect("connect");
        other.connect(&here).expect("connect");
    }

    /// An end goes to ERR: all that is outstanding there comes back.
    pub(crate) fn fail(&mut self, pair: usize, side: usize) -> String {
        let Pair { ends, is_spoiled, .. } = &mut self.pairs[pair];
        let Some(qp) = &mut ends[side].qp else { return "no end".to_owned() };
        *is_spoiled = true;
        qp.fail().expect("to ERR");
        format!("end {side} of pair {pair} fails")
    }

    /// Makes a connection anew that may fail, or now and then another.
    pub(crate) fn renew_spoiled(&mut self) -> String {
        let spoiled = (0..self.pairs.len()).find(|pair| self.pairs[*pair].is_spoiled);
        match spoiled {
            Some(pair) => self.renew(pair),
            None if self.choices.percent(20) => {
                let pair = self.choices.below(self.pairs.len());
                self.renew(pair)
            }
            None => "all connections are well".to_owned(),
        }
    }

    /// Ends both queue pairs, in any way, and connects them or new ones.
    fn renew(&mut self, pair: usize) -> String {
        let first = self.choices.below(2);
        self.pairs[pair].is_spoiled = true;
        let mut how = self.close(pair, first);
        if self.choices.percent(30) {
            // The other end goes on for a while.
            self.hca.step_until_idle(self.choices.within(1, 50));
            (0..2).for_each(|side| self.poll_all(side));
            self.check();
        }
        how.push_str(&format!(", {}", self.close(pair, 1 - first)));
        self.settle_pair(pair, &how);
        self.keys.forget_pair(pair);
        let Pair { sent, is_spoiled, .. } = &mut self.pairs[pair];
        *sent = Default::default();
        *is_spoiled = false;
        for side in 0..2 {
            if self.pairs[pair].ends[side].qp.is_none() {
                self.pairs[pair].ends[side] = self.new_end(side);
            }
        }
        self.connect(pair);
        format!("pair {pair} is renewed, from end {first}: {how}")
    }

    /// Settles a connection whose ends are both closed: the device writes no more for it.
    pub(crate) fn settle_pair(&mut self, pair: usize, how: &str) {
        if how.contains("forgotten") {
            // A forgotten queue pair still takes the messages that the other end had sent.
            self.settle();
        }
        self.memories.settle(pair);
    }

    /// Ends the use of a queue pair.
    pub(crate) fn close(&mut self, pair: usize, side: usize) -> String {
        let end = &mut self.pairs[pair].ends[side];
        let (queues, shared) = ([end.sq, end.rq], end.is_shared);
        let Some(mut qp) = end.qp.take() else { return "gone".to_owned() };
        let qpn = std::mem::take(&mut end.qpn);
        let own = if shared { &queues[..1] } else { &queues[..] };
        // Two ends that are forgotten would go on with each other.
        let peer = &self.pairs[pair].ends[1 - side];
        let may_forget = peer.qp.is_some();
        let way = match self.choices.below(40) {
            way if self.is_gone => way % 2 + 1,
            9 if may_forget => 9,
            way => way % 9,
        };
        // Frames of a batch that was not rung are free now, or with the queue pair.
        let unrung = if matches!(way, 2 | 8) { Place::Returning(0) } else { Place::Free };
        if way != 9 {
            own.iter().for_each(|queue| self.frames.unrung(*queue, unrung));
        }
        if shared {
            self.maybe_returned(queues[1]);
        }
        match way {
            1 | 5..8 => {
                let gone = qp.destroy().expect("destroy_qp");
                if self.choices.percent(85) {
                    let mut back = Vec::new();
                    self.sides[side].cqs.iter_mut().for_each(|cq| back.extend(cq.reclaim(&gone)));
                    self.take_back(own, side, back);
                    return "destroyed".to_owned();
                }
                self.returning(own);
                "destroyed, not reclaimed".to_owned()
            }
            2 | 8 => {
                drop(qp);
                self.returning(own);
                "dropped".to_owned()
            }
            9 => {
                std::mem::forget(qp);
                for work in self.works.close(own) {
                    self.loosen(work, false);
                }
                own.iter().for_each(|queue| self.frames.forget(*queue));
                "forgotten".to_owned()
            }
            _ => {
                let mut cqs: Vec<_> = self.sides[side].cqs.iter_mut().collect();
                let back = qp.reset(&mut cqs).expect("reset");
                let end = &mut self.pairs[pair].ends[side];
                (end.qp, end.qpn) = (Some(qp), qpn);
                self.take_back(own, side, back);
                "reset".to_owned()
            }
        }
    }

    /// Receives of a shared queue may have been taken by the queue pair that is ended.
    pub(crate) fn maybe_returned(&mut self, queue: Queue) {
        let Self { works, frames, .. } = self;
        for (id, work) in works.of(queue) {
            let posted = work.frames();
            if posted.first().is_some_and(|&at| frames.place_of(at) == Place::Posted(*id)) {
                frames.place(posted, Place::Maybe(*id));
                frames.arrive(posted, &Arrival::Unknown);
            }
        }
    }

    /// Takes the frames of queues that are gone: one for each work request with frames, no others.
    pub(crate) fn take_back(&mut self, queues: &[Queue], side: usize, back: Vec<(Id, Frame)>) {
        let count = back.len();
        let mut back: BTreeMap<_, _> = back.into_iter().collect();
        assert_eq!(back.len(), count, "a work request comes back twice");
        for (id, work) in self.works.close(queues) {
            self.let_go(&work);
            match &work.hold {
                Hold::Nothing => {}
                Hold::Shared(address) => self.frames.lent.returned(*address, None),
                Hold::Frames(posted) => {
                    let frame = back.remove(&id).unwrap_or_else(|| panic!("{id} is missing"));
                    self.frames.arrive(posted, &work.unfinished());
                    self.frames.back(side, frame, posted, id);
                }
            }
        }
        assert!(back.is_empty(), "not outstanding, and comes back: {back:?}");
    }

    /// Notes dropped queues: their frames come back when the completion queues are polled.
    fn returning(&mut self, queues: &[Queue]) {
        for work in self.works.close(queues) {
            self.loosen(work, true);
        }
    }

    /// Keeps a work request that may still complete, or not. Its frames are `returning`, or the
    /// device's for good.
    fn loosen(&mut self, (id, mut work): (Id, Work), returning: bool) {
        self.let_go(&work);
        if let Hold::Shared(address) = &work.hold {
            self.frames.lent.returned(*address, Some(work.queue));
        }
        self.frames.arrive(work.frames(), &work.unfinished());
        work.writes.iter().for_each(|spot| self.memories.abandon(*spot, work.side));
        if returning {
            self.frames.place(work.frames(), Place::Returning(id));
        }
        work.is_loose = true;
        self.works.add(id, work);
    }

    /// A work request is over, and the memory that it read is the program's to change.
    pub(crate) fn let_go(&mut self, work: &Work) {
        work.reads.iter().for_each(|spot| self.memories.read_by(*spot, false));
    }
}
