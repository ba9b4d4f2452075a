//! Send queues: contents of the ring, and doorbells to the kernel.
#![allow(unsafe_code, reason = "posts, which is unsafe, to a ring that no device reads")]

use proptest::prelude::*;
use uverbs_core::Errno;
use uverbs_core::attr::{AccessFlags, QpCap};
use uverbs_core::memory::post::Source;
use uverbs_core::provider::{Alike, CqOps, Request, Requests, SendOps};
use uverbs_core::queues::placement::{FlushLevel, PlaceOp, PlacementTypes};
use uverbs_core::queues::work::{
    Data, Destination, PostError, Rekey, Remote, SendFlags, SendOp, Sge, WINDOW_MAX, WindowKind, Wr,
};
use uverbs_kernel_rings::elements::ElementLimits;
use uverbs_kernel_rings::testing::free;

use super::rig::{CAP, Rig};
use crate::{Ah, wqe};

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..][..4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..][..8].try_into().unwrap())
}

const REMOTE: Remote = Remote { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc };

fn sge(len: u32) -> Sge {
    Sge { addr: 0x7000_0000_1000 + u64::from(len), len, lkey: 0x0042_0000 + len }
}

/// Every operation, its number in the kernel, and true if it takes inline data.
const OPS: [(SendOp, u32, bool); 7] = [
    (SendOp::Write(REMOTE), 0, true),
    (SendOp::WriteImm(REMOTE, 0x0102_0304), 1, true),
    (SendOp::Send, 2, true),
    (SendOp::SendImm(0x0102_0304), 3, true),
    (SendOp::Read(REMOTE), 4, false),
    (SendOp::CompareSwap { remote: REMOTE, compare: 0xc0, swap: 0x5a }, 5, false),
    (SendOp::FetchAdd { remote: REMOTE, add: 0xadd }, 6, false),
];

/// Offsets of `struct rxe_send_wqe`.
#[test]
fn each_operation_stands_where_the_header_says() {
    for (op, number, _) in OPS {
        let mut rig = Rig::new(15);
        rig.send(Wr::new(0xdead_beef_dead_beef), op, Data::One(sge(8))).unwrap();
        let wqe = rig.sends.lock().unwrap().head().unwrap();
        assert_eq!(u64_at(&wqe, 0), 0, "wr_id: queue pair 0, send queue, element 0");
        assert_eq!((u32_at(&wqe, 8), u32_at(&wqe, 12)), (0, number), "reserved, opcode");
        assert_eq!(u32_at(&wqe, 16), 2, "send_flags: signaled");
        let imm = if matches!(number, 1 | 3) { [1, 2, 3, 4] } else { [0; 4] };
        assert_eq!(wqe[20..24], imm, "ex.imm_data, big-endian");
        match op {
            SendOp::Send | SendOp::SendImm(_) => assert_eq!(wqe[24..144], [0; 120]),
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                let operands = if number == 5 { (0xc0, 0x5a) } else { (0xadd, 0) };
                assert_eq!(u64_at(&wqe, 24), REMOTE.addr);
                assert_eq!((u64_at(&wqe, 32), u64_at(&wqe, 40)), operands);
                assert_eq!(u32_at(&wqe, 48), REMOTE.rkey);
            }
            _ => assert_eq!((u64_at(&wqe, 24), u32_at(&wqe, 32)), (REMOTE.addr, REMOTE.rkey)),
        }
        assert_eq!((u32_at(&wqe, 144), u32_at(&wqe, 148)), (0, 0), "status, state: posted");
        let iova = if matches!(number, 2 | 3) { 0 } else { REMOTE.addr };
        assert_eq!(u64_at(&wqe, 152), iova);
        assert_eq!(wqe[160..184], [0; 24], "the kernel's own");
        let dma: [u32; 6] = std::array::from_fn(|at| u32_at(&wqe, 184 + 4 * at));
        assert_eq!(dma, [8, 8, 0, 1, 0, 0], "length, resid, cur_sge, num_sge, sge_offset");
        let entry = (u64_at(&wqe, 208), u32_at(&wqe, 216), u32_at(&wqe, 220));
        assert_eq!(entry, (sge(8).addr, 8, sge(8).lkey));
    }
}

/// A SEND of a list, by its number, which is odd of one that is too long.
#[derive(Clone, Copy)]
struct Listed(u64);

// SAFETY: nothing changes.
unsafe impl Request for Listed {
    type Ah = Ah;

    const ALIKE: Alike = Alike::No;

    fn id(&self) -> u64 {
        self.0
    }

    fn flags(&self) -> SendFlags {
        SendFlags::SIGNALED
    }

    fn op(&self) -> SendOp {
        SendOp::Send
    }

    fn to(&self) -> Option<Destination<'_, Ah>> {
        unreachable!("only a datagram is asked")
    }

    fn data(&self) -> Data<'_> {
        Data::One(sge(if self.0.is_multiple_of(2) { 8 } else { (1 << 31) + 1 }))
    }
}

/// A list of them.
struct List<'a>(&'a [u64]);

impl Requests for List<'_> {
    type One = Listed;

    fn first(&self) -> Option<Listed> {
        self.0.first().copied().map(Listed)
    }

    fn advance(&mut self) {
        self.0 = &self.0[1..];
    }
}

/// A refused work request is the list's next one, and those before it are rung.
#[test]
fn a_list_ends_at_what_is_refused() {
    let mut rig = Rig::new(15);
    let mut list = List(&[2, 4, 5, 6]);
    let mut at = rig.sq.begin();
    // SAFETY: no device reads what is named; the cursor is of the `begin` above.
    unsafe { rig.sq.post_list::<false, _>(&mut at, &mut list) };
    assert_eq!(list.0, [5, 6]);
    // SAFETY: as above.
    unsafe { rig.sq.ring(at) };
    for _ in 0..2 {
        let mut sends = rig.sends.lock().unwrap();
        assert_eq!(u32_at(&sends.head().unwrap(), 12), 2, "a SEND");
        sends.advance();
    }
    assert!(rig.sends.lock().unwrap().head().is_none());
    // SAFETY: no device reads what is named.
    let posted = [5, 8].map(|id| unsafe { rig.sq.post_alone::<false>(Listed(id)) });
    assert_eq!((posted, rig.kicks()), ([false, true], 2));
}

#[test]
fn changes_of_keys_stand_where_the_header_says() {
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    let bind = Rekey::Bind {
        kind: WindowKind::Type2,
        old: 0x77,
        new: 0x78,
        lkey: 0x99,
        addr: 0x7000_0000_1000,
        len: 0x12_3456,
        access,
    };
    let mut rig = Rig::new(15);
    let mut post = |op: &Rekey| {
        let mut at = rig.sq.begin();
        // SAFETY: no device reads the named memory.
        unsafe { rig.sq.rekey(&mut at, Wr::new(1), op) }.unwrap();
        // SAFETY: the cursor is from the last `begin`.
        unsafe { rig.sq.ring(at) };
        let mut sends = rig.sends.lock().unwrap();
        let wqe = sends.head().unwrap();
        sends.advance();
        wqe
    };
    let wqe = post(&bind);
    assert_eq!((u32_at(&wqe, 12), u32_at(&wqe, 16), u32_at(&wqe, 20)), (8, 2, 0), "opcode, flags");
    assert_eq!((u64_at(&wqe, 24), u64_at(&wqe, 32)), (0x7000_0000_1000, 0x12_3456));
    let keys: [u32; 4] = std::array::from_fn(|at| u32_at(&wqe, 40 + 4 * at));
    assert_eq!(keys, [0x99, 0x77, 0x78, 4 | 8], "mr_lkey, mw_rkey, rkey, access");
    assert!(wqe[56..208].iter().all(|&byte| byte == 0), "no data");
    let wqe = post(&Rekey::Invalidate { key: 0x0102_0304 });
    assert_eq!((u32_at(&wqe, 12), u32_at(&wqe, 20)), (7, 0x0102_0304), "opcode, key");
    assert!(wqe[24..208].iter().all(|&byte| byte == 0), "no data");

    let long = match bind {
        Rekey::Bind { kind, old, new, lkey, addr, access, .. } => {
            Rekey::Bind { kind, old, new, lkey, addr, access, len: WINDOW_MAX + 1 }
        }
        Rekey::Invalidate { .. } => unreachable!(),
    };
    let mut at = rig.sq.begin();
    // SAFETY: the request is refused.
    let refused = unsafe { rig.sq.rekey(&mut at, Wr::new(1), &long) };
    assert_eq!(refused, Err(PostError::MessageTooLong));

    rig.send(Wr::new(2), SendOp::SendInvalidate(0x0506_0708), Data::List(&[])).unwrap();
    let wqe = rig.sends.lock().unwrap().head().unwrap();
    assert_eq!((u32_at(&wqe, 12), u32_at(&wqe, 20)), (9, 0x0506_0708), "opcode, key");
}

/// Linux 6.2, `enum ib_uverbs_device_cap_flags`.
const FLUSH_GLOBAL: u64 = 1 << 38;
const FLUSH_PERSISTENT: u64 = 1 << 39;
const ATOMIC_WRITE: u64 = 1 << 40;

fn place(rig: &mut Rig, wr: Wr, op: &PlaceOp) -> Result<Vec<u8>, PostError> {
    let mut at = rig.sq.begin();
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rig.sq.place(&mut at, wr, op) }?;
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rig.sq.ring(at) };
    let mut sends = rig.sends.lock().unwrap();
    let wqe = sends.head().unwrap();
    sends.advance();
    Ok(wqe)
}

fn flush(types: PlacementTypes, level: FlushLevel) -> PlaceOp {
    PlaceOp::Flush { remote: REMOTE, len: 0x1234, types, level }
}

#[test]
fn flush_and_atomic_write_stand_where_the_header_says() {
    let mut rig = Rig::with(15, FLUSH_GLOBAL | FLUSH_PERSISTENT | ATOMIC_WRITE, CAP);
    let both = PlacementTypes::GLOBAL | PlacementTypes::PERSISTENT;
    let wqe = place(&mut rig, Wr::new(1), &flush(both, FlushLevel::Region)).unwrap();
    assert_eq!((u32_at(&wqe, 12), u32_at(&wqe, 16), u32_at(&wqe, 20)), (14, 2, 0), "opcode, flags");
    assert_eq!((u64_at(&wqe, 24), u32_at(&wqe, 32)), (REMOTE.addr, 0), "as C leaves the length");
    assert_eq!((u32_at(&wqe, 36), wqe[40], wqe[41]), (REMOTE.rkey, 3, 1), "key, type, level");
    assert!(wqe[42..152].iter().all(|&byte| byte == 0));
    assert_eq!(u64_at(&wqe, 152), REMOTE.addr, "iova");
    let dma: [u32; 6] = std::array::from_fn(|at| u32_at(&wqe, 184 + 4 * at));
    assert_eq!(dma, [0x1234, 0x1234, 0, 0, 0, 0], "length, resid, and no list");

    let remote = Remote { addr: 0x1000, ..REMOTE };
    let write = PlaceOp::AtomicWrite { remote, data: [1, 2, 3, 4, 5, 6, 7, 8] };
    let wqe = place(&mut rig, Wr::new(2).fenced(), &write).unwrap();
    assert_eq!((u32_at(&wqe, 12), u32_at(&wqe, 16)), (15, 2 | 1), "opcode, flags");
    assert_eq!((u64_at(&wqe, 24), u32_at(&wqe, 32)), (0x1000, REMOTE.rkey));
    assert!(wqe[36..152].iter().all(|&byte| byte == 0));
    assert_eq!(u64_at(&wqe, 152), 0x1000, "iova");
    let dma: [u32; 6] = std::array::from_fn(|at| u32_at(&wqe, 184 + 4 * at));
    assert_eq!(dma, [8, 8, 0, 0, 0, 0]);
    assert_eq!(wqe[208..216], [1, 2, 3, 4, 5, 6, 7, 8], "atomic_wr");
}

#[test]
fn what_a_device_cannot_place_is_refused() {
    let data = [0; 8];
    let write = PlaceOp::AtomicWrite { remote: Remote { addr: 0x1000, ..REMOTE }, data };
    let odd = PlaceOp::AtomicWrite { remote: Remote { addr: 0x1004, ..REMOTE }, data };
    let global = flush(PlacementTypes::GLOBAL, FlushLevel::Range);
    let persistent = flush(PlacementTypes::PERSISTENT, FlushLevel::Range);
    let long = PlaceOp::Flush {
        remote: REMOTE,
        len: 1 << 31,
        types: PlacementTypes::GLOBAL,
        level: FlushLevel::Range,
    };
    let none = flush(PlacementTypes::empty(), FlushLevel::Range);
    let lacks = PostError::NotOnDevice;
    for (caps, refused) in [
        (0, [Some(lacks); 3]),
        (FLUSH_GLOBAL, [Some(lacks), None, Some(lacks)]),
        (FLUSH_GLOBAL | FLUSH_PERSISTENT, [Some(lacks), None, None]),
        (ATOMIC_WRITE, [None, Some(lacks), Some(lacks)]),
    ] {
        let mut rig = Rig::with(15, caps, CAP);
        for (op, refused) in [write, global, persistent].iter().zip(refused) {
            assert_eq!(place(&mut rig, Wr::new(1), op).err(), refused, "{caps:#x} {op:?}");
        }
    }
    let mut rig = Rig::with(15, FLUSH_GLOBAL | ATOMIC_WRITE, CAP);
    for (op, error) in
        [(odd, PostError::BadData), (none, PostError::BadData), (long, PostError::MessageTooLong)]
    {
        assert_eq!(place(&mut rig, Wr::new(1), &op), Err(error), "{op:?}");
    }
    assert_eq!((rig.kicks(), rig.sends.lock().unwrap().head()), (0, None));
    let cap = QpCap { max_send_sge: 0, max_inline_data: 7, ..CAP };
    let mut rig = Rig::with(15, ATOMIC_WRITE, cap);
    if rig.qp.cap().max_send_sge == 0 && rig.qp.cap().max_inline_data < 8 {
        assert_eq!(place(&mut rig, Wr::new(1), &write), Err(PostError::InlineTooLong));
    }
}

#[test]
fn flags_and_inline_data_are_told() {
    let mut rig = Rig::new(15);
    let wr = Wr { id: 1, flags: SendFlags::FENCE | SendFlags::SOLICITED };
    rig.send(wr, SendOp::Send, Data::InlineList(&[b"in", b"", b"line"])).unwrap();
    let wqe = rig.sends.lock().unwrap().head().unwrap();
    assert_eq!(u32_at(&wqe, 16), 1 | 4 | 8);
    assert_eq!((u32_at(&wqe, 184), u32_at(&wqe, 188), u32_at(&wqe, 196)), (6, 6, 0));
    assert_eq!(wqe[208..214], *b"inline");
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let mut rig = Rig::new(15);
    let granted = *rig.qp.cap();
    assert!(granted.max_inline_data >= CAP.max_inline_data);
    let long = vec![0; granted.max_inline_data as usize + 1];
    let many = vec![sge(1); granted.max_send_sge as usize + 1];
    let huge = [sge(1 << 31), sge(1)];
    let read = SendOp::Read(REMOTE);
    let atomic = SendOp::FetchAdd { remote: REMOTE, add: 1 };
    for (op, data, error) in [
        (SendOp::Send, Data::Inline(&long), PostError::InlineTooLong),
        (SendOp::Send, Data::InlineList(&[&long[1..], b"x"]), PostError::InlineTooLong),
        (SendOp::Send, Data::List(&many), PostError::TooManySges),
        (SendOp::Send, Data::List(&huge), PostError::MessageTooLong),
        (SendOp::Send, Data::One(sge(1 << 31)), PostError::MessageTooLong),
        (read, Data::Inline(b"x"), PostError::BadData),
        (atomic, Data::Inline(&[0; 8]), PostError::BadData),
        (atomic, Data::One(sge(7)), PostError::BadData),
        (atomic, Data::List(&[sge(4), sge(4)]), PostError::BadData),
    ] {
        assert_eq!(rig.send(Wr::new(1), op, data), Err(error), "{op:?}");
    }
    assert_eq!((rig.kicks(), rig.sends.lock().unwrap().head()), (0, None));
    rig.sq.enable(false);
    assert_eq!(rig.send(Wr::new(1), SendOp::Send, Data::List(&[])), Err(PostError::State));
}

#[test]
fn a_queue_without_lists_takes_none() {
    let room = ElementLimits { max_sge: 0, max_inline: 0 };
    let check = |data: Data<'_>| wqe::check(&SendOp::Send, &data, room).map(|size| size.entries);
    assert_eq!(check(Data::One(sge(1))), Err(PostError::TooManySges));
    let list = [sge(1)];
    assert_eq!(check(Data::List(&list)), Err(PostError::TooManySges));
    assert_eq!(check(Data::Inline(b"")), Ok(0));
}

#[test]
fn a_ring_is_one_system_call_and_nothing_new_is_none() {
    let mut rig = Rig::new(15);
    let mut at = rig.sq.begin();
    for id in 0..5 {
        // SAFETY: inline.
        unsafe { rig.sq.post(&mut at, Wr::new(id), SendOp::Send, Data::Inline(b"x")) }.unwrap();
    }
    assert_eq!((rig.kicks(), rig.sends.lock().unwrap().raw_producer()), (0, 0), "not before");
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rig.sq.ring(at) };
    assert_eq!((rig.kicks(), rig.sends.lock().unwrap().raw_producer()), (1, 5));
    let at = rig.sq.begin();
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rig.sq.ring(at) };
    assert_eq!(rig.kicks(), 1);
}

#[test]
fn a_batch_that_is_not_rung_gives_its_frames_back() {
    let mut rig = Rig::new(15);
    let slab = rig.slab(64, 2);
    let mut at = rig.sq.begin();
    for id in 0..2 {
        let frame = slab.take().unwrap();
        let data = Data::One(frame.sge());
        // SAFETY: no device reads it.
        let slot = unsafe { rig.sq.post(&mut at, Wr::new(id), SendOp::Send, data) }.unwrap();
        // SAFETY: the slot of the post just made.
        unsafe { rig.sq.own(&at, slot, frame.hold()) };
    }
    assert_eq!(free(&slab), 0);
    let _ = rig.sq.begin();
    assert_eq!(free(&slab), 2);
}

#[test]
fn the_queue_is_full_until_both_the_kernel_and_the_poller_are_done() {
    for start in [0, u32::MAX - 3] {
        let mut rig = Rig::new(15);
        rig.start_at(start);
        for id in 0..7 {
            rig.send(Wr::new(id), SendOp::Send, Data::Inline(b"x")).unwrap();
        }
        let one_more =
            |rig: &mut Rig| rig.send(Wr::new(7), SendOp::Send, Data::Inline(b"x")).map(drop);
        assert_eq!(one_more(&mut rig), Err(PostError::Full));
        // A flush posts the completion before it moves the index.
        let head = rig.sends.lock().unwrap().head().unwrap();
        let flushed = super::rig::wc(&head[..8], 5, 0, 0, None);
        assert!(rig.completions.lock().unwrap().post(&flushed));
        assert_eq!(rig.cq.next().unwrap().wr_id, 0);
        assert_eq!(one_more(&mut rig), Err(PostError::Full), "the kernel still reads there");
        rig.sends.lock().unwrap().advance();
        assert_eq!(one_more(&mut rig), Ok(()));
        assert_eq!(one_more(&mut rig), Err(PostError::Full));
        // Done, but not polled.
        assert_eq!(rig.complete_send(0, 0), Some(true));
        assert_eq!(one_more(&mut rig), Err(PostError::Full));
    }
}

#[test]
fn a_kernel_that_will_not_listen_is_told_again_and_a_device_that_is_gone_is_an_error() {
    let mut rig = Rig::new(15);
    let send = |rig: &mut Rig| rig.send(Wr::new(1), SendOp::Send, Data::Inline(b"x")).map(drop);
    rig.kernel.state().kick_answers = vec![Errno::ENOMEM; 3];
    assert_eq!(send(&mut rig), Ok(()));
    assert_eq!((rig.kicks(), rig.sq.doorbell_error()), (4, None), "want of memory passes");
    rig.kernel.state().kick_answers = vec![Errno::EPERM];
    assert_eq!(send(&mut rig), Ok(()));
    assert_eq!((rig.kicks(), rig.sq.doorbell_error()), (5, Some(Errno::EPERM)));
    let at = rig.sq.begin();
    // SAFETY: the cursor is from the last `begin`.
    unsafe { rig.sq.ring(at) };
    assert_eq!(
        (rig.kicks(), rig.sq.doorbell_error()),
        (6, None),
        "what was not heard is said again"
    );
    rig.kernel.state().kick_answers = vec![Errno::EINVAL; 3];
    assert_eq!(send(&mut rig), Ok(()), "it is in the ring");
    for kicks in [8, 9] {
        assert_eq!(send(&mut rig), Err(PostError::DoorbellRefused));
        assert_eq!(
            (rig.kicks(), rig.sq.doorbell_error()),
            (kicks, Some(Errno::EINVAL)),
            "asked again"
        );
    }
    assert_eq!(send(&mut rig), Ok(()), "it listens now");
    assert_eq!((rig.kicks(), rig.sq.doorbell_error()), (11, None));
    rig.kernel.state().kick_answers = vec![Errno::EIO];
    assert_eq!(send(&mut rig), Ok(()), "it is in the ring");
    assert_eq!(send(&mut rig), Err(PostError::DeviceGone));
}

/// Before Linux 6.10 a doorbell alone does not make the kernel flush.
#[test]
fn sends_of_a_failed_queue_pair_make_the_kernel_flush() {
    let mut rig = Rig::new(15);
    let send = |rig: &mut Rig| rig.send(Wr::new(1), SendOp::Send, Data::Inline(b"x")).map(drop);
    send(&mut rig).unwrap();
    assert_eq!(rig.complete_send(12, 0), Some(true));
    assert_eq!(rig.cq.next().unwrap().wr_id, 1);
    assert_eq!((rig.kicks(), rig.kernel.state().states.clone()), (1, vec![]));
    send(&mut rig).unwrap();
    assert_eq!((rig.kicks(), rig.kernel.state().states.clone()), (1, vec![6]), "to ERR once more");
    // After a reset it rings as ever.
    // SAFETY: no device, and no completion is left.
    unsafe { rig.sq.reset() };
    rig.sq.enable(true);
    rig.sends.lock().unwrap().advance();
    send(&mut rig).unwrap();
    assert_eq!((rig.kicks(), rig.kernel.state().states.len()), (2, 1));
    // The program may have failed it.
    rig.qp.fail().unwrap();
    send(&mut rig).unwrap();
    assert_eq!((rig.kicks(), rig.kernel.state().states.clone()), (2, vec![6; 3]));
}

#[test]
fn a_reset_goes_on_where_the_ring_stands() {
    let mut rig = Rig::new(15);
    for id in 0..3 {
        rig.send(Wr::new(id), SendOp::Send, Data::Inline(b"x")).unwrap();
    }
    // The kernel drains without completions.
    for _ in 0..3 {
        rig.sends.lock().unwrap().advance();
    }
    // SAFETY: drained, and no completion is left.
    unsafe { rig.sq.reset() };
    assert_eq!(rig.send(Wr::new(3), SendOp::Send, Data::Inline(b"x")), Err(PostError::State));
    rig.sq.enable(true);
    for id in 3..10 {
        rig.send(Wr::new(id), SendOp::Send, Data::Inline(b"x")).unwrap();
    }
    for id in 3..10 {
        assert_eq!(rig.complete_send(0, 0), Some(true));
        assert_eq!(rig.cq.next().unwrap().wr_id, id);
    }
    assert_eq!(rig.cq.strays(), 0);
}

fn any_data() -> impl Strategy<Value = (Vec<u32>, Option<Vec<u8>>)> {
    let list = proptest::collection::vec(0u32..5000, 0..=3);
    let bytes = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..=100));
    (list, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The kernel reads the posted work requests, element after element, at any index of the ring.
    #[test]
    fn the_kernel_reads_what_was_posted(
        start: u32,
        posts in proptest::collection::vec((0usize..7, 0u8..8, any_data()), 1..40),
    ) {
        let mut rig = Rig::new(15);
        rig.start_at(start);
        for (id, (op, flags, (lens, bytes))) in (1000u64..).zip(posts) {
            let (op, number, inlines) = OPS[op];
            let atomic = number > 4;
            let list: Vec<_> = lens.iter().map(|&len| sge(len)).collect();
            let data = match (&bytes, inlines) {
                (Some(bytes), true) => Data::Inline(bytes),
                _ if atomic => Data::One(sge(8)),
                _ => Data::List(&list),
            };
            let wr = Wr { id, flags: SendFlags::from_bits_truncate(flags) | SendFlags::SIGNALED };
            rig.send(wr, op, data).unwrap();
            let wqe = rig.sends.lock().unwrap().head().unwrap();
            let slots = rig.sends.lock().unwrap().slots();
            prop_assert!(rig.sends.lock().unwrap().raw_producer() < slots, "kept in the ring");
            prop_assert_eq!(u32_at(&wqe, 12), number);
            let (mut length, mut want) = (0, Vec::new());
            match data {
                Data::Inline(bytes) => {
                    prop_assert_eq!(u32_at(&wqe, 16) & 8, 8);
                    prop_assert_eq!(&wqe[208..][..bytes.len()], bytes);
                    length = bytes.len() as u32;
                }
                Data::One(one) => want.push(one),
                _ => want.extend(list.iter().filter(|sge| sge.len != 0)),
            }
            length += want.iter().map(|sge| sge.len).sum::<u32>();
            prop_assert_eq!((u32_at(&wqe, 184), u32_at(&wqe, 188)), (length, length));
            prop_assert_eq!(u32_at(&wqe, 196) as usize, want.len());
            for (at, sge) in want.iter().enumerate() {
                let at = 208 + 16 * at;
                let entry = (u64_at(&wqe, at), u32_at(&wqe, at + 8), u32_at(&wqe, at + 12));
                prop_assert_eq!(entry, (sge.addr, sge.len, sge.lkey));
            }
            prop_assert_eq!(rig.complete_send(0, 0), Some(true));
            prop_assert_eq!(rig.cq.next().unwrap().wr_id, id);
            rig.cq.publish();
        }
        prop_assert_eq!(rig.cq.strays(), 0);
    }

    /// Whatever index the kernel's side shows, no slot is used twice, and the queue says that it is
    /// full in time.
    #[test]
    fn a_wild_consumer_index_overwrites_nothing(
        indexes in proptest::collection::vec(any::<u32>(), 40),
    ) {
        let mut rig = Rig::new(15);
        let slab = rig.slab(64, 40);
        let mut posted = 0;
        for index in indexes {
            rig.sends.lock().unwrap().poke_consumer(index);
            let mut at = rig.sq.begin();
            let frame = slab.take().unwrap();
            let data = Data::One(frame.sge());
            // SAFETY: no device reads it.
            match unsafe { rig.sq.post(&mut at, Wr::new(1), SendOp::Send, data) } {
                Ok(slot) => {
                    // SAFETY: the slot of the post just made.
                    unsafe { rig.sq.own(&at, slot, frame.hold()) };
                    posted += 1;
                }
                Err(error) => prop_assert_eq!(error, PostError::Full),
            }
            // SAFETY: the cursor is from the last `begin`.
            unsafe { rig.sq.ring(at) };
        }
        prop_assert!(posted <= 7);
        prop_assert_eq!(free(&slab), 40 - posted);
    }
}
