//! Pages that a driver's WQEs map to a key and change, as mlx5_ib does to register and reregister
//! memory (Linux `hw/mlx5/umr.c`).

use proptest::prelude::*;
use uverbs_mlx5_prm::opcode::Opcode;

use super::windows::{Change, DST, LW, RR, RW, SRC, apply, write};
use crate::hca::dma::RegionAccess;
use crate::hca::testing::*;
use uverbs_front::backend::context::{Access, MkeyContext, Service};
use uverbs_front::backend::number::{Key, Pdn, Qpn};
use uverbs_front::backend::region::Region;

const PAGE: u64 = 4096;
/// Octowords of the test keys: 16 pages.
const ROOM: u32 = 8;
/// Address of the driver's page lists.
const LIST: u64 = 0x10_0000;
/// Page entry flags: readable and writable.
const PRESENT: u64 = 3;
/// Mask bits: variant and free state; domain and rights; length, page size and start
/// (`get_umr_enable_mr_mask` and the functions after it).
const ENABLE: u64 = 1 << 13 | 1 << 29;
const RIGHTS: u64 = 1 << 7 | 0x1f << 17;
const PLACE: u64 = 1 | 1 << 1 | 1 << 6;
/// `MLX5_UMR_CHECK_NOT_FREE`, `MLX5_UMR_CHECK_FREE`, `MLX5_UMR_TRANSLATION_OFFSET_EN`,
/// `MLX5_UMR_INLINE`.
const MUST_BE_FREE: u8 = 1 << 5;
const MUST_NOT_BE_FREE: u8 = 1 << 6;
const OFFSET: u8 = 1 << 4;
const INLINE: u8 = 1 << 7;
const BIND_ERROR: u8 = 0x06;
const START: u64 = 0x7000_0100;

/// A key as in mlx5_ib's cache: free, in the driver's domain, with room for pages and none mapped.
fn cached(rig: &mut Rig, host: usize) -> u32 {
    with_umr(rig, host, true)
}

fn with_umr(rig: &mut Rig, host: usize, umr: bool) -> u32 {
    let region = Region::Pages { page_shift: 12, offset: 0, pages: Vec::new(), len: 0 };
    let ctx = MkeyContext {
        pd: Pdn(PD.0 + 9),
        region,
        free: true,
        umr,
        octowords: ROOM,
        ..MkeyContext::default()
    };
    rig.hosts[host].hca.create_mkey(ctx).unwrap().0
}

/// Writes a list of pages of a host's buffer into its memory.
fn list(rig: &mut Rig, host: usize, places: &[u64]) -> Vec<u8> {
    let bus = |at| rig.hosts[host].buf.addr_of(at, 1).unwrap();
    let entry = |&at: &u64| bus(at) | PRESENT;
    let mut list = places.iter().flat_map(|at| entry(at).to_be_bytes()).collect::<Vec<_>>();
    list.resize(list.len().next_multiple_of(64), 0);
    rig.hosts[host].put(LIST, &list);
    list
}

/// The last part of a page list, as mlx5_ib sends it to register memory.
fn register(rig: &mut Rig, host: usize, places: &[u64]) -> Change {
    let lkey = rig.hosts[host].key;
    let entries = list(rig, host, places);
    Change {
        flags: MUST_BE_FREE,
        mask: ENABLE | RIGHTS | PLACE,
        pd: PD,
        start: START,
        len: (PAGE * places.len() as u64).saturating_sub(START & (PAGE - 1)),
        page_shift: 12,
        entries,
        at: Some((lkey.0, IOVA + LIST)),
        ..Change::bind(0, LW | RW | RR, &[])
    }
}

/// Two hosts, a connection between them, and a UMR queue of the second host's driver.
fn rig() -> (Rig, End, End) {
    let mut rig = Rig::new(2);
    let (a, _) = rig.pair(&Setup::default());
    let (_, driver) = rig.pair(&Setup { service: Service::Umr, ..Setup::default() });
    (rig, a, driver)
}

const VARIANT: u32 = 0x77;

#[test]
fn pages_come_in_pieces_and_are_of_use_when_all_are_there() {
    let (mut rig, mut a, mut driver) = rig();
    let key = cached(&mut rig, 1);
    let rkey = key & !0xff | VARIANT;
    // Twelve pages in reverse order: eight in the first part, four in the second.
    let places = (0..12).map(|page| DST + PAGE * (11 - page)).collect::<Vec<_>>();
    let first = register(&mut rig, 1, &places[..8]);
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &Change { mask: 0, ..first }), 0);
    let last = register(&mut rig, 1, &places[8..]);
    let len = 12 * PAGE - 0x100;
    let last = Change { flags: MUST_BE_FREE | OFFSET, offset: 4, len, ..last };
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &last), 0);
    let data = pattern(len as usize, 5);
    rig.hosts[0].put(SRC, &data);
    assert_eq!(write(&mut rig, &mut a, START, Key(rkey), len as u32), 0);
    for (page, &at) in places.iter().enumerate() {
        let begin = page * 4096;
        let skip = if page == 0 { 0x100 } else { 0 };
        let want = &data[begin + skip - 0x100..begin + 4096 - 0x100];
        assert_eq!(rig.hosts[1].get(at + skip as u64, want.len()), want, "page {page}");
    }
    // The key is in use now.
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &last), BIND_ERROR);
}

#[test]
fn larger_pages_and_lists_in_the_wqe() {
    let (mut rig, mut a, mut driver) = rig();
    let key = cached(&mut rig, 1);
    // Pages of 16 KiB, the later one first, starting in the middle of a page.
    let at = rig.hosts[1].alloc(0x8000, 0x4000);
    let pages = [(at + 0x4000) | PRESENT, at | PRESENT, 0, 0, 0, 0, 0, 0];
    let change = Change {
        page_shift: 14,
        start: 0x7000_2000,
        len: 0x4000,
        flags: MUST_BE_FREE | INLINE,
        at: None,
        entries: pages.iter().flat_map(|page| page.to_be_bytes()).collect(),
        ..register(&mut rig, 1, &[])
    };
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &change), 0);
    let data = pattern(0x4000, 6);
    rig.hosts[0].put(SRC, &data);
    assert_eq!(write(&mut rig, &mut a, 0x7000_2000, Key(key & !0xff | VARIANT), 0x4000), 0);
    assert_eq!(rig.hosts[1].arena.bytes(at + 0x6000, 0x2000), data[..0x2000]);
    assert_eq!(rig.hosts[1].arena.bytes(at, 0x2000), data[0x2000..]);
}

#[test]
fn registered_anew() {
    let (mut rig, mut a, mut driver) = rig();
    let key = cached(&mut rig, 1);
    let rkey = key & !0xff | VARIANT;
    let change = register(&mut rig, 1, &[DST]);
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &change), 0);
    assert_eq!(write(&mut rig, &mut a, START, Key(rkey), 8), 0);
    // Another page elsewhere; then fewer rights; then another domain; then no right.
    let moved = Change {
        flags: MUST_NOT_BE_FREE,
        mask: PLACE,
        start: 0x9000_0000,
        len: PAGE,
        ..register(&mut rig, 1, &[DST + PAGE])
    };
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &moved), 0);
    rig.hosts[0].put(SRC, b"anew");
    assert_eq!(write(&mut rig, &mut a, 0x9000_0000, Key(rkey), 4), 0);
    assert_eq!(rig.hosts[1].get(DST + PAGE, 4), b"anew");
    assert_eq!(write(&mut rig, &mut a, START, Key(rkey), 4), 0x13, "no more there");
    let plain = Change {
        flags: MUST_NOT_BE_FREE | INLINE,
        mask: RIGHTS,
        pd: PD,
        ..Change::bind(0, 0, &[])
    };
    for (rights, pd, expected) in
        [(LW | RR, PD, 0x13), (LW | RW, Pdn(PD.0 + 1), 0x13), (LW | RW, PD, 0)]
    {
        let (mut a, _) = rig.pair(&Setup::default());
        let change = Change { access: rights, pd, entries: Vec::new(), ..copy(&plain) };
        assert_eq!(apply(&mut rig, &mut driver, Key(key), &change), 0);
        assert_eq!(
            write(&mut rig, &mut a, 0x9000_0000, Key(rkey), 4),
            expected,
            "{rights:#x} {pd:?}"
        );
    }
    let (mut a, _) = rig.pair(&Setup::default());
    let revoke = Change { flags: INLINE, mask: 1 << 29 | 1 << 7, free: true, ..copy(&plain) };
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &revoke), 0);
    assert_eq!(write(&mut rig, &mut a, 0x9000_0000, Key(rkey), 4), 0x13, "free");
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &plain), BIND_ERROR, "free");
}

fn copy(change: &Change) -> Change {
    Change { entries: change.entries.clone(), ..*change }
}

#[test]
fn a_page_that_is_not_there_is_a_fault() {
    let (mut rig, mut a, mut driver) = rig();
    let key = cached(&mut rig, 1);
    let mut change = register(&mut rig, 1, &[DST, DST + 2 * PAGE, DST + PAGE]);
    // An address without the present flags.
    change.entries[15] &= !3;
    rig.hosts[1].put(LIST, &change.entries);
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &change), 0);
    let rkey = key & !0xff | VARIANT;
    rig.hosts[1].put(DST + PAGE, &[7; 8]);
    assert_eq!(write(&mut rig, &mut a, START + 2 * PAGE, Key(rkey), 8), 0);
    assert_eq!(write(&mut rig, &mut a, START + PAGE, Key(rkey), 8), 0x14, "remote operation");
}

/// Each ends in a bind error, and leaves the key unchanged.
#[test]
fn changes_that_are_refused() {
    let refused = |what: &str, change: &dyn Fn(Change) -> Change| {
        let (mut rig, mut a, mut driver) = rig();
        let key = cached(&mut rig, 1);
        let good = register(&mut rig, 1, &[DST]);
        assert_eq!(
            apply(&mut rig, &mut driver, Key(key), &change(copy(&good))),
            BIND_ERROR,
            "{what}"
        );
        assert_eq!(write(&mut rig, &mut a, START, Key(key & !0xff | VARIANT), 8), 0x13, "{what}");
        // The correct change still succeeds, from another queue.
        let (_, mut driver) = rig.pair(&Setup { service: Service::Umr, ..Setup::default() });
        assert_eq!(apply(&mut rig, &mut driver, Key(key), &good), 0, "{what}");
    };
    refused("beyond the room", &|good| Change { flags: good.flags | OFFSET, offset: 5, ..good });
    let far = u64::MAX >> 16;
    refused("far beyond the room", &|good| Change {
        flags: good.flags | OFFSET,
        offset: far,
        ..good
    });
    refused("longer than the room", &|good| Change { len: 16 * PAGE, ..good });
    refused("without end", &|good| Change { len: u64::MAX, ..good });
    refused("small pages", &|good| Change { page_shift: 11, ..good });
    refused("huge pages", &|good| Change { page_shift: 63, ..good });
    refused("a key that isn't there", &|good| Change { at: Some((0xdead_be00, IOVA)), ..good });
    refused("a list outside of its key", &|good| {
        let key = good.at.unwrap().0;
        Change { at: Some((key, IOVA + BUF_LEN - 8)), ..good }
    });
    refused("a key in use", &|good| Change { flags: MUST_NOT_BE_FREE, ..good });
}

#[test]
fn whose_keys_they_are() {
    // A user's queue may not map pages, since they could belong to any process.
    let (mut rig, mut a, mut driver) = rig();
    let (_, mut user) = rig.pair(&Setup { pd: Pdn(PD.0 + 9), ..Setup::default() });
    let key = cached(&mut rig, 1);
    let mut change = register(&mut rig, 1, &[DST]);
    change.mask = 1 | 1 << 6 | ENABLE | 0xf << 18;
    change.at = Some((rig.hosts[1].key(Pdn(PD.0 + 9), BUF_LEN, Access::all()), IOVA + LIST));
    assert_eq!(apply(&mut rig, &mut user, Key(key), &change), BIND_ERROR);
    // The driver may not map pages to a key that is not created for UMR.
    let region = rig.hosts[1].key;
    let change = Change { flags: 0, ..register(&mut rig, 1, &[DST]) };
    assert_eq!(apply(&mut rig, &mut driver, region, &change), BIND_ERROR);
    assert_eq!(write(&mut rig, &mut a, IOVA, region, 8), 0);
    let key = with_umr(&mut rig, 1, false);
    let (_, mut driver) = rig.pair(&Setup { service: Service::Umr, ..Setup::default() });
    let change = register(&mut rig, 1, &[DST]);
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &change), BIND_ERROR);
}

fn change() -> impl Strategy<Value = Change> {
    let numbers = || prop_oneof![0u64..64, 4090u64..4100, any::<u64>()];
    let list = proptest::collection::vec(prop_oneof![Just(0u64), Just(3), any::<u64>()], 0..20);
    let first = (any::<u8>(), any::<u64>(), any::<u8>(), any::<bool>(), any::<u32>(), any::<u32>());
    (first, numbers(), numbers(), any::<u8>(), numbers(), list, any::<bool>()).prop_map(
        |((flags, mask, access, free, qpn, pd), start, len, page_shift, offset, list, near)| {
            let mut entries = list.iter().flat_map(|page| page.to_be_bytes()).collect::<Vec<_>>();
            entries.resize(entries.len().next_multiple_of(64), 0);
            Change {
                flags: if near { flags | INLINE } else { flags & !INLINE },
                mask: if mask & 4 == 0 { mask | ENABLE | RIGHTS | PLACE } else { mask },
                access,
                free,
                qpn: if qpn & 1 == 0 { Qpn(0xff_ffff) } else { Qpn(qpn >> 8) },
                pd: if pd & 1 == 0 { PD } else { Pdn(pd) },
                start,
                len,
                page_shift: if page_shift & 1 == 0 { 12 } else { page_shift },
                offset: offset & ((1 << 48) - 1),
                entries,
                at: None,
                ..Change::bind(0, 0, &[])
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Arbitrary changes: each completes, and accesses by the resulting key are executed or
    /// refused.
    #[test]
    fn nonsense_ends(changes in proptest::collection::vec(change(), 1..8), parts in any::<bool>()) {
        let mut rig = Rig::new(2);
        let key = if parts { super::windows::window(&mut rig, 1) } else { cached(&mut rig, 1) };
        for mut change in changes {
            let (_, mut driver) = rig.pair(&Setup { service: Service::Umr, ..Setup::default() });
            if change.flags & INLINE == 0 && !change.entries.is_empty() {
                rig.hosts[1].put(LIST, &change.entries);
                change.at = Some((rig.hosts[1].key.0, IOVA + LIST));
            }
            let end = apply(&mut rig, &mut driver, Key(key), &change);
            prop_assert!(end == 0 || end == BIND_ERROR, "{end:#x}");
            for at in [change.start, change.start.wrapping_add(change.len).wrapping_sub(8)] {
                let (mut a, _) = rig.pair(&Setup::default());
                let rkey = key & !0xff | VARIANT;
                let end = write(&mut rig, &mut a, at, Key(rkey), 8);
                prop_assert!(matches!(end, 0 | 0x13 | 0x14), "{end:#x}");
            }
            rig.post(&mut driver, &Wr::new(Opcode::NOP));
        }
    }
}
