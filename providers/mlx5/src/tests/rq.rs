//! Receive queues.
#![allow(unsafe_code, reason = "posts")]

use proptest::prelude::*;
use uverbs_core::memory::post::Source;
use uverbs_core::provider::{RecvOps, RqOps};
use uverbs_core::queues::work::{PostError, Sge};
use uverbs_mlx5_prm::wqe::{RecvKind, RecvView};

use super::fixture::{RecvSide, free, slab};
use crate::recv::queue::RecvCursor;
use crate::send::doorbell::{Step, steps};

fn post(side: &mut RecvSide, at: &mut RecvCursor, id: u64, list: &[Sge]) -> Result<u32, PostError> {
    // SAFETY: the cursor is the test's; no device reads the ring.
    unsafe { side.rq.post(at, id, list) }
}

fn ring(side: &mut RecvSide, at: RecvCursor) {
    // SAFETY: as in `post`.
    unsafe { side.rq.ring(at) };
}

const SGE: Sge = Sge { addr: 0x0102_0304_0506_0708, len: 0x99, lkey: 0xaabb_ccdd };

/// An out-of-order queue has more places than receives.
#[test]
fn a_part_of_the_ring_may_be_outstanding() {
    let mut side = RecvSide::of_a_part((2, 4), 4, 1);
    for index in 0..6 {
        let mut at = side.rq.begin();
        assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Ok(2 * index % 4));
        assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Ok((2 * index + 1) % 4));
        assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Err(PostError::Full));
        ring(&mut side, at);
        // SAFETY: the test is poster and poller.
        unsafe { side.shared.recv.retire(2 * index + 2) };
    }
}

#[test]
fn golden_bytes() {
    let mut side = RecvSide::new(4, 6, 4);
    side.ring.write(0, &[0xee; 256]);
    let mut at = side.rq.begin();
    post(&mut side, &mut at, 1, &[]).unwrap();
    post(&mut side, &mut at, 2, &[SGE, Sge { len: 0, ..SGE }, Sge { len: 1 << 30, ..SGE }])
        .unwrap();
    post(&mut side, &mut at, 3, &[SGE; 4]).unwrap();
    let sge = [0, 0, 0, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 3, 4, 5, 6, 7, 8];
    let big = [0x40, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 3, 4, 5, 6, 7, 8];
    // byte_count 0, lkey 0x100, addr 0
    let end = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let stale = [0xee; 16];
    let expected = [
        [end, stale, stale, stale],
        [sge, big, end, stale],
        [sge, sge, sge, sge],
        [stale, stale, stale, stale],
    ];
    assert_eq!(side.ring.read(0, 256), expected.as_flattened().as_flattened());
    assert_eq!((side.recv_record(), steps()), (0, vec![]));
    ring(&mut side, at);
    assert_eq!(side.recv_record(), 3);
    assert_eq!(steps(), [Step::WqeBeforeRecord, Step::Record { word: 0, value: 3 }]);
    assert!(side.rq.dump(1).contains("0xaabbccdd"), "{}", side.rq.dump(1));
}

/// 2 GiB is encoded as 0, on the slow path.
#[test]
fn a_receive_of_two_gigabytes() {
    let mut side = RecvSide::new(4, 5, 2);
    let all = Sge { len: 1 << 31, ..SGE };
    let mut at = side.rq.begin();
    // SAFETY: the cursor is of `begin`; no device reads the ring.
    unsafe { side.rq.post_one(&mut at, 1, &all) }.unwrap();
    let bytes = [0, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(side.ring.read(0, 16), bytes);
}

/// Posts of one SGE, in a batch and alone, fill the ring like lists, as often as it becomes free.
#[test]
fn one_piece_is_posted_as_a_list_of_one() {
    let mut lists = RecvSide::of_a_part((3, 4), 5, 2);
    let mut batch = RecvSide::of_a_part((3, 4), 5, 2);
    let mut alone = RecvSide::of_a_part((3, 4), 5, 2);
    let rare = [0, 1 << 31, (1 << 31) + 1].map(|len| Sge { len, ..SGE });
    for round in 0..5 {
        let (mut listed, mut batched) = (lists.rq.begin(), batch.rq.begin());
        for id in 0..3 {
            let piece = Sge { addr: 10 * round + id, ..SGE };
            post(&mut lists, &mut listed, id, &[piece]).unwrap();
            // SAFETY: the cursor is of `begin`; no device reads the ring.
            assert!(unsafe { batch.rq.post_at_once(&mut batched, id, &piece) });
            // The first one may need `post_one`, which checks for room.
            // SAFETY: the cursor is of `begin`; no device reads the ring.
            if !unsafe { alone.rq.post_lone(id, &piece) } {
                assert_eq!(id, 0);
                let mut at = alone.rq.begin();
                // SAFETY: the cursor is of `begin`; no device reads the ring.
                unsafe { alone.rq.post_one(&mut at, id, &piece) }.unwrap();
                ring(&mut alone, at);
            }
            for piece in &rare {
                let before = format!("{batched:?}");
                // SAFETY: the cursor is of `begin`; no device reads the ring.
                assert!(!unsafe { batch.rq.post_at_once(&mut batched, 9, piece) });
                assert_eq!(format!("{batched:?}"), before);
                // SAFETY: the cursor is of `begin`; no device reads the ring.
                assert!(!unsafe { alone.rq.post_lone(9, piece) });
            }
        }
        // SAFETY: the cursor is of `begin`; no device reads the ring.
        assert!(!unsafe { batch.rq.post_at_once(&mut batched, 9, &SGE) }, "it is full");
        // SAFETY: the cursor is of `begin`; no device reads the ring.
        assert!(!unsafe { alone.rq.post_lone(9, &SGE) }, "it is full");
        ring(&mut lists, listed);
        ring(&mut batch, batched);
        for side in [&batch, &alone] {
            assert_eq!(side.ring.read(0, 128), lists.ring.read(0, 128));
            assert_eq!(side.recv_record(), lists.recv_record());
        }
        for side in [&lists, &batch, &alone] {
            // SAFETY: the test is poster and poller.
            unsafe { side.shared.recv.retire(3 * (round as u32 + 1)) };
        }
    }
}

#[test]
fn refusals_leave_the_cursor() {
    let mut side = RecvSide::new(4, 5, 2);
    let mut at = side.rq.begin();
    assert_eq!(post(&mut side, &mut at, 0, &[SGE; 3]), Err(PostError::TooManySges));
    let half = Sge { len: 1 << 30, ..SGE };
    let more = Sge { len: (1 << 30) + 1, ..SGE };
    assert_eq!(post(&mut side, &mut at, 0, &[half, more]), Err(PostError::MessageTooLong));
    assert_eq!(post(&mut side, &mut at, 0, &[half, half]), Ok(0));
    side.rq.enable(false);
    let mut refused = side.rq.begin();
    assert_eq!(post(&mut side, &mut refused, 0, &[SGE]), Err(PostError::State));
    side.rq.enable(true);
    for slot in 1..4 {
        assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Ok(slot));
    }
    assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Err(PostError::Full));
    ring(&mut side, at);
    // SAFETY: the test is poster and poller.
    unsafe { side.shared.recv.retire(1) };
    let mut at = side.rq.begin();
    // A slot is a place in the ring of four.
    assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Ok(0));
    assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Err(PostError::Full));
    let mut none = RecvSide::new(0, 0, 0);
    let mut at = none.rq.begin();
    assert_eq!(post(&mut none, &mut at, 0, &[]), Err(PostError::State));
    assert_eq!(none.rq.dump(3), "no receive queue");
}

#[test]
fn the_record_has_16_bits_and_a_reset_starts_over() {
    let mut side = RecvSide::new(4, 4, 1);
    for index in 0..0x1_0002 {
        let mut at = side.rq.begin();
        assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Ok(index % 4));
        ring(&mut side, at);
        // SAFETY: the test is poster and poller.
        unsafe { side.shared.recv.retire(index + 1) };
    }
    assert_eq!(side.recv_record(), 2);
    side.rq.start_at(u32::MAX - 1);
    let mut at = side.rq.begin();
    for slot in [2, 3, 0, 1] {
        assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Ok(slot));
    }
    assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Err(PostError::Full));
    ring(&mut side, at);
    assert_eq!(side.recv_record(), 2);
    // SAFETY: no device, no poller.
    unsafe { side.rq.reset() };
    assert_eq!((side.recv_record(), side.rq.raw_parts().producer), (0, 0));
    side.rq.enable(true);
    let mut at = side.rq.begin();
    assert_eq!(post(&mut side, &mut at, 0, &[SGE]), Ok(0));
}

#[test]
#[cfg_attr(miri, ignore = "frames are in mapped memory")]
fn no_frame_is_lost() {
    let slab = slab(64, 4);
    let mut side = RecvSide::new(4, 4, 1);
    for rung in [false, true] {
        let mut at = side.rq.begin();
        for id in 0..3 {
            let frame = slab.take().unwrap();
            let slot = post(&mut side, &mut at, id, &[frame.sge()]).unwrap();
            // SAFETY: the slot of the post just made.
            unsafe { side.rq.own(&at, slot, frame.hold()) };
        }
        assert_eq!(free(&slab), 1);
        if rung {
            ring(&mut side, at);
        }
        side.rq.begin();
        assert_eq!(free(&slab), if rung { 1 } else { 4 });
    }
    drop(side);
    assert_eq!(free(&slab), 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]

    /// Parsed WQEs equal the posted lists, for any lists and strides.
    #[test]
    fn what_is_posted_is_what_is_read(
        shift in 4u32..8,
        lists in proptest::collection::vec(
            proptest::collection::vec((any::<u64>(), 0u32..1000, any::<u32>()), 0..9),
            1..30,
        ),
    ) {
        let max_sge = 1 << (shift - 4);
        let mut side = RecvSide::new(8, shift, max_sge);
        for (index, list) in lists.into_iter().enumerate() {
            let list = list.into_iter().map(|(addr, len, lkey)| Sge { addr, len, lkey });
            let list: Vec<Sge> = list.collect();
            let list = &list[..list.len().min(max_sge as usize)];
            let mut at = side.rq.begin();
            prop_assert_eq!(post(&mut side, &mut at, 0, list), Ok(index as u32 % 8));
            ring(&mut side, at);
            let bytes = side.ring.read((index % 8) << shift, 1 << shift);
            let view = RecvView::parse(&bytes, RecvKind::Rq).unwrap();
            let read: Vec<Sge> = view
                .data()
                .map(|s| Sge { addr: s.addr.get(), len: s.length(), lkey: s.lkey.get() })
                .collect();
            let wanted: Vec<Sge> = list.iter().copied().filter(|sge| sge.len != 0).collect();
            prop_assert_eq!(read, wanted);
            // SAFETY: the test is poster and poller.
            unsafe { side.shared.recv.retire(index as u32 + 1) };
        }
    }
}
