//! Unsolicited completions of a queue pair that ends.
#![allow(unsafe_code, reason = "destroys a queue pair behind its queues")]

use uverbs_core::provider::{CqOps, View};

use super::rig::Rig;

/// Status, flags and length of an unsolicited WRITE with immediate data.
const WRITE: (u8, u8, u8) = (0, 1 << 7 | 2 << 4 | 1 << 3 | 2 << 1, 16);

/// Number that no work request of the queue pair has: an unsolicited completion names none.
const NUMBER: u16 = 0xfff8;

/// Number of unsolicited completions.
fn polled(rig: &mut Rig) -> usize {
    let mut count = 0;
    while let Some(polled) = rig.cq.next() {
        assert!(polled.view.is_unsolicited() && polled.wr_id == 0);
        count += 1;
    }
    count
}

#[test]
fn a_queue_pair_that_is_gone_has_no_completions() {
    let mut rig = Rig::new(8);
    // The queue hears of the queue pair at this poll.
    rig.kernel.state().complete(0, NUMBER, WRITE);
    assert_eq!(polled(&mut rig), 1);
    for ring in [0, 1] {
        rig.kernel.state().complete(ring, NUMBER, WRITE);
    }
    // SAFETY: nothing was posted.
    unsafe { rig.qp.destroy() }.unwrap();
    assert_eq!((polled(&mut rig), rig.cq.strays()), (0, 0));
    // A device that writes a completion all the same.
    rig.kernel.state().complete(0, NUMBER, WRITE);
    assert_eq!((polled(&mut rig), rig.cq.strays()), (0, 1));
}

/// A program with its own data path takes the entries.
#[test]
fn a_queue_settles_beside_a_program_that_polls() {
    let mut rig = Rig::new(8);
    rig.cq.settle_beside();
    assert!(format!("{:?}", rig.cq).contains("queue_pairs: 1"));
    rig.kernel.state().complete(0, NUMBER, WRITE);
    // SAFETY: nothing was posted.
    unsafe { rig.qp.destroy() }.unwrap();
    rig.cq.settle_beside();
    assert!(format!("{:?}", rig.cq).contains("queue_pairs: 0"));
    // The entry was left as it was: a poll drops it.
    assert_eq!((polled(&mut rig), rig.cq.strays()), (0, 1));
}

/// The model's completion queues have two rings.
#[test]
fn several_rings_are_not_described() {
    assert_eq!(crate::direct::completions(&Rig::new(8).cq), None);
}

#[test]
fn a_queue_pair_that_is_reset_has_no_completions() {
    let mut rig = Rig::new(8);
    rig.kernel.state().complete(0, NUMBER, WRITE);
    rig.cq.settle();
    rig.cq.sweep(rig.qp.shared().user_index.value());
    assert_eq!((polled(&mut rig), rig.cq.strays()), (0, 0));
    rig.kernel.state().complete(0, NUMBER, WRITE);
    assert_eq!(polled(&mut rig), 1);
}
