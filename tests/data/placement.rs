//! FLUSH and ATOMIC WRITE: capabilities, refusals, and soft-RoCE's behaviour.
//! `providers/softhca/src/hca/tests/wire/placement.rs` tests the software HCA's engine.

use uverbs::attr::DeviceCaps;
use uverbs::placement::{FlushLevel, PlacementTypes};
use uverbs::softhca::SoftHca;
use uverbs::softhca::wire::Feth;
use uverbs::softhca::{Key, Placement};
use uverbs::{AccessFlags, Completed, Error, Local, PostError, Remote, Status, Wr};

use common::placing::place;
use common::{device, local, only_on_softhca, pair, pair_on, pair_with, skip, soft};

const BOTH: DeviceCaps = DeviceCaps::FLUSH_GLOBAL.union(DeviceCaps::ATOMIC_WRITE);

/// The right that a refusal names.
fn refused(pd: &uverbs::ProtectionDomain, access: AccessFlags) -> String {
    match pd.expose(4096, access) {
        Err(Error::Unsupported { verb: "reg_mr", what }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_without_placement_says_which_right_it_lacks() {
    if !only_on_softhca("it is a device without") {
        return;
    }
    let hca = SoftHca::builder().build().unwrap();
    let context = soft(&hca).open().unwrap();
    assert!(!context.query_device().unwrap().caps_ex.intersects(BOTH));
    let pd = context.alloc_pd().unwrap();
    assert!(refused(&pd, AccessFlags::FLUSH_GLOBAL).contains("FLUSH_GLOBAL"));
    assert!(refused(&pd, AccessFlags::FLUSH_PERSISTENT).contains("FLUSH_PERSISTENT"));
}

#[test]
fn a_device_with_placement_takes_global_flushes_alone() {
    if !only_on_softhca("it is one that was asked for placement") {
        return;
    }
    let hca = SoftHca::builder().memory_placement().build().unwrap();
    let context = soft(&hca).open().unwrap();
    let caps = context.query_device().unwrap().caps_ex;
    assert!(caps.contains(BOTH) && !caps.contains(DeviceCaps::FLUSH_PERSISTENT), "{caps:?}");
    let pd = context.alloc_pd().unwrap();
    pd.expose(4096, AccessFlags::FLUSH_GLOBAL | AccessFlags::REMOTE_WRITE).unwrap();
    let all = AccessFlags::FLUSH_GLOBAL | AccessFlags::FLUSH_PERSISTENT;
    assert!(refused(&pd, all).contains("FLUSH_PERSISTENT"));
}

#[test]
fn mlx5_has_no_work_request_for_either() {
    if !only_on_softhca("soft-RoCE posts them") {
        return;
    }
    let (mut client, server) = pair();
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let frame = client.filled(8, 1);
    let mut batch = client.qp.batch();
    let types = PlacementTypes::GLOBAL;
    let flush = batch.flush(1, memory.remote(0), 8, types, FlushLevel::Range);
    assert_eq!(flush, Err(PostError::NotOnDevice));
    assert_eq!(batch.atomic_write(2, memory.remote(0), [1; 8]), Err(PostError::NotOnDevice));
    assert_eq!(PostError::NotOnDevice.to_errno(), uverbs::Errno::EOPNOTSUPP);
    // The batch is as it was.
    batch.write(3, frame, memory.remote(0)).unwrap();
    batch.ring();
    assert_eq!(client.done().id, 3);
}

#[test]
fn a_nop_may_stand_for_either() {
    if !only_on_softhca("soft-RoCE posts them") {
        return;
    }
    let hca = SoftHca::builder().memory_placement().build().unwrap();
    let device = soft(&hca);
    let local = Local { access: local().access | AccessFlags::FLUSH_GLOBAL, ..local() };
    let (mut client, server) =
        pair_on(&device, &device, &local, |builder| builder.max_inline_data(64));
    let rights = AccessFlags::REMOTE_WRITE | AccessFlags::FLUSH_GLOBAL;
    let memory = server.pd.expose(64, rights).unwrap();
    let Remote { addr, rkey } = memory.remote(8);
    let (va, rkey) = (addr, Key(rkey));
    let header = Feth::new(Feth::GLOBAL, Feth::RANGE);
    place(&hca, &mut client, 1, Placement::AtomicWrite { va, rkey, data: *b"at once!" });
    place(&hca, &mut client, 2, Placement::Flush { va, rkey, len: 8, header });
    for id in [1, 2] {
        let done = client.done();
        assert_eq!((done.id, done.result), (id, Ok(Completed::Other(0))));
    }
    let mut there = [0; 24];
    memory.read(0, &mut there).unwrap();
    assert_eq!(there, *b"\0\0\0\0\0\0\0\0at once!\0\0\0\0\0\0\0\0");
    // Behind the key's end.
    place(&hca, &mut client, 3, Placement::Flush { va, rkey, len: 57, header });
    let done = client.wait();
    let status = done.result.err().map(|failure| failure.status);
    assert_eq!((done.id, status), (3, Some(Status::RemoteAccess)));
}

/// Skips the test, and returns true, if the device under test lacks one of both operations.
fn skipped() -> bool {
    let caps = device().open().unwrap().query_device().unwrap().caps_ex;
    if !caps.contains(BOTH) {
        skip("the device has no FLUSH, or no ATOMIC WRITE");
    }
    !caps.contains(BOTH)
}

#[test]
fn a_flush_and_an_atomic_write_follow_a_write() {
    if skipped() {
        return;
    }
    let local = Local { access: local().access | AccessFlags::FLUSH_GLOBAL, ..local() };
    let (mut client, server) = pair_with(&local, |builder| builder.max_inline_data(64));
    let rights = AccessFlags::REMOTE_WRITE | AccessFlags::FLUSH_GLOBAL;
    let memory = server.pd.expose(4096, rights).unwrap();
    let mut batch = client.qp.batch();
    batch.write_inline(Wr::new(1), b"a record", memory.remote(64)).unwrap();
    let types = PlacementTypes::GLOBAL;
    batch.flush(Wr::new(2), memory.remote(64), 8, types, FlushLevel::Range).unwrap();
    batch
        .atomic_write(Wr::new(3), memory.remote(8), 0x0102_0304_0506_0708u64.to_le_bytes())
        .unwrap();
    batch.flush(Wr::new(4), memory.remote(0), 0, types, FlushLevel::Region).unwrap();
    batch.ring();
    let kinds = [Completed::Write, Completed::Flush, Completed::AtomicWrite, Completed::Flush];
    for (id, kind) in (1..).zip(kinds) {
        let done = client.done();
        assert_eq!((done.id, done.result), (id, Ok(kind)));
    }
    let mut there = [0; 72];
    memory.read(0, &mut there).unwrap();
    assert_eq!(&there[64..], b"a record");
    assert_eq!(there[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!((&there[..8], &there[16..64]), (&[0; 8][..], &[0; 48][..]));
}

#[test]
fn what_the_peers_memory_does_not_allow_is_refused() {
    if skipped() {
        return;
    }
    let local = Local { access: local().access | AccessFlags::FLUSH_GLOBAL, ..local() };
    let (mut client, server) = pair_with(&local, |builder| builder.max_inline_data(64));
    let memory = server.pd.expose(4096, AccessFlags::REMOTE_WRITE).unwrap();
    let mut batch = client.qp.batch();
    let odd = batch.atomic_write(Wr::new(1), memory.remote(4), [1; 8]);
    assert_eq!(odd, Err(PostError::BadData), "an address that isn't aligned");
    batch
        .flush(Wr::new(2), memory.remote(0), 8, PlacementTypes::GLOBAL, FlushLevel::Range)
        .unwrap();
    batch.ring();
    let done = client.wait();
    let status = done.result.err().map(|failure| failure.status);
    assert_eq!((done.id, status), (2, Some(Status::RemoteAccess)));
}
