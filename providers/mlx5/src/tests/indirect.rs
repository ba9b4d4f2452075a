//! WQEs that lay out indirect keys: golden bytes, wraps, and rejected layouts.
#![allow(unsafe_code, reason = "posts")]

use uverbs_core::attr::AccessFlags;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::layout::{Block, KeyLayout, KeyParts, MOST_PARTS};
use uverbs_core::queues::work::{Data, PostError, SendOp, Sge, WINDOW_MAX, Wr};

use super::fixture::SendSide;
use super::wqe::golden;
use crate::send::queue::SendCursor;
use crate::send::wqe::WqeLimits;

const ROOM: WqeLimits = WqeLimits { max_sge: 8, max_inline: 220 };
const PART: Sge = Sge { addr: 0x7f01_0203_0405, len: 0x1_2345, lkey: 0xaabb_ccdd };
const BLOCK: Block = Block { addr: 0x7f01_0203_0405, lkey: 0xaabb_ccdd, len: 0x102, stride: 0x304 };

fn layout(parts: KeyParts<'_>) -> KeyLayout<'_> {
    let access = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_READ);
    KeyLayout { old: 0x0011_2277, new: 0x0011_2278, access, parts }
}

fn lay_out(
    side: &mut SendSide,
    at: &mut SendCursor,
    parts: KeyParts<'_>,
) -> Result<u32, PostError> {
    // SAFETY: the cursor is the test's; no device reads the ring.
    unsafe { side.sq.lay_out(at, Wr::new(1), &layout(parts)) }
}

/// Posts after three others, in a ring where it fits and in one where it wraps.
fn assert_written(parts: KeyParts<'_>, table: &str) {
    for units in [4, 16] {
        let mut side = SendSide::new(units, ROOM, true);
        let mut at = side.sq.begin();
        for _ in 0..3 {
            // SAFETY: the cursor is the test's; no device reads the ring.
            unsafe { side.sq.post(&mut at, Wr::new(0), SendOp::Send, Data::List(&[])) }.unwrap();
        }
        // SAFETY: the cursor is the test's; no device reads the ring.
        unsafe { side.sq.ring(at) };
        side.retire(3);
        side.stain(0xee);
        let mut at = side.sq.begin();
        assert_eq!(lay_out(&mut side, &mut at, parts), Ok(3));
        // SAFETY: the cursor is the test's; no device reads the ring.
        unsafe { side.sq.ring(at) };
        let expected = golden(table);
        assert_eq!(side.bytes(3, expected.len()), expected, "\n{}", side.sq.dump(3));
        side.assert_guards();
    }
}

/// rdma-core `qp.c:umr_sg_list_create`.
#[test]
fn a_list() {
    let tail = Sge { addr: 0x1000, len: 1, lkey: 0x100 };
    assert_written(
        KeyParts::List(&[PART, tail]),
        "
        00 00 03 25 | opmod, wqe_index, opcode UMR
        12 34 56 0c | qpn, ds
        00 00 00 08 | signature, stream, fm_ce_se
        00 11 22 77 | imm: the key as it is
        80 00 00 00 | flags: inline
        00 04 00 00 | klm_octowords, translation_offset
        00 00 00 00 20 3c 20 01 | mkey_mask: free, rights, key, length
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 18 00 | free, reserved, access_flags: remote_read, local_write; sf
        ff ff ff 78 | qpn: any; variant of the new key
        00 00 00 00 00 00 00 00 | reserved, flags_pd
        00 00 00 00 00 00 00 00 | start_addr
        00 00 00 00 00 01 23 46 | len
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 01 23 45 | byte_count
        aa bb cc dd | mkey
        00 00 7f 01 02 03 04 05 | address
        00 00 00 01 00 00 01 00 00 00 00 00 00 00 10 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
    ",
    );
}

/// rdma-core `qp.c:umr_strided_seg_create`.
#[test]
fn interleaved_blocks() {
    let other = Block { addr: 0x1000, lkey: 0x100, len: 1, stride: 2 };
    assert_written(
        KeyParts::Interleaved { rounds: 0x1_0000, blocks: &[BLOCK, other] },
        "
        00 00 03 25 12 34 56 0c 00 00 00 08 00 11 22 77 | control
        80 00 00 00 00 04 00 00 | flags; klm_octowords, translation_offset
        00 00 00 00 20 3c 20 01 | mkey_mask
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 18 00 ff ff ff 78 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 | start_addr
        00 00 00 00 01 03 00 00 | len
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 01 03 | byte_count: of a round
        00 00 04 00 | op
        00 01 00 00 | repeat_count
        00 00 00 02 | reserved, num_ent
        03 04 01 02 aa bb cc dd 00 00 7f 01 02 03 04 05 | stride, byte_count, memkey, va
        00 02 00 01 00 00 01 00 00 00 00 00 00 00 10 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
    ",
    );
}

/// Lengths and units of WQEs from one part to the maximum.
#[test]
fn a_list_takes_whole_units() {
    for count in 1..=MOST_PARTS {
        let mut side = SendSide::new(16, ROOM, true);
        let mut at = side.sq.begin();
        let slot = lay_out(&mut side, &mut at, KeyParts::List(&vec![PART; count])).unwrap();
        let units = 2 + count.div_ceil(4) as u32;
        let bytes = side.bytes(slot, 24);
        assert_eq!((at.pi(), u32::from(bytes[7])), (units, units * 4), "{count}");
        assert_eq!(u32::from(bytes[21]), (units - 2) * 4, "klm_octowords");
        side.assert_guards();
    }
}

#[test]
fn what_follows_waits() {
    let mut side = SendSide::new(16, ROOM, true);
    let mut at = side.sq.begin();
    lay_out(&mut side, &mut at, KeyParts::List(&[PART; 5])).unwrap();
    let again = lay_out(&mut side, &mut at, KeyParts::List(&[PART])).unwrap();
    // SAFETY: the cursor is the test's; no device reads the ring.
    let behind =
        unsafe { side.sq.post(&mut at, Wr::new(0), SendOp::Send, Data::List(&[])) }.unwrap();
    // SAFETY: the cursor is the test's; no device reads the ring.
    unsafe { side.sq.ring(at) };
    assert_eq!([again, behind].map(|slot| side.bytes(slot, 12)[11] >> 5), [1, 1], "small fences");
}

#[test]
fn refused() {
    let mut side = SendSide::of_datagrams(16, ROOM);
    let mut at = side.sq.begin();
    let one = KeyParts::List(&[PART]);
    assert_eq!(lay_out(&mut side, &mut at, one), Err(PostError::BadOperation));
    let mut side = SendSide::new(8, ROOM, true);
    let mut at = side.sq.begin();
    let many = vec![PART; MOST_PARTS + 1];
    let long = Sge { len: WINDOW_MAX as u32 + 1, ..PART };
    let none = Sge { len: 0, ..PART };
    let blocks = vec![BLOCK; MOST_PARTS];
    for (parts, error) in [
        (KeyParts::List(&many), PostError::TooManySges),
        (KeyParts::List(&many[..25]), PostError::TooManySges),
        (KeyParts::Interleaved { rounds: 1, blocks: &blocks }, PostError::TooManySges),
        (KeyParts::List(&[]), PostError::BadData),
        (KeyParts::List(&[none]), PostError::BadData),
        (KeyParts::Interleaved { rounds: 0, blocks: &[BLOCK] }, PostError::BadData),
        (KeyParts::Interleaved { rounds: 1, blocks: &[] }, PostError::BadData),
        (KeyParts::List(&[PART, long]), PostError::MessageTooLong),
    ] {
        assert_eq!(lay_out(&mut side, &mut at, parts), Err(error));
    }
    assert_eq!(lay_out(&mut side, &mut at, KeyParts::List(&many[..24])), Ok(0));
    assert_eq!(lay_out(&mut side, &mut at, one), Err(PostError::Full));
    side.sq.enable(false);
    let mut at = side.sq.begin();
    assert_eq!(lay_out(&mut side, &mut at, one), Err(PostError::State));
}
