//! Extended reliable connections: domains, their queues and targets, and in which orders they end.
#![allow(unsafe_code, reason = "raw posts are part of what is tested")]

use std::fs::File;
use std::os::fd::AsFd;

use common::{LIMIT, device, done, filled, impatient, is_plain, local, pattern};
use uverbs::attr::RcChange;
use uverbs::event::{AsyncElement, AsyncEventKind};
use uverbs::raw::{Data, SendOp};
use uverbs::transport::XrcIni;
use uverbs::xrc::{ForXrc, RemoteSrq, XrcDomain, XrcFile, XrcTarget};
use uverbs::{
    AccessFlags, Any, Completed, CompletionQueue, Context, Device, Errno, Error, Frame, Local,
    PostError, ProtectionDomain, QpState, QueuePair, Remote, SharedReceiveQueue, Slab, Status,
    WorkCompletion, Wr,
};

const ALL: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

type Queue = SharedReceiveQueue<Any, ForXrc>;

/// A process that receives: a queue of a domain, with all that is its own.
struct Receiver {
    srq: Queue,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    domain: XrcDomain,
    context: Context,
}

/// One that sends.
struct Sender {
    qp: QueuePair<Any, XrcIni>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
}

impl Receiver {
    fn new(device: &Device) -> Self {
        let context = device.open().expect("open");
        let domain = context.xrc_domain().expect("a domain");
        Self::of(context, domain)
    }

    fn of(context: Context, domain: XrcDomain) -> Self {
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(256).expect("create_cq");
        let srq = context.shared_receive_queue(&pd).max_sge(2).xrc(&domain, &cq);
        let srq = srq.build().expect("create_srq");
        Self { srq, cq, pd, domain, context }
    }

    fn target(&self) -> XrcTarget {
        self.context.xrc_target(&self.domain).expect("a target")
    }

    fn expect(&mut self, id: u64, len: usize) {
        let slab = self.pd.slab(len.max(1), 1).expect("slab");
        self.srq.post(id, slab.take().expect("a frame")).expect("post");
    }

    fn done(&mut self) -> WorkCompletion {
        done(&mut self.cq)
    }
}

impl Sender {
    /// An initiator that is connected to this target.
    fn to(device: &Device, target: &mut XrcTarget, local: &Local) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(256).expect("create_cq");
        let qp = context.queue_pair(&pd, &cq).xrc().max_inline_data(200).max_send_wr(32);
        let mut qp = qp.max_send_sge(4).build().expect("create_qp");
        let (here, there) = (qp.prepare(local).unwrap(), target.prepare(local).unwrap());
        qp.connect(&there).expect("connect the initiator");
        target.connect(&here).expect("connect the target");
        assert_eq!(qp.state(), QpState::ReadyToSend);
        Self { qp, cq, pd, context }
    }

    fn send(&mut self, id: u64, data: &[u8], to: RemoteSrq) {
        let mut batch = self.qp.batch();
        batch.send_inline_to(id, data, &to).expect("post");
        batch.ring();
    }

    fn filled(&self, len: usize, seed: u8) -> Frame {
        filled(&self.pd, len, seed)
    }

    fn done(&mut self) -> WorkCompletion {
        done(&mut self.cq)
    }

    /// How the next work request fails.
    fn failure(&mut self) -> Status {
        let done = self.cq.wait(LIMIT).expect("a completion");
        done.result.expect_err("it must fail").status
    }
}

/// Frames that can be taken now.
fn free(slab: &Slab) -> usize {
    std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len()
}

/// The device under test, if it has XRC. On soft-RoCE, checks that it refuses XRC.
fn xrc_device() -> Option<Device> {
    let device = device();
    if !is_plain() {
        return Some(device);
    }
    let context = device.open().expect("open");
    let pd = context.alloc_pd().expect("alloc_pd");
    let cq = context.create_cq(256).expect("create_cq");
    let refused = context.queue_pair(&pd, &cq).xrc().build().expect_err("rxe has no XRC");
    assert!(matches!(refused, Error::Unsupported { verb: "create_qp", .. }), "{refused}");
    let refused = context.xrc_domain().expect_err("rxe has no XRC");
    assert!(matches!(refused, Error::Unsupported { verb: "open_xrcd", .. }), "{refused}");
    common::skip("the device has no XRC");
    None
}

/// A file of this test's own, already unlinked.
fn file() -> File {
    let path = std::env::temp_dir().join(format!(
        "uverbs-xrc-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file = File::create(&path).expect("a file");
    std::fs::remove_file(&path).expect("unlink");
    file
}

#[test]
fn each_operation_arrives_at_every_size() {
    let Some(device) = xrc_device() else { return };
    let mut there = Receiver::new(&device);
    let mut target = there.target();
    let mut one = Sender::to(&device, &mut target, &local());
    let to = there.srq.remote();
    let memory = there.pd.expose((1 << 17) + 64, ALL).unwrap();
    for (round, size) in [0, 1, 63, 4095, 4096, 4097, 65_537].into_iter().enumerate() {
        let seed = round as u8;
        for imm in [None, Some(7)] {
            there.expect(7, size);
            let frame = one.filled(size, seed);
            let mut batch = one.qp.batch();
            match imm {
                None => batch.send_to(1, frame, &to).unwrap(),
                Some(imm) => batch.send_imm_to(1, frame, imm, &to).unwrap(),
            }
            batch.ring();
            let received = there.done();
            assert_eq!((received.id, received.result), (7, Ok(Completed::Recv)));
            assert_eq!((received.byte_len as usize, received.immediate), (size, imm));
            assert_eq!(received.qpn, target.qpn(), "the target that it came through");
            assert!(*received.frame.unwrap() == pattern(size, seed)[..], "{size} bytes differ");
            assert_eq!(one.done().result, Ok(Completed::Send));
        }
        there.expect(8, 1);
        let (first, second) = (one.filled(size, seed + 50), one.filled(size, seed + 60));
        let mut batch = one.qp.batch();
        batch.write_to(2, first, memory.remote(32), &to).unwrap();
        let place = (memory.remote(32), 5);
        batch.write_imm_to(3, second, place, &to).unwrap();
        batch.ring();
        let told = there.done();
        assert_eq!((told.id, told.result), (8, Ok(Completed::RecvWriteImm)));
        assert_eq!((told.byte_len as usize, told.immediate), (size, Some(5)));
        let mut bytes = vec![0; size];
        memory.read(32, &mut bytes).unwrap();
        assert!(bytes == pattern(size, seed + 60), "{size} bytes differ");
        assert_eq!([one.done().id, one.done().id], [2, 3]);
        let mut into = one.pd.slab(size.max(1), 1).unwrap().take().unwrap();
        into.set_len(size);
        let mut batch = one.qp.batch();
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

/// Work requests of every length, so that some go over the ring's end at each of their segments.
#[test]
fn every_length_around_the_end_of_the_ring() {
    let Some(device) = xrc_device() else { return };
    let mut there = Receiver::new(&device);
    let mut target = there.target();
    let mut one = Sender::to(&device, &mut target, &local());
    let to = there.srq.remote();
    let slab = one.pd.slab(50, 4).unwrap();
    for round in 0..300_usize {
        let len = round * 7 % 200;
        there.expect(round as u64, 200);
        let data = pattern(len, round as u8);
        let mut batch = one.qp.batch();
        if round % 3 == 0 {
            // As many frames as it takes, so that the gather list has every length, too.
            let mut parts = data.chunks(50);
            let frame = |part: &[u8]| {
                let mut frame = slab.take().unwrap();
                frame.set_len(part.len());
                frame.copy_from_slice(part);
                frame
            };
            let mut message = frame(parts.next().unwrap_or_default());
            parts.for_each(|part| message.append(frame(part)));
            batch.send_to(round as u64, message.chain(), &to).unwrap();
        } else {
            batch.send_inline_to(round as u64, &data, &to).unwrap();
        }
        batch.ring();
        assert_eq!(one.done().id, round as u64);
        let got = there.done();
        assert_eq!(got.id, round as u64);
        assert!(got.frame.unwrap()[..] == data[..], "{len} bytes differ");
    }
}

#[test]
fn each_message_says_which_queue() {
    let Some(device) = xrc_device() else { return };
    let mut there = Receiver::new(&device);
    let mut other = Receiver::of(there.context.clone(), there.domain.clone());
    let mut target = there.target();
    let mut one = Sender::to(&device, &mut target, &impatient());
    let queues = [there.srq.remote(), other.srq.remote()];
    for id in 0..6 {
        there.expect(id, 64);
        other.expect(100 + id, 64);
    }
    for id in 0..12_u64 {
        one.send(id, &id.to_be_bytes(), queues[(id % 2) as usize]);
    }
    for id in 0..12_u64 {
        let (receiver, base) = if id % 2 == 0 { (&mut there, 0) } else { (&mut other, 100) };
        let got = receiver.done();
        assert_eq!(got.id, base + id / 2);
        assert_eq!(got.frame.unwrap()[..], id.to_be_bytes());
        assert_eq!(one.done().id, id);
    }
    // A key is checked against the protection domain of the queue, by whichever target a message
    // comes.
    let memory = other.pd.expose(64, ALL).unwrap();
    let frame = one.filled(8, 1);
    let mut batch = one.qp.batch();
    batch.write_to(20, frame, memory.remote(0), &queues[1]).unwrap();
    batch.ring();
    assert_eq!(one.done().id, 20);
    let mut batch = one.qp.batch();
    batch.write_inline_to(21, b"not yours", memory.remote(0), &queues[0]).unwrap();
    batch.ring();
    assert_eq!(one.failure(), Status::RemoteAccess);
    let mut bytes = [0; 8];
    memory.read(0, &mut bytes).unwrap();
    assert_eq!(bytes[..], pattern(8, 1)[..]);
}

#[test]
fn several_targets_share_a_queue_and_no_frame_is_lost() {
    let Some(device) = xrc_device() else { return };
    let mut there = Receiver::new(&device);
    let mut targets: Vec<_> = (0..4).map(|_| there.target()).collect();
    let connect = |target| Sender::to(&device, target, &local());
    let mut senders: Vec<_> = targets.iter_mut().map(connect).collect();
    let slab = there.pd.slab(256, 16).unwrap();
    for id in 0..16 {
        there.srq.post(id, slab.take().unwrap()).unwrap();
    }
    for round in 0..200_usize {
        let from = round * 3 % 4;
        let data = pattern(round % 200, round as u8);
        senders[from].send(round as u64, &data, there.srq.remote());
        let got = there.done();
        assert_eq!(got.qpn, targets[from].qpn());
        let frame = got.frame.unwrap();
        assert!(frame[..] == data[..], "round {round}");
        there.srq.post(got.id, frame).unwrap();
        assert_eq!(senders[from].done().id, round as u64);
    }
    // Targets come and go; the queue stays, with all that is in it.
    drop(targets.pop());
    targets.remove(0).destroy().unwrap();
    senders[1].send(1, b"still", there.srq.remote());
    assert_eq!(there.done().frame.unwrap()[..], b"still"[..]);
    let frames = there.srq.destroy().unwrap();
    assert_eq!(frames.len(), 15);
    drop(frames);
    assert_eq!(free(&slab), 16);
}

#[test]
fn a_domain_of_a_file_is_one_for_all_who_open_it() {
    let Some(device) = xrc_device() else { return };
    let file = file();
    let errno = |result: Result<XrcDomain, Error>| result.unwrap_err().errno();
    let (first, second) = (device.open().unwrap(), device.open().unwrap());
    let shared = |context: &Context, which| context.shared_xrc_domain(file.as_fd(), which);
    assert_eq!(errno(shared(&first, XrcFile::Existing)), Some(Errno::EAGAIN));
    let made = shared(&first, XrcFile::New).unwrap();
    assert_eq!(errno(shared(&second, XrcFile::New)), Some(Errno::EINVAL));
    let opened = shared(&second, XrcFile::Existing).unwrap();
    let again = shared(&first, XrcFile::OrNew).unwrap();
    drop(again);
    // One process has the connection, and the other one the queue.
    let mut target = first.xrc_target(&made).unwrap();
    let mut there = Receiver::of(second, opened);
    let mut one = Sender::to(&device, &mut target, &local());
    there.expect(1, 64);
    one.send(2, b"by another's connection", there.srq.remote());
    let got = there.done();
    assert_eq!((got.id, got.qpn), (1, target.qpn()));
    assert_eq!(got.frame.unwrap()[..], b"by another's connection"[..]);
    assert_eq!(one.done().id, 2);
    // The other one takes the connection over.
    let mut taken = there.context.open_xrc_target(&there.domain, target.qpn()).unwrap();
    assert_eq!(taken.query().unwrap().state, QpState::ReadyToSend);
    assert_eq!(taken.qpn(), target.qpn());
    drop(target);
    made.close().unwrap();
    there.expect(3, 64);
    one.send(4, b"it lives on", there.srq.remote());
    assert_eq!(there.done().frame.unwrap()[..], b"it lives on"[..]);
    assert_eq!(one.done().id, 4);
    taken.fail().unwrap();
    assert_eq!(taken.query().unwrap().state, QpState::Error);
    drop((taken, there));
    // With the last of them the domain is gone.
    let third = device.open().unwrap();
    assert_eq!(errno(shared(&third, XrcFile::Existing)), Some(Errno::EAGAIN));
    shared(&third, XrcFile::New).unwrap();
}

#[test]
fn a_domain_in_use_is_not_closed() {
    let Some(device) = xrc_device() else { return };
    let there = Receiver::new(&device);
    let target = there.target();
    let Receiver { srq, cq, pd, domain, context } = there;
    let copy = domain.clone();
    let busy = |domain: XrcDomain| {
        let refused = domain.close().expect_err("it is used");
        assert_eq!(refused.error.errno(), Some(Errno::EBUSY), "{}", refused.error);
        refused.into_object()
    };
    let domain = busy(domain);
    srq.destroy().unwrap();
    let domain = busy(domain);
    target.destroy().unwrap();
    domain.close().unwrap();
    // A clone is of a domain that is closed.
    let closed = context.xrc_target(&copy).unwrap_err();
    assert!(matches!(closed, Error::Invalid { what: "XRC domain", .. }), "{closed}");
    let closed = context.shared_receive_queue(&pd).xrc(&copy, &cq).build().unwrap_err();
    assert!(matches!(closed, Error::Invalid { what: "XRC domain", .. }), "{closed}");
    copy.close().unwrap();
}

#[test]
fn every_order_of_ends() {
    let Some(device) = xrc_device() else { return };
    for first in 0..5 {
        let mut there = Receiver::new(&device);
        let mut target = there.target();
        let mut one = Sender::to(&device, &mut target, &impatient());
        let slab = there.pd.slab(64, 4).unwrap();
        for id in 0..4 {
            there.srq.post(id, slab.take().unwrap()).unwrap();
        }
        // One completion that was not polled.
        one.send(1, b"unseen", there.srq.remote());
        assert_eq!(one.done().id, 1);
        let Receiver { srq, cq, pd, domain, context } = there;
        let (mut srq, mut cq, mut target) = (Some(srq), Some(cq), Some(target));
        let (mut domain, mut context) = (Some(domain), Some(context));
        for at in 0..5 {
            match (first + at) % 5 {
                0 => drop(srq.take()),
                1 => drop(cq.take()),
                2 => drop(target.take()),
                3 => drop(domain.take()),
                _ => drop(context.take()),
            }
        }
        drop(one);
        assert_eq!(free(&slab), 4, "beginning with {first}");
        drop(pd);
    }
}

#[test]
fn a_queue_that_is_gone_or_of_another_domain_refuses() {
    let Some(device) = xrc_device() else { return };
    let mut there = Receiver::new(&device);
    let mut other = Receiver::new(&device);
    other.expect(1, 64);
    there.expect(1, 64);
    let plain = there.context.shared_receive_queue(&there.pd).build().unwrap();
    let plain = RemoteSrq::new(plain.srqn()).unwrap();
    let nobody = RemoteSrq::new(0xff_fffe).unwrap();
    for to in [other.srq.remote(), plain, nobody] {
        let mut target = there.target();
        let mut one = Sender::to(&device, &mut target, &impatient());
        one.send(1, b"to whom?", to);
        assert_eq!(one.failure(), Status::RemoteInvalidRequest, "{to}");
        assert_eq!(target.query().unwrap().state, QpState::Error);
        assert!(there.cq.poll(1).next().is_none() && other.cq.poll(1).next().is_none());
        // Another way is as before.
        let mut target = there.target();
        let mut one = Sender::to(&device, &mut target, &impatient());
        one.send(2, b"here", there.srq.remote());
        let got = there.done();
        assert_eq!(got.frame.unwrap()[..], b"here"[..]);
        there.expect(1, 64);
    }
    let mut target = there.target();
    let mut one = Sender::to(&device, &mut target, &impatient());
    let (gone, slab) = (there.srq.remote(), there.pd.slab(64, 1).unwrap());
    there.srq.post(9, slab.take().unwrap()).unwrap();
    let frames = there.srq.destroy().unwrap();
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 9]);
    one.send(3, b"too late", gone);
    assert_eq!(one.failure(), Status::RemoteInvalidRequest);
    // The frame of the failed send comes back, and later sends are flushed.
    let frame = one.filled(64, 1);
    let mut batch = one.qp.batch();
    batch.send_to(4, frame, &gone).unwrap();
    batch.ring();
    let flushed = one.cq.wait(LIMIT).unwrap();
    assert_eq!(flushed.result.unwrap_err().status, Status::Flushed);
    assert_eq!(flushed.frame.unwrap()[..], pattern(64, 1)[..]);
}

/// Unpolled completions of a destroyed queue are skipped, even if another queue has its index.
#[test]
fn completions_of_a_queue_that_is_gone_are_skipped() {
    let Some(device) = xrc_device() else { return };
    let mut there = Receiver::new(&device);
    let mut target = there.target();
    let mut one = Sender::to(&device, &mut target, &local());
    let slab = there.pd.slab(64, 3).unwrap();
    for id in 0..2 {
        there.srq.post(id, slab.take().unwrap()).unwrap();
        one.send(id, b"unseen", there.srq.remote());
        assert_eq!(one.done().id, id);
    }
    let mut next = there.context.shared_receive_queue(&there.pd).xrc(&there.domain, &there.cq);
    next = next.max_wr(8);
    let mut next = next.build().unwrap();
    let frames = there.srq.destroy().unwrap();
    assert_eq!(frames.len(), 2, "the completions were not polled");
    next.post(7, slab.take().unwrap()).unwrap();
    one.send(9, b"seen", next.remote());
    let got = done(&mut there.cq);
    assert_eq!((got.id, &got.frame.unwrap()[..]), (7, &b"seen"[..]));
}

#[test]
fn a_limit_is_told() {
    let Some(device) = xrc_device() else { return };
    let mut there = Receiver::new(&device);
    let mut target = there.target();
    let mut one = Sender::to(&device, &mut target, &local());
    for id in 0..4 {
        there.expect(id, 64);
    }
    there.srq.set_limit(3).unwrap();
    assert_eq!(there.srq.query().unwrap().limit, 3);
    for id in 0..2 {
        one.send(id, b"down", there.srq.remote());
        there.done();
    }
    let event = there.context.async_events().next_within(LIMIT).unwrap();
    assert_eq!(event.kind, AsyncEventKind::SrqLimitReached);
    assert_eq!(event.element, AsyncElement::Srq(there.srq.event_id()));
}

#[test]
fn bad_input_is_refused_by_name() {
    let Some(device) = xrc_device() else { return };
    let (there, other) = (Receiver::new(&device), Receiver::new(&device));
    let what = |error: Error| match error {
        Error::Invalid { what, .. } | Error::Limit { what, .. } => what,
        other => panic!("{other}"),
    };
    let queue = || there.context.shared_receive_queue(&there.pd);
    assert_eq!(what(queue().xrc(&other.domain, &there.cq).build().unwrap_err()), "XRC domain");
    let refused = queue().xrc(&there.domain, &other.cq).build().unwrap_err();
    assert_eq!(what(refused), "completion queue");
    let refused = queue().max_wr(100_000).xrc(&there.domain, &there.cq).build().unwrap_err();
    assert_eq!(what(refused), "max_wr of its completion queue");
    let refused = other.context.xrc_target(&there.domain).unwrap_err();
    assert_eq!(what(refused), "XRC domain");
    let open = |domain, qpn| there.context.open_xrc_target(domain, qpn);
    let target = there.target();
    assert_eq!(what(open(&other.domain, target.qpn()).unwrap_err()), "XRC domain");
    assert_eq!(what(open(&there.domain, 1 << 24).unwrap_err()), "number");
    let second = there.context.xrc_domain().unwrap();
    for (domain, qpn) in [(&second, target.qpn()), (&there.domain, 0xff_fff0)] {
        let error = open(domain, qpn).unwrap_err();
        let Error::Invalid { verb, what, value, .. } = error else { panic!("{error}") };
        assert_eq!((verb, what, value), ("open_qp", "number", format!("{qpn:#x}")));
    }
    assert_eq!(what(RemoteSrq::new(1 << 24).unwrap_err()), "SRQ number");
    let begin = || there.context.queue_pair(&there.pd, &there.cq).xrc();
    let refused = begin().max_recv_wr(1).build().unwrap_err();
    assert_eq!(what(refused), "max_recv_wr of an initiator");
    let plain = queue().build().unwrap();
    let refused = begin().shared_receives(&plain).build().unwrap_err();
    assert_eq!(what(refused), "shared receive queue");
    let mut target = target;
    let peer = "lid=1 qpn=5 psn=1 mtu=1024 rd_atomic=1 gid=none".parse().unwrap();
    assert_eq!(what(target.connect(&peer).unwrap_err()), "target");
    let error = target.ready_to_send(&uverbs::xrc::XrcTargetRtsAttr {
        sq_psn: 1,
        timeout: uverbs::AckTimeout::DEFAULT,
    });
    let (verb, state) = ("modify_qp", QpState::Reset);
    let needs = QpState::ReadyToReceive;
    assert_eq!(error.unwrap_err(), Error::State { verb, state, needs });
}

#[test]
fn an_initiator_posts_only_what_it_may() {
    let Some(device) = xrc_device() else { return };
    let mut there = Receiver::new(&device);
    let mut target = there.target();
    let mut one = Sender::to(&device, &mut target, &local());
    let to = there.srq.remote();
    let frame = one.pd.slab(64, 1).unwrap().take().unwrap();
    assert!(one.qp.post_recv(1, frame).is_err(), "it has no queue for that");
    let mut batch = one.qp.batch();
    let error = batch.send_inline_to(1, &[0; 2000], &to).unwrap_err();
    assert_eq!(error, PostError::InlineTooLong);
    let foreign = one.context.alloc_pd().unwrap().slab(64, 1).unwrap().take().unwrap();
    assert_eq!(batch.send_to(1, foreign, &to).unwrap_err().error, PostError::ForeignBuffer);
    let op = SendOp::FetchAdd { remote: Remote { addr: 0, rkey: 0 }, add: 1 };
    // SAFETY: inline data names no memory.
    let error = unsafe { batch.raw().post_to(1, op, Data::Inline(b"8 bytes!"), &to) };
    assert_eq!(error.unwrap_err(), PostError::BadData);
    drop(batch);
    // Full, and again room once the completions are polled.
    there.expect(1, 64);
    let mut posted = 0;
    let mut batch = one.qp.batch();
    while batch.send_inline_to(Wr::new(posted).unsignaled(), b"", &to).is_ok() {
        posted += 1;
    }
    assert!(posted >= 32, "{posted}");
    drop(batch);
    one.send(99, b"one", to);
    assert_eq!(there.done().frame.unwrap()[..], b"one"[..]);
    assert_eq!(one.done().id, 99);
}

#[test]
fn a_target_can_be_reset_and_connected_anew() {
    let Some(device) = xrc_device() else { return };
    let mut there = Receiver::new(&device);
    let mut target = there.target();
    let first = Sender::to(&device, &mut target, &local());
    drop(first);
    let change = RcChange { access: Some(AccessFlags::REMOTE_READ), ..RcChange::default() };
    target.change(&change).unwrap();
    assert_eq!(target.query().unwrap().access, AccessFlags::REMOTE_READ);
    target.reset().unwrap();
    assert_eq!(target.query().unwrap().state, QpState::Reset);
    let (verb, state, needs) = ("modify_qp", QpState::Reset, QpState::ReadyToSend);
    assert_eq!(target.change(&change).unwrap_err(), Error::State { verb, state, needs });
    let mut second = Sender::to(&device, &mut target, &local());
    there.expect(1, 64);
    second.send(2, b"anew", there.srq.remote());
    assert_eq!(there.done().frame.unwrap()[..], b"anew"[..]);
}
