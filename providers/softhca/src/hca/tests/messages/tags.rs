//! Tag matching: destinations of messages, their completions, and errors.

use std::time::Duration;

use uverbs_mlx5_prm::cqe::MLX5_TMC_SUCCESS;
use uverbs_mlx5_prm::ctrl::{FmCeSe, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::tag::{TmAppOp, TmFlags, TmOpcode, TmhOp, ibv_tmh, mlx5_wqe_tm_seg};
use zerocopy::IntoBytes;

use super::page_faults::Pager;
use crate::hca::state::keys::{Segment, Who};
use crate::hca::testing::*;
use uverbs_front::backend::context::{
    Access, DctContext, Mtu, QpContext, QpState, QpTransition, Service, SrqContext, TagSrq, XrcSrq,
};
use uverbs_front::backend::error::{HcaError, HcaEvent};
use uverbs_front::backend::number::{Key, Pdn};

pub(super) const SRC: u64 = 0x1000;
pub(super) const DST: u64 = 0x30_0000;
/// Offset of the SRQ's receives.
pub(super) const SPARE: u64 = 0x50_0000;
const USER_INDEX: u32 = 0x7a6;
pub(super) const EAGER: u8 = TmhOp::EAGER.0;
pub(super) const HEADER: u32 = 16;

/// CQE kinds.
pub(super) const SEND: u8 = 2;
pub(super) const NO_PACKET: u8 = 6;
const FAILED: u8 = 13;

/// Syndromes of a sender.
pub(super) const REMOTE_INVALID: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;
const REMOTE_OPERATION: u8 = 0x14;

/// A tag-matching SRQ on the last host. One queue pair changes its tags, another takes messages
/// from the first host.
pub(super) struct Scene {
    pub(super) rig: Rig,
    pub(super) srq: TestSrq,
    cq: TestCq,
    commands: End,
    pub(super) sender: End,
    pub(super) receiver: End,
}

/// A CQE: kind, operation, tag index, bytes, tag.
pub(super) type Told = (u8, TmAppOp, u16, u32, u64);

fn tags(cq: &TestCq, log_tags: u8) -> TagSrq {
    let cq = cq.cqn;
    TagSrq { cq, user_index: USER_INDEX, cqe_version: 1, log_tags, rendezvous: true }
}

impl Scene {
    pub(super) fn new() -> Scene {
        Scene::with(|_| {}, |_| {})
    }

    pub(super) fn with(
        change: impl FnOnce(&mut SrqContext),
        setup: impl FnOnce(&mut Setup),
    ) -> Scene {
        Scene::on(Rig::new(2), change, setup)
    }

    pub(super) fn on(
        mut rig: Rig,
        change: impl FnOnce(&mut SrqContext),
        setup: impl FnOnce(&mut Setup),
    ) -> Scene {
        let cq = rig.cq(1, 6, 64);
        let srq = rig.srq_with(1, 4, |context| {
            context.tags = Some(tags(&cq, 3));
            change(context);
        });
        let with_srq = Setup { srq: Some(srq.srqn), ..Setup::default() };
        let commands = rig.end(1, &with_srq);
        rig.connect(&commands, (1, commands.qpn.0), &with_srq.attrs);
        let mut receiving = with_srq.clone();
        setup(&mut receiving);
        let plain = Setup { srq: None, ..receiving.clone() };
        let (sender, receiver) = (rig.end(0, &plain), rig.end(1, &receiving));
        rig.connect(&sender, (1, receiver.qpn.0), &plain.attrs);
        rig.connect(&receiver, (0, sender.qpn.0), &receiving.attrs);
        Scene { rig, srq, cq, commands, sender, receiver }
    }

    /// Posts a change of the tag list.
    fn post(&mut self, tm: mlx5_wqe_tm_seg, buffer: Option<mlx5_wqe_data_seg>) {
        let ds = 3 + u8::from(buffer.is_some());
        let index = self.commands.posted;
        let word0 = OpmodIdxOpcode::ZERO.with_wqe_index(index).with_opcode(Opcode::TAG_MATCHING.0);
        let word1 = QpnDs::ZERO.with_qpn(self.commands.qpn.0).with_ds(ds);
        let ctrl = mlx5_wqe_ctrl_seg::new(word0, word1, FmCeSe::ZERO, 0);
        let mut bytes = [ctrl.as_bytes(), tm.as_bytes()].concat();
        bytes.extend_from_slice(buffer.as_ref().map_or(&[], |buffer| buffer.as_bytes()));
        self.rig.write_wqe(&mut self.commands, &bytes);
        self.rig.ring(&self.commands);
        self.rig.run();
    }

    fn segment(&self, op: u8, index: u16, count: Option<u16>) -> mlx5_wqe_tm_seg {
        let opcode = TmOpcode::ZERO.with_op(op).0;
        let flags = TmFlags::ZERO.with_cqe_req(true).with_sw_cnt(count.is_some()).0;
        let mut tm = mlx5_wqe_tm_seg { opcode, flags, ..mlx5_wqe_tm_seg::default() };
        tm.index.set(index);
        tm.sw_cnt.set(count.unwrap_or(0));
        tm
    }

    /// Adds a tag whose buffer of `len` bytes is at `DST` + 0x1000 * the tag.
    pub(super) fn append(&mut self, next: u16, tag: u64, len: u32) {
        self.append_by(self.rig.hosts[1].key, next, tag, len);
    }

    pub(super) fn append_by(&mut self, key: Key, next: u16, tag: u64, len: u32) {
        let mut tm = self.segment(TmOpcode::APPEND, next, None);
        tm.append_tag.set(tag);
        tm.append_mask.set(u64::MAX);
        let buffer = match len {
            0 => mlx5_wqe_data_seg::TERMINATOR,
            _ => mlx5_wqe_data_seg::new(len, key.0, IOVA + DST + tag * 0x1000),
        };
        self.post(tm, Some(buffer));
    }

    fn remove(&mut self, place: u16) {
        self.post(self.segment(TmOpcode::REMOVE, place, None), None);
    }

    fn sync(&mut self, count: u16) {
        self.post(self.segment(TmOpcode::NOP, 0, Some(count)), None);
    }

    /// Posts a receive for unexpected messages. Returns its slot.
    pub(super) fn receive(&mut self, at: u64, len: u32) -> u16 {
        let key = self.rig.hosts[1].key;
        self.rig.receive_shared(&mut self.srq, &[(SPARE + at, len, key)])
    }

    /// Sends a message that begins with a tag header.
    pub(super) fn send(&mut self, op: u8, tag: u64, body: &[u8]) {
        self.post_message(op, tag, body);
        self.rig.run();
    }

    pub(super) fn post_message(&mut self, op: u8, tag: u64, body: &[u8]) {
        let mut header = ibv_tmh { opcode: op, ..ibv_tmh::default() };
        header.app_ctx.set(0x1234_5678);
        header.tag.set(tag);
        let message = [header.as_bytes(), body].concat();
        self.post_bytes(&message);
    }

    fn send_bytes(&mut self, message: &[u8]) {
        self.post_bytes(message);
        self.rig.run();
    }

    fn post_bytes(&mut self, message: &[u8]) {
        let key = self.rig.hosts[0].key;
        self.rig.hosts[0].put(SRC, message);
        let wr = Wr::new(Opcode::SEND);
        let wr = if message.is_empty() { wr } else { wr.seg(SRC, message.len() as u32, key) };
        self.rig.post(&mut self.sender, &wr);
    }

    /// The CQEs of the SRQ's completion queue.
    fn entries(&mut self) -> Vec<uverbs_mlx5_prm::cqe::mlx5_cqe64> {
        std::iter::from_fn(|| self.rig.entry(1, &mut self.cq)).collect()
    }

    pub(super) fn told(&mut self) -> Vec<Told> {
        let entries = self.entries();
        let told = entries.iter().map(|cqe| {
            assert_eq!((cqe.srqn_uidx.get(), cqe.app), (USER_INDEX, 1));
            let tag = cqe.tmh().tag.get();
            (cqe.op_own >> 4, TmAppOp(cqe.app_op), cqe.app_info.get(), cqe.byte_cnt.get(), tag)
        });
        told.collect()
    }

    /// Adds tags, and takes their completions.
    pub(super) fn append_all(&mut self, tags: &[(u16, u64, u32)]) {
        for &(next, tag, len) in tags {
            self.append(next, tag, len);
        }
        assert_eq!(self.told().len(), tags.len());
    }

    pub(super) fn states(&self) -> (QpState, QpState) {
        (self.rig.state(&self.sender), self.rig.state(&self.receiver))
    }
}

#[test]
fn eager_messages_go_where_their_tags_say() {
    let mut scene = Scene::new();
    scene.append(1, 7, 0x1000);
    scene.append(2, 8, 0x1000);
    scene.append(3, 9, 0);
    let added = scene.entries();
    for (place, cqe) in added.iter().enumerate() {
        assert_eq!((cqe.op_own >> 4, TmAppOp(cqe.app_op)), (NO_PACKET, TmAppOp::APPEND));
        assert_eq!((cqe.app_info.get(), cqe.srqn_uidx.get()), (place as u16, USER_INDEX));
        assert_eq!(cqe.tm_cqe().success.get(), MLX5_TMC_SUCCESS);
        assert_eq!(cqe.tm_cqe().hw_phase_cnt.get(), 0);
    }
    assert_eq!(added.len(), 3);
    // One packet: matched and received at once.
    let body = pattern(900, 1);
    scene.send(EAGER, 8, &body);
    assert_eq!(scene.told(), [(SEND, TmAppOp::CONSUMED_MSG, 1, 900, 8)]);
    assert_eq!(scene.rig.hosts[1].get(DST + 0x8000, 900), body, "without the header");
    scene.send(EAGER, 9, &[]);
    assert_eq!(scene.told(), [(SEND, TmAppOp::CONSUMED_MSG, 2, 0, 9)]);
    // Several packets: matched first, then received.
    let body = pattern(4000, 2);
    scene.send(EAGER, 7, &body);
    let expected = [(NO_PACKET, TmAppOp::CONSUMED, 0, 0, 7), (SEND, TmAppOp::EXPECTED, 0, 4000, 0)];
    assert_eq!(scene.told(), expected);
    assert_eq!(scene.rig.hosts[1].get(DST + 0x7000, 4000), body);
    let sent = scene.rig.sent(&mut scene.sender);
    assert!(sent.len() == 3 && sent.iter().all(|got| got.syndrome == 0), "{sent:?}");
}

#[test]
fn others_go_whole_to_receives_of_the_queue() {
    let mut scene = Scene::new();
    scene.append_all(&[(1, 1, 64)]);
    let slots: Vec<_> = (0..5).map(|n| scene.receive(n * 0x2000, 0x2000)).collect();
    scene.send(EAGER, 2, &pattern(3000, 1));
    scene.send(TmhOp::NO_TAG.0, 1, b"none");
    scene.send(TmhOp::FIN.0, 1, b"fin");
    scene.send_bytes(b"short");
    scene.send(0x77, 1, b"unknown");
    let entries = scene.entries();
    let unexpected = TmAppOp::UNEXPECTED;
    for (n, (app_op, len)) in [
        (unexpected, 3016),
        (TmAppOp::NO_TAG, 20),
        (TmAppOp::NO_TAG, 19),
        (TmAppOp::NO_TAG, 5),
        (TmAppOp::NO_TAG, 23),
    ]
    .into_iter()
    .enumerate()
    {
        let cqe = &entries[n];
        assert_eq!((cqe.op_own >> 4, TmAppOp(cqe.app_op), cqe.byte_cnt.get()), (SEND, app_op, len));
        assert_eq!((cqe.wqe_counter.get(), cqe.srqn_uidx.get()), (slots[n], USER_INDEX));
        assert_eq!(cqe.tmh().tag.get(), 0);
    }
    let whole = scene.rig.hosts[1].get(SPARE, 3016);
    assert_eq!((whole[0], &whole[16..]), (EAGER, &pattern(3000, 1)[..]));
    assert_eq!(scene.rig.hosts[1].get(SPARE + 3 * 0x2000, 5), b"short");
    // No receive is left: the sender waits until one is posted.
    scene.rig.post(&mut scene.sender, &Wr::new(Opcode::NOP));
    assert_eq!(scene.rig.sent(&mut scene.sender).len(), 5);
}

/// An unexpected message may match a tag that software adds before it knows of the message.
#[test]
fn tags_wait_until_software_has_counted_the_unexpected() {
    let mut scene = Scene::new();
    scene.receive(0, 64);
    scene.send(EAGER, 5, b"first");
    scene.append(1, 5, 64);
    let entries = scene.entries();
    assert_eq!(entries[1].tm_cqe().hw_phase_cnt.get(), 1, "it tells that it is ahead");
    scene.receive(64, 64);
    scene.send(EAGER, 5, b"second");
    assert_eq!(scene.told()[0].1, TmAppOp::UNEXPECTED);
    scene.sync(1);
    scene.receive(128, 64);
    scene.send(EAGER, 5, b"third");
    let told = scene.told();
    assert_eq!((told[0].1, told[1].1), (TmAppOp::NOOP, TmAppOp::UNEXPECTED), "one is missing");
    scene.sync(3);
    scene.send(EAGER, 5, b"fourth");
    let told = scene.told();
    assert_eq!((told[0].1, told[1].1), (TmAppOp::NOOP, TmAppOp::CONSUMED_MSG));
    assert_eq!(scene.rig.hosts[1].get(DST + 0x5000, 6), b"fourth");
    // A change without a count leaves software's count.
    scene.append_all(&[(2, 6, 64)]);
    scene.send(EAGER, 6, b"fifth");
    assert_eq!(scene.told()[0].1, TmAppOp::CONSUMED_MSG);
}

#[test]
fn a_message_that_is_too_long_fails_its_connection() {
    // One packet fails before the tag is consumed; several packets fail after that.
    for (len, expected) in [
        (65, vec![]),
        (
            3000,
            vec![
                (NO_PACKET, TmAppOp::CONSUMED, 0, 0, 3),
                (SEND, TmAppOp::MSG_COMPLETION_CANCELED, 0, 0, 0),
            ],
        ),
    ] {
        let mut scene = Scene::new();
        let room = if len == 65 { 64 } else { 2000 };
        scene.append_all(&[(1, 3, room)]);
        scene.send(EAGER, 3, &pattern(len, 1));
        assert_eq!(scene.told(), expected, "{len}");
        assert_eq!(scene.states(), (QpState::Err, QpState::Err));
        assert_eq!(scene.rig.sent(&mut scene.sender)[0].syndrome, REMOTE_INVALID);
        let events = scene.rig.hosts[1].events();
        assert!(events.contains(&HcaEvent::QpRequestError { qpn: scene.receiver.qpn }));
        // Other queue pairs go on.
        scene.sync(0);
        assert_eq!(scene.told()[0].1, TmAppOp::NOOP);
    }
}

/// A connection that ends in the middle of a message completes its tag as canceled.
#[test]
fn a_message_under_way_is_canceled_with_its_connection() {
    const LEN: u32 = 0x4_0000;
    let mut scene = Scene::new();
    scene.append_all(&[(1, 3, LEN)]);
    let mut header = ibv_tmh { opcode: EAGER, ..ibv_tmh::default() };
    header.tag.set(3);
    scene.rig.hosts[0].put(SRC, header.as_bytes());
    let wr = Wr::new(Opcode::SEND).seg(SRC, LEN, scene.rig.hosts[0].key);
    scene.rig.post(&mut scene.sender, &wr);
    // More than a window of packets.
    let now = scene.rig.now;
    scene.rig.hosts[0].hca.step(now);
    scene.rig.hosts[1].hca.step(now);
    assert_eq!(scene.told(), [(NO_PACKET, TmAppOp::CONSUMED, 0, 0, 3)]);
    let hca = &mut scene.rig.hosts[1].hca;
    let attrs = hca.query_qp(scene.receiver.qpn).unwrap().1;
    hca.modify_qp(scene.receiver.qpn, QpTransition::ToErr, &attrs).unwrap();
    scene.rig.hosts[1].hca.step(now);
    assert_eq!(scene.told(), [(SEND, TmAppOp::MSG_COMPLETION_CANCELED, 0, 0, 0)]);
}

#[test]
fn changes_that_are_refused() {
    let full = |scene: &mut Scene| {
        let places: Vec<_> = (1..=7).map(|next| (next, u64::from(next), 64)).collect();
        scene.append_all(&places);
        scene.append(0, 9, 64);
    };
    let no_place = |scene: &mut Scene| scene.append(8, 1, 64);
    let unknown = |scene: &mut Scene| scene.post(scene.segment(9, 0, None), None);
    let no_buffer = |scene: &mut Scene| scene.post(scene.segment(TmOpcode::APPEND, 1, None), None);
    let more: fn(&mut Scene) = |scene| {
        let tm = scene.segment(TmOpcode::REMOVE, 0, None);
        scene.post(tm, Some(mlx5_wqe_data_seg::TERMINATOR));
    };
    for (n, wrong) in
        [full as fn(&mut Scene), no_place, unknown, no_buffer, more].iter().enumerate()
    {
        let mut scene = Scene::new();
        wrong(&mut scene);
        let failed = scene.rig.sent(&mut scene.commands);
        assert_eq!((failed.len(), failed[0].kind, failed[0].syndrome), (1, FAILED, 2), "{n}");
        assert_eq!(scene.rig.state(&scene.commands), QpState::Err);
        // The list is unchanged, and the connection works.
        scene.receive(0, 64);
        scene.send(EAGER, 99, &[1]);
        assert_eq!(scene.told()[0].1, TmAppOp::UNEXPECTED, "{n}");
    }
}

#[test]
fn a_tag_is_removed_once() {
    let mut scene = Scene::new();
    scene.append_all(&[(1, 1, 64), (2, 2, 64)]);
    scene.remove(0);
    scene.remove(0);
    scene.send(EAGER, 2, &[1]);
    scene.remove(1);
    let entries = scene.entries();
    let removed = |n: usize| {
        let cqe = &entries[n];
        assert_eq!((cqe.op_own >> 4, TmAppOp(cqe.app_op)), (NO_PACKET, TmAppOp::REMOVE));
        cqe.tm_cqe().success.get() == MLX5_TMC_SUCCESS
    };
    assert_eq!([removed(0), removed(1), removed(3)], [true, false, false], "twice; too late");
    assert_eq!(scene.rig.state(&scene.commands), QpState::Rts);
    scene.receive(0, 64);
    scene.send(EAGER, 1, &[1]);
    assert_eq!(scene.told()[0].1, TmAppOp::UNEXPECTED);
}

#[test]
fn queues_that_are_refused() {
    let mut scene = Scene::new();
    let (cqn, srqn) = (scene.cq.cqn, scene.srq.srqn);
    let hca = &mut scene.rig.hosts[1].hca;
    let bad = HcaError::BadParam { what: "srq", value: srqn.0.into() };
    for service in [Service::Uc, Service::Ud] {
        let context = QpContext { srq: Some(srqn), ..QpContext::bare(service, PD, cqn) };
        assert_eq!(hca.create_qp(context), Err(bad));
    }
    let target = DctContext {
        pd: PD,
        cq: cqn,
        srq: srqn,
        key: 0,
        user_index: 0,
        cqe_version: 1,
        access: Access::empty(),
        pkey_index: 0,
        path_mtu: Mtu::B1024,
        min_rnr_timer: 1,
        counter_set: 0,
        ece: 0,
    };
    assert_eq!(hca.create_dct(target), Err(bad));
    let mut both = hca.common.srqs.get(srqn).unwrap().ctx.clone();
    both.xrc = Some(XrcSrq { xrcd: 0, cq: cqn, user_index: 0, cqe_version: 1 });
    assert_eq!(hca.create_srq(both), Err(HcaError::BadParam { what: "srq.xrc", value: 1 }));
    let busy = hca.destroy_srq(srqn).unwrap_err();
    assert!(matches!(busy, HcaError::Busy { users: 2, .. }), "{busy:?}");
    // A tag work request on a queue pair without tag matching.
    let plain = Setup::default();
    let (mut a, _b) = scene.rig.pair(&plain);
    std::mem::swap(&mut scene.commands, &mut a);
    scene.commands.host = 0;
    scene.sync(0);
    let failed = scene.rig.sent(&mut scene.commands);
    assert_eq!((failed[0].kind, failed[0].syndrome), (FAILED, 2));
}

/// A missing page fails the message, even if a driver could bring it.
#[test]
fn nothing_of_such_a_queue_waits_for_a_page() {
    let mut scene = Scene::new();
    let pager = Pager::new(&mut scene.rig, 1);
    scene.rig.receive_shared(&mut scene.srq, &[(SPARE, 64, pager.key)]);
    scene.send(TmhOp::NO_TAG.0, 1, b"none");
    assert_eq!(pager.faults(&mut scene.rig), []);
    let kinds: Vec<_> = scene.entries().iter().map(|cqe| cqe.op_own >> 4).collect();
    assert_eq!((kinds, scene.states()), (vec![0xe], (QpState::Err, QpState::Err)));
    // The tag of a matched message is canceled.
    let mut scene = Scene::new();
    let pager = Pager::new(&mut scene.rig, 1);
    scene.append_by(pager.key, 1, 3, 64);
    assert_eq!(scene.told().len(), 1);
    scene.send(EAGER, 3, b"eager");
    let expected = (SEND, TmAppOp::MSG_COMPLETION_CANCELED, 0, 0, 0);
    assert_eq!((scene.told(), pager.faults(&mut scene.rig)), (vec![expected], vec![]));
    assert_eq!(scene.rig.sent(&mut scene.sender)[0].syndrome, REMOTE_OPERATION);
    assert_eq!(scene.rig.state(&scene.receiver), QpState::Err);
}

#[test]
fn a_buffer_may_be_as_long_as_its_message() {
    let mut scene = Scene::new();
    scene.append_all(&[(1, 3, 64), (2, 4, 2000)]);
    scene.send(EAGER, 3, &pattern(64, 1));
    assert_eq!(scene.told(), [(SEND, TmAppOp::CONSUMED_MSG, 0, 64, 3)]);
    scene.send(EAGER, 4, &pattern(2000, 2));
    assert_eq!(scene.told()[1], (SEND, TmAppOp::EXPECTED, 1, 2000, 0));
}

#[test]
fn a_tag_with_a_wrong_key_stays_in_the_list() {
    let mut scene = Scene::new();
    scene.append_by(Key(0xbad00), 1, 3, 64);
    assert_eq!(scene.told().len(), 1);
    scene.send(EAGER, 3, b"nowhere");
    assert_eq!((scene.told(), scene.states()), (vec![], (QpState::Err, QpState::Err)));
    assert_eq!(scene.rig.sent(&mut scene.sender)[0].syndrome, REMOTE_OPERATION);
    scene.remove(0);
    assert_eq!(scene.entries()[0].tm_cqe().success.get(), MLX5_TMC_SUCCESS);
}

/// A message repeated after an RNR NAK is counted once.
#[test]
fn a_message_that_waits_for_a_receive_is_unexpected_once() {
    let mut scene = Scene::new();
    let key = scene.rig.hosts[0].key;
    let header = ibv_tmh { opcode: EAGER, ..ibv_tmh::default() };
    scene.rig.hosts[0].put(SRC, header.as_bytes());
    scene.rig.post(&mut scene.sender, &Wr::new(Opcode::SEND).seg(SRC, HEADER, key));
    scene.rig.run_until(scene.rig.now + Duration::from_millis(1));
    assert!(scene.rig.hosts[0].hca.stats().retransmits > 1);
    scene.receive(0, 64);
    scene.rig.run();
    assert_eq!(scene.told(), [(SEND, TmAppOp::UNEXPECTED, 0, HEADER, 0)]);
    assert_eq!(scene.rig.hosts[1].hca.query_tags(scene.srq.srqn).unwrap(), (0, 0, 1));
}

#[test]
fn a_message_with_a_tag_invalidates_a_key_and_is_solicited() {
    let mut scene = Scene::new();
    scene.append_all(&[(1, 3, 64), (2, 4, 64)]);
    let (key, window) = (scene.rig.hosts[0].key, scene.rig.hosts[1].key(PD, 4096, Access::all()));
    let flags = FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE).with_se(true);
    for (tag, named) in [(3, window), (4, 0xbad00)] {
        let mut header = ibv_tmh { opcode: EAGER, ..ibv_tmh::default() };
        header.tag.set(tag);
        scene.rig.hosts[0].put(SRC, header.as_bytes());
        let wr = Wr::new(Opcode::SEND_INVAL).imm(named).flags(flags).seg(SRC, HEADER + 8, key);
        scene.rig.post(&mut scene.sender, &wr);
        scene.rig.run();
        if tag == 4 {
            let canceled = (SEND, TmAppOp::MSG_COMPLETION_CANCELED, 1, 0, 0);
            assert_eq!(scene.told(), [canceled]);
            assert_eq!(scene.rig.sent(&mut scene.sender)[1].syndrome, REMOTE_ACCESS);
            return;
        }
        let cqe = scene.entries()[0];
        assert_eq!((cqe.op_own >> 4, cqe.imm_inval_pkey.get()), (4, window));
        assert_eq!((TmAppOp(cqe.app_op), cqe.op_own & 2), (TmAppOp::CONSUMED_MSG, 2), "solicited");
        let keys = &scene.rig.hosts[1].hca.common.keys;
        let segment = Segment { addr: IOVA, len: 1, key: Key(window) };
        let who = Who { pd: PD, qpn: scene.receiver.qpn };
        assert!(keys.check(who, segment, Access::REMOTE_WRITE).is_err(), "it is of no use");
    }
}

/// Domain, completion queue and number are the SRQ's, not the queue pair's.
#[test]
fn what_comes_is_of_the_queue() {
    const OTHER: Pdn = Pdn(9);
    let old = |context: &mut SrqContext| {
        context.pd = OTHER;
        context.tags = context.tags.map(|tags| TagSrq { cqe_version: 0, ..tags });
    };
    let mut scene = Scene::with(old, |setup| setup.scatter = 32);
    let key = Key(scene.rig.hosts[1].key(OTHER, BUF_LEN, Access::all()));
    scene.append_by(key, 1, 3, 64);
    scene.rig.receive_shared(&mut scene.srq, &[(SPARE, 64, key)]);
    scene.send(EAGER, 3, b"found");
    scene.send_bytes(b"short");
    let entries = scene.entries();
    let told: Vec<_> = entries.iter().map(|cqe| (cqe.app_op, cqe.srqn_uidx.get())).collect();
    let srqn = scene.srq.srqn.0;
    let ops = [TmAppOp::APPEND, TmAppOp::CONSUMED_MSG, TmAppOp::NO_TAG];
    assert_eq!(told, ops.map(|op| (op.0, srqn)));
    // The CQEs hold no payload, since the tag header is there.
    assert_eq!(scene.rig.hosts[1].get(DST + 0x3000, 5), b"found");
    assert_eq!(scene.rig.hosts[1].get(SPARE, 5), b"short");
}
