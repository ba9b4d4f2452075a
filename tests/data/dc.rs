//! Dynamic connections: initiators, targets, their messages, and refused posts.
#![allow(unsafe_code, reason = "raw posts are part of what is tested")]

use common::{LIMIT, device, done, filled, impatient, is_plain, local, pattern};
use uverbs::dc::{DcEndpoint, DcTarget, DciChange, DciInitAttr};
use uverbs::raw::{Data, SendOp};
use uverbs::transport::Dci;
use uverbs::{
    AccessFlags, Any, Completed, CompletionQueue, Context, Device, Errno, Error, Frame, Local,
    PostError, ProtectionDomain, QpState, QueuePair, Remote, SharedReceiveQueue, Status,
    WorkCompletion,
};

/// A target with all that is its own.
struct Target {
    target: DcTarget,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    at: DcEndpoint,
}

/// An initiator with all that is its own.
struct Initiator {
    qp: QueuePair<Any, Dci>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
}

impl Target {
    fn new(device: &Device, key: u64, local: &Local) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(256).expect("create_cq");
        let srq = context.shared_receive_queue(&pd).build().expect("create_srq");
        let mut target = context.dc_target(&pd, &cq, &srq, key).expect("a target");
        let at = target.bring_up(local).expect("bring_up");
        Self { target, srq, cq, pd, at }
    }

    fn expect(&mut self, id: u64, len: usize) {
        let slab = self.pd.slab(len.max(1), 1).expect("slab");
        self.srq.post(id, slab.take().expect("a frame")).expect("post");
    }

    fn done(&mut self) -> WorkCompletion {
        done(&mut self.cq)
    }
}

impl Initiator {
    fn new(device: &Device, local: &Local) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(256).expect("create_cq");
        let qp = context.queue_pair(&pd, &cq).dci().max_inline_data(100).max_send_wr(32);
        let mut qp = qp.build().expect("create_qp");
        qp.bring_up(local).expect("bring_up");
        Self { qp, cq, pd, context }
    }

    fn filled(&self, len: usize, seed: u8) -> Frame {
        filled(&self.pd, len, seed)
    }

    fn done(&mut self) -> WorkCompletion {
        done(&mut self.cq)
    }
}

/// The device under test, if it has dynamic connections. On soft-RoCE, checks that it refuses them.
fn dc_device() -> Option<Device> {
    let device = device();
    if !is_plain() {
        return Some(device);
    }
    let context = device.open().expect("open");
    let pd = context.alloc_pd().expect("alloc_pd");
    let cq = context.create_cq(256).expect("create_cq");
    let refused = context.queue_pair(&pd, &cq).dci().build().expect_err("rxe has no DC");
    assert!(matches!(refused, Error::Unsupported { verb: "create_qp", .. }), "{refused}");
    common::skip("dynamic connections are mlx5's");
    None
}

#[test]
fn each_operation_arrives_at_every_size() {
    let Some(device) = dc_device() else { return };
    let mut target = Target::new(&device, 0x1122_3344_5566_7788, &local());
    let mut one = Initiator::new(&device, &local());
    assert_eq!(one.qp.state(), QpState::ReadyToSend);
    assert_eq!(target.target.state(), QpState::ReadyToReceive);
    let to = one.qp.destination(&target.at).expect("an address");
    let all = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let memory = target.pd.expose((1 << 17) + 64, all).unwrap();
    for (round, size) in [0, 1, 63, 4095, 4096, 4097, 65_537].into_iter().enumerate() {
        let seed = round as u8;
        for imm in [None, Some(7)] {
            target.expect(7, size);
            let frame = one.filled(size, seed);
            let mut batch = one.qp.batch();
            match imm {
                None => batch.send_to(1, frame, &to).unwrap(),
                Some(imm) => batch.send_imm_to(1, frame, imm, &to).unwrap(),
            }
            batch.ring();
            let received = target.done();
            assert_eq!((received.id, received.result), (7, Ok(Completed::Recv)));
            assert_eq!((received.byte_len as usize, received.immediate), (size, imm));
            assert!(*received.frame.unwrap() == pattern(size, seed)[..], "{size} bytes differ");
            assert_eq!(one.done().result, Ok(Completed::Send));
        }
        target.expect(8, 1);
        let (first, second) = (one.filled(size, seed + 50), one.filled(size, seed + 60));
        let mut batch = one.qp.batch();
        batch.write_to(2, first, memory.remote(32), &to).unwrap();
        let place = (memory.remote(32), 5);
        batch.write_imm_to(3, second, place, &to).unwrap();
        batch.ring();
        let told = target.done();
        assert_eq!((told.id, told.result), (8, Ok(Completed::RecvWriteImm)));
        assert_eq!((told.byte_len as usize, told.immediate), (size, Some(5)));
        let mut there = vec![0; size];
        memory.read(32, &mut there).unwrap();
        assert!(there == pattern(size, seed + 60), "{size} bytes differ");
        assert_eq!([one.done().id, one.done().id], [2, 3]);
        let mut batch = one.qp.batch();
        let mut into = one.pd.slab(size.max(1), 1).unwrap().take().unwrap();
        into.set_len(size);
        batch.read_from(4, into, memory.remote(32), &to).unwrap();
        batch.ring();
        let read = one.done();
        assert_eq!(read.result, Ok(Completed::Read));
        assert!(*read.frame.unwrap() == pattern(size, seed + 60)[..], "{size} bytes differ");
    }
    memory.write(0, &40_u64.to_ne_bytes()).unwrap();
    let old =
        |done: WorkCompletion| u64::from_ne_bytes(done.frame.unwrap()[..8].try_into().unwrap());
    let (first, second) = (one.filled(8, 0), one.filled(8, 0));
    let mut batch = one.qp.batch();
    batch.fetch_add_at(1, first, memory.remote(0), 2, &to).unwrap();
    batch.compare_swap_at(2, second, memory.remote(0), (42, 7), &to).unwrap();
    batch.ring();
    assert_eq!([old(one.done()), old(one.done())], [40, 42]);
    let mut word = [0; 8];
    memory.read(0, &mut word).unwrap();
    assert_eq!(u64::from_ne_bytes(word), 7);
}

#[test]
fn inline_posts_pass_the_end_of_the_ring_at_every_length() {
    let Some(device) = dc_device() else { return };
    let mut target = Target::new(&device, 5, &local());
    let mut one = Initiator::new(&device, &local());
    let to = one.qp.destination(&target.at).expect("an address");
    let memory = target.pd.expose(256, AccessFlags::REMOTE_WRITE).unwrap();
    let limit = one.qp.cap().max_inline_data as usize;
    assert!(limit >= 100);
    for round in 0..3 * one.qp.cap().max_send_wr as usize {
        let size = round % (limit + 1);
        target.expect(5, limit);
        let mut batch = one.qp.batch();
        batch.write_inline_to(1, &pattern(size, 8), memory.remote(3), &to).unwrap();
        batch.send_inline_to(2, &pattern(size, 9), &to).unwrap();
        batch.ring();
        assert!(target.done().frame.unwrap()[..] == pattern(size, 9)[..], "round {round}");
        let mut there = vec![0; size];
        memory.read(3, &mut there).unwrap();
        assert!(there == pattern(size, 8), "round {round}");
        assert_eq!([one.done().id, one.done().id], [1, 2]);
    }
    let mut batch = one.qp.batch();
    let longer = batch.send_inline_to(1, &vec![0; limit + 1], &to);
    assert_eq!(longer, Err(PostError::InlineTooLong), "and no more");
}

#[test]
fn one_reaches_many_and_many_reach_one() {
    let Some(device) = dc_device() else { return };
    let mut one = Initiator::new(&device, &local());
    let mut targets: Vec<_> =
        (0..4).map(|key| Target::new(&device, 1000 + key, &local())).collect();
    let to: Vec<_> = targets.iter().map(|target| one.qp.destination(&target.at).unwrap()).collect();
    let mut batch = one.qp.batch();
    for round in 0..3 {
        for (number, to) in to.iter().enumerate() {
            targets[number].expect(round, 8);
            batch.send_inline_to(round, &[number as u8; 8], to).unwrap();
        }
    }
    batch.ring();
    for _ in 0..12 {
        one.done();
    }
    for (number, target) in targets.iter_mut().enumerate() {
        for round in 0..3 {
            let received = target.done();
            assert_eq!(
                (received.id, &received.frame.unwrap()[..]),
                (round, &[number as u8; 8][..])
            );
        }
    }
    let hub = &mut targets[0];
    let mut spokes: Vec<_> = (0..4).map(|_| Initiator::new(&device, &local())).collect();
    for (number, spoke) in spokes.iter_mut().enumerate() {
        hub.expect(9, 8);
        let to = spoke.qp.destination(&hub.at).unwrap();
        let mut batch = spoke.qp.batch();
        batch.send_inline_to(1, &[number as u8; 8], &to).unwrap();
        batch.ring();
    }
    let mut seen: Vec<_> = (0..4).map(|_| hub.done().frame.unwrap()[0]).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
    for spoke in &mut spokes {
        spoke.done();
    }
}

/// Sends eight bytes and returns the completion's result.
fn sent(one: &mut Initiator, at: &DcEndpoint) -> Result<Completed, Status> {
    let to = one.qp.destination(at).expect("an address");
    let frame = one.filled(8, 1);
    let mut batch = one.qp.batch();
    batch.send_to(1, frame, &to).expect("post");
    batch.ring();
    let done = one.cq.wait(LIMIT).expect("a completion");
    assert!(done.frame.is_some(), "the frame comes back");
    done.result.map_err(|failure| failure.status)
}

#[test]
fn a_wrong_key_and_a_target_that_is_gone_are_met_with_silence() {
    let Some(device) = dc_device() else { return };
    let mut target = Target::new(&device, 77, &impatient());
    target.expect(1, 8);
    let mut one = Initiator::new(&device, &impatient());
    let wrong = DcEndpoint { key: 78, ..target.at };
    assert_eq!(sent(&mut one, &wrong), Err(Status::RetryExceeded));
    assert_eq!(one.qp.query().unwrap().state, QpState::Error);
    let mut other = Initiator::new(&device, &impatient());
    assert_eq!(sent(&mut other, &target.at), Ok(Completed::Send));
    assert_eq!(target.done().id, 1, "the receive was still there");
    let Target { target, mut srq, cq, pd, at } = target;
    let frame = pd.slab(8, 1).unwrap().take().unwrap();
    srq.post(2, frame).unwrap();
    let refused = srq.destroy().expect_err("a target uses it");
    assert_eq!(refused.error.errno(), Some(Errno::EBUSY));
    let srq = refused.into_object();
    target.destroy().expect("destroy");
    assert_eq!(sent(&mut other, &at), Err(Status::RetryExceeded));
    let left = srq.destroy().expect("nobody uses it");
    assert_eq!(left.len(), 1, "the receive that nobody took");
    drop(cq);
}

#[test]
fn rights_are_the_targets() {
    let Some(device) = dc_device() else { return };
    let reads = Local { access: AccessFlags::REMOTE_READ, ..impatient() };
    let target = Target::new(&device, 9, &reads);
    let mut one = Initiator::new(&device, &impatient());
    let to = one.qp.destination(&target.at).expect("an address");
    let all = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let memory = target.pd.expose(64, all).unwrap();
    memory.write(0, b"to be read").unwrap();
    let mut batch = one.qp.batch();
    batch.read_from(1, one.pd.slab(10, 1).unwrap().take().unwrap(), memory.remote(0), &to).unwrap();
    batch.write_inline_to(2, b"overwritten", memory.remote(0), &to).unwrap();
    batch.ring();
    assert_eq!(&one.done().frame.unwrap()[..], b"to be read");
    let written = one.cq.wait(LIMIT).unwrap();
    let status = written.result.expect_err("no right").status;
    assert_eq!(status, Status::RemoteInvalidRequest, "the operation, not the key");
    let mut there = [0; 10];
    memory.read(0, &mut there).unwrap();
    assert_eq!(&there, b"to be read");
}

#[test]
fn what_an_initiator_or_a_target_lacks_is_refused_by_name() {
    let Some(device) = dc_device() else { return };
    let mut one = Initiator::new(&device, &local());
    let target = Target::new(&device, 3, &local());
    let receives = one.context.queue_pair(&one.pd, &one.cq).dci().max_recv_wr(1).build();
    let receives = receives.expect_err("an initiator receives nothing");
    assert!(matches!(receives, Error::Limit { verb: "create_qp", limit: 0, .. }), "{receives}");
    let slab = one.pd.slab(8, 1).unwrap();
    assert!(one.qp.post_recv(1, slab.take().unwrap()).is_err(), "nor has it a queue for that");
    // Objects of another open device, and an address handle of another domain.
    let foreign = one.context.dc_target(&target.pd, &one.cq, &target.srq, 1).unwrap_err();
    assert!(matches!(foreign, Error::Invalid { verb: "create_qp", .. }), "{foreign}");
    let srq = one.context.shared_receive_queue(&one.pd).build().unwrap();
    let foreign = one.context.dc_target(&one.pd, &target.cq, &srq, 1).unwrap_err();
    assert!(matches!(foreign, Error::Invalid { verb: "create_qp", .. }), "{foreign}");
    let other = Initiator::new(&device, &local());
    let theirs = other.qp.destination(&target.at).unwrap();
    let own = one.qp.destination(&target.at).unwrap();
    let frame = one.filled(8, 1);
    let mut batch = one.qp.batch();
    let rejected = batch.send_to(1, frame, &theirs).unwrap_err();
    assert_eq!(rejected.error, PostError::ForeignAddress);
    let rejected = batch.send_to(1, other.filled(8, 1), &own).unwrap_err();
    assert_eq!(rejected.error, PostError::ForeignBuffer);
    let short = one.pd.slab(7, 1).unwrap().take().unwrap();
    let rejected = batch.fetch_add_at(1, short, Remote { addr: 0, rkey: 0 }, 1, &own).unwrap_err();
    assert_eq!(rejected.error, PostError::BadData);
    // SAFETY: the data is copied, and nothing is posted.
    let refused = unsafe { batch.raw().post_to(1, SendOp::Send, Data::Inline(b"x"), &theirs) };
    assert_eq!(refused, Err(PostError::ForeignAddress));
    batch.ring();
    // States.
    let mut early = one.context.queue_pair(&one.pd, &one.cq).dci().build().unwrap();
    let nowhere = early.destination(&target.at).expect_err("not brought up");
    assert!(matches!(nowhere, Error::State { verb: "create_ah", .. }), "{nowhere}");
    let port = early.init(&DciInitAttr { port: 99, pkey_index: 0 }).expect_err("no such port");
    assert_eq!(port, Error::Limit { verb: "modify_qp", what: "port", value: 99, limit: 1 });
    let change = early.change(&DciChange::default()).expect_err("in RESET");
    assert!(matches!(change, Error::State { needs: QpState::ReadyToSend, .. }), "{change}");
    one.qp.change(&DciChange { min_rnr_timer: uverbs::RnrTimer::from_code(5) }).expect("in RTS");
    let mut twice = target;
    let up = twice.target.bring_up(&local()).expect_err("it is up");
    assert!(matches!(up, Error::State { needs: QpState::Reset, .. }), "{up}");
    let endpoint: DcEndpoint = twice.at.to_string().parse().expect("its own text");
    assert_eq!(endpoint, twice.at);
}
