//! Edge cases of changes and messages: too long, empty, too late, never rung.
#![allow(unsafe_code, reason = "raw posts are part of what is tested")]

use uverbs::raw::Sge;
use uverbs::tags::{Tag, TagInfo, TagWr};
use uverbs::{Completed, Error, PostError};

use super::scene::{Scene, TAGS, tag_device};

#[test]
fn buffers_that_are_too_long_or_empty() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    // No key is looked at of an empty one.
    let raw = |len| Sge { addr: 0, len, lkey: 0xbad00 };
    let mut batch = scene.srq.tag_batch();
    // SAFETY: the key names no memory.
    let refused = unsafe { batch.add_raw(1, 1, 2, raw((1 << 31) + 1)) };
    assert_eq!(refused.map(drop), Err(PostError::MessageTooLong));
    // SAFETY: the key names no memory.
    unsafe { batch.add_raw(1, 1, 2, raw(0)) }.expect("add");
    batch.ring();
    assert_eq!(scene.next().0.result, Ok(Completed::TagAdded));
    scene.eager(1, b"");
    let (done, _) = scene.next();
    assert_eq!((done.id, done.result, done.byte_len), (2, Ok(Completed::TagRecv), 0));
    let (mut first, second) = (scene.frame(), scene.frame());
    first.append(second);
    let rejected = scene.srq.add_tag(1, 1, 2, first.chain()).expect_err("of two frames");
    assert_eq!(rejected.error, PostError::TooManySges);
}

#[test]
fn tags_whose_changes_tell_nothing_leave_no_place() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    for round in 0..3 {
        let frames: Vec<_> = (1..TAGS).map(|_| scene.frame()).collect();
        let mut batch = scene.srq.tag_batch();
        for (tag, frame) in (0..).zip(frames) {
            batch.add(TagWr::new(0).unsignaled(), tag, tag, frame).expect("add");
        }
        batch.sync(round).expect("sync");
        batch.ring();
        assert_eq!(scene.next().0.id, round);
        for tag in 0..u64::from(TAGS) - 1 {
            scene.eager(tag, b"one");
            scene.matched(tag, tag, b"one");
        }
    }
}

/// An entry is free once its last completion arrived, including that for a removal that came too
/// late.
#[test]
fn a_place_waits_for_its_removal() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    let tags: Vec<_> = (0..u64::from(TAGS)).map(Tag::exact).collect();
    let handles = scene.add(&tags);
    scene.eager(2, b"two");
    scene.srq.remove_tag(50, handles[2]).expect("nothing was polled yet");
    // A dropped sync is not taken for the removal.
    let mut batch = scene.srq.tag_batch();
    batch.sync(51).expect("sync");
    drop(batch);
    scene.matched(12, 2, b"two");
    let frame = scene.frame();
    let rejected = scene.srq.add_tag(52, 2, 53, frame).expect_err("the removal is to come");
    assert_eq!(rejected.error, PostError::TagsFull);
    assert_eq!(scene.next().0.id, 50);
    scene.srq.add_tag(52, 2, 53, rejected.data).expect("there is a place");
    scene.next();
    // A frame is as long as it was.
    let mut frame = scene.frame();
    frame.set_len(77);
    scene.eager(2, b"two");
    scene.matched(53, 2, b"two");
    let handle = scene.srq.add_tag(54, 2, 55, frame).expect("add");
    scene.next();
    scene.srq.remove_tag(56, handle).expect("remove");
    assert_eq!(scene.next().0.frame.expect("the tag's").len(), 77);
}

/// The device's counter covers rung batches only.
#[test]
fn a_count_that_is_never_rung_is_not_told() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    scene.receive(1);
    scene.eager(5, b"unexpected");
    let in_step = Some(TagInfo::default());
    let (done, info) = scene.next();
    assert_eq!((done.result, info), (Ok(Completed::RecvUnexpected), in_step));
    scene.srq.sync_tags(TagWr::new(1).dealt_with(1)).expect("sync");
    scene.next();
    let mut batch = scene.srq.tag_batch();
    batch.sync(TagWr::new(2).dealt_with(9)).expect("sync");
    drop(batch);
    let frame = scene.frame();
    scene.srq.add_tag(3, 5, 4, frame).expect("add");
    let (added, info) = scene.next();
    assert_eq!((added.result, info), (Ok(Completed::TagAdded), in_step));
    // Far behind the messages that arrived, so the device should be told soon.
    scene.srq.sync_tags(TagWr::new(5).dealt_with(0xc000)).expect("sync");
    scene.next();
    scene.receive(6);
    scene.eager(7, b"unexpected");
    let wants_sync = Some(TagInfo { header: None, wants_sync: true });
    assert_eq!(scene.next().1, wants_sync);
}

/// Requests of a batch that was never rung are not among the buffers that a destroyed queue
/// returns.
#[test]
fn a_destroyed_queue_held_what_was_rung() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    scene.add(&[Tag::exact(1)]);
    let frame = scene.frame();
    let mut batch = scene.srq.tag_batch();
    batch.add(2, 2, 12, frame).expect("add");
    drop(batch);
    drop(scene.qp);
    let frames = scene.srq.destroy().expect("nobody uses it");
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [10]);
}

/// The completion of a message that took a tag is of no receive.
#[test]
fn a_dropped_completion_queue_gives_back_no_receive_for_a_tag() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    scene.add(&[Tag::exact(2)]);
    scene.receive(3);
    scene.eager(2, b"two");
    let Scene { qp, srq, cq, slab, .. } = scene;
    let free = || std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len();
    let before = free();
    drop(cq);
    assert_eq!(free(), before);
    drop(qp);
    let frames = srq.destroy().expect("nobody uses it");
    let mut ids: Vec<_> = frames.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [3, 10]);
}

/// A compressed CQ cannot serve an SRQ, so it is refused.
#[test]
fn a_compressed_queue_is_refused() {
    let Some(device) = tag_device() else { return };
    let context = device.open().expect("open");
    let pd = context.alloc_pd().expect("alloc_pd");
    let cq = context.completion_queue(512).compressed().build().expect("create_cq");
    let refused = context.shared_receive_queue(&pd).tags(&cq, 1).build().expect_err("refused");
    assert!(matches!(refused, Error::Unsupported { verb: "create_srq", .. }), "{refused}");
}
