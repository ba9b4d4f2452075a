//! Queries of an Elastic Fabric Adapter: limits, numbers of address handles, interconnects of
//! memory regions.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. A struct has as many bytes as
//! the program says.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::offset_of;

use uverbs::provider::{AnyAh, AnyContext};
use uverbs_core::Errno;
use uverbs_core::provider::ContextOps;
use uverbs_efa::{Interconnects, Limits};
use zerocopy::{FromBytes, IntoBytes};

use crate::base::answer::{code, refuse};
use crate::device::context::Context;
use crate::device::gid::write_sized;
use crate::efadv::sized::read;
use crate::queues::ah::Ah;
use crate::sys::{ibv_ah, ibv_context, ibv_mr};

/// `struct efadv_device_attr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct DeviceAttr {
    comp_mask: u64,
    max_sq_wr: u32,
    max_rq_wr: u32,
    max_sq_sge: u16,
    max_rq_sge: u16,
    inline_buf_size: u16,
    /// Since rdma-core 65; 0 before.
    inline_buf_size_ex: u16,
    device_caps: u32,
    max_rdma_size: u32,
}

/// `EFADV_DEVICE_ATTR_CAPS_*`.
const RDMA_READ: u32 = 1;
const RNR_RETRY: u32 = 1 << 1;
const CQ_WITH_SGID: u32 = 1 << 2;
const RDMA_WRITE: u32 = 1 << 3;
const UNSOLICITED_WRITE_RECV: u32 = 1 << 4;
const COMP_CNTR: u32 = 1 << 6;

/// `EFADV_SQ_DEPTH_ATTR_INLINE_WRITE`.
const INLINE_WRITE: u32 = 1;

/// Bytes of a send work request, and inline bytes of a short one.
const WQE: u32 = 64;
const LONG_WQE: u32 = 128;
const SHORT_INLINE: u32 = 32;

/// `struct efadv_ah_attr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct AhAttr {
    comp_mask: u64,
    ahn: u16,
    reserved: [u8; 6],
}

/// `struct efadv_mr_attr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct MrAttr {
    comp_mask: u64,
    ic_id_validity: u16,
    recv_ic_id: u16,
    rdma_read_ic_id: u16,
    rdma_recv_ic_id: u16,
}

/// `struct efadv_sq_depth_attr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct SqDepthAttr {
    comp_mask: u64,
    flags: u32,
    max_send_sge: u32,
    max_rdma_sge: u32,
    max_inline_data: u32,
}

/// `struct efadv_rq_depth_attr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct RqDepthAttr {
    comp_mask: u64,
    max_recv_sge: u32,
    /// Undefined.
    padding: u32,
}

const _: () = assert!(size_of::<DeviceAttr>() == 32 && size_of::<AhAttr>() == 16);
const _: () = assert!(size_of::<MrAttr>() == 16 && size_of::<SqDepthAttr>() == 24);
const _: () = assert!(size_of::<RqDepthAttr>() == 16);

/// True if WRITEs may have inline data.
pub(super) fn has_inline_writes(limits: &Limits) -> bool {
    limits.write && limits.inline_long != 0
}

/// Limits of an open device and of this library.
///
/// # Errors
///
/// `EOPNOTSUPP` if it is another device.
///
/// # Safety
///
/// C's contract.
pub(super) unsafe fn limits(context: *const ibv_context) -> Result<Limits, Errno> {
    // SAFETY: by C's contract.
    match unsafe { Context::of(context) }.ops() {
        AnyContext::Efa(context) => {
            let (limits, own) = (uverbs_efa::limits(context), context.opened().limits);
            // Programs ask for queues as long as the device allows.
            let max_sq_wr = limits.max_sq_wr.min(own.send_wr);
            let max_rq_wr = limits.max_rq_wr.min(own.recv_wr);
            Ok(Limits { max_sq_wr, max_rq_wr, ..limits })
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Inline bytes of the longest work request.
pub(super) fn inline_bytes(limits: &Limits) -> u16 {
    if limits.inline_long == 0 { limits.inline } else { limits.inline_long }
}

fn caps(limits: &Limits) -> u32 {
    let all = [
        (limits.read, RDMA_READ),
        (limits.rnr_retry, RNR_RETRY),
        (limits.sender_gids, CQ_WITH_SGID),
        (limits.write, RDMA_WRITE),
        (limits.unsolicited_writes, UNSOLICITED_WRITE_RECV),
        (limits.counters, COMP_CNTR),
    ];
    all.into_iter().map(|(has, bit)| if has { bit } else { 0 }).sum()
}

pub(crate) unsafe extern "C" fn query_device(
    context: *const ibv_context,
    attr: *mut DeviceAttr,
    len: u32,
) -> c_int {
    // SAFETY: by C's contract.
    let limits = match unsafe { limits(context) } {
        Ok(limits) => limits,
        Err(errno) => return refuse(errno),
    };
    if (len as usize) < offset_of!(DeviceAttr, device_caps) {
        return refuse(Errno::EINVAL);
    }
    let found = DeviceAttr {
        comp_mask: 0,
        max_sq_wr: limits.max_sq_wr,
        max_rq_wr: limits.max_rq_wr,
        max_sq_sge: limits.max_sq_sge,
        max_rq_sge: limits.max_rq_sge,
        inline_buf_size: limits.inline,
        inline_buf_size_ex: inline_bytes(&limits),
        device_caps: caps(&limits),
        max_rdma_size: limits.max_rdma_size,
    };
    // SAFETY: by C's contract.
    unsafe { write_sized(attr, &found, len as usize) };
    0
}

pub(crate) unsafe extern "C" fn query_ah(ah: *const ibv_ah, attr: *mut AhAttr, len: u32) -> c_int {
    // SAFETY: by C's contract.
    let AnyAh::Efa(handle) = (unsafe { Ah::of(ah) }).any() else {
        return refuse(Errno::EOPNOTSUPP);
    };
    if (len as usize) < offset_of!(AhAttr, reserved) {
        return refuse(Errno::EINVAL);
    }
    let found = AhAttr { ahn: handle.number() as u16, ..AhAttr::default() };
    // SAFETY: by C's contract.
    unsafe { write_sized(attr, &found, len as usize) };
    0
}

pub(crate) unsafe extern "C" fn query_mr(mr: *const ibv_mr, attr: *mut MrAttr, len: u32) -> c_int {
    // SAFETY: by C's contract.
    let (context, handle) = unsafe { (Context::of((*mr).context), (*mr).handle) };
    if !matches!(context.ops(), AnyContext::Efa(_)) {
        return refuse(Errno::EOPNOTSUPP);
    }
    if (len as usize) < size_of::<MrAttr>() {
        return refuse(Errno::EINVAL);
    }
    let found = uverbs_efa::interconnects(context.core().uverbs(), handle);
    code(found.map(|Interconnects { recv, rdma_read, rdma_recv }| {
        let ids = [recv, rdma_read, rdma_recv];
        let bits = ids.iter().enumerate().map(|(bit, id)| u16::from(id.is_some()) << bit);
        let found = MrAttr {
            comp_mask: 0,
            ic_id_validity: bits.sum(),
            recv_ic_id: recv.unwrap_or(0),
            rdma_read_ic_id: rdma_read.unwrap_or(0),
            rdma_recv_ic_id: rdma_recv.unwrap_or(0),
        };
        // SAFETY: by C's contract.
        unsafe { write_sized(attr, &found, len as usize) };
    }))
}

/// Result of a function that returns a number, or a negative error number.
fn depth(found: Result<u32, Errno>) -> c_int {
    found.map_or_else(|errno| -refuse(errno), |depth| depth as c_int)
}

/// Most sends of a queue with these work requests. Unknown flags, which libefa ignores here, are
/// refused as by `efadv_create_qp_ex`.
fn most_sends(limits: &Limits, most_rdma: u32, asked: &SqDepthAttr) -> Result<u32, Errno> {
    let fits = asked.comp_mask == 0
        && asked.max_send_sge <= limits.max_sq_sge.into()
        && asked.max_rdma_sge <= most_rdma
        && asked.max_inline_data <= inline_bytes(limits).into();
    if !fits {
        return Err(Errno::EINVAL);
    }
    let known = if has_inline_writes(limits) { INLINE_WRITE } else { 0 };
    if asked.flags & !known != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let is_long = asked.flags != 0 || asked.max_inline_data > SHORT_INLINE;
    Ok(limits.most_sends(if is_long { LONG_WQE } else { WQE }))
}

/// Most sends of a queue with these work requests.
pub(crate) unsafe extern "C" fn get_max_sq_depth(
    context: *const ibv_context,
    attr: *const SqDepthAttr,
    len: u32,
) -> c_int {
    depth((|| {
        // SAFETY: by C's contract.
        let limits = unsafe { limits(context) }?;
        // SAFETY: by C's contract.
        let asked = unsafe { read(attr, len, size_of::<SqDepthAttr>()) }?;
        // SAFETY: by C's contract.
        let device = unsafe { Context::of(context) }.ops().query_device();
        let most_rdma = device.map_err(|error| error.to_errno())?.max_sge_rd;
        most_sends(&limits, most_rdma, &asked)
    })())
}

/// Most receives of a queue with these work requests.
pub(crate) unsafe extern "C" fn get_max_rq_depth(
    context: *const ibv_context,
    attr: *const RqDepthAttr,
    len: u32,
) -> c_int {
    depth((|| {
        // SAFETY: by C's contract.
        let limits = unsafe { limits(context) }?;
        // SAFETY: by C's contract.
        let asked = unsafe { read(attr, len, offset_of!(RqDepthAttr, padding)) }?;
        let fits = asked.comp_mask == 0 && asked.max_recv_sge <= limits.max_rq_sge.into();
        let most = limits.max_rq_wr.checked_div(asked.max_recv_sge);
        most.filter(|_| fits).ok_or(Errno::EINVAL)
    })())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depth_is_one_that_a_queue_pair_may_have() {
        let limits = Limits {
            max_sq_wr: 1000,
            max_rq_wr: 1000,
            max_sq_sge: 2,
            max_rq_sge: 2,
            inline: 32,
            inline_long: 96,
            max_rdma_size: 0,
            max_message_size: 0,
            max_llq_size: 1 << 16,
            max_tx_batch: 0,
            min_sq_wr: 0,
            sub_cqs: 1,
            read: true,
            write: true,
            rnr_retry: false,
            notifications: false,
            sender_gids: false,
            unsolicited_writes: false,
            counters: false,
            in_order_128: false,
        };
        let short = Limits { inline_long: 0, ..limits };
        let huge = Limits { max_sq_wr: 1 << 20, max_llq_size: 1 << 27, ..limits };
        let most = |limits: &Limits, flags, max_inline_data| {
            let attr = SqDepthAttr {
                comp_mask: 0,
                flags,
                max_send_sge: 2,
                max_rdma_sge: 1,
                max_inline_data,
            };
            most_sends(limits, 1, &attr)
        };
        assert_eq!(most(&limits, 0, 32), Ok(512));
        assert_eq!(most(&huge, 0, 32), Ok(1 << 14));
        assert_eq!(most(&Limits { max_sq_wr: 4096, ..limits }, INLINE_WRITE, 0), Ok(512));
        assert_eq!(most(&limits, 0, 97), Err(Errno::EINVAL));
        assert_eq!(most(&limits, 2, 0), Err(Errno::EOPNOTSUPP));
        assert_eq!(most(&short, INLINE_WRITE, 0), Err(Errno::EOPNOTSUPP));
    }
}
