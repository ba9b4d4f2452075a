//! Safe programs that try to get at memory which the device has, to lose completions, or to keep
//! frames from coming back.
#![forbid(unsafe_code)]

mod cores;
mod ends;
mod events;
mod foreign;
mod limits;
mod midway;
mod safe_functions;
mod soft;
mod threads;

use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{LIMIT, Side, device, pair, pair_with};
use uverbs::attr::InitAttr;
use uverbs::memory::SharedFrame;
use uverbs::{AccessFlags, CompletionQueue, Context, Frame, QueuePair, Slab};

/// Long enough for the device to carry out all work requests.
const WHILE: Duration = Duration::from_millis(100);

fn free(slab: &Slab) -> usize {
    std::iter::from_fn(|| slab.take()).collect::<Vec<Frame>>().len()
}

/// A context, a completion queue of `entries`, and as many queue pairs in INIT.
fn some<const N: usize>(entries: u32) -> (Context, CompletionQueue, [QueuePair; N], Slab) {
    let context = device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(entries).unwrap();
    let qps = std::array::from_fn(|_| {
        let mut qp = context.queue_pair(&pd, &cq).overcommit().build().unwrap();
        qp.init(&InitAttr { port: 1, pkey_index: 0, access: AccessFlags::empty() }).unwrap();
        qp
    });
    let slab = pd.slab(64, 8).unwrap();
    (context, cq, qps, slab)
}

/// Posts a receive and flushes it, which leaves a completion unpolled.
fn flush(qp: &mut QueuePair, id: u64, slab: &Slab) {
    qp.post_recv(id, slab.take().unwrap()).unwrap();
    qp.fail().unwrap();
    sleep(WHILE);
}

#[test]
fn a_queue_pair_that_came_and_went_between_two_polls_takes_no_others_completion_along() {
    let (_context, mut cq, [mut a, mut b], slab) = some(16);
    flush(&mut a, 1, &slab);
    flush(&mut b, 2, &slab);
    drop(a);
    assert_eq!(cq.wait(LIMIT).unwrap().id, 2);
}

#[test]
fn the_consumer_never_passes_the_producer() {
    let (context, mut cq, [mut a], slab) = some(16);
    flush(&mut a, 1, &slab);
    drop(a);
    assert_eq!(cq.poll_with(8, |_| ()), 0);
    let pd = context.alloc_pd().unwrap();
    let mut b = context.queue_pair(&pd, &cq).overcommit().build().unwrap();
    b.init(&InitAttr { port: 1, pkey_index: 0, access: AccessFlags::empty() }).unwrap();
    flush(&mut b, 2, &pd.slab(64, 1).unwrap());
    assert_eq!(cq.wait(LIMIT).unwrap().id, 2);
}

#[test]
fn an_entry_stays_the_programs_while_its_completion_lives() {
    // A ring of two entries, full; learning that `a` is gone frees one, and `c` has a completion
    // for it.
    let (_context, mut cq, [mut a, mut b, mut c], slab) = some(1);
    flush(&mut b, 0, &slab);
    flush(&mut a, 1, &slab);
    drop(a);
    let mut burst = cq.poll(1);
    let completion = burst.next().expect("the flushed receive of b");
    assert_eq!(completion.qpn(), b.qpn());
    flush(&mut c, 9, &slab);
    assert_eq!(completion.qpn(), b.qpn(), "overwritten with one of {:#x}", c.qpn());
}

#[test]
fn a_reset_leaves_other_completion_queues_alone() {
    let (mut one, _peer) = pair();
    let (mut other, _other_peer) = pair();
    let slab = other.slab(64, 1);
    flush(&mut other.qp, 5, &slab);
    drop(one.qp.reset(&mut [&mut one.cq, &mut other.cq]).unwrap());
    assert_eq!(other.cq.wait(LIMIT).unwrap().id, 5);
}

#[test]
fn a_burst_without_end_gives_entries_back_on_the_way() {
    let (mut client, server) = pair();
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let to = memory.remote(0);
    let Side { qp, cq, context, .. } = &mut client;
    let goal = 4 * u64::from(cq.capacity());
    let mut batch = qp.batch();
    for id in 0..32 {
        batch.write_inline(id, &[1], to).unwrap();
    }
    batch.ring();
    let (mut seen, mut posted) = (0, 32);
    let started = Instant::now();
    while seen < posted {
        assert!(started.elapsed() < LIMIT, "{seen} of {posted}");
        let mut burst = cq.poll(usize::MAX);
        // The burst goes on for as long as there is something within a moment.
        let mut moment = Instant::now();
        while moment.elapsed() < Duration::from_millis(2) {
            let Some(completion) = burst.next() else { continue };
            completion.result().unwrap();
            moment = Instant::now();
            seen += 1;
            if posted < goal {
                let mut batch = qp.batch();
                batch.write_inline(posted, &[1], to).unwrap();
                batch.ring();
                posted += 1;
            }
        }
    }
    assert_eq!(seen, goal);
    assert_eq!(context.async_event(Duration::ZERO).unwrap(), None, "the queue never overran");
}

#[test]
fn a_burst_that_posts_for_each_completion_never_overruns() {
    if common::not_on_rxe(
        "its kernel looks at receives when a packet comes, and flushes none before",
    ) {
        return;
    }
    for entries in [1, 2, 3, 7, 15, 16, 31, 100] {
        let context = device().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut cq = context.create_cq(entries).unwrap();
        let room = cq.capacity();
        assert!(room >= entries);
        let mut qp = context.queue_pair(&pd, &cq).max_recv_wr(room).overcommit().build().unwrap();
        qp.init(&InitAttr { port: 1, pkey_index: 0, access: AccessFlags::empty() }).unwrap();
        // A queue pair in error completes each receive at once.
        qp.fail().unwrap();
        let slab = pd.slab(8, room as usize).unwrap();
        while let Some(frame) = slab.take() {
            qp.post_recv(0, frame).unwrap();
        }
        let (mut left, started) = (3 * room, Instant::now());
        let mut burst = cq.poll(usize::MAX);
        while left > 0 {
            assert!(started.elapsed() < LIMIT, "{left} left of {entries} entries");
            let frame = burst.next().and_then(|mut completion| completion.take_frame());
            if let Some(frame) = frame {
                qp.post_recv(0, frame).unwrap();
                left -= 1;
                // Until the device has written as many as it can.
                sleep(Duration::from_millis(2));
            }
        }
        drop(burst);
        assert_eq!(context.async_event(Duration::ZERO).unwrap(), None, "{entries} entries");
    }
}

#[test]
fn as_many_sends_as_the_queue_has_never_overrun_a_completion_queue_of_that_size() {
    let (mut client, server) = pair_with(&common::local(), |qp| qp.max_send_wr(256));
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    assert!(client.qp.cap().max_send_wr <= client.cq.capacity());
    let mut batch = client.qp.batch();
    let mut posted = 0;
    while batch.write_inline(posted, &[1], memory.remote(0)).is_ok() {
        posted += 1;
    }
    batch.ring();
    assert_eq!(posted, client.qp.cap().max_send_wr.into(), "small ones aren't more");
    sleep(WHILE);
    for id in 0..posted {
        assert_eq!(client.done().id, id);
    }
}

#[test]
fn frames_come_back_although_the_completion_queue_was_dropped_and_others_use_it() {
    let (_context, cq, [mut a, b], slab) = some(16);
    for id in 0..8 {
        a.post_recv(id, slab.take().unwrap()).unwrap();
    }
    drop(cq);
    drop(a);
    assert_eq!(free(&slab), 8);
    drop(b);
}

#[test]
fn frames_come_back_although_the_completion_queue_is_never_empty() {
    let (mut client, server) = pair();
    let slab = client.slab(64, 1);
    let mut gone = client.context.queue_pair(&client.pd, &client.cq).build().unwrap();
    gone.init(&InitAttr { port: 1, pkey_index: 0, access: AccessFlags::empty() }).unwrap();
    gone.post_recv(0, slab.take().unwrap()).unwrap();
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let mut batch = client.qp.batch();
    for id in 0..8 {
        batch.write_inline(id, &[1], memory.remote(0)).unwrap();
    }
    batch.ring();
    client.done();
    drop(gone);
    sleep(WHILE);
    client.done();
    assert_eq!(free(&slab), 1);
}

#[test]
fn halves_swapped_as_a_pair_take_their_context_along() {
    let (mut one, _peer) = pair();
    let (mut other, _other_peer) = pair();
    std::mem::swap(one.qp.send_queue(), other.qp.send_queue());
    std::mem::swap(one.qp.recv_queue(), other.qp.recv_queue());
    drop(one.qp.reset(&mut [&mut other.cq]).unwrap());
    let endpoint = one.qp.prepare(&common::local()).unwrap();
    assert_eq!((endpoint.gid, endpoint.qpn), (other.endpoint.gid, other.endpoint.qpn));
}

#[test]
fn halves_join_again_and_only_their_own() {
    let (one, mut peer) = pair();
    let (other, _other_peer) = pair();
    let (send, recv) = one.qp.split();
    let (other_send, other_recv) = other.qp.split();
    let (send, other_recv) = QueuePair::join(send, other_recv).unwrap_err();
    drop(QueuePair::join(other_send, other_recv).unwrap());
    let mut qp = QueuePair::join(send, recv).unwrap();
    peer.expect(1, 64);
    let mut batch = qp.batch();
    batch.send_inline(1, b"together").unwrap();
    batch.ring();
    assert_eq!(*peer.done().frame.unwrap(), *b"together");
    assert_eq!(one.cq.capacity(), peer.cq.capacity());
}

#[test]
fn what_was_never_rung_is_not_in_flight() {
    let (client, server) = pair();
    let Side { mut qp, mut cq, pd, .. } = server;
    let slab = pd.slab(64, 2).unwrap();
    qp.post_recv(1, slab.take().unwrap()).unwrap();
    let mut batch = qp.recv_batch();
    batch.post(2, slab.take().unwrap()).unwrap();
    let gone = qp.destroy().unwrap();
    let frames = cq.reclaim(&gone);
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1]);
    drop(frames);
    assert_eq!(free(&slab), 2);
    drop(client);
}

#[test]
fn exposed_memory_may_go_while_a_peer_writes_to_it() {
    for _ in 0..10 {
        let (mut client, server) = pair();
        let memory = server.pd.expose(1 << 20, AccessFlags::REMOTE_WRITE).unwrap();
        let slab = client.slab(1 << 20, 4);
        let to = memory.remote(0);
        let mut batch = client.qp.batch();
        for id in 0..4 {
            batch.write(id, slab.take().unwrap(), to).unwrap();
        }
        batch.ring();
        drop(memory);
        let others = vec![0u8; 1 << 20];
        for _ in 0..4 {
            client.wait();
        }
        assert!(others.iter().all(|&byte| byte == 0), "the device wrote into others' memory");
    }
}

#[test]
fn a_shared_frame_is_never_got_writable_from_a_queue() {
    let (mut client, mut server) = pair();
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let slab = client.slab(64, 1);
    let shared = slab.take().unwrap().share();
    // By a completion, after a failure, from a batch that is forgotten, and from a queue pair that
    // is destroyed.
    let mut batch = client.qp.batch();
    batch.write(0, shared.clone(), memory.remote(0)).unwrap();
    batch.write(1, shared.clone(), memory.remote(1 << 30)).unwrap();
    batch.send(2, shared.clone()).unwrap();
    batch.ring();
    for _ in 0..3 {
        assert!(client.wait().frame.is_none());
    }
    let mut batch = client.qp.batch();
    batch.send(3, shared.clone()).unwrap();
    batch.ring();
    let mut batch = client.qp.batch();
    batch.send(4, shared.clone()).unwrap();
    let gone = client.qp.destroy().unwrap();
    assert!(client.cq.reclaim(&gone).is_empty());
    assert!(shared.try_into_frame().is_ok(), "all handles came back");
    server.qp.fail().unwrap();
}

#[test]
fn a_handle_that_was_forgotten_keeps_its_frame_from_everybody() {
    let (client, _server) = pair();
    let slab = client.slab(64, 2);
    let shared = slab.take().unwrap().share();
    std::mem::forget(shared.clone());
    let shared: SharedFrame = shared.try_into_frame().unwrap_err();
    let bytes = shared.to_vec();
    drop(shared);
    let mut other = slab.take().unwrap();
    other.fill(9);
    assert!(slab.take().is_none());
    assert_eq!(bytes, [0; 64]);
}
