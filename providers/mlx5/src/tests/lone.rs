//! Single posts: the fast path takes common work requests and leaves others alone. `pieces.rs`
//! shows that the WQEs equal the WQEs of batches.
#![allow(unsafe_code, reason = "posts")]

use uverbs_core::order::doorbell_memory::DoorbellMemory;
use uverbs_core::provider::{AhOps, SendOps};
use uverbs_core::queues::work::{Data, Rekey, Remote, SendFlags, SendOp, Sge, Wr};

use super::asked::{Asked, PEER, Row, post_alone};
use super::datagram::{INFINIBAND, handles, path};
use super::fixture::{HALF, SendSide};
use crate::send::doorbell::{Step, steps};
use crate::send::wqe::{self, WqeLimits};

const ROOM: WqeLimits = WqeLimits { max_sge: 6, max_inline: 92 };
const SGE: Sge = Sge { addr: 0x7f01_0203_0405, len: 64, lkey: 0xaabb_ccdd };
const REMOTE: Remote = Remote { addr: 0x7f0a_0b0c_0d0e, rkey: 0x1122_3344 };

/// Posts a WRITE alone. Returns whether it was taken; one that is not must leave no trace.
#[track_caller]
fn takes(side: &mut SendSide, data: Data<'_>) -> bool {
    takes_op(side, SendOp::Write(REMOTE), data)
}

#[track_caller]
fn takes_op(side: &mut SendSide, op: SendOp, data: Data<'_>) -> bool {
    let before = (side.send_record(), side.sq.producer());
    let posted = post_alone(&mut side.sq, &Asked { wr: Wr::new(5), op, data, to: None });
    assert_eq!((side.send_record(), side.sq.producer()) != before, posted);
    side.assert_guards();
    posted
}

/// A queue of sixteen WQEBBs for eight requests, with known room.
fn looked() -> SendSide {
    let mut side = SendSide::with_max_wr(16, 8, ROOM);
    post(&mut side);
    side
}

fn post(side: &mut SendSide) {
    in_a_batch(side, Data::One(SGE));
}

/// Posts a WRITE as a batch of one.
fn in_a_batch(side: &mut SendSide, data: Data<'_>) {
    let mut at = side.sq.begin();
    // SAFETY: no device reads the ring.
    unsafe { side.sq.post(&mut at, Wr::new(5), SendOp::Write(REMOTE), data) }.unwrap();
    // SAFETY: the cursor is of the `begin` above.
    unsafe { side.sq.ring(at) };
}

/// Asserts the steps of ringing a single post: the WQE is copied if it fits, the halves alternate,
/// and the copy is drained at once unless one thread rings.
#[track_caller]
fn assert_rung(side: &SendSide, (round, start, units): (usize, u32, u32), stays: bool) {
    let (offset, bytes) = (round % 2 * HALF, units as usize * 64);
    let copied = bytes <= HALF;
    let head = u64::from_ne_bytes(side.bytes(start, 8).try_into().unwrap());
    let offset_of_step = offset as u32;
    let told = match copied {
        true => Step::Copied { offset: offset_of_step, blocks: units },
        false => Step::Stored { offset: offset_of_step, head },
    };
    assert_eq!(
        steps(),
        [
            Step::WqeBeforeRecord,
            Step::Record { word: 1, value: start + units },
            Step::RecordBeforeDoorbell(DoorbellMemory::WriteCombining),
            told,
            if copied && stays { Step::CopyFlush } else { Step::Flush },
        ]
    );
    let there = if copied { bytes } else { 8 };
    assert_eq!(side.register.read(offset, there), side.bytes(start, there));
    let rest = side.register.read(offset + there, HALF - there);
    let other = side.register.read(offset ^ HALF, HALF);
    assert!(rest.iter().chain(&other).all(|&byte| byte == 0));
}

#[test]
fn the_same_is_copied_where_one_thread_rings() {
    let room = WqeLimits { max_sge: 20, max_inline: 188 };
    let loads = [
        (Data::One(SGE), 1),
        (Data::List(&[SGE; 4]), 2),
        (Data::Inline(&[7; 12]), 1),
        (Data::List(&[SGE; 14]), 4),
        (Data::List(&[SGE; 15]), 5),
        (Data::Inline(&[7; 150]), 3),
        (Data::List(&[SGE]), 1),
    ];
    for stays in [false, true] {
        let mut side = SendSide::with_max_wr(128, 16, room);
        post(&mut side);
        if stays {
            // SAFETY: the test has one thread.
            unsafe { side.sq.stay() };
        }
        let mut start = 1;
        for (round, (data, units)) in (1..).zip(loads) {
            side.register.write(0, &[0; 2 * HALF]);
            steps();
            assert!(takes(&mut side, data), "{data:?}");
            assert_rung(&side, (round, start, units), stays);
            start += units;
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn so_are_datagrams_also_around_the_end() {
    let (_door, [ah]) = handles(INFINIBAND, [path(None)]);
    for stays in [false, true] {
        let mut side = SendSide::of_datagrams_with_max_wr(8, 4, ROOM);
        side.sq.start_at(2);
        if stays {
            // SAFETY: the test has one thread.
            unsafe { side.sq.stay() };
        }
        // Some have one WQEBB, so that one of two WQEBBs wraps.
        let loads = [(Data::One(SGE), 2), (Data::List(&[]), 1), (Data::List(&[SGE]), 2)];
        let mut start = 2;
        for (round, (data, units)) in loads.iter().cycle().take(9).enumerate() {
            side.register.write(0, &[0; 2 * HALF]);
            let asked = Asked { wr: Wr::new(5), op: SendOp::Send, data: *data, to: Some(&ah) };
            steps();
            if !post_alone(&mut side.sq, &asked) {
                let mut at = side.sq.begin();
                let to = ah.to(PEER.0, PEER.1);
                // SAFETY: no device reads the ring.
                unsafe { side.sq.post_to(&mut at, asked.wr, asked.op, to, *data) }.unwrap();
                // SAFETY: the cursor is of the `begin` above.
                unsafe { side.sq.ring(at) };
            }
            assert_rung(&side, (round, start, *units), stays);
            start += units;
            side.retire(start);
        }
    }
}

#[test]
fn usual_ones_are_taken() {
    let mut side = looked();
    assert!(takes(&mut side, Data::One(SGE)));
    assert!(takes(&mut side, Data::List(&[SGE])));
    assert!(takes(&mut side, Data::List(&[SGE; 4])));
    assert!(takes(&mut side, Data::Inline(&[7; 12])));
    let add = SendOp::FetchAdd { remote: REMOTE, add: 1 };
    assert!(takes_op(&mut side, add, Data::List(&[Sge { len: 8, ..SGE }])));
}

/// Also with WQEs longer than a half of the register, and with a register without halves.
#[test]
fn the_device_is_told_as_of_a_batch() {
    let lists = [1, 2, 3, 6, 16].map(|len| vec![SGE; len]);
    for blue_flame in [true, false] {
        let room = WqeLimits { max_sge: 16, ..ROOM };
        let [mut batch, mut alone] = [0; 2].map(|_| match blue_flame {
            true => SendSide::with_max_wr(64, 8, room),
            false => SendSide::new(64, room, false),
        });
        post(&mut batch);
        post(&mut alone);
        for data in lists.iter().map(|list| Data::List(list)).chain([Data::Inline(&[7; 12])]) {
            in_a_batch(&mut batch, data);
            if !takes(&mut alone, data) {
                assert!(!blue_flame);
                in_a_batch(&mut alone, data);
            }
            assert_eq!(alone.register.read(0, 512), batch.register.read(0, 512));
            assert_eq!(alone.send_record(), batch.send_record());
        }
    }
}

#[test]
fn rare_ones_are_left() {
    let mut side = looked();
    let pieces = [0, 1 << 31, u32::MAX].map(|len| Sge { len, ..SGE });
    for piece in pieces {
        assert!(!takes(&mut side, Data::One(piece)));
        assert!(!takes(&mut side, Data::List(&[piece])));
        assert!(!takes(&mut side, Data::List(&[SGE, piece])));
    }
    assert!(!takes(&mut side, Data::List(&[Sge { len: 1 << 30, ..SGE }; 2])), "2 GiB in all");
    assert!(!takes(&mut side, Data::List(&[SGE; 7])), "more pieces than there may be");
    assert!(!takes(&mut side, Data::Inline(&[])));
    assert!(!takes(&mut side, Data::InlineList(&[&[1], &[2]])));
    let (read, small) = (SendOp::Read(REMOTE), [7; 8]);
    assert!(!takes_op(&mut side, read, Data::Inline(&small)), "an answer is written");
    let add = SendOp::FetchAdd { remote: REMOTE, add: 1 };
    assert!(!takes_op(&mut side, add, Data::List(&[SGE])), "an atomic has eight bytes");
    assert!(!takes_op(&mut side, add, Data::List(&[Sge { len: 4, ..SGE }; 2])));
    let mut none = SendSide::with_max_wr(16, 8, WqeLimits { max_inline: 4, ..ROOM });
    post(&mut none);
    assert!(!takes(&mut none, Data::Inline(&small)), "more bytes than there may be");
}

#[test]
fn a_list_over_the_end_is_left() {
    let mut side = SendSide::with_max_wr(16, 8, ROOM);
    side.come_to(15, Some(post));
    assert!(!takes(&mut side, Data::List(&[SGE; 4])));
    assert!(takes(&mut side, Data::One(SGE)));
    assert!(takes(&mut side, Data::List(&[SGE; 4])));
}

#[test]
fn without_a_look_at_the_queue_none_is_taken() {
    let mut side = SendSide::with_max_wr(16, 8, ROOM);
    assert!(!takes(&mut side, Data::One(SGE)), "nothing is known yet");
    post(&mut side);
    for _ in 1..8 {
        assert!(takes(&mut side, Data::One(SGE)));
    }
    assert!(!takes(&mut side, Data::One(SGE)), "it is full");
    side.sq.enable(false);
    side.retire(8);
    assert!(!takes(&mut side, Data::One(SGE)), "it may not be posted to");
}

#[test]
fn behind_a_change_of_a_key_none_is_taken() {
    let mut side = looked();
    let mut at = side.sq.begin();
    let change = Rekey::Invalidate { key: 0x1122_3377 };
    // SAFETY: no device reads the ring.
    unsafe { side.sq.rekey(&mut at, Wr::new(6), &change) }.unwrap();
    // SAFETY: the cursor is of the `begin` above.
    unsafe { side.sq.ring(at) };
    // The next WQE gets a fence.
    assert!(!takes(&mut side, Data::One(SGE)));
    post(&mut side);
    assert!(takes(&mut side, Data::One(SGE)));
}

/// A queue pair may have no send queue.
#[test]
fn an_empty_batch_rings_nothing() {
    let mut side = looked();
    side.stain(0xee);
    let (at, record, _) = (side.sq.begin(), side.send_record(), steps());
    // SAFETY: the cursor is of the `begin` above.
    unsafe { side.sq.ring(at) };
    assert_eq!((side.send_record(), steps().len()), (record, 0));
}

/// A list writes the WQEs and slots of a batch.
#[test]
fn a_row_is_a_batch() {
    let mut sides = [0; 2].map(|_| looked());
    let mut row = Row::begin(&mut sides[0].sq);
    let mut at = sides[1].sq.begin();
    for (id, data) in (10..).zip([Data::One(SGE), Data::List(&[SGE; 4]), Data::Inline(&[7; 12])]) {
        let asked = Asked { wr: Wr::new(id), op: SendOp::Write(REMOTE), data, to: None };
        assert_eq!(row.post::<false>(&mut sides[0].sq, &asked), Ok(Some(true)));
        // SAFETY: no device reads the ring.
        unsafe { sides[1].sq.post(&mut at, asked.wr, asked.op, data) }.unwrap();
    }
    row.ring(&mut sides[0].sq);
    // SAFETY: the cursor is of the `begin` above.
    unsafe { sides[1].sq.ring(at) };
    let [row, batch] = sides.map(|side| {
        // SAFETY: the test is poster and poller.
        let taken = [1, 2, 4].map(|at| unsafe { side.shared.send.take(at) });
        (
            side.bytes(0, 5 * 64),
            side.send_record(),
            taken.map(|taken| (taken.wr_id, taken.position)),
        )
    });
    assert_eq!(row, batch);
}

#[test]
fn a_control_segment_in_a_row_is_no_other() {
    let ops = [SendOp::Send, SendOp::SendImm(7), SendOp::Write(REMOTE), SendOp::Read(REMOTE)];
    for (op, index) in ops.into_iter().zip([0x1234, 0xff, 0xff00, 0x5678_9abc]) {
        let flags = SendFlags::SIGNALED | SendFlags::FENCE;
        let one = wqe::ctrl(&op, index, 0xabcd_ef03, flags);
        assert_eq!(wqe::ctrl_in_row(&op, index, 0xabcd_ef03, flags), one);
    }
}
