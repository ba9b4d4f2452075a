//! Completion queues of several rings, numbers that come back, handles that go early.

use uverbs::transport::Srd;
use uverbs::{
    Completed, CompletionQueue, Context, DatagramEndpoint, Efa, ProtectionDomain, QueuePair,
};
use uverbs_softefa::SoftEfa;

use crate::{LIMIT, Side, local, opened};

/// The device goes by the number of an address handle until the send completes.
#[test]
fn a_handle_outlives_its_sends() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let mut one = Side::<Srd>::new(&device, &local(1));
    let mut two = Side::<Srd>::new(&device, &local(2));
    let to = one.to(&two);
    let mut batch = one.qp.batch();
    batch.send_inline_to(1, b"waits for a receive", &to).unwrap();
    batch.ring();
    drop(to);
    two.expect(2, 32);
    assert_eq!((one.done().result, two.done().id), (Ok(Completed::Send), 2));
}

/// A handle that its program dropped goes with the queue pair, or with its reset.
#[test]
fn a_reset_lets_go_of_handles() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let mut one = Side::<Srd>::new(&device, &local(1));
    let mut two = Side::<Srd>::new(&device, &local(2));
    let to = one.to(&two);
    let handles = || device.address_handles();
    two.expect(1, 4);
    let mut batch = one.qp.batch();
    batch.send_inline_to(1, b"text", &to).unwrap();
    batch.ring();
    assert_eq!((one.done().id, two.done().id), (1, 1));
    drop(to);
    assert_eq!(handles(), 1, "kept for the element");
    one.qp.reset(&mut [&mut one.cq]).expect("to RESET");
    assert_eq!(handles(), 0);
}

/// A dropped handle stays while a send that names it is in flight, and goes with a later doorbell.
#[test]
fn a_dropped_handle_comes_back() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let mut one = Side::<Srd>::new(&device, &local(1));
    let mut two = Side::<Srd>::new(&device, &local(2));
    let (first, second) = (one.to(&two), one.to(&two));
    let send = |one: &mut Side<Srd>, id, to: &_| {
        let mut batch = one.qp.batch();
        batch.send_inline_to(id, b"text", to).unwrap();
        batch.ring();
    };
    // No receive is posted: both wait.
    send(&mut one, 1, &first);
    drop(first);
    send(&mut one, 2, &second);
    assert_eq!(device.address_handles(), 2, "in flight");
    two.expect(7, 4);
    two.expect(8, 4);
    assert_eq!(one.done().id + one.done().id, 3);
    assert_eq!(device.address_handles(), 2, "no doorbell since");
    two.expect(9, 4);
    send(&mut one, 3, &second);
    assert_eq!(one.done().id, 3);
    assert_eq!(device.address_handles(), 1);
}

/// A program with a handle for each message has few at the device, also with a long queue.
#[test]
fn handles_of_one_message_each_do_not_add_up() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let context = opened(&device);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4096).unwrap();
    let qp = context.queue_pair(&pd, &cq).srd().max_send_wr(2048).max_recv_wr(1);
    let mut qp = qp.max_inline_data(32).build().unwrap();
    let at = qp.bring_up(&local(1)).unwrap();
    let mut side = Side { qp, cq, pd, _context: context, at };
    for id in 0..4096 {
        side.expect(7, 4);
        let to = side.qp.destination(&side.at).unwrap();
        let mut batch = side.qp.batch();
        batch.send_inline_to(id, b"text", &to).unwrap();
        batch.ring();
        let ids = [side.done().id, side.done().id];
        assert!(ids.contains(&id) && ids.contains(&7));
        assert!(device.address_handles() <= 256, "{id}: {}", device.address_handles());
    }
}

/// Rings of a completion queue are polled in turn, however full the first one is.
#[test]
fn no_ring_waits_for_another_to_be_empty() {
    let device = SoftEfa::builder().stepped().sub_cqs(2).build().unwrap();
    let mut one = Side::<Srd>::new(&device, &local(1));
    let to = one.qp.destination(&one.at).unwrap();
    for id in 0..8 {
        one.expect(id, 4);
    }
    let mut batch = one.qp.batch();
    for id in 0..8 {
        batch.send_inline_to(id, b"text", &to).unwrap();
    }
    batch.ring();
    while device.step() {}
    let mut are_receives = Vec::new();
    one.cq.poll_with(16, |done| are_receives.push(done.is_recv()));
    assert_eq!(are_receives.len(), 16);
    assert!(are_receives.windows(2).all(|two| two[0] != two[1]), "{are_receives:?}");
}

/// Queue of 16384 receives: requests have two bits for their owner.
fn deep(
    context: &Context<Efa>,
    pd: &ProtectionDomain,
    cq: &CompletionQueue<Efa>,
) -> (QueuePair<Efa, Srd>, DatagramEndpoint) {
    let mut qp = context.queue_pair(pd, cq).srd().max_recv_wr(16384).build().unwrap();
    let at = qp.bring_up(&local(1)).unwrap();
    (qp, at)
}

/// The next owner of a queue pair number gets its completions, also before the completion queue
/// heard that the former owner is gone.
#[test]
fn the_next_owner_of_a_number_gets_its_completions() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let context = opened(&device);
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(60_000).unwrap());
    let mut sender = Side::<Srd>::new(&device, &local(2));
    let slab = pd.slab(16, 64).unwrap();
    let (mut owner, at) = deep(&context, &pd, &cq);
    let number = owner.qpn();
    let to = sender.qp.destination(&at).unwrap();
    let others: Vec<_> = (0..3).map(|_| deep(&context, &pd, &cq)).collect();
    for turn in 0..12 {
        // The former owner leaves a completion in the queue, which goes with it.
        for id in 0..3 {
            owner.post_recv(id, slab.take().unwrap()).unwrap();
        }
        let mut batch = sender.qp.batch();
        batch.send_inline_to(1, b"text", &to).unwrap();
        batch.ring();
        sender.done();
        while device.step() {}
        drop(owner);
        owner = deep(&context, &pd, &cq).0;
        assert_eq!(owner.qpn(), number, "turn {turn}");
        owner.post_recv(100 + turn, slab.take().unwrap()).unwrap();
        let mut batch = sender.qp.batch();
        batch.send_inline_to(2, b"next", &to).unwrap();
        batch.ring();
        sender.done();
        while device.step() {}
        let done = cq.wait(LIMIT).expect("a completion");
        assert_eq!((done.id, done.qpn), (100 + turn, number));
        assert_eq!(done.frame.unwrap()[..], *b"next");
        assert!(cq.poll(1).next().is_none(), "turn {turn}");
    }
    drop((owner, others));
    cq.poll(1).next();
    let frames = std::iter::from_fn(|| slab.take()).collect::<Vec<_>>();
    assert_eq!(frames.len(), 64, "no frame is lost");
}

/// A send that waits for its peer's receive, and receives that complete out of order, leave the
/// rest of the queue to others.
#[test]
fn a_slow_message_leaves_the_queue_to_others() {
    let device = SoftEfa::builder().stepped().build().unwrap();
    let [mut one, mut silent, mut two] =
        [1, 2, 3].map(|key| Side::<Srd>::new(&device, &local(key)));
    let (to_silent, to) = (one.to(&silent), one.to(&two));
    let mut batch = one.qp.batch();
    batch.send_inline_to(9999, b"waits", &to_silent).unwrap();
    batch.ring();
    // Every further place of both queues, again for each that comes free, for many turns.
    let depth = u64::from(one.qp.cap().max_send_wr) - 1;
    let (mut sent, mut received) = (0, 0);
    for id in 0..u64::from(two.qp.cap().max_recv_wr) {
        two.expect(id, 16);
    }
    for id in 0..depth {
        let mut batch = one.qp.batch();
        batch.send_inline_to(id, b"text", &to).unwrap();
        batch.ring();
    }
    while sent < 20 * depth || received < 20 * depth {
        let (ends, comes) = (one.done(), two.done());
        assert!(ends.result.is_ok() && comes.result.is_ok());
        (sent, received) = (sent + 1, received + 1);
        two.expect(comes.id, 16);
        let mut batch = one.qp.batch();
        batch.send_inline_to(ends.id, b"text", &to).unwrap();
        batch.ring();
    }
    silent.expect(1, 16);
    assert_eq!(silent.done().id, 1);
}
