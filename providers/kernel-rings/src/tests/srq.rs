//! Shared receive queues.

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::memory::frame::Slab;
use uverbs_core::memory::post::Source;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::provider::{
    ContextOps, CqInit, CqOps, NewSrq, Provider, QpInit, RecvOps, RqOps, SrqInit, SrqOps,
};
use uverbs_core::queues::work::PostError;

use super::driver::Lab;
use super::kernel::Kernel;
use super::rig::SGE;
use crate::testing::{free, post_recv, slab};
use crate::{Cq, Rq, Srq};

/// A shared receive queue of four, and a queue pair that takes from it.
struct Shared {
    kernel: Arc<Kernel>,
    core: Arc<SrqCore>,
    srq: Srq<Lab>,
    cq: Cq<Lab>,
    qp: Option<(Arc<QpCore>, Rq<Lab>)>,
    slab: Slab,
    /// Place of the receives' ring.
    recvs: usize,
}

impl Shared {
    fn new() -> Self {
        let kernel = Arc::new(Kernel::default());
        let context = Lab::open(kernel.core()).unwrap();
        let pd = context.alloc_pd().unwrap();
        let (cq_core, cq) = context.create_cq(&CqInit::new(40)).unwrap();
        let mut init = SrqInit::new(Arc::clone(&pd));
        (init.max_wr, init.max_sge) = (4, 2);
        let NewSrq { core, srq } = context.create_srq(&init).unwrap();
        let mut init = QpInit::new(Arc::clone(&pd), Arc::clone(&cq_core), cq_core);
        (init.srq, init.cap.max_inline_data) = (Some(Arc::clone(&core)), 0);
        init.cap.max_send_wr = 4;
        let qp = context.create_qp(&init).unwrap();
        let slab = slab(&pd, 64, 20);
        Self { kernel, core, srq, cq, qp: Some((qp.core, qp.rq)), slab, recvs: 1 }
    }

    fn post(&mut self, id: u64) -> Result<u32, PostError> {
        post_recv(&mut self.srq, id, &[SGE], self.slab.take())
    }

    fn take(&self) -> Option<u64> {
        self.kernel.state().made[self.recvs].take()
    }

    fn complete(&self, token: u64) {
        assert!(self.kernel.state().made[0].complete(token, 0, 9));
    }

    fn poll(&mut self) -> Option<(u64, Option<usize>)> {
        let polled = self.cq.next()?;
        Some((polled.wr_id, polled.frame.map(|frame| frame.len())))
    }
}

#[test]
fn slots_come_back_in_any_order() {
    let mut rig = Shared::new();
    for id in 0..4 {
        rig.post(id).unwrap();
    }
    assert_eq!(rig.post(4), Err(PostError::Full));
    let tokens: Vec<_> = std::iter::from_fn(|| rig.take()).collect();
    assert_eq!(rig.post(4), Err(PostError::Full), "taken, and not polled");
    for at in [2, 0] {
        rig.complete(tokens[at as usize]);
        assert_eq!(rig.poll(), Some((at, Some(9))));
    }
    assert_eq!((rig.post(5).is_ok(), rig.post(6).is_ok()), (true, true));
    rig.complete(tokens[0]);
    assert_eq!((rig.poll(), rig.cq.strays()), (None, 1), "each completes once");
    assert!(format!("{:?}", rig.srq).contains("producer"));
}

/// A post fails while the kernel has yet to read the ring's elements, although slots are free.
#[test]
fn elements_that_the_kernel_reads_are_not_written() {
    let mut rig = Shared::new();
    for id in 0..4 {
        rig.post(id).unwrap();
    }
    let token = rig.take().unwrap();
    rig.complete(token);
    rig.complete(token + 1);
    assert_eq!((rig.poll(), rig.poll()), (Some((0, Some(9))), Some((1, Some(9)))));
    assert!(rig.post(4).is_ok());
    assert_eq!(rig.post(5), Err(PostError::Full));
}

#[test]
fn a_queue_pair_has_no_receives_of_its_own() {
    let mut rig = Shared::new();
    let (_, rq) = rig.qp.as_mut().unwrap();
    rq.enable(true);
    assert_eq!(post_recv(rq, 1, &[SGE; 9], None), Err(PostError::SharedReceives));
}

#[test]
fn a_batch_that_is_not_rung_gives_its_frames_back() {
    let mut rig = Shared::new();
    let mut at = rig.srq.begin();
    let frame = rig.slab.take().unwrap();
    #[allow(unsafe_code, reason = "posts to a ring that no device reads")]
    // SAFETY: no device writes it.
    let slot = unsafe { rig.srq.post(&mut at, 1, &[SGE]) }.unwrap();
    #[allow(unsafe_code, reason = "as above")]
    // SAFETY: the slot of the post just made.
    unsafe {
        rig.srq.own(&at, slot, frame.hold());
    }
    assert_eq!((rig.take(), free(&rig.slab)), (None, 19));
    rig.srq.begin();
    assert_eq!(free(&rig.slab), 20);
    assert_eq!(rig.post(2), Ok(slot));
}

#[test]
fn receives_of_a_queue_pair_that_goes_are_free_again() {
    let mut rig = Shared::new();
    rig.post(1).unwrap();
    let token = rig.take().unwrap();
    rig.complete(token);
    rig.qp = None;
    rig.cq.settle();
    assert_eq!((rig.poll(), free(&rig.slab)), (None, 20));
}

#[test]
fn another_size_keeps_what_is_posted() {
    let mut rig = Shared::new();
    for id in 0..3 {
        rig.post(id).unwrap();
    }
    let first = rig.take().unwrap();
    let limit = |result| match result {
        Err(Error::Limit { verb: "modify_srq", what: "max_wr", limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(rig.srq.resize(&rig.core, 1)), 2);
    assert_eq!(limit(rig.srq.resize(&rig.core, 51)), 50);
    rig.kernel.state().resize_answer = Some(Errno::EINVAL);
    assert!(rig.srq.resize(&rig.core, 9).is_err());
    rig.post(3).expect("the queue is as it was");
    rig.kernel.state().resize_answer = None;
    assert_eq!(rig.srq.resize(&rig.core, 9).unwrap(), 9);
    rig.recvs = rig.kernel.state().made.len() - 1;
    for id in 4..9 {
        rig.post(id).unwrap();
    }
    assert_eq!(rig.post(9), Err(PostError::Full), "one is taken, and not polled");
    rig.complete(first);
    assert_eq!(rig.poll(), Some((0, Some(9))));
    rig.post(9).unwrap();
    for id in 1..10 {
        let token = rig.take().expect("posted");
        rig.complete(token);
        assert_eq!(rig.poll(), Some((id, Some(9))));
    }
    assert_eq!((rig.take(), rig.cq.strays()), (None, 0));
}

#[test]
fn a_ring_that_the_kernel_lost_takes_no_posts() {
    let mut rig = Shared::new();
    rig.kernel.state().refuse_mmap = true;
    assert_eq!(rig.srq.resize(&rig.core, 9).unwrap_err().errno(), Some(Errno::EAGAIN));
    assert_eq!(rig.post(1), Err(PostError::DoorbellRefused));
}
