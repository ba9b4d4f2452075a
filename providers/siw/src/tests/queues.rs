//! Contents of the rings, and the provider's reactions to the kernel's answers.

use uverbs_core::Errno;
use uverbs_core::attr::{AccessFlags, QpState, QpType};
use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, CqInit, CqOps, Notify, QpInit, SendOps};
use uverbs_core::queues::completion::Completed;
use uverbs_core::queues::work::{Data, PostError, Remote, SendOp, Sge, Wr};
use uverbs_kernel_rings::testing::free;

use super::rig::{CAP, Rig, Told};

const TO: Remote = Remote { addr: 0x1234_5678_9abc, rkey: 0x4200 };
const PIECE: Sge = Sge { addr: 0xdead_0000, len: 100, lkey: 0x1100 };

// `enum siw_opcode`, and flags.
const WRITE: u8 = 0;
const READ: u8 = 1;
const SEND: u8 = 3;
const SEND_INV: u8 = 5;
const RECEIVE: u8 = 8;
const VALID: u8 = 1;
const INLINE: u8 = 2;
const SIGNALLED: u8 = 4;
const SOLICITED: u8 = 8;
const FENCE: u8 = 16;
const FLUSHED: u16 = 4;

fn done(id: u64, completed: Completed, byte_len: u32, has_frame: bool) -> Option<Told> {
    Some(Told { id, result: Ok(completed), byte_len, has_frame })
}

#[test]
fn sends_stand_in_the_ring_as_the_kernel_reads_them() {
    let mut rig = Rig::new(64);
    let empty = Sge { len: 0, ..PIECE };
    let second = Sge { addr: 0xbeef, len: 7, lkey: 0x2200 };
    let list = [PIECE, empty, second];
    rig.send(Wr::new(1).fenced().solicited(), SendOp::Send, Data::List(&list), None).unwrap();
    let sent = rig.kernel.state().take_send().unwrap();
    assert_eq!(sent.0[8..12], [VALID | SIGNALLED | SOLICITED | FENCE, 0, 2, SEND]);
    assert_eq!((sent.long(24), sent.word(32), sent.word(36)), (0xdead_0000, 100, 0x1100));
    assert_eq!((sent.long(40), sent.word(48), sent.word(52)), (0xbeef, 7, 0x2200));

    rig.send(2, SendOp::Write(TO), Data::InlineList(&[b"in two ", b"pieces"]), None).unwrap();
    let sent = rig.kernel.state().take_send().unwrap();
    assert_eq!(sent.0[8..12], [VALID | SIGNALLED | INLINE, 0, 1, WRITE]);
    assert_eq!((sent.word(12), sent.long(16)), (TO.rkey, TO.addr));
    assert_eq!((sent.word(32), &sent.0[40..53]), (13, &b"in two pieces"[..]));

    rig.send(3, SendOp::Read(TO), Data::One(PIECE), None).unwrap();
    let sent = rig.kernel.state().take_send().unwrap();
    assert_eq!(sent.0[8..12], [VALID | SIGNALLED, 0, 1, READ]);
    assert_eq!((sent.word(12), sent.long(16), sent.word(32)), (TO.rkey, TO.addr, 100));
    // The kernel reads the first SGE even if the list is empty.
    rig.send(4, SendOp::Read(TO), Data::List(&[]), None).unwrap();
    let sent = rig.kernel.state().take_send().unwrap();
    assert_eq!((sent.0[10], sent.long(24), sent.word(32), sent.word(36)), (1, 0, 0, 0));

    rig.send(5, SendOp::SendInvalidate(0x7700), Data::List(&[]), None).unwrap();
    let sent = rig.kernel.state().take_send().unwrap();
    assert_eq!((&sent.0[8..12], sent.word(12)), (&[VALID | SIGNALLED, 0, 0, SEND_INV][..], 0x7700));
    // No inline bytes are no entry.
    rig.send(6, SendOp::Send, Data::Inline(&[]), None).unwrap();
    assert_eq!(rig.kernel.state().take_send().unwrap().0[8..12], [VALID | SIGNALLED, 0, 0, SEND]);

    rig.recv(7, &[PIECE, second], None).unwrap();
    let receive = rig.kernel.state().take_recv().unwrap();
    assert_eq!(receive.0[8..11], [VALID, 0, 2]);
    assert_eq!((receive.long(16), receive.word(24), receive.word(28)), (0xdead_0000, 100, 0x1100));
}

#[test]
fn what_iwarp_has_not_is_refused() {
    let mut rig = Rig::new(64);
    for op in [
        SendOp::SendImm(1),
        SendOp::WriteImm(TO, 1),
        SendOp::FetchAdd { remote: TO, add: 1 },
        SendOp::CompareSwap { remote: TO, compare: 0, swap: 1 },
    ] {
        let refused = rig.send(1, op, Data::One(Sge { len: 8, ..PIECE }), None);
        assert_eq!(refused, Err(PostError::BadOperation), "{op:?}");
    }
    let two = Data::List(&[PIECE, PIECE]);
    for (wr, op, data, why) in [
        (Wr::new(1), SendOp::Read(TO), two, PostError::TooManySges),
        (Wr::new(1), SendOp::Read(TO), Data::Inline(b"x"), PostError::BadData),
        (Wr::new(1).fenced(), SendOp::Read(TO), Data::One(PIECE), PostError::BadOperation),
        (Wr::new(1), SendOp::SendInvalidate(1), Data::Inline(b"x"), PostError::BadData),
        (Wr::new(1), SendOp::Send, Data::Inline(&[0; 81]), PostError::InlineTooLong),
        (Wr::new(1), SendOp::Send, Data::List(&[PIECE; 4]), PostError::TooManySges),
    ] {
        assert_eq!(rig.send(wr, op, data, None), Err(why), "{op:?}");
    }
    assert!(rig.kernel.state().take_send().is_none());

    for qp_type in [QpType::Ud, QpType::Uc, QpType::XrcIni] {
        let (cq, _poller) = rig.context.create_cq(&CqInit::new(16)).unwrap();
        let mut init = QpInit::new(rig.pd.clone(), cq.clone(), cq);
        (init.qp_type, init.cap) = (qp_type, CAP);
        let error = rig.context.create_qp(&init).unwrap_err();
        assert!(error.to_string().contains("reliable connections only"), "{error}");
    }
    // The kernel would say that it did it.
    #[allow(unsafe_code, reason = "a change of state that is refused")]
    // SAFETY: it is refused.
    let error = unsafe { rig.qp.reset() }.unwrap_err();
    assert!(matches!(error, Error::Unsupported { verb: "modify_qp", .. }), "{error}");
    assert_eq!((rig.kernel.state().states.len(), rig.qp.state()), (0, QpState::Reset));
    assert!(matches!(rig.cq.resize(32), Err(Error::Unsupported { verb: "resize_cq", .. })));
}

/// The kernel does not see a batch that isn't rung. A rung batch takes one system call, or none
/// while the kernel is at work.
#[test]
fn a_batch_is_rung_by_one_call_at_most() {
    let mut rig = Rig::new(64);
    let mut at = rig.sq.begin();
    for id in 1..=3 {
        #[allow(unsafe_code, reason = "posts nothing")]
        // SAFETY: no memory is named.
        unsafe { rig.sq.post(&mut at, Wr::new(id), SendOp::Send, Data::List(&[])) }.unwrap();
    }
    assert!(rig.kernel.state().take_send().is_none());
    #[allow(unsafe_code, reason = "rings")]
    // SAFETY: the cursor is from the last `begin`.
    unsafe {
        rig.sq.ring(at);
    }
    assert_eq!(rig.kernel.state().kicks, 1);
    // It has yet to take the third one.
    rig.send(4, SendOp::Send, Data::List(&[]), None).unwrap();
    assert_eq!(rig.kernel.state().kicks, 1);
    let taken = std::iter::from_fn(|| rig.kernel.state().take_send()).count();
    assert_eq!(taken, 4);
    rig.send(5, SendOp::Send, Data::List(&[]), None).unwrap();
    assert_eq!(rig.kernel.state().kicks, 2);
}

#[test]
fn a_refused_doorbell_is_told_and_rung_again() {
    let mut rig = Rig::new(64);
    rig.kernel.state().kick_answers = vec![Errno::ENOTCONN, Errno::ENOTCONN];
    rig.send(1, SendOp::Send, Data::List(&[]), None).unwrap();
    assert_eq!(rig.sq.doorbell_error(), Some(Errno::ENOTCONN));
    assert_eq!(rig.send(2, SendOp::Send, Data::List(&[]), None), Err(PostError::DoorbellRefused));
    rig.send(2, SendOp::Send, Data::List(&[]), None).unwrap();
    assert_eq!(rig.sq.doorbell_error(), None);
}

/// The kernel would refuse every doorbell from then on.
#[test]
fn a_read_that_the_connection_has_no_room_for_is_refused() {
    let mut rig = Rig::new(64);
    rig.send(1, SendOp::Read(TO), Data::One(PIECE), None).unwrap();
    rig.sq.forbid_reads();
    let read = rig.send(2, SendOp::Read(TO), Data::One(PIECE), None);
    assert_eq!(read, Err(PostError::NoReads));
    rig.send(3, SendOp::Write(TO), Data::One(PIECE), None).unwrap();
}

/// SENDs complete when TCP has them, and READs when their answer came.
#[test]
fn a_completion_takes_its_own_buffer_alone() {
    let mut rig = Rig::new(64);
    let slab = rig.slab(64, 3);
    let read = slab.take();
    rig.send(Wr::new(1).unsignaled(), SendOp::Read(TO), Data::One(PIECE), read).unwrap();
    let sent = slab.take();
    rig.send(Wr::new(2).unsignaled(), SendOp::Send, Data::One(PIECE), sent).unwrap();
    let last = slab.take();
    rig.send(3, SendOp::Send, Data::One(PIECE), last).unwrap();
    let ids: Vec<_> =
        std::iter::from_fn(|| rig.kernel.state().take_send()).map(|taken| taken.id()).collect();
    rig.kernel.state().complete(ids[1], SEND, 0, 100);
    rig.kernel.state().complete(ids[2], SEND, 0, 100);
    assert_eq!(rig.poll(), done(3, Completed::Send, 0, true));
    assert_eq!(rig.poll(), None);
    // The READ's is still the kernel's.
    assert_eq!(free(&slab), 2);
    rig.kernel.state().complete(ids[0], READ, 0, 100);
    assert_eq!((rig.poll(), free(&slab)), (None, 3));
    // Each once, whatever the kernel says.
    rig.kernel.state().complete(ids[1], SEND, 0, 100);
    assert_eq!((rig.poll(), rig.cq.strays()), (None, 1));
}

#[test]
fn the_ring_comes_round_and_is_full_in_between() {
    let mut rig = Rig::new(64);
    for round in 0..40 {
        for id in 0..8 {
            rig.send(round * 8 + id, SendOp::Send, Data::Inline(b"x"), None).unwrap();
        }
        assert_eq!(rig.send(0, SendOp::Send, Data::List(&[]), None), Err(PostError::Full));
        let ids: Vec<_> =
            std::iter::from_fn(|| rig.kernel.state().take_send()).map(|taken| taken.id()).collect();
        // In any order: the first last.
        for id in ids.iter().rev() {
            assert!(rig.kernel.state().complete(*id, SEND, 0, 1));
        }
        for id in (0..8).rev() {
            assert_eq!(rig.poll(), done(round * 8 + id, Completed::Send, 0, false));
        }
        assert_eq!(rig.poll(), None);
        rig.cq.publish();
    }
    assert_eq!(rig.cq.strays(), 0);
}

#[test]
fn receives_bring_their_bytes() {
    let mut rig = Rig::new(64);
    let slab = rig.slab(64, 1);
    let frame = slab.take();
    rig.recv(9, &[PIECE], frame).unwrap();
    let taken = rig.kernel.state().take_recv().unwrap();
    rig.kernel.state().complete(taken.id(), RECEIVE, 0, 17);
    assert_eq!(rig.poll(), done(9, Completed::Recv, 17, true));
}

/// The kernel flushes once: a later post would never complete.
#[test]
fn behind_a_failure_nothing_is_posted() {
    let mut rig = Rig::new(64);
    let slab = rig.slab(64, 2);
    let frames = (slab.take(), slab.take());
    rig.send(Wr::new(1).unsignaled(), SendOp::Read(TO), Data::One(PIECE), frames.0).unwrap();
    rig.send(2, SendOp::Send, Data::One(PIECE), frames.1).unwrap();
    let ids: Vec<_> =
        std::iter::from_fn(|| rig.kernel.state().take_send()).map(|taken| taken.id()).collect();
    rig.kernel.state().complete(ids[1], SEND, 3, 0);
    let failed = |id, status| Some(Told { id, result: Err(status), byte_len: 0, has_frame: true });
    assert_eq!((rig.poll(), free(&slab)), (failed(2, 3), 1));
    assert_eq!(rig.send(3, SendOp::Send, Data::List(&[]), None), Err(PostError::State));
    assert_eq!(rig.recv(3, &[], None), Err(PostError::State));
    // A failure is told of what was to complete in silence, too.
    rig.kernel.state().complete(ids[0], READ, FLUSHED, 0);
    assert_eq!((rig.poll(), free(&slab)), (failed(1, 4), 2));
}

#[test]
fn a_queue_without_a_channel_is_not_armed() {
    let mut rig = Rig::new(16);
    let Err(Error::Invalid { what: "completion queue", .. }) = rig.cq.arm(Notify::Any) else {
        panic!("it has no channel");
    };
    assert_eq!(rig.kernel.state().armed(), 0);
}

#[test]
fn a_region_is_registered_with_the_drivers_part() {
    let rig = Rig::new(16);
    let uverbs = rig.pd.context().uverbs();
    let register = |iova| {
        #[allow(unsafe_code, reason = "registers nothing")]
        // SAFETY: no device is behind the door.
        unsafe {
            uverbs.reg_mr(rig.pd.handle(), 0x1000, 64, iova, AccessFlags::LOCAL_WRITE)
        }
    };
    register(0x1000).unwrap();
    assert_eq!(rig.kernel.state().registered, [(0x1000, 8, 8)]);
    // The kernel would ignore it.
    assert!(matches!(register(0), Err(Error::Unsupported { verb: "reg_mr", .. })));
}

/// `SIW_INVAL_UOBJ_KEY` is the key of the page behind the first 144.
#[test]
fn every_page_is_a_key() {
    let rig = Rig::new(16);
    let key = || rig.kernel.state().last_key();
    let mut kept = Vec::new();
    while key() < Some(0x9_0000) {
        // Its entries take one page.
        kept.push(rig.context.create_cq(&CqInit::new(15)).unwrap());
    }
    assert_eq!(key(), Some(0x9_0000));
}
