//! Tag matching between two steps of the device.
#![allow(unsafe_code, reason = "writes into a completion that nobody polled")]

use uverbs::provider::AnyCq;
use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::tags::{Rendezvous, TagMessageKind};
use uverbs::{AccessFlags, Completed, Status};

use super::scene::{Scene, Told, tag_device};
use common::{only_on_softhca, pattern, soft};

/// A scene on a device that runs only when stepped.
fn stepped() -> Option<(SoftHca, Scene)> {
    if !only_on_softhca("the test steps the device") || tag_device().is_none() {
        return None;
    }
    let hca = SoftHca::builder().stepped().link(LinkLayer::InfiniBand).build();
    let hca = hca.expect("a software HCA");
    let scene = Scene::new(&soft(&hca));
    Some((hca, scene))
}

/// The next completion, and no step further.
fn soon(hca: &SoftHca, scene: &mut Scene) -> Told {
    loop {
        if let Some(told) = scene.poll() {
            return told;
        }
        assert!(hca.step(), "no completion comes");
    }
}

/// A removal that is too late doesn't give the frame back: the message still lands there.
#[test]
fn a_message_under_way_keeps_its_frame() {
    let Some((hca, mut scene)) = stepped() else { return };
    let data = pattern(1 << 20, 5);
    let memory = scene.pd.expose(data.len(), AccessFlags::REMOTE_READ).expect("expose");
    memory.write(0, &data).expect("write");
    let large = scene.pd.slab(data.len(), 1).expect("slab");
    let handle = scene.srq.add_tag(1, 4, 10, large.take().expect("a frame")).expect("add");
    assert_eq!(soon(&hca, &mut scene).0.result, Ok(Completed::TagAdded));
    scene.receive(2);
    let announced = Rendezvous { from: memory.remote(0), len: data.len() as u32 };
    scene.post(TagMessageKind::Rendezvous, 4, &announced.to_bytes(), None);
    let (found, _) = soon(&hca, &mut scene);
    assert_eq!((found.id, found.result), (10, Ok(Completed::TagFound)));
    scene.srq.remove_tag(3, handle).expect("not all of it is there");
    let (late, _) = soon(&hca, &mut scene);
    let failure = late.result.expect_err("a message has it");
    assert_eq!((late.id, failure.status, late.frame.is_none()), (3, Status::TagNotFound, true));
    hca.step_until_idle(1 << 20);
    scene.message(10, Completed::TagRecv, &data);
    let (end, _) = scene.next();
    assert_eq!((end.id, end.result), (2, Ok(Completed::RecvNoTag)));
    scene.idle();
}

/// An error CQE has reserved bytes at the offset of the tag matching opcode (rdma-core `mlx5dv.h`,
/// `mlx5_err_cqe`).
#[test]
fn a_failure_tells_of_no_tag() {
    /// Offset of `app` and `app_op` in a CQE of 64 bytes.
    const APP: usize = 40;
    const LEN: usize = 64;
    let Some((hca, mut scene)) = stepped() else { return };
    let short = scene.pd.slab(32, 1).expect("slab");
    scene.srq.post(7, short.take().expect("a frame")).expect("post");
    scene.post(TagMessageKind::NoTag, 1, &[0; 100], None);
    hca.step_until_idle(1000);
    let AnyCq::Mlx5(cq) = scene.cq.provider() else { panic!("not the mlx5 provider's") };
    let raw = cq.raw_parts();
    let end = (raw.consumer as usize + 1) * raw.stride;
    // Tag matching: a message found no tag.
    for (at, byte) in [(0, 1), (1, 3)] {
        let at = raw.buf.wrapping_add(end - LEN + APP + at);
        // SAFETY: in the first turn of the ring, in an entry that the device wrote and leaves.
        unsafe { at.write_volatile(byte) };
    }
    let (done, info) = scene.next();
    let status = done.result.expect_err("too long for its receive").status;
    assert_eq!((done.id, status, done.is_recv, info), (7, Status::LocalLength, true, None));
    assert!(done.frame.is_some(), "the receive's");
}
