//! A queue that matches tags, and a connection to itself that receives from it.
#![allow(unsafe_code, reason = "a queue pair is failed by the kernel's own call")]

use std::time::Instant;

use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::tags::{ForTags, Tag, TagHeader, TagInfo, TagMessage, TagMessageKind};
use uverbs::{
    AccessFlags, Any, Completed, CompletionQueue, Context, Device, Error, Frame, Local,
    ProtectionDomain, QueuePair, SharedReceiveQueue, Slab, WorkCompletion,
};
use uverbs_core::provider::ContextOps;
use uverbs_kernel_abi::qp::{IB_QP_STATE, IB_QPS_ERR, ib_uverbs_modify_qp};

use common::{LIMIT, device, soft};

pub(crate) const TAGS: u32 = 8;
pub(crate) const CHANGES: u32 = 8;
pub(crate) const HEADER: usize = TagMessage::LEN;

/// A queue with a list, and a connection to itself that receives from it.
pub(crate) struct Scene {
    pub(crate) qp: QueuePair,
    pub(crate) srq: SharedReceiveQueue<Any, ForTags>,
    pub(crate) cq: CompletionQueue,
    pub(crate) sends: CompletionQueue,
    pub(crate) slab: Slab,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
}

/// A completion, and its tag information.
pub(crate) type Told = (WorkCompletion, Option<TagInfo>);

/// The device under test, if it matches tags: here one with an InfiniBand port.
pub(crate) fn tag_device() -> Option<Device> {
    if common::card_lacks("tag matching", &["connectx-4", "connectx-4lx", "vf", "sf"]) {
        return None;
    }
    if std::env::var_os("UVERBS_TEST_DEVICE").is_none() {
        let hca = SoftHca::builder().link(LinkLayer::InfiniBand).build();
        return Some(soft(&hca.expect("a software HCA")));
    }
    let device = device();
    let context = device.open().expect("open");
    if context.query_device().expect("query").tm.max_num_tags != 0 {
        return Some(device);
    }
    refuses(&context);
    common::skip("the device matches no tags");
    None
}

/// Checks that a device without tag matching refuses it by name.
pub(crate) fn refuses(context: &Context) {
    let pd = context.alloc_pd().expect("alloc_pd");
    let cq = context.create_cq(512).expect("create_cq");
    let refused = context.shared_receive_queue(&pd).tags(&cq, 1).build().expect_err("no tags");
    assert!(matches!(refused, Error::Unsupported { verb: "create_srq", .. }), "{refused}");
}

impl Scene {
    pub(crate) fn new(device: &Device) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(512).expect("create_cq");
        let sends = context.create_cq(512).expect("create_cq");
        let srq = context.shared_receive_queue(&pd).max_wr(15).tags(&cq, TAGS);
        let srq = srq.max_tag_changes(CHANGES).build().expect("create_srq");
        let qp = context.queue_pair(&pd, &sends).max_send_wr(32).shared_receives(&srq);
        let mut qp = qp.build().expect("create_qp");
        let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let local = Local { access, ..Local::default() };
        qp.prepare(&local).expect("prepare");
        qp.connect_to_self().expect("prepare");
        let slab = pd.slab(8192, 64).expect("slab");
        Self { qp, srq, cq, sends, slab, pd, context }
    }

    pub(crate) fn frame(&self) -> Frame {
        self.slab.take().expect("a frame")
    }

    /// Sends a message with a header, and waits until it went.
    pub(crate) fn send(&mut self, kind: TagMessageKind, tag: u64, data: &[u8]) {
        self.post(kind, tag, data, None);
        self.sent().result.expect("it goes");
    }

    pub(crate) fn post(&mut self, kind: TagMessageKind, tag: u64, data: &[u8], imm: Option<u32>) {
        let header = TagMessage { kind, app_ctx: 0xabcd, tag }.to_bytes();
        let mut frame = self.frame();
        frame.set_len(HEADER + data.len());
        frame[..HEADER].copy_from_slice(&header);
        frame[HEADER..].copy_from_slice(data);
        let mut batch = self.qp.batch();
        match imm {
            Some(imm) => batch.send_imm(100, frame, imm).expect("post"),
            None => batch.send(100, frame).expect("post"),
        }
        batch.ring();
    }

    pub(crate) fn sent(&mut self) -> WorkCompletion {
        self.sends.wait(LIMIT).expect("a completion")
    }

    pub(crate) fn eager(&mut self, tag: u64, data: &[u8]) {
        self.send(TagMessageKind::Eager, tag, data);
    }

    /// Adds tags, numbered in order, which the messages carry too, and waits until they are in the
    /// list.
    pub(crate) fn add(&mut self, tags: &[Tag]) -> Vec<uverbs::tags::TagHandle> {
        let frames: Vec<_> = tags.iter().map(|_| self.frame()).collect();
        let mut batch = self.srq.tag_batch();
        let mut handles = Vec::new();
        for ((id, tag), frame) in (0..).zip(tags).zip(frames) {
            handles.push(batch.add(id, *tag, 10 + id, frame).expect("add"));
        }
        batch.ring();
        for id in 0..tags.len() as u64 {
            let (added, _) = self.next();
            assert_eq!((added.id, added.result), (id, Ok(Completed::TagAdded)));
            assert!(added.frame.is_none());
        }
        handles
    }

    pub(crate) fn receive(&mut self, id: u64) {
        let frame = self.frame();
        self.srq.post(id, frame).expect("post");
    }

    /// The next completion of the queue, if it is there.
    pub(crate) fn poll(&mut self) -> Option<Told> {
        let mut burst = self.cq.poll(1);
        let completion = burst.next()?;
        let info = completion.tag_info();
        Some((completion.into(), info))
    }

    /// The next completion of the queue.
    pub(crate) fn next(&mut self) -> Told {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(told) = self.poll() {
                return told;
            }
            assert!(Instant::now() < end, "no completion came");
            std::thread::yield_now();
        }
    }

    /// Takes the next completion, which is for a message that has arrived.
    pub(crate) fn message(&mut self, id: u64, result: Completed, data: &[u8]) -> Option<TagInfo> {
        let (done, info) = self.next();
        assert_eq!((done.id, done.result, done.is_recv), (id, Ok(result), true));
        assert_eq!((done.byte_len as usize, done.qpn), (data.len(), self.qp.qpn()));
        assert_eq!(&done.frame.expect("it was posted with one")[..], data);
        info
    }

    /// Checks the completions of a message that matches a tag and fits its buffer.
    pub(crate) fn matched(&mut self, id: u64, tag: u64, data: &[u8]) {
        let header = Some(TagHeader { tag, app_ctx: 0xabcd });
        if data.len() + HEADER > 4096 {
            let (found, info) = self.next();
            assert_eq!((found.id, found.result), (id, Ok(Completed::TagFound)));
            assert!(found.frame.is_none());
            assert_eq!(info, Some(TagInfo { header, wants_sync: false }));
            let info = self.message(id, Completed::TagRecv, data);
            assert_eq!(info, Some(TagInfo::default()));
        } else {
            let info = self.message(id, Completed::TagRecv, data);
            assert_eq!(info, Some(TagInfo { header, wants_sync: false }));
        }
    }

    /// Fails the internal queue pair that changes the list: the one made before the scene's.
    pub(crate) fn fail_changes(&self) {
        let attr = ib_uverbs_modify_qp {
            qp_handle: self.qp.handle() - 1,
            attr_mask: IB_QP_STATE,
            qp_state: IB_QPS_ERR,
            ..Default::default()
        };
        // SAFETY: ERR leaves rings and indexes as they are.
        unsafe { self.context.provider().core().uverbs().modify_qp(&attr) }.expect("to ERR");
    }

    pub(crate) fn idle(&mut self) {
        assert!(self.cq.poll(1).next().is_none(), "nothing more is told");
    }
}
