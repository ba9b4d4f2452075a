//! Safe programs that mislead the library's bookkeeping: keys, windows, cores, and the sides that a
//! provider makes.

use std::sync::Barrier;

use common::{LIMIT, Side, local, not_on_rxe, only_on_softhca, pair_with, pattern, soft};
use uverbs::attr::SendOpSet;
use uverbs::memory::{Block, IndirectKey, MemoryWindow, WindowKind};
use uverbs::packet::Checksums;
use uverbs::provider::AnyContext;
use uverbs::raw::Sge;
use uverbs::softhca::SoftHca;
use uverbs::transport::{RawPacket, Rc};
use uverbs::{
    AccessFlags, Completed, Device, Error, ExposedMemory, Failure, PostError, QueuePairBuilder,
    Remote,
};
use uverbs_core::memory::post::Source;
use uverbs_core::provider::{ContextOps, NewSrq, SrqInit, SrqOps};
use uverbs_core::queues::layout::MOST_PARTS;

const NOTHING: AccessFlags = AccessFlags::empty();
const BOTH: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);
const NO_KEYS: &str = "its kernel has no indirect keys";
const NO_SGE: Sge = Sge { addr: 0, len: 0, lkey: 0 };
const NO_BLOCK: Block = Block { addr: 0, lkey: 0, len: 0, stride: 0 };

fn with_keys(builder: QueuePairBuilder) -> QueuePairBuilder {
    builder.max_send_wr(32).send_ops(SendOpSet::of(uverbs::attr::QpType::Rc) | SendOpSet::REKEY)
}

fn pair() -> (Side, Side) {
    pair_with(&local(), with_keys)
}

fn closed(side: &Side, len: usize) -> ExposedMemory {
    side.pd.expose(len, AccessFlags::MW_BIND).expect("expose")
}

fn bytes(memory: &ExposedMemory) -> Vec<u8> {
    let mut all = vec![0; memory.len()];
    memory.read(0, &mut all).unwrap();
    all
}

fn bind(
    side: &mut Side,
    window: &mut MemoryWindow,
    memory: &ExposedMemory,
) -> Result<Completed, Failure> {
    let part = memory.part(0, memory.len()).unwrap();
    let mut batch = side.qp.batch();
    batch.bind(50, window, &part, BOTH).unwrap();
    batch.ring();
    side.wait().result
}

/// A window that is told another key leaves that key as it is, and keeps its own.
#[test]
fn a_window_takes_no_other_key_over() {
    let (mut client, mut server) = pair();
    let mut window = server.pd.alloc_window(WindowKind::Type2).unwrap();
    let other = server.pd.alloc_window(WindowKind::Type2).unwrap();
    let memory = closed(&server, 4096);
    let indirect = server.context.alloc_indirect_key(&server.pd, 4).ok();
    let mine = window.rkey();
    let foreign = [other.rkey(), memory.rkey(), 0, u32::MAX].into_iter();
    for key in foreign.chain(indirect.as_ref().map(IndirectKey::rkey)) {
        match window.undo(key) {
            Err(Error::Invalid { verb: "bind_mw", what: "key", .. }) => {}
            told => panic!("{key:#x}: {told:?}"),
        }
        assert_eq!(window.rkey(), mine);
    }
    assert_eq!(bind(&mut server, &mut window, &memory), Ok(Completed::Rekey));
    // The peer reaches the memory by the window's key, and by no variant of the other's.
    let to = Remote { rkey: window.rkey(), addr: memory.addr() };
    client.qp.post_write_inline(1, &[7; 8], to).unwrap();
    client.wait().result.unwrap();
    let next = other.rkey() & !0xff | (other.rkey() + 1) & 0xff;
    client.qp.post_write_inline(2, &[8; 8], Remote { rkey: next, ..to }).unwrap();
    assert!(client.wait().result.is_err());
    assert_eq!(memory.load(0), Ok(u64::from_ne_bytes([7; 8])));
}

/// A bind that is noted and never posted opens nothing: the device keeps the earlier key, for the
/// earlier memory if the window had any.
#[test]
fn a_bind_that_was_only_noted_opens_nothing() {
    for kind in [WindowKind::Type2, WindowKind::Type1] {
        for way in 0..3 {
            let (mut client, mut server) = pair();
            let mut window = server.pd.alloc_window(kind).unwrap();
            let all = [(); 2].map(|()| closed(&server, 4096));
            let [before, memory] = &all;
            if kind == WindowKind::Type1 {
                assert_eq!(bind(&mut server, &mut window, before), Ok(Completed::Rekey));
            }
            let part = memory.part(0, 4096).unwrap();
            drop(window.bind(part.domain(), &part, BOTH).unwrap().posted());
            // Peers use the new key for either memory, or another bind is posted. That one fails
            // where the device compares the old key. Soft-RoCE reports it as flushed, since its
            // completer flushes a queue in ERR (`rxe_comp.c`, `flush_send_queue`).
            let rebound = (way == 2).then(|| bind(&mut server, &mut window, memory));
            let is_open = matches!(rebound, Some(Ok(_)));
            if let Some(Err(failure)) = rebound {
                assert!(common::is_rxe(), "{failure:?}");
                continue;
            }
            let to = window.remote(&all[way.min(1)], 0);
            client.qp.post_write_inline(1, &[7; 8], to).unwrap();
            assert_eq!(client.wait().result.is_ok(), is_open, "{kind:?}, way {way}");
            let written = if is_open { u64::from_ne_bytes([7; 8]) } else { 0 };
            assert_eq!((before.load(0), memory.load(0)), (Ok(0), Ok(written)));
        }
    }
}

/// A layout that is noted and never posted has no effect: the device keeps the earlier layout, if
/// any.
#[test]
fn a_layout_that_was_only_noted_reaches_nothing() {
    if not_on_rxe(NO_KEYS) {
        return;
    }
    for (interleaved, is_laid_out) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut client, server) = pair();
        let slab = client.slab(64, 1);
        let mut frame = slab.take().unwrap();
        frame.copy_from_slice(&pattern(64, 3));
        let before = frame.to_vec();
        let memory = client.pd.expose(1 << 16, NOTHING).unwrap();
        let there = server.pd.expose(64, BOTH).unwrap();
        there.write(0, &[9; 64]).unwrap();
        let mut key = client.context.alloc_indirect_key(&client.pd, 4).unwrap();
        let domain = frame.domain();
        if is_laid_out {
            let mut batch = client.qp.batch();
            batch.map_list(2, &mut key, &[memory.part(4096, 64).unwrap()], BOTH).unwrap();
            batch.ring();
            client.wait().result.unwrap();
        }
        if interleaved {
            // As long as all memory: any address of this process is within.
            let blocks = [memory.blocks(0, u16::MAX, 0, u32::MAX).unwrap()];
            let mut room = [NO_BLOCK; MOST_PARTS];
            drop(key.interleaved(domain, &blocks, BOTH, &mut room).unwrap().posted());
        } else {
            let parts = [memory.part(0, 64).unwrap()];
            let mut room = [NO_SGE; MOST_PARTS];
            drop(key.list(domain, &parts, BOTH, &mut room).unwrap().posted());
        }
        let at = if interleaved { frame.as_ptr().addr() as u64 } else { 0 };
        let Ok(part) = key.part(at, 64) else { panic!("{} bytes", key.len()) };
        let mut batch = client.qp.batch();
        batch.read(1, part, there.remote(0)).unwrap();
        batch.ring();
        assert!(client.wait().result.is_err());
        assert_eq!(*frame, before);
        assert_eq!(bytes(&memory), [0; 1 << 16]);
    }
}

/// A raw packet queue and a connection that lays keys out, in one domain.
fn packets(device: &Device) -> (Side, uverbs::packet::RawPacketQueuePair) {
    let mut side = Side::new(device, &local(), with_keys);
    side.qp.connect_to_self().unwrap();
    let qp = side.context.queue_pair(&side.pd, &side.cq).max_send_wr(16).raw_packet();
    let mut qp = qp.build().unwrap();
    qp.bring_up(1).unwrap();
    (side, qp)
}

/// Posts parts of an indirect key whose offsets are a private address, and no address at all.
fn packet_of(
    side: &mut Side,
    qp: &mut uverbs::QueuePair<uverbs::Any, RawPacket>,
) -> [Option<PostError>; 2] {
    let memory = side.pd.expose(1 << 16, NOTHING).unwrap();
    let blocks = [memory.blocks(0, u16::MAX, 0, u32::MAX).unwrap()];
    let mut key = side.context.alloc_indirect_key(&side.pd, 4).unwrap();
    let mut batch: uverbs::Batch<'_, uverbs::Any, Rc> = side.qp.batch();
    batch.map_interleaved(1, &mut key, &blocks, NOTHING).unwrap();
    batch.ring();
    side.cq.wait(LIMIT).unwrap().result.unwrap();
    let private = Box::new([0x5e_u8; 64]);
    let places = [private.as_ptr().addr() as u64, 64 << 10];
    places.map(|at| {
        let part = key.part(at, 64).unwrap();
        let mut batch = qp.batch();
        // The batch is never rung: the test asks if the post writes a work request.
        batch.send_packet(2, part, Checksums::AsTheyAre).err().map(|rejected| rejected.error)
    })
}

#[test]
fn a_packet_of_an_indirect_key_is_not_read_at_its_offset() {
    if only_on_softhca("it takes a device before ConnectX-5, and another one") {
        let hca = SoftHca::builder().wants_headers().build().expect("a software HCA");
        let (mut side, mut qp) = packets(&soft(&hca));
        assert_eq!(packet_of(&mut side, &mut qp), [Some(PostError::BadOperation); 2]);
        let hca = SoftHca::builder().build().expect("a software HCA");
        let (mut side, mut qp) = packets(&soft(&hca));
        assert_eq!(packet_of(&mut side, &mut qp), [None; 2], "the device reads it by the key");
    }
}

/// The posting side of a shared receive queue changes no other one.
#[test]
fn a_shared_queue_is_changed_by_its_own_core_only() {
    let context = common::device().open().unwrap();
    let pd = context.provider().alloc_pd().unwrap();
    let make = || context.provider().create_srq(&SrqInit::new(pd.clone())).unwrap();
    let (NewSrq { core, mut srq }, NewSrq { core: other, srq: _kept }) = (make(), make());
    for told in [srq.set_limit(&other, 1), srq.resize(&other, 64).map(drop)] {
        match told {
            Err(Error::Invalid { verb: "modify_srq", what: "shared receive queue", .. }) => {}
            told => panic!("{told:?}"),
        }
    }
    srq.set_limit(&core, 1).unwrap();
    assert_eq!(other.query().unwrap().limit, 0);
}

/// Freed device memory is reached no more, though its pages may still be mapped here.
#[test]
fn freed_device_memory_is_not_read() {
    if not_on_rxe("soft-RoCE has no device memory") {
        return;
    }
    let context = common::device().open().unwrap();
    let mut freed = context.provider().alloc_dm(4096, 0).unwrap();
    freed.free().unwrap();
    let other = context.alloc_device_memory(4096, 0).unwrap();
    other.write(0, &[7; 64]).unwrap();
    let mut read = [0; 64];
    for told in [freed.read(0, &mut read), freed.write(0, &[9; 64])] {
        match told {
            Err(Error::Invalid { what: "device memory", .. }) => {}
            told => panic!("{told:?}"),
        }
    }
    let pd = context.alloc_pd().unwrap();
    assert_eq!(freed.handle(), u32::MAX, "by the number other memory could be registered");
    pd.register_device_memory(&other, 0, 4096, AccessFlags::REMOTE_READ).unwrap();
    other.read(0, &mut read).unwrap();
    assert_eq!(read, [7; 64]);
}

/// A region of one open device is not deregistered by its number on another one.
#[test]
fn scratch_memory_is_of_one_open_device() {
    let (one, another) = (common::device().open().unwrap(), common::device().open().unwrap());
    let AnyContext::Mlx5(mlx5) = one.provider() else { return };
    match mlx5.copy_scratch(&another.provider().alloc_pd().unwrap()) {
        Err(Error::Invalid { verb: "reg_mr", what: "protection domain", .. }) => {}
        told => panic!("{told:?}"),
    }
    mlx5.copy_scratch(&one.provider().alloc_pd().unwrap()).unwrap();
}

/// A key of this side that no work request may change is not taken away: the queue pair fails.
#[test]
fn a_key_of_a_slab_is_not_invalidated() {
    let (_client, mut server) = pair();
    let slab = server.slab(64, 2);
    let frame = slab.take().unwrap();
    let mut batch = server.qp.batch();
    batch.local_invalidate(1, slab.lkey()).unwrap();
    batch.ring();
    assert!(server.wait().result.is_err());
    // Nor by the peer.
    let (mut other, mut third) = pair();
    let slab = third.slab(64, 2);
    third.qp.post_recv(1, slab.take().unwrap()).unwrap();
    let mut batch = other.qp.batch();
    batch.send_invalidate_inline(2, b"x", slab.lkey()).unwrap();
    batch.ring();
    let failed = other.wait().result.is_err();
    assert!(failed || third.wait().result.is_err());
    assert_eq!(frame.len(), 64);
}

/// A queue pair that is built while its completion queue shrinks has room there, or is refused, or
/// the new size is: a queue that ignores overruns would write over completions that are polled.
#[test]
fn a_queue_shrinks_below_no_queue_pair_that_is_being_built() {
    if not_on_rxe("its completion queues refuse what has no room") {
        return;
    }
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.completion_queue(400).ignore_overrun().build().unwrap();
    let start = Barrier::new(2);
    for round in 0..300 {
        let builder = context.queue_pair(&pd, &cq).max_send_wr(100).max_recv_wr(100);
        let (built, shrunk) = std::thread::scope(|scope| {
            let start = &start;
            let built = scope.spawn(move || {
                start.wait();
                builder.build()
            });
            start.wait();
            (0..round % 30 * 50).for_each(|_| std::hint::spin_loop());
            let shrunk = cq.resize(30);
            (built.join().unwrap(), shrunk)
        });
        let most = built.as_ref().map_or(0, |qp| qp.cap().max_send_wr + qp.cap().max_recv_wr);
        assert!(most <= cq.capacity(), "{most} of {}, round {round}: {shrunk:?}", cq.capacity());
        drop(built);
        // Hears that it is gone.
        assert!(cq.poll(1).next().is_none());
        cq.resize(400).unwrap();
    }
}
