//! Data of safe posts other than one whole frame: parts, chains, shared frames and exposed memory.
#![forbid(unsafe_code)]

use common::{Side, pair, pair_with, pattern};
use uverbs::{
    AccessFlags, Completed, ExposedMemory, Frame, PostError, ProtectionDomain, QueuePairBuilder,
    Slab, Wr,
};

fn free(slab: &Slab) -> usize {
    std::iter::from_fn(|| slab.take()).collect::<Vec<Frame>>().len()
}

/// A frame that shows `bytes` of `slab`.
fn with(slab: &Slab, bytes: &[u8]) -> Frame {
    let mut frame = slab.take().unwrap();
    frame.set_len(bytes.len());
    frame.copy_from_slice(bytes);
    frame
}

/// A chain of whole frames of `slab`.
fn chain(slab: &Slab, frames: usize) -> Frame {
    let mut first = slab.take().unwrap();
    for _ in 1..frames {
        first.append(slab.take().unwrap());
    }
    first
}

fn bytes(frame: &Frame) -> Vec<u8> {
    frame.pieces().flat_map(|piece| piece.iter().copied()).collect()
}

fn lists() -> (Side, Side) {
    let shape = |qp: QueuePairBuilder| qp.max_send_sge(4).max_recv_sge(4);
    pair_with(&common::local(), shape)
}

/// All of exposed memory.
fn dump(memory: &ExposedMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_part_is_sent_alone_and_all_of_the_frame_comes_back() {
    let (mut client, mut server) = pair();
    for (id, (part, wanted)) in
        [(40..90, 40..90), (90..200, 90..100), (100..101, 0..0), (0..1, 0..1)]
            .into_iter()
            .enumerate()
    {
        server.expect(id as u64, 100);
        let mut batch = client.qp.batch();
        batch.send(id as u64, client_frame(&client.pd).part(part)).unwrap();
        batch.ring();
        assert_eq!(server.done().frame.unwrap()[..], pattern(100, 3)[wanted]);
        assert_eq!(client.done().frame.unwrap()[..], pattern(100, 3));
    }
}

fn client_frame(pd: &ProtectionDomain) -> Frame {
    with(&pd.slab(100, 1).unwrap(), &pattern(100, 3))
}

#[test]
fn what_was_received_is_sent_on_without_its_first_bytes() {
    let (mut client, mut server) = pair();
    let slab = server.slab(128, 1);
    server.qp.post_recv(1, slab.take().unwrap()).unwrap();
    let mut batch = client.qp.batch();
    batch.send_inline(1, &pattern(48, 9)).unwrap();
    batch.ring();
    client.done();
    let frame = server.done().frame.unwrap();
    client.expect(2, 128);
    let mut batch = server.qp.batch();
    batch.send(2, frame.part(40..)).unwrap();
    batch.ring();
    assert_eq!(client.done().frame.unwrap()[..], pattern(48, 9)[40..]);
    // A receive takes all of it again.
    let frame = server.done().frame.unwrap();
    server.qp.post_recv(3, frame).unwrap();
    let mut batch = client.qp.batch();
    batch.send_inline(3, &pattern(64, 4)).unwrap();
    batch.ring();
    assert_eq!(server.done().frame.unwrap()[..], pattern(64, 4));
}

#[test]
fn a_read_fills_the_part_and_nothing_else() {
    let (mut client, server) = pair();
    let memory = server.pd.expose(64, AccessFlags::REMOTE_READ).unwrap();
    memory.write(0, &pattern(64, 5)).unwrap();
    let frame = client.filled(64, 1);
    let mut batch = client.qp.batch();
    batch.read(1, frame.part(8..24), memory.remote(32)).unwrap();
    batch.ring();
    let frame = client.done().frame.unwrap();
    let mut wanted = pattern(64, 1);
    wanted[8..24].copy_from_slice(&pattern(64, 5)[32..48]);
    assert_eq!(frame[..], wanted);
}

#[test]
fn a_chain_goes_as_one_message_and_comes_back_as_one() {
    let (mut client, mut server) = lists();
    let (from, to) = (client.slab(64, 8), server.slab(32, 8));
    let mut message = with(&from, &pattern(10, 1));
    message.append(with(&from, &pattern(64, 2)));
    message.append(with(&from, &pattern(7, 3)));
    let wanted = bytes(&message);
    assert_eq!((wanted.len(), message.total_len()), (81, 81));
    server.qp.post_recv(1, chain(&to, 4).chain()).unwrap();
    let mut batch = client.qp.batch();
    batch.send(1, message.chain()).unwrap();
    batch.ring();
    let got = server.done().frame.unwrap();
    assert_eq!(got.pieces().map(|piece| piece.len()).collect::<Vec<_>>(), [32, 32, 17, 0]);
    assert_eq!(bytes(&got), wanted);
    let back = client.done().frame.unwrap();
    assert_eq!(bytes(&back), wanted);
    drop((got, back));
    assert_eq!((free(&from), free(&to)), (8, 8));
}

#[test]
fn a_read_is_scattered_over_a_chain() {
    let (mut client, server) = lists();
    let memory = server.pd.expose(128, AccessFlags::REMOTE_READ).unwrap();
    memory.write(0, &pattern(128, 5)).unwrap();
    let slab = client.slab(50, 3);
    let mut into = chain(&slab, 3);
    into.set_len(28);
    let mut batch = client.qp.batch();
    batch.read(1, into.chain(), memory.remote(0)).unwrap();
    batch.ring();
    let frame = client.done().frame.unwrap();
    assert_eq!(bytes(&frame), pattern(128, 5));
}

#[test]
fn more_frames_than_the_queue_was_made_for_come_back() {
    let (mut client, mut server) = lists();
    let slab = client.slab(8, 40);
    for frames in [client.qp.cap().max_send_sge as usize + 1, 40] {
        let mut batch = client.qp.batch();
        let rejected = batch.send(1, chain(&slab, frames).chain()).unwrap_err();
        assert_eq!(rejected.error, PostError::TooManySges);
        assert_eq!(rejected.data.of.pieces().count(), frames);
        drop(rejected);
        batch.ring();
    }
    assert_eq!(free(&slab), 40);
    let slab = server.slab(8, 40);
    let rejected = server.qp.post_recv(1, chain(&slab, 40).chain()).unwrap_err();
    assert_eq!((rejected.error, rejected.data.of.pieces().count()), (PostError::TooManySges, 40));
}

#[test]
fn a_frame_of_another_domain_in_a_chain_is_refused() {
    let (mut client, server) = lists();
    let (own, foreign) = (client.slab(8, 2), server.slab(8, 1));
    let mut frame = chain(&own, 2);
    // Put there by exchange, not by `append`.
    *frame.rest_mut().unwrap() = foreign.take().unwrap();
    let mut batch = client.qp.batch();
    let rejected = batch.send(1, frame.chain()).unwrap_err();
    assert_eq!(rejected.error, PostError::ForeignBuffer);
    batch.ring();
}

#[test]
fn unsignaled_flushed_and_never_rung_chains_come_back_whole() {
    let (mut client, mut server) = lists();
    let slab = client.slab(8, 12);
    server.expect(1, 64);
    server.expect(2, 64);
    let mut batch = client.qp.batch();
    batch.send(Wr::new(1).unsignaled(), chain(&slab, 3).chain()).unwrap();
    batch.send(2, chain(&slab, 3).chain()).unwrap();
    batch.ring();
    assert_eq!(client.done().frame.unwrap().pieces().count(), 3);
    assert_eq!(free(&slab), 12);
    let mut batch = client.qp.batch();
    batch.send(3, chain(&slab, 4).chain()).unwrap();
    let _ = client.qp.batch();
    assert_eq!(free(&slab), 12);
    client.qp.post_recv(4, chain(&slab, 4).chain()).unwrap();
    let gone = client.qp.destroy().unwrap();
    let frames = client.cq.reclaim(&gone);
    assert_eq!(
        frames.iter().map(|(id, frame)| (*id, frame.pieces().count())).collect::<Vec<_>>(),
        [(4, 4)]
    );
}

#[test]
fn a_receive_fills_all_of_a_frame_and_one_that_fails_leaves_it_as_it_was() {
    let (mut client, mut server) = pair();
    let slab = server.pd.slab(100, 2).unwrap();
    for id in 0..2 {
        server.qp.post_recv(id, with(&slab, b"short")).unwrap();
    }
    let text = pattern(100, 1);
    let whole = with(&client.pd.slab(100, 1).unwrap(), &text);
    client.qp.post_send(7, whole).unwrap();
    client.done().result.unwrap();
    let done = server.wait();
    assert_eq!(done.result, Ok(Completed::Recv));
    assert_eq!(*done.frame.unwrap(), text[..]);
    server.qp.fail().unwrap();
    let done = server.wait();
    assert!(done.result.is_err());
    assert_eq!(*done.frame.unwrap(), b"short"[..]);
}

#[test]
fn one_frame_is_sent_to_many_and_is_free_when_all_are_done() {
    let (mut client, mut server) = pair();
    let slab = client.slab(64, 1);
    let shared = with(&slab, &pattern(64, 7)).share();
    for id in 0..5 {
        server.expect(id, 64);
    }
    let mut batch = client.qp.batch();
    for id in 0..5 {
        batch.send(id, shared.clone()).unwrap();
    }
    batch.ring();
    assert_eq!(*shared, pattern(64, 7)[..], "readable meanwhile");
    for id in 0..5 {
        let done = client.done();
        assert_eq!((done.id, done.frame.is_none()), (id, true), "a shared frame isn't handed out");
        assert_eq!(server.done().frame.unwrap()[..], pattern(64, 7));
    }
    let mut frame = shared.try_into_frame().unwrap();
    frame.fill(0);
    let shared = frame.share();
    // The peer's domain is another one.
    let other = server.qp.batch().send(1, shared.clone()).unwrap_err();
    assert_eq!(other.error, PostError::ForeignBuffer);
    assert!(shared.try_into_frame().is_err(), "the rejected handle is one");
    drop(other);
    assert_eq!(free(&slab), 1);
}

#[test]
fn a_shared_frame_in_flight_is_never_writable() {
    let (mut client, server) = pair();
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let slab = client.slab(64, 1);
    let shared = with(&slab, &pattern(64, 7)).share();
    let mut batch = client.qp.batch();
    batch.write(1, shared.clone(), memory.remote(0)).unwrap();
    let shared = shared.try_into_frame().unwrap_err();
    batch.ring();
    // Not polled: the post still has its handle.
    let shared = shared.try_into_frame().unwrap_err();
    assert!(client.done().frame.is_none());
    assert!(shared.try_into_frame().is_ok());
    assert_eq!(dump(&memory), pattern(64, 7));
}

#[test]
fn a_shared_frame_is_sent_in_parts_and_chained() {
    let (mut client, mut server) = lists();
    let slab = client.slab(64, 2);
    let mut frame = with(&slab, &pattern(64, 7));
    frame.append(with(&slab, &pattern(10, 8)));
    let shared = frame.share();
    server.expect(1, 64);
    server.expect(2, 128);
    let mut batch = client.qp.batch();
    batch.send(1, shared.clone().part(..=3)).unwrap();
    batch.send(2, shared.clone().chain()).unwrap();
    batch.ring();
    assert_eq!(server.done().frame.unwrap()[..], pattern(64, 7)[..4]);
    assert_eq!(server.done().frame.unwrap()[..], [pattern(64, 7), pattern(10, 8)].concat());
    client.done();
    client.done();
    assert_eq!(shared.try_into_frame().unwrap().pieces().count(), 2);
}

#[test]
fn a_shared_chain_with_a_forgotten_handle_is_never_free() {
    let (client, _server) = lists();
    let slab = client.slab(8, 3);
    let shared = chain(&slab, 2).share();
    std::mem::forget(shared.clone());
    drop(shared);
    assert_eq!(free(&slab), 1);
}

#[test]
fn exposed_memory_is_a_source_and_a_target() {
    let (mut client, mut server) = pair();
    let rights = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let (own, peers) =
        (client.pd.expose(64, rights).unwrap(), server.pd.expose(64, rights).unwrap());
    own.write(0, &pattern(64, 1)).unwrap();
    peers.store(40, 1000).unwrap();
    let mut batch = client.qp.batch();
    batch.write(1, own.part(0, 16).unwrap(), peers.remote(8)).unwrap();
    batch.read(2, own.part(32, 8).unwrap(), peers.remote(8)).unwrap();
    if !common::is_rxe() {
        batch.fetch_add(3, own.part(48, 16).unwrap(), peers.remote(40), 5).unwrap();
    }
    batch.ring();
    let mut wanted = pattern(64, 1);
    wanted[32..40].copy_from_slice(&pattern(64, 1)[..8]);
    for id in 1..=2 {
        let done = client.done();
        assert_eq!((done.id, done.frame.is_none()), (id, true));
    }
    if !common::is_rxe() {
        assert_eq!(client.done().result, Ok(Completed::FetchAdd));
        assert_eq!((own.load(48), peers.load(40)), (Ok(1000), Ok(1005)));
        wanted[48..56].copy_from_slice(&1000u64.to_ne_bytes());
    }
    assert_eq!(dump(&own), wanted);
    // Received into, too.
    server.qp.post_recv(4, peers.part(0, 64).unwrap()).unwrap();
    let mut batch = client.qp.batch();
    batch.send(4, own.part(0, 10).unwrap()).unwrap();
    batch.ring();
    let got = server.done();
    assert_eq!((got.byte_len, got.frame.is_none()), (10, true));
    assert_eq!(dump(&peers)[..10], wanted[..10]);
    assert!(own.part(60, 5).is_err());
    let foreign = client.qp.batch().send(5, peers.part(0, 1).unwrap()).unwrap_err();
    assert_eq!(foreign.error, PostError::ForeignBuffer);
    let short = client.qp.batch().fetch_add(6, own.part(0, 7).unwrap(), peers.remote(0), 1);
    assert_eq!(short.unwrap_err().error, PostError::BadData);
}

#[test]
fn exposed_memory_may_go_while_it_is_read_into() {
    for _ in 0..10 {
        let (mut client, server) = pair();
        let peers = server.pd.expose(1 << 20, AccessFlags::REMOTE_READ).unwrap();
        peers.write(0, &vec![7; 1 << 20]).unwrap();
        let own = client.pd.expose(1 << 20, AccessFlags::empty()).unwrap();
        let mut batch = client.qp.batch();
        for id in 0..4 {
            batch.read(id, own.part(0, 1 << 20).unwrap(), peers.remote(0)).unwrap();
        }
        batch.ring();
        drop(own);
        let others = vec![0u8; 1 << 20];
        for _ in 0..4 {
            client.done();
        }
        assert!(others.iter().all(|&byte| byte == 0), "the device wrote into others' memory");
    }
}

#[test]
fn a_long_chain_is_dropped_without_a_deep_stack() {
    let (client, _server) = pair();
    let slab = client.slab(1, 100_000);
    let mut first: Option<Frame> = None;
    while let Some(mut frame) = slab.take() {
        if let Some(rest) = first.take() {
            frame.append(rest);
        }
        first = Some(frame);
    }
    assert_eq!(first.as_ref().map(Frame::total_len), Some(100_000));
    drop(first);
    assert_eq!(free(&slab), 100_000);
}
