//! Compressed completion queue entries.

use common::{LIMIT, is_plain, local, not_on_rxe, only_on_softhca, pattern, soft};
use uverbs::softhca::SoftHca;
use uverbs::{CompletionQueue, Context, CqeSize, Error, ProtectionDomain, QueuePair};

/// A queue pair connected to itself, with compressed receive completions. The software HCA runs
/// only when stepped.
struct Compressed {
    hca: SoftHca,
    qp: QueuePair,
    sends: CompletionQueue,
    receives: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
}

impl Compressed {
    fn new(entries: u32) -> Self {
        let hca = SoftHca::builder().stepped().build().unwrap();
        let context = soft(&hca).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let [sends, receives] =
            [0; 2].map(|_| context.completion_queue(entries).compressed().build().unwrap());
        let qp = Self::queue_pair(&context, &pd, &sends, &receives);
        Self { hca, qp, sends, receives, pd, context }
    }

    fn queue_pair(
        context: &Context,
        pd: &ProtectionDomain,
        sends: &CompletionQueue,
        receives: &CompletionQueue,
    ) -> QueuePair {
        let qp = context.queue_pair(pd, sends).recv_cq(receives).overcommit();
        let mut qp = qp.max_send_wr(100).max_recv_wr(100).build().unwrap();
        qp.prepare(&local()).unwrap();
        qp.connect_to_self().unwrap();
        qp
    }

    fn receive(&mut self, ids: std::ops::Range<u64>) {
        let slab = self.pd.slab(64, 100).unwrap();
        let mut batch = self.qp.recv_batch();
        for id in ids {
            batch.post(id, slab.take().unwrap()).unwrap();
        }
        batch.ring();
    }

    /// Sends messages of `id % 60` bytes, with immediate data where `imm` says so.
    fn send(&mut self, ids: std::ops::Range<u64>, imm: impl Fn(u64) -> bool) {
        let mut batch = self.qp.batch();
        for id in ids {
            let bytes = pattern(id as usize % 60, id as u8);
            match imm(id) {
                true => batch.send_imm_inline(id, &bytes, id as u32).unwrap(),
                false => batch.send_inline(id, &bytes).unwrap(),
            }
        }
        batch.ring();
    }

    fn run(&self) {
        self.hca.step_until_idle(1000);
    }
}

/// Takes all completions there are: number, length and bytes.
fn all_of(cq: &mut CompletionQueue) -> Vec<(u64, u32, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    cq.poll_with(1000, |mut done| {
        done.result().unwrap();
        let bytes = done.take_frame().map(|frame| frame.to_vec());
        all.push((done.id(), done.byte_len(), bytes));
    });
    all
}

/// Id, length and bytes expected of the receives with these ids.
fn expected(ids: std::ops::Range<u64>) -> Vec<(u64, u32, Option<Vec<u8>>)> {
    let one = |id: u64| {
        let len = id as usize % 60;
        (id, len as u32, Some(pattern(len, id as u8)))
    };
    ids.map(one).collect()
}

#[test]
fn compressed_completions_are_those_that_came() {
    if !only_on_softhca("the test steps the device") {
        return;
    }
    let mut both = Compressed::new(100);
    let mut id = 0;
    // Blocks of every length, over the end of the ring at every place.
    for count in (1..=70).chain([100, 3, 64, 65, 99, 1, 2]) {
        both.receive(id..id + count);
        both.send(id..id + count, |_| false);
        both.run();
        let sent = all_of(&mut both.sends);
        assert!(sent.iter().map(|done| done.0).eq(id..id + count), "{count}: {sent:?}");
        assert_eq!(all_of(&mut both.receives), expected(id..id + count), "{count}");
        id += count;
    }
    let stats = both.hca.stats();
    assert_eq!(stats.cqes, 2 * id);
    assert!(stats.cqe_blocks > 100, "{stats:?}");
    assert!(stats.cqe_bytes < stats.cqes * 64 / 3, "{stats:?}");
}

/// DPDK reads a block without wrapping.
#[test]
fn no_block_crosses_the_end_of_the_ring() {
    if !only_on_softhca("the test steps the device") {
        return;
    }
    let mut both = Compressed::new(127);
    let mut blocks = Vec::new();
    let mut id = 0;
    for count in [32, 64, 16, 32] {
        let before = both.hca.stats().cqe_blocks;
        both.receive(id..id + count);
        both.send(id..id + count, |_| false);
        both.run();
        assert_eq!(all_of(&mut both.receives), expected(id..id + count));
        assert_eq!(all_of(&mut both.sends).len() as u64, count);
        blocks.push(both.hca.stats().cqe_blocks - before);
        id += count;
    }
    // The last 32 begin 16 entries before the end of both rings.
    assert_eq!(blocks[3], blocks[0] + 2, "{blocks:?}");
}

#[test]
fn what_short_entries_can_not_say_comes_whole() {
    if !only_on_softhca("the test steps the device") {
        return;
    }
    let mut both = Compressed::new(100);
    for round in 0..30 {
        let ids = round * 20..round * 20 + 20;
        both.receive(ids.clone());
        both.send(ids.clone(), |id| id % (round + 2) == 0);
        both.run();
        let mut got = Vec::new();
        both.receives.poll_with(1000, |done| got.push((done.id(), done.immediate())));
        let imm = |id: u64| (id.is_multiple_of(round + 2)).then_some(id as u32);
        assert!(got.into_iter().eq(ids.map(|id| (id, imm(id)))));
        assert_eq!(all_of(&mut both.sends).len(), 20);
    }
}

#[test]
fn blocks_of_several_queue_pairs_stay_apart() {
    if !only_on_softhca("the test steps the device") {
        return;
    }
    let mut both = Compressed::new(200);
    let Compressed { context, pd, sends, receives, .. } = &both;
    let mut other = Compressed::queue_pair(context, pd, sends, receives);
    let slab = pd.slab(64, 100).unwrap();
    for round in 0..20u64 {
        both.receive(round * 10..round * 10 + 10);
        both.send(round * 10..round * 10 + 10, |_| false);
        for id in 1000..1007 {
            other.post_recv(id, slab.take().unwrap()).unwrap();
            other.post_send_inline(id, &[round as u8]).unwrap();
        }
        both.run();
        let all = all_of(&mut both.receives);
        let (mine, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|done| done.0 < 1000);
        assert_eq!(mine, expected(round * 10..round * 10 + 10));
        assert!(others.iter().map(|done| done.0).eq(1000..1007));
        assert!(others.iter().all(|done| done.2.as_deref() == Some(&[round as u8])));
        assert_eq!(all_of(&mut both.sends).len(), 17);
    }
    // A queue pair that goes with an unpolled block leaves the completions of the other one.
    both.receive(0..10);
    both.send(0..10, |_| false);
    for id in 1000..1007 {
        other.post_recv(id, slab.take().unwrap()).unwrap();
        other.post_send_inline(id, &[1]).unwrap();
    }
    both.run();
    drop(other);
    assert_eq!(all_of(&mut both.receives), expected(0..10));
    assert_eq!(all_of(&mut both.sends).len(), 10);
}

#[test]
fn blocks_move_to_a_ring_of_another_size() {
    if !only_on_softhca("the test steps the device") {
        return;
    }
    let mut both = Compressed::new(100);
    let mut id = 0;
    for (count, size) in [(9, 300), (64, 120), (33, 1000), (1, 101), (70, 64), (17, 500)] {
        both.receive(id..id + count);
        both.send(id..id + count, |_| false);
        both.run();
        let before = all_of_some(&mut both.receives, count as usize / 2);
        both.receives.resize(size).unwrap();
        let got = [before, all_of(&mut both.receives)].concat();
        assert_eq!(got, expected(id..id + count), "{count} to {size}");
        assert_eq!(all_of(&mut both.sends).len(), count as usize);
        id += count;
    }
}

/// Takes up to `most` completions: id, length and bytes of each.
fn all_of_some(cq: &mut CompletionQueue, most: usize) -> Vec<(u64, u32, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    cq.poll_with(most, |mut done| {
        let bytes = done.take_frame().map(|frame| frame.to_vec());
        all.push((done.id(), done.byte_len(), bytes));
    });
    all
}

#[test]
fn a_failure_ends_a_block() {
    if !only_on_softhca("the test steps the device") {
        return;
    }
    let mut both = Compressed::new(100);
    both.receive(0..5);
    both.send(0..5, |_| false);
    both.qp.fail().unwrap();
    both.receive(5..8);
    both.run();
    let mut got = Vec::new();
    both.receives.poll_with(100, |done| got.push((done.id(), done.result().is_ok())));
    assert!(got.iter().map(|done| done.0).eq(0..8), "{got:?}");
    let first_bad = got.iter().position(|done| !done.1).unwrap();
    assert!(got[first_bad..].iter().all(|done| !done.1));
}

#[test]
fn compressed_queues_arm_and_tell() {
    if common::not_on_rdmavt("the device has no compressed entries") {
        return;
    }
    if not_on_rxe("soft-RoCE has no such entries") {
        return;
    }
    let device = common::device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let cq = context.completion_queue(256).compressed().channel(&channel).build();
    let mut cq = cq.unwrap();
    let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let slab = pd.slab(64, 64).unwrap();
    for round in 0..40 {
        for id in 0..32 {
            qp.post_recv(id, slab.take().unwrap()).unwrap();
        }
        let mut batch = qp.batch();
        for id in 0..32 {
            batch.send_inline(100 + id, &pattern(id as usize, round)).unwrap();
        }
        batch.ring();
        let (mut sent, mut received) = (0, 0);
        while sent + received < 64 {
            let done = cq.wait(LIMIT).unwrap();
            done.result.unwrap();
            if done.is_recv {
                assert_eq!(done.id, received);
                assert_eq!(*done.frame.unwrap(), pattern(received as usize, round)[..]);
                received += 1;
            } else {
                assert_eq!(done.id, 100 + sent);
                sent += 1;
            }
        }
    }
}

#[test]
fn what_can_not_be_compressed_is_refused() {
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let large = context.completion_queue(64).compressed().entry_size(CqeSize::Bytes128).build();
    assert!(matches!(large, Err(Error::Unsupported { verb: "create_cq", .. })), "{large:?}");
    if is_plain() {
        let any = context.completion_queue(64).compressed().build();
        assert!(matches!(any, Err(Error::Unsupported { verb: "create_cq", .. })), "{any:?}");
        return;
    }
    let cq = context.completion_queue(512).compressed().build().unwrap();
    let srq = context.shared_receive_queue(&pd).build().unwrap();
    let shared = context.queue_pair(&pd, &cq).shared_receives(&srq).build();
    assert!(matches!(shared, Err(Error::Unsupported { verb: "create_qp", .. })), "{shared:?}");
    // Its sends may.
    let plain = context.create_cq(512).unwrap();
    context.queue_pair(&pd, &cq).recv_cq(&plain).shared_receives(&srq).build().unwrap();
}
