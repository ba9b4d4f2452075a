//! Batches that the kernel refuses half way: Omni-Path's looks at keys when a batch is rung.
#![allow(unsafe_code, reason = "posts a key of no memory, which only raw posts can")]

use common::{is_rdmavt, pair};
use uverbs::Errno;
use uverbs::raw::{Data, Sge};

#[test]
fn a_batch_is_taken_up_to_a_bad_key_and_the_rest_comes_back() {
    if !is_rdmavt() {
        return common::skip("only Omni-Path's kernel looks at keys when a batch is rung");
    }
    let (mut client, mut server) = pair();
    for id in 0..3 {
        server.expect(id, 64);
    }
    let slab = client.slab(8, 4);
    let frame = || slab.take().expect("a frame");
    let mut batch = client.qp.batch();
    batch.send(1, frame()).unwrap();
    batch.send(2, frame()).unwrap();
    let nowhere = Sge { addr: 0x1000, len: 8, lkey: 0xdead_0000 };
    // SAFETY: no memory has the key.
    unsafe { batch.raw().send(3, Data::One(nowhere)) }.unwrap();
    batch.send(4, frame()).unwrap();
    batch.ring();
    let queue = client.qp.send_queue();
    assert_eq!((queue.doorbell_error(), queue.returned()), (Some(Errno::EINVAL), 2));
    // One was never posted, and one came back.
    let kept = [frame(), frame()];
    assert!(slab.take().is_none());
    drop(kept);
    assert_eq!((client.done().id, client.done().id), (1, 2));
    client.qp.post_send_inline(5, b"goes on").unwrap();
    assert_eq!(client.qp.send_queue().doorbell_error(), None);
    assert_eq!(client.done().id, 5);
    let ids = [server.done(), server.done(), server.done()].map(|done| done.id);
    assert_eq!(ids, [0, 1, 2]);
    assert!(server.cq.poll(1).next().is_none());
}
