//! Send queues: cursors, room, doorbells.
#![allow(unsafe_code, reason = "posts")]

use uverbs_core::memory::post::Source;
use uverbs_core::order::doorbell_memory::DoorbellMemory;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{Data, PostError, Remote, SendOp, Sge, Wr};
use uverbs_mlx5_prm::opcode::Opcode;

use super::asked::{Asked, post_alone};
use super::fixture::{HALF, SendSide, free, slab};
use crate::send::doorbell::{Step, steps};
use crate::send::queue::SendCursor;
use crate::send::wqe::WqeLimits;

const ROOM: WqeLimits = WqeLimits { max_sge: 16, max_inline: 400 };
const SGE: Sge = Sge { addr: 0x1000, len: 64, lkey: 0x100 };
const REMOTE: Remote = Remote { addr: 0x2000, rkey: 0x200 };

fn post(side: &mut SendSide, at: &mut SendCursor, id: u64) -> Result<u32, PostError> {
    // SAFETY: the cursor is the test's; no device reads the ring.
    unsafe { side.sq.post(at, Wr::new(id), SendOp::Send, Data::One(SGE)) }
}

fn inline(side: &mut SendSide, at: &mut SendCursor, len: usize) -> Result<u32, PostError> {
    let bytes = vec![7; len];
    // SAFETY: as in `post`.
    unsafe { side.sq.post(at, Wr::new(0), SendOp::Send, Data::Inline(&bytes)) }
}

fn ring(side: &mut SendSide, at: SendCursor) {
    // SAFETY: as in `post`.
    unsafe { side.sq.ring(at) };
}

/// Posts one WQE of `ds` units, at least 2: control segment, and the rest inline.
fn one(side: &mut SendSide, ds: usize) -> Vec<Step> {
    let mut at = side.sq.begin();
    inline(side, &mut at, (ds - 1) * 16 - 4).unwrap();
    steps();
    ring(side, at);
    side.retire(side.sq.raw_parts().producer);
    steps()
}

fn head(side: &SendSide, index: u32) -> u64 {
    u64::from_ne_bytes(side.bytes(index, 8).try_into().unwrap())
}

#[test]
fn a_queue_that_stays_leaves_the_drain_to_its_next_doorbell_or_to_its_end() {
    let mut side = SendSide::new(16, ROOM, true);
    // SAFETY: the test has one thread.
    unsafe { side.sq.stay() };
    assert_eq!(one(&mut side, 2).last(), Some(&Step::CopyFlush));
    side.sq.leave();
    assert_eq!(steps(), [Step::Flush], "what is left is drained");
    assert_eq!(one(&mut side, 2).last(), Some(&Step::Flush));
    side.sq.leave();
    assert_eq!(steps(), [], "once");
    // SAFETY: the test has one thread.
    unsafe { side.sq.stay() };
    drop(side);
    assert_eq!(steps(), [Step::Flush], "the register's next owner finds nothing in the buffer");
}

#[test]
fn blue_flame_copies_a_lone_wqe_between_fences_and_halves_take_turns() {
    let mut side = SendSide::new(16, ROOM, true);
    let mut index = 0;
    for (round, ds) in [2, 4, 5, 16, 3, 8].into_iter().enumerate() {
        side.register.write(0, &[0; 2 * HALF]);
        let offset = round as u32 % 2 * HALF as u32;
        let blocks = (ds as u32).div_ceil(4);
        let end = index + blocks;
        assert_eq!(
            one(&mut side, ds),
            [
                Step::WqeBeforeRecord,
                Step::Record { word: 1, value: end },
                Step::RecordBeforeDoorbell(DoorbellMemory::WriteCombining),
                Step::Copied { offset, blocks },
                Step::Flush,
            ]
        );
        // The copy is the WQE in whole blocks, and other bytes are unchanged; the fourth WQE wraps.
        let bytes = blocks as usize * 64;
        assert_eq!(side.register.read(offset as usize, bytes), side.bytes(index, bytes));
        assert!(side.register.read(offset as usize ^ HALF, HALF).iter().all(|&byte| byte == 0));
        assert!(
            side.register.read(offset as usize + bytes, HALF - bytes).iter().all(|&byte| byte == 0)
        );
        assert_eq!(side.send_record(), end);
        index = end;
    }
}

#[test]
fn a_copy_around_the_end_of_the_ring() {
    let mut side = SendSide::new(8, ROOM, true);
    for _ in 0..6 {
        one(&mut side, 2);
    }
    assert_eq!(one(&mut side, 16)[3], Step::Copied { offset: 0, blocks: 4 });
    assert_eq!(side.register.read(0, HALF), side.bytes(6, HALF));
}

#[test]
fn what_is_not_lone_or_small_is_announced_by_eight_bytes() {
    let mut side = SendSide::new(16, ROOM, true);
    // Longer than a half.
    let expected = [
        Step::WqeBeforeRecord,
        Step::Record { word: 1, value: 5 },
        Step::RecordBeforeDoorbell(DoorbellMemory::WriteCombining),
        Step::Stored { offset: 0, head: 0 },
        Step::Flush,
    ];
    let seen = one(&mut side, 17);
    let stored = head(&side, 0);
    assert_eq!(seen[..3], expected[..3]);
    assert_eq!(seen[3..], [Step::Stored { offset: 0, head: stored }, Step::Flush]);
    assert_eq!(side.register.read(0, 8), side.bytes(0, 8));
    // Only a control segment; it goes to the other half.
    let mut at = side.sq.begin();
    inline(&mut side, &mut at, 0).unwrap();
    ring(&mut side, at);
    assert_eq!(steps()[3], Step::Stored { offset: HALF as u32, head: head(&side, 5) });
    // Two WQEs: the bytes of the second.
    let mut at = side.sq.begin();
    post(&mut side, &mut at, 1).unwrap();
    post(&mut side, &mut at, 2).unwrap();
    ring(&mut side, at);
    let seen = steps();
    assert_eq!(seen[1], Step::Record { word: 1, value: 8 });
    assert_eq!(seen[3], Step::Stored { offset: 0, head: head(&side, 7) });
    assert_eq!(side.register.read(0, 8), side.bytes(7, 8));
}

#[test]
fn a_non_cached_doorbell_is_eight_bytes_and_no_flush() {
    let mut side = SendSide::new(16, ROOM, false);
    for index in 0..3 {
        let seen = one(&mut side, 3);
        assert_eq!(
            seen,
            [
                Step::WqeBeforeRecord,
                Step::Record { word: 1, value: index + 1 },
                Step::RecordBeforeDoorbell(DoorbellMemory::NonCached),
                Step::Stored { offset: 0, head: head(&side, index) },
            ]
        );
        assert_eq!(side.register.read(0, 8), side.bytes(index, 8));
        assert!(side.register.read(8, 2 * HALF - 8).iter().all(|&byte| byte == 0));
    }
}

#[test]
fn nothing_new_rings_nothing() {
    let mut side = SendSide::new(16, ROOM, true);
    let at = side.sq.begin();
    ring(&mut side, at);
    assert_eq!(steps(), []);
    assert_eq!(side.send_record(), 0);
}

#[test]
fn a_batch_that_is_not_rung_publishes_nothing_and_the_next_one_takes_its_place() {
    let mut side = SendSide::new(16, ROOM, true);
    let mut at = side.sq.begin();
    for id in 0..5 {
        assert_eq!(post(&mut side, &mut at, id), Ok(id as u32));
    }
    assert_eq!(steps(), []);
    assert_eq!((side.send_record(), side.sq.raw_parts().producer), (0, 0));
    // A dropped or leaked copy of a cursor does not affect the queue.
    let mut at = side.sq.begin();
    assert_eq!(post(&mut side, &mut at, 9), Ok(0));
    ring(&mut side, at);
    assert_eq!((side.send_record(), side.sq.raw_parts().producer), (1, 1));
    // SAFETY: the test is poster and poller.
    assert_eq!(unsafe { side.shared.send.take(0) }.wr_id, 9);
}

#[test]
fn a_full_queue_says_so_until_something_is_retired() {
    let mut side = SendSide::new(8, ROOM, true);
    let mut at = side.sq.begin();
    for _ in 0..2 {
        inline(&mut side, &mut at, 180).unwrap(); // 200 bytes: 4 WQEBBs
    }
    let before = format!("{at:?}");
    assert_eq!(post(&mut side, &mut at, 0), Err(PostError::Full));
    assert_eq!(format!("{at:?}"), before);
    ring(&mut side, at);
    side.retire(2);
    let mut at = side.sq.begin();
    // Two WQEBBs are free: three don't fit, two fit, then none.
    assert_eq!(inline(&mut side, &mut at, 120), Err(PostError::Full));
    assert_eq!(inline(&mut side, &mut at, 100), Ok(side.place(8)));
    assert_eq!(post(&mut side, &mut at, 0), Err(PostError::Full));
    ring(&mut side, at);
    assert_eq!(side.send_record(), 10);
    side.assert_guards();
}

#[test]
fn small_requests_are_no_more_than_the_queue_was_made_for() {
    let mut side = SendSide::with_max_wr(16, 4, ROOM);
    for round in 0..20 {
        let mut at = side.sq.begin();
        for _ in 0..4 {
            post(&mut side, &mut at, round).unwrap();
        }
        assert_eq!(post(&mut side, &mut at, round), Err(PostError::Full));
        ring(&mut side, at);
        // Two complete: then two more fit, and no third.
        let end = side.sq.raw_parts().producer;
        side.retire(end - 2);
        let mut at = side.sq.begin();
        for _ in 0..2 {
            post(&mut side, &mut at, round).unwrap();
        }
        assert_eq!(post(&mut side, &mut at, round), Err(PostError::Full));
        // Dropped ones don't count.
        let mut at = side.sq.begin();
        post(&mut side, &mut at, round).unwrap();
        ring(&mut side, at);
        side.retire(end + 1);
    }
    side.assert_guards();
}

#[test]
fn indexes_run_over_32_bits() {
    let mut side = SendSide::new(8, ROOM, true);
    let start = u32::MAX - 5;
    side.sq.start_at(start);
    let mut index = start;
    for _ in 0..10 {
        let mut at = side.sq.begin();
        // 3 + 3 WQEBBs fit, another 3 don't.
        assert_eq!(inline(&mut side, &mut at, 170), Ok(index % 8));
        assert_eq!(inline(&mut side, &mut at, 170), Ok(index.wrapping_add(3) % 8));
        assert_eq!(inline(&mut side, &mut at, 170), Err(PostError::Full));
        ring(&mut side, at);
        index = index.wrapping_add(6);
        assert_eq!(side.send_record(), index & 0xffff);
        assert_eq!(
            side.bytes(index.wrapping_sub(3), 3)[1..],
            (index.wrapping_sub(3) as u16).to_be_bytes()
        );
        side.retire(index);
    }
    side.assert_guards();
}

#[test]
fn posting_needs_the_state_and_a_queue() {
    let mut side = SendSide::new(8, ROOM, true);
    side.sq.enable(false);
    let mut at = side.sq.begin();
    assert_eq!(post(&mut side, &mut at, 0), Err(PostError::State));
    side.sq.enable(true);
    assert_eq!(post(&mut side, &mut at, 0), Ok(0));
    let mut none = SendSide::new(0, ROOM, true);
    let mut at = none.sq.begin();
    assert_eq!(post(&mut none, &mut at, 0), Err(PostError::State));
    // SAFETY: nothing can be written.
    let raw = unsafe { none.sq.post_segments(&mut at, Wr::new(0), (0, 0), 0, &[]) };
    assert_eq!(raw, Err(PostError::State));
    assert_eq!(none.sq.dump(7), "no send queue");
    none.assert_guards();
}

#[test]
fn a_reset_starts_over() {
    let mut side = SendSide::new(8, ROOM, true);
    for _ in 0..3 {
        one(&mut side, 2);
    }
    // SAFETY: no device, no poller.
    unsafe { side.sq.reset() };
    assert_eq!(side.send_record(), 0);
    let mut at = side.sq.begin();
    assert_eq!(post(&mut side, &mut at, 0), Err(PostError::State));
    side.sq.enable(true);
    let mut at = side.sq.begin();
    assert_eq!(post(&mut side, &mut at, 5), Ok(0));
    ring(&mut side, at);
    assert_eq!(side.send_record(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "frames are in mapped memory")]
fn no_frame_is_lost() {
    let slab = slab(64, 8);
    let mut side = SendSide::new(8, ROOM, true);
    let own = |side: &mut SendSide, at: &mut SendCursor, id: u64| {
        let frame = slab.take().unwrap();
        // SAFETY: the cursor is the test's; no device reads the ring.
        let slot =
            unsafe { side.sq.post(at, Wr::new(id), SendOp::Write(REMOTE), Data::One(frame.sge())) }
                .unwrap();
        // SAFETY: the slot of the post just made.
        unsafe { side.sq.own(at, slot, frame.hold()) };
    };
    // A leaked batch with three frames; the next batch would reuse only one of its places.
    let mut at = side.sq.begin();
    for id in 0..3 {
        own(&mut side, &mut at, id);
    }
    assert_eq!(free(&slab), 5);
    let mut at = side.sq.begin();
    assert_eq!(free(&slab), 8);
    own(&mut side, &mut at, 7);
    ring(&mut side, at);
    assert_eq!(free(&slab), 7);
    let mut at = side.sq.begin();
    own(&mut side, &mut at, 9);
    assert!(side.sq.left() != 0);
    let asked = Asked { wr: Wr::new(9), op: SendOp::Send, data: Data::One(SGE), to: None };
    assert!(!post_alone(&mut side.sq, &asked), "the forgotten frame would stay there");
    // `begin` leaves published work requests alone.
    let mut at = side.sq.begin();
    assert_eq!(free(&slab), 7);
    own(&mut side, &mut at, 8);
    ring(&mut side, at);
    // SAFETY: the test is poster and poller.
    let taken = unsafe { side.shared.send.take(1) };
    assert_eq!((taken.wr_id, taken.position.end()), (8, 2));
    assert!(taken.frame.is_some());
    // The unsignaled one before it went back to its slab.
    assert_eq!(free(&slab), 7);
    drop(taken);
    // A full ring of leaked work requests.
    side.retire(2);
    let mut at = side.sq.begin();
    for id in 0..8 {
        own(&mut side, &mut at, id);
    }
    assert_eq!(post(&mut side, &mut at, 0), Err(PostError::Full));
    assert_eq!(free(&slab), 0);
    side.sq.begin();
    assert_eq!(free(&slab), 8);
    // Frames also return when the queue is dropped.
    let mut at = side.sq.begin();
    own(&mut side, &mut at, 0);
    drop(side);
    assert_eq!(free(&slab), 8);
}

#[test]
fn segments_by_hand() {
    let mut side = SendSide::new(8, ROOM, true);
    for _ in 0..7 {
        one(&mut side, 2);
    }
    side.stain(0xee);
    // Five segments from the last WQEBB on, so the WQE wraps.
    let segments: Vec<[u8; 16]> = (0..4).map(|i| [i + 1; 16]).collect();
    let mut at = side.sq.begin();
    // SAFETY: no device reads the ring.
    let slot = unsafe {
        side.sq.post_segments(&mut at, Wr::new(3).unsignaled(), (0x25, 0x81), 0xabc, &segments)
    };
    assert_eq!(slot, Ok(7));
    let bytes = side.bytes(7, 8 * 64);
    assert_eq!(bytes[..16], [0x81, 0, 7, 0x25, 0x12, 0x34, 0x56, 5, 0, 0, 0, 0, 0, 0, 0xa, 0xbc]);
    assert_eq!(bytes[16..80], *segments.as_flattened());
    assert!(bytes[80..].iter().all(|&byte| byte == 0xee));
    ring(&mut side, at);
    assert_eq!(side.send_record(), 9);
    let many = vec![[0; 16]; 63];
    // SAFETY: no device reads the ring.
    let error = unsafe { side.sq.post_segments(&mut at, Wr::new(0), (0, 0), 0, &many) };
    assert_eq!(error, Err(PostError::MessageTooLong));
    // SAFETY: as above. 63 units are 16 WQEBBs, and the ring has 8.
    let error = unsafe { side.sq.post_segments(&mut at, Wr::new(0), (0, 0), 0, &many[..62]) };
    assert_eq!(error, Err(PostError::Full));
    side.assert_guards();
}

#[test]
fn wqes_by_hand() {
    let mut side = SendSide::new(2, ROOM, true);
    let mut at = side.sq.begin();
    let mut post = |wqe: &[u8]| {
        // SAFETY: no device reads the ring.
        unsafe { side.sq.post_wqe(&mut at, 1, wqe) }
    };
    let mut wqe: Vec<u8> = (0..144).collect();
    assert_eq!(post(&wqe[..7]), Err(PostError::BadData));
    wqe[7] = 0;
    assert_eq!(post(&wqe), Err(PostError::BadData), "of no length");
    wqe[7] = 2;
    assert_eq!(post(&wqe[..31]), Err(PostError::BadData), "shorter than it says");
    wqe[7] = 9;
    assert_eq!(post(&wqe), Err(PostError::Full), "longer than the ring");
    wqe[..8].copy_from_slice(&[1, 0xff, 0xff, 0x2f, 0x12, 0x34, 0x56, 5]);
    assert_eq!(post(&wqe[..80]), Ok(0));
    wqe[1..3].copy_from_slice(&[0, 0]);
    assert_eq!(side.bytes(0, 80), wqe[..80], "the index alone is filled in");
    side.assert_guards();
}

#[test]
fn raw_parts_and_dump() {
    let mut side = SendSide::new(8, ROOM, true);
    let mut at = side.sq.begin();
    post(&mut side, &mut at, 1).unwrap();
    ring(&mut side, at);
    let raw = side.sq.raw_parts();
    assert_eq!((raw.bytes, raw.stride, raw.qpn, raw.producer), (512, 64, 0x12_3456, 1));
    assert_eq!(raw.dbrec.cast(), side.record.at(0));
    assert_eq!(raw.uar.cast(), side.register.at(HALF));
    let text = side.sq.dump(8);
    assert!(text.starts_with(Opcode::SEND.name().unwrap()), "{text}");
    assert!(text.contains("mlx5_wqe_data_seg") && text.contains("0x0000000000001000"), "{text}");
    assert!(side.sq.dump(1).starts_with("not a WQE: ds is 0"), "{}", side.sq.dump(1));
}
