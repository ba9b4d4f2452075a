//! Programs that come and go within a step, and operations on the halves of a queue pair.

use uverbs::attr::InitAttr;
use uverbs::{AccessFlags, Frame, QueuePair};

use crate::world::World;
use common::soft;

impl World {
    /// Opens the device, has work in flight, and drops all in any order.
    pub(crate) fn guest(&mut self) -> String {
        let Self { choices, hca, .. } = self;
        let context = soft(hca).open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let mut cq = context.create_cq(64).expect("create_cq");
        let mut qp = context.queue_pair(&pd, &cq).max_send_wr(8).max_recv_wr(8);
        qp = qp.scatter_to_cqe();
        let mut qp = qp.build().expect("create_qp");
        qp.prepare(&common::local()).expect("prepare");
        qp.connect_to_self().expect("prepare");
        let slab = pd.slab(64, 8).expect("slab");
        let shared = slab.take().expect("new").share();
        for id in 0..choices.below(6) as u64 {
            qp.post_recv(id, slab.take().expect("new")).expect("post_recv");
        }
        let mut batch = qp.batch();
        for id in 0..choices.below(3) as u64 {
            batch.send(id, shared.clone()).expect("post");
        }
        if choices.below(3) > 0 {
            batch.ring();
        }
        hca.step_until_idle(choices.within(0, 10));
        let mut held: Vec<Frame> = Vec::new();
        if choices.percent(50) {
            let most = choices.within(1, 8);
            cq.poll_with(most, |mut completion| held.extend(completion.take_frame()));
        }
        let bytes: Vec<_> = held.iter().map(|frame| frame.to_vec()).collect();
        let mut parts: Vec<Box<dyn std::any::Any>> =
            vec![Box::new(context), Box::new(pd), Box::new(cq), Box::new(qp)];
        parts.push(Box::new(shared));
        while let Some(at) = choices.index(parts.len()) {
            drop(parts.swap_remove(at));
            hca.step_until_idle(choices.below(10));
        }
        for (frame, bytes) in held.iter().zip(&bytes) {
            assert_eq!(frame[..], bytes[..], "a guest's frame was written");
        }
        drop(held);
        let free: Vec<Frame> = std::iter::from_fn(|| slab.take()).collect();
        assert_eq!(free.len(), 8, "a guest's frames");
        "a guest came and went".to_owned()
    }

    /// Splits a queue pair and joins it, or swaps halves, which is noticed.
    pub(crate) fn halves(&mut self, pair: usize, side: usize) -> String {
        let other = (pair + 1) % self.pairs.len();
        let own = self.pairs[pair].ends[side].qp.take();
        let Some(qp) = own else { return "no end".to_owned() };
        let (sends, receives) = qp.split();
        let foreign = self.pairs[other].ends[side].qp.take();
        if let Some(foreign) = foreign {
            let (others, theirs) = foreign.split();
            let (sends, theirs) = QueuePair::join(sends, theirs).expect_err("of two queue pairs");
            self.pairs[pair].ends[side].qp = QueuePair::join(sends, receives).ok();
            self.pairs[other].ends[side].qp = QueuePair::join(others, theirs).ok();
        } else {
            self.pairs[pair].ends[side].qp = QueuePair::join(sends, receives).ok();
        }
        let qp = self.pairs[pair].ends[side].qp.as_mut().expect("they belong together");
        let attr = InitAttr { port: 1, pkey_index: 0, access: AccessFlags::empty() };
        qp.init(&attr).expect_err("it isn't in RESET");
        format!("end {side} of pair {pair} is split and joined")
    }
}
