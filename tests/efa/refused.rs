//! Bad input: each is refused by name, or has the status that the device gives, and nothing is
//! lost.
#![allow(unsafe_code, reason = "posts with keys that name nothing")]

use uverbs::raw::{Data, SendOp, Sge};

use super::*;

fn send(side: &mut Side<Srd>, id: u64, frame: Frame, to: &Destination<Efa>) {
    let mut batch = side.qp.batch();
    batch.send_to(id, frame, to).unwrap();
    batch.ring();
}

/// Posts are more than a doorbell may announce; then the queue is full.
#[test]
fn a_batch_may_be_longer_than_a_doorbell() {
    let (mut one, mut two, to) = pair(SoftEfa::builder().stepped().tx_batch(4, 16));
    for id in 0..20 {
        two.expect(id, 8);
    }
    let most = one.qp.cap().max_send_wr;
    let mut batch = one.qp.batch();
    for id in 0..u64::from(most) {
        batch.send_inline_to(id, b"x", &to).unwrap();
    }
    let refused = batch.send_inline_to(99, b"x", &to).unwrap_err();
    assert_eq!(refused, PostError::Full);
    batch.ring();
    let mut ids: Vec<_> = (0..20).map(|_| (one.done().id, two.done().id).0).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20, "each once");
}

#[test]
fn an_unsignaled_send_completes_unseen() {
    let (mut one, mut two, to) = pair(SoftEfa::builder().stepped());
    for id in 0..2 {
        two.expect(id, 8);
    }
    let mut batch = one.qp.batch();
    batch.send_inline_to(Wr::new(1).unsignaled(), b"quiet", &to).unwrap();
    batch.send_inline_to(2, b"loud", &to).unwrap();
    batch.ring();
    assert_eq!((two.done().byte_len + two.done().byte_len, one.done().id), (9, 2));
    assert!(one.cq.wait(Duration::from_millis(20)).is_err(), "no other completion");
}

#[test]
fn a_post_that_does_not_fit_leaves_the_queue_as_it_was() {
    let (mut one, mut two, to) = pair(SoftEfa::builder().stepped());
    let _back = two.to(&one);
    let most = one._context.query_port(1).unwrap().max_message_size as usize;
    let frame = one.filled(most + 1, 1);
    let mut batch = one.qp.batch();
    let refused = batch.send_to(1, frame, &to).unwrap_err();
    assert_eq!(refused.error, PostError::MessageTooLong);
    assert_eq!(refused.data.len(), most + 1, "the frame comes back");
    drop(batch);

    // An address handle of another domain of the same device.
    let other = one._context.alloc_pd().unwrap();
    let mut neighbor = one._context.queue_pair(&other, &one.cq).srd().build().unwrap();
    neighbor.bring_up(&local(3)).unwrap();
    let foreign = neighbor.destination(&two.at).unwrap();
    let mut batch = one.qp.batch();
    let refused = batch.send_inline_to(1, b"text", &foreign).unwrap_err();
    assert_eq!(refused, PostError::ForeignAddress);
    drop(batch);

    // A READ into two pieces; the peer's memory is one piece in the types.
    let memory = two.pd.expose(64, AccessFlags::REMOTE_READ).unwrap();
    let sge = Sge { addr: 64, len: 4, lkey: 1 };
    let mut batch = one.qp.batch();
    let read = SendOp::Read(memory.remote(0));
    // SAFETY: refused, so nothing is posted.
    let refused = unsafe { batch.raw().post_to(1, read, Data::List(&[sge; 2]), &to) };
    assert_eq!(refused, Err(PostError::TooManySges));
    batch.ring();

    two.expect(7, 8);
    let frame = one.filled(8, 3);
    send(&mut one, 2, frame, &to);
    assert_eq!((one.done().id, two.done().id), (2, 7));
}

/// Keys that name no memory: of the sender, of the peer.
#[test]
fn keys_out_of_range_fail_their_work_request() {
    let (mut one, mut two, to) = pair(SoftEfa::builder().stepped());
    let _back = two.to(&one);
    two.expect(7, 8);
    let nowhere = Sge { addr: 64, len: 4, lkey: 0xff_ffff };
    let mut batch = one.qp.batch();
    // SAFETY: the key names no memory, so the device reads none.
    unsafe { batch.raw().post_to(1, SendOp::Send, Data::One(nowhere), &to) }.unwrap();
    batch.ring();
    assert_eq!(one.failure(), (1, Status::LocalProtection));
    for rkey in [0, 0xff_ffff, u32::MAX] {
        let mut batch = one.qp.batch();
        batch.write_inline_to(2, b"text", Remote { addr: 64, rkey }, &to).unwrap();
        batch.ring();
        assert_eq!(one.failure(), (2, Status::RemoteAccess));
    }
    let frame = one.filled(8, 3);
    send(&mut one, 3, frame, &to);
    assert_eq!((one.done().id, two.done().id), (3, 7));
}

#[test]
fn a_completion_queue_has_room_for_its_queue_pairs() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let context = opened(&device);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let srd = |sends| context.queue_pair(&pd, &cq).srd().max_send_wr(sends).max_recv_wr(8).build();
    let capacity = u64::from(cq.capacity());
    match srd(cq.capacity()) {
        Err(Error::Limit { verb: "create_qp", value, limit, .. }) => {
            assert_eq!((value, limit), (capacity + 8, capacity));
        }
        other => panic!("{other:?}"),
    }
    assert!(srd(cq.capacity() - 8).is_ok());
}
