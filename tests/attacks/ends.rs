//! Objects that end in odd orders: queues with unpolled completions, refused destructions,
//! rules of queue pairs that are gone, batches that were never rung, and devices that go.

use std::mem::forget;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{WHILE, free};
use common::{LIMIT, device, done, local, only_on_softhca, pair_on, pair_with, pattern, soft};
use uverbs::flow::{EthMatch, FlowRule, MacAddr};
use uverbs::multicast::MulticastGroup;
use uverbs::packet::RawPacketQueuePair;
use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::tags::{TagMessage, TagMessageKind};
use uverbs::transport::Ud;
use uverbs::{
    AccessFlags, Any, Completed, CompletionQueue, Context, Frame, PostError, ProtectionDomain,
    QueuePair, SharedReceiveQueue, Slab,
};

struct Shared {
    qps: Vec<QueuePair>,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    slab: Slab,
    pd: ProtectionDomain,
    context: Context,
}

impl Shared {
    /// A shared queue with as many queue pairs, each connected to itself.
    fn new(count: usize, frames: usize) -> Self {
        let context = device().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(512).unwrap();
        let srq = context.shared_receive_queue(&pd).max_wr(frames as u32).build().unwrap();
        let qps = (0..count).map(|_| {
            let qp = context.queue_pair(&pd, &cq).shared_receives(&srq).overcommit();
            let mut qp = qp.build().unwrap();
            qp.prepare(&local()).unwrap();
            qp.connect_to_self().unwrap();
            qp
        });
        let qps = qps.collect();
        let slab = pd.slab(64, frames).unwrap();
        Self { qps, srq, cq, slab, pd, context }
    }

    fn fill(&mut self) {
        let mut batch = self.srq.batch();
        while let Some(frame) = self.slab.take() {
            batch.post(1, frame).unwrap();
        }
        batch.ring();
    }
}

/// Receives of a shared queue whose completions were unpolled when their queue pair ended, or
/// was reset, are free again, and so are their frames.
#[test]
fn unpolled_receives_of_a_shared_queue_come_back() {
    if !only_on_softhca("a real device may have taken more receives than it completed") {
        return;
    }
    for resets in [false, true] {
        let mut it = Shared::new(2, 8);
        for _round in 0..5 {
            it.fill();
            let mut qp = it.qps.pop().unwrap();
            for _ in 0..4 {
                qp.post_send_inline(2, b"unpolled").unwrap();
            }
            sleep(WHILE);
            if resets {
                let frames = qp.reset(&mut [&mut it.cq]).unwrap();
                assert!(frames.is_empty());
                drop(frames);
                qp.prepare(&local()).unwrap();
                qp.connect_to_self().unwrap();
                it.qps.insert(0, qp);
            } else {
                drop(qp.destroy().unwrap());
                let next = it.context.queue_pair(&it.pd, &it.cq).shared_receives(&it.srq);
                let mut next = next.overcommit().build().unwrap();
                next.prepare(&local()).unwrap();
                next.connect_to_self().unwrap();
                it.qps.insert(0, next);
            }
            assert!(it.cq.poll(8).next().is_none());
            assert_eq!(free(&it.slab), 4, "resets: {resets}");
        }
        it.qps.clear();
        drop(it.srq.destroy().unwrap());
        assert_eq!(free(&it.slab), 8);
    }
}

/// A destruction that is refused changes nothing: the queue works on.
#[test]
fn a_shared_queue_works_on_after_a_refused_end() {
    let mut it = Shared::new(1, 8);
    it.fill();
    for _ in 0..3 {
        let srq = match it.srq.destroy() {
            Err(refused) => refused.into_object(),
            Ok(_) => panic!("a queue pair uses it"),
        };
        it.srq = srq;
        it.qps[0].post_send_inline(2, b"still there").unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.extend(done(&mut it.cq).frame);
        }
        assert_eq!(*seen[0], *b"still there");
        it.srq.post(1, seen.pop().unwrap()).unwrap();
    }
}

#[test]
fn tags_work_on_after_a_refused_end() {
    if !only_on_softhca("it makes a device that matches tags") {
        return;
    }
    let hca = SoftHca::builder().link(LinkLayer::InfiniBand).build().unwrap();
    let context = soft(&hca).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let (mut cq, sends) = (context.create_cq(512).unwrap(), context.create_cq(512).unwrap());
    let srq = context.shared_receive_queue(&pd).max_wr(15).tags(&cq, 8).build();
    let mut srq = srq.unwrap();
    let mut qp = context.queue_pair(&pd, &sends).shared_receives(&srq).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let slab = pd.slab(64, 8).unwrap();
    srq.add_tag(1, 7, 2, slab.take().unwrap()).unwrap();
    assert_eq!(cq.wait(LIMIT).unwrap().result, Ok(Completed::TagAdded));
    let mut srq = srq.destroy().expect_err("a queue pair uses it").into_object();
    // The queue that changes its list is gone already, as of libmlx5 (`mlx5_destroy_srq`).
    let rejected = srq.add_tag(3, 8, 4, slab.take().unwrap()).unwrap_err();
    assert_eq!(rejected.error, PostError::State);
    // The device still matches the tag.
    let message = TagMessage { kind: TagMessageKind::Eager, app_ctx: 0, tag: 7 };
    qp.post_send_inline(5, &message.to_bytes()).unwrap();
    assert_eq!(cq.wait(LIMIT).unwrap().result, Ok(Completed::TagRecv));
    drop((rejected, qp, srq));
    assert_eq!(free(&slab), 8);
}

/// A rule or a membership that outlives its queue pair leaves the next queue pair's alone.
#[test]
fn what_outlives_its_queue_pair_ends_nothing_elses() {
    if !only_on_softhca("it makes raw packets") {
        return;
    }
    let context = device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(512).unwrap();
    let raw = || {
        let mut raw: RawPacketQueuePair =
            context.queue_pair(&pd, &cq).raw_packet().overcommit().build().unwrap();
        raw.bring_up(1).unwrap();
        raw
    };
    let rule = FlowRule::new()
        .eth(EthMatch { dst: Some(MacAddr([2, 0, 0, 0, 9, 1]).into()), ..EthMatch::default() });
    let mut first = raw();
    let flow = first.steer(&rule).unwrap();
    // The kernel refuses to destroy a queue pair with attachments, so they go first.
    let first = first.destroy().expect_err("a rule is attached").into_object();
    let mut second = raw();
    let other = second.steer(&rule).unwrap();
    drop(first);
    drop(flow);
    assert!(second.steer(&rule).is_err(), "it has the rule still");
    other.destroy().unwrap();
    let mut end: QueuePair<Any, Ud> =
        context.queue_pair(&pd, &cq).ud().overcommit().build().unwrap();
    end.bring_up(&local()).unwrap();
    let group = MulticastGroup { gid: "ff12::9".parse().unwrap(), lid: 0xc009 };
    let member = end.attach(&group).unwrap();
    drop(end.destroy().expect_err("it is a member").into_object());
    let mut next: QueuePair<Any, Ud> =
        context.queue_pair(&pd, &cq).ud().overcommit().build().unwrap();
    next.bring_up(&local()).unwrap();
    let second = next.attach(&group).unwrap();
    member.detach().unwrap();
    second.detach().unwrap();
}

/// Frames of batches that were never rung come back with the end of their queue.
#[test]
fn batches_that_were_never_rung_lose_no_frame() {
    if !only_on_softhca("it makes each kind of queue") {
        return;
    }
    let context = device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(512).unwrap();
    let slab = pd.slab(64, 16).unwrap();
    let frame = || slab.take().unwrap();
    for how in 0..3 {
        let mut qp: QueuePair = context.queue_pair(&pd, &cq).build().unwrap();
        qp.prepare(&local()).unwrap();
        qp.connect_to_self().unwrap();
        let mut batch = qp.batch();
        batch.send(1, frame()).unwrap();
        batch.send(2, frame()).unwrap();
        let _ = batch;
        let mut batch = qp.recv_batch();
        batch.post(3, frame()).unwrap();
        let _ = batch;
        match how {
            0 => drop(qp),
            1 => drop(qp.destroy().unwrap()),
            _ => {
                let (send, recv) = qp.split();
                drop(recv);
                drop(send);
            }
        }
        assert!(cq.poll(1).next().is_none());
        assert_eq!(free(&slab), 16, "queue pair, {how}");
        let mut srq = context.shared_receive_queue(&pd).build().unwrap();
        let mut batch = srq.batch();
        batch.post(3, frame()).unwrap();
        let _ = batch;
        match how {
            0 => drop(srq),
            1 => drop(srq.destroy().unwrap()),
            _ => {
                // Unsupported by some drivers.
                let _ = srq.resize(2 * srq.max_wr());
                srq.post(4, frame()).unwrap();
                drop(srq);
            }
        }
        assert_eq!(free(&slab), 16, "shared queue, {how}");
        let mut wq = context.work_queue(&pd, &cq).build().unwrap();
        wq.start().unwrap();
        let mut batch = wq.batch();
        batch.post(3, frame()).unwrap();
        let _ = batch;
        match how {
            0 => drop(wq),
            1 => drop(wq.destroy().unwrap()),
            _ => {
                drop(wq.reset(&mut cq).unwrap());
                drop(wq);
            }
        }
        assert!(cq.poll(1).next().is_none());
        assert_eq!(free(&slab), 16, "work queue, {how}");
    }
}

/// A device that is unplugged while it writes: frames that came back are not written any more.
#[test]
fn frames_of_a_device_that_went_stay_as_they_are() {
    if !only_on_softhca("the test removes the device") {
        return;
    }
    const LEN: usize = 1 << 20;
    for round in 0..10 {
        let hca = SoftHca::builder().build().unwrap();
        let (mut client, server) = pair_on(&soft(&hca), &soft(&hca), &local(), |qp| qp);
        let memory = server.pd.expose(LEN, AccessFlags::REMOTE_READ).unwrap();
        memory.write(0, &pattern(LEN, 7)).unwrap();
        let slab = client.slab(LEN, 8);
        let mut batch = client.qp.batch();
        for id in 0..8 {
            batch.read(id, slab.take().unwrap(), memory.remote(0)).unwrap();
        }
        batch.ring();
        sleep(Duration::from_micros(200 * round));
        hca.unplug();
        let gone = client.qp.destroy().unwrap();
        let mut frames: Vec<Frame> = Vec::new();
        let mut burst = client.cq.poll(16);
        while let Some(mut completion) = burst.next() {
            frames.extend(completion.take_frame());
        }
        drop(burst);
        frames.extend(client.cq.reclaim(&gone).into_iter().map(|(_, frame)| frame));
        assert_eq!(frames.len(), 8);
        for frame in &mut frames {
            frame.fill(0x5a);
        }
        sleep(Duration::from_millis(5));
        assert!(frames.iter().all(|frame| frame.iter().all(|&byte| byte == 0x5a)), "{round}");
    }
}

/// A queue that shrinks while completions are in hand, or were forgotten, loses none.
#[test]
fn a_queue_that_shrinks_behind_a_forgotten_burst_loses_nothing() {
    if !only_on_softhca("it shrinks with completions in the ring") {
        return;
    }
    for compressed in [false, true] {
        let context = device().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.completion_queue(512);
        let cq = if compressed { cq.compressed() } else { cq };
        let mut cq = cq.build().unwrap();
        let mut qp: QueuePair = context.queue_pair(&pd, &cq).max_send_wr(100).build().unwrap();
        qp.prepare(&local()).unwrap();
        qp.connect_to_self().unwrap();
        let memory = pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
        let (mut id, mut next) = (0, 0);
        for round in 0..40_u32 {
            let mut batch = qp.batch();
            for _ in 0..50 {
                batch.write_inline(id, &[1], memory.remote(0)).unwrap();
                id += 1;
            }
            batch.ring();
            let start = Instant::now();
            let take = |cq: &mut CompletionQueue, next: &mut u64, count: usize, forgotten: bool| {
                let mut burst = cq.poll(count);
                while let Some(completion) = burst.next() {
                    assert_eq!(completion.id(), *next);
                    *next += 1;
                }
                if forgotten {
                    forget(burst);
                }
            };
            sleep(Duration::from_millis(1));
            take(&mut cq, &mut next, 13, true);
            let size = [130, 300, 512, 131][round as usize % 4];
            let told = cq.resize(size);
            assert!(told.is_ok() || size < 200, "{told:?}");
            take(&mut cq, &mut next, 7, round % 3 == 0);
            while next < id {
                assert!(start.elapsed() < LIMIT, "{next} of {id}, round {round}");
                take(&mut cq, &mut next, 20, round % 2 == 0);
            }
        }
    }
}

/// An atomic whose frame has no room for the answer writes nothing beside it.
#[test]
fn an_atomic_writes_no_neighbour_of_a_short_frame() {
    let (mut client, mut server) = pair_with(&local(), |qp| qp);
    for len in [0, 1, 4, 7] {
        let memory = server.pd.expose(64, AccessFlags::REMOTE_ATOMIC).unwrap();
        memory.store(0, u64::MAX).unwrap();
        let slab = client.slab(len.max(1), 16);
        let mut frames: Vec<Frame> = std::iter::from_fn(|| slab.take()).collect();
        for frame in &mut frames {
            frame.fill(0);
        }
        let mut one = frames.remove(3);
        one.set_len(len);
        let mut batch = client.qp.batch();
        match batch.fetch_add(1, one, memory.remote(0), 0) {
            Err(rejected) => assert_eq!(rejected.error, PostError::BadData),
            // Other providers leave it to the device.
            Ok(()) => {
                batch.ring();
                assert!(client.wait().result.is_err());
                (client, server) = pair_with(&local(), |qp| qp);
            }
        }
        assert!(frames.iter().flat_map(|frame| frame.iter()).all(|&byte| byte == 0), "{len}");
    }
}
