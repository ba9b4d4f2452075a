//! Memory windows: access that they give to a peer, invalidation, and refusals.

use common::{LIMIT, Side, local, pair_with, pattern, soft};
use uverbs::attr::SendOpSet;
use uverbs::memory::{MemoryWindow, WindowKind};
use uverbs::raw::Rekey;
use uverbs::softhca::SoftHca;
use uverbs::transport::{Transport, Uc};
use uverbs::{
    AccessFlags, Any, Completed, CompletionQueue, ExposedMemory, Local, PostError, QueuePair,
    QueuePairBuilder, Remote, Status, WorkCompletion,
};

const KINDS: [WindowKind; 2] = [WindowKind::Type1, WindowKind::Type2];
const BOTH: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

fn with_windows<T: Transport>(builder: QueuePairBuilder<Any, T>) -> QueuePairBuilder<Any, T> {
    builder.max_send_wr(16).send_ops(SendOpSet::of(T::TYPE) | SendOpSet::REKEY)
}

fn pair() -> (Side, Side) {
    pair_with(&local(), with_windows)
}

/// Memory that only windows open.
fn closed(side: &Side, len: usize) -> ExposedMemory {
    side.pd.expose(len, AccessFlags::MW_BIND).expect("expose")
}

fn bind(
    side: &mut Side,
    window: &mut MemoryWindow,
    memory: &ExposedMemory,
    (offset, len): (usize, usize),
    access: AccessFlags,
) -> WorkCompletion {
    let mut batch = side.qp.batch();
    let part = memory.part(offset, len).unwrap();
    let key = batch.bind(50, window, &part, access).unwrap();
    batch.ring();
    assert_eq!(key, window.rkey());
    side.wait()
}

fn unbind(side: &mut Side, window: &mut MemoryWindow) {
    let mut batch = side.qp.batch();
    batch.unbind(51, window).unwrap();
    batch.ring();
    assert_eq!(side.done().result, Ok(Completed::Rekey));
}

/// Writes by a key, and returns the completion.
fn write(side: &mut Side, bytes: &[u8], to: Remote) -> WorkCompletion {
    side.qp.post_write_inline(60, bytes, to).unwrap();
    side.wait()
}

fn status(completion: &WorkCompletion) -> Option<Status> {
    completion.result.err().map(|failure| failure.status)
}

/// `rxe_resp.c:check_rkey`.
const RXE_RANGE: &str = "its kernel looks at the range of the region, and not of the window";

#[test]
fn a_window_opens_its_range_and_no_more() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    for kind in KINDS {
        let (mut client, mut server) = pair();
        let memory = closed(&server, 8192);
        let mut window = server.pd.alloc_window(kind).unwrap();
        assert_eq!(window.kind(), kind);
        assert_eq!(
            bind(&mut server, &mut window, &memory, (4096, 100), BOTH).result,
            Ok(Completed::Rekey)
        );
        let done = write(&mut client, &pattern(60, 3), window.remote(&memory, 4096 + 40));
        assert_eq!(done.result, Ok(Completed::Write));
        let mut there = [0; 61];
        memory.read(4096 + 39, &mut there).unwrap();
        assert!(there[0] == 0 && there[1..] == pattern(60, 3)[..]);
        let frame = client.slab(60, 1).take().unwrap();
        client.qp.post_read(61, frame, window.remote(&memory, 4096 + 40)).unwrap();
        assert!(client.done().frame.unwrap()[..] == pattern(60, 3)[..]);
        if kind == WindowKind::Type1 && common::not_on_rxe(RXE_RANGE) || common::is_rxe() {
            continue;
        }
        // One byte past its end. The region's key itself gives no access.
        let done = write(&mut client, &[1; 2], window.remote(&memory, 4096 + 99));
        assert_eq!(status(&done), Some(Status::RemoteAccess), "{kind:?}");
        memory.read(4096 + 99, &mut there[..2]).unwrap();
        assert_eq!(there[..2], [pattern(60, 3)[59], 0]);
    }
}

#[test]
fn what_a_window_does_not_grant_is_refused() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    let all = [("read only", 4096), ("before", 4095), ("behind", 4196)];
    let granted = if common::not_on_rxe(RXE_RANGE) { &all[..1] } else { &all[..] };
    for kind in KINDS {
        for &(what, offset) in granted {
            let (mut client, mut server) = pair();
            let memory = closed(&server, 8192);
            let mut window = server.pd.alloc_window(kind).unwrap();
            let access = if what == "read only" { AccessFlags::REMOTE_READ } else { BOTH };
            bind(&mut server, &mut window, &memory, (4096, 100), access).result.unwrap();
            let done = write(&mut client, &[7], window.remote(&memory, offset));
            assert_eq!(status(&done), Some(Status::RemoteAccess), "{what}, {kind:?}");
            let mut all = [1; 8192];
            memory.read(0, &mut all).unwrap();
            assert_eq!(all, [0; 8192]);
        }
    }
}

#[test]
fn a_window_is_taken_away_by_unbinding_and_bound_again() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    for kind in KINDS {
        let (mut client, mut server) = pair();
        let (first, second) = (closed(&server, 4096), closed(&server, 4096));
        let mut window = server.pd.alloc_window(kind).unwrap();
        bind(&mut server, &mut window, &first, (0, 4096), BOTH).result.unwrap();
        let old = window.remote(&first, 8);
        write(&mut client, &[1; 8], old).result.unwrap();
        unbind(&mut server, &mut window);
        bind(&mut server, &mut window, &second, (16, 64), BOTH).result.unwrap();
        write(&mut client, &[2; 8], window.remote(&second, 16)).result.unwrap();
        assert_eq!(second.load(16), Ok(u64::from_ne_bytes([2; 8])));
        // The old key does not give access to the new binding.
        let done = write(&mut client, &[3; 8], Remote { rkey: old.rkey, ..second.remote(16) });
        assert_eq!(status(&done), Some(Status::RemoteAccess), "{kind:?}");
        assert_eq!(first.load(8), Ok(u64::from_ne_bytes([1; 8])));
        assert_eq!(second.load(16), Ok(u64::from_ne_bytes([2; 8])));
    }
}

#[test]
fn an_unbound_window_opens_nothing() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    for kind in KINDS {
        let (mut client, mut server) = pair();
        let memory = closed(&server, 4096);
        let mut window = server.pd.alloc_window(kind).unwrap();
        bind(&mut server, &mut window, &memory, (0, 4096), BOTH).result.unwrap();
        write(&mut client, &[1; 8], window.remote(&memory, 8)).result.unwrap();
        unbind(&mut server, &mut window);
        let done = write(&mut client, &[2; 8], window.remote(&memory, 8));
        assert_eq!(status(&done), Some(Status::RemoteAccess), "{kind:?}");
        assert_eq!(memory.load(8), Ok(u64::from_ne_bytes([1; 8])));
    }
}

#[test]
fn a_dropped_window_opens_nothing_and_keeps_its_memory_until_then() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    for kind in KINDS {
        let (mut client, mut server) = pair();
        let memory = closed(&server, 4096);
        let mut window = server.pd.alloc_window(kind).unwrap();
        bind(&mut server, &mut window, &memory, (0, 4096), BOTH).result.unwrap();
        let place = window.remote(&memory, 8);
        drop(memory);
        write(&mut client, &[1; 8], place).result.unwrap();
        drop(window);
        let done = write(&mut client, &[2; 8], place);
        assert_eq!(status(&done), Some(Status::RemoteAccess), "{kind:?}");
    }
}

#[test]
fn the_next_work_request_finds_the_window_bound() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    let (mut client, mut server) = pair();
    let memory = closed(&server, 4096);
    let mut windows = KINDS.map(|kind| server.pd.alloc_window(kind).unwrap());
    for window in &mut windows {
        let mut batch = server.qp.batch();
        let key = batch.bind(1, window, &memory.part(0, 64).unwrap(), BOTH).unwrap();
        client.expect(2, 16);
        // By the same doorbell: the peer may use the key as soon as it has it.
        batch.send_inline(3, &key.to_ne_bytes()).unwrap();
        batch.ring();
        let told = client.cq.wait(LIMIT).unwrap().frame.unwrap();
        let rkey = u32::from_ne_bytes(told[..4].try_into().unwrap());
        let done = write(&mut client, &[5; 8], Remote { rkey, ..memory.remote(0) });
        assert_eq!(done.result, Ok(Completed::Write));
        assert_eq!([server.done().id, server.done().id], [1, 3]);
    }
}

#[test]
fn a_peer_hands_a_key_back_by_a_send() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    let (mut client, mut server) = pair();
    let memory = closed(&server, 4096);
    let mut window = server.pd.alloc_window(WindowKind::Type2).unwrap();
    for round in 0..3 {
        bind(&mut server, &mut window, &memory, (0, 4096), BOTH).result.unwrap();
        write(&mut client, &[round; 8], window.remote(&memory, 8)).result.unwrap();
        server.expect(9, 64);
        let mut batch = client.qp.batch();
        if round == 0 {
            batch.send_invalidate_inline(1, b"done with it", window.rkey()).unwrap();
        } else {
            let mut frame = client.pd.slab(64, 1).unwrap().take().unwrap();
            frame[..12].copy_from_slice(b"done with it");
            frame.set_len(12);
            batch.send_invalidate(1, frame, window.rkey()).unwrap();
        }
        batch.ring();
        assert_eq!(client.done().result, Ok(Completed::Send));
        let until = std::time::Instant::now() + LIMIT;
        let mut told = None;
        while told.is_none() && std::time::Instant::now() < until {
            server.cq.poll_with(1, |mut done| {
                assert_eq!((done.id(), done.result()), (9, Ok(Completed::Recv)));
                assert_eq!(&done.take_frame().unwrap()[..], b"done with it");
                assert_eq!(done.immediate(), None);
                told = Some(done.invalidated());
            });
        }
        assert_eq!(told, Some(Some(window.rkey())));
        assert_eq!(memory.load(8), Ok(u64::from_ne_bytes([round; 8])));
    }
    let done = write(&mut client, &[9; 8], window.remote(&memory, 8));
    assert_eq!(status(&done), Some(Status::RemoteAccess));
    assert_eq!(memory.load(8), Ok(u64::from_ne_bytes([2; 8])));
}

#[test]
fn type_2_is_bound_once_and_undo_gives_the_key_back() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    let (mut client, mut server) = pair();
    let memory = closed(&server, 4096);
    let mut window = server.pd.alloc_window(WindowKind::Type2).unwrap();
    // A dropped batch binds no window.
    let first = window.rkey();
    let mut batch = server.qp.batch();
    batch.bind(1, &mut window, &memory.part(0, 8).unwrap(), BOTH).unwrap();
    batch.bind(2, &mut window, &memory.part(8, 8).unwrap(), BOTH).unwrap();
    drop(batch);
    window.undo(first).unwrap();
    assert_eq!(window.rkey(), first);
    bind(&mut server, &mut window, &memory, (0, 64), BOTH).result.unwrap();
    write(&mut client, &[4; 8], window.remote(&memory, 0)).result.unwrap();
    // Bound already.
    let key = window.rkey();
    let done = bind(&mut server, &mut window, &memory, (64, 64), BOTH);
    if common::is_rxe() {
        // Its kernel brings the queue pair to ERR, and says how in several ways (`rxe_req.c`,
        // `rxe_do_local_ops`).
        assert!(done.result.is_err());
    } else {
        assert_eq!(status(&done), Some(Status::MemoryWindowBind));
    }
    window.undo(key).unwrap();
    assert_eq!(window.rkey(), key);
}

#[test]
fn unreliable_connections_have_windows() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    if common::not_on_rxe("its kernel refuses to bind on an unreliable connection") {
        return;
    }
    let device = common::device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut ends = [0, 1].map(|_| {
        let cq = context.create_cq(64).unwrap();
        let builder = with_windows(context.queue_pair(&pd, &cq).uc()).max_recv_wr(16);
        (builder.build().unwrap(), cq)
    });
    let local = Local { access: AccessFlags::REMOTE_WRITE, ..Local::default() };
    let at = [0, 1].map(|end: usize| ends[end].0.prepare(&local).unwrap());
    ends[0].0.connect(&at[1]).unwrap();
    ends[1].0.connect(&at[0]).unwrap();
    let [(mut client, mut client_cq), (mut server, mut server_cq)] = ends;
    let memory = pd.expose(4096, AccessFlags::MW_BIND).unwrap();
    let done = |cq: &mut CompletionQueue| cq.wait(LIMIT).unwrap().result;
    for kind in KINDS {
        let mut window = pd.alloc_window(kind).unwrap();
        let mut batch = server.batch();
        let access = AccessFlags::REMOTE_WRITE;
        batch.bind(1, &mut window, &memory.part(0, 64).unwrap(), access).unwrap();
        batch.ring();
        assert_eq!(done(&mut server_cq), Ok(Completed::Rekey));
        server.post_recv(3, pd.slab(1, 1).unwrap().take().unwrap()).unwrap();
        let mut batch = client.batch();
        batch.write_inline(1, &[kind as u8 + 1; 8], window.remote(&memory, 0)).unwrap();
        batch.write_imm_inline(2, &[], window.remote(&memory, 0), 0).unwrap();
        batch.ring();
        assert_eq!(done(&mut server_cq), Ok(Completed::RecvWriteImm));
        assert_eq!([done(&mut client_cq), done(&mut client_cq)], [Ok(Completed::Write); 2]);
        assert_eq!(memory.load(0), Ok(u64::from_ne_bytes([kind as u8 + 1; 8])));
        let mut batch = server.batch();
        batch.unbind(2, &mut window).unwrap();
        batch.ring();
        assert_eq!(done(&mut server_cq), Ok(Completed::Rekey));
    }
    let uc: &mut QueuePair<Any, Uc> = &mut client;
    let nobody = uverbs::raw::SendOp::SendInvalidate(0x100);
    let data = uverbs::raw::Data::Inline(&[]);
    let mut batch = uc.batch();
    #[allow(unsafe_code, reason = "the typed post isn't there for UC")]
    // SAFETY: no memory is named.
    let refused = unsafe { batch.raw().post(1, nobody, data) };
    assert_eq!(refused, Err(PostError::BadOperation));
}

#[test]
fn bad_binds_are_refused_at_once() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    let (_client, mut server) = pair();
    let memory = closed(&server, 4096);
    let mut window = server.pd.alloc_window(WindowKind::Type1).unwrap();
    let key = window.rkey();
    let other = server.context.alloc_pd().unwrap();
    let foreign = other.expose(4096, AccessFlags::MW_BIND).unwrap();
    let mut foreign_window = other.alloc_window(WindowKind::Type1).unwrap();
    let (all, none) = (memory.part(0, 4096).unwrap(), memory.part(8, 0).unwrap());
    let of_other = foreign.part(0, 4096).unwrap();
    let mut batch = server.qp.batch();
    let own = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    assert_eq!(batch.bind(1, &mut window, &all, own), Err(PostError::BadData));
    assert_eq!(batch.bind(1, &mut window, &none, BOTH), Err(PostError::BadData));
    assert_eq!(batch.bind(1, &mut window, &of_other, BOTH), Err(PostError::ForeignBuffer));
    assert_eq!(batch.bind(1, &mut foreign_window, &all, BOTH), Err(PostError::ForeignBuffer));
    assert_eq!(batch.unbind(1, &mut foreign_window), Err(PostError::ForeignBuffer));
    assert!(memory.part(4095, 2).is_err(), "over the end");
    drop(batch);
    assert_eq!(window.rkey(), key, "nothing was posted");

    // Without room for such work requests.
    let mut plain = Side::new(&common::device(), &local(), |builder| builder);
    plain.qp.connect_to_self().unwrap();
    let memory = closed(&plain, 64);
    let mut window = plain.pd.alloc_window(WindowKind::Type2).unwrap();
    let mut batch = plain.qp.batch();
    let refused = batch.bind(1, &mut window, &memory.part(0, 8).unwrap(), BOTH);
    assert_eq!(refused, Err(PostError::BadOperation));
    assert_eq!(batch.unbind(1, &mut window), Err(PostError::BadOperation));
    assert_eq!(batch.local_invalidate(1, window.rkey()), Err(PostError::BadOperation));
}

/// A raw post can name a range outside of the region.
#[test]
#[allow(unsafe_code, reason = "raw posts, over exposed memory that lives until the end")]
fn a_window_bound_outside_of_its_region_is_refused_by_the_device() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    for kind in KINDS {
        for (what, offset, len) in [("over the end", 4090, 7), ("before", -1, 8), ("long", 0, 4097)]
        {
            let (_client, mut server) = pair();
            let memory = closed(&server, 4096);
            let window = server.pd.alloc_window(kind).unwrap();
            let (old, lkey) = (window.rkey(), memory.sge(0, 1).lkey);
            let (new, addr) = (old & !0xff | 0x77, memory.addr().wrapping_add_signed(offset));
            let op = Rekey::Bind { kind, old, new, lkey, addr, len, access: BOTH };
            let mut batch = server.qp.batch();
            // SAFETY: what there is of it lives until the queue pair is gone.
            unsafe { batch.raw().rekey(50, &op) }.unwrap();
            batch.ring();
            let refused = server.wait();
            if common::is_rxe() {
                // Its kernel says it in several ways, as above.
                assert!(refused.result.is_err(), "{what}");
            } else {
                assert_eq!(status(&refused), Some(Status::MemoryWindowBind), "{what}, {kind:?}");
            }
        }
    }
}

/// As soft-RoCE (`rxe_mw.c`, `rxe_check_bind_mw`).
#[test]
#[allow(unsafe_code, reason = "raw posts, over exposed memory that lives until the end")]
fn a_region_without_mw_bind_takes_no_window() {
    if !common::is_rxe() && !common::only_on_softhca("a ConnectX's keys have no right to bind") {
        return;
    }
    for kind in KINDS {
        let (_client, mut server) = pair();
        let memory = server.pd.expose(4096, BOTH).unwrap();
        let window = server.pd.alloc_window(kind).unwrap();
        let (old, lkey) = (window.rkey(), memory.sge(0, 1).lkey);
        let (new, addr) = (old & !0xff | 0x77, memory.addr());
        let op = Rekey::Bind { kind, old, new, lkey, addr, len: 64, access: BOTH };
        let mut batch = server.qp.batch();
        // SAFETY: the memory lives until the queue pair is gone.
        unsafe { batch.raw().rekey(50, &op) }.unwrap();
        batch.ring();
        let refused = server.wait();
        match common::is_rxe() {
            true => assert!(refused.result.is_err()),
            false => assert_eq!(status(&refused), Some(Status::MemoryWindowBind), "{kind:?}"),
        }
    }
}

#[test]
fn as_many_binds_as_were_asked_for_fit() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    let (_client, mut server) = pair();
    let memory = closed(&server, 4096);
    let mut window = server.pd.alloc_window(WindowKind::Type1).unwrap();
    let granted = server.qp.cap().max_send_wr;
    assert!(granted >= 16);
    let part = memory.part(0, 64).unwrap();
    // Also over the end of the ring.
    for round in 0..3 {
        let mut batch = server.qp.batch();
        for id in 0..granted {
            batch.bind(u64::from(id), &mut window, &part, BOTH).unwrap();
        }
        assert_eq!(batch.bind(99, &mut window, &part, BOTH), Err(PostError::Full));
        batch.ring();
        for id in 0..granted {
            let done = server.done();
            assert_eq!((done.id, done.result), (id.into(), Ok(Completed::Rekey)), "{round}");
        }
    }
}

#[test]
fn a_key_that_is_no_windows_is_not_invalidated() {
    if common::not_on_rdmavt("the device has no memory windows") {
        return;
    }
    let (_client, mut server) = pair();
    let memory = server.pd.expose(4096, BOTH).unwrap();
    let mut batch = server.qp.batch();
    batch.local_invalidate(1, memory.rkey()).unwrap();
    batch.ring();
    let failed = server.wait();
    assert!(failed.result.is_err(), "{failed:?}");
}

/// The window goes when its bind is over, so that its number isn't another's meanwhile.
#[test]
fn a_window_dropped_with_its_bind_outstanding_is_kept_until_that_is_over() {
    if !common::only_on_softhca("the test steps the device") {
        return;
    }
    let hca = SoftHca::builder().stepped().build().unwrap();
    let context = soft(&hca).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).unwrap();
    let mut qp = with_windows(context.queue_pair(&pd, &cq)).max_recv_wr(16).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let memory = pd.expose(4096, AccessFlags::MW_BIND).unwrap();
    let mut window = pd.alloc_window(WindowKind::Type1).unwrap();
    let handle = window.handle();
    let mut batch = qp.batch();
    batch.bind(1, &mut window, &memory.part(0, 8).unwrap(), BOTH).unwrap();
    batch.ring();
    drop(window);
    let other = pd.alloc_window(WindowKind::Type1).unwrap();
    assert_ne!(other.handle(), handle, "the first still has its own");
    hca.step_until_idle(10_000);
    assert_eq!(cq.wait(LIMIT).unwrap().result, Ok(Completed::Rekey));
    let third = pd.alloc_window(WindowKind::Type1).unwrap();
    assert_eq!(third.handle(), handle, "it is free now");
}
