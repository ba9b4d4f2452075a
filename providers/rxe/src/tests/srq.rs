//! Shared receive queues.
#![allow(unsafe_code, reason = "posts, which is unsafe, to a ring that no device reads")]

use std::sync::{Arc, Mutex};

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::memory::post::Source;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::provider::{
    ContextOps, CqInit, CqOps, NewSrq, Provider, QpInit, RecvOps, RqOps, SrqInit, SrqOps,
};
use uverbs_core::queues::token::{self, Token};
use uverbs_core::queues::work::{PostError, Sge};
use uverbs_kernel_rings::testing::{self, free};

use super::kernel::{Kernel, Queue};
use super::rig::wc;
use crate::{Cq, Rq, Rxe, Srq};

/// A shared receive queue of seven, and two queue pairs that take from it.
struct Shared {
    kernel: Arc<Kernel>,
    srq: Srq,
    core: Arc<SrqCore>,
    cq: Cq,
    qps: Vec<(Arc<QpCore>, Rq)>,
    completions: Arc<Mutex<Queue>>,
    recvs: Arc<Mutex<Queue>>,
    slab: uverbs_core::memory::frame::Slab,
}

fn shared() -> Shared {
    let rig = super::rig::Rig::new(15);
    let slab = rig.slab(64, 40);
    let kernel = Arc::new(Kernel::default());
    let context = Rxe::open(kernel.core()).unwrap();
    let pd = context.alloc_pd().unwrap();
    let (cq_core, cq) = context.create_cq(&CqInit::new(60)).unwrap();
    let mut init = SrqInit::new(Arc::clone(&pd));
    (init.max_wr, init.max_sge) = (7, 2);
    let NewSrq { core, srq } = context.create_srq(&init).unwrap();
    let [completions, recvs] = <[_; 2]>::try_from(kernel.state().made.clone()).unwrap();
    let mut init = QpInit::new(pd, Arc::clone(&cq_core), cq_core);
    init.srq = Some(Arc::clone(&core));
    let qps = (0..2).map(|_| context.create_qp(&init).unwrap());
    let qps: Vec<_> = qps.map(|new| (new.core, new.rq)).collect();
    // The latest queue made is the one that a later resize changes.
    kernel.state().made.push(Arc::clone(&recvs));
    Shared { kernel, srq, core, cq, qps, completions, recvs, slab }
}

impl Shared {
    fn post(&mut self, id: u64) -> Result<u32, PostError> {
        let frame = self.slab.take().expect("free");
        testing::post_recv(&mut self.srq, id, &[frame.first()], Some(frame))
    }

    /// Takes the oldest receive.
    fn take(&self) -> Option<Vec<u8>> {
        let mut recvs = self.recvs.lock().unwrap();
        let wqe = recvs.head()?;
        recvs.advance();
        Some(wqe)
    }

    fn complete(&self, wqe: &[u8]) {
        assert!(self.completions.lock().unwrap().post(&wc(&wqe[..8], 0, 128, 9, None)));
    }

    fn poll(&mut self) -> Option<(u64, usize)> {
        let polled = self.cq.next()?;
        Some((polled.wr_id, polled.frame.map_or(0, |frame| frame.len())))
    }
}

#[test]
fn elements_are_in_order_and_slots_come_back_in_any() {
    let mut rig = shared();
    for id in 0..7 {
        assert_eq!(rig.post(id), Ok(id as u32));
    }
    assert_eq!(rig.post(7), Err(PostError::Full));
    let taken: Vec<_> = (0..7).map(|_| rig.take().expect("posted")).collect();
    let token = Token::unpack(u64::from_ne_bytes(taken[3][..8].try_into().unwrap()));
    assert_eq!((token.queue, token.index), (token::Queue::Recv, 3));
    assert_eq!(rig.post(7), Err(PostError::Full), "the kernel took them, nobody polled");
    for at in [4, 2] {
        rig.complete(&taken[at]);
        assert_eq!(rig.poll(), Some((at as u64, 9)));
    }
    // Slot 7 was the list's last.
    assert_eq!([rig.post(70), rig.post(40)], [Ok(7), Ok(4)]);
    assert_eq!(rig.post(20), Err(PostError::Full));
    // Twice, and of a slot that isn't there.
    rig.complete(&taken[2]);
    rig.complete(&Token { index: 99, ..token }.pack().to_ne_bytes());
    assert_eq!(rig.poll(), None);
    assert_eq!(rig.cq.strays(), 2);
}

#[test]
fn a_queue_pair_has_no_receives_of_its_own() {
    let mut rig = shared();
    let rq = &mut rig.qps[0].1;
    rq.enable(true);
    let mut at = rq.begin();
    let sge = Sge { addr: 0, len: 1, lkey: 0 };
    // SAFETY: refused.
    assert_eq!(unsafe { rq.post(&mut at, 1, &[sge; 9]) }, Err(PostError::SharedReceives));
    assert!(format!("{rq:?}").contains("Rq"));
}

#[test]
fn completions_of_a_queue_pair_that_goes_free_their_receives() {
    let mut rig = shared();
    for id in 0..3 {
        rig.post(id).unwrap();
    }
    assert_eq!(free(&rig.slab), 37);
    let wqe = rig.take().unwrap();
    rig.complete(&wqe);
    // Both have the number that the test's kernel gives everybody.
    let (gone, _) = rig.qps.remove(0);
    // SAFETY: its posting sides are gone.
    unsafe { gone.destroy() }.unwrap();
    rig.cq.settle();
    assert_eq!(free(&rig.slab), 38);
    assert_eq!(rig.poll(), None);
    // The remaining queue pair still brings completions; without it the CQ is empty.
    let wqe = rig.take().unwrap();
    rig.complete(&wqe);
    assert_eq!(rig.poll(), Some((1, 9)));
    let wqe = rig.take().unwrap();
    rig.qps.clear();
    drop(gone);
    rig.cq.settle();
    rig.complete(&wqe);
    assert_eq!(rig.poll(), None);
    assert_eq!(rig.cq.strays(), 1);
    // SAFETY: all posts are over.
    let frames = unsafe { rig.core.destroy() }.unwrap();
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2]);
}

#[test]
fn another_size_keeps_what_is_posted() {
    let mut rig = shared();
    for id in 0..5 {
        rig.post(id).unwrap();
    }
    let first = rig.take().unwrap();
    match rig.srq.resize(&rig.core, 3) {
        Err(Error::Limit { verb: "modify_srq", what: "max_wr", value: 3, limit: 4 }) => {}
        other => panic!("{other:?}"),
    }
    assert!(matches!(rig.srq.resize(&rig.core, 0x1001), Err(Error::Limit { limit: 0x1000, .. })));
    assert_eq!(rig.srq.resize(&rig.core, 20).unwrap(), 31);
    rig.recvs = Arc::clone(rig.kernel.state().made.last().unwrap());
    for id in 5..31 {
        rig.post(id).unwrap();
    }
    // One is taken and not polled.
    assert_eq!(rig.post(99), Err(PostError::Full));
    rig.complete(&first);
    assert_eq!(rig.poll(), Some((0, 9)));
    rig.post(31).unwrap();
    for id in 1..32 {
        let wqe = rig.take().expect("posted");
        rig.complete(&wqe);
        assert_eq!(rig.poll(), Some((id, 9)));
    }
}

/// A core of another queue would share its ring.
#[test]
fn another_queues_core_changes_nothing() {
    let (mut rig, other) = (shared(), shared());
    for told in [rig.srq.resize(&other.core, 20).map(drop), rig.srq.set_limit(&other.core, 1)] {
        assert!(matches!(told, Err(Error::Invalid { verb: "modify_srq", .. })), "{told:?}");
    }
    assert_eq!(other.kernel.state().limits, []);
    assert_eq!(rig.srq.resize(&rig.core, 20).unwrap(), 31);
}

#[test]
fn a_ring_that_the_kernel_lost_takes_no_posts() {
    let mut rig = shared();
    rig.kernel.state().resize_answer = Some(Errno::EINVAL);
    assert!(rig.srq.resize(&rig.core, 20).is_err());
    rig.post(1).expect("it is as it was");
    rig.kernel.state().resize_answer = Some(Errno::ENOMEM);
    assert!(rig.srq.resize(&rig.core, 20).is_err());
    assert_eq!(rig.post(2), Err(PostError::DoorbellRefused));
    rig.srq.set_limit(&rig.core, 5).unwrap();
    assert_eq!(rig.kernel.state().limits, [5]);
}
