//! Work requests posted in several calls: their WQEs equal those posted at once, and both fill ring
//! and queue equally.
#![allow(unsafe_code, reason = "posts")]

use std::mem::discriminant;

use proptest::prelude::*;
use uverbs_core::provider::{AhOps, BuildOps, SendOps};
use uverbs_core::queues::slot::RingPosition;
use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge, Wr};

use super::asked::{Asked, PEER, Row, post_alone};
use super::datagram::{INFINIBAND, handles, path};
use super::fixture::{HALF, SendSide};
use crate::send::build::Open;
use crate::send::queue::SendCursor;
use crate::send::wqe::{self, WqeLimits};
use crate::{Ah, Sq};

const ROOM: WqeLimits = WqeLimits { max_sge: 10, max_inline: 188 };

/// Data of a request.
#[derive(Clone, Debug)]
enum Load {
    One(Sge),
    List(Vec<Sge>),
    Inline(Vec<u8>),
    InlineList(Vec<u8>),
}

#[derive(Clone, Debug)]
enum Step {
    /// Requests for one doorbell.
    Post(Vec<(SendOp, Load)>),
    /// Completes that many of the oldest.
    Retire(usize),
}

fn sge() -> impl Strategy<Value = Sge> {
    let len = prop_oneof![Just(0), Just(8), 1..=4096u32, Just(1 << 31)];
    (any::<u64>(), len, any::<u32>()).prop_map(|(addr, len, lkey)| Sge { addr, len, lkey })
}

fn load() -> impl Strategy<Value = Load> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        3 => sge().prop_map(Load::One),
        5 => prop::collection::vec(sge(), 0..12).prop_map(Load::List),
        2 => bytes().prop_map(Load::Inline),
        1 => bytes().prop_map(Load::InlineList),
    ]
}

fn op(datagrams: bool) -> impl Strategy<Value = SendOp> {
    let remote = Remote { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };
    let connected = [
        SendOp::Send,
        SendOp::SendImm(7),
        SendOp::SendInvalidate(8),
        SendOp::Write(remote),
        SendOp::WriteImm(remote, 9),
        SendOp::Read(remote),
        SendOp::FetchAdd { remote, add: 10 },
    ];
    prop::sample::select(if datagrams { &connected[..2] } else { &connected[..] }.to_vec())
}

fn steps(datagrams: bool) -> impl Strategy<Value = Vec<Step>> {
    let post = prop::collection::vec((op(datagrams), load()), 1..6).prop_map(Step::Post);
    prop::collection::vec(prop_oneof![3 => post, 1 => (1..3usize).prop_map(Step::Retire)], 1..24)
}

/// WQEBBs and requests: equal numbers, two and four WQEBBs for each request, and a fractional
/// number.
fn sizes() -> impl Strategy<Value = (u32, u32)> {
    prop::sample::select(vec![(8, 8), (16, 16), (16, 8), (16, 4), (32, 8), (16, 5)])
}

/// Data of a request, except a list of inline data.
fn data(load: &Load) -> Option<Data<'_>> {
    match load {
        Load::One(sge) => Some(Data::One(*sge)),
        Load::List(list) => Some(Data::List(list)),
        Load::Inline(bytes) => Some(Data::Inline(bytes)),
        Load::InlineList(_) => None,
    }
}

/// Calls `with` with the data of a request.
fn with_data<T>(load: &Load, with: impl FnOnce(Data<'_>) -> T) -> T {
    match (data(load), load) {
        (Some(data), _) => with(data),
        (None, Load::InlineList(bytes)) => {
            let (first, rest) = bytes.split_at(bytes.len() / 3);
            with(Data::InlineList(&[first, rest]))
        }
        (None, _) => unreachable!("all others are one"),
    }
}

/// WQEBBs of a request, if it is valid.
fn units(op: &SendOp, load: &Load, datagrams: bool) -> Option<u32> {
    let ds = with_data(load, |data| match datagrams {
        true => wqe::measure_datagram(op, &data, ROOM),
        false => wqe::measure(op, &data, ROOM),
    });
    ds.ok().map(|ds| ds.div_ceil(wqe::DS_PER_UNIT))
}

fn whole(
    sq: &mut Sq,
    at: &mut SendCursor,
    (wr, op, load): (Wr, SendOp, &Load),
    to: Option<&Ah>,
) -> Result<(), PostError> {
    let slot = with_data(load, |data| match (to, data) {
        // SAFETY: no device reads the ring.
        (Some(ah), data) => unsafe { sq.post_to(at, wr, op, ah.to(PEER.0, PEER.1), data) },
        // SAFETY: no device reads the ring.
        (None, data) => unsafe { sq.post(at, wr, op, data) },
    });
    slot.map(drop)
}

/// A batch whose requests are posted in several calls.
struct Built {
    at: SendCursor,
    open: Open,
}

impl Built {
    fn begin<const UD: bool>(sq: &mut Sq) -> Self {
        let mut built = Self { at: sq.begin(), open: Open::default() };
        assert!(sq.begin_at_once::<UD>(&mut built.at, &mut built.open), "nothing was dropped");
        built
    }

    fn post<const UD: bool>(
        &mut self,
        sq: &mut Sq,
        (wr, op, load): (Wr, SendOp, &Load),
        to: Option<&Ah>,
    ) -> Result<(), PostError> {
        let Self { at, open } = self;
        match Sq::has_room(at) {
            // SAFETY: no device reads the ring.
            true => unsafe { sq.open::<UD, false>(at, open, wr, op) },
            // SAFETY: no device reads the ring.
            false => unsafe { sq.open::<UD, true>(at, open, wr, op) },
        }?;
        if let Some(ah) = to {
            // SAFETY: as above, and it is open.
            unsafe { sq.address(at, open, ah.to(PEER.0, PEER.1)) };
        }
        with_data(load, |data| {
            // SAFETY: as above, and its address is known.
            if unsafe { sq.close_at_once::<UD>(at, open, data) } {
                return Ok(());
            }
            // SAFETY: as above, and its address is known.
            unsafe { sq.close(at, open, data) }
        })
    }

    /// Rings; true if it was done at once.
    fn ring(self, sq: &mut Sq) -> bool {
        // SAFETY: the cursor is of the last `begin`.
        let rung = unsafe { sq.ring_at_once(&self.at, &self.open) };
        if !rung {
            // SAFETY: the cursor is of the last `begin`.
            unsafe { sq.ring_built(self.at) };
        }
        rung
    }
}

/// Posts a request alone, or as a batch if that fails.
fn alone(
    sq: &mut Sq,
    (wr, op, load): (Wr, SendOp, &Load),
    to: Option<&Ah>,
) -> Result<(), PostError> {
    let knows_of_room = sq.left() != 0;
    let taken = with_data(load, |data| post_alone(sq, &Asked { wr, op, data, to }));
    if taken {
        return Ok(());
    }
    assert!(!(knows_of_room && is_usual(op, load)), "{op:?} {load:?}");
    let mut cursor = sq.begin();
    whole(sq, &mut cursor, (wr, op, load), to)?;
    // SAFETY: the cursor is of the `begin` above.
    unsafe { sq.ring(cursor) };
    Ok(())
}

/// True if a single post and a list must take the request, given known room.
fn is_usual(op: SendOp, load: &Load) -> bool {
    let usual = matches!(load, Load::One(sge) if sge.len.wrapping_sub(1) < (1 << 31) - 1);
    usual && !matches!(op, SendOp::FetchAdd { .. })
}

/// Posts a request as one of a list.
fn in_a_row<const TO: bool>(
    sq: &mut Sq,
    row: &mut Row,
    (wr, op, load): (Wr, SendOp, &Load),
    to: Option<&Ah>,
) -> Result<(), PostError> {
    let taken = with_data(load, |data| row.post::<TO>(sq, &Asked { wr, op, data, to }))?;
    assert!(!(taken == Some(false) && is_usual(op, load)), "{op:?} {load:?}");
    Ok(())
}

/// Posts requests in lists of alike ones, and rings.
fn in_rows<const TO: bool>(sq: &mut Sq, requests: &[(Wr, SendOp, &Load)], to: Option<&Ah>) {
    let mut row = Row::begin(sq);
    for same in requests.chunk_by(|a, b| discriminant(&a.1) == discriminant(&b.1)) {
        let mut left = same;
        while let Some(&(wr, op, load)) = left.first() {
            let all: Vec<Asked<'_>> = left
                .iter()
                .map_while(|&(wr, op, load)| Some(Asked { wr, op, data: data(load)?, to }))
                .collect();
            let posted = if all.is_empty() {
                in_a_row::<TO>(sq, &mut row, (wr, op, load), to).unwrap();
                1
            } else {
                assert_eq!(row.post_alike::<TO>(sq, &all), all.len());
                all.len()
            };
            left = &left[posted..];
        }
    }
    row.ring(sq);
}

/// Initial producer index: 0, or shortly before a wrap.
fn start() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), (1..40u32).prop_map(|before| 0u32.wrapping_sub(before))]
}

/// Runs the steps on queues of this size: posts at once, posts in several calls, single posts with
/// a doorbell each, lists, and lists of alike requests.
fn run<const TO: bool>((ring, max_wr): (u32, u32), start: u32, steps: &[Step], to: Option<&Ah>) {
    let mut sides = [0; 5].map(|_| match TO {
        true => SendSide::of_datagrams_with_max_wr(ring, max_wr, ROOM),
        false => SendSide::with_max_wr(ring, max_wr, ROOM),
    });
    // WQEBBs of each outstanding request, oldest first.
    let mut out: Vec<u32> = Vec::new();
    sides.iter_mut().for_each(|side| side.sq.start_at(start));
    // Queues whose doorbells then use a fast path.
    for side in &mut sides[1..3] {
        // SAFETY: the test has one thread.
        unsafe { side.sq.stay() };
    }
    let mut index = start;
    for step in steps {
        let requests = match step {
            Step::Post(requests) => requests,
            Step::Retire(count) => {
                let done: u32 = out.drain(..(*count).min(out.len())).sum();
                index = index.wrapping_add(done);
                sides.iter().for_each(|side| side.retire(index));
                continue;
            }
        };
        // Filled with zeros, because padding of inline data is either zeroed or kept.
        sides.iter().for_each(|side| side.stain(0));
        sides.iter().for_each(|side| side.register.write(0, &[0; 2 * HALF]));
        let begin = index.wrapping_add(out.iter().sum());
        let [first, second, third, fourth, fifth] = &mut sides;
        let mut row = Row::begin(&mut fourth.sq);
        let (mut cursor, mut built) = (first.sq.begin(), Built::begin::<TO>(&mut second.sq));
        let mut posted = Vec::new();
        for (id, (op, load)) in (u64::from(begin)..).zip(requests) {
            let used: u32 = out.iter().sum();
            let takes = units(op, load, TO);
            // A datagram in several calls is assumed to have data.
            let [exactly, in_calls_too] = [1, if TO { 2 } else { 1 }].map(|least| {
                takes.is_some_and(|units| used + units.max(least) <= ring)
                    && out.len() < max_wr as usize
            });
            if exactly != in_calls_too {
                break;
            }
            let flags = if id % 2 == 0 { SendFlags::SIGNALED } else { SendFlags::FENCE };
            let request = (Wr { id, flags }, *op, load);
            let answers = [
                whole(&mut first.sq, &mut cursor, request, to).is_ok(),
                built.post::<TO>(&mut second.sq, request, to).is_ok(),
                alone(&mut third.sq, request, to).is_ok(),
                in_a_row::<TO>(&mut fourth.sq, &mut row, request, to).is_ok(),
            ];
            assert_eq!(answers, [exactly; 4], "{op:?} {load:?}, {out:?} are out");
            match takes.filter(|_| exactly) {
                Some(units) => {
                    out.push(units);
                    posted.push(request);
                }
                None => break,
            }
        }
        // SAFETY: the cursor is of the last `begin`.
        unsafe { first.sq.ring(cursor) };
        row.ring(&mut fourth.sq);
        in_rows::<TO>(&mut fifth.sq, &posted, to);
        built.ring(&mut second.sq);
        assert_eq!(second.sq.producer(), first.sq.producer());
        let end = index.wrapping_add(out.iter().sum());
        let written = end.wrapping_sub(begin) as usize * 64;
        assert_eq!(first.bytes(begin, written), second.bytes(begin, written));
        assert_eq!(first.register.read(0, 512), second.register.read(0, 512));
        assert_eq!(first.bytes(begin, written), third.bytes(begin, written));
        assert_eq!(first.bytes(begin, written), fourth.bytes(begin, written));
        assert_eq!(first.register.read(0, 512), fourth.register.read(0, 512));
        assert_eq!(first.bytes(begin, written), fifth.bytes(begin, written));
        assert_eq!(first.register.read(0, 512), fifth.register.read(0, 512));
        for side in [&*second, &*third, &*fourth, &*fifth] {
            assert_eq!(first.send_record(), side.send_record());
        }
        // After several doorbells the next halves differ.
        if requests.len() == 1 {
            assert_eq!(first.rung(), third.rung());
        }
        sides.iter().for_each(SendSide::assert_guards);
    }
}

/// For the last request with room it is only known that a short one fits. If that request is not
/// closed, the next one must check again.
#[test]
fn one_that_is_not_ended_leaves_no_room_behind() {
    let piece = Sge { addr: 0x1000, len: 64, lkey: 7 };
    let long = |sq: &mut Sq, at: &mut SendCursor, pieces: usize| {
        // SAFETY: no device reads the ring.
        unsafe { sq.post(at, Wr::new(1), SendOp::Send, Data::List(&vec![piece; pieces])) }
    };
    let sq = &mut SendSide::with_max_wr(16, 4, WqeLimits { max_sge: 60, ..ROOM }).sq;
    let mut at = sq.begin();
    long(sq, &mut at, 13 * 4 - 1).unwrap();
    // SAFETY: the cursor is of the `begin` above.
    unsafe { sq.ring(at) };
    let (mut at, mut open) = (sq.begin(), Open::default());
    for ended in [true, false] {
        // SAFETY: no device reads the ring; the room is looked up.
        unsafe { sq.open::<false, true>(&mut at, &mut open, Wr::new(2), SendOp::Send) }.unwrap();
        if ended {
            // SAFETY: as above, and it is open.
            unsafe { sq.close(&mut at, &mut open, Data::One(piece)) }.unwrap();
        }
        assert_eq!(Sq::takes_data(&open), !ended);
    }
    assert_eq!(long(sq, &mut at, 3 * 4 - 1), Err(PostError::Full), "two of sixteen are free");
    assert!(long(sq, &mut at, 2 * 4 - 1).is_ok());
}

/// A request that was expected to wrap the producer index and turns out shorter leaves the wrap to
/// the next one, which checks; a list does not get there.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn one_that_ends_before_the_index_wraps_leaves_no_room_behind() {
    let (_door, [ah]) = handles(INFINIBAND, [path(None)]);
    let mut side = SendSide::of_datagrams_with_max_wr(16, 8, ROOM);
    let sq = &mut side.sq;
    sq.start_at(u32::MAX - 1);
    let mut built = Built::begin::<true>(sq);
    let empty = (Wr::new(1), SendOp::Send, &Load::List(Vec::new()));
    built.post::<true>(sq, empty, Some(&ah)).unwrap();
    assert_eq!(built.at.pi(), u32::MAX);
    assert!(!built.ring(sq), "the index may have wrapped");
    let data = Data::One(Sge { addr: 0x1000, len: 64, lkey: 7 });
    let asked = Asked { wr: Wr::new(2), op: SendOp::Send, data, to: Some(&ah) };
    assert!(!post_alone(sq, &asked));
    for taken in [None, Some(true)] {
        let mut row = Row::begin(sq);
        assert_eq!(row.post::<true>(sq, &asked), Ok(taken));
        row.ring(sq);
    }
    assert!(post_alone(sq, &asked));
    side.retire(5);
    assert_eq!(side.shared.send.reached(), RingPosition::new(5, 4));
}

/// Which batches need the general doorbell: empty ones, those that looked for room, and those with
/// a request of another kind or without data.
#[test]
fn what_is_plain_is_rung_at_once() {
    let piece = Sge { addr: 0x1000, len: 64, lkey: 7 };
    let (one, none) = (Load::One(piece), Load::One(Sge { len: 0, ..piece }));
    let (two, three) = (Load::List(vec![piece; 4]), Load::Inline(vec![1; 140]));
    let mut side = SendSide::with_max_wr(64, 16, ROOM);
    // SAFETY: the test has one thread.
    unsafe { side.sq.stay() };
    let sq = &mut side.sq;
    for (loads, at_once) in [
        (vec![], false),
        (vec![&one], false),
        (vec![&one], true),
        (vec![&two], true),
        (vec![&three], false),
        (vec![&three, &one], true),
        (vec![&one, &none], false),
        (vec![&one, &one], true),
    ] {
        let mut built = Built::begin::<false>(sq);
        for load in &loads {
            built.post::<false>(sq, (Wr::new(1), SendOp::Send, *load), None).unwrap();
        }
        let end = built.at.pi();
        assert_eq!(built.ring(sq), at_once, "{loads:?}");
        assert_eq!(sq.producer(), end);
    }
    let mut built = Built::begin::<false>(sq);
    built.post::<false>(sq, (Wr::new(1), SendOp::Send, &one), None).unwrap();
    built.open = Open::default();
    assert!(!built.ring(sq), "a post of another kind came between");
}

proptest! {
    // More cases than the default, because few of them fill a queue with long requests.
    #![proptest_config(ProptestConfig {
        cases: 4096,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn of_connections((size, start, steps) in (sizes(), start(), steps(false))) {
        run::<false>(size, start, &steps, None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn of_datagrams((size, start, steps) in (sizes(), start(), steps(true))) {
        let (_door, [ah]) = handles(INFINIBAND, [path(None)]);
        run::<true>(size, start, &steps, Some(&ah));
    }
}
