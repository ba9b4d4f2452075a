//! WQEs that change keys: golden bytes, and the fence after each.
#![allow(unsafe_code, reason = "posts")]

use uverbs_core::attr::AccessFlags;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{
    Data, PostError, Rekey, SendFlags, SendOp, Sge, WINDOW_MAX, WindowKind, Wr,
};

use super::fixture::SendSide;
use super::wqe::golden;
use crate::send::queue::SendCursor;
use crate::send::wqe::WqeLimits;

const ROOM: WqeLimits = WqeLimits { max_sge: 8, max_inline: 220 };
const SMALL_FENCE: u8 = 1 << 5;
const FENCE: u8 = 4 << 5;
const SIGNALED: u8 = 2 << 2;

const BIND: Rekey = Rekey::Bind {
    kind: WindowKind::Type2,
    old: 0x0011_2277,
    new: 0x0011_2278,
    lkey: 0xaabb_ccdd,
    addr: 0x7f01_0203_0405,
    len: 0x1_2345,
    access: AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_ATOMIC),
};
const INVALIDATE: Rekey = Rekey::Invalidate { key: 0x0011_2278 };

fn bind_1(new: u32, len: u64) -> Rekey {
    let access = AccessFlags::REMOTE_WRITE;
    Rekey::Bind {
        kind: WindowKind::Type1,
        old: 0x0011_2277,
        new,
        lkey: 0xaabb_ccdd,
        addr: 0x7f01_0203_0405,
        len,
        access,
    }
}

fn rekey(side: &mut SendSide, at: &mut SendCursor, wr: Wr, op: &Rekey) -> Result<u32, PostError> {
    // SAFETY: the cursor is the test's; no device reads the ring.
    unsafe { side.sq.rekey(at, wr, op) }
}

fn send(side: &mut SendSide, at: &mut SendCursor, wr: Wr) -> u32 {
    // SAFETY: the cursor is the test's; no device reads the ring.
    unsafe { side.sq.post(at, wr, SendOp::Send, Data::List(&[])) }.unwrap()
}

fn ring(side: &mut SendSide, at: SendCursor) {
    // SAFETY: the cursor is the test's; no device reads the ring.
    unsafe { side.sq.ring(at) };
}

/// The flag byte of the WQE in a slot.
fn flags(side: &SendSide, slot: u32) -> u8 {
    side.bytes(slot, 12)[11]
}

#[track_caller]
fn assert_written(units: u32, op: &Rekey, table: &str) {
    let mut side = SendSide::new(units, ROOM, true);
    let mut at = side.sq.begin();
    for _ in 0..3 {
        send(&mut side, &mut at, Wr::new(0));
    }
    ring(&mut side, at);
    side.retire(3);
    side.stain(0xee);
    let mut at = side.sq.begin();
    assert_eq!(rekey(&mut side, &mut at, Wr::new(1), op), Ok(3));
    ring(&mut side, at);
    let expected = golden(table);
    assert_eq!(side.bytes(3, expected.len()), expected, "\n{}", side.sq.dump(3));
    side.assert_guards();
}

/// Also around the end of the ring.
#[test]
fn type_2_is_bound_to_the_queue_pair_if_its_key_is_free() {
    for units in [4, 16] {
        assert_written(
            units,
            &BIND,
            "
            00 00 03 25 | opmod, wqe_index, opcode UMR
            12 34 56 0c | qpn, ds
            00 00 00 08 | signature, stream, fm_ce_se
            00 11 22 77 | imm: the key as it is
            b0 00 00 00 | flags: inline, check_free, translation_offset
            00 04 00 00 | klm_octowords, translation_offset
            00 00 00 00 20 3c 60 41 | mkey_mask
            00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            00 00 50 00 | free, reserved, access_flags: atomic, remote_read; sf
            12 34 56 78 | qpn, variant of the new key
            00 00 00 00 00 00 00 00 | reserved, flags_pd
            00 00 7f 01 02 03 04 05 | start_addr
            00 00 00 00 00 01 23 45 | len
            00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            00 01 23 45 | byte_count
            aa bb cc dd | mkey: the region's
            00 00 7f 01 02 03 04 05 | address
            00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
            00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        ",
        );
    }
}

#[test]
fn type_1_is_any_queue_pairs() {
    assert_written(
        16,
        &bind_1(0x0011_2200, 0x40),
        "
        00 00 03 25 12 34 56 0c 00 00 00 08 00 11 22 77 | control
        90 00 00 00 | flags: inline, translation_offset
        00 04 00 00 | klm_octowords, translation_offset
        00 00 00 00 20 3c 20 41 | mkey_mask: not the queue
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 20 00 | access_flags: remote_write
        ff ff ff 00 | qpn: any; variant
        00 00 00 00 00 00 00 00 | reserved, flags_pd
        00 00 7f 01 02 03 04 05 | start_addr
        00 00 00 00 00 00 00 40 | len
    ",
    );
}

#[test]
fn a_window_without_bytes_is_free() {
    assert_written(
        16,
        &bind_1(0x0011_2278, 0),
        "
        00 00 03 25 12 34 56 08 00 00 00 08 00 11 22 77 | control
        90 00 00 00 | flags: inline, translation_offset
        00 00 00 00 | klm_octowords, translation_offset
        00 00 00 00 20 00 20 00 | mkey_mask: free, variant
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        40 00 00 00 | free
        ff ff ff 78 | qpn: any; variant
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00
        ee ee ee ee | not written
    ",
    );
}

#[test]
fn a_key_is_invalidated_if_it_is_the_queue_pairs() {
    assert_written(
        16,
        &INVALIDATE,
        "
        00 00 03 25 12 34 56 08 00 00 00 08 00 11 22 78 | control; imm: the key
        98 00 00 00 | flags: inline, translation_offset, check_qpn
        00 00 00 00 | klm_octowords, translation_offset
        00 00 00 00 20 00 60 00 | mkey_mask: free, queue, variant
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        40 00 00 00 | free
        ff ff ff 00 | qpn: any; variant 0
    ",
    );
}

#[test]
fn what_follows_waits_and_what_follows_that_does_not() {
    for op in [BIND, INVALIDATE, bind_1(0x0011_2278, 0)] {
        let mut side = SendSide::new(16, ROOM, true);
        let mut at = side.sq.begin();
        let before = send(&mut side, &mut at, Wr::new(1));
        let first = rekey(&mut side, &mut at, Wr::new(2), &op).unwrap();
        let second = rekey(&mut side, &mut at, Wr::new(3).unsignaled(), &op).unwrap();
        let behind = send(&mut side, &mut at, Wr::new(4));
        let last = send(&mut side, &mut at, Wr::new(5));
        ring(&mut side, at);
        let all = [before, first, second, behind, last].map(|slot| flags(&side, slot));
        assert_eq!(
            all,
            [SIGNALED, SIGNALED, SMALL_FENCE, SIGNALED | SMALL_FENCE, SIGNALED],
            "{op:?}"
        );
    }
}

#[test]
fn a_fence_waits_for_it_too() {
    let mut side = SendSide::new(16, ROOM, true);
    let mut at = side.sq.begin();
    rekey(&mut side, &mut at, Wr::new(1), &INVALIDATE).unwrap();
    let behind = send(&mut side, &mut at, Wr::new(2).fenced());
    let again = rekey(&mut side, &mut at, Wr::new(3), &INVALIDATE).unwrap();
    let wr = Wr { id: 4, flags: SendFlags::FENCE };
    let fenced = rekey(&mut side, &mut at, wr, &INVALIDATE).unwrap();
    let seen = [behind, again, fenced].map(|slot| flags(&side, slot));
    assert_eq!(seen, [SIGNALED | FENCE, SIGNALED, FENCE]);
}

/// Also around the end of the ring, where the WQE is built aside.
#[test]
fn a_batch_that_is_rung_is_waited_for_and_one_that_is_dropped_is_not() {
    let mut side = SendSide::new(8, ROOM, true);
    for _ in 0..20 {
        let mut at = side.sq.begin();
        let slot = rekey(&mut side, &mut at, Wr::new(1), &INVALIDATE).unwrap();
        ring(&mut side, at);
        // A post and another change, both not rung.
        let mut at = side.sq.begin();
        let behind = send(&mut side, &mut at, Wr::new(2));
        assert_eq!(behind, side.place(slot + 2));
        let mut at = side.sq.begin();
        rekey(&mut side, &mut at, Wr::new(3), &INVALIDATE).unwrap();
        let mut at = side.sq.begin();
        let inline = [7; 60];
        let data = Data::Inline(&inline);
        // SAFETY: as above; it has two WQEBBs.
        let behind = unsafe { side.sq.post(&mut at, Wr::new(4), SendOp::Send, data) }.unwrap();
        let next = send(&mut side, &mut at, Wr::new(5));
        ring(&mut side, at);
        // The fence is set when the batch is rung.
        assert_eq!(behind, side.place(slot + 2));
        assert_eq!(flags(&side, behind), SIGNALED | SMALL_FENCE);
        // The dropped UMR ended here.
        assert_eq!(flags(&side, next), SIGNALED, "{slot}");
        side.retire(at.pi());
    }
}

#[test]
fn refused() {
    let mut side = SendSide::of_datagrams(16, ROOM);
    let mut at = side.sq.begin();
    let wr = Wr::new(1);
    assert_eq!(rekey(&mut side, &mut at, wr, &BIND), Err(PostError::BadOperation));
    let mut side = SendSide::new(4, ROOM, true);
    let mut at = side.sq.begin();
    let long = bind_1(1, WINDOW_MAX + 1);
    assert_eq!(rekey(&mut side, &mut at, wr, &long), Err(PostError::MessageTooLong));
    assert_eq!(rekey(&mut side, &mut at, wr, &bind_1(1, WINDOW_MAX)), Ok(0));
    assert_eq!(rekey(&mut side, &mut at, wr, &INVALIDATE), Err(PostError::Full));
    side.sq.enable(false);
    let mut at = side.sq.begin();
    assert_eq!(rekey(&mut side, &mut at, wr, &INVALIDATE), Err(PostError::State));
}

#[test]
fn a_send_takes_a_key_along() {
    let mut side = SendSide::new(4, ROOM, true);
    let mut at = side.sq.begin();
    let data = Data::One(Sge { addr: 0x1000, len: 64, lkey: 0x100 });
    // SAFETY: as above; it has two WQEBBs.
    unsafe { side.sq.post(&mut at, Wr::new(1), SendOp::SendInvalidate(0x0102_0304), data) }
        .unwrap();
    let head = golden("00 00 00 01 12 34 56 02 00 00 00 08 01 02 03 04 00 00 00 40");
    assert_eq!(side.bytes(0, head.len()), head);
}
