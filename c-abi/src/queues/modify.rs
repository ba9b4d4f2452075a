//! Modifying and querying queue pairs.
//!
//! # Safety
//!
//! By C's contract (crate root), pointers are valid, and one thread at a time changes a queue
//! pair's state. A reset of the rings holds the lock of each.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use uverbs_core::Errno;
use uverbs_core::attr::{QpAttrMask, QpState, RawQpAttr};
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::CqOps;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_SIW;

use crate::base::answer::{code, refuse};
use crate::base::convert;
use crate::queues::cq::Cq;
use crate::queues::qp::{self, Allows, Qp};
use crate::sys::{ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_init_attr};

pub(crate) unsafe extern "C" fn modify_qp(
    qp: *mut ibv_qp,
    attr: *const ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // The program may pass null if the mask is empty, which C's library accepts.
    let nothing = ibv_qp_attr::default();
    // SAFETY: by C's contract.
    let (of, attr) = unsafe { (Qp::of(qp), attr.as_ref().unwrap_or(&nothing)) };
    if of.is_spread() {
        return refuse(Errno::EOPNOTSUPP);
    }
    let mask = QpAttrMask::from_bits_retain(mask as u32);
    let command = convert::change(attr, mask);
    let to = mask.contains(QpAttrMask::STATE).then(|| QpState::from_raw(attr.qp_state));
    let change = || {
        // SAFETY: by C's contract; the program is responsible for the attributes' effect on memory.
        // The rings are reset below.
        unsafe {
            match of.core() {
                Some(core) if of.is_dc_target() => target(of, core, &command, mask),
                Some(core) => core.modify_or_reset_by_mask(&command, mask),
                None => of.object().modify_by_mask(&command, mask),
            }
        }
    };
    let changed = match (to, of.core()) {
        (Some(QpState::Reset), Some(core)) => reset(of, core, change),
        (Some(QpState::Init), Some(core)) => change().and_then(|()| allow_copies(of, core)),
        _ => change(),
    };
    if changed.is_ok()
        && let Some(to) = to
    {
        enable(of, to);
        // SAFETY: by C's contract; programs read it between their calls.
        unsafe { (*of.c()).qp_base.state = attr.qp_state };
    }
    code(changed)
}

/// Enables copies in the device for a queue pair created for them.
fn allow_copies(qp: &Qp, core: &QpCore) -> Result<(), Error> {
    qp.copies().map_or(Ok(()), |copies| copies.allow(core))
}

/// Modifies a target of dynamic connections, and records its number.
///
/// # Safety
///
/// As for [`uverbs_mlx5::modify_target`].
unsafe fn target(qp: &Qp, core: &QpCore, attr: &RawQpAttr, mask: QpAttrMask) -> Result<(), Error> {
    // SAFETY: by the contract of `target`.
    if let Some(number) = unsafe { uverbs_mlx5::modify_target(core, attr, mask) }? {
        // SAFETY: by C's contract; programs read it between their calls.
        unsafe { (*qp.c()).qp_base.qp_num = number };
    }
    Ok(())
}

/// Enables posting as the state allows.
fn enable(qp: &Qp, state: QpState) {
    let (recv, send) = match state {
        QpState::Reset => return,
        // The kernel moves an iWARP queue pair to RTS without telling the program (`iwcm.c`,
        // `iw_cm_init_qp_attr`: no attributes). It refuses sends before.
        QpState::Init | QpState::ReadyToReceive => {
            (true, qp.object().context().uverbs().driver_id() == RDMA_DRIVER_SIW)
        }
        _ => (true, true),
    };
    // A repeated change takes no lock, which the thread may hold between `wr_start` and
    // `wr_complete`. RTS takes it each time: a provider may resume a drained queue.
    if recv && !qp.allows().recv.swap(true, Ordering::Relaxed) {
        qp.recv().lock().enable(true);
    }
    let before = send && qp.allows().send.swap(true, Ordering::Relaxed);
    if send
        && (!before || state == QpState::ReadyToSend)
        && let Some(mut send) = qp.send().lock_unless_mine()
    {
        send.enable(true);
    }
}

/// Moves a queue pair to RESET by `change`, and removes its completions. `EBUSY` if this thread
/// builds work requests on it, or polls.
///
/// One lock is held at a time: another thread may post with a completion queue locked, between
/// `start_poll` and `end_poll`, or poll with the send queue locked. Posts fail meanwhile.
fn reset(qp: &Qp, core: &QpCore, change: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let busy = || Error::kernel("modify_qp", Errno::EBUSY);
    // SAFETY: by C's contract; the completion queues outlive the queue pair.
    let base = unsafe { &(*qp.c()).qp_base };
    let other = (base.send_cq != base.recv_cq).then_some(base.send_cq);
    let cqs = || [Some(base.recv_cq), other].into_iter().flatten();
    // SAFETY: C's contract: completion queues outlive the queue pairs that complete to them.
    if cqs().any(|cq| unsafe { Cq::of(cq) }.poll().lock_unless_mine().is_none()) {
        return Err(busy());
    }
    qp.send().lock_unless_mine().ok_or_else(busy)?.enable(false);
    qp.recv().lock().enable(false);
    if let Err(error) = change() {
        // The change failed: posting is allowed as before.
        let Allows { send, recv } = qp.allows();
        qp.send().lock().enable(send.load(Ordering::Relaxed));
        qp.recv().lock().enable(recv.load(Ordering::Relaxed));
        return Err(error);
    }
    qp.allows().send.store(false, Ordering::Relaxed);
    qp.allows().recv.store(false, Ordering::Relaxed);
    for cq in cqs() {
        sweep(cq, core.shared().user_index.value());
    }
    let mut send = qp.send().lock();
    // SAFETY: the kernel confirmed the reset, the lock is held, nothing was posted since, and the
    // queue's completions were dropped, or are polled by the program's own data path.
    unsafe {
        drop(core.shared().send.reclaim());
        send.reset();
        qp.sent_kinds().clear();
    }
    drop(send);
    let mut recv = qp.recv().lock();
    // SAFETY: the kernel confirmed the reset, the lock is held, nothing was posted since, and the
    // queue's completions were dropped, or are polled by the program's own data path.
    unsafe {
        drop(core.shared().recv.reclaim());
        recv.reset();
    }
    Ok(())
}

/// Drops the completions of a queue pair that was reset. A program with its own data path drops
/// them itself.
fn sweep(cq: *const ibv_cq, user_index: u32) {
    // SAFETY: C's contract: a completion queue outlives the queue pairs that complete to it.
    let cq = unsafe { Cq::of(cq) };
    if cq.direct().is_taken() {
        return;
    }
    let mut poll = cq.poll().lock();
    poll.settle();
    poll.sweep(user_index);
}

pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut MaybeUninit<ibv_qp_attr>,
    mask: c_int,
    init: *mut MaybeUninit<ibv_qp_init_attr>,
) -> c_int {
    // SAFETY: by C's contract.
    let (of, base) = unsafe { (Qp::of(qp), &*qp) };
    let mask = mask as u32;
    if mask >= QpAttrMask::RATE_LIMIT.bits() || of.is_spread() {
        // C's struct has no room for these attributes, and an RSS queue pair has no state to query.
        return refuse(Errno::EOPNOTSUPP);
    }
    let object = of.object();
    let answer = match object.context().uverbs().query_qp(object.handle(), mask) {
        Ok(answer) => answer,
        Err(error) => return code(Err(error)),
    };
    let cap = of.core().map(|core| qp::granted(core.cap(), !base.srq.is_null()));
    let cap = cap.unwrap_or_default();
    let made = ibv_qp_init_attr {
        qp_context: base.qp_context,
        send_cq: base.send_cq,
        recv_cq: base.recv_cq,
        srq: base.srq,
        cap,
        qp_type: base.qp_type,
        sq_sig_all: (of.signal() != 0).into(),
    };
    let found = convert::attr(&answer, cap);
    // SAFETY: by C's contract.
    unsafe {
        (*attr).write(found);
        (*init).write(made);
        if mask & QpAttrMask::STATE.bits() != 0 {
            (*of.c()).qp_base.state = found.qp_state;
        }
    }
    0
}
