//! Lists of alike requests: their WQEs and slots equal those posted in batches, across the ring's
//! end and for any producer index.
#![allow(unsafe_code, reason = "posts")]

use uverbs_core::provider::{AhOps, SendOps};
use uverbs_core::queues::slot::RingPosition;
use uverbs_core::queues::work::{Data, PostError, Rekey, Remote, SendFlags, SendOp, Sge, Wr};

use super::asked::{Asked, PEER, Row, extend_alike, post_alone};
use super::datagram::{INFINIBAND, handles, path};
use super::fixture::{HALF, SendSide};
use crate::Sq;
use crate::send::wqe::WqeLimits;

const ROOM: WqeLimits = WqeLimits { max_sge: 6, max_inline: 92 };

fn piece(nth: u64) -> Sge {
    Sge { addr: 0x1122_3344_5566_0000 | nth, len: 64, lkey: 0xaabb_ccdd }
}

/// A long list of alike requests crosses the ring's end and indexes whose second byte changes, but
/// not the wrap of the index.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_row_that_is_alike_is_a_batch() {
    let (_door, [ah]) = handles(INFINIBAND, [path(None)]);
    for (start, ring) in [(0, 1024), (0xff, 1024), (0x1_feff, 1024), (37, 64), (u32::MAX - 70, 256)]
    {
        for inline in [false, true] {
            for to in [None, Some(&ah)] {
                let mut sides = [0; 2].map(|_| match to {
                    Some(_) => SendSide::of_datagrams_with_max_wr(ring, ring / 2, ROOM),
                    None => SendSide::with_max_wr(ring, ring, ROOM),
                });
                sides.iter_mut().for_each(|side| side.sq.start_at(start));
                let count = u64::from(if to.is_some() { ring / 2 } else { ring }).min(400);
                let data =
                    |nth| if inline { Data::Inline(&[7; 12]) } else { Data::One(piece(nth)) };
                let all: Vec<Asked<'_>> = (0..count)
                    .map(|nth| {
                        let flags = SendFlags::from_bits_truncate(nth as u8);
                        let wr = Wr { id: nth << 40 | 5, flags };
                        Asked { wr, op: SendOp::Send, data: data(nth), to }
                    })
                    .collect();
                let [rows, batch] = &mut sides;
                match to {
                    Some(_) => alike::<true>(&mut rows.sq, &all),
                    None => alike::<false>(&mut rows.sq, &all),
                }
                let mut at = batch.sq.begin();
                for Asked { wr, op, data, .. } in &all {
                    match to {
                        // SAFETY: no device reads the ring.
                        Some(ah) => unsafe {
                            batch.sq.post_to(&mut at, *wr, *op, ah.to(PEER.0, PEER.1), *data)
                        },
                        // SAFETY: no device reads the ring.
                        None => unsafe { batch.sq.post(&mut at, *wr, *op, *data) },
                    }
                    .unwrap();
                }
                // SAFETY: the cursor is of the `begin` above.
                unsafe { batch.sq.ring(at) };
                let units = if to.is_some() { 2 } else { 1 };
                let [rows, batch] = sides.map(|side| {
                    let taken: Vec<_> = (0..count as u32)
                        .map(|nth| start.wrapping_add(nth * units))
                        // SAFETY: the test is poster and poller.
                        .map(|at| unsafe { side.shared.send.take(at) })
                        .map(|taken| (taken.wr_id, taken.position))
                        .collect();
                    let bytes = side.bytes(start, count as usize * units as usize * 64);
                    (bytes, side.send_record(), side.sq.left(), taken)
                });
                assert_eq!(rows.0, batch.0, "{start:#x} of {ring}, {inline}");
                assert_eq!(rows.1, batch.1);
                assert_eq!(rows.3, batch.3);
                // Less room may be known, by the rule for requests that may be longer.
                assert!(rows.2 <= batch.2, "{start:#x} of {ring}, {inline}");
            }
        }
    }
}

/// Posts all requests as a list.
fn alike<const TO: bool>(sq: &mut Sq, all: &[Asked<'_>]) {
    let mut row = Row::begin(sq);
    assert_eq!(row.post_alike::<TO>(sq, all), all.len());
    row.ring(sq);
}

/// A list takes all requests of one SGE, and of short inline data: it leaves none to single posts.
#[test]
fn a_row_of_alike_requests_is_taken_whole() {
    let mut side = SendSide::with_max_wr(64, 64, ROOM);
    for data in [Data::One(piece(0)), Data::Inline(&[7; 12])] {
        let ask = Asked { wr: Wr::new(1), op: SendOp::Send, data, to: None };
        let mut at = side.sq.begin();
        assert_eq!(extend_alike::<false>(&mut side.sq, &mut at, &[ask; 32]), 32, "{data:?}");
        // SAFETY: no device reads the ring; the cursor is of the last `begin`.
        unsafe { side.sq.ring(at) };
    }
    side.assert_guards();
}

/// A request that needs the slow path ends the list before it; a full ring also does.
#[test]
fn a_row_ends_before_what_it_cannot_take() {
    let mut side = SendSide::with_max_wr(16, 16, ROOM);
    let ask = |len| {
        let data = Data::One(Sge { len, ..piece(0) });
        Asked { wr: Wr::new(1), op: SendOp::Send, data, to: None }
    };
    for (lens, posted) in
        [(vec![64, 64, (1 << 31) + 1, 64], 2), (vec![(1 << 31) + 1], 0), (vec![1; 20], 14)]
    {
        let all: Vec<_> = lens.into_iter().map(ask).collect();
        let mut row = Row::begin(&mut side.sq);
        assert_eq!(row.post_alike::<false>(&mut side.sq, &all), posted);
        row.ring(&mut side.sq);
    }
    assert!(!post_alone(&mut side.sq, &ask(64)), "there is no room");
    side.retire(8);
    let mut row = Row::begin(&mut side.sq);
    assert_eq!(row.post_alike::<false>(&mut side.sq, &[ask(64); 9]), 8);
    row.ring(&mut side.sq);
    side.assert_guards();
}

/// At most as many as the queue was created for are posted, even if the ring has more WQEBBs. After
/// a list that exceeded the known room, no room is known for long requests.
#[test]
fn a_row_leaves_no_room_that_is_not_there() {
    let mut side = SendSide::with_max_wr(16, 4, ROOM);
    let ask = Asked { wr: Wr::new(1), op: SendOp::Send, data: Data::One(piece(0)), to: None };
    let mut row = Row::begin(&mut side.sq);
    assert_eq!(row.post_alike::<false>(&mut side.sq, &[ask; 5]), 4);
    row.ring(&mut side.sq);
    assert_eq!(side.sq.left(), 0);
    let mut at = side.sq.begin();
    let list = [piece(0); 6];
    // SAFETY: no device reads the ring.
    let full = unsafe { side.sq.post(&mut at, Wr::new(2), SendOp::Send, Data::List(&list)) };
    assert_eq!(full, Err(PostError::Full));
}

/// Inline data above the queue's limit is not taken in a list either.
#[test]
fn a_row_of_bytes_keeps_to_the_queues_limit() {
    for (most, taken) in [(4, 0), (8, 0), (12, 2)] {
        let mut side = SendSide::with_max_wr(16, 8, WqeLimits { max_inline: most, ..ROOM });
        let data = Data::Inline(&[7; 9]);
        let ask = Asked { wr: Wr::new(1), op: SendOp::Send, data, to: None };
        let mut row = Row::begin(&mut side.sq);
        assert_eq!(row.post_alike::<false>(&mut side.sq, &[ask; 2]), taken, "of {most}");
        row.ring(&mut side.sq);
    }
}

/// A device that completes unposted work makes no room.
#[test]
fn a_row_has_no_room_by_a_device_that_lies() {
    let mut side = SendSide::with_max_wr(16, 8, ROOM);
    // SAFETY: nothing is posted.
    unsafe { side.shared.send.retire(RingPosition::new(20, 20)) };
    let ask = Asked { wr: Wr::new(1), op: SendOp::Send, data: Data::One(piece(0)), to: None };
    let mut row = Row::begin(&mut side.sq);
    assert_eq!(row.post_alike::<false>(&mut side.sq, &[ask; 20]), 8);
    row.ring(&mut side.sq);
    side.assert_guards();
}

/// A list of datagrams takes only sends, and no WRITE.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_row_of_datagrams_takes_no_write() {
    let (_door, [ah]) = handles(INFINIBAND, [path(None)]);
    let mut side = SendSide::of_datagrams_with_max_wr(16, 8, ROOM);
    let op = SendOp::Write(Remote { addr: 0x1000, rkey: 1 });
    let ask = Asked { wr: Wr::new(1), op, data: Data::One(piece(0)), to: Some(&ah) };
    let mut row = Row::begin(&mut side.sq);
    assert_eq!(row.post_alike::<true>(&mut side.sq, &[ask; 2]), 0);
    row.ring(&mut side.sq);
    assert_eq!(side.send_record(), 0);
}

/// If long requests fill the ring, it has room for fewer than the queue was created for.
#[test]
fn a_row_needs_wqebbs_too() {
    let mut side = SendSide::with_max_wr(16, 8, WqeLimits { max_sge: 60, ..ROOM });
    let mut at = side.sq.begin();
    let list = [piece(0); 7 * 4 - 1];
    for id in 0..2 {
        // SAFETY: no device reads the ring.
        unsafe { side.sq.post(&mut at, Wr::new(id), SendOp::Send, Data::List(&list)) }.unwrap();
    }
    // SAFETY: the cursor is of the `begin` above.
    unsafe { side.sq.ring(at) };
    let ask = Asked { wr: Wr::new(3), op: SendOp::Send, data: Data::One(piece(0)), to: None };
    let mut row = Row::begin(&mut side.sq);
    assert_eq!(row.post_alike::<false>(&mut side.sq, &[ask; 4]), 2, "two of sixteen are free");
    row.ring(&mut side.sq);
    side.assert_guards();
}

/// The last WQE of a batch is the last written one, of any type.
#[test]
fn a_row_that_ends_at_once_leaves_the_last_one() {
    let mut side = SendSide::with_max_wr(16, 8, ROOM);
    let ask = |data| Asked { wr: Wr::new(1), op: SendOp::Send, data, to: None };
    let list = [piece(0); 6];
    let mut row = Row::begin(&mut side.sq);
    assert_eq!(row.post::<false>(&mut side.sq, &ask(Data::List(&list))), Ok(Some(true)));
    let rare = Data::One(Sge { len: 1 << 31, ..piece(0) });
    assert_eq!(row.post_alike::<false>(&mut side.sq, &[ask(rare)]), 1);
    row.ring(&mut side.sq);
    assert_eq!(side.send_record(), 3, "the list has two WQEBBs, and the rare one has one");
    let mut row = Row::begin(&mut side.sq);
    assert_eq!(row.post::<false>(&mut side.sq, &ask(Data::List(&list))), Ok(Some(true)));
    let refused = Data::One(Sge { len: (1 << 31) + 1, ..piece(0) });
    assert_eq!(row.post_alike::<false>(&mut side.sq, &[ask(refused)]), 0);
    row.ring(&mut side.sq);
    let doorbell = side.register.read(0, 2 * HALF);
    let head = &side.bytes(3, 8)[..];
    assert!(doorbell.chunks(8).any(|word| word == head), "the list's head is rung");
}

/// An empty list after a change of a key leaves the fence to the next WQE.
#[test]
fn a_row_with_nothing_in_it_leaves_the_fence() {
    let mut side = SendSide::with_max_wr(16, 8, ROOM);
    let mut at = side.sq.begin();
    let change = Rekey::Invalidate { key: 0x1122_3377 };
    // SAFETY: no device reads the ring.
    unsafe { side.sq.rekey(&mut at, Wr::new(6), &change) }.unwrap();
    // SAFETY: the cursor is of the `begin` above.
    unsafe { side.sq.ring(at) };
    let ask = |len| {
        let data = Data::One(Sge { len, ..piece(0) });
        Asked { wr: Wr::new(1), op: SendOp::Send, data, to: None }
    };
    let mut row = Row::begin(&mut side.sq);
    assert_eq!(row.post_alike::<false>(&mut side.sq, &[ask((1 << 31) + 1)]), 0);
    row.ring(&mut side.sq);
    assert!(!post_alone(&mut side.sq, &ask(64)), "it gets a fence");
}
