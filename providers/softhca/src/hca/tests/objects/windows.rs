//! Keys that a WQE changes: windows, lists of parts, interleaved parts, and refused changes.

use uverbs_mlx5_prm::ctrl::{FmCeSe, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::umr::{
    UMR_REPEAT_OP, mlx5_wqe_mkey_context_seg, mlx5_wqe_umr_ctrl_seg, mlx5_wqe_umr_klm_seg,
    mlx5_wqe_umr_repeat_block_seg, mlx5_wqe_umr_repeat_ent_seg,
};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

use crate::hca::testing::*;
use uverbs_front::backend::context::{Access, MkeyContext, QpState, Service};
use uverbs_front::backend::indirect::Indirect;
use uverbs_front::backend::number::{Key, Pdn, Qpn};

pub(super) const SRC: u64 = 0x1000;
pub(super) const DST: u64 = 0x30_0000;
/// Mask bits by Linux's include/linux/mlx5/qp.h: length, start, variant, QPN, rights, free.
const BIND: u64 = 1 | 1 << 6 | 1 << 13 | 1 << 14 | 0xf << 18 | 1 << 29;
const PD_BIT: u64 = 1 << 7;
/// Access flags of a WQE's key context: local read, local write, remote read, remote write.
pub(super) const LW: u8 = 1 << 3;
pub(super) const RR: u8 = 1 << 4;
pub(super) const RW: u8 = 1 << 5;

/// A change of a key, encoded as a WQE by `bytes`.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) flags: u8,
    pub(super) mask: u64,
    pub(super) access: u8,
    pub(super) free: bool,
    pub(super) variant: u8,
    pub(super) qpn: Qpn,
    pub(super) pd: Pdn,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) page_shift: u8,
    /// First octoword of the list.
    pub(super) offset: u64,
    pub(super) entries: Vec<u8>,
    /// Key and address of the list, if it is not inline in the WQE.
    pub(super) at: Option<(u32, u64)>,
}

impl Change {
    pub(super) fn bind(start: u64, access: u8, parts: &[(u32, Key, u64)]) -> Change {
        let len = parts.iter().map(|part| u64::from(part.0)).sum();
        let entries = parts.iter().flat_map(|&(len, key, addr)| klm(len, key, addr)).collect();
        // Flags: inline, and the key must be free.
        Change {
            flags: 0xa0,
            mask: BIND,
            access,
            free: false,
            variant: 0x77,
            qpn: Qpn(0xff_ffff),
            pd: Pdn(0),
            start,
            len,
            page_shift: 0,
            offset: 0,
            entries,
            at: None,
        }
    }

    fn invalidate() -> Change {
        let mask = 1 << 29 | 1 << 13;
        Change { flags: 0x80, mask, free: true, variant: 0, ..Change::bind(0, 0, &[]) }
    }

    pub(super) fn bytes(&self, end: &End, key: Key) -> Vec<u8> {
        let mut rsvd1 = [0; 32];
        rsvd1[..4].copy_from_slice(&((self.offset >> 16) as u32).to_be_bytes());
        let ctrl = mlx5_wqe_umr_ctrl_seg {
            flags: self.flags,
            translation_offset: U16::new(self.offset as u16),
            rsvd1,
            klm_octowords: U16::new((self.entries.len() / 16) as u16),
            mkey_mask: U64::new(self.mask),
            ..Default::default()
        };
        let mkey = mlx5_wqe_mkey_context_seg {
            free: u8::from(self.free) << 6,
            access_flags: self.access,
            qpn_mkey: U32::new(self.qpn.0 << 8 | u32::from(self.variant)),
            flags_pd: U32::new(self.pd.0),
            start_addr: U64::new(self.start),
            len: U64::new(self.len),
            log_page_size: self.page_shift,
            ..Default::default()
        };
        // Inline lists are padded to a multiple of 64 bytes.
        let mut entries = self.entries.clone();
        if let Some((lkey, addr)) = self.at {
            entries = klm(entries.len() as u32, Key(lkey), addr);
        } else if self.flags & 0x80 != 0 {
            entries.resize(entries.len().next_multiple_of(64), 0);
        }
        let ds = (16 + 48 + 64 + entries.len()) / 16;
        let word0 = OpmodIdxOpcode::ZERO.with_wqe_index(end.posted).with_opcode(Opcode::UMR.0);
        let word1 = QpnDs::ZERO.with_qpn(end.qpn.0).with_ds(ds as u8);
        let flags = FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE);
        let head = mlx5_wqe_ctrl_seg::new(word0, word1, flags, key.0 & !0xff);
        [head.as_bytes(), ctrl.as_bytes(), mkey.as_bytes(), &entries].concat()
    }
}

pub(super) fn klm(len: u32, key: Key, addr: u64) -> Vec<u8> {
    let klm = mlx5_wqe_umr_klm_seg {
        byte_count: U32::new(len),
        mkey: U32::new(key.0),
        address: U64::new(addr),
    };
    klm.as_bytes().to_vec()
}

/// A key without memory, as the kernel creates it for a window.
pub(super) fn window(rig: &mut Rig, host: usize) -> u32 {
    let ctx = MkeyContext {
        pd: PD,
        remote_invalidate: true,
        indirect: Some(Indirect::default()),
        free: true,
        umr: true,
        window: true,
        octowords: 4,
        ..MkeyContext::default()
    };
    rig.hosts[host].hca.create_mkey(ctx).unwrap().0
}

/// Posts the change. Returns the syndrome of its completion, 0 for success.
pub(super) fn apply(rig: &mut Rig, end: &mut End, key: Key, change: &Change) -> u8 {
    let bytes = change.bytes(end, key);
    rig.write_wqe(end, &bytes);
    rig.ring(end);
    rig.run();
    let done = rig.sent(end);
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!(done[0].sop, Opcode::UMR.0);
    done[0].syndrome
}

pub(super) fn write(rig: &mut Rig, a: &mut End, va: u64, rkey: Key, len: u32) -> u8 {
    let near = rig.hosts[0].key;
    let mut wr = Wr::new(Opcode::RDMA_WRITE).seg(SRC, len, near);
    wr.remote = Some((va, rkey.0));
    rig.post(a, &wr);
    rig.run();
    rig.sent(a)[0].syndrome
}

#[test]
fn a_window_grants_what_it_names_until_it_is_invalidated() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let key = window(&mut rig, 1);
    let base = rig.hosts[1].key;
    assert_eq!(
        apply(&mut rig, &mut b, Key(key), &Change::bind(0x5000, RW, &[(100, base, IOVA + DST)])),
        0
    );
    let rkey = key & !0xff | 0x77;
    rig.hosts[0].put(SRC, &pattern(100, 1));
    rig.hosts[1].put(DST, &[0xee; 120]);
    assert_eq!(write(&mut rig, &mut a, 0x5000 + 10, Key(rkey), 90), 0);
    assert_eq!(rig.hosts[1].get(DST + 10, 90), pattern(100, 1)[..90]);
    assert_eq!(rig.hosts[1].get(DST + 100, 20), [0xee; 20]);
    // A bound window can't be bound again if the WQE checks that.
    let again = Change::bind(0, RW, &[(8, base, IOVA)]);
    let (mut c, mut d) = rig.pair(&Setup::default());
    assert_eq!(apply(&mut rig, &mut d, Key(key), &again), 0x06, "window bind error");
    assert_eq!(rig.state(&d), QpState::Err);
    // A window bound to no queue pair passes the check of its owner.
    let asking = Change { flags: 0x80 | 1 << 3, ..Change::invalidate() };
    assert_eq!(apply(&mut rig, &mut b, Key(key), &asking), 0);
    assert_eq!(write(&mut rig, &mut c, 0x5000, Key(rkey), 8), 0x15, "its peer is in error");
    assert_eq!(write(&mut rig, &mut a, 0x5000, Key(rkey), 8), 0x13, "remote access");
    rig.hosts[1].hca.destroy_mkey(Key(key)).unwrap();
}

#[test]
fn a_window_is_on_a_region_that_allows_it() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup::default());
    let (key, base) = (Key(window(&mut rig, 0)), rig.hosts[0].key);
    let on = |rig: &Rig| rig.hosts[0].hca.windows_on(base);
    assert_eq!(on(&rig), 0);
    let bind = Change::bind(0, RW, &[(8, base, IOVA)]);
    assert_eq!((apply(&mut rig, &mut a, key, &bind), on(&rig)), (0, 1));
    assert_eq!((apply(&mut rig, &mut a, key, &Change::invalidate()), on(&rig)), (0, 0));
    assert_eq!((apply(&mut rig, &mut a, key, &bind), on(&rig)), (0, 1));
    rig.hosts[0].hca.destroy_mkey(key).unwrap();
    assert_eq!(on(&rig), 0);
    let ctx = rig.hosts[0].hca.query_mkey(base).unwrap().clone();
    let shut = rig.hosts[0].hca.create_mkey(MkeyContext { no_windows: true, ..ctx }).unwrap();
    let (key, bind) = (Key(window(&mut rig, 0)), Change::bind(0, RW, &[(8, shut, IOVA)]));
    assert_eq!(apply(&mut rig, &mut a, key, &bind), 0x06, "window bind error");
}

#[test]
fn beyond_a_window_and_against_its_rights() {
    for (at, len, rights, variant) in [
        (0x5000, 101, RW, 0x77),
        (0x4fff, 2, RW, 0x77),
        (0x5000, 8, RR, 0x77),
        (0x5000, 8, RW, 0x78),
    ] {
        let mut rig = Rig::new(2);
        let (mut a, mut b) = rig.pair(&Setup::default());
        let key = window(&mut rig, 1);
        let base = rig.hosts[1].key;
        let bind = Change::bind(0x5000, rights, &[(100, base, IOVA + DST)]);
        assert_eq!(apply(&mut rig, &mut b, Key(key), &bind), 0);
        let rkey = key & !0xff | variant;
        assert_eq!(
            write(&mut rig, &mut a, at, Key(rkey), len),
            0x13,
            "{at:#x} {len} {rights} {variant:#x}"
        );
    }
}

#[test]
fn a_window_ends_by_a_send_with_invalidate() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let key = window(&mut rig, 1);
    let base = rig.hosts[1].key;
    let bind = Change::bind(0, RW, &[(64, base, IOVA + DST)]);
    assert_eq!(apply(&mut rig, &mut b, Key(key), &bind), 0);
    let rkey = key & !0xff | 0x77;
    rig.receive(&mut b, &[]);
    rig.post(&mut a, &Wr::new(Opcode::SEND_INVAL).imm(rkey));
    rig.run();
    assert_eq!(rig.got(&mut b)[0].imm, rkey);
    // The window is free again, and can be bound.
    assert_eq!(apply(&mut rig, &mut b, Key(key), &bind), 0);
    assert_eq!(rig.sent(&mut a).len(), 1);
    assert_eq!(write(&mut rig, &mut a, 0, Key(rkey), 8), 0);
}

#[test]
fn binds_that_reach_too_far() {
    let refused = |make: &dyn Fn(&mut Rig) -> Change| {
        let mut rig = Rig::new(1);
        let (_, mut b) = rig.pair(&Setup::default());
        let key = window(&mut rig, 0);
        let change = make(&mut rig);
        assert_eq!(apply(&mut rig, &mut b, Key(key), &change), 0x06);
    };
    // A range beyond the region; an unknown key; another domain; a read-only region; a length
    // beyond the parts.
    refused(&|rig| Change::bind(0, RW, &[(101, Key(rig.hosts[0].key.0), IOVA + BUF_LEN - 100)]));
    refused(&|_| Change::bind(0, RW, &[(8, Key(0xdead_be00), IOVA)]));
    refused(&|rig| {
        Change::bind(0, RW, &[(8, Key(rig.hosts[0].key(Pdn(PD.0 + 1), 64, Access::all())), IOVA)])
    });
    refused(&|rig| {
        Change::bind(0, RW, &[(8, Key(rig.hosts[0].key(PD, 64, Access::REMOTE_READ)), IOVA)])
    });
    refused(&|rig| Change { len: 9, ..Change::bind(0, RW, &[(8, Key(rig.hosts[0].key.0), IOVA)]) });
    // The window, in another domain than the queue, has parts in the window's domain.
    let mut rig = Rig::new(1);
    let (_, mut b) = rig.pair(&Setup { pd: Pdn(PD.0 + 1), ..Setup::default() });
    let (key, foreign) = (window(&mut rig, 0), rig.hosts[0].key);
    let bind = Change::bind(0, RW, &[(8, foreign, IOVA)]);
    assert_eq!(apply(&mut rig, &mut b, Key(key), &bind), 0x06);
    // A registration, whose memory the kernel found to be read-only.
    let mut rig = Rig::new(1);
    let (_, mut b) = rig.pair(&Setup::default());
    let region = rig.hosts[0].key(PD, 64, Access::REMOTE_READ);
    let grants = Change { mask: 0xf << 18, flags: 0, ..Change::bind(0, LW | RW, &[]) };
    assert_eq!(apply(&mut rig, &mut b, Key(region), &grants), 0x06);
    // A user's queue may not move a key to another domain.
    refused(&|_| Change { mask: PD_BIT, pd: Pdn(PD.0 + 1), flags: 0, ..Change::bind(0, 0, &[]) });
    refused(&|rig| {
        let bind = Change::bind(0, RW, &[(8, Key(rig.hosts[0].key.0), IOVA)]);
        Change { mask: bind.mask | PD_BIT, pd: Pdn(PD.0 + 1), ..bind }
    });
}

#[test]
fn a_key_of_many_parts_gathers_and_scatters() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let key = window(&mut rig, 1);
    let base = rig.hosts[1].key;
    let parts = [(1000, DST), (1, DST + 0x8000), (3000, DST + 0x4001), (999, DST + 0x2003)];
    let list: Vec<_> = parts.iter().map(|&(len, at)| (len, base, IOVA + at)).collect();
    assert_eq!(apply(&mut rig, &mut b, Key(key), &Change::bind(0, LW | RW | RR, &list)), 0);
    let rkey = key & !0xff | 0x77;
    let data = pattern(5000, 4);
    rig.hosts[0].put(SRC, &data);
    assert_eq!(write(&mut rig, &mut a, 0, Key(rkey), 5000), 0);
    let mut from = 0;
    for (len, at) in parts {
        assert_eq!(rig.hosts[1].get(at, len as usize), data[from..from + len as usize]);
        from += len as usize;
    }
    // And back, across packet boundaries; then as the local side of a SEND.
    let near = rig.hosts[0].key;
    let mut wr = Wr::new(Opcode::RDMA_READ).seg(SRC + 0x8000, 4990, near);
    wr.remote = Some((7, rkey));
    rig.post(&mut a, &wr);
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].kind, 0);
    assert_eq!(rig.hosts[0].get(SRC + 0x8000, 4990), data[7..4997]);
    rig.receive(&mut a, &[(SRC + 0x10000, 5000, near)]);
    let bytes = {
        let mut wr = Wr::new(Opcode::SEND).seg(0, 5000, Key(rkey)).bytes(b.qpn, b.posted);
        wr[24..32].copy_from_slice(&0u64.to_be_bytes());
        wr
    };
    rig.write_wqe(&mut b, &bytes);
    rig.ring(&b);
    rig.run();
    assert_eq!(rig.got(&mut a)[0].bytes, 5000);
    assert_eq!(rig.hosts[0].get(SRC + 0x10000, 5000), data);
}

#[test]
fn interleaved_parts_take_turns() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let key = window(&mut rig, 1);
    let base = rig.hosts[1].key;
    // Ten rounds: 8 bytes of every 64 in one part, 4 bytes of every 16 in the other.
    let head = mlx5_wqe_umr_repeat_block_seg {
        byte_count: U32::new(12),
        op: U32::new(UMR_REPEAT_OP),
        repeat_count: U32::new(10),
        num_ent: U16::new(2),
        ..Default::default()
    };
    let entry = |stride, len, at| mlx5_wqe_umr_repeat_ent_seg {
        stride: U16::new(stride),
        byte_count: U16::new(len),
        memkey: U32::new(base.0),
        va: U64::new(IOVA + at),
    };
    let (first, second) = (entry(64, 8, DST), entry(16, 4, DST + 0x4000));
    let entries = [head.as_bytes(), first.as_bytes(), second.as_bytes()].concat();
    let change = Change { len: 120, entries, ..Change::bind(0, LW | RW, &[]) };
    assert_eq!(apply(&mut rig, &mut b, Key(key), &change), 0);
    let data = pattern(120, 8);
    rig.hosts[0].put(SRC, &data);
    assert_eq!(write(&mut rig, &mut a, 0, Key(key & !0xff | 0x77), 120), 0);
    for turn in 0..10u64 {
        let at = turn as usize * 12;
        assert_eq!(rig.hosts[1].get(DST + turn * 64, 8), data[at..at + 8]);
        assert_eq!(rig.hosts[1].get(DST + 0x4000 + turn * 16, 4), data[at + 8..at + 12]);
    }
    assert_eq!(write(&mut rig, &mut a, 1, Key(key & !0xff | 0x77), 120), 0x13, "one byte too far");
}

#[test]
fn a_list_may_lie_in_memory_and_the_driver_may_change_the_domain() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(&Setup::default());
    let (mut driver, _) = rig.pair(&Setup { service: Service::Umr, ..Setup::default() });
    let (key, base) = (window(&mut rig, 0), rig.hosts[0].key);
    rig.hosts[0].put(SRC, &[klm(50, base, IOVA + DST), klm(50, base, IOVA + DST + 0x100)].concat());
    let change =
        Change { flags: 0x20, ..Change::bind(0, LW | RW, &[(50, Key(0), 0), (50, Key(0), 0)]) };
    let mut bytes = change.bytes(&driver, Key(key));
    bytes.truncate(16 + 48 + 64);
    bytes.extend_from_slice(&klm(32, base, IOVA + SRC));
    bytes[7] = (bytes.len() / 16) as u8;
    rig.write_wqe(&mut driver, &bytes);
    rig.ring(&driver);
    rig.run();
    assert_eq!(rig.sent(&mut driver)[0].kind, 0);
    let rkey = key & !0xff | 0x77;
    assert_eq!(write(&mut rig, &mut a, 0, Key(rkey), 100), 0);
    let moved = Change { mask: PD_BIT, pd: Pdn(PD.0 + 1), flags: 0, ..Change::bind(0, 0, &[]) };
    assert_eq!(apply(&mut rig, &mut driver, Key(key), &moved), 0);
    assert_eq!(write(&mut rig, &mut a, 0, Key(rkey), 100), 0x13, "another domain now");
    // A UMR queue sends nothing.
    rig.post(&mut driver, &Wr::new(Opcode::SEND).seg(SRC, 8, base));
    rig.run();
    assert_eq!(rig.sent(&mut driver)[0].syndrome, 0x02);
}

#[test]
fn a_key_within_itself_ends() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let (key, base) = (window(&mut rig, 1), rig.hosts[1].key);
    assert_eq!(
        apply(&mut rig, &mut b, Key(key), &Change::bind(0, LW | RW, &[(64, base, IOVA)])),
        0
    );
    let own = key & !0xff | 0x77;
    let change = Change { flags: 0x80, ..Change::bind(0, LW | RW, &[(64, Key(own), 0)]) };
    assert_eq!(apply(&mut rig, &mut b, Key(key), &change), 0, "its parts exist when it is bound");
    assert_eq!(write(&mut rig, &mut a, 0, Key(own), 64), 0x13);
}

#[test]
fn a_change_behind_what_is_sent_again_happens_once() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    let key = window(&mut rig, 0);
    rig.hosts[1].link.unplug();
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).remote(DST, far).seg(SRC, 8, near));
    // Binding a bound window would fail.
    let bytes = Change::bind(0, LW, &[(64, near, IOVA + SRC)]).bytes(&a, Key(key));
    rig.write_wqe(&mut a, &bytes);
    rig.ring(&a);
    rig.run_until(std::time::Duration::from_micros(2500));
    assert!(rig.hosts[0].hca.stats().retransmits > 0, "the write was not sent again yet");
    rig.hosts[1].link.replug();
    rig.run();
    let done = rig.sent(&mut a);
    assert_eq!(done.iter().map(|got| got.syndrome).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn a_fenced_change_waits_for_reads_and_happens_once() {
    let mut rig = Rig::new(2);
    let (mut a, _b) = rig.pair(&Setup::default());
    let (near, far) = (rig.hosts[0].key, rig.hosts[1].key);
    let key = window(&mut rig, 0);
    let bind = Change::bind(0, LW, &[(4096, near, IOVA + SRC)]);
    assert_eq!(apply(&mut rig, &mut a, Key(key), &bind), 0);
    // The READ scatters through the window that the next WQE invalidates.
    rig.hosts[1].put(DST, &pattern(4096, 2));
    let mut read =
        Wr::new(Opcode::RDMA_READ).remote(DST, far).seg(0, 4096, Key(key & !0xff | 0x77));
    read.flags = FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE);
    let mut bytes = read.bytes(a.qpn, a.posted);
    bytes[40..48].copy_from_slice(&0u64.to_be_bytes());
    rig.write_wqe(&mut a, &bytes);
    let mut bytes = Change::invalidate().bytes(&a, Key(key));
    bytes[11] |= 4 << 5; // fence
    rig.write_wqe(&mut a, &bytes);
    rig.ring(&a);
    rig.run();
    let done = rig.sent(&mut a);
    assert_eq!(done.iter().map(|got| got.kind).collect::<Vec<_>>(), [0, 0], "{done:?}");
    assert_eq!(rig.hosts[0].get(SRC, 4096), pattern(4096, 2));
    assert_eq!(apply(&mut rig, &mut a, Key(key), &bind), 0, "it is free");
}

/// A type 2B window (IBTA 10.6.7.2.4) is unusable for other queue pairs, even of the same domain.
#[test]
fn a_window_of_a_queue_pair_is_that_ones_alone() {
    const CHECK_QPN: u8 = 1 << 3;
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let key = window(&mut rig, 1);
    let base = rig.hosts[1].key;
    let bind = Change { qpn: b.qpn, ..Change::bind(0, RW | RR, &[(64, base, IOVA + DST)]) };
    assert_eq!(apply(&mut rig, &mut b, Key(key), &bind), 0);
    let rkey = key & !0xff | 0x77;
    rig.hosts[0].put(SRC, &pattern(64, 3));
    assert_eq!(write(&mut rig, &mut a, 0, Key(rkey), 64), 0);
    assert_eq!(rig.hosts[1].get(DST, 64), pattern(64, 3));
    // Another connection: WRITE, READ, atomic and SEND with invalidate all fail.
    rig.hosts[1].put(DST, &[0xee; 64]);
    let near = rig.hosts[0].key;
    for opcode in [Opcode::RDMA_WRITE, Opcode::RDMA_READ, Opcode::SEND_INVAL] {
        let (mut c, mut d) = rig.pair(&Setup::default());
        rig.receive(&mut d, &[]);
        let mut wr = match opcode {
            Opcode::SEND_INVAL => Wr::new(opcode).imm(rkey),
            _ => Wr::new(opcode).seg(SRC, 8, near),
        };
        if opcode != Opcode::SEND_INVAL {
            wr.remote = Some((0, rkey));
        }
        rig.post(&mut c, &wr);
        rig.run();
        assert_eq!(rig.sent(&mut c)[0].syndrome, 0x13, "{opcode:?}");
    }
    assert_eq!(rig.hosts[1].get(DST, 64), [0xee; 64]);
    // Another queue pair may not invalidate the window if the WQE checks its owner (rdma-core qp.c,
    // `set_umr_control_seg`).
    let invalidate = Change { flags: 0x80 | CHECK_QPN, ..Change::invalidate() };
    let (_, mut d) = rig.pair(&Setup::default());
    assert_eq!(apply(&mut rig, &mut d, Key(key), &invalidate), 0x06);
    assert_eq!(write(&mut rig, &mut a, 0, Key(rkey), 8), 0, "as before");
    let invalidate = Change { mask: invalidate.mask | 1 << 14, ..invalidate };
    assert_eq!(apply(&mut rig, &mut b, Key(key), &invalidate), 0);
    // Bound again as type 1: every queue pair may use it.
    assert_eq!(apply(&mut rig, &mut b, Key(key), &Change { qpn: Qpn(0xff_ffff), ..bind }), 0);
    let (mut c, _) = rig.pair(&Setup::default());
    assert_eq!(write(&mut rig, &mut c, 0, Key(rkey), 8), 0);
}

#[test]
fn a_list_has_the_room_that_its_key_was_made_with() {
    let mut rig = Rig::new(1);
    let (_, mut b) = rig.pair(&Setup::default());
    let (key, base) = (window(&mut rig, 0), rig.hosts[0].key);
    let part = (8, base, IOVA);
    assert_eq!(apply(&mut rig, &mut b, Key(key), &Change::bind(0, RW, &[part; 4])), 0);
    let more = Change { flags: 0x80, ..Change::bind(0, RW, &[part; 5]) };
    assert_eq!(apply(&mut rig, &mut b, Key(key), &more), 0x06);
}
