//! Completion counters: which completions they count, their values, and their ends. Rules are from
//! rdma-core 65's `ibv_create_comp_cntr.3.md`, `ibv_qp_attach_comp_cntr.3.md`, and from Linux 7.3's
//! `uverbs_std_types_comp_cntr.c`, `uverbs_std_types_qp.c` and `efa_verbs.c`.

use uverbs::Errno;
use uverbs::counter::{CompletionCounter, CompletionCounts, CountedOps};

use super::*;

/// A side whose queue pair counts, in RTS.
fn counting(device: &SoftEfa, qkey: u32, all: &[(CompletionCounter, CountedOps)]) -> Side<Srd> {
    counting_of(opened(device), qkey, all)
}

fn counting_of(
    context: Context<Efa>,
    qkey: u32,
    all: &[(CompletionCounter, CountedOps)],
) -> Side<Srd> {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let mut qp = context.queue_pair(&pd, &cq).srd().max_inline_data(80).build().unwrap();
    for (counter, ops) in all {
        qp.attach_counter(counter, *ops).unwrap();
    }
    let at = qp.bring_up(&local(qkey)).unwrap();
    Side { qp, cq, pd, _context: context, at }
}

fn counts(completed: u64, failed: u64) -> CompletionCounts {
    CompletionCounts { completed, failed }
}

fn errno<T: std::fmt::Debug>(told: Result<T, Error>) -> Errno {
    match told.expect_err("a refusal") {
        Error::Kernel { errno, .. } => errno,
        other => panic!("{other}"),
    }
}

/// Each operation has its counter at both ends; one of them counts at two queue pairs.
#[test]
fn each_operation_is_counted_where_it_completes() {
    let device = SoftEfa::builder().build().unwrap();
    let context = opened(&device);
    let caps = context.counter_caps().unwrap();
    assert_eq!(caps.ops, CountedOps::all() & CountedOps::from_bits_retain(0x3f));
    assert!(caps.max_counters > 0 && caps.max_value > 1 << 32);
    let kinds = [0, 1, 2, 3, 4, 5].map(|bit| CountedOps::from_bits_retain(1 << bit));
    let all = kinds.map(|ops| (context.completion_counter().unwrap(), ops));
    let [sends, recvs, reads, remote_reads, writes, remote_writes] = &all;
    let (mut one, mut two) = (
        counting_of(context.clone(), 1, &[sends.clone(), reads.clone(), writes.clone()]),
        counting_of(context.clone(), 2, &[recvs.clone(), remote_reads.clone()]),
    );
    // One counter for two queue pairs: sums.
    let mut three = counting_of(context, 3, std::slice::from_ref(remote_writes));
    let mut four = {
        let Side { _context: context, .. } = &three;
        counting_of(context.clone(), 4, std::slice::from_ref(remote_writes))
    };
    let _back = [two.to(&one), three.to(&one), four.to(&one)];
    let peers = [one.to(&two), one.to(&three), one.to(&four)];
    for round in 1..=3 {
        two.expect(7, 8);
        let frame = one.filled(8, 1);
        let mut batch = one.qp.batch();
        batch.send_to(1, frame, &peers[0]).unwrap();
        batch.ring();
        assert_eq!(
            (one.done().result, two.done().result),
            (Ok(Completed::Send), Ok(Completed::Recv))
        );
        let memory = two.pd.expose(64, AccessFlags::REMOTE_READ).unwrap();
        let frame = one.filled(8, 1);
        let mut batch = one.qp.batch();
        batch.read_from(2, frame, memory.remote(0), &peers[0]).unwrap();
        batch.ring();
        assert_eq!(one.done().result, Ok(Completed::Read));
        for (side, to) in [(&mut three, &peers[1]), (&mut four, &peers[2])] {
            let memory = side.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
            let frame = one.filled(8, 1);
            let mut batch = one.qp.batch();
            batch.write_to(3, frame, memory.remote(0), to).unwrap();
            batch.ring();
            assert_eq!(one.done().result, Ok(Completed::Write));
        }
        let found = all.each_ref().map(|(counter, _)| counter.counts());
        let expected = [1, 1, 1, 1, 2, 2].map(|times| counts(times * round, 0));
        assert_eq!(found, expected, "round {round}");
    }
}

/// A refused message is a failure of its sender, and none of the peer. A flush is a failure.
#[test]
fn failures_are_counted_apart() {
    let device = SoftEfa::builder().build().unwrap();
    let context = opened(&device);
    let counter = context.completion_counter().unwrap();
    let all = [(counter.clone(), CountedOps::SEND | CountedOps::RECV | CountedOps::WRITE)];
    let mut one = counting_of(context, 1, &all);
    let two = counting(&device, 2, &[]);
    let to = one.to(&two);
    let wrong = Remote { addr: 64, rkey: 1 };
    for _ in 0..2 {
        let frame = one.filled(8, 1);
        let mut batch = one.qp.batch();
        batch.write_to(1, frame, wrong, &to).unwrap();
        batch.ring();
        assert!(one.done().result.is_err());
    }
    assert_eq!(counter.counts(), counts(0, 2));
    one.expect(7, 8);
    one.qp.fail().unwrap();
    assert_eq!(one.failure(), (7, Status::Flushed));
    assert_eq!(counter.counts(), counts(0, 3));
}

#[test]
fn counts_are_set_and_added_to() {
    let device = SoftEfa::builder().build().unwrap();
    let context = opened(&device);
    let counter = context.completion_counter().unwrap();
    assert_eq!(counter.counts(), counts(0, 0));
    counter.set_completed(40).unwrap();
    counter.add_completed(2).unwrap();
    counter.add_failed(5).unwrap();
    assert_eq!(counter.counts(), counts(42, 5));
    counter.set_failed(0).unwrap();
    let most = context.counter_caps().unwrap().max_value;
    counter.set_completed(most).unwrap();
    assert_eq!(counter.counts(), counts(most, 0));
    counter.add_completed(1).unwrap();
    assert_eq!(counter.counts(), counts(0, 0), "0 follows the largest value");
}

#[test]
fn a_counter_is_attached_early_once_and_at_home() {
    let device = SoftEfa::builder().build().unwrap();
    let context = opened(&device);
    let (one, other) =
        (context.completion_counter().unwrap(), context.completion_counter().unwrap());
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let mut qp = context.queue_pair(&pd, &cq).srd().build().unwrap();
    let foreign = opened(&device).completion_counter().unwrap();
    let told = qp.attach_counter(&foreign, CountedOps::SEND).unwrap_err();
    assert!(matches!(told, Error::Invalid { what: "queue pair", .. }), "{told}");
    let told = qp.attach_counter(&one, CountedOps::empty()).unwrap_err();
    assert!(matches!(told, Error::Invalid { what: "operations", .. }), "{told}");
    let unknown = CountedOps::from_bits_retain(1 << 6);
    assert_eq!(errno(qp.attach_counter(&one, unknown)), Errno::EINVAL);
    qp.attach_counter(&one, CountedOps::SEND | CountedOps::RECV).unwrap();
    assert_eq!(errno(qp.attach_counter(&other, CountedOps::RECV)), Errno::EBUSY);
    assert_eq!(errno(qp.attach_counter(&one, CountedOps::RECV)), Errno::EBUSY);
    qp.attach_counter(&other, CountedOps::READ).unwrap();
    qp.bring_up(&local(1)).unwrap();
    let told = qp.attach_counter(&other, CountedOps::WRITE).unwrap_err();
    assert!(matches!(told, Error::State { state: QpState::ReadyToSend, .. }), "{told}");
}

/// A counter lives as long as its queue pairs, and comes back with them.
#[test]
fn a_queue_pair_keeps_its_counters() {
    let device = SoftEfa::builder().build().unwrap();
    let context = opened(&device);
    let most = context.counter_caps().unwrap().max_counters;
    for _ in 0..2 {
        let all: Vec<_> = (0..most).map(|_| context.completion_counter().unwrap()).collect();
        assert_eq!(errno(context.completion_counter()), Errno::ENOMEM);
        let sides = [(all[0].clone(), CountedOps::SEND)];
        let mut one = counting_of(context.clone(), 1, &sides);
        drop((all, sides));
        let to = one.qp.destination(&one.at).unwrap();
        one.expect(7, 8);
        let frame = one.filled(8, 1);
        let mut batch = one.qp.batch();
        batch.send_to(1, frame, &to).unwrap();
        batch.ring();
        assert!(one.done().result.is_ok() && one.done().result.is_ok());
        let _ = one.qp.destroy().unwrap();
    }
}

#[test]
fn a_device_without_counters_says_so() {
    let device = SoftEfa::builder().without_counters().build().unwrap();
    let context = opened(&device);
    assert!(matches!(context.completion_counter(), Err(Error::Unsupported { .. })));
    assert!(matches!(context.counter_caps(), Err(Error::Unsupported { .. })));
    let soft = uverbs::device("softhca0").unwrap().open().unwrap();
    assert!(matches!(soft.completion_counter(), Err(Error::Unsupported { .. })));
    assert!(matches!(soft.counter_caps(), Err(Error::Unsupported { .. })));
    let device = SoftEfa::builder().without_write().build().unwrap();
    let context = opened(&device);
    let counter = context.completion_counter().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let mut qp = context.queue_pair(&pd, &cq).srd().build().unwrap();
    assert_eq!(errno(qp.attach_counter(&counter, CountedOps::WRITE)), Errno::EOPNOTSUPP);
}
