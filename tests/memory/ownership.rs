//! Ownership of memory: leaks, early drops, destruction with work in flight. No step may lose
//! memory that comes back, or give back memory that the device still uses.

use common::{LIMIT, Side, impatient, pair, pair_with, pattern};
use uverbs::{AccessFlags, Batch, Completed, Frame, PostError, QueuePair, Slab, Status};

/// How many frames are free, leaving them so.
fn free(slab: &Slab) -> usize {
    let frames: Vec<Frame> = std::iter::from_fn(|| slab.take()).collect();
    frames.len()
}

#[test]
fn a_batch_that_is_dropped_posts_nothing_and_loses_no_frame() {
    let (mut client, mut server) = pair();
    let slab = client.slab(64, 4);
    server.expect(1, 64);
    for _ in 0..300 {
        let mut batch = client.qp.batch();
        for _ in 0..4 {
            batch.send(9, slab.take().expect("all are back")).unwrap();
        }
        // The next batch takes back the frames of this one.
        let _ = client.qp.batch();
        assert_eq!(free(&slab), 4);
    }
    let mut batch = client.qp.batch();
    batch.send_inline(10, b"only this").unwrap();
    batch.ring();
    assert_eq!(*server.done().frame.unwrap(), *b"only this");
    assert_eq!(client.done().id, 10);
    assert_eq!(client.cq.poll_with(8, |_| ()), 0);
}

/// A batch has no destructor, so forgetting one is the same as dropping it.
const _: () = assert!(!std::mem::needs_drop::<Batch<'_>>());

#[test]
fn receives_that_are_not_rung_are_as_if_never_written() {
    let (mut client, mut server) = pair();
    let slab = server.slab(64, 2);
    for round in 0..300u64 {
        let mut batch = server.qp.recv_batch();
        batch.post(1, slab.take().expect("all are back")).unwrap();
        server.expect(round, 64);
        assert_eq!(free(&slab), 2);
        let mut batch = client.qp.batch();
        batch.send_inline(round, &round.to_ne_bytes()).unwrap();
        batch.ring();
        assert_eq!(server.done().frame.unwrap()[..8], round.to_ne_bytes());
        assert_eq!(client.done().id, round);
    }
}

#[test]
fn a_burst_that_is_forgotten_repeats_no_completion() {
    let (mut client, server) = pair();
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let mut batch = client.qp.batch();
    for id in 0..4 {
        batch.write_inline(id, &[1], memory.remote(0)).unwrap();
    }
    batch.ring();
    let mut ids = Vec::new();
    let started = std::time::Instant::now();
    while ids.len() < 4 && started.elapsed() < LIMIT {
        let mut burst = client.cq.poll(1);
        ids.extend(burst.next().map(|completion| completion.id()));
        std::mem::forget(burst);
    }
    assert_eq!(ids, [0, 1, 2, 3]);
}

#[test]
fn frames_in_flight_come_back_from_a_destroyed_queue_pair() {
    let (client, server) = pair_with(&common::local(), |qp| qp.max_recv_wr(16));
    let Side { mut qp, mut cq, pd, .. } = server;
    let slab = pd.slab(64, 8).unwrap();
    for id in 0..8 {
        qp.post_recv(id, slab.take().unwrap()).unwrap();
    }
    assert_eq!(free(&slab), 0, "the device has them all");
    let gone = qp.destroy().unwrap();
    assert_eq!(free(&slab), 0, "not before they are asked for");
    let frames = cq.reclaim(&gone);
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    assert!(cq.reclaim(&gone).is_empty(), "once only");
    drop(frames);
    assert_eq!(free(&slab), 8);
    drop(client);
}

#[test]
fn sends_in_flight_come_back_too_and_unpolled_completions_are_dropped() {
    let (mut client, mut server) = pair_with(&impatient(), |qp| qp);
    let slab = client.slab(64, 6);
    // Two that arrive, unpolled; then some that wait for a receive.
    server.expect(0, 64);
    server.expect(1, 64);
    let mut batch = client.qp.batch();
    for id in 0..6 {
        batch.send(id, slab.take().unwrap()).unwrap();
    }
    batch.ring();
    server.done();
    server.done();
    let Side { qp, mut cq, .. } = client;
    let gone = qp.destroy().unwrap();
    let frames = cq.reclaim(&gone);
    assert!(frames.len() >= 4 && frames.len() <= 6, "{} frames", frames.len());
    assert_eq!(cq.poll_with(16, |_| ()), 0, "its completions are gone with it");
    drop(frames);
    assert_eq!(free(&slab), 6);
}

#[test]
fn dropping_a_queue_pair_gives_its_frames_back_to_the_slab() {
    let (client, server) = pair();
    let Side { mut qp, mut cq, pd, .. } = server;
    let slab = pd.slab(64, 8).unwrap();
    for id in 0..8 {
        qp.post_recv(id, slab.take().unwrap()).unwrap();
    }
    drop(qp);
    // The polling side is informed at the next empty poll.
    assert_eq!(cq.poll_with(1, |_| ()), 0);
    assert_eq!(free(&slab), 8);
    drop(client);
}

#[test]
fn a_leaked_queue_pair_leaks_its_frames_and_the_device_may_go_on_writing() {
    let (mut client, server) = pair();
    let Side { mut qp, mut cq, pd, context, .. } = server;
    let slab = pd.slab(64, 2).unwrap();
    qp.post_recv(0, slab.take().unwrap()).unwrap();
    qp.post_recv(1, slab.take().unwrap()).unwrap();
    std::mem::forget(qp);
    drop((pd, context));
    let mut batch = client.qp.batch();
    batch.send_inline(1, b"still there").unwrap();
    batch.ring();
    client.done();
    let received = cq.wait(LIMIT).unwrap();
    assert_eq!(*received.frame.unwrap(), *b"still there");
    assert_eq!(free(&slab), 1, "the other one stays with the device");
}

#[test]
fn everything_may_be_dropped_in_any_order_with_work_in_flight() {
    // Six orders of dropping queue pair, completion queue, domain, slab and context.
    for order in 0..6 {
        let (mut client, mut server) = pair();
        let slab = server.slab(4096, 4);
        for id in 0..4 {
            let frame = slab.take().unwrap();
            server.qp.post_recv(id, frame).unwrap();
        }
        let frame = client.filled(4096, 1);
        let mut batch = client.qp.batch();
        batch.send(1, frame).unwrap();
        batch.send_inline(2, b"second").unwrap();
        batch.ring();
        let Side { qp, cq, pd, context, .. } = server;
        match order {
            0 => drop((context, pd, slab, cq, qp)),
            1 => drop((qp, cq, slab, pd, context)),
            2 => drop((cq, qp, context, pd, slab)),
            3 => drop((slab, context, qp, pd, cq)),
            4 => drop((pd, cq, context, slab, qp)),
            _ => drop((cq, slab, pd, context, qp)),
        }
        drop(client);
    }
}

#[test]
fn the_halves_work_on_two_threads_while_a_third_polls() {
    // A device in an emulated kernel is slow, and the limit is one for all of them.
    let count = if common::is_rxe() { 2_000u64 } else { 20_000 };
    let (client, server) = pair();
    let Side { qp, mut cq, pd, .. } = client;
    let (mut sends, receives) = qp.split();
    let Side { qp, cq: mut server_cq, pd: server_pd, .. } = server;
    let (server_sends, mut server_receives) = qp.split();
    std::thread::scope(|scope| {
        // Posts as fast as the ring has room.
        let poster = scope.spawn(move || {
            let slab = pd.slab(8, 64).unwrap();
            let mut progress = std::time::Instant::now();
            let mut next = 0;
            while next < count {
                assert!(progress.elapsed() < LIMIT, "stuck at {next}");
                let Some(mut frame) = slab.take() else {
                    std::thread::yield_now();
                    continue;
                };
                frame.copy_from_slice(&next.to_ne_bytes());
                let mut batch = sends.batch();
                match batch.send(next, frame) {
                    Ok(()) => {
                        batch.ring();
                        next += 1;
                        progress = std::time::Instant::now();
                    }
                    Err(rejected) => assert_eq!(rejected.error, PostError::Full),
                }
            }
            // The queue pair must outlive what it posted: keep it until all is polled.
            (sends, receives)
        });
        let poller = scope.spawn(move || {
            for expected in 0..count {
                let done = cq.wait(LIMIT).unwrap();
                assert_eq!((done.id, done.result), (expected, Ok(Completed::Send)));
            }
        });
        scope.spawn(move || {
            let slab = server_pd.slab(8, 64).unwrap();
            for id in 0..64 {
                server_receives.post(id, slab.take().unwrap()).unwrap();
            }
            for expected in 0..count {
                let done = server_cq.wait(LIMIT).unwrap();
                let frame = done.frame.unwrap();
                assert_eq!(frame[..], expected.to_ne_bytes());
                server_receives.post(done.id, frame).unwrap();
            }
            drop(server_sends);
        });
        poller.join().unwrap();
        drop(poster.join().unwrap());
    });
}

#[test]
fn swapped_halves_are_noticed() {
    let (mut one, mut other) = pair();
    std::mem::swap(one.qp.recv_queue(), other.qp.recv_queue());
    let error = one.qp.destroy().unwrap_err();
    assert!(error.to_string().contains("same queue pair"), "{error}");
    // Frames posted to the swapped halves still belong to the queue pair that they are of.
    let slab = one.pd.slab(64, 1).unwrap();
    let rejected =
        other.qp.post_recv(0, other.pd.slab(64, 1).unwrap().take().unwrap()).unwrap_err();
    assert_eq!(rejected.error, PostError::ForeignBuffer);
    other.qp.post_recv(0, slab.take().unwrap()).unwrap();
}

#[test]
fn a_buffer_of_another_domain_is_refused_and_given_back() {
    let (mut client, server) = pair();
    let frame = server.filled(8, 3);
    let mut batch = client.qp.batch();
    let rejected = batch.send(1, frame).unwrap_err();
    assert_eq!(rejected.error, PostError::ForeignBuffer);
    assert_eq!(*rejected.data, pattern(8, 3)[..]);
}

#[test]
fn failing_a_queue_pair_flushes_everything_and_gives_it_back() {
    if common::not_on_rdmavt("receives posted after a failure are refused") {
        return;
    }
    let (mut client, _server) = pair();
    let slab = client.slab(64, 4);
    for id in 0..4 {
        let frame = slab.take().unwrap();
        client.qp.post_recv(id, frame).unwrap();
    }
    client.qp.fail().unwrap();
    for id in 0..4 {
        let completion = client.wait();
        assert_eq!(completion.id, id);
        assert_eq!(completion.result.unwrap_err().status, Status::Flushed);
        assert!(completion.frame.is_some() && completion.is_recv);
    }
    // Later posts are flushed too.
    let mut batch = client.qp.batch();
    batch.send_inline(9, b"too late").unwrap();
    batch.ring();
    let completion = client.wait();
    assert_eq!((completion.id, completion.is_recv), (9, false));
    assert_eq!(completion.result.unwrap_err().status, Status::Flushed);
    client.qp.post_recv(10, slab.take().unwrap()).unwrap();
    let completion = client.wait();
    assert_eq!((completion.id, completion.is_recv), (10, true));
    assert_eq!(completion.result.unwrap_err().status, Status::Flushed);
}

#[test]
fn what_is_posted_after_the_failure_of_an_idle_queue_pair_is_flushed() {
    if common::not_on_rdmavt("receives posted after a failure are refused") {
        return;
    }
    let (mut client, mut server) = pair();
    client.qp.fail().unwrap();
    client.expect(1, 64);
    let completion = client.wait();
    assert_eq!((completion.id, completion.is_recv), (1, true));
    assert_eq!(completion.result.unwrap_err().status, Status::Flushed);
    server.qp.fail().unwrap();
    for id in 0..20 {
        let mut batch = server.qp.batch();
        batch.send_inline(id, b"too late").unwrap();
        batch.ring();
        let completion = server.wait();
        assert_eq!((completion.id, completion.is_recv), (id, false));
        assert_eq!(completion.result.unwrap_err().status, Status::Flushed);
    }
}

#[test]
fn a_reset_forgets_sends_that_the_peer_never_took() {
    // 3 of 40 runs on Linux 7.2. The cause is not known yet: rxe's timers from before the reset, or
    // this library.
    if common::not_on_rxe(
        "reset in the middle of RNR retries, a connection now and then carries nothing afterwards",
    ) {
        return;
    }
    let (mut client, mut server) = pair();
    for round in 0..3 {
        // No receive is posted, so these are tried again and again.
        let mut batch = client.qp.batch();
        for id in 0..3 {
            batch.send_inline(id, b"stale").unwrap();
        }
        batch.ring();
        std::thread::sleep(std::time::Duration::from_millis(20));
        for side in [&mut client, &mut server] {
            let Side { qp, cq, endpoint, .. } = side;
            drop(qp.reset(&mut [cq]).unwrap());
            *endpoint = qp.prepare(&common::local()).unwrap();
        }
        client.qp.connect(&server.endpoint).unwrap();
        server.qp.connect(&client.endpoint).unwrap();
        server.expect(7, 64);
        let mut batch = client.qp.batch();
        batch.send_inline(8, b"fresh").unwrap();
        batch.ring();
        assert_eq!(*server.done().frame.unwrap(), *b"fresh", "round {round}");
        assert_eq!(client.done().id, 8);
    }
}

#[test]
fn a_reset_queue_pair_starts_over() {
    let device = common::device();
    let (mut client, mut server) = common::pair_on(&device, &device, &common::local(), |qp| qp);
    for round in 0..3u8 {
        // Leave something unpolled and something in flight.
        server.expect(0, 64);
        server.expect(1, 64);
        let frame = client.filled(64, round);
        let mut batch = client.qp.batch();
        batch.send(7, frame).unwrap();
        batch.ring();
        assert_eq!(*server.done().frame.unwrap(), pattern(64, round)[..]);
        let reset = |side: &mut Side| {
            let Side { qp, cq, .. } = side;
            qp.reset(&mut [cq]).unwrap()
        };
        let frames = reset(&mut server);
        assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1]);
        reset(&mut client);
        assert_eq!(client.cq.poll_with(8, |_| ()) + server.cq.poll_with(8, |_| ()), 0);
        client.endpoint = client.qp.prepare(&common::local()).unwrap();
        server.endpoint = server.qp.prepare(&common::local()).unwrap();
        client.qp.connect(&server.endpoint).unwrap();
        server.qp.connect(&client.endpoint).unwrap();
    }
}

#[test]
fn a_reset_wants_both_completion_queues() {
    let (mut client, mut server) = pair();
    let error = client.qp.reset(&mut [&mut server.cq]).unwrap_err();
    assert!(error.to_string().contains("completion queue"), "{error}");
    let _: &QueuePair = &client.qp;
}
