//! Inline completion queue entries, which carry the message.
#![allow(unsafe_code, reason = "raw posts are part of what is tested")]

use common::{End, LIMIT, is_plain, local, not_on_rxe, pattern, soft};
use uverbs::raw::{Data, Sge};
use uverbs::softhca::SoftHca;
use uverbs::transport::Uc;
use uverbs::{
    AccessFlags, Completed, CompletionQueue, Context, CqeSize, ExposedMemory, Frame,
    ProtectionDomain, QueuePair, Status, WorkCompletion, Wr,
};

/// Message lengths around the capacities of inline entries.
const SIZES: [usize; 12] = [0, 1, 7, 8, 31, 32, 33, 63, 64, 65, 100, 300];
const ENTRIES: [CqeSize; 2] = [CqeSize::Bytes64, CqeSize::Bytes128];

/// A queue pair that is its own peer.
struct Loop {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
}

impl Loop {
    fn new(context: Context, entries: CqeSize) -> Self {
        let pd = context.alloc_pd().unwrap();
        let cq = context.completion_queue(64).entry_size(entries).build().unwrap();
        let qp = context.queue_pair(&pd, &cq).scatter_to_cqe().max_send_wr(16).max_recv_wr(16);
        let mut qp = qp.max_send_sge(8).max_recv_sge(8).build().unwrap();
        qp.prepare(&local()).unwrap();
        qp.connect_to_self().unwrap();
        Self { qp, cq, pd, context }
    }

    fn exposed(&self, bytes: &[u8]) -> ExposedMemory {
        let all = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let memory = self.pd.expose(bytes.len().max(1), all).unwrap();
        memory.write(0, bytes).unwrap();
        memory
    }

    fn done(&mut self) -> WorkCompletion {
        common::done(&mut self.cq)
    }

    /// The next completion of a receive, and one of a send before or behind it.
    fn received(&mut self) -> WorkCompletion {
        let mut both = [self.done(), self.done()];
        both.sort_by_key(|done| done.is_recv);
        let [sent, received] = both;
        assert!(!sent.is_recv && received.is_recv);
        received
    }
}

/// A frame of `pieces` that follow each other, `len` bytes each.
fn chain(pd: &ProtectionDomain, len: usize, pieces: usize) -> Frame {
    let slab = pd.slab(len, pieces).unwrap();
    let mut first = slab.take().unwrap();
    for _ in 1..pieces {
        first.append(slab.take().unwrap());
    }
    first
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    frame.pieces().flat_map(|piece| piece.to_vec()).collect()
}

/// Counts payloads in entries, where the software HCA is of this process.
fn payloads(hca: &SoftHca) -> u64 {
    hca.stats().cqe_payloads
}

/// The device under test, and the software HCA if it is one of this process.
fn context() -> (Context, Option<SoftHca>) {
    if std::env::var_os("UVERBS_TEST_DEVICE").is_some() {
        return (common::device().open().unwrap(), None);
    }
    let hca = SoftHca::builder().build().unwrap();
    (soft(&hca).open().unwrap(), Some(hca))
}

/// True if an inline CQE of this size holds `len` bytes.
fn fits(len: usize, entries: CqeSize) -> bool {
    let room = if entries == CqeSize::Bytes64 { 32 } else { 64 };
    (1..=room).contains(&len)
}

#[test]
fn messages_come_in_their_entries() {
    for entries in ENTRIES {
        let (context, hca) = context();
        let mut both = Loop::new(context, entries);
        // Over the end of each ring, several times.
        for (round, len) in SIZES.into_iter().cycle().take(60).enumerate() {
            let seed = round as u8;
            let slab = both.pd.slab(512, 2).unwrap();
            both.qp.post_recv(1, slab.take().unwrap()).unwrap();
            let mut frame = slab.take().unwrap();
            frame.set_len(len);
            frame.copy_from_slice(&pattern(len, seed));
            let before = hca.as_ref().map(payloads);
            let mut batch = both.qp.batch();
            let imm = (round % 3 == 0).then_some(round as u32);
            match imm {
                Some(imm) => batch.send_imm(2, frame, imm).unwrap(),
                None => batch.send(2, frame).unwrap(),
            }
            batch.ring();
            let received = both.received();
            assert_eq!((received.id, received.immediate), (1, imm));
            assert_eq!(received.byte_len as usize, len);
            assert_eq!(*received.frame.unwrap(), pattern(len, seed)[..], "{len} bytes");
            if let (Some(hca), Some(before)) = (&hca, before) {
                assert_eq!(payloads(hca) - before, fits(len, entries).into(), "{len}, {entries:?}");
            }
        }
    }
}

#[test]
fn a_message_fills_the_pieces_of_its_receive() {
    for entries in ENTRIES {
        let (context, _) = context();
        let mut both = Loop::new(context, entries);
        for (piece, len) in [(5, 31), (8, 32), (9, 64), (1, 7), (100, 20), (16, 64)] {
            let into = chain(&both.pd, piece, 8);
            let mut batch = both.qp.recv_batch();
            batch.post(1, into.chain()).unwrap();
            batch.ring();
            both.qp.post_send_inline(2, &pattern(len, 3)).unwrap();
            let received = both.received();
            assert_eq!(bytes_of(&received.frame.unwrap()), pattern(len, 3), "{piece}, {len}");
        }
        // A message longer than its receive fails as it does without inline CQEs.
        both.qp.post_recv(1, both.pd.slab(8, 1).unwrap().take().unwrap()).unwrap();
        both.qp.post_send_inline(2, &[7; 9]).unwrap();
        let mut failed = [both.cq.wait(LIMIT).unwrap(), both.cq.wait(LIMIT).unwrap()];
        failed.sort_by_key(|done| done.is_recv);
        let [_, status] = failed.map(|done| done.result.unwrap_err().status);
        let fails = if is_plain() { Status::LocalQpOperation } else { Status::LocalLength };
        assert_eq!(status, fails);
    }
}

#[test]
fn answers_come_in_their_entries() {
    for entries in ENTRIES {
        let (context, hca) = context();
        let mut both = Loop::new(context, entries);
        for (round, len) in SIZES.into_iter().cycle().take(60).enumerate() {
            let seed = round as u8;
            let memory = both.exposed(&pattern(len, seed));
            let before = hca.as_ref().map(payloads);
            let into = match round % 2 {
                0 => chain(&both.pd, 512, 1),
                _ => chain(&both.pd, (len / 7).max(1) + 1, 8),
            };
            let mut batch = both.qp.batch();
            let total = into.total_len();
            if total == 512 {
                let mut whole = into;
                whole.set_len(len);
                batch.read(3, whole, memory.remote(0)).unwrap();
            } else {
                let mut list = into;
                let mut left = len;
                let mut next = Some(&mut list);
                while let Some(piece) = next {
                    piece.set_len(left);
                    left -= piece.len();
                    next = piece.rest_mut();
                }
                batch.read(3, list.chain(), memory.remote(0)).unwrap();
            }
            batch.ring();
            let read = both.done();
            assert_eq!((read.result, read.byte_len as usize), (Ok(Completed::Read), len));
            assert_eq!(bytes_of(&read.frame.unwrap()), pattern(len, seed), "{len} bytes");
            if let (Some(hca), Some(before)) = (&hca, before) {
                assert_eq!(payloads(hca) - before, fits(len, entries).into(), "{len}");
            }
        }
    }
}

#[test]
fn atomics_answer_in_their_entries() {
    for entries in ENTRIES {
        let (context, _) = context();
        let mut both = Loop::new(context, entries);
        let memory = both.exposed(&[0; 16]);
        memory.store(8, 40).unwrap();
        for round in 0..40 {
            let frame = both.pd.slab(16, 1).unwrap().take().unwrap();
            let mut batch = both.qp.batch();
            batch.fetch_add(1, frame, memory.remote(8), 2).unwrap();
            batch.ring();
            let done = both.done();
            assert_eq!(done.result, Ok(Completed::FetchAdd));
            let old = done.frame.unwrap()[..8].try_into().unwrap();
            assert_eq!(u64::from_ne_bytes(old), 40 + 2 * round);
        }
        // Into memory that others may reach, too.
        let into = both.exposed(&[0xee; 24]);
        let mut batch = both.qp.batch();
        batch.compare_swap(2, into.part(8, 8).unwrap(), memory.remote(8), 120, 7).unwrap();
        batch.ring();
        assert_eq!(both.done().result, Ok(Completed::CompareSwap));
        assert_eq!((into.load(8).unwrap(), memory.load(8).unwrap()), (120, 7));
        assert_eq!(
            (into.load(0).unwrap(), into.load(16).unwrap()),
            (u64::MAX / 255 * 0xee, u64::MAX / 255 * 0xee)
        );
    }
}

#[test]
fn what_makes_no_completion_is_in_its_buffer() {
    let (context, _) = context();
    let mut both = Loop::new(context, CqeSize::Bytes64);
    let memory = both.exposed(&pattern(16, 1));
    let into = both.exposed(&[0; 16]);
    let mut batch = both.qp.batch();
    let part = into.part(0, 16).unwrap();
    batch.read(Wr::new(1).unsignaled(), part, memory.remote(0)).unwrap();
    batch.write_inline(2, &[], memory.remote(0)).unwrap();
    batch.ring();
    assert_eq!(both.done().id, 2);
    let mut bytes = [0; 16];
    into.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, pattern(16, 1)[..]);
}

#[test]
fn raw_posts_get_theirs_too() {
    let (context, _) = context();
    let mut both = Loop::new(context, CqeSize::Bytes64);
    let memory = both.exposed(&pattern(30, 9));
    let slab = both.pd.slab(64, 3).unwrap();
    let [mut read, mut received, sent] = [0; 3].map(|_| slab.take().unwrap());
    read.set_len(30);
    let list: [Sge; 1] = [received.sge()];
    let mut batch = both.qp.recv_batch();
    // SAFETY: the frame lives until its completion was polled.
    unsafe { batch.post_raw(4, &list) }.unwrap();
    batch.ring();
    let mut batch = both.qp.batch();
    // SAFETY: the frame lives until its completion was polled.
    unsafe { batch.raw().read(5, &[read.sge()], memory.remote(0)) }.unwrap();
    // SAFETY: as above; it is not written meanwhile.
    unsafe { batch.raw().send(Wr::new(6).unsignaled(), Data::One(sent.sge())) }.unwrap();
    batch.ring();
    let mut both_done = [both.done().id, both.done().id];
    both_done.sort_unstable();
    assert_eq!(both_done, [4, 5]);
    assert_eq!(read[..], pattern(30, 9)[..]);
    received.set_len(64);
    assert_eq!(received[..], sent[..]);
}

/// The region of no memory takes bytes, and nothing is written.
#[test]
fn nothing_takes_its_part_of_an_entry() {
    if common::not_on_rdmavt("the device has no region of no memory") {
        return;
    }
    if not_on_rxe("it has no region of no memory") {
        return;
    }
    let (context, _) = context();
    let nothing = context.null_region().unwrap();
    let mut both = Loop::new(context, CqeSize::Bytes64);
    let body = both.exposed(&[0; 64]);
    let mut batch = both.qp.recv_batch();
    // SAFETY: the memory lives until the completion was polled.
    unsafe { batch.post_raw(1, &[nothing.sge(8), body.sge(0, 56)]) }.unwrap();
    batch.ring();
    let text = pattern(24, 3);
    let mut batch = both.qp.batch();
    batch.send_inline(Wr::new(2), &text).unwrap();
    batch.ring();
    assert_eq!(both.received().byte_len, 24);
    let mut got = [1; 17];
    body.read(0, &mut got).unwrap();
    assert_eq!((&got[..16], got[16]), (&text[8..], 0));
}

#[test]
fn unreliable_connections_have_it_as_well() {
    if not_on_rxe("soft-RoCE has no such entries") {
        return;
    }
    let device = common::device();
    let ends = [0; 2].map(|_| {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(512).unwrap();
        let qp = context.queue_pair(&pd, &cq).transport::<Uc>().scatter_to_cqe().build().unwrap();
        End { qp, cq, pd, context }
    });
    let [mut one, mut other] = ends;
    let at = [&mut one, &mut other].map(|end| end.qp.prepare(&local()).unwrap());
    one.qp.connect(&at[1]).unwrap();
    other.qp.connect(&at[0]).unwrap();
    for len in [1, 32, 33] {
        other.expect(1, 64);
        let frame = one.filled(len, 5);
        one.qp.post_send(2, frame).unwrap();
        assert_eq!(*other.done().frame.unwrap(), pattern(len, 5)[..]);
        one.done();
    }
}

#[test]
fn other_queue_pairs_complete_between_them() {
    let (context, _) = context();
    let mut both = Loop::new(context, CqeSize::Bytes64);
    let qp = both.context.queue_pair(&both.pd, &both.cq).max_send_wr(8).max_recv_wr(8);
    let mut plain = qp.build().unwrap();
    plain.prepare(&local()).unwrap();
    plain.connect_to_self().unwrap();
    let slab = both.pd.slab(64, 8).unwrap();
    for round in 0..50u8 {
        both.qp.post_recv(1, slab.take().unwrap()).unwrap();
        plain.post_recv(2, slab.take().unwrap()).unwrap();
        both.qp.post_send_inline(3, &[round; 5]).unwrap();
        plain.post_send_inline(4, &[round; 6]).unwrap();
        let mut all = [(); 4].map(|()| both.done());
        all.sort_by_key(|done| done.id);
        assert_eq!(all.each_ref().map(|done| done.id), [1, 2, 3, 4]);
        assert_eq!(*all[0].frame.take().unwrap(), [round; 5]);
        assert_eq!(*all[1].frame.take().unwrap(), [round; 6]);
    }
    // One that is gone leaves the other alone.
    drop(plain);
    both.qp.post_recv(5, slab.take().unwrap()).unwrap();
    both.qp.post_send_inline(6, b"still").unwrap();
    assert_eq!(*both.received().frame.unwrap(), b"still"[..]);
}

#[test]
fn a_reset_takes_all_of_it_back() {
    let (context, _) = context();
    let mut both = Loop::new(context, CqeSize::Bytes64);
    let slab = both.pd.slab(64, 4).unwrap();
    for round in 0..5 {
        both.qp.post_recv(1, slab.take().unwrap()).unwrap();
        both.qp.post_recv(2, slab.take().unwrap()).unwrap();
        both.qp.post_send_inline(3, b"not polled").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        both.qp.reset(&mut [&mut both.cq]).unwrap();
        assert!(both.cq.poll(1).next().is_none(), "round {round}");
        both.qp.prepare(&local()).unwrap();
        both.qp.connect_to_self().unwrap();
        both.qp.post_recv(4, slab.take().unwrap()).unwrap();
        both.qp.post_send_inline(5, b"polled").unwrap();
        assert_eq!(*both.received().frame.unwrap(), b"polled"[..]);
    }
}
