//! The end of a program: everything goes, in any order, and every frame is in its slab.

use uverbs::{Frame, SharedReceiveQueue};

use crate::frames::Place;
use crate::work::{Arrival, Id, Queue};
use crate::world::World;

impl World {
    /// Both queue pairs of a connection are ended.
    pub(crate) fn end_pair(&mut self, pair: usize) {
        let first = self.choices.below(2);
        self.pairs[pair].is_spoiled = true;
        let mut all = String::new();
        for side in [first, 1 - first] {
            let how = self.close(pair, side);
            if how == "reset" {
                // The queue pair is still there; it has nothing outstanding.
                drop(self.pairs[pair].ends[side].qp.take());
            }
            self.log.push(format!("end {side} of pair {pair}: {how}"));
            all.push_str(&how);
        }
        self.settle_pair(pair, &all);
        self.keys.forget_pair(pair);
        self.pairs[pair].sent = Default::default();
    }

    /// Destroys a shared queue: receives without a message come back.
    pub(crate) fn end_shared(&mut self, side: usize, srq: SharedReceiveQueue, queue: Queue) {
        self.frames.begin(queue);
        let back: Vec<(Id, Frame)> = match srq.destroy() {
            Ok(back) => back,
            // A forgotten queue pair receives from it for ever.
            Err(refused) => {
                drop(refused.into_object());
                self.maybe_returned(queue);
                return;
            }
        };
        for (id, frame) in back {
            let (_, work) = self.works.complete(id, false);
            assert_eq!(work.queue, queue, "{id} is no receive of this queue");
            self.frames.arrive(work.frames(), &Arrival::Unknown);
            self.frames.back(side, frame, work.frames(), id);
        }
        for (id, work) in self.works.close(&[queue]) {
            // A frame may have come back silently, and be in hand again.
            for at in work.frames() {
                let place = self.frames.place_of(*at);
                assert_ne!(place, Place::Posted(id), "not back from the shared queue");
                if place == Place::Maybe(id) {
                    self.frames.place(&[*at], Place::Returning(id));
                }
            }
        }
    }
}
