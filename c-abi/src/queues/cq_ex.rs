//! Extended completion queues: a program polls one completion at a time and reads the members it
//! wants. From `start_poll` to `end_poll` the queue is locked.
//!
//! # Safety
//!
//! By C's contract (crate root), the functions are called between `start_poll` and `end_poll`, by
//! one thread.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs::provider::AnyCq;
use uverbs_core::Errno;
use uverbs_core::provider::{CqOps, Polled, Sink, Usual, View};
use uverbs_core::queues::tag_work::TagHeader;

use crate::device::context::Context;
use crate::poll::basic::{checksums, settle};
use crate::poll::current::{EFA, PACKETS, SENT_KINDS, Shown, TAGS, TIMESTAMP, VLAN_TAG};
use crate::queues::cq::Cq;
use crate::sys::{ibv_cq, ibv_cq_ex, ibv_wc_tm_info};

/// `ibv_cq_ex` with all functions. A function for a member that was not asked for returns 0.
pub(crate) fn functions(base: ibv_cq) -> ibv_cq_ex {
    ibv_cq_ex {
        base,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_slid),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_dlid_path_bits),
        read_completion_ts: Some(read_completion_ts),
        read_cvlan: Some(read_cvlan),
        read_flow_tag: Some(read_flow_tag),
        read_tm_info: Some(read_tm_info),
        read_completion_wallclock_ns: Some(read_completion_wallclock_ns),
    }
}

/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn of<'a>(cq: *mut ibv_cq_ex) -> &'a Cq {
    // SAFETY: C's contract.
    unsafe { Cq::of(cq.cast()) }
}

/// Shows a completion to the program, without extras except the timestamp.
struct Show<'a>(&'a Cq);

impl<'a> Show<'a> {
    /// # Safety
    ///
    /// This thread holds the lock, and no reference to `shown` exists.
    #[inline(always)]
    unsafe fn new(cq: &'a Cq) -> Self {
        Self(cq)
    }
}

impl<V: View> Sink<V> for Show<'_> {
    type Output = ();

    const CALLS: bool = false;

    #[inline(always)]
    fn take(self, view: V, wr_id: u64) {
        // SAFETY: by the contract of `new`.
        unsafe {
            let shown = &mut *self.0.shown();
            (*self.0.c()).status = shown.show(&view, self.0.extras());
            (*self.0.c()).wr_id = wr_id;
            shown.left -= 1;
        }
    }
}

/// Takes the next completion of any kind; `ENOENT` if the queue is empty.
///
/// # Safety
///
/// This thread holds the lock.
#[inline(never)]
unsafe extern "C" fn take(cq: &Cq) -> c_int {
    // SAFETY: by the contract of `take`.
    let found = unsafe {
        match cq.poll().held() {
            AnyCq::Mlx5(poll) => next(poll, cq),
            AnyCq::Rxe(poll) => next(poll, cq),
            AnyCq::Siw(poll) => next(poll, cq),
            AnyCq::Rdmavt(poll) => next(poll, cq),
            AnyCq::Efa(poll) => next(poll, cq),
        }
    };
    if !found {
        // SAFETY: by the contract of `take`.
        let found = unsafe { cq.checked(cq.poll().held().strays(), 0) };
        return if found == 0 { Errno::ENOENT.raw() } else { found };
    }
    // SAFETY: this thread holds the lock.
    if unsafe { (*cq.shown()).left } <= 0 {
        // Published in steps, so that the device never runs out of CQEs. SAFETY: by the contract of
        // `take`.
        unsafe { publish(cq) };
    }
    0
}

/// Shows the next completion; false if the queue is empty.
///
/// # Safety
///
/// This thread holds the lock.
#[inline(always)]
unsafe fn next<C: CqOps>(poll: &mut C, cq: &Cq) -> bool {
    let Some(Polled { view, wr_id, .. }) = poll.next() else { return false };
    // SAFETY: by the contract of `next`; no reference to `shown` exists.
    unsafe { Show::new(cq) }.take(view, wr_id);
    // SAFETY: this thread holds the lock.
    let shown = unsafe { &mut *cq.shown() };
    if cq.extras() & !TIMESTAMP != 0 {
        extras(shown, &view, cq);
    }
    true
}

/// Takes a completion on the fast path, without calls, so that no registers are saved. `None`: the
/// completion is left to [`take`].
///
/// # Safety
///
/// This thread holds the lock, and the queue has no extras except the timestamp.
#[inline(always)]
unsafe fn take_usual(cq: &Cq) -> Option<c_int> {
    // SAFETY: this thread holds the lock.
    if unsafe { (*cq.shown()).left } <= 1 {
        return None;
    }
    // SAFETY: by the contract of `take_usual`.
    let AnyCq::Mlx5(poll) = (unsafe { cq.poll().held() }) else { return None };
    // SAFETY: by the contract of `take_usual`.
    match poll.next_usual(unsafe { Show::new(cq) }) {
        Usual::Taken(()) => Some(0),
        Usual::Nothing => Some(Errno::ENOENT.raw()),
        Usual::Unusual => None,
    }
}

/// Decodes the extra members that the program asked for, except the timestamp.
#[inline(never)]
fn extras<V: View>(shown: &mut Shown, view: &V, cq: &Cq) {
    let extras = cq.extras();
    if extras & SENT_KINDS != 0
        && let Some(opcode) = cq.sent().complete(shown.plain.qpn, view.send_index())
    {
        shown.plain.opcode = opcode;
    }
    if extras & PACKETS != 0 {
        shown.plain.flags |= checksums(view, cq);
    }
    if extras & VLAN_TAG != 0 {
        shown.vlan_tag = view.packet().vlan_tag.unwrap_or(0);
    }
    if extras & TAGS != 0 {
        let header = view.tag_info().and_then(|info| info.header);
        let TagHeader { tag, app_ctx } = header.unwrap_or_default();
        shown.tag = ibv_wc_tm_info { tag, r#priv: app_ctx };
    }
    if extras & EFA != 0 {
        shown.sender_gid = view.sender_gid().map(|gid| gid.0);
        shown.is_unsolicited = view.is_unsolicited();
    }
}

/// # Safety
///
/// This thread holds the lock.
#[inline(always)]
unsafe fn publish(cq: &Cq) {
    // SAFETY: by the contract of `publish`.
    match unsafe { cq.poll().held() } {
        AnyCq::Mlx5(poll) => poll.publish(),
        AnyCq::Rxe(poll) => poll.publish(),
        AnyCq::Siw(poll) => poll.publish(),
        AnyCq::Rdmavt(poll) => poll.publish(),
        AnyCq::Efa(poll) => poll.publish(),
    }
    // SAFETY: by the contract of `publish`.
    unsafe { count_anew(cq) };
}

/// Begins the count of completions until the next publication.
///
/// # Safety
///
/// This thread holds the lock.
#[inline(always)]
unsafe fn count_anew(cq: &Cq) {
    // SAFETY: by the contract of `count_anew`.
    let shown = unsafe { &mut *cq.shown() };
    shown.left = shown.step;
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *const u32) -> c_int {
    // SAFETY: C's contract: null, or a mask of extensions; C defines no extension.
    if unsafe { attr.as_ref() }.is_some_and(|mask| *mask != 0) {
        return Errno::EINVAL.raw();
    }
    // SAFETY: C's contract.
    let cq = unsafe { of(cq) };
    let Some(poll) = cq.poll().lock_own() else {
        // SAFETY: C's contract.
        return unsafe { start_shared(cq) };
    };
    poll.keep();
    // SAFETY: this thread holds the lock, and keeps it.
    match cq.is_usual().then(|| unsafe { take_usual(cq) }).flatten() {
        Some(0) => 0,
        // SAFETY: this thread holds the lock.
        Some(found) => unsafe { cq.found_nothing(found) },
        // SAFETY: this thread holds the lock, and keeps it.
        None => unsafe { start_locked(cq) },
    }
}

/// # Safety
///
/// C's contract.
#[inline(never)]
unsafe extern "C" fn start_shared(cq: &Cq) -> c_int {
    cq.poll().lock().keep();
    // SAFETY: this thread holds the lock, and keeps it.
    unsafe { start_locked(cq) }
}

/// # Safety
///
/// This thread holds the lock.
#[inline(never)]
unsafe extern "C" fn start_locked(cq: &Cq) -> c_int {
    // SAFETY: by the contract of `start_locked`.
    match unsafe { cq.poll().held() } {
        AnyCq::Mlx5(poll) => settle(poll, cq.core()),
        AnyCq::Rxe(poll) => settle(poll, cq.core()),
        AnyCq::Siw(poll) => settle(poll, cq.core()),
        AnyCq::Rdmavt(poll) => settle(poll, cq.core()),
        AnyCq::Efa(poll) => settle(poll, cq.core()),
    }
    // SAFETY: by the contract of `start_locked`.
    let found = unsafe { take(cq) };
    match found {
        0 => 0,
        // SAFETY: by the contract of `start_locked`.
        found => unsafe { cq.found_nothing(found) },
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: C's contract.
    unsafe {
        let cq = of(cq);
        if cq.extras() & !TIMESTAMP == 0
            && let Some(found) = take_usual(cq)
        {
            return found;
        }
        take(cq)
    }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: C's contract.
    let cq = unsafe { of(cq) };
    // SAFETY: C's contract: this thread holds the lock.
    let AnyCq::Mlx5(poll) = (unsafe { cq.poll().held() }) else {
        // SAFETY: C's contract: this thread holds the lock.
        return unsafe { end_any(cq) };
    };
    poll.publish();
    // SAFETY: C's contract: this thread holds the lock.
    unsafe { count_anew(cq) };
    cq.poll().release();
}

/// Ends the poll of a queue of any provider.
///
/// # Safety
///
/// This thread holds the lock.
#[inline(never)]
unsafe extern "C" fn end_any(cq: &Cq) {
    // SAFETY: by the contract of `end_any`.
    unsafe { publish(cq) };
    cq.poll().release();
}

macro_rules! read {
    ($($name:ident: $type:ty = |$shown:ident| $value:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: C's contract.
            let $shown = unsafe { &*of(cq).shown() };
            $value
        })*
    };
}

read! {
    read_opcode: u32 = |shown| shown.plain.opcode;
    read_vendor_err: u32 = |shown| shown.vendor_err;
    read_byte_len: u32 = |shown| shown.plain.byte_len;
    read_imm_data: u32 = |shown| shown.plain.imm_data;
    read_qp_num: u32 = |shown| shown.plain.qpn;
    read_src_qp: u32 = |shown| shown.plain.sender.qpn();
    read_wc_flags: u32 = |shown| shown.plain.wc_flags();
    read_slid: u32 = |shown| shown.plain.sender.lid().into();
    read_sl: u8 = |shown| shown.plain.sender.service_level();
    read_dlid_path_bits: u8 = |shown| shown.plain.path_bits;
    read_completion_ts: u64 = |shown| shown.timestamp;
    read_cvlan: u16 = |shown| shown.vlan_tag;
    // A raw packet's CQE has the flow tag in place of the QP number.
    read_flow_tag: u32 = |shown| shown.plain.qpn;
}

/// Nanoseconds since 1970, converted by the kernel's clock page; 0 without the page.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: C's contract.
    let (timestamp, context) =
        unsafe { ((*of(cq).shown()).timestamp, Context::of((*cq).base.context)) };
    let read = context.clock().and_then(|clock| clock.read());
    read.map_or(0, |reading| reading.nanoseconds(timestamp))
}

unsafe extern "C" fn read_tm_info(cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: C's contract.
    unsafe { *info = (*of(cq).shown()).tag };
}
