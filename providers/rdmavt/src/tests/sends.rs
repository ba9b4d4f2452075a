//! POST_SENDs: their work requests, and batches that the kernel refuses half way.

use uverbs_core::Errno;
use uverbs_core::attr::{AhAttr, Path, QpCap, QpType};
use uverbs_core::provider::{AhOps, ContextOps, CqOps, SendOps};
use uverbs_core::queues::work::{Data, Destination, PostError, Remote, SendOp, Sge, Wr};
use uverbs_kernel_rings::testing::free;

use super::rig::{CAP, PIECE, Rig};

const TO: Remote = Remote { addr: 0x1234_5678_9abc, rkey: 0x4200 };
const EIGHT: Sge = Sge { len: 8, ..PIECE };

// `enum ib_uverbs_wr_opcode`, and flags.
const WRITE: u32 = 0;
const WRITE_IMM: u32 = 1;
const SEND: u32 = 2;
const SEND_IMM: u32 = 3;
const READ: u32 = 4;
const COMPARE: u32 = 5;
const ADD: u32 = 6;
const SEND_INV: u32 = 9;
const FENCE: u32 = 1;
const SIGNALED: u32 = 2;
const SOLICITED: u32 = 4;

#[test]
fn work_requests_have_the_kernels_layout() {
    let mut rig = Rig::new(64);
    let second = Sge { addr: 0xbeef, len: 7, lkey: 0x2200 };
    let list = [PIECE, Sge { len: 0, ..PIECE }, second];
    let wr = Wr::new(1).fenced().solicited();
    rig.send(wr, SendOp::Send, Data::List(&list), None).unwrap();
    let sent = rig.kernel.state().take_send().unwrap();
    let head = [8, 12, 16, 20].map(|at| sent.wr.word(at));
    assert_eq!(head, [2, SEND, FENCE | SIGNALED | SOLICITED, 0]);
    // Empty SGEs are left out.
    assert_eq!(sent.sges, [(0xdead_0000, 100, 0x1100), (0xbeef, 7, 0x2200)]);

    rig.send(Wr::new(2).unsignaled(), SendOp::Write(TO), Data::One(PIECE), None).unwrap();
    let wr = rig.kernel.state().take_send().unwrap().wr;
    assert_eq!((wr.word(12), wr.word(16), wr.long(24), wr.word(32)), (WRITE, 0, TO.addr, TO.rkey));
    rig.send(3, SendOp::WriteImm(TO, 0x0102_0304), Data::One(PIECE), None).unwrap();
    let wr = rig.kernel.state().take_send().unwrap().wr;
    assert_eq!((wr.word(12), &wr.0[20..24], wr.long(24)), (WRITE_IMM, &[1, 2, 3, 4][..], TO.addr));
    rig.send(4, SendOp::SendImm(0x0102_0304), Data::List(&[]), None).unwrap();
    let sent = rig.kernel.state().take_send().unwrap();
    assert_eq!((sent.wr.word(12), &sent.wr.0[20..24]), (SEND_IMM, &[1, 2, 3, 4][..]));
    assert_eq!((sent.wr.word(8), sent.sges.len()), (0, 0));
    rig.send(5, SendOp::Read(TO), Data::One(PIECE), None).unwrap();
    let wr = rig.kernel.state().take_send().unwrap().wr;
    assert_eq!((wr.word(12), wr.long(24), wr.word(32)), (READ, TO.addr, TO.rkey));
    let swap = SendOp::CompareSwap { remote: TO, compare: 7, swap: 8 };
    rig.send(6, swap, Data::One(EIGHT), None).unwrap();
    let wr = rig.kernel.state().take_send().unwrap().wr;
    assert_eq!(wr.word(12), COMPARE);
    assert_eq!([24, 32, 40].map(|at| wr.long(at)), [TO.addr, 7, 8]);
    assert_eq!(wr.word(48), TO.rkey);
    rig.send(7, SendOp::FetchAdd { remote: TO, add: 9 }, Data::One(EIGHT), None).unwrap();
    let wr = rig.kernel.state().take_send().unwrap().wr;
    assert_eq!((wr.word(12), wr.long(32), wr.long(40), wr.word(48)), (ADD, 9, 0, TO.rkey));
    rig.send(8, SendOp::SendInvalidate(0x7700), Data::List(&[]), None).unwrap();
    let wr = rig.kernel.state().take_send().unwrap().wr;
    assert_eq!((wr.word(12), wr.word(20)), (SEND_INV, 0x7700));
}

#[test]
fn what_the_device_lacks_is_refused() {
    let mut rig = Rig::new(64);
    let odd = Sge { addr: 0xdead_0004, ..EIGHT };
    let add = SendOp::FetchAdd { remote: TO, add: 1 };
    for (op, data, why) in [
        (SendOp::Send, Data::Inline(b"x"), PostError::InlineTooLong),
        (SendOp::Read(TO), Data::Inline(b"x"), PostError::BadData),
        (SendOp::Send, Data::List(&[PIECE; 4]), PostError::TooManySges),
        (add, Data::One(PIECE), PostError::BadData),
        (add, Data::One(odd), PostError::BadData),
    ] {
        assert_eq!(rig.send(1, op, data, None), Err(why), "{op:?}");
    }
    for (qp_type, ops) in [
        (QpType::Uc, [SendOp::Read(TO), add, SendOp::SendInvalidate(1)]),
        (QpType::Ud, [SendOp::Send, SendOp::Write(TO), SendOp::Read(TO)]),
    ] {
        let mut rig = Rig::of(qp_type, CAP, 64);
        for op in ops {
            let refused = rig.send(1, op, Data::One(EIGHT), None);
            assert_eq!(refused, Err(PostError::BadOperation), "{qp_type:?} {op:?}");
        }
    }
    assert_eq!(rig.kernel.state().commands, []);
}

#[test]
fn a_datagram_names_the_handle_of_its_address() {
    let mut rig = Rig::of(QpType::Ud, CAP, 64);
    let path = Path { dlid: 9, grh: None, service_level: 0, src_path_bits: 0, static_rate: 0 };
    let ah = rig.context.create_ah(&rig.pd, &AhAttr { port: 1, path }).unwrap();
    let mut at = rig.sq.begin();
    let to = Destination { ah: &ah, peer: ah.peer(0x77, 0x1234) };
    #[allow(unsafe_code, reason = "posts to a kernel without a device")]
    // SAFETY: no device reads the memory.
    let posted = unsafe { rig.sq.post_to(&mut at, Wr::new(1), SendOp::Send, to, Data::One(PIECE)) };
    posted.unwrap();
    // The staged work request keeps it.
    drop(ah);
    assert_eq!(rig.kernel.state().destroyed, []);
    #[allow(unsafe_code, reason = "rings without a device")]
    // SAFETY: the cursor is from the last `begin`.
    unsafe {
        rig.sq.ring(at);
    }
    let wr = rig.kernel.state().take_send().unwrap().wr;
    assert_eq!([24, 28, 32].map(|at| wr.word(at)), [9, 0x77, 0x1234]);
}

/// Inline data goes by an SGE of the provider's own, and each slot has its part.
#[test]
fn inline_data_is_copied_when_it_is_posted() {
    let cap = QpCap { max_inline_data: 40, ..CAP };
    let mut rig = Rig::of(QpType::Rc, cap, 64);
    let registered = rig.kernel.state().registered.clone();
    let [(start, 0, 0)] = registered[..] else { panic!("{registered:?}") };
    for (at, data) in [
        (0, Data::Inline(b"in one piece")),
        (1, Data::InlineList(&[b"in two ", b"pieces"])),
        (2, Data::Inline(&[7; 40])),
    ] {
        rig.send(at, SendOp::Write(TO), data, None).unwrap();
        let sent = rig.kernel.state().take_send().unwrap();
        let [(addr, len, 0x1100)] = sent.sges[..] else { panic!("{sent:?}") };
        assert_eq!(addr, start + at * 40);
        let bytes = std::ptr::with_exposed_provenance::<u8>(addr as usize);
        #[allow(unsafe_code, reason = "reads what the device would")]
        // SAFETY: the provider's memory, which is not written meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, len as usize) };
        let wanted: [&[u8]; 3] = [b"in one piece", b"in two pieces", &[7; 40]];
        assert_eq!(bytes, wanted[at as usize]);
    }
    let long = rig.send(4, SendOp::Send, Data::Inline(&[0; 41]), None);
    assert_eq!(long, Err(PostError::InlineTooLong));
    rig.send(5, SendOp::Send, Data::Inline(&[]), None).unwrap();
    assert_eq!(rig.kernel.state().take_send().unwrap().wr.word(8), 0);
    let cap = QpCap { max_send_sge: 0, ..cap };
    let mut rig = Rig::of(QpType::Rc, cap, 64);
    let none = rig.send(1, SendOp::Send, Data::Inline(b"x"), None);
    assert_eq!((none, rig.qp.cap().max_inline_data), (Err(PostError::InlineTooLong), 0));
}

/// The kernel does not see a batch that isn't rung. A rung batch takes one command.
#[test]
fn a_batch_is_one_command() {
    let mut rig = Rig::new(64);
    let mut at = rig.sq.begin();
    #[allow(unsafe_code, reason = "posts to a kernel without a device")]
    // SAFETY: no device reads the memory.
    unsafe { rig.sq.post(&mut at, Wr::new(9), SendOp::Send, Data::One(PIECE)) }.unwrap();
    assert_eq!(rig.kernel.state().commands, []);
    rig.batch(1..=3, None);
    assert_eq!(rig.kernel.state().commands, [3]);
    let ids: Vec<_> = rig.kernel.state().sent.iter().map(|sent| sent.wr.id()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{ids:x?}");
}

#[test]
fn a_batch_that_is_longer_than_a_command_takes_several() {
    let cap = QpCap { max_send_wr: 1000, ..CAP };
    let mut rig = Rig::of(QpType::Rc, cap, 2000);
    rig.batch(0..1000, None);
    // (65535 - 24) / (56 + 16)
    assert_eq!(rig.kernel.state().commands, [909, 91]);
    assert_eq!(rig.kernel.state().sent.len(), 1000);
}

#[test]
fn a_refused_work_request_and_the_rest_come_back() {
    let mut rig = Rig::new(64);
    let slab = rig.slab(64, 8);
    rig.kernel.state().refusals = [(2, Errno::EINVAL)].into();
    rig.batch(1..=5, Some(&slab));
    assert_eq!((rig.sq.doorbell_error(), rig.sq.returned()), (Some(Errno::EINVAL), 3));
    assert_eq!((rig.kernel.state().commands.clone(), free(&slab)), (vec![5], 6));
    // The next batch begins where the kernel stopped.
    rig.batch(6..=7, Some(&slab));
    assert_eq!((rig.sq.doorbell_error(), rig.sq.returned()), (None, 0));
    let ids: Vec<_> = rig.kernel.state().sent.drain(..).map(|sent| sent.wr.id()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{ids:x?}");
    for id in ids {
        assert!(rig.kernel.state().complete(id, 0, 0, 64));
    }
    let told: Vec<_> = std::iter::from_fn(|| rig.poll()).map(|told| told.id).collect();
    assert_eq!((told, rig.cq.strays(), free(&slab)), (vec![1, 2, 6, 7], 0, 8));
}

#[test]
fn a_command_that_fails_for_want_of_memory_goes_on_where_it_stopped() {
    let mut rig = Rig::new(64);
    rig.kernel.state().refusals =
        [(1, Errno::ENOMEM), (u32::MAX, Errno::ENOMEM), (2, Errno::EINTR)].into();
    rig.batch(1..=5, None);
    assert_eq!((rig.sq.doorbell_error(), rig.sq.returned()), (None, 0));
    assert_eq!(rig.kernel.state().commands, [5, 4, 4, 2]);
    let ids: Vec<_> = rig.kernel.state().sent.iter().map(|sent| sent.wr.id()).collect();
    assert_eq!(ids.len(), 5);
    assert!(ids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{ids:x?}");
}

#[test]
fn want_of_memory_that_stays_ends_the_batch() {
    let mut rig = Rig::new(64);
    let slab = rig.slab(64, 4);
    rig.kernel.state().refusals = [(u32::MAX, Errno::ENOMEM); 8].into();
    rig.batch(1..=2, Some(&slab));
    assert_eq!((rig.sq.doorbell_error(), rig.sq.returned()), (Some(Errno::ENOMEM), 2));
    assert_eq!((rig.kernel.state().commands.len(), free(&slab)), (8, 4));
    rig.send(3, SendOp::Send, Data::One(PIECE), None).unwrap();
    assert_eq!(rig.sq.doorbell_error(), None);
}

#[test]
fn a_device_that_is_gone_is_told() {
    let mut rig = Rig::new(64);
    rig.kernel.state().refusals = [(u32::MAX, Errno::EIO)].into();
    rig.send(1, SendOp::Send, Data::One(PIECE), None).unwrap();
    assert_eq!((rig.sq.doorbell_error(), rig.sq.returned()), (Some(Errno::EIO), 1));
    let gone = rig.send(2, SendOp::Send, Data::One(PIECE), None);
    assert_eq!(gone, Err(PostError::DeviceGone));
}

/// A full queue is no matter of the kernel's.
#[test]
fn room_comes_with_completions() {
    let mut rig = Rig::new(64);
    rig.sq.ring_mut().start_at(u32::MAX - 3);
    rig.sq.start_at(u32::MAX - 3);
    for round in 0..20 {
        rig.batch((0..8).map(|id| round * 8 + id), None);
        assert_eq!(rig.send(0, SendOp::Send, Data::One(PIECE), None), Err(PostError::Full));
        let sent: Vec<_> = rig.kernel.state().sent.drain(..).collect();
        assert_eq!(sent.len(), 8);
        for one in sent {
            assert!(rig.kernel.state().complete(one.wr.id(), 0, 0, 0));
        }
        let ids: Vec<_> = std::iter::from_fn(|| rig.poll()).map(|told| told.id).collect();
        assert_eq!(ids, (0..8).map(|id| round * 8 + id).collect::<Vec<_>>());
    }
}

/// In ERR the kernel takes sends, and flushes them.
#[test]
fn sends_after_a_failure_are_posted() {
    let mut rig = Rig::new(64);
    rig.send(1, SendOp::Send, Data::One(PIECE), None).unwrap();
    let id = rig.kernel.state().take_send().unwrap().wr.id();
    assert!(rig.kernel.state().complete(id, 12, 0, 0));
    assert_eq!(rig.poll().unwrap().result, Err(12));
    rig.send(2, SendOp::Send, Data::One(PIECE), None).unwrap();
    let id = rig.kernel.state().take_send().unwrap().wr.id();
    assert!(rig.kernel.state().complete(id, 5, 0, 0));
    assert_eq!(rig.poll().unwrap().result, Err(5));
    assert_eq!(rig.kernel.state().states, []);
}
