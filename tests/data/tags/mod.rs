//! Shared receive queues that match tags: delivery of messages, completions, and destruction.
#![allow(unsafe_code, reason = "raw posts are part of what is tested")]

mod edges;
mod scene;
mod stepped;

use self::scene::{CHANGES, HEADER, Scene, TAGS, refuses, tag_device};
use common::{device, pattern};
use uverbs::tags::{Rendezvous, Tag, TagHeader, TagInfo, TagMessage, TagMessageKind, TagWr};
use uverbs::{AccessFlags, Completed, CompletionQueue, Errno, Error, PostError, Remote, Status};

#[test]
fn a_message_goes_to_the_first_tag_that_matches() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    let tags = [Tag::exact(7), Tag::masked(0x100, 0xff00), Tag::exact(7), Tag::masked(0, 0)];
    scene.add(&tags);
    for (tag, id, len) in [(7, 10, 0), (0x1ff, 11, 1), (7, 12, 100), (99, 13, 5000)] {
        let data = pattern(len, tag as u8);
        scene.eager(tag, &data);
        scene.matched(id, tag, &data);
    }
    scene.idle();
    // A tag with a bit outside of its mask matches no message.
    scene.receive(1);
    scene.add(&[Tag::masked(0x103, 0xff)]);
    scene.eager(0x103, b"no");
    assert_eq!(scene.next().0.result, Ok(Completed::RecvUnexpected));
}

#[test]
fn places_are_used_again_for_as_long_as_it_goes() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    for round in 0..20u64 {
        let tags: Vec<_> = (0..1 + round % u64::from(TAGS)).map(Tag::exact).collect();
        scene.add(&tags);
        // The last one first.
        for (n, tag) in tags.iter().enumerate().rev() {
            scene.eager(tag.value, &[round as u8; 40]);
            scene.matched(10 + n as u64, tag.value, &[round as u8; 40]);
        }
    }
    scene.idle();
}

#[test]
fn immediate_data_is_told() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    scene.add(&[Tag::exact(1)]);
    scene.post(TagMessageKind::Eager, 1, b"seven", Some(7));
    let (done, _) = scene.next();
    assert_eq!((done.result, done.immediate), (Ok(Completed::TagRecv), Some(7)));
    scene.receive(1);
    scene.post(TagMessageKind::NoTag, 1, b"eight", Some(8));
    let (done, _) = scene.next();
    assert_eq!((done.result, done.immediate), (Ok(Completed::RecvNoTag), Some(8)));
}

/// A message that matches no tag arrives whole in a receive. New tags match nothing until the
/// device knows that the program handled that message.
#[test]
fn what_finds_no_tag_goes_to_a_receive() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    for id in 0..4 {
        scene.receive(id);
    }
    let whole = |kind, tag, data: &[u8]| {
        let header = TagMessage { kind, app_ctx: 0xabcd, tag };
        [&header.to_bytes()[..], data].concat()
    };
    scene.send(TagMessageKind::NoTag, 5, b"none");
    let none = whole(TagMessageKind::NoTag, 5, b"none");
    scene.message(0, Completed::RecvNoTag, &none);
    scene.eager(5, b"first");
    let first = whole(TagMessageKind::Eager, 5, b"first");
    let info = scene.message(1, Completed::RecvUnexpected, &first);
    assert_eq!(info, Some(TagInfo::default()), "its header is in the buffer");
    assert_eq!(TagMessage::parse(&first).map(|header| header.tag), Some(5));
    let frame = scene.frame();
    scene.srq.add_tag(20, 5, 21, frame).expect("add");
    let (added, info) = scene.next();
    assert_eq!((added.id, info.expect("of tags").wants_sync), (20, true));
    scene.eager(5, b"second");
    let second = whole(TagMessageKind::Eager, 5, b"second");
    scene.message(2, Completed::RecvUnexpected, &second);
    // A single message is reported as handled, of several. An unsignaled sync has no completion.
    scene.srq.sync_tags(TagWr::new(30).dealt_with(1)).expect("sync");
    assert_eq!(scene.next().0.result, Ok(Completed::TagsSynced));
    scene.eager(5, b"third");
    scene.message(3, Completed::RecvUnexpected, &whole(TagMessageKind::Eager, 5, b"third"));
    let mut batch = scene.srq.tag_batch();
    batch.sync(TagWr::new(31).unsignaled().dealt_with(3)).expect("sync");
    batch.sync(32).expect("sync");
    batch.ring();
    assert_eq!(scene.next().0.id, 32);
    scene.eager(5, b"fourth");
    scene.matched(21, 5, b"fourth");
    scene.idle();
}

#[test]
fn a_removed_tag_gives_its_frame_back() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    let handles = scene.add(&[Tag::exact(1), Tag::exact(2)]);
    let wr = TagWr::new(50).unsignaled();
    scene.srq.remove_tag(wr, handles[0]).expect("remove, which is signaled in any case");
    let (removed, _) = scene.next();
    assert_eq!((removed.id, removed.result), (50, Ok(Completed::TagRemoved)));
    assert!(removed.frame.is_some(), "the tag's");
    assert_eq!(scene.srq.remove_tag(51, handles[0]), Err(PostError::UnknownTag));
    // A message takes the other one before its removal; the program learns of that later.
    scene.eager(2, b"two");
    scene.srq.remove_tag(52, handles[1]).expect("nothing was polled yet");
    scene.matched(11, 2, b"two");
    let (late, _) = scene.next();
    let failure = late.result.expect_err("a message was faster");
    assert_eq!((late.id, failure.status, late.frame.is_none()), (52, Status::TagNotFound, true));
    // The place has another tag by then: the old handle isn't its.
    for _ in 0..TAGS + 1 {
        let again = scene.add(&[Tag::exact(3)]);
        assert_eq!(scene.srq.remove_tag(53, handles[0]), Err(PostError::UnknownTag));
        assert_eq!(scene.srq.remove_tag(53, handles[1]), Err(PostError::UnknownTag));
        scene.srq.remove_tag(54, again[0]).expect("remove");
        assert_eq!(scene.next().0.result, Ok(Completed::TagRemoved));
    }
    scene.receive(1);
    scene.eager(1, b"one");
    let (done, _) = scene.next();
    assert_eq!(done.result, Ok(Completed::RecvUnexpected), "it is removed");
}

#[test]
fn full_lists_and_queues_say_so() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    let tags: Vec<_> = (0..u64::from(TAGS)).map(Tag::exact).collect();
    let handles = scene.add(&tags);
    let frame = scene.frame();
    let foreign = scene.context.alloc_pd().expect("alloc_pd").slab(64, 1).expect("slab");
    let foreign = scene.srq.add_tag(1, 9, 1, foreign.take().expect("a frame"));
    assert_eq!(foreign.expect_err("of another domain").error, PostError::ForeignBuffer);
    let rejected = scene.srq.add_tag(1, 9, 1, frame).expect_err("one too many");
    assert_eq!((rejected.error, rejected.error.to_errno()), (PostError::TagsFull, Errno::ENOMEM));
    scene.eager(0, b"");
    scene.matched(10, 0, b"");
    scene.srq.add_tag(1, 9, 1, rejected.data).expect("there is room again");
    assert_eq!(scene.next().0.result, Ok(Completed::TagAdded));
    // Changes that were not polled, up to the limit.
    let mut told = 0;
    let full = loop {
        let wr = TagWr::new(0);
        match scene.srq.sync_tags(if told % 2 == 0 { wr } else { wr.unsignaled() }) {
            Ok(()) => told += 1,
            Err(error) => break error,
        }
        assert!(told < 4 * CHANGES, "it never ends");
    };
    assert_eq!((full, told), (PostError::Full, CHANGES));
    assert_eq!(scene.srq.remove_tag(1, handles[1]), Err(PostError::Full));
    for _ in 0..CHANGES / 2 {
        assert_eq!(scene.next().0.result, Ok(Completed::TagsSynced));
    }
    scene.srq.remove_tag(2, handles[1]).expect("there is room");
    assert_eq!(scene.next().0.result, Ok(Completed::TagRemoved));
    let frame = scene.frame();
    scene.srq.add_tag(3, 9, 1, frame).expect("the place is free");
}

#[test]
fn a_batch_that_is_never_rung_leaves_nothing() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    let kept = scene.add(&[Tag::exact(1)]);
    for _ in 0..2 {
        let frames: Vec<_> = std::iter::from_fn(|| scene.slab.take()).take(3).collect();
        let mut batch = scene.srq.tag_batch();
        for frame in frames {
            batch.add(TagWr::new(7).dealt_with(9), 5, 7, frame).expect("add");
        }
        batch.remove(8, kept[0]).expect("remove");
        batch.sync(9).expect("sync");
        // The next one begins where this did.
        scene.srq.sync_tags(10).expect("sync");
        assert_eq!(scene.next().0.id, 10);
        let free: Vec<_> = std::iter::from_fn(|| scene.slab.take()).collect();
        assert_eq!(free.len(), 63, "all but the tag's");
    }
    scene.eager(1, b"still there");
    scene.matched(10, 1, b"still there");
    // Nor does the count that it had.
    let frame = scene.frame();
    let last = scene.srq.add_tag(11, 8, 12, frame).expect("add");
    assert_eq!(scene.next().1, Some(TagInfo::default()));
    scene.srq.remove_tag(13, last).expect("remove");
    scene.next();
    scene.receive(1);
    scene.eager(5, b"nobody's");
    assert_eq!(scene.next().0.result, Ok(Completed::RecvUnexpected));
    let tags: Vec<_> = (0..u64::from(TAGS)).map(Tag::exact).collect();
    scene.srq.sync_tags(TagWr::new(1).dealt_with(1)).expect("sync");
    scene.next();
    scene.add(&tags);
}

#[test]
fn the_device_reads_what_a_rendezvous_names() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    let access = AccessFlags::REMOTE_READ;
    let memory = scene.pd.expose(6000, access).expect("expose");
    let data = pattern(6000, 3);
    memory.write(0, &data).expect("write");
    for len in [1usize, 6000] {
        scene.add(&[Tag::exact(4)]);
        scene.receive(1);
        let Remote { addr, rkey } = memory.remote(0);
        let rendezvous = Rendezvous { from: Remote { addr, rkey }, len: len as u32 };
        scene.send(TagMessageKind::Rendezvous, 4, &rendezvous.to_bytes());
        let header = Some(TagHeader { tag: 4, app_ctx: 0xabcd });
        let (found, info) = scene.next();
        assert_eq!((found.id, found.result), (10, Ok(Completed::TagFound)));
        assert_eq!(info.expect("of tags").header, header);
        scene.message(10, Completed::TagRecv, &data[..len]);
        // The sender hears of it: a message without a tag.
        let (fin, _) = scene.next();
        assert_eq!((fin.id, fin.result), (1, Ok(Completed::RecvNoTag)));
        let fin = fin.frame.expect("a frame");
        let parsed = TagMessage::parse(&fin).expect("a header");
        assert_eq!((parsed.kind, parsed.tag), (TagMessageKind::Fin, 4));
        assert_eq!(Rendezvous::parse(&fin[HEADER..]), Some(rendezvous));
    }
    // One that the buffer is too small for: the program is to read it.
    scene.add(&[Tag::exact(4)]);
    let far = Rendezvous { from: memory.remote(0), len: 9000 };
    scene.send(TagMessageKind::Rendezvous, 4, &far.to_bytes());
    let (done, info) = scene.next();
    assert_eq!(done.result.expect_err("too long").status, Status::RendezvousIncomplete);
    assert_eq!((done.id, done.byte_len), (10, 32));
    assert_eq!(info.expect("of tags").header.map(|header| header.tag), Some(4));
    let headers = done.frame.expect("the tag's");
    assert_eq!(Rendezvous::parse(&headers[HEADER..]), Some(far));
    scene.idle();
}

#[test]
fn a_message_that_fails_gives_its_tag_back() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    scene.add(&[Tag::exact(4), Tag::exact(5)]);
    // An invalid key: the READ fails, and the connection with it.
    let wrong = Rendezvous { from: Remote { addr: 0, rkey: 0xbad00 }, len: 64 };
    scene.post(TagMessageKind::Rendezvous, 4, &wrong.to_bytes(), None);
    assert_eq!(scene.next().0.result, Ok(Completed::TagFound));
    let (done, _) = scene.next();
    assert_eq!(done.result.expect_err("canceled").status, Status::RendezvousIncomplete);
    assert_eq!((done.id, done.byte_len, done.frame.is_some()), (10, 0, true));
    // The list goes on.
    scene.srq.sync_tags(60).expect("sync");
    assert_eq!(scene.next().0.id, 60);
}

/// A change that the device rejects frees its entry and its frame, and the list takes no more.
#[test]
fn a_change_that_fails_gives_its_frame_back() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    let handles = scene.add(&[Tag::exact(1), Tag::exact(2)]);
    let [signaled, unsignaled, rejected] = [(); 3].map(|()| scene.frame());
    scene.fail_changes();
    let mut batch = scene.srq.tag_batch();
    batch.add(20, 3, 30, signaled).expect("nobody knows yet");
    batch.add(TagWr::new(21).unsignaled(), 4, 31, unsignaled).expect("add");
    batch.remove(22, handles[0]).expect("remove");
    batch.sync(23).expect("sync");
    batch.ring();
    for id in 20..24 {
        let (done, info) = scene.next();
        let status = done.result.expect_err("it is taken back").status;
        assert_eq!((done.id, status, done.is_recv, info), (id, Status::Flushed, false, None));
        assert_eq!(done.frame.is_some(), id < 22, "{id}: that of a tag");
    }
    let refused = scene.srq.add_tag(24, 5, 32, rejected).expect_err("it failed").error;
    assert_eq!((refused, refused.to_errno()), (PostError::State, Errno::EINVAL));
    assert_eq!(scene.srq.remove_tag(25, handles[1]), Err(PostError::State));
    assert_eq!(scene.srq.sync_tags(26), Err(PostError::State));
    // Entries stay in the list.
    scene.eager(1, b"one");
    scene.matched(10, 1, b"one");
    drop(scene.qp);
    let frames = scene.srq.destroy().expect("nobody uses it");
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [11]);
    drop(frames);
    assert_eq!(std::iter::from_fn(|| scene.slab.take()).take(99).collect::<Vec<_>>().len(), 64);
}

#[test]
fn a_queue_ends_after_its_queue_pairs() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    let handles = scene.add(&[Tag::exact(1), Tag::exact(2)]);
    scene.receive(3);
    let refused = scene.srq.destroy().expect_err("a queue pair receives from it");
    assert!(matches!(refused.error, Error::Kernel { errno: Errno::EBUSY, .. }), "{refused}");
    scene.srq = refused.into_object();
    // The queue continues to receive, without its tag list.
    assert_eq!(scene.srq.remove_tag(1, handles[0]), Err(PostError::State));
    scene.eager(2, b"still in the list");
    scene.matched(11, 2, b"still in the list");
    scene.send(TagMessageKind::NoTag, 1, b"");
    assert_eq!(scene.next().0.id, 3);
}

#[test]
fn a_destroyed_queue_gives_back_what_it_held() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    scene.add(&[Tag::exact(1), Tag::exact(2)]);
    scene.receive(3);
    scene.eager(2, b"polled by nobody");
    drop(scene.qp);
    let frames = scene.srq.destroy().expect("nobody uses it");
    let mut ids: Vec<_> = frames.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [3, 10, 11]);
    assert_eq!(scene.cq.poll(16).next().map(|done| done.id()), None, "its completions went, too");
    drop(frames);
    assert_eq!(std::iter::from_fn(|| scene.slab.take()).take(99).collect::<Vec<_>>().len(), 64);
}

/// Memory that the device may still write to stays away from the program.
#[test]
fn a_dropped_completion_queue_gives_no_tag_back() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    scene.add(&[Tag::exact(1), Tag::exact(2)]);
    for id in 3..6 {
        scene.receive(id);
    }
    scene.eager(2, b"two");
    scene.eager(9, b"unexpected");
    let Scene { qp, srq, cq, sends, slab, pd, context } = scene;
    let free = || std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len();
    let before = free();
    drop(cq);
    assert_eq!(free(), before + 1, "the receive that the message took");
    drop(qp);
    let frames = srq.destroy().expect("nobody uses it");
    let mut ids: Vec<_> = frames.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [4, 5, 10, 11]);
    drop((sends, pd, context));
}

#[test]
fn sizes_that_no_queue_has() {
    let Some(device) = tag_device() else { return };
    let context = device.open().expect("open");
    let most = context.query_device().expect("query").tm;
    let pd = context.alloc_pd().expect("alloc_pd");
    let cq = context.create_cq(512).expect("create_cq");
    let large = context.create_cq(3 * most.max_num_tags).expect("create_cq");
    let queue = |cq: &CompletionQueue, tags, changes| {
        let queue = context.shared_receive_queue(&pd).max_wr(15).tags(cq, tags);
        queue.max_tag_changes(changes).build()
    };
    for (cq, tags, changes) in [
        (&large, 0, 1),
        (&large, most.max_num_tags + 1, 1),
        (&large, 1, 0),
        (&cq, 1, cq.capacity() - 16),
        (&cq, cq.capacity() / 2, 1),
        (&cq, u32::MAX, u32::MAX),
    ] {
        let refused = queue(cq, tags, changes).expect_err("it is refused");
        let limit = matches!(refused, Error::Limit { verb: "create_srq", .. });
        assert!(limit, "{tags} {changes}: {refused}");
    }
    let all = queue(&large, most.max_num_tags, 16).expect("all that there are");
    drop(all);
    let other = device.open().expect("open").create_cq(512).expect("create_cq");
    let refused = queue(&other, 1, 1).expect_err("of another device file");
    assert!(matches!(refused, Error::Invalid { verb: "create_srq", .. }), "{refused}");
}

#[test]
fn a_tag_with_a_key_of_no_memory_fails_its_message() {
    let Some(device) = tag_device() else { return };
    let mut scene = Scene::new(&device);
    scene.receive(1);
    let wrong = uverbs::raw::Sge { addr: 0, len: 64, lkey: 0xbad00 };
    let mut batch = scene.srq.tag_batch();
    // SAFETY: the key names no memory.
    unsafe { batch.add_raw(1, 1, 2, wrong) }.expect("add");
    batch.ring();
    assert_eq!(scene.next().0.result, Ok(Completed::TagAdded), "keys are looked at later");
    scene.post(TagMessageKind::Eager, 1, b"to nowhere", None);
    // The queue pair is its own peer: it hears of the refusal, or has failed before.
    let refused = scene.sent().result.expect_err("the peer can't write it").status;
    assert!(matches!(refused, Status::RemoteOperation | Status::Flushed), "{refused}");
}

#[test]
fn an_ethernet_port_has_no_tags() {
    if !common::only_on_softhca("the link is the test's to choose") {
        return;
    }
    let context = device().open().expect("open");
    assert_eq!(context.query_device().expect("query").tm.max_num_tags, 0);
    refuses(&context);
}
