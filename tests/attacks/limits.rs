//! Numbers at their limits, in each function that takes one: a typed error, or an object that
//! works; never a panic.

use std::time::Duration;

use common::{device, local, only_on_softhca, pair};
use uverbs::attr::SrqAttr;
use uverbs::memory::{DmOp, Prefetch, RegistrationCache, WindowKind};
use uverbs::raw::Sge;
use uverbs::{AccessFlags, Frame, QueuePair};

const NUMBERS: [u32; 9] = [0, 1, 2, 255, 0xffff, 1 << 24, i32::MAX as u32, u32::MAX - 1, u32::MAX];
const SIZES: [usize; 10] = [
    0,
    1,
    7,
    0xffff,
    u32::MAX as usize,
    1 << 32,
    isize::MAX as usize - 1,
    isize::MAX as usize,
    usize::MAX - 1,
    usize::MAX,
];

#[test]
fn queues_of_any_size_are_made_or_refused() {
    if !only_on_softhca("it makes each kind of queue") {
        return;
    }
    let context = device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(512).unwrap();
    for n in NUMBERS {
        let mut made = context.create_cq(n).ok();
        drop(context.completion_queue(8).vector(n).build());
        for m in NUMBERS {
            if let Some(cq) = &mut made {
                let _ = cq.resize(m);
                let _ = cq.moderate(m as u16, Duration::from_micros(m.into()));
            }
        }
        let build = || context.queue_pair(&pd, &cq);
        drop(build().max_send_wr(n).build());
        drop(build().max_send_wr(n).overcommit().build());
        drop(build().max_recv_wr(n).overcommit().build());
        drop(build().max_send_sge(n).build());
        drop(build().max_recv_sge(n).build());
        drop(build().max_inline_data(n).build());
        drop(build().max_inline_data(n).max_send_sge(n).max_recv_sge(n).ud().build());
        drop(build().max_send_wr(n).max_recv_wr(n).overcommit().raw_packet().build());
        let srq = context.shared_receive_queue(&pd).max_wr(n).build();
        if let Ok(mut srq) = srq {
            for m in NUMBERS {
                let _ = srq.set_limit(m);
                let _ = srq.resize(m);
                let SrqAttr { max_wr, .. } = srq.query().unwrap();
                assert!(max_wr > 0);
            }
        }
        drop(context.shared_receive_queue(&pd).max_sge(n).build());
        drop(context.shared_receive_queue(&pd).limit(n).build());
        let domain = context.xrc_domain().unwrap();
        drop(context.shared_receive_queue(&pd).max_wr(n).xrc(&domain, &cq).build());
        drop(context.shared_receive_queue(&pd).tags(&cq, n).build());
        drop(context.shared_receive_queue(&pd).tags(&cq, 4).max_tag_changes(n).build());
        drop(context.work_queue(&pd, &cq).max_wr(n).build());
        drop(context.work_queue(&pd, &cq).max_sge(n).build());
        drop(context.alloc_indirect_key(&pd, n));
        drop(context.alloc_device_memory(4096, n));
        drop(context.open_xrc_target(&domain, n));
        let _ = context.query_gid(n as u8, n);
        let _ = context.query_pkey(n as u8, n as u16);
        let _ = context.pkey_index(n as u8, n as u16);
        let _ = context.query_port(n as u8);
        let _ = context.query_port_speed(n as u8);
        let _ = context.best_gid(n as u8);
        let _ = pd.import_region(n);
    }
}

#[test]
fn memory_of_any_size_is_made_or_refused() {
    if !only_on_softhca("it makes each kind of memory") {
        return;
    }
    let context = device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let memory = pd.expose(4096, AccessFlags::empty()).unwrap();
    let device_memory = context.alloc_device_memory(4096, 0).unwrap();
    let key = context.alloc_indirect_key(&pd, 4).unwrap();
    for n in SIZES {
        if n != u32::MAX as usize && n != 1 << 32 {
            drop(pd.slab(n, 1));
            drop(pd.expose(n, AccessFlags::empty()));
        }
        drop(pd.slab(1, n.max(1 + (1 << 28))));
        drop(context.alloc_device_memory(n, 0));
        for m in SIZES {
            if n > 1 << 40 && m > 1 << 40 {
                drop(pd.slab(n, m));
            }
            let _ = memory.part(n, m);
            let _ = memory.blocks(n, m as u16, m as u16, m as u32);
            let _ = memory.sge(n, m as u32);
            let _ = memory.remote(n);
            let _ = memory.load(n);
            let _ = memory.store(n, 1);
            let _ = memory.read(n, &mut []);
            let _ = memory.read(n, &mut [0; 64]);
            let _ = memory.write(n, &[0; 64]);
            let _ = device_memory.read(n, &mut [0; 64]);
            let _ = device_memory.write(n, &[0; 64]);
            let _ = device_memory.read(n, &mut []);
            drop(pd.register_device_memory(&device_memory, n, m, AccessFlags::empty()));
            let _ = key.part(n as u64, m as u32);
            let _ = key.remote(n as u64);
            let sge = Sge { addr: n as u64, len: m as u32, lkey: 7 };
            for what in [Prefetch::Read, Prefetch::Write, Prefetch::Present] {
                let _ = pd.prefetch(&[sge], what, true);
            }
        }
        let frame = pd.slab(64, 1).unwrap().take().unwrap();
        let frame = frame.part(n..).into_whole();
        let frame = frame.part(..n).into_whole();
        let frame = frame.part(..=n).into_whole();
        let mut frame = frame.part(n..=n).into_whole();
        frame.set_len(n);
        assert!(frame.len() <= 64);
        let mut cache = RegistrationCache::new(&pd, n, n);
        let bytes: std::sync::Arc<[u8]> = vec![0; 100].into();
        let part = cache.get(&bytes).unwrap().part(n..);
        assert!(part.len() <= 100);
        assert!(cache.get(&Vec::new().into()).is_err());
    }
    for kind in [WindowKind::Type1, WindowKind::Type2] {
        let mut window = pd.alloc_window(kind).unwrap();
        for n in NUMBERS {
            let _ = window.undo(n);
        }
    }
    for n in 0..=u8::MAX {
        if let Ok(operation) = device_memory.map_operation(DmOp::from_raw(n)) {
            for at in SIZES {
                let _ = operation.write(at, 0);
                let _ = operation.read(at);
            }
        }
    }
}

/// A chain of frames is as long as its slab: neither its end nor its text recurses.
#[test]
fn a_long_chain_is_dropped_and_shown() {
    let (client, _server) = pair();
    const COUNT: usize = 200_000;
    let slab = client.slab(8, COUNT);
    let mut chain: Option<Frame> = None;
    while let Some(mut frame) = slab.take() {
        if let Some(rest) = chain.take() {
            frame.append(rest);
        }
        chain = Some(frame);
    }
    let chain = chain.unwrap();
    assert_eq!(chain.total_len(), 8 * COUNT);
    let text = format!("{chain:?}");
    assert!(text.len() > 10);
    let shared = chain.share();
    let text = format!("{shared:?}");
    assert!(text.len() > 10);
    let shared = shared.chain();
    let mut qp: QueuePair = client.qp;
    assert!(qp.batch().send(1, shared).is_err());
    assert_eq!(crate::free(&slab), COUNT);
}

/// Waits without an end in sight are waits, whatever they wait for.
#[test]
fn the_longest_wait_is_no_panic() {
    let (mut client, mut server) = pair();
    server.expect(1, 64);
    server.expect(2, 64);
    client.qp.post_send_inline(1, b"x").unwrap();
    client.qp.post_send_inline(2, b"x").unwrap();
    for _ in 0..2 {
        server.cq.wait(Duration::MAX).unwrap();
        client.cq.wait(Duration::MAX).unwrap();
    }
    let channel = client.context.create_comp_channel().unwrap();
    let mut cq = client.context.completion_queue(8).channel(&channel).build().unwrap();
    let mut qp: QueuePair =
        client.context.queue_pair(&client.pd, &cq).overcommit().build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let memory = client.pd.expose(8, AccessFlags::REMOTE_WRITE).unwrap();
    let post = |qp: &mut QueuePair| {
        let mut batch = qp.batch();
        batch.write_inline(1, b"x", memory.remote(0)).unwrap();
        batch.ring();
    };
    post(&mut qp);
    cq.wait(Duration::MAX).unwrap();
    cq.arm(uverbs::Notify::Any).unwrap();
    post(&mut qp);
    channel.next_within(Duration::MAX).unwrap();
    cq.wait(Duration::MAX).unwrap();
    drop(cq.moderate(1, Duration::MAX));
    qp.fail().unwrap();
    let _ = qp.wait_drained(Duration::MAX);
}
