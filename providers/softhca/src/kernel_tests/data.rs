//! From the ioctl to the CQE, all built by the test: objects, a WQE, and a store to the mapped UAR.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::SoftHca;
use uverbs_kernel_abi::cq::ib_uverbs_destroy_cq_resp;
use uverbs_kernel_abi::event::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::*;
use uverbs_mlx5_prm::cqe::mlx5_cqe64;
use uverbs_mlx5_prm::ctrl::{FmCeSe, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
use zerocopy::IntoBytes;

use super::rig::*;

const SEND: u32 = 0x0a;
/// `MLX5_WQE_CTRL_CQ_UPDATE`.
const SIGNALED: u8 = 8;

/// An RC QP connected to itself, with a receive posted.
struct Loop {
    rig: Rig,
    cq: CqRings,
    qp: QpRings,
    uar: uverbs_core::memory::pages::Pages,
    lkey: u32,
    data: u64,
}

impl Loop {
    fn new(rig: Rig, channel: Option<i32>) -> Self {
        let (pd, page) = (rig.pd(), rig.uar());
        let (cmd, places) = rig.cq_cmd(page.page_id, 15);
        let cmd = match channel {
            None => cmd,
            Some(fd) => cmd.handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, fd.cast_unsigned()),
        };
        let cq = rig.cq_of((cmd, places));
        let qp = rig.qp(page.page_id, pd, cq.handle);
        let uar = rig.door().mmap(page_size(), page.offset).unwrap();
        let data = rig.arena.alloc(8192, 4096);
        let lkey = rig.mr(pd, data, 8192).lkey;
        rig.connect(qp.handle, qp.qpn, rig.hca.gids()[3].gid);
        Self { rig, cq, qp, uar, lkey, data }
    }

    fn segment(&self, offset: u64, len: u32) -> mlx5_wqe_data_seg {
        mlx5_wqe_data_seg {
            byte_count: len.into(),
            lkey: self.lkey.into(),
            addr: (self.data + offset).into(),
        }
    }

    fn post_recv(&self, index: u32, offset: u64, len: u32) {
        let at = self.qp.buf + u64::from(index % 8) * 16;
        self.rig.arena.write(at, self.segment(offset, len).as_bytes());
        self.record(0, (index + 1) & 0xffff);
    }

    /// Posts a SEND of `len` bytes at `offset`, and rings the doorbell register at `register`.
    fn post_send(&self, index: u32, offset: u64, len: u32, register: usize) {
        let ctrl = mlx5_wqe_ctrl_seg::new(
            OpmodIdxOpcode(index << 8 | SEND),
            QpnDs(self.qp.qpn << 8 | 2),
            FmCeSe(SIGNALED),
            0,
        );
        let at = self.qp.buf + self.qp.sq_offset + u64::from(index % 16) * 64;
        self.rig.arena.write(at, ctrl.as_bytes());
        self.rig.arena.write(at + 16, self.segment(offset, len).as_bytes());
        self.record(1, (index + 1) & 0xffff);
        self.ring(register, u64::from_ne_bytes(ctrl.as_bytes()[..8].try_into().unwrap()));
    }

    fn record(&self, word: u64, value: u32) {
        let at = std::ptr::with_exposed_provenance_mut::<u32>((self.qp.record + 4 * word) as usize);
        // SAFETY: the record is in the arena, which is never unmapped, and 8-aligned.
        let word = unsafe { AtomicU32::from_ptr(at) };
        word.store(value.to_be(), Ordering::Release);
    }

    fn ring(&self, register: usize, native: u64) {
        assert!(register + 8 <= self.uar.len());
        // SAFETY: the assertion above keeps the offset inside the mapping.
        let at = unsafe { self.uar.as_mut_ptr().add(register) }.cast::<u64>();
        // SAFETY: registers are 8-aligned; the mapping lives as long as `self`.
        unsafe { AtomicU64::from_ptr(at) }.store(native, Ordering::Release);
    }

    /// Returns the CQE at `index` of the first lap, if the device wrote it.
    fn cqe(&self, index: u64) -> Option<mlx5_cqe64> {
        let at = self.cq.buf + index * 64;
        let owner = std::ptr::with_exposed_provenance_mut::<u8>(at as usize + 63);
        // SAFETY: the last byte of a CQE in the arena, which is never unmapped.
        let op_own =
            unsafe { std::sync::atomic::AtomicU8::from_ptr(owner) }.load(Ordering::Acquire);
        (op_own & 1 == 0 && op_own >> 4 != 0xf).then(|| self.rig.arena.get(at))
    }
}

fn settle(rig: &Rig) {
    for _ in 0..100 {
        if rig.hca.step_until_idle(10_000) == 0 {
            return;
        }
        rig.hca.advance(Duration::from_micros(1));
    }
}

#[test]
fn a_message_goes_round() {
    let path = Loop::new(Rig::new(), None);
    let (rig, data) = (&path.rig, path.data);
    let text = (0..3000).map(|at| at as u8).collect::<Vec<_>>();
    rig.arena.write(data, &text);
    for (index, register) in [0x800, 0x900, 0xa00, 0xb00].into_iter().enumerate() {
        let index = index as u32;
        rig.arena.write(data + 4096, &[0; 3000]);
        path.post_recv(index, 4096, 4096);
        path.post_send(index, 0, 3000, register);
        assert!(path.cqe(u64::from(index) * 2).is_none(), "nothing happens before a step");
        settle(rig);
        assert_eq!(rig.arena.read(data + 4096, 3000), text);
        let both = [0, 1].map(|at| path.cqe(u64::from(index) * 2 + at).expect("a CQE"));
        let kinds = both.map(|cqe| cqe.op_own >> 4);
        assert!(kinds == [2, 0] || kinds == [0, 2], "{kinds:?}");
        for cqe in both {
            assert_eq!(cqe.wqe_counter.get(), index as u16);
            assert_eq!(cqe.srqn_uidx.get() & 0xff_ffff, 0x1234);
            assert_eq!(cqe.sop_drop_qpn.get() & 0xff_ffff, path.qp.qpn);
            if cqe.op_own >> 4 == 2 {
                assert_eq!(cqe.byte_cnt.get(), 3000);
            }
        }
    }
    assert_eq!(rig.hca.stats().doorbells, 4);
    assert_eq!(rig.hca.stats().complaints.total(), 0);
}

#[test]
fn a_device_on_its_own_thread() {
    let path = Loop::new(Rig::with(SoftHca::builder()), None);
    // A shorter message would be in its CQE, as libmlx5 requests it.
    let text = b"more bytes than a completion of 64 has room for";
    path.rig.arena.write(path.data, text);
    path.post_recv(0, 4096, 64);
    path.post_send(0, 0, text.len() as u32, 0x800);
    let deadline = Instant::now() + Duration::from_secs(10);
    while path.cqe(1).is_none() {
        assert!(Instant::now() < deadline, "no completions: {:?}", path.rig.hca.stats());
        std::thread::yield_now();
    }
    assert_eq!(path.rig.arena.read(path.data + 4096, text.len()), text);
}

#[test]
fn completions_are_told_through_channels() {
    let rig = Rig::new();
    let fd = rig.channel();
    let path = Loop::new(rig, Some(fd));
    let rig = &path.rig;
    // Arms for the next completion: record word 1, then the doorbell (sn 0, command 0 is "any").
    let arm = std::ptr::with_exposed_provenance_mut::<u32>((path.cq.record + 4) as usize);
    // SAFETY: the record is in the arena, which is never unmapped, and 8-aligned.
    unsafe { AtomicU32::from_ptr(arm) }.store((1u32 << 28).to_be(), Ordering::Release);
    let doorbell = (1u64 << 28) << 32 | u64::from(path.cq.cqn);
    path.ring(0x20, doorbell.to_be());
    settle(rig);
    assert!(read_event::<ib_uverbs_comp_event_desc>(fd).is_none());
    path.post_recv(0, 4096, 64);
    path.post_send(0, 0, 5, 0x800);
    settle(rig);
    assert_eq!(read_event::<ib_uverbs_comp_event_desc>(fd).unwrap().cq_handle, 0xc0ffee);
    assert!(read_event::<ib_uverbs_comp_event_desc>(fd).is_none(), "armed once, told once");
    // Arms again; this event stays unread and is taken back with the CQ.
    // SAFETY: the record is in the arena, which is never unmapped, and 8-aligned.
    unsafe { AtomicU32::from_ptr(arm) }.store((2u32 << 28).to_be(), Ordering::Release);
    let doorbell = (2u64 << 28) << 32 | u64::from(path.cq.cqn);
    path.ring(0x20, doorbell.to_be());
    path.post_recv(1, 4096, 64);
    settle(rig);
    path.post_send(1, 0, 5, 0x800);
    settle(rig);
    rig.destroy(UVERBS_OBJECT_QP, 1, path.qp.handle).unwrap();
    let (cmd, out) = Cmd::new(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY)
        .handle(UVERBS_ATTR_DESTROY_CQ_HANDLE, path.cq.handle)
        .output(&rig.arena, UVERBS_ATTR_DESTROY_CQ_RESP, 8);
    cmd.send(rig.door()).unwrap();
    let response: ib_uverbs_destroy_cq_resp = rig.arena.get(out);
    assert_eq!((response.comp_events_reported, response.async_events_reported), (1, 0));
    assert!(read_event::<ib_uverbs_comp_event_desc>(fd).is_none());
    nix::unistd::close(fd).unwrap();
}

#[test]
fn errors_are_told_to_the_async_file() {
    let rig = Rig::new();
    let fd = rig.async_fd();
    let path = Loop::new(rig, None);
    let rig = &path.rig;
    // An unknown key in a receive: the responder's QP fails. A shorter message would be in the CQE.
    let at = path.qp.buf;
    let mut segment = path.segment(4096, 64);
    segment.lkey = 0xdead_beef.into();
    rig.arena.write(at, segment.as_bytes());
    path.record(0, 1);
    path.post_send(0, 0, 64, 0x800);
    settle(rig);
    assert_eq!(rig.query_qp(path.qp.handle).qp_state, IB_QPS_ERR);
    let first = path.cqe(0).expect("an error CQE").op_own >> 4;
    assert!(first == 13 || first == 14, "{first}");
    while let Some(event) = read_event::<ib_uverbs_async_event_desc>(fd) {
        assert_eq!(event.element, 0xbeef, "{event:?}");
    }
    nix::unistd::close(fd).unwrap();
}
