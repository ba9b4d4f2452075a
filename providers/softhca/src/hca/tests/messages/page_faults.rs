//! Missing pages: a driver is told, brings them or fails to, and takes them away again.

use std::time::Duration;

use proptest::prelude::*;
use uverbs_mlx5_prm::eqe::PageFaultType;
use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::HcaConfig;
use crate::hca::testing::*;
use crate::wire::Faults;
use uverbs_front::backend::context::{Access, MkeyContext, QpState, QpTransition};
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun, PageFault};
use uverbs_front::backend::indirect::{Blocks, Indirect};
use uverbs_front::backend::number::Key;
use uverbs_front::backend::region::{ABSENT, READ_ONLY, Region};

const PAGE: u64 = 4096;
pub(super) const SRC: u64 = 0x1f00;
pub(super) const DST: u64 = 0x30_0080;
/// Vendor syndrome of a page that the driver could not bring (mlx5dv.h).
pub(super) const NO_PAGE: u8 = 0x93;

/// The driver of a host: a key over the buffer with all pages missing at first, and the pages.
pub(super) struct Pager {
    host: usize,
    pub(super) key: Key,
    pages: Vec<u64>,
    pub(super) told: Vec<PageFault>,
}

impl Pager {
    pub(super) fn new(rig: &mut Rig, host: usize) -> Pager {
        let at = &mut rig.hosts[host];
        at.hca.tell_page_faults(true);
        let Region::Pages { pages, .. } = at.buf.clone() else { unreachable!() };
        let key = Key(at.key(PD, BUF_LEN, Access::all()));
        let pager = Pager { host, key, pages, told: Vec::new() };
        pager.set(rig, 0..BUF_LEN, |_| ABSENT);
        pager
    }

    /// Changes the page entries of a byte range.
    pub(super) fn set(
        &self,
        rig: &mut Rig,
        bytes: std::ops::Range<u64>,
        entry: impl Fn(u64) -> u64,
    ) {
        let (first, last) = (bytes.start / PAGE, bytes.end.div_ceil(PAGE));
        let new = self.pages[first as usize..last as usize].iter().map(|&page| entry(page));
        let keys = &mut rig.hosts[self.host].hca.common.keys;
        keys.set_pages(self.key, first, &new.collect::<Vec<_>>()).unwrap();
    }

    /// Page faults since the last call.
    pub(super) fn faults(&self, rig: &mut Rig) -> Vec<PageFault> {
        let events = rig.hosts[self.host].events().into_iter();
        events
            .filter_map(|event| match event {
                HcaEvent::PageFault { fault, .. } => Some(fault),
                _ => None,
            })
            .collect()
    }

    /// Answers all page faults: for a work request with all pages, for a request with the pages of
    /// its next packet.
    pub(super) fn answer(&mut self, rig: &mut Rig, failed: bool) {
        for fault in self.faults(rig) {
            let bytes = match fault {
                PageFault::Wqe { .. } => 0..BUF_LEN,
                PageFault::Rdma { va, packet, rkey, .. } => {
                    assert_eq!(rkey, self.key);
                    va - IOVA..va - IOVA + u64::from(packet)
                }
            };
            if !failed {
                self.set(rig, bytes, |page| page);
            }
            rig.hosts[self.host].hca.resume(token(fault), failed).unwrap();
            self.told.push(fault);
        }
    }

    pub(super) fn open(&self, rig: &Rig) -> usize {
        rig.hosts[self.host].hca.common.faults.count()
    }
}

pub(super) fn token(fault: PageFault) -> u32 {
    let (PageFault::Wqe { token, .. } | PageFault::Rdma { token, .. }) = fault;
    token
}

pub(super) fn kinds(faults: &[PageFault]) -> Vec<PageFaultType> {
    let kind = |fault: &PageFault| match *fault {
        PageFault::Wqe { kind, .. } => kind,
        PageFault::Rdma { write: true, .. } => PageFaultType::RDMA_WRITE,
        PageFault::Rdma { write: false, .. } => PageFaultType::RDMA_READ,
    };
    faults.iter().map(kind).collect()
}

/// Runs for a while, in which a waiting queue asks for its page several times.
pub(super) fn soon(rig: &mut Rig) {
    rig.run_until(rig.now + Duration::from_millis(1));
}

/// Runs until no queue waits.
pub(super) fn run(rig: &mut Rig, pagers: &mut [&mut Pager]) {
    for _ in 0..10_000 {
        soon(rig);
        pagers.iter_mut().for_each(|pager| pager.answer(rig, false));
        if pagers.iter().all(|pager| pager.open(rig) == 0) {
            let busy = rig.hosts.iter_mut().any(|host| host.hca.next_deadline().is_some());
            if !busy {
                return;
            }
        }
    }
    panic!("pages are asked for without end");
}

fn operations() -> [(Opcode, Vec<PageFaultType>, Vec<PageFaultType>); 6] {
    use PageFaultType as T;
    let (mine, fetching) = (vec![T::REQ_SEND_OR_WRITE], vec![T::REQ_READ_OR_ATOMIC]);
    [
        (Opcode::SEND, mine.clone(), vec![T::RESP]),
        (Opcode::RDMA_WRITE, mine.clone(), vec![T::RDMA_WRITE]),
        (Opcode::RDMA_WRITE_IMM, mine, vec![T::RDMA_WRITE]),
        (Opcode::RDMA_READ, fetching.clone(), vec![T::RDMA_READ]),
        (Opcode::ATOMIC_CS, fetching.clone(), vec![T::RDMA_WRITE]),
        (Opcode::ATOMIC_FA, fetching, vec![T::RDMA_WRITE]),
    ]
}

/// A work request of `len` bytes, with local memory of `near` and remote memory of `far`.
pub(super) fn request(opcode: Opcode, len: u32, near: Key, far: Key) -> Wr {
    let wr = Wr::new(opcode).seg(SRC, len, near).remote(DST, far);
    match opcode {
        Opcode::SEND => Wr { remote: None, ..wr },
        Opcode::ATOMIC_CS => wr.atomic(99, 7),
        Opcode::ATOMIC_FA => wr.atomic(3, 0),
        _ => wr,
    }
}

fn is_atomic(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::ATOMIC_CS | Opcode::ATOMIC_FA)
}

/// Takes all pages away, fills the memory, posts the work request and its receive, and runs. Checks
/// that both completed with success and the memory is right.
fn carry_out(
    rig: &mut Rig,
    (a, b): (&mut End, &mut End),
    (near, far): (&mut Pager, &mut Pager),
    (opcode, size): (Opcode, u32),
) {
    let len = if is_atomic(opcode) { 8 } else { size };
    let (mine, theirs) = (pattern(len as usize, 3), pattern(len as usize, 4));
    rig.hosts[0].put(SRC, &mine);
    rig.hosts[1].put(DST, if is_atomic(opcode) { &[7, 0, 0, 0, 0, 0, 0, 0] } else { &theirs });
    near.set(rig, 0..BUF_LEN, |_| ABSENT);
    far.set(rig, 0..BUF_LEN, |_| ABSENT);
    rig.receive(b, &[(DST, len, far.key)]);
    rig.post(a, &request(opcode, len, near.key, far.key));
    run(rig, &mut [near, far]);
    let sent = rig.sent(a);
    assert_eq!(sent.iter().map(|got| got.kind).collect::<Vec<_>>(), [0], "{opcode} {sent:?}");
    let receives = matches!(opcode, Opcode::SEND | Opcode::RDMA_WRITE_IMM);
    assert_eq!(rig.got(b).len(), usize::from(receives), "{opcode}");
    if !receives {
        // The receive was not consumed.
        b.received -= 1;
        rig.hosts[1].store(b.record, b.received.into());
    }
    match opcode {
        Opcode::RDMA_READ => assert_eq!(rig.hosts[0].get(SRC, len as usize), theirs),
        Opcode::ATOMIC_CS => assert_eq!(rig.hosts[1].get_u64(DST), 99),
        Opcode::ATOMIC_FA => assert_eq!(rig.hosts[1].get_u64(DST), 10),
        _ => assert_eq!(rig.hosts[1].get(DST, len as usize), mine, "{opcode}"),
    }
    if is_atomic(opcode) {
        assert_eq!(rig.hosts[0].get_u64(SRC), 7, "{opcode}");
    }
}

#[test]
fn every_operation_waits_for_its_pages() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let (mut near, mut far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
    for (opcode, mine, theirs) in operations() {
        (near.told, far.told) = (Vec::new(), Vec::new());
        // More than a page on either side, and less than a packet.
        carry_out(&mut rig, (&mut a, &mut b), (&mut near, &mut far), (opcode, 1000));
        assert_eq!((kinds(&near.told), kinds(&far.told)), (mine, theirs), "{opcode}");
    }
    assert_eq!(rig.hosts[0].hca.stats().timeouts, 0);
}

#[test]
fn long_messages_wait_for_page_after_page() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let (mut near, mut far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
    for opcode in [Opcode::SEND, Opcode::RDMA_WRITE, Opcode::RDMA_READ] {
        far.told = Vec::new();
        carry_out(&mut rig, (&mut a, &mut b), (&mut near, &mut far), (opcode, 20 * 4096));
        // Each packet brings the pages that it needs; the pages of a receive come all at once.
        let expected = if opcode == Opcode::SEND { 1 } else { 21 };
        assert_eq!(far.told.len(), expected, "{opcode}");
    }
}

#[test]
fn an_event_says_what_is_needed() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let (near, far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
    let plain = rig.hosts[0].key;
    // Two NOPs, which need no page: the WQE's index counts WQEBBs.
    rig.post(&mut a, &Wr::new(Opcode::NOP));
    rig.post(&mut a, &Wr::new(Opcode::NOP));
    rig.post(&mut a, &request(Opcode::RDMA_WRITE, 100, near.key, far.key));
    soon(&mut rig);
    let [PageFault::Wqe { kind, queue, index, token, .. }] = near.faults(&mut rig)[..] else {
        panic!("one fault")
    };
    let kind_and_place = (kind, queue, index);
    assert_eq!(kind_and_place, (PageFaultType::REQ_SEND_OR_WRITE, a.qpn.0, 2));
    near.set(&mut rig, 0..BUF_LEN, |page| page);
    rig.hosts[0].hca.resume(token, false).unwrap();
    soon(&mut rig);
    let [fault] = far.faults(&mut rig)[..] else { panic!("one fault") };
    let fault_token = super::page_faults::token(fault);
    let want = PageFault::Rdma {
        write: true,
        token: fault_token,
        rkey: far.key,
        va: IOVA + DST,
        len: 100,
        packet: 100,
    };
    assert_eq!(fault, want);
    far.set(&mut rig, DST..DST + 100, |page| page);
    rig.hosts[1].hca.resume(fault_token, false).unwrap();
    rig.run();
    assert_eq!(rig.sent(&mut a).len(), 3);
    // The second receive of its ring; the part of the message that arrived stays.
    far.set(&mut rig, 0..BUF_LEN, |_| ABSENT);
    let open = rig.hosts[1].key;
    rig.receive(&mut b, &[(DST, 8, open)]);
    rig.receive(&mut b, &[(DST, 1024, open), (DST + PAGE, 3000, far.key)]);
    rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 8, plain));
    rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 3000, plain));
    soon(&mut rig);
    let [PageFault::Wqe { kind, queue, index, packet, token }] = far.faults(&mut rig)[..] else {
        panic!("one fault")
    };
    assert_eq!((kind, queue, index, packet), (PageFaultType::RESP, b.qpn.0, 1, 1024));
    far.set(&mut rig, 0..BUF_LEN, |page| page);
    rig.hosts[1].hca.resume(token, false).unwrap();
    rig.run();
    assert_eq!(rig.got(&mut b).len(), 2);
}

#[test]
fn a_page_that_does_not_come_is_an_error() {
    for (opcode, _, theirs) in operations() {
        for side in [0, 1] {
            let mut rig = Rig::new(2);
            let (mut a, mut b) = rig.pair(&Setup::default());
            let mut pagers = [Pager::new(&mut rig, 0), Pager::new(&mut rig, 1)];
            let [near, far] = pagers.each_mut();
            let other = if side == 0 { &far } else { &near };
            other.set(&mut rig, 0..BUF_LEN, |page| page);
            let len = if is_atomic(opcode) { 8 } else { 3000 };
            rig.receive(&mut b, &[(DST, len, far.key)]);
            rig.post(&mut a, &request(opcode, len, near.key, far.key));
            rig.post(&mut a, &request(opcode, len, near.key, far.key));
            soon(&mut rig);
            pagers[side].answer(&mut rig, true);
            assert_eq!(pagers[side].told.len(), 1, "{opcode}");
            rig.run();
            let sent = rig.sent(&mut a);
            let outcome = sent.iter().map(|got| (got.kind, got.syndrome)).collect::<Vec<_>>();
            // Local protection or remote operation error, and the flushed WQE behind it.
            let first = if side == 0 { 4 } else { 0x14 };
            assert_eq!(outcome, [(13, first), (13, 5)], "{opcode} {side}");
            assert_eq!(rig.state(&a), QpState::Err);
            if side == 0 {
                assert_eq!(sent[0].vendor, NO_PAGE);
                continue;
            }
            assert_eq!(rig.state(&b), QpState::Err);
            let got = rig.got(&mut b);
            let failed = if theirs == [PageFaultType::RESP] { (14, 4) } else { (14, 5) };
            assert_eq!((got[0].kind, got[0].syndrome), failed, "{opcode}");
            assert_eq!(got[0].vendor == NO_PAGE, failed.1 == 4);
        }
    }
}

#[test]
fn without_a_driver_memory_does_not_answer() {
    let mut rig = Rig::new(2);
    let (mut a, mut b) = rig.pair(&Setup::default());
    let (near, far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
    let plain = rig.hosts[0].key;
    rig.hosts[0].hca.tell_page_faults(false);
    rig.hosts[1].hca.tell_page_faults(false);
    rig.receive(&mut b, &[(DST, 64, far.key)]);
    rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 64, plain));
    rig.run();
    assert_eq!((rig.sent(&mut a)[0].syndrome, rig.got(&mut b)[0].syndrome), (0x14, 4));
    let (mut a, _) = rig.pair(&Setup::default());
    rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 64, near.key));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].syndrome, 4);
    let (mut a, _) = rig.pair(&Setup::default());
    rig.post(&mut a, &request(Opcode::RDMA_READ, 64, plain, far.key));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].syndrome, 0x14);
    assert_eq!((near.faults(&mut rig).len(), far.faults(&mut rig).len()), (0, 0));
}

#[test]
fn a_page_to_read_is_none_to_write() {
    let mut rig = Rig::new(2);
    let (mut a, _) = rig.pair(&Setup::default());
    let (mut near, mut far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
    near.set(&mut rig, 0..BUF_LEN, |page| page | READ_ONLY);
    far.set(&mut rig, 0..BUF_LEN, |page| page | READ_ONLY);
    let data = pattern(3000, 8);
    rig.hosts[1].put(DST, &data);
    rig.post(&mut a, &request(Opcode::RDMA_READ, 3000, near.key, far.key));
    run(&mut rig, &mut [&mut near, &mut far]);
    assert_eq!(rig.hosts[0].get(SRC, 3000), data);
    assert_eq!(kinds(&near.told), [PageFaultType::REQ_READ_OR_ATOMIC]);
    assert_eq!(kinds(&far.told), []);
    far.set(&mut rig, 0..BUF_LEN, |page| page | READ_ONLY);
    rig.post(&mut a, &request(Opcode::ATOMIC_FA, 8, near.key, far.key));
    run(&mut rig, &mut [&mut near, &mut far]);
    assert_eq!(kinds(&far.told), [PageFaultType::RDMA_WRITE]);
    assert_eq!(rig.sent(&mut a).len(), 2);
}

/// A key for all memory: its blocks are null at first, and get keys.
#[test]
fn a_null_block_is_a_page_fault() {
    let mut rig = Rig::new(2);
    let (mut a, _) = rig.pair(&Setup::default());
    let (near, far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
    near.set(&mut rig, 0..BUF_LEN, |page| page);
    let mut blocks = Blocks::new(21);
    blocks.put(0, (0..4).map(|_| (Key::NULL, 0)));
    let whole = MkeyContext {
        pd: PD,
        iova: IOVA,
        len: u64::MAX,
        access: Access::all(),
        indirect: Some(Indirect::Blocks(blocks)),
        ..MkeyContext::default()
    };
    let whole = rig.hosts[1].hca.create_mkey(whole).unwrap();
    // The last bytes of the second block, and the first bytes of the third.
    let at = (2u64 << 21) - 100;
    rig.post(&mut a, &Wr::new(Opcode::RDMA_WRITE).seg(SRC, 200, near.key).remote(at, whole));
    let bring = |rig: &mut Rig, block: u64| {
        soon(rig);
        let [fault @ PageFault::Rdma { va, rkey, .. }] = far.faults(rig)[..] else {
            panic!("one fault")
        };
        assert_eq!((va, rkey), (IOVA + at, whole));
        let part = (far.key, IOVA + (block << 21));
        rig.hosts[1].hca.common.keys.set_blocks(whole, (21, block), &[part]).unwrap();
        rig.hosts[1].hca.resume(token(fault), false).unwrap();
    };
    far.set(&mut rig, 0..BUF_LEN, |page| page);
    bring(&mut rig, 1);
    bring(&mut rig, 2);
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].kind, 0);
    assert_eq!(rig.hosts[1].get(at, 200), rig.hosts[0].get(SRC, 200));
    // The null key itself is no valid lkey.
    rig.post(&mut a, &Wr::new(Opcode::SEND).seg(SRC, 8, Key::NULL));
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].syndrome, 4);
}

#[test]
fn queues_that_end_meanwhile() {
    let mut rig = Rig::new(2);
    let (near, far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
    let missing = |token| Err(HcaError::BadHandle { noun: Noun::PageFault, number: token });
    assert_eq!(rig.hosts[0].hca.resume(5, false), missing(5), "never was");
    // Error state: the work is flushed, and the answer has no effect.
    let (mut a, mut b) = rig.pair(&Setup::default());
    rig.receive(&mut b, &[(DST, 64, far.key)]);
    rig.post(&mut a, &request(Opcode::SEND, 64, near.key, far.key));
    soon(&mut rig);
    let fault = near.faults(&mut rig)[0];
    let attrs = rig.hosts[0].hca.query_qp(a.qpn).unwrap().1;
    rig.hosts[0].hca.modify_qp(a.qpn, QpTransition::ToErr, &attrs).unwrap();
    soon(&mut rig);
    assert_eq!(rig.sent(&mut a)[0].syndrome, 5);
    assert_eq!(rig.hosts[0].hca.resume(token(fault), true), Ok(()));
    assert_eq!(rig.hosts[0].hca.resume(token(fault), true), missing(token(fault)), "twice");
    soon(&mut rig);
    assert_eq!(rig.sent(&mut a), []);
    // Reset and used again: the old answer does not end the new page fault.
    let (mut a, mut b) = rig.pair(&Setup::default());
    rig.post(&mut a, &request(Opcode::SEND, 64, near.key, far.key));
    soon(&mut rig);
    let old = near.faults(&mut rig)[0];
    for end in [&a, &b] {
        let hca = &mut rig.hosts[end.host].hca;
        hca.modify_qp(end.qpn, QpTransition::ToRst, &Setup::default().attrs).unwrap();
    }
    a.posted = 0;
    rig.connect(&a, (1, b.qpn.0), &Setup::default().attrs);
    rig.connect(&b, (0, a.qpn.0), &Setup::default().attrs);
    rig.receive(&mut b, &[(DST, 64, rig.hosts[1].key)]);
    rig.post(&mut a, &request(Opcode::SEND, 64, near.key, far.key));
    soon(&mut rig);
    let new = near.faults(&mut rig)[0];
    assert_eq!(rig.hosts[0].hca.resume(token(old), true), Ok(()));
    soon(&mut rig);
    assert_eq!(rig.sent(&mut a), []);
    near.set(&mut rig, 0..BUF_LEN, |page| page);
    rig.hosts[0].hca.resume(token(new), false).unwrap();
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].kind, 0);
    // A destroyed queue pair; then a reset of the device.
    near.set(&mut rig, 0..BUF_LEN, |_| ABSENT);
    rig.post(&mut a, &request(Opcode::SEND, 64, near.key, far.key));
    soon(&mut rig);
    let fault = near.faults(&mut rig)[0];
    rig.hosts[0].hca.destroy_qp(a.qpn).unwrap();
    assert_eq!(rig.hosts[0].hca.resume(token(fault), false), missing(token(fault)));
    assert_eq!((near.open(&rig), far.open(&rig)), (0, 0));
    let (mut a, _) = rig.pair(&Setup::default());
    rig.post(&mut a, &request(Opcode::SEND, 64, near.key, far.key));
    soon(&mut rig);
    assert_eq!(near.open(&rig), 1);
    rig.hosts[0].hca.reset();
    assert_eq!((near.open(&rig), near.faults(&mut rig)), (0, Vec::new()));
}

#[test]
fn a_key_that_is_destroyed_meanwhile_is_an_error() {
    let mut rig = Rig::new(2);
    let (mut a, _) = rig.pair(&Setup::default());
    let (near, far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
    rig.post(&mut a, &request(Opcode::SEND, 64, near.key, far.key));
    soon(&mut rig);
    let fault = near.faults(&mut rig)[0];
    rig.hosts[0].hca.destroy_mkey(near.key).unwrap();
    rig.hosts[0].hca.resume(token(fault), false).unwrap();
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].syndrome, 4);
    let (mut a, b) = rig.pair(&Setup::default());
    rig.post(&mut a, &request(Opcode::RDMA_WRITE, 64, rig.hosts[0].key, far.key));
    soon(&mut rig);
    let fault = far.faults(&mut rig)[0];
    rig.hosts[1].hca.destroy_mkey(far.key).unwrap();
    rig.hosts[1].hca.resume(token(fault), false).unwrap();
    rig.run();
    assert_eq!(rig.sent(&mut a)[0].syndrome, 0x13, "remote access");
    assert_eq!(rig.state(&b), QpState::Err);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Pages come and go at any time, on a wire that loses, duplicates and reorders: every message
    /// arrives once and whole.
    #[test]
    fn pages_come_and_go(
        seed: u64,
        work in prop::collection::vec((0usize..6, 1u32..9000), 1..12),
        gone in prop::collection::vec(prop::bool::weighted(0.2), 64),
        loss in prop::sample::select(vec![0.0, 0.02]),
    ) {
        let faults = Faults { loss, duplicate: loss, ..Faults::default() };
        let mut rig = Rig::with(2, HcaConfig::default(), faults, seed);
        let mut setup = Setup::default();
        setup.attrs.timeout = 6;
        // Each page fault may lose a packet, which takes a retry.
        setup.attrs.min_rnr_timer = 8;
        let (mut a, mut b) = rig.pair(&setup);
        let (mut near, mut far) = (Pager::new(&mut rig, 0), Pager::new(&mut rig, 1));
        let mut gone = gone.into_iter().cycle();
        let mut counter = 0;
        for (n, (which, size)) in work.into_iter().enumerate() {
            let opcode = operations()[which].0;
            let len = if is_atomic(opcode) { 8 } else { size };
            let data = pattern(len as usize, n as u64);
            rig.hosts[0].put(SRC, &data);
            let add = opcode == Opcode::ATOMIC_FA;
            if opcode == Opcode::RDMA_READ {
                rig.hosts[1].put(DST, &data);
            } else if is_atomic(opcode) {
                rig.hosts[1].put_u64(DST, counter);
            }
            let receives = matches!(opcode, Opcode::SEND | Opcode::RDMA_WRITE_IMM);
            if receives {
                rig.receive(&mut b, &[(DST, len, far.key)]);
            }
            rig.post(&mut a, &request(opcode, len, near.key, far.key));
            let mut sent = Vec::new();
            for _ in 0..5000 {
                for pager in [&mut near, &mut far] {
                    pager.answer(&mut rig, false);
                    if gone.next() == Some(true) {
                        pager.set(&mut rig, 0..BUF_LEN, |_| ABSENT);
                    }
                }
                let soon = rig.now + Duration::from_micros(100);
                rig.run_until(soon);
                rig.now = rig.now.max(soon);
                sent = rig.sent(&mut a);
                if !sent.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(sent.iter().map(|got| got.kind).collect::<Vec<_>>(), [0], "{}", opcode);
            prop_assert_eq!(rig.got(&mut b).len(), usize::from(receives), "{}", opcode);
            match opcode {
                Opcode::RDMA_READ => prop_assert_eq!(rig.hosts[0].get(SRC, len as usize), data),
                _ if add => {
                    prop_assert_eq!(rig.hosts[1].get_u64(DST), counter + 3);
                    counter += 3;
                }
                Opcode::ATOMIC_CS => {}
                _ => prop_assert_eq!(rig.hosts[1].get(DST, len as usize), data),
            }
        }
        prop_assert_eq!(rig.state(&b), QpState::Rts);
    }
}
