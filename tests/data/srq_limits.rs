//! Limits of shared receive queues: sizes, and the event of few receives.

use std::time::{Duration, Instant};

use common::{LIMIT, device, is_plain};
use uverbs::Error;
use uverbs::attr::SrqAttr;
use uverbs::event::{AsyncElement, AsyncEventKind};

use crate::srq::Server;

/// Waits for an event of the shared queue.
fn limit_event(server: &Server) -> bool {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        let event = server.context.async_event(Duration::from_millis(200)).unwrap();
        if let Some(event) = event
            && event.element == AsyncElement::Srq(server.srq.event_id())
        {
            assert_eq!(event.kind, AsyncEventKind::SrqLimitReached);
            return true;
        }
    }
    false
}

#[test]
fn the_limit_is_told_once_each_time_it_is_set() {
    let device = device();
    let mut server = Server::new(&device, 16);
    let mut client = server.connect(&device);
    let slab = server.slab(64, 16);
    let SrqAttr { max_wr, limit, .. } = server.srq.query().unwrap();
    assert_eq!((max_wr, limit), (server.srq.max_wr(), 0));
    for round in 0..3 {
        while let Some(frame) = slab.take() {
            server.srq.post(0, frame).unwrap();
        }
        server.srq.set_limit(13).unwrap();
        assert_eq!(server.srq.query().unwrap().limit, 13);
        for sent in 0..6 {
            client.qp.post_send_inline(1, b"x").unwrap();
            client.done();
            drop(server.done());
            if sent == 1 {
                assert_eq!(server.srq.query().unwrap().limit, 13, "14 are left");
            }
        }
        assert!(limit_event(&server), "round {round}");
        assert_eq!(server.srq.query().unwrap().limit, 0, "told, and forgotten");
    }
    assert_eq!(server.context.async_event(Duration::ZERO).unwrap(), None, "once each");
    let most = server.srq.max_wr();
    match server.srq.set_limit(most + 1) {
        Err(Error::Limit { verb, what, value, limit }) => {
            assert_eq!((verb, what), ("modify_srq", "limit"));
            assert_eq!((value, limit), (u64::from(most) + 1, u64::from(most)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_limit_may_be_set_from_the_beginning() {
    let device = device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let srq = context.shared_receive_queue(&pd).max_wr(10).limit(4).build().unwrap();
    assert_eq!(srq.query().unwrap().limit, 4);
}

/// The value that a refusal names.
fn limit_of<T: std::fmt::Debug>(result: Result<T, Error>, verb: &str, what: &str) -> u64 {
    match result {
        Err(Error::Limit { verb: found, what: named, limit, .. }) => {
            assert_eq!((found, named), (verb, what));
            limit
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_device_does_not_have_is_refused_by_name() {
    let device = device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let begin = || context.shared_receive_queue(&pd);
    assert_eq!(limit_of(begin().max_wr(0).build(), "create_srq", "max_wr"), 1);
    let most = limit_of(begin().max_wr(u32::MAX).build(), "create_srq", "max_wr") as u32;
    // Rings have a power of two of entries, and soft-RoCE keeps one of them free.
    assert!(begin().max_wr(most).build().unwrap().max_wr() >= most);
    let most = limit_of(begin().max_sge(u32::MAX).build(), "create_srq", "max_sge") as u32;
    assert_eq!(begin().max_sge(most).build().unwrap().max_sge(), most);
    let granted = begin().max_wr(3).build().unwrap().max_wr();
    let limit = limit_of(begin().max_wr(3).limit(9999).build(), "create_srq", "limit");
    assert_eq!(limit, u64::from(granted));

    // A PD of another open device is refused.
    let elsewhere = device.open().unwrap();
    let foreign = elsewhere.shared_receive_queue(&pd).build();
    assert!(matches!(foreign, Err(Error::Invalid { verb: "create_srq", .. })), "{foreign:?}");
    let srq = begin().build().unwrap();
    let (pd, cq) = (elsewhere.alloc_pd().unwrap(), elsewhere.create_cq(512).unwrap());
    let foreign = elsewhere.queue_pair(&pd, &cq).shared_receives(&srq).build();
    let what = "shared receive queue";
    assert!(
        matches!(&foreign, Err(Error::Invalid { verb: "create_qp", what: named, .. })
            if *named == what),
        "{foreign:?}"
    );

    // More receives than the completion queue has room for.
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64).unwrap());
    let big = context.shared_receive_queue(&pd).max_wr(1000).build().unwrap();
    let small = context.queue_pair(&pd, &cq).max_send_wr(1).shared_receives(&big);
    assert!(matches!(small.build(), Err(Error::Limit { verb: "create_qp", .. })));
    let small = context.queue_pair(&pd, &cq).max_send_wr(1).shared_receives(&big);
    assert!(small.overcommit().build().is_ok());
}

#[test]
fn another_size_where_the_device_can() {
    let device = device();
    let mut server = Server::new(&device, 8);
    if !is_plain() {
        let error = server.srq.resize(64).unwrap_err();
        assert!(matches!(error, Error::Unsupported { verb: "modify_srq", .. }), "{error}");
        assert_eq!(error.errno(), None, "the kernel wasn't asked");
        return;
    }
    let mut client = server.connect(&device);
    let slab = server.slab(64, 64);
    for id in 0..5 {
        server.srq.post(id, slab.take().unwrap()).unwrap();
    }
    server.srq.resize(64).unwrap();
    assert!(server.srq.max_wr() >= 64);
    for id in 5..64 {
        server.srq.post(id, slab.take().unwrap()).unwrap();
    }
    for id in 0..64 {
        client.qp.post_send_inline(1, b"x").unwrap();
        client.done();
        assert_eq!(server.done().id, id);
    }
    limit_of(server.srq.resize(u32::MAX), "modify_srq", "max_wr");
}
