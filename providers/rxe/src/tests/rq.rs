//! Receive queues.
#![allow(unsafe_code, reason = "posts, which is unsafe, to a ring that no device reads")]

use uverbs_core::provider::{CqOps, View};
use uverbs_core::queues::completion::Status;
use uverbs_core::queues::work::{PostError, Sge};

use super::rig::Rig;

fn sge(len: u32) -> Sge {
    Sge { addr: 0x7000_0000_1000 + u64::from(len), len, lkey: 0x0042_0000 + len }
}

/// Offsets of `struct rxe_recv_wqe`.
#[test]
fn a_receive_stands_where_the_header_says() {
    let mut rig = Rig::new(15);
    rig.recv(0xdead, &[sge(100), sge(0), sge(28)]).unwrap();
    let wqe = rig.recvs.lock().unwrap().head().unwrap();
    assert_eq!(
        wqe[..8],
        (1u64 << 32).to_ne_bytes(),
        "wr_id: queue pair 0, receive queue, element 0"
    );
    let word = |at: usize| u32::from_ne_bytes(wqe[at..][..4].try_into().unwrap());
    let dma: [u32; 8] = std::array::from_fn(|at| word(8 + 4 * at));
    assert_eq!(dma, [0, 0, 128, 128, 0, 2, 0, 0], "length, resid, cur_sge, num_sge, sge_offset");
    assert_eq!(wqe[40..48], sge(100).addr.to_ne_bytes());
    assert_eq!((word(48), word(52)), (100, sge(100).lkey));
    assert_eq!(wqe[56..64], sge(28).addr.to_ne_bytes());
    assert_eq!((word(64), word(68)), (28, sge(28).lkey));
    assert_eq!(rig.kicks(), 0, "no system call");
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut rig = Rig::new(15);
    assert_eq!(rig.recv(1, &[sge(1); 4]), Err(PostError::TooManySges));
    assert_eq!(rig.recv(1, &[sge(1 << 31)]), Err(PostError::MessageTooLong));
    for id in 0..7 {
        rig.recv(id, &[]).unwrap();
    }
    assert_eq!(rig.recv(7, &[]), Err(PostError::Full));
    assert_eq!(rig.complete_recv(0, 128, 0, None), Some(true));
    assert_eq!(rig.recv(7, &[]), Err(PostError::Full), "not polled yet");
    assert_eq!(rig.cq.next().unwrap().wr_id, 0);
    rig.recv(7, &[]).unwrap();
}

#[test]
fn receives_of_a_failed_queue_pair_make_the_kernel_flush() {
    let mut rig = Rig::new(15);
    rig.recv(1, &[]).unwrap();
    rig.recv(2, &[]).unwrap();
    assert_eq!(rig.kernel.state().states, []);
    assert_eq!(rig.complete_recv(5, 0, 0, None), Some(true));
    let polled = rig.cq.next().unwrap();
    assert_eq!(polled.view.result().unwrap_err().status, Status::Flushed);
    assert!(polled.view.is_recv() && polled.wr_id == 1);
    rig.recv(3, &[]).unwrap();
    assert_eq!(rig.kernel.state().states, [6], "to ERR, once more");
}

/// No completion reports the failure, since no work request was outstanding.
#[test]
fn receives_after_the_program_failed_its_queue_pair_make_the_kernel_flush() {
    let mut rig = Rig::new(15);
    rig.qp.fail().unwrap();
    assert_eq!(rig.kernel.state().states, [6]);
    rig.recv(1, &[]).unwrap();
    assert_eq!(rig.kernel.state().states, [6, 6], "to ERR, once more");
}
