//! The provider for EFA, over a software adapter in this process: SRD and UD, in any order of
//! delivery.

mod counters;
mod queues;
mod refused;
mod wires;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::LIMIT;
#[cfg(feature = "any-efa")]
use uverbs::any_transport::{AnyQueuePair, AnyReceives, TransportName};
use uverbs::attr::SrdRtsAttr;
use uverbs::transport::{Srd, Transport};
use uverbs::{
    AccessFlags, Completed, CompletionQueue, Context, DatagramEndpoint, Destination, Device, Efa,
    Error, Frame, GRH_LEN, Local, PostError, ProtectionDomain, QpState, QueuePair, Remote, Status,
    Ud, WorkCompletion, Wr,
};
use uverbs_softefa::{SoftEfa, SoftEfaBuilder};

/// One side: a queue pair in RTS with all that is its own.
struct Side<T: Transport> {
    qp: QueuePair<Efa, T>,
    cq: CompletionQueue<Efa>,
    pd: ProtectionDomain,
    _context: Context<Efa>,
    at: DatagramEndpoint,
}

fn opened(device: &SoftEfa) -> Context<Efa> {
    Device::from_source(Arc::new(device.clone())).open_as().expect("open")
}

/// Q_Key of each queue pair, which its peers must name.
fn local(qkey: u32) -> Local {
    Local { qkey, ..Local::default() }
}

impl<T: uverbs::transport::Datagram> Side<T> {
    fn new(device: &SoftEfa, local: &Local) -> Self {
        let context = opened(device);
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(256).expect("create_cq");
        let qp = context.queue_pair(&pd, &cq).transport::<T>();
        let mut qp = qp.max_inline_data(80).max_recv_sge(2).build().expect("create_qp");
        let at = qp.bring_up(local).expect("bring_up");
        Self { qp, cq, pd, _context: context, at }
    }

    fn to(&self, peer: &Self) -> Destination<Efa> {
        self.qp.destination(&peer.at).expect("create_ah")
    }

    fn filled(&self, len: usize, seed: u8) -> Frame {
        let slab = self.pd.slab(len.max(1), 1).expect("slab");
        let mut frame = slab.take().expect("a frame");
        frame.set_len(len);
        frame.copy_from_slice(&pattern(len, seed));
        frame
    }

    fn expect(&mut self, id: u64, len: usize) {
        let frame = self.pd.slab(len.max(1), 1).expect("slab").take().expect("a frame");
        self.qp.post_recv(id, frame).expect("post_recv");
    }

    fn done(&mut self) -> WorkCompletion {
        self.cq.wait(LIMIT).expect("a completion")
    }

    fn failure(&mut self) -> (u64, Status) {
        let done = self.done();
        (done.id, done.result.expect_err("a failure").status)
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

/// Two sides on two devices, each of which knows the other, with the way from the first to the
/// second.
fn pair(builder: SoftEfaBuilder) -> (Side<Srd>, Side<Srd>, Destination<Efa>) {
    let device = builder.build().expect("a device");
    let other = SoftEfa::builder().fabric(device.fabric()).build().expect("a device");
    let one = Side::new(&device, &local(0x1111));
    let two = Side::new(&other, &local(0x2222));
    let to = one.to(&two);
    (one, two, to)
}

/// Each operation, at every size and in each shape of the device.
#[test]
fn each_operation_arrives_at_every_size() {
    let shapes: [fn() -> SoftEfaBuilder; 3] = [
        SoftEfa::builder,
        || SoftEfa::builder().stepped(),
        || SoftEfa::builder().stepped().sub_cqs(3).tx_batch(4, 16),
    ];
    for shape in shapes {
        let (mut one, mut two, to) = pair(shape());
        let _back = two.to(&one);
        let all = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let memory = two.pd.expose((1 << 17) + 64, all).expect("exposed");
        for (round, size) in [0, 1, 31, 64, 4096, 8928].into_iter().enumerate() {
            let seed = round as u8;
            for imm in [None, Some(7)] {
                two.expect(7, size);
                let frame = one.filled(size, seed);
                let mut batch = one.qp.batch();
                match imm {
                    None => batch.send_to(1, frame, &to).unwrap(),
                    Some(imm) => batch.send_imm_to(1, frame, imm, &to).unwrap(),
                }
                batch.ring();
                let received = two.done();
                assert_eq!((received.id, received.result), (7, Ok(Completed::Recv)));
                assert_eq!((received.byte_len as usize, received.immediate), (size, imm));
                assert_eq!(received.sender.qpn(), one.qp.qpn());
                assert!(*received.frame.unwrap() == pattern(size, seed)[..], "{size} bytes");
                let sent = one.done();
                assert_eq!((sent.id, sent.result), (1, Ok(Completed::Send)));
                assert_eq!(sent.frame.expect("the sent frame").len(), size);
            }
        }
        for (round, size) in [0, 1, 4096, 65_536, 100_000].into_iter().enumerate() {
            let seed = round as u8 + 50;
            let frame = one.filled(size, seed);
            let mut batch = one.qp.batch();
            batch.write_to(2, frame, memory.remote(32), &to).unwrap();
            batch.ring();
            assert_eq!(one.done().result, Ok(Completed::Write));
            let mut there = vec![0; size];
            memory.read(32, &mut there).unwrap();
            assert!(there == pattern(size, seed), "{size} bytes");
            two.expect(8, 1);
            let frame = one.filled(size, seed + 60);
            let mut batch = one.qp.batch();
            batch.write_imm_to(3, frame, (memory.remote(32), 5), &to).unwrap();
            batch.ring();
            let told = two.done();
            assert_eq!((told.id, told.result), (8, Ok(Completed::RecvWriteImm)));
            assert_eq!((told.byte_len as usize, told.immediate), (size, Some(5)));
            assert_eq!(one.done().id, 3);
            let into = one.filled(size, 0);
            let mut batch = one.qp.batch();
            batch.read_from(4, into, memory.remote(32), &to).unwrap();
            batch.ring();
            let read = one.done();
            assert_eq!((read.id, read.result), (4, Ok(Completed::Read)));
            assert!(*read.frame.unwrap() == pattern(size, seed + 60)[..], "{size} bytes");
        }
        for size in [0, 1, 32, 33, 80] {
            two.expect(9, size);
            let mut batch = one.qp.batch();
            batch.send_inline_to(5, &pattern(size, 3), &to).unwrap();
            batch.write_inline_to(6, &pattern(size, 4), memory.remote(1000), &to).unwrap();
            batch.ring();
            assert!(*two.done().frame.unwrap() == pattern(size, 3)[..], "{size} bytes inline");
            let mut ids = [one.done().id, one.done().id];
            ids.sort_unstable();
            assert_eq!(ids, [5, 6]);
            let mut there = vec![0; size];
            memory.read(1000, &mut there).unwrap();
            assert!(there == pattern(size, 4), "{size} bytes inline");
        }
    }
}

/// Messages overtake each other, and each arrives once, in its own receive.
#[test]
fn messages_arrive_once_in_any_order() {
    let mut orders = Vec::new();
    for seed in 0..8 {
        let (mut one, mut two, to) = pair(SoftEfa::builder().stepped().seed(seed));
        let (mut order, mut filled) = (Vec::new(), Vec::new());
        // Several turns of all rings.
        for turn in 0..10u64 {
            for id in 0..64 {
                two.expect(id, 16);
            }
            let mut batch = one.qp.batch();
            for id in 0..64u64 {
                let text = (turn << 8 | id).to_le_bytes();
                // Half of them ask for no completion.
                let wr = if id % 2 == 0 { Wr::new(id) } else { Wr::new(id).unsignaled() };
                batch.send_inline_to(wr, &text, &to).unwrap();
            }
            batch.ring();
            let (mut came, receives): (Vec<u64>, Vec<u64>) = (0..64)
                .map(|_| {
                    let done = two.done();
                    let text = done.frame.expect("its own frame");
                    (u64::from_le_bytes(text[..].try_into().unwrap()), done.id)
                })
                .unzip();
            order.extend(came.iter().map(|number| number & 0xff));
            filled.extend(receives);
            came.sort_unstable();
            assert!(came.iter().copied().eq((0..64).map(|id| turn << 8 | id)), "{came:?}");
            let mut sent: Vec<_> = (0..32).map(|_| one.done().id).collect();
            sent.sort_unstable();
            assert!(sent.into_iter().eq((0..64).step_by(2)));
        }
        assert!(!order.is_sorted(), "seed {seed} delivers in order");
        assert!(!filled[..64].is_sorted(), "seed {seed} completes receives in order");
        orders.push(order);
    }
    orders.dedup();
    assert_eq!(orders.len(), 8, "the seed decides");
}

/// A device that repeats completions, and forges some, completes each work request once, with its
/// own frame.
#[test]
fn a_repeated_completion_gives_nothing_back() {
    let (mut one, mut two, to) = pair(SoftEfa::builder().stepped().repeating());
    for turn in 0..20u8 {
        let slab = two.pd.slab(16, 32).unwrap();
        for id in 0..32 {
            two.qp.post_recv(id, slab.take().expect("a frame")).unwrap();
        }
        for id in 0..32u8 {
            let frame = one.filled(16, id ^ turn);
            let mut batch = one.qp.batch();
            batch.send_to(u64::from(id), frame, &to).unwrap();
            batch.ring();
        }
        let (mut sent, mut received, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        let started = Instant::now();
        while (sent.len() < 32 || received.len() < 32) && started.elapsed() < LIMIT {
            one.cq.poll_with(8, |mut done| {
                assert!(done.take_frame().is_some());
                sent.push(done.id());
            });
            two.cq.poll_with(8, |mut done| {
                texts.push(done.take_frame().expect("its own frame").to_vec());
                received.push(done.id());
            });
        }
        texts.sort_unstable();
        let mut expected: Vec<_> = (0..32).map(|id| pattern(16, id ^ turn)).collect();
        expected.sort_unstable();
        assert!(texts == expected, "turn {turn}");
        for ids in [&mut sent, &mut received] {
            ids.sort_unstable();
            assert!(ids.iter().copied().eq(0..32), "turn {turn}: {ids:?}");
        }
    }
    assert!(one.cq.check().is_err(), "the repeated completions are told");
}

/// An error of a work request leaves the queue pair as it is.
#[test]
fn errors_are_told_and_end_nothing() {
    let (mut one, mut two, to) = pair(SoftEfa::builder().stepped());
    let memory = two.pd.expose(4096, AccessFlags::REMOTE_READ).expect("exposed");
    let ah = to.address_handle().clone();
    let fails = |one: &mut Side<Srd>, to: &Destination<Efa>, remote: Option<Remote>| {
        let mut batch = one.qp.batch();
        match remote {
            None => batch.send_inline_to(1, b"text", to).unwrap(),
            Some(remote) => batch.write_inline_to(1, b"text", remote, to).unwrap(),
        }
        batch.ring();
        one.failure()
    };
    let nobody = ah.to(0xfff0, 0x2222);
    assert_eq!(fails(&mut one, &nobody, None), (1, Status::RemoteInvalidRdRequest));
    let wrong = ah.to(two.qp.qpn(), 0x9999);
    assert_eq!(fails(&mut one, &wrong, None), (1, Status::RemoteInvalidRdRequest));
    let remote = memory.remote(0);
    let unknown = fails(&mut one, &to, Some(remote));
    assert_eq!(unknown, (1, Status::RemoteOperation), "the target has no address handle back");
    let _back = two.to(&one);
    assert_eq!(fails(&mut one, &to, Some(remote)), (1, Status::RemoteAccess), "read-only");
    let beyond = Remote { addr: remote.addr + 4093, ..remote };
    assert_eq!(fails(&mut one, &to, Some(beyond)), (1, Status::RemoteAccess));
    two.expect(2, 3);
    assert_eq!(fails(&mut one, &to, None), (1, Status::RemoteInvalidRequest), "4 bytes for 3");
    // The receive is still there, and the queue pair works.
    let mut batch = one.qp.batch();
    batch.send_inline_to(3, b"fit", &to).unwrap();
    batch.ring();
    assert_eq!((one.done().result, two.done().id), (Ok(Completed::Send), 2));
    assert_eq!(one.qp.query().expect("query").state, QpState::ReadyToSend);
}

#[test]
fn without_a_receive_the_retries_end() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let mut one = Side::<Srd>::new(&device, &Local { rnr_retry: 2, ..local(1) });
    let mut two = Side::<Srd>::new(&device, &local(2));
    let to = one.to(&two);
    let mut batch = one.qp.batch();
    batch.send_inline_to(1, b"early", &to).unwrap();
    batch.ring();
    assert_eq!(one.failure(), (1, Status::RnrRetryExceeded));
    // With endless retries the message waits.
    let to = two.to(&one);
    let mut batch = two.qp.batch();
    batch.send_inline_to(2, b"early", &to).unwrap();
    batch.ring();
    assert!(two.cq.wait(Duration::from_millis(50)).is_err());
    one.expect(3, 16);
    assert_eq!((one.done().id, two.done().id), (3, 2));
}

#[test]
fn datagrams_leave_room_for_a_header() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let mut one = Side::<Ud>::new(&device, &local(1));
    let mut two = Side::<Ud>::new(&device, &local(2));
    let to = one.to(&two);
    two.expect(1, GRH_LEN + 4);
    let mut batch = one.qp.batch();
    batch.send_imm_inline_to(2, b"text", 9, &to).unwrap();
    batch.ring();
    assert_eq!(one.done().result, Ok(Completed::Send));
    let received = two.done();
    assert_eq!((received.byte_len as usize, received.immediate), (GRH_LEN + 4, Some(9)));
    assert_eq!(received.frame.unwrap()[GRH_LEN..], *b"text");
    // Without a receive the datagram is lost.
    let mut batch = one.qp.batch();
    batch.send_inline_to(3, b"lost", &to).unwrap();
    batch.ring();
    assert_eq!(one.done().result, Ok(Completed::Send));
    assert!(two.cq.poll(1).next().is_none());
}

/// ERR flushes, and after RESET both queues work from their first element.
#[test]
fn a_queue_pair_is_flushed_and_starts_again() {
    let (mut one, mut two, to) = pair(SoftEfa::builder().stepped());
    for turn in 0..3 {
        for id in 0..100 {
            two.expect(id, 16);
            let mut batch = one.qp.batch();
            batch.send_inline_to(id, b"text", &to).unwrap();
            batch.ring();
            assert_eq!((one.done().id, two.done().id), (id, id));
        }
        two.expect(1000, 16);
        two.expect(1001, 16);
        two.qp.fail().expect("to ERR");
        let mut flushed = [two.failure(), two.failure()];
        flushed.sort_unstable_by_key(|(id, _)| *id);
        assert_eq!(flushed, [(1000, Status::Flushed), (1001, Status::Flushed)], "turn {turn}");
        let frame = two.pd.slab(16, 1).unwrap().take().unwrap();
        let refused = two.qp.post_recv(1, frame).expect_err("not in ERR");
        assert_eq!(refused.error, PostError::State);
        two.qp.reset(&mut [&mut two.cq]).expect("to RESET");
        two.at = two.qp.bring_up(&local(0x2222)).expect("bring_up");
        // The sender's queue begins again, too.
        one.qp.reset(&mut [&mut one.cq]).expect("to RESET");
        one.qp.bring_up(&local(0x1111)).expect("bring_up");
    }
}

/// A request that completed before an earlier one marks nothing of the queue after RESET.
#[test]
fn reset_forgets_what_completed_out_of_order() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let [mut one, silent, mut two] = [1, 2, 3].map(|qkey| Side::<Srd>::new(&device, &local(qkey)));
    let (to_silent, to) = (one.to(&silent), one.to(&two));
    two.expect(2, 16);
    let mut batch = one.qp.batch();
    batch.send_inline_to(1, b"waits for a receive", &to_silent).unwrap();
    batch.send_inline_to(2, b"text", &to).unwrap();
    batch.ring();
    assert_eq!((one.done().id, two.done().id), (2, 2));
    one.qp.reset(&mut [&mut one.cq]).expect("to RESET");
    one.qp.bring_up(&local(1)).expect("bring_up");
    for id in 0..2 * u64::from(one.qp.cap().max_send_wr) {
        two.expect(id, 16);
        let mut batch = one.qp.batch();
        batch.send_inline_to(id, b"text", &to).unwrap();
        batch.ring();
        assert_eq!((one.done().id, two.done().id), (id, id));
    }
}

#[test]
fn a_channel_wakes_a_sleeper() {
    let device = SoftEfa::builder().build().unwrap();
    let context = opened(&device);
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let mut cq = context.completion_queue(256).channel(&channel).build().unwrap();
    let mut qp = context.queue_pair(&pd, &cq).srd().build().unwrap();
    let at = qp.bring_up(&local(5)).unwrap();
    let to = qp.destination(&at).unwrap();
    let started = Instant::now();
    for id in 0..5 {
        qp.post_recv(id, pd.slab(16, 1).unwrap().take().unwrap()).unwrap();
        let mut batch = qp.batch();
        batch.send_inline_to(id + 10, b"wake up", &to).unwrap();
        batch.ring();
        let mut ids = [cq.wait(LIMIT).unwrap().id, cq.wait(LIMIT).unwrap().id];
        ids.sort_unstable();
        assert_eq!(ids, [id, id + 10]);
    }
    assert!(started.elapsed() < LIMIT, "it slept through its events");
}

/// A batch that is dropped leaves nothing, and a queue pair that is destroyed gives back what it
/// holds.
#[test]
fn what_is_not_rung_has_not_happened() {
    let (mut one, mut two, to) = pair(SoftEfa::builder().stepped());
    two.expect(1, 16);
    let frame = one.filled(8, 1);
    let mut batch = one.qp.batch();
    batch.send_to(1, frame, &to).unwrap();
    drop(batch);
    let mut batch = one.qp.batch();
    batch.send_inline_to(2, b"rung", &to).unwrap();
    batch.ring();
    assert_eq!(one.done().id, 2);
    assert_eq!(two.done().frame.unwrap()[..], *b"rung");
    two.expect(3, 16);
    two.expect(4, 16);
    let Side { qp, mut cq, .. } = two;
    let gone = qp.destroy().expect("destroyed");
    let back = cq.reclaim(&gone);
    assert_eq!(back.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn what_the_device_lacks_is_refused() {
    let device = SoftEfa::builder().stepped().without_write().build().unwrap();
    let mut one = Side::<Srd>::new(&device, &local(1));
    let to = one.qp.destination(&one.at).unwrap();
    let nowhere = Remote { addr: 0, rkey: 0 };
    let mut batch = one.qp.batch();
    let refused = batch.write_inline_to(1, b"text", nowhere, &to).unwrap_err();
    assert_eq!(refused, PostError::NotOnDevice);
    let nobody = to.address_handle().to(0x1_0000 | one.at.qpn, 1);
    let refused = batch.send_inline_to(1, b"text", &nobody).unwrap_err();
    assert_eq!(refused, PostError::BadOperation, "a number of 17 bits");
    let other = opened(&device);
    let foreign = other.alloc_pd().unwrap();
    let (context, pd, cq) = (&one._context, &one.pd, &one.cq);
    let unsupported = |error: Error| match error {
        Error::Unsupported { what, .. } => what,
        other => panic!("{other}"),
    };
    let refused = context.queue_pair(pd, cq).build().expect_err("no RC");
    assert_eq!(unsupported(refused), "RC (EFA has UD and SRD)");
    let srd = || context.queue_pair(pd, cq).srd();
    let limit = |error: Error| match error {
        Error::Limit { what, value, limit, .. } => (what, value, limit),
        other => panic!("{other}"),
    };
    // 256 KiB hold 2048 work requests of 128 bytes.
    let cq = context.create_cq(16384).unwrap();
    let long = context.queue_pair(pd, &cq).srd().max_inline_data(33).max_send_wr(2049);
    assert_eq!(limit(long.build().expect_err("too many")), ("max_send_wr", 2049, 2048));
    assert_eq!(limit(srd().max_send_sge(3).build().expect_err("2")), ("max_send_sge", 3, 2));
    assert_eq!(limit(srd().max_inline_data(81).build().expect_err("80")).2, 80);
    let shared = context.shared_receive_queue(pd).build().expect_err("no SRQ");
    assert_eq!(unsupported(shared), "a shared receive queue (efa)");
    let access = AccessFlags::REMOTE_WRITE;
    let refused = pd.expose(64, access).expect_err("without WRITE");
    assert_eq!(refused.errno(), Some(uverbs::Errno::EOPNOTSUPP), "{refused}");
    assert!(foreign.slab(64, 1).is_ok());
    let mut qp = srd().max_recv_wr(0).build().unwrap();
    qp.init(&uverbs::attr::UdInitAttr { port: 1, pkey_index: 0, qkey: 1 }).unwrap();
    qp.ready_to_receive(&uverbs::attr::UdRtrAttr).unwrap();
    let refused = qp.ready_to_send(&SrdRtsAttr { sq_psn: 0, rnr_retry: Some(8) });
    assert_eq!(limit(refused.expect_err("7 at most")).2, 7);
    qp.ready_to_send(&SrdRtsAttr { sq_psn: 0, rnr_retry: Some(7) }).unwrap();
}

/// A foreign driver is refused by name, also by `Any` without the feature.
#[test]
fn another_driver_is_refused() {
    let device = Device::from_source(Arc::new(SoftEfa::builder().stepped().build().unwrap()));
    if cfg!(feature = "any-efa") {
        device.open().unwrap();
    } else {
        let refused = device.open().expect_err("mlx5 and rxe alone").to_string();
        assert!(refused.contains("`open_as::<Efa>` or the feature `any-efa`"), "{refused}");
    }
    let refused = device.open_as::<uverbs::Siw>().expect_err("not siw").to_string();
    assert!(refused.contains("siw"), "{refused}");
    let hca = uverbs::device("softhca0").unwrap().open_as::<Efa>().expect_err("not efa");
    assert!(hca.to_string().contains("another driver than efa"), "{hca}");
}

/// A queue pair whose transport is chosen at run time.
#[cfg(feature = "any-efa")]
#[test]
fn the_transport_may_be_chosen_at_run_time() {
    let device = Device::from_source(Arc::new(SoftEfa::builder().build().unwrap()));
    let context = device.open().expect("open");
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
    let mut receives = AnyReceives::own();
    for transport in [TransportName::Ud, TransportName::Srd] {
        let build = || AnyQueuePair::build(context.queue_pair(&pd, &cq), transport, &receives);
        let [mut one, mut two] = [build().unwrap(), build().unwrap()];
        one.bring_up(&Local::default()).unwrap();
        let there = two.bring_up(&Local::default()).unwrap();
        one.connect(&there).unwrap();
        let offset = transport.recv_offset();
        let frame = pd.slab(offset + 4, 1).unwrap().take().unwrap();
        receives.post(two.recv_queue(), 1, frame).unwrap();
        let mut batch = one.batch();
        batch.send_inline(Wr::new(2), b"text").unwrap();
        batch.ring();
        for _ in 0..2 {
            let done = cq.wait(LIMIT).expect("a completion");
            done.result.unwrap();
            if done.id == 1 {
                assert_eq!(done.frame.unwrap()[offset..], *b"text", "{transport}");
            }
        }
    }
    let xrc = AnyReceives::shared(&context, &pd, &cq, TransportName::Xrc, 1);
    assert!(xrc.is_err(), "EFA has no XRC");
}
