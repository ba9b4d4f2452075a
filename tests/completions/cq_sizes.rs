//! Completion queues of another size, events that stand for several completions, and completions
//! that name no outstanding work request.
#![allow(unsafe_code, reason = "writes completions as a device at fault does")]

use std::collections::VecDeque;
use std::time::Duration;

use common::{LIMIT, Side, is_plain, is_rdmavt, local, only_on_softhca, pair_with, skip, soft};
use uverbs::softhca::SoftHca;
use uverbs::{CompletionQueue, CqeSize, Errno, Error, Mlx5, Notify, WorkCompletion};

/// Two sides. The client's send queue is larger than a small CQ.
fn sides() -> (Side, Side) {
    pair_with(&local(), |builder| builder.max_send_wr(16).max_recv_wr(16).overcommit())
}

/// Empty writes, each with its number.
fn write(client: &mut Side, numbers: std::ops::Range<u64>) {
    let memory = client.pd.expose(8, uverbs::AccessFlags::REMOTE_WRITE).unwrap();
    let place = memory.remote(0);
    for number in numbers {
        client.qp.post_write_inline(number, &[], place).unwrap();
    }
}

/// rdmavt carries out a lone work request in the caller's context (`rvt_post_send`).
#[test]
fn a_lone_send_of_rdmavt_completes_in_the_call() {
    if !is_rdmavt() {
        return skip("other devices send on their own");
    }
    let (mut client, _server) = sides();
    for round in 0..50 {
        write(&mut client, round..round + 1);
        assert!(client.cq.poll(1).next().is_some(), "round {round}");
    }
}

/// Takes completions one at a time.
fn take(cq: &mut CompletionQueue, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        let WorkCompletion { id, result, .. } = cq.wait(LIMIT).unwrap();
        result.unwrap();
        numbers.push(id);
    }
    numbers
}

/// Waits until all earlier completions of the client are in its CQ. Empty messages are acknowledged
/// in order, so the arrival of a later message at the server shows it.
fn settle(client: &mut Side, server: &mut Side) {
    server.expect(0, 8);
    client.qp.post_send_inline(u64::MAX, &[1]).unwrap();
    server.done();
    // The acknowledgement may still be on its way.
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn completions_stay_in_turn_whatever_the_size_becomes() {
    let (mut client, mut server) = sides();
    let mut waiting: VecDeque<u64> = VecDeque::new();
    let mut number = 0;
    // Resizes past the end of every ring, with an empty, a short and a long queue.
    for (round, size) in
        [600, 40, 2000, 16, 17, 63, 64, 100, 31, 512, 33].into_iter().cycle().take(66).enumerate()
    {
        let posted = (round as u64 * 5) % 13;
        write(&mut client, number..number + posted);
        waiting.extend(number..number + posted);
        number += posted;
        settle(&mut client, &mut server);
        waiting.push_back(u64::MAX);
        client.cq.resize(size).unwrap();
        assert!(client.cq.capacity() >= size, "{size}");
        // A part now, and the rest behind the next size.
        let count = waiting.len() - round % 3;
        let expected: Vec<_> = waiting.drain(..count).collect();
        assert_eq!(take(&mut client.cq, count), expected, "round {round}, size {size}");
    }
    let count = waiting.len();
    assert_eq!(take(&mut client.cq, count), Vec::from(waiting));
    assert!(client.cq.poll(1).next().is_none());
}

#[test]
fn wide_entries_move_too() {
    if is_plain() {
        return skip("its entries have one size");
    }
    let device = common::device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.completion_queue(64).entry_size(CqeSize::Bytes128).build().unwrap();
    let mut qp = context.queue_pair(&pd, &cq).max_send_wr(16).max_recv_wr(16).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let slab = pd.slab(64, 16).unwrap();
    for round in 0..20u64 {
        for number in 0..8 {
            qp.post_recv(100 + number, slab.take().unwrap()).unwrap();
            qp.post_send_inline(number, &[round as u8; 3]).unwrap();
        }
        let first = take(&mut cq, 1);
        std::thread::sleep(Duration::from_millis(5));
        cq.resize([300, 32][round as usize % 2]).unwrap();
        let mut all = [first, take(&mut cq, 15)].concat();
        all.sort_unstable();
        let expected: Vec<_> = (0..8).chain(100..108).collect();
        assert_eq!(all, expected);
    }
}

#[test]
fn an_armed_queue_tells_in_any_size() {
    let device = common::device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let mut cq = context.completion_queue(64).channel(&channel).build().unwrap();
    let mut qp = context.queue_pair(&pd, &cq).max_send_wr(16).max_recv_wr(16).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let slab = pd.slab(64, 4).unwrap();
    for size in [400, 70, 100, 3000] {
        cq.resize(size).unwrap();
        qp.post_recv(1, slab.take().unwrap()).unwrap();
        cq.arm(Notify::Any).unwrap();
        qp.post_send_inline(2, &[5]).unwrap();
        let event = channel.next_within(LIMIT).unwrap();
        assert!(event.is_of(&cq));
        let mut both = take(&mut cq, 2);
        both.sort_unstable();
        assert_eq!(both, [1, 2]);
    }
}

#[test]
fn bad_sizes_are_refused_and_change_nothing() {
    let (mut client, mut server) = pair_with(&local(), |builder| builder);
    let most = client.context.query_device().unwrap().max_cqe;
    let capacity = client.cq.capacity();
    for size in [0, most + 1, u32::MAX] {
        let error = client.cq.resize(size).unwrap_err();
        assert!(matches!(error, Error::Limit { verb: "resize_cq", .. }), "{size}: {error}");
    }
    // Its queue pair was promised room for 128 sends and as many receives.
    let promised = client.qp.cap().max_send_wr + client.qp.cap().max_recv_wr;
    let error = client.cq.resize(promised / 2).unwrap_err();
    let limit = u64::from(promised);
    assert!(matches!(error, Error::Limit { what: "entries", limit: it, .. } if it == limit));
    assert_eq!(client.cq.capacity(), capacity);
    client.cq.resize(promised).unwrap();
    write(&mut client, 0..5);
    settle(&mut client, &mut server);
    assert_eq!(take(&mut client.cq, 6), [0, 1, 2, 3, 4, u64::MAX]);
    // Once it is gone, anything goes.
    let Side { qp, mut cq, .. } = client;
    drop(qp.destroy().unwrap());
    cq.resize(1).unwrap();
    assert!((1..4).contains(&cq.capacity()));
}

#[test]
fn what_is_in_the_queue_must_fit() {
    let (mut client, mut server) = sides();
    write(&mut client, 0..12);
    settle(&mut client, &mut server);
    let error = client.cq.resize(4).unwrap_err();
    assert_eq!((error.verb(), error.errno()), (Some("resize_cq"), Some(Errno::EINVAL)), "{error}");
    assert_eq!(take(&mut client.cq, 13)[..12], (0..12).collect::<Vec<_>>());
    client.cq.resize(4).unwrap();
    write(&mut client, 0..3);
    assert_eq!(take(&mut client.cq, 3), [0, 1, 2]);
}

#[test]
fn a_queue_that_ignores_overruns_can_not_overflow() {
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let made = context.completion_queue(64).ignore_overrun().build();
    if is_plain() {
        let error = made.unwrap_err();
        let by_name = matches!(error, Error::Unsupported { verb: "create_cq", .. });
        assert!(by_name || error.errno() == Some(Errno::EOPNOTSUPP), "{error}");
        return skip("the device always looks for room");
    }
    let mut cq = made.unwrap();
    let shaped = || context.queue_pair(&pd, &cq).max_send_wr(16).max_recv_wr(8);
    let refused = shaped().overcommit().build().unwrap_err();
    assert!(matches!(refused, Error::Invalid { what: "overcommit", .. }), "{refused}");
    let one = shaped().build().unwrap();
    let load = one.cap().max_send_wr + one.cap().max_recv_wr;
    let fits = cq.capacity() / load;
    let mut others: Vec<_> = (1..fits).map(|_| shaped().build().unwrap()).collect();
    let refused = shaped().build().unwrap_err();
    let (value, limit) = (u64::from((fits + 1) * load), u64::from(cq.capacity()));
    let said =
        matches!(&refused, Error::Limit { value: v, limit: l, .. } if (*v, *l) == (value, limit));
    assert!(said, "{refused}");
    // Completions of the destroyed queue pair may still be in the ring.
    drop(others.pop());
    assert!(shaped().build().is_err());
    assert!(cq.poll(1).next().is_none());
    let again = context.queue_pair(&pd, &cq).max_send_wr(16).max_recv_wr(8).build().unwrap();
    let refused = cq.resize(load).unwrap_err();
    let limit = u64::from(fits * load);
    assert!(matches!(refused, Error::Limit { limit: it, .. } if it == limit), "{refused}");
    drop((others, again, one));
    assert!(cq.poll(1).next().is_none());
    cq.resize(load).unwrap();
}

#[test]
fn shared_receives_can_not_overflow_it_either() {
    if common::not_on_rdmavt("the device always looks for room") {
        return;
    }
    let context = common::device().open().unwrap();
    if common::not_on_rxe("soft-RoCE always looks for room") {
        return;
    }
    let pd = context.alloc_pd().unwrap();
    let cq = context.completion_queue(150).ignore_overrun().build().unwrap();
    // A target of dynamic connections brings its shared queue's completions here.
    let large = context.shared_receive_queue(&pd).max_wr(1000).build().unwrap();
    let refused = context.dc_target(&pd, &cq, &large, 7).unwrap_err();
    assert!(matches!(refused, Error::Limit { verb: "create_qp", .. }), "{refused}");
    // Destroyed queue pairs with unpolled completions count, even if a new SRQ reuses their handle.
    let mut sum = 0;
    let refused = loop {
        let srq = context.shared_receive_queue(&pd).max_wr(60).build().unwrap();
        let shaped = context.queue_pair(&pd, &cq).max_send_wr(1).shared_receives(&srq);
        match shaped.build() {
            Ok(qp) => sum += u64::from(qp.cap().max_send_wr + srq.max_wr()),
            Err(error) => break error,
        }
    };
    let Error::Limit { value, limit, .. } = refused else { panic!("{refused}") };
    assert_eq!(limit, u64::from(cq.capacity()));
    assert!(sum <= limit && value > limit, "{sum}: {refused}");
}

#[test]
fn a_refused_queue_pair_does_not_count() {
    if common::not_on_rdmavt("the device always looks for room") {
        return;
    }
    let context = common::device().open().unwrap();
    if common::not_on_rxe("soft-RoCE always looks for room") {
        return;
    }
    let pd = context.alloc_pd().unwrap();
    let cq = context.completion_queue(64).ignore_overrun().build().unwrap();
    let shaped = |sends| context.queue_pair(&pd, &cq).max_send_wr(sends).max_recv_wr(8).build();
    let one = shaped(16).unwrap();
    for _ in 0..3 {
        let refused = shaped(cq.capacity() - 8).unwrap_err();
        assert!(matches!(refused, Error::Limit { .. }), "{refused}");
    }
    // A queue pair that fits is made, though the CQ was not polled since the refusals.
    drop((shaped(16).unwrap(), one));
}

#[test]
fn an_event_stands_for_many_completions() {
    if !only_on_softhca("the test steps the device") {
        return;
    }
    let hca = SoftHca::builder().stepped().build().unwrap();
    let context = soft(&hca).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let mut cq = context.completion_queue(64).channel(&channel).build().unwrap();
    let mut qp = context.queue_pair(&pd, &cq).max_send_wr(16).max_recv_wr(16).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let memory = pd.expose(8, uverbs::AccessFlags::REMOTE_WRITE).unwrap();
    cq.moderate(3, Duration::ZERO).unwrap();
    cq.arm(Notify::Any).unwrap();
    let told = |qp: &mut uverbs::QueuePair, number| {
        qp.post_write_inline(number, &[], memory.remote(0)).unwrap();
        while hca.step() {}
        channel.try_next().unwrap().is_some()
    };
    assert_eq!([1, 2, 3, 4].map(|number| told(&mut qp, number)), [false, false, true, false]);
    assert_eq!(take(&mut cq, 4), [1, 2, 3, 4]);
    cq.moderate(0, Duration::ZERO).unwrap();
    cq.arm(Notify::Any).unwrap();
    assert!(told(&mut qp, 5), "at once again");
}

#[test]
fn bad_moderations_are_refused() {
    let side = Side::new(&common::device(), &local(), |builder| builder);
    let mut cq = side.cq;
    let long = cq.moderate(1, Duration::from_micros(1 << 16)).unwrap_err();
    assert!(matches!(long, Error::Limit { verb: "modify_cq", value: 65536, .. }), "{long}");
    let most = side.context.query_device().unwrap().max_cq_moderation_period;
    if is_plain() {
        let error = cq.moderate(1, Duration::ZERO).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EOPNOTSUPP));
        return skip("the device tells every completion");
    }
    cq.moderate(u16::MAX, Duration::from_micros(most.into())).unwrap();
    let error = cq.moderate(1, Duration::from_micros(u64::from(most) + 1)).unwrap_err();
    assert_eq!((error.verb(), error.errno()), (Some("modify_cq"), Some(Errno::EINVAL)));
}

/// A device at fault writes successes of a queue pair that isn't there.
#[test]
fn a_completion_that_no_work_request_is_outstanding_for_ends_a_wait() {
    const UIDX: usize = 32;
    if !only_on_softhca("the test writes the device's completions") {
        return;
    }
    let hca = SoftHca::builder().build().unwrap();
    let context = soft(&hca).open_as::<Mlx5>().unwrap();
    let mut cq = context.create_cq(8).unwrap();
    let ring = cq.provider().raw_parts();
    for at in 0..3 {
        let entry = ring.buf.wrapping_add(at * ring.stride);
        // SAFETY: within an entry of the ring, which the device doesn't write to.
        unsafe { entry.wrapping_add(UIDX).cast::<u32>().write(0xff_fff0_u32.to_be()) };
        // SAFETY: within an entry of the ring, which the device doesn't write to.
        unsafe { entry.wrapping_add(ring.stride - 1).write_volatile(0) };
    }
    let error = cq.wait(LIMIT).unwrap_err();
    assert_eq!(error, Error::Unmatched { verb: "poll_cq", count: 3 });
    assert!(error.to_string().contains("3 completions named no outstanding work request"));
    assert_eq!((error.to_errno(), error.verb()), (Errno::EIO, Some("poll_cq")));
    assert_eq!(cq.check(), Ok(()), "it was told");
    let short = Duration::from_millis(1);
    assert!(matches!(cq.wait(short), Err(Error::TimedOut { .. })));
}
