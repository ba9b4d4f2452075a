//! Completions polled into places that the program keeps.

use common::{local, only_on_softhca, soft};
use uverbs::softhca::SoftHca;
use uverbs::{CompletionQueue, QueuePair, Slab, WorkCompletion};

/// Two queue pairs connected to themselves, with one completion queue. The software HCA runs only
/// when stepped, so polls take the fast path.
struct Stepped {
    hca: SoftHca,
    qps: [QueuePair; 2],
    cq: CompletionQueue,
    slab: Slab,
}

/// Frames of the slab.
const FRAMES: usize = 8;

impl Stepped {
    fn new(entries: u32) -> Self {
        let hca = SoftHca::builder().stepped().build().unwrap();
        let context = soft(&hca).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.completion_queue(entries).build().unwrap();
        let qps = [0; 2].map(|_| {
            let qp = context.queue_pair(&pd, &cq).overcommit().max_send_wr(64).max_recv_wr(64);
            let mut qp = qp.build().unwrap();
            qp.prepare(&local()).unwrap();
            qp.connect_to_self().unwrap();
            qp
        });
        let slab = pd.slab(64, FRAMES).unwrap();
        Self { hca, qps, cq, slab }
    }

    /// A message of `len` bytes on a queue pair: number `id` at the sender, `id + 1` at the
    /// receiver, which gets it in a frame or takes a message without bytes.
    fn message(&mut self, qp: usize, id: u64, len: Option<usize>) {
        let qp = &mut self.qps[qp];
        let mut batch = qp.recv_batch();
        match len {
            Some(_) => batch.post(id + 1, self.slab.take().unwrap()).unwrap(),
            None => batch.post_empty(id + 1).unwrap(),
        }
        batch.ring();
        qp.post_send_inline(id, &[id as u8; 64][..len.unwrap_or(0)]).unwrap();
        self.hca.step_until_idle(1000);
    }

    fn free_frames(&self) -> usize {
        let all: Vec<_> = std::iter::from_fn(|| self.slab.take()).collect();
        all.len()
    }
}

#[test]
fn places_are_filled_again_whatever_is_left_in_them() {
    if !only_on_softhca("the test steps the device") {
        return;
    }
    let mut side = Stepped::new(96);
    let mut places: [WorkCompletion; 5] = Default::default();
    let mut id = 0;
    for round in 0..200usize {
        // A queue pair without frames, one with frames, and both in turn.
        let messages = 1 + round % 4;
        let mut expected = Vec::new();
        for nth in 0..messages {
            let qp = [0, 1, (round + nth) % 2][round % 3];
            let len = (qp == 1).then_some(1 + (id as usize * 7) % 60);
            side.message(qp, id, len);
            expected.extend([(id, None), (id + 1, len)]);
            id += 2;
        }
        let mut seen = Vec::new();
        loop {
            let size = 1 + (round + seen.len()) % places.len();
            let count = side.cq.poll_into(&mut places[..size]);
            if count == 0 {
                break;
            }
            for done in &places[..count] {
                done.result.unwrap();
                let len = done.frame.as_ref().map(|frame| frame.len());
                assert_eq!(
                    (done.is_recv, done.byte_len as usize),
                    (done.id % 2 == 1, len.unwrap_or(0))
                );
                assert!(
                    done.frame.iter().all(|frame| frame.iter().all(|&b| b == done.id as u8 - 1))
                );
                seen.push((done.id, len));
            }
        }
        // Sends and receives of a message complete in either order.
        seen.sort_unstable();
        assert_eq!(seen, expected, "round {round}");
    }
    let kept = places.iter().filter(|place| place.frame.is_some()).count();
    assert_eq!(side.free_frames(), FRAMES - kept, "frames left in places went back");
}

#[test]
fn an_empty_poll_returns_the_entries_of_a_forgotten_burst() {
    if !only_on_softhca("the test steps the device") {
        return;
    }
    let mut side = Stepped::new(12);
    for id in 0..40u64 {
        for nth in 0..4 {
            side.message(0, id * 8 + nth * 2, None);
        }
        for _ in 0..8 {
            // A longer burst returns entries before its end.
            let mut burst = side.cq.poll(1);
            burst.next().unwrap().result().unwrap();
            std::mem::forget(burst);
        }
        assert_eq!(side.cq.poll_into(&mut [WorkCompletion::default()]), 0);
    }
}
