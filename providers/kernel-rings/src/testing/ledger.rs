//! Outstanding work requests of a fuzzer's run, and their frames.

use std::collections::BTreeSet;

use uverbs_core::memory::frame::{Frame, Slab};
use uverbs_core::provider::{CqOps, Polled, RecvOps, SendOps, View};
use uverbs_core::queues::work::{Data, Destination, SendOp, Wr};

use super::{post_recv, post_send, post_send_to};

/// Outstanding work requests, each with a frame.
#[derive(Debug)]
pub struct Ledger {
    slab: Slab,
    /// `wr_id`s of outstanding receives, and of outstanding sends.
    posted: [BTreeSet<u64>; 2],
    /// A send completion also completes all earlier sends.
    in_order: bool,
    /// Completions may belong to no receive.
    unsolicited: bool,
    next: u64,
}

impl Ledger {
    /// An empty ledger. A `wr_id` of 0 marks a slot that was never used, so `wr_id`s begin at 1.
    #[must_use]
    pub fn new(slab: Slab, in_order: bool) -> Self {
        Self { slab, posted: Default::default(), in_order, unsolicited: false, next: 1 }
    }

    /// The ledger of a device whose completions may belong to no receive.
    #[must_use]
    pub fn unsolicited(self) -> Self {
        Self { unsolicited: true, ..self }
    }

    /// Posts a send, if a frame is free and the queue takes it.
    pub fn send(&mut self, sq: &mut impl SendOps) {
        let Some((id, frame)) = self.take() else { return };
        let data = Data::One(frame.sge());
        if post_send(sq, Wr::new(id), SendOp::Send, data, Some(frame)).is_ok() {
            self.posted[1].insert(id);
        }
    }

    /// Posts a send to a destination, if a frame is free and the queue takes it.
    pub fn send_to<S: SendOps>(&mut self, sq: &mut S, to: Destination<'_, S::Ah>) {
        let Some((id, frame)) = self.take() else { return };
        let (wr, data) = ((Wr::new(id), SendOp::Send), Data::One(frame.sge()));
        if post_send_to(sq, wr, to, data, Some(frame)).is_ok() {
            self.posted[1].insert(id);
        }
    }

    /// Posts a receive, if a frame is free and the queue takes it.
    pub fn recv(&mut self, rq: &mut impl RecvOps) {
        let Some((id, frame)) = self.take() else { return };
        if post_recv(rq, id, &[frame.sge()], Some(frame)).is_ok() {
            self.posted[0].insert(id);
        }
    }

    fn take(&mut self) -> Option<(u64, Frame)> {
        let frame = self.slab.take()?;
        self.next += 1;
        Some((self.next - 1, frame))
    }

    /// Polls once. Returns true if there was a completion.
    ///
    /// # Panics
    ///
    /// When a work request completes that is not outstanding.
    pub fn poll(&mut self, cq: &mut impl CqOps) -> bool {
        let Some(Polled { view, wr_id, frame, .. }) = cq.next() else { return false };
        let all = view.decode();
        assert_eq!((all.result, all.is_recv), (view.result(), view.is_recv()));
        if self.unsolicited && all.is_recv && wr_id == 0 {
            assert!(frame.is_none(), "the frame of another work request");
            return true;
        }
        let of = &mut self.posted[usize::from(!all.is_recv)];
        assert!(of.remove(&wr_id), "{wr_id} completed, and was not outstanding");
        if self.in_order && !all.is_recv {
            of.retain(|other| *other > wr_id);
        }
        drop(frame);
        true
    }

    /// Polls until the queue is empty.
    ///
    /// # Panics
    ///
    /// When there are more than `most` completions.
    pub fn drain(&mut self, cq: &mut impl CqOps, most: u32) {
        for _ in 0..=most {
            if !self.poll(cq) {
                return;
            }
        }
        panic!("more completions than {most}");
    }

    /// Ends the run: the queues are gone.
    ///
    /// # Panics
    ///
    /// When a frame is free twice.
    pub fn end(self) {
        let frames = std::iter::from_fn(|| self.slab.take()).collect::<Vec<Frame>>();
        let places = frames.iter().map(|frame| frame.sge().addr).collect::<BTreeSet<_>>();
        assert_eq!(places.len(), frames.len(), "a frame is free twice");
    }
}
