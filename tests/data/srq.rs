//! Shared receive queues: several queue pairs receive into the buffers of one queue, and posted
//! buffers come back in every order of destruction.
#![allow(unsafe_code, reason = "raw posts are part of what is tested")]

use std::collections::HashSet;

use common::{LIMIT, device, done, filled, is_plain, local, pattern};
use uverbs::raw::Sge;
use uverbs::{
    Completed, CompletionQueue, Context, Device, Errno, Frame, GRH_LEN, Local, PostError,
    ProtectionDomain, QueuePair, SharedReceiveQueue, Slab, Status, WorkCompletion,
};

/// A side whose queue pairs receive from one queue.
pub(crate) struct Server {
    // Destroyed in this order; the tests that are about the order take it apart.
    pub(crate) qps: Vec<QueuePair>,
    pub(crate) srq: SharedReceiveQueue,
    pub(crate) cq: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
}

/// A side with one queue pair.
pub(crate) struct Client {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
}

impl Server {
    pub(crate) fn new(device: &Device, max_wr: u32) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(1024).expect("create_cq");
        let srq = context.shared_receive_queue(&pd).max_wr(max_wr).max_sge(2).build();
        Self { qps: Vec::new(), srq: srq.expect("create_srq"), cq, pd, context }
    }

    pub(crate) fn slab(&self, frame_len: usize, count: usize) -> Slab {
        self.pd.slab(frame_len, count).expect("slab")
    }

    /// A queue pair that receives from the shared queue, and its peer.
    pub(crate) fn connect(&mut self, device: &Device) -> Client {
        let qp = self.context.queue_pair(&self.pd, &self.cq).shared_receives(&self.srq);
        let mut qp = qp.build().expect("create_qp");
        let client = Client::to(device, &mut qp);
        self.qps.push(qp);
        client
    }

    pub(crate) fn done(&mut self) -> WorkCompletion {
        done(&mut self.cq)
    }
}

impl Client {
    pub(crate) fn to(device: &Device, peer: &mut QueuePair) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(256).expect("create_cq");
        let mut qp = context.queue_pair(&pd, &cq).build().expect("create_qp");
        let at = qp.prepare(&local()).expect("prepare");
        let there = peer.prepare(&local()).expect("prepare");
        qp.connect(&there).expect("connect");
        peer.connect(&at).expect("connect");
        Self { qp, cq, pd }
    }

    pub(crate) fn filled(&self, len: usize, seed: u8) -> Frame {
        filled(&self.pd, len, seed)
    }

    pub(crate) fn done(&mut self) -> WorkCompletion {
        done(&mut self.cq)
    }
}

/// Frames that can be taken now.
fn free(slab: &Slab) -> usize {
    std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len()
}

#[test]
fn many_queue_pairs_receive_into_one_queue() {
    let device = device();
    let mut server = Server::new(&device, 64);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect(&device)).collect();
    let slab = server.slab(8192, 64);
    for id in 0..64 {
        server.srq.post(id, slab.take().unwrap()).unwrap();
    }
    assert!(server.srq.max_wr() >= 64 && server.srq.max_sge() >= 2);
    // Ten times around the ring, of messages of one packet and of several.
    let mut seen = [0u64; 4];
    for round in 0..160u64 {
        let from = (round * 7 % 4) as usize;
        let (len, seed) = ([1, 100, 4097, 8192][round as usize / 4 % 4], round as u8);
        let frame = clients[from].filled(len, seed);
        clients[from].qp.post_send(round, frame).unwrap();
        let got = server.done();
        assert_eq!((got.result, got.byte_len as usize), (Ok(Completed::Recv), len));
        assert_eq!(got.qpn, server.qps[from].qpn(), "the queue pair that took it");
        seen[from] += 1;
        let frame = got.frame.unwrap();
        assert!(frame[..] == pattern(len, seed)[..], "{len} bytes differ");
        server.srq.post(got.id, frame).unwrap();
        assert_eq!(clients[from].done().id, round);
    }
    assert_eq!(seen, [40; 4]);
    assert_eq!(server.srq.query().unwrap().limit, 0);
}

#[test]
fn receives_come_back_in_any_order_and_none_is_lost() {
    let device = device();
    let mut server = Server::new(&device, 15);
    let most = u64::from(server.srq.max_wr());
    // A second completion queue, so that what the first one has is polled later.
    let mut late = server.context.create_cq(256).unwrap();
    let shared = |cq| server.context.queue_pair(&server.pd, cq).shared_receives(&server.srq);
    let (mut one, mut two) = (shared(&server.cq).build().unwrap(), shared(&late).build().unwrap());
    let mut clients = [Client::to(&device, &mut one), Client::to(&device, &mut two)];
    let slab = server.slab(64, most as usize);
    for round in 0..40 {
        let mut posted = 0;
        while let Some(frame) = slab.take() {
            server.srq.post(posted, frame).unwrap();
            posted += 1;
        }
        assert_eq!(posted, most, "round {round}");
        let rejected = server.srq.post(99, server.slab(64, 1).take().unwrap()).unwrap_err();
        assert_eq!(rejected.error, PostError::Full);
        for turn in 0..most {
            let client = &mut clients[(turn % 2) as usize];
            client.qp.post_send_inline(turn, &turn.to_be_bytes()).unwrap();
            assert_eq!(client.done().id, turn, "acknowledged, so received");
        }
        let mut ids = HashSet::new();
        // The later completions first.
        for turn in (1..most).step_by(2).chain((0..most).step_by(2)) {
            let cq = if turn % 2 == 1 { &mut late } else { &mut server.cq };
            let got = done(cq);
            assert_eq!(got.frame.unwrap()[..], turn.to_be_bytes(), "round {round}");
            ids.insert(got.id);
        }
        assert_eq!(ids.len() as u64, most);
    }
}

#[test]
fn unreliable_queue_pairs_share_it_too() {
    let device = device();
    let mut server = Server::new(&device, 16);
    let begin = || server.context.queue_pair(&server.pd, &server.cq).shared_receives(&server.srq);
    let mut connected = begin().uc().build().unwrap();
    let mut datagrams = begin().ud().build().unwrap();
    let slab = server.slab(GRH_LEN + 64, 4);
    for id in 0..4 {
        server.srq.post(id, slab.take().unwrap()).unwrap();
    }
    let context = device.open().unwrap();
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(512).unwrap());
    let mut uc = context.queue_pair(&pd, &cq).uc().build().unwrap();
    let mut ud = context.queue_pair(&pd, &cq).ud().build().unwrap();
    let (at, there) = (uc.prepare(&local()).unwrap(), connected.prepare(&local()).unwrap());
    uc.connect(&there).unwrap();
    connected.connect(&at).unwrap();
    ud.bring_up(&Local::default()).unwrap();
    let to = datagrams.bring_up(&Local::default()).unwrap();
    let to = ud.destination(&to).unwrap();
    for round in 0..4 {
        let head = if round % 2 == 0 {
            uc.post_send_inline(round, b"to one").unwrap();
            0
        } else {
            let mut batch = ud.batch();
            batch.send_inline_to(round, b"to one", &to).unwrap();
            batch.ring();
            // A datagram's GRH comes first, whichever queue pair used the receive before.
            GRH_LEN
        };
        assert_eq!(done(&mut cq).id, round);
        let got = done(&mut server.cq);
        assert_eq!((got.id, got.byte_len as usize), (round, head + 6));
        assert_eq!(&got.frame.unwrap()[head..], b"to one");
    }
}

#[test]
fn scatter_lists_and_raw_posts() {
    let device = device();
    let mut server = Server::new(&device, 8);
    let mut client = server.connect(&device);
    let slab = server.slab(100, 2);
    let mut two = slab.take().unwrap();
    two.append(slab.take().unwrap());
    server.srq.post(1, two.chain()).unwrap();
    let mut memory = vec![0u8; 256];
    // SAFETY: the memory is a local of this function, and outlives the region.
    let region = unsafe {
        server.pd.register(memory.as_mut_ptr(), 256, uverbs::AccessFlags::LOCAL_WRITE).unwrap()
    };
    let base = memory.as_ptr().expose_provenance() as u64;
    let piece = |at, len| Sge { addr: base + at, len, lkey: region.lkey() };
    let mut batch = server.srq.batch();
    // SAFETY: the region lives until the completion is polled, and is not read meanwhile.
    unsafe { batch.post_raw(2, &[piece(200, 8), piece(0, 100)]) }.unwrap();
    // SAFETY: refused.
    let refused = unsafe { batch.post_raw(3, &[piece(0, 1); 40]) };
    assert_eq!(refused, Err(PostError::TooManySges));
    batch.ring();

    let frame = client.filled(150, 3);
    client.qp.post_send(1, frame).unwrap();
    let got = server.done();
    assert_eq!((got.id, got.byte_len), (1, 150));
    let frame = got.frame.unwrap();
    let whole: Vec<u8> = frame.pieces().flat_map(|piece| piece.to_vec()).collect();
    assert!(whole == pattern(150, 3));

    let frame = client.filled(50, 4);
    client.qp.post_send(2, frame).unwrap();
    let got = server.done();
    assert_eq!((got.id, got.byte_len, got.frame.is_none()), (2, 50, true));
    drop(region);
    assert!([&memory[200..208], &memory[..42]].concat() == pattern(50, 4));
}

#[test]
fn a_batch_that_is_not_rung_is_as_if_never_written() {
    let device = device();
    let mut server = Server::new(&device, 8);
    let mut client = server.connect(&device);
    let slab = server.slab(64, 3);
    let mut batch = server.srq.batch();
    batch.post(1, slab.take().unwrap()).unwrap();
    batch.post(2, slab.take().unwrap()).unwrap();
    drop(batch);
    server.srq.post(3, slab.take().unwrap()).unwrap();
    assert_eq!(free(&slab), 2);
    client.qp.post_send_inline(1, b"x").unwrap();
    assert_eq!(server.done().id, 3);
}

#[test]
fn a_used_queue_is_not_destroyed_and_gives_its_frames_back_later() {
    let device = device();
    let mut server = Server::new(&device, 8);
    let mut client = server.connect(&device);
    let slab = server.slab(64, 4);
    for id in 0..4 {
        server.srq.post(id, slab.take().unwrap()).unwrap();
    }
    let refused = server.srq.destroy().expect_err("a queue pair uses it");
    assert_eq!(refused.error.errno(), Some(Errno::EBUSY));
    server.srq = refused.into_object();
    client.qp.post_send_inline(1, b"still there").unwrap();
    assert_eq!(&server.done().frame.unwrap()[..], b"still there");
    // One more arrives, and isn't polled.
    client.qp.post_send_inline(2, b"late").unwrap();
    client.done();
    client.done();
    for qp in server.qps.drain(..) {
        let gone = qp.destroy().expect("the kernel lets go of it");
        assert!(server.cq.reclaim(&gone).is_empty(), "it had no receives of its own");
    }
    // The completion went with the queue pair, and its buffer went back to its slab.
    assert_eq!(free(&slab), 2);
    let frames = server.srq.destroy().expect("nobody uses it now");
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 3]);
    drop(frames);
    assert_eq!(free(&slab), 4);
}

#[test]
fn a_queue_that_ends_before_its_completions_are_polled_gives_each_frame_once() {
    let device = device();
    let mut server = Server::new(&device, 8);
    let mut client = server.connect(&device);
    let slab = server.slab(64, 3);
    for id in 0..3 {
        server.srq.post(id, slab.take().unwrap()).unwrap();
    }
    client.qp.post_send_inline(1, b"one").unwrap();
    client.done();
    let gone: Vec<_> = server.qps.drain(..).map(|qp| qp.destroy().expect("it goes")).collect();
    // The CQ was not polled: its completion finds the queue gone.
    let frames = server.srq.destroy().expect("nobody uses it now");
    assert_eq!(frames.len(), 3);
    assert!(server.cq.reclaim(&gone[0]).is_empty());
    assert_eq!(server.cq.poll_with(8, |_| ()), 0);
    drop(frames);
    assert_eq!(free(&slab), 3);
}

#[test]
fn every_order_of_drops_frees_everything() {
    let device = device();
    for order in 0..6 {
        let mut server = Server::new(&device, 8);
        let mut client = server.connect(&device);
        let slab = server.slab(64, 4);
        for id in 0..4 {
            server.srq.post(id, slab.take().unwrap()).unwrap();
        }
        client.qp.post_send_inline(1, b"unpolled").unwrap();
        client.done();
        let Server { qps, srq, cq, .. } = server;
        match order {
            0 => {
                drop(srq);
                drop(qps);
                drop(cq);
            }
            1 => {
                drop(srq);
                drop(cq);
                drop(qps);
            }
            2 => {
                drop(qps);
                drop(srq);
                drop(cq);
            }
            3 => {
                drop(qps);
                drop(cq);
                drop(srq);
            }
            4 => {
                drop(cq);
                drop(srq);
                drop(qps);
            }
            _ => {
                drop(cq);
                drop(qps);
                drop(srq);
            }
        }
        assert_eq!(free(&slab), 4, "order {order}");
    }
}

#[test]
fn a_reset_frees_what_its_completions_had_taken() {
    let device = device();
    let mut server = Server::new(&device, 4);
    let most = server.srq.max_wr();
    let mut client = server.connect(&device);
    let slab = server.slab(64, most as usize);
    for round in 0..5 {
        while let Some(frame) = slab.take() {
            server.srq.post(7, frame).unwrap();
        }
        let sent = 2.min(most);
        for _ in 0..sent {
            client.qp.post_send_inline(1, b"lost").unwrap();
            client.done();
        }
        // All the receives are in flight or in completions that go now.
        let mut qp = server.qps.remove(0);
        let frames = qp.reset(&mut [&mut server.cq]).unwrap();
        assert!(frames.is_empty(), "it had none of its own");
        assert_eq!(free(&slab), sent as usize, "round {round}");
        client = Client::to(&device, &mut qp);
        server.qps.push(qp);
    }
    while let Some(frame) = slab.take() {
        server.srq.post(7, frame).unwrap();
    }
    assert!(server.srq.destroy().is_err());
}

#[test]
fn a_queue_pair_without_receives_of_its_own_says_so() {
    let device = device();
    let mut server = Server::new(&device, 4);
    let _client = server.connect(&device);
    let frame = server.slab(64, 1).take().unwrap();
    let rejected = server.qps[0].post_recv(1, frame).unwrap_err();
    assert_eq!(rejected.error, PostError::SharedReceives);
    assert_eq!(server.qps[0].cap().max_recv_wr, 0);
    // A frame of another domain.
    let other = server.context.alloc_pd().unwrap().slab(64, 1).unwrap().take().unwrap();
    assert_eq!(server.srq.post(1, other).unwrap_err().error, PostError::ForeignBuffer);
}

#[test]
fn a_message_that_does_not_fit_fails_its_queue_pair_alone() {
    let device = device();
    let mut server = Server::new(&device, 8);
    let (mut bad, mut good) = (server.connect(&device), server.connect(&device));
    let slab = server.slab(64, 3);
    for id in 0..3 {
        server.srq.post(id, slab.take().unwrap()).unwrap();
    }
    let frame = bad.filled(1000, 1);
    bad.qp.post_send(1, frame).unwrap();
    let failed = server.cq.wait(LIMIT).unwrap();
    // Soft-RoCE and rdmavt call it an operation error.
    let wanted = if is_plain() { Status::LocalQpOperation } else { Status::LocalLength };
    assert_eq!(failed.result.unwrap_err().status, wanted);
    assert_eq!((failed.is_recv, failed.qpn), (true, server.qps[0].qpn()));
    assert!(failed.frame.is_some(), "the buffer is back");
    assert!(bad.cq.wait(LIMIT).unwrap().result.is_err());
    // Other receives belong to no queue pair, and serve the remaining ones.
    good.qp.post_send_inline(2, b"fine").unwrap();
    let got = server.done();
    assert_eq!((&got.frame.unwrap()[..], got.qpn), (&b"fine"[..], server.qps[1].qpn()));
    drop(failed.frame);
    assert_eq!(free(&slab), 2);
}

#[test]
fn queue_pairs_come_and_go_under_load() {
    let device = device();
    let mut server = Server::new(&device, 32);
    let most = server.srq.max_wr() as usize;
    let slab = server.slab(64, most);
    let mut sent = 0;
    for round in 0..12u64 {
        let mut clients: Vec<_> = (0..3).map(|_| server.connect(&device)).collect();
        while let Some(frame) = slab.take() {
            server.srq.post(round, frame).unwrap();
        }
        for turn in 0..8 {
            for client in &mut clients {
                client.qp.post_send_inline(turn, &turn.to_be_bytes()).unwrap();
                sent += 1;
            }
            for client in &mut clients {
                client.done();
            }
        }
        // Some are polled, some go with their queue pairs, and some of the clients go first.
        for _ in 0..round % 5 {
            let got = server.done();
            server.srq.post(round, got.frame.unwrap()).unwrap();
        }
        if round % 2 == 0 {
            clients.clear();
        }
        for qp in server.qps.drain(..) {
            let gone = qp.destroy().expect("it goes");
            assert!(server.cq.reclaim(&gone).is_empty());
        }
    }
    assert_eq!(sent, 12 * 24);
    // No frame was lost: those that are not free are still posted.
    let idle = free(&slab);
    let frames = server.srq.destroy().expect("nobody uses it");
    assert_eq!(frames.len() + idle, most);
}

/// The posting side on one thread, a completion queue each on two others.
#[test]
fn poster_and_pollers_on_threads_of_their_own() {
    const MESSAGES: u64 = 400;
    let device = device();
    let server = Server::new(&device, 16);
    let Server { mut srq, cq, pd, context, .. } = server;
    let other = context.create_cq(256).unwrap();
    let mut ends = Vec::new();
    for cq in [&cq, &other] {
        let shared = context.queue_pair(&pd, cq).shared_receives(&srq);
        let mut qp = shared.build().unwrap();
        let client = Client::to(&device, &mut qp);
        ends.push((qp, client));
    }
    let slab = pd.slab(64, 16).unwrap();
    let (back, frames) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for mut cq in [cq, other] {
            let back = back.clone();
            scope.spawn(move || {
                for turn in 0..MESSAGES {
                    let got = done(&mut cq);
                    let frame = got.frame.unwrap();
                    assert_eq!(frame[..], turn.to_be_bytes());
                    back.send(frame).unwrap();
                }
                cq
            });
        }
        for (_qp, client) in &mut ends {
            scope.spawn(move || {
                for turn in 0..MESSAGES {
                    client.qp.post_send_inline(turn, &turn.to_be_bytes()).unwrap();
                    client.done();
                }
            });
        }
        let mut posted = 0;
        while posted < 2 * MESSAGES {
            let frame = slab.take().unwrap_or_else(|| frames.recv_timeout(LIMIT).unwrap());
            srq.post(posted, frame).unwrap();
            posted += 1;
        }
    });
}

/// Unpolled receives return to the shared queue when the queue pair and the CQ are destroyed.
#[test]
fn receives_that_nobody_polled_come_back_with_their_completion_queue() {
    if is_plain() {
        return common::skip("such receives come back when the shared queue is destroyed");
    }
    let device = device();
    let mut server = Server::new(&device, 4);
    let slab = server.slab(64, 4);
    for round in 0..12 {
        server.cq = server.context.create_cq(256).unwrap();
        let mut client = server.connect(&device);
        server.srq.post(round, slab.take().expect("it came back")).expect("there is room");
        client.qp.post_send_inline(1, b"unpolled").unwrap();
        client.done();
        if round % 2 == 0 {
            server.qps.clear();
            server.cq = server.context.create_cq(256).unwrap();
        } else {
            server.cq = server.context.create_cq(256).unwrap();
            server.qps.clear();
        }
        assert_eq!(free(&slab), 4, "round {round}");
    }
}
