//! Rings of receives: of a queue pair, and shared ones.

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::provider::{ContextOps, CqOps, NewSrq, RecvOps, RqOps, SrqInit, SrqOps};
use uverbs_core::queues::completion::Completed;
use uverbs_core::queues::work::{PostError, Sge};
use uverbs_kernel_rings::testing::{free, post_recv};

use super::kernel::Bytes;
use super::rig::{CAP, PIECE, Rig, Told};

const RECV: u32 = 128;
const RECV_WRITE_IMM: u32 = 129;
const SECOND: Sge = Sge { addr: 0xbeef, len: 7, lkey: 0x2200 };

#[test]
fn receives_stand_in_the_ring_as_the_kernel_reads_them() {
    let mut rig = Rig::new(64);
    rig.recv(7, &[PIECE, Sge { len: 0, ..PIECE }, SECOND], None).unwrap();
    let receive = rig.kernel.state().take_recv().unwrap();
    assert_eq!((receive.0.len(), receive.0[8]), (16 + 3 * 16, 2));
    assert_eq!((receive.long(16), receive.word(24), receive.word(28)), (0xdead_0000, 100, 0x1100));
    assert_eq!((receive.long(32), receive.word(40), receive.word(44)), (0xbeef, 7, 0x2200));
    assert!(rig.kernel.state().complete(receive.id(), 0, RECV, 40));
    let told = rig.poll();
    let result = Ok(Completed::Recv);
    assert_eq!(told, Some(Told { id: 7, result, byte_len: 40, has_frame: false }));
    assert_eq!(rig.recv(8, &[PIECE; 4], None), Err(PostError::TooManySges));
}

#[test]
fn bytes_of_a_write_are_not_the_frames() {
    let mut rig = Rig::new(64);
    let slab = rig.slab(64, 1);
    let frame = slab.take();
    rig.recv(1, &[PIECE], frame).unwrap();
    let receive = rig.kernel.state().take_recv().unwrap();
    assert!(rig.kernel.state().complete(receive.id(), 0, RECV_WRITE_IMM, 40));
    assert_eq!(rig.cq.next().unwrap().frame.map(|frame| frame.len()), Some(0));
}

/// One element stays empty, and eight receives fit.
#[test]
fn the_ring_comes_round_and_is_full_in_between() {
    let mut rig = Rig::new(64);
    rig.rq.ring_mut().start_at(u32::MAX - 5);
    rig.rq.start_at(u32::MAX - 5);
    for round in 0..20 {
        for id in 0..8 {
            rig.recv(round * 8 + id, &[PIECE], None).unwrap();
        }
        assert_eq!(rig.recv(0, &[PIECE], None), Err(PostError::Full));
        let taken: Vec<Bytes> = std::iter::from_fn(|| rig.kernel.state().take_recv()).collect();
        assert_eq!(taken.len(), 8);
        for receive in taken {
            assert!(rig.kernel.state().complete(receive.id(), 0, RECV, 1));
        }
        let ids: Vec<_> = std::iter::from_fn(|| rig.poll()).map(|told| told.id).collect();
        assert_eq!(ids, (0..8).map(|id| round * 8 + id).collect::<Vec<_>>());
    }
    // An index that no kernel stores is 0.
    rig.kernel.state().made[1].poke(1, u32::MAX);
    let room = (0..9).take_while(|id| rig.recv(*id, &[PIECE], None).is_ok()).count();
    assert!(room <= 8);
}

/// No command makes the kernel flush a receive that is posted in ERR.
#[test]
fn receives_after_a_failure_are_refused() {
    let mut rig = Rig::new(64);
    rig.recv(1, &[PIECE], None).unwrap();
    let receive = rig.kernel.state().take_recv().unwrap();
    assert!(rig.kernel.state().complete(receive.id(), 5, RECV, 0));
    assert_eq!(rig.poll().unwrap().result, Err(5));
    assert_eq!(rig.recv(2, &[PIECE], None), Err(PostError::State));
    assert_eq!(rig.kernel.state().states, []);
}

/// The kernel would take what is left in the ring.
#[test]
fn a_reset_leaves_no_receive_in_the_ring() {
    let mut rig = Rig::new(64);
    let slab = rig.slab(64, 3);
    for id in 0..3 {
        let frame = slab.take();
        rig.recv(id, &[PIECE], frame).unwrap();
    }
    rig.kernel.state().take_recv().unwrap();
    #[allow(unsafe_code, reason = "resets without a device")]
    // SAFETY: no device is behind the ring, and it has completed nothing.
    unsafe {
        rig.rq.reset();
    }
    assert_eq!(free(&slab), 3);
    assert!(rig.kernel.state().take_recv().is_none());
    // Elements ahead of the program's index have no memory.
    for at in 0..=CAP.max_recv_wr {
        assert_eq!(rig.kernel.state().made[1].read(at)[8], 0);
    }
    rig.rq.enable(true);
    rig.recv(9, &[PIECE], None).unwrap();
    let receive = rig.kernel.state().take_recv().unwrap();
    assert!(rig.kernel.state().complete(receive.id(), 0, RECV, 1));
    assert_eq!(rig.poll().map(|told| told.id), Some(9));
}

#[test]
fn a_shared_ring_keeps_its_receives_through_another_size() {
    let rig = Rig::new(64);
    let mut init = SrqInit::new(Arc::clone(&rig.pd));
    (init.max_wr, init.max_sge) = (4, 2);
    let NewSrq { core, mut srq } = rig.context.create_srq(&init).unwrap();
    for id in 0..4 {
        post_recv(&mut srq, id, &[PIECE, SECOND], None).unwrap();
    }
    assert_eq!(post_recv(&mut srq, 4, &[PIECE], None), Err(PostError::Full));
    let first = rig.kernel.state().take_recv().unwrap();
    let small = srq.resize(&core, 2).unwrap_err();
    assert!(small.to_string().contains("limit is 3") || small.errno().is_none(), "{small}");
    assert_eq!(srq.resize(&core, 9).unwrap(), 9);
    for id in 4..9 {
        post_recv(&mut srq, id, &[PIECE], None).unwrap_or_else(|why| panic!("{id}: {why}"));
    }
    let taken: Vec<_> = std::iter::from_fn(|| rig.kernel.state().take_recv()).collect();
    assert_eq!(taken.len(), 8);
    assert!(taken.iter().all(|receive| receive.id() != first.id()));
    assert_eq!((taken[0].0[8], taken[3].0[8]), (2, 1));
    // Without memory the queue is as it was.
    assert_eq!(srq.resize(&core, 1 << 16).unwrap(), 1 << 16);
    let _ = srq.begin();
    rig.kernel.state().refuse_mmap = true;
    assert_eq!(srq.resize(&core, 20).unwrap_err().errno(), Some(Errno::EAGAIN));
    assert_eq!(post_recv(&mut srq, 1, &[PIECE], None), Err(PostError::DoorbellRefused));
}
