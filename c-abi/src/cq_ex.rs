//! Extended completion queues: a program polls completions one after the other, and asks for the
//! members it wants. From `start_poll` to `end_poll` the queue is locked.
//!
//! # Safety
//!
//! C's contract: the functions are called between `start_poll` and `end_poll`, by that thread.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use uverbs::provider::AnyCq;
use uverbs_core::Errno;
use uverbs_core::provider::{CqOps, Polled, View};
use uverbs_core::queues::tag_work::TagHeader;

use crate::completion;
use crate::context::Context;
use crate::cq::{Cq, RAW_WQES, Shown, TAGS, TIMESTAMP, VLAN_TAG};
use crate::poll::settle;
use crate::sys::{IBV_WC_DRIVER2, ibv_cq, ibv_cq_ex, ibv_wc_tm_info};

/// C's struct with all functions in it: those that read what wasn't asked for give 0.
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

/// Takes the next completion, if there is one. `ENOENT` otherwise.
///
/// # Safety
///
/// The queue is locked by this thread.
#[inline(always)]
unsafe fn take(cq: &Cq) -> c_int {
    // SAFETY: of whoever holds the lock.
    let shown = unsafe { &mut *cq.shown() };
    // SAFETY: the caller's promise.
    let found = match unsafe { cq.poll().held() } {
        AnyCq::Mlx5(poll) => next(poll, shown, cq),
        AnyCq::Rxe(poll) => next(poll, shown, cq),
        #[cfg(feature = "any-siw")]
        AnyCq::Siw(poll) => next(poll, shown, cq),
    };
    let Some(wr_id) = found else { return Errno::ENOENT.raw() };
    // SAFETY: of whoever holds the lock.
    unsafe {
        (*cq.c()).status = shown.wc.status;
        (*cq.c()).wr_id = wr_id;
    }
    shown.unpublished += 1;
    if shown.unpublished >= cq.core().lag() {
        // The device must not run out of entries.
        // SAFETY: the caller's promise.
        unsafe { publish(cq) };
    }
    0
}

/// Takes the next completion, and gives its number.
#[inline(always)]
fn next<C: CqOps>(poll: &mut C, shown: &mut Shown, cq: &Cq) -> Option<u64> {
    let Polled { view, wr_id, .. } = poll.next()?;
    // SAFETY: a place to write.
    unsafe { completion::write(&mut shown.wc, &view, wr_id) };
    if shown.extras != 0 {
        extras(shown, &view, cq);
    }
    Some(wr_id)
}

/// Takes out what was asked for besides.
#[inline(never)]
fn extras<V: View>(shown: &mut Shown, view: &V, cq: &Cq) {
    if shown.extras & RAW_WQES != 0 && cq.raw_queues().complete(shown.wc.qp_num, view.send_index())
    {
        shown.wc.opcode = IBV_WC_DRIVER2;
    }
    if shown.extras & TIMESTAMP != 0 {
        shown.timestamp = view.timestamp().unwrap_or(0);
    }
    if shown.extras & VLAN_TAG != 0 {
        shown.vlan_tag = view.packet().vlan_tag.unwrap_or(0);
    }
    if shown.extras & TAGS != 0 {
        let header = view.tag_info().and_then(|info| info.header);
        let TagHeader { tag, app_ctx } = header.unwrap_or_default();
        shown.tag = ibv_wc_tm_info { tag, r#priv: app_ctx };
    }
}

/// # Safety
///
/// The queue is locked by this thread.
#[inline(always)]
unsafe fn publish(cq: &Cq) {
    // SAFETY: the caller's promise.
    match unsafe { cq.poll().held() } {
        AnyCq::Mlx5(poll) => poll.publish(),
        AnyCq::Rxe(poll) => poll.publish(),
        #[cfg(feature = "any-siw")]
        AnyCq::Siw(poll) => poll.publish(),
    }
    // SAFETY: of whoever holds the lock.
    unsafe { (*cq.shown()).unpublished = 0 };
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *const u32) -> c_int {
    // SAFETY: C's contract: null, or a mask of extensions, of which there are none.
    if unsafe { attr.as_ref() }.is_some_and(|mask| *mask != 0) {
        return Errno::EINVAL.raw();
    }
    // SAFETY: C's contract.
    let cq = unsafe { of(cq) };
    let mut poll = cq.poll().lock();
    match &mut *poll {
        AnyCq::Mlx5(poll) => settle(poll, cq.core()),
        AnyCq::Rxe(poll) => settle(poll, cq.core()),
        #[cfg(feature = "any-siw")]
        AnyCq::Siw(poll) => settle(poll, cq.core()),
    }
    poll.keep();
    // SAFETY: locked just now.
    let found = unsafe { take(cq) };
    if found != 0 {
        cq.poll().release();
        cq.found_nothing();
    }
    found
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: C's contract.
    unsafe { take(of(cq)) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: C's contract.
    let cq = unsafe { of(cq) };
    // SAFETY: as above.
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
    read_opcode: u32 = |shown| shown.wc.opcode;
    read_vendor_err: u32 = |shown| shown.wc.vendor_err;
    read_byte_len: u32 = |shown| shown.wc.byte_len;
    read_imm_data: u32 = |shown| shown.wc.imm_data;
    read_qp_num: u32 = |shown| shown.wc.qp_num;
    read_src_qp: u32 = |shown| shown.wc.src_qp;
    read_wc_flags: u32 = |shown| shown.wc.wc_flags;
    read_slid: u32 = |shown| shown.wc.slid.into();
    read_sl: u8 = |shown| shown.wc.sl;
    read_dlid_path_bits: u8 = |shown| shown.wc.dlid_path_bits;
    read_completion_ts: u64 = |shown| shown.timestamp;
    read_cvlan: u16 = |shown| shown.vlan_tag;
    // In a packet's completion it stands where others have the queue pair's number.
    read_flow_tag: u32 = |shown| shown.wc.qp_num;
}

/// Nanoseconds since 1970, by the kernel's page; 0 where there is none.
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
