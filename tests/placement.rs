//! FLUSH and ATOMIC WRITE: what devices say of them, and what they refuse. What they do is asked of
//! the software HCA's engine (`providers/softhca/src/hca/tests/placement.rs`).

use uverbs::softhca::SoftHca;
use uverbs::{AccessFlags, DeviceCaps, Error, FlushLevel, PlacementTypes, PostError};

mod common;

use common::{only_on_softhca, pair, soft};

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
