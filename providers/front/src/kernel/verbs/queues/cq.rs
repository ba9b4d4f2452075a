//! Completion queues (`uverbs_std_types_cq.c`; `mlx5_ib_create_cq` and `create_cq_user` in
//! `hw/mlx5/cq.c`).

use std::time::Duration;

use nix::errno::Errno;
use uverbs_kernel_abi::cq::{
    IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN, IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION,
    ib_uverbs_cq_moderation, ib_uverbs_destroy_cq_resp, ib_uverbs_ex_modify_cq,
    ib_uverbs_resize_cq, ib_uverbs_resize_cq_resp,
};
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, MLX5_IB_CQE_RES_FORMAT_CSUM,
    MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX, MLX5_IB_CQE_RES_FORMAT_HASH,
    MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD, MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS,
    MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, mlx5_ib_create_cq, mlx5_ib_resize_cq,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR,
    UVERBS_ATTR_CREATE_CQ_CQE, UVERBS_ATTR_CREATE_CQ_EVENT_FD, UVERBS_ATTR_CREATE_CQ_FLAGS,
    UVERBS_ATTR_CREATE_CQ_HANDLE, UVERBS_ATTR_CREATE_CQ_RESP_CQE,
    UVERBS_ATTR_CREATE_CQ_USER_HANDLE, UVERBS_ATTR_DESTROY_CQ_RESP, UVERBS_ATTR_UHW_IN,
};
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_CMD_RESIZE_CQ, IB_USER_VERBS_EX_CMD_MODIFY_CQ,
};
use zerocopy::IntoBytes;

use crate::backend::context::{CqContext, MiniCqe, Moderation};
use crate::backend::error::errno;
use crate::backend::number::{Cqn, UarNumber};
use crate::backend::region::Region;
use crate::kernel::call::{Call, Write, zero_extended};
use crate::kernel::state::objects::{Cq, Object};
use crate::kernel::verbs::device::context::MAX_CQ_PERIOD;

/// CQ.CREATE.
pub(crate) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let comp_vector: u32 = call.input(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR)?;
    let asked: u32 = call.input(UVERBS_ATTR_CREATE_CQ_CQE)?;
    let user_handle: u64 = call.input(UVERBS_ATTR_CREATE_CQ_USER_HANDLE)?;
    let flags = call.flags(
        UVERBS_ATTR_CREATE_CQ_FLAGS,
        IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN,
    )?;
    if comp_vector >= call.device.config.comp_vectors {
        return Err(Errno::EINVAL);
    }
    let handle = call.object(UVERBS_ATTR_CREATE_CQ_HANDLE).ok_or(Errno::ENOENT)?;
    let channel = call.object(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
    let event_file = call.object(UVERBS_ATTR_CREATE_CQ_EVENT_FD);

    // From here on as `mlx5_ib_create_cq`.
    let limit = 1u32 << call.device.config.log_max_cqes;
    if asked > limit {
        return Err(Errno::EINVAL);
    }
    // One more than requested, rounded up: the client's `cqe` is the number that fits without
    // filling the ring.
    let entries = (asked + 1).next_power_of_two();
    if entries > limit {
        return Err(Errno::EINVAL);
    }

    // From here on as `create_cq_user`.
    let request: mlx5_ib_create_cq = zero_extended(&call.driver_input()?);
    let known = MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD
        | MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX
        | MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS;
    if request.flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    if !matches!(request.cqe_size, 64 | 128) || request.reserved0 != 0 || request.reserved1 != 0 {
        return Err(Errno::EINVAL);
    }
    let bytes = u64::from(entries) * u64::from(request.cqe_size);
    let pinned = call.device.pin_queue(request.buf_addr, bytes, request.db_addr)?;
    let cqn = bind(call, &request, entries, flags);
    let (cqn, uar) = cqn.inspect_err(|_| call.device.unpin(pinned))?;

    call.device.cq_owners.insert(Cqn(cqn), (call.file.id, handle));
    let cq = Cq {
        cqn: Cqn(cqn),
        entries,
        user_handle,
        channel,
        async_file: call.file.events.async_file(event_file),
        comp_events: 0,
        async_events: 0,
        pinned,
        _uar: Some(uar),
    };
    call.put_object(handle, Object::Cq(cq));
    call.driver_must_output(cqn.as_bytes())?;
    call.output(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &(entries - 1))
}

type Bound = (u32, std::sync::Arc<crate::uar::UarPage>);

/// The part of `create_cq_user` after the buffer is pinned.
fn bind(
    call: &mut Call<'_>,
    request: &mlx5_ib_create_cq,
    entries: u32,
    flags: u32,
) -> Result<Bound, Errno> {
    // The attribute (Linux 6.11) is for numbers over 16 bits. Without it and the flag the kernel
    // takes the first static page, of which a context with dynamic UARs has none (EINVAL).
    let number = match request.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX {
        0 => call.input(MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX).map_err(|_| Errno::EINVAL)?,
        _ => u32::from(request.uar_page_index),
    };
    // Firmware refuses a page of another context (uid mismatch: BAD_RES).
    let uar = call.file.objects.uar_page(number).ok_or(Errno::EINVAL)?;
    // `mini_cqe_res_format_to_hw`. This device lacks the capability of striding.
    let compressed = match request.cqe_comp_res_format {
        _ if request.cqe_comp_en == 0 => None,
        MLX5_IB_CQE_RES_FORMAT_HASH => Some(MiniCqe::Hash),
        MLX5_IB_CQE_RES_FORMAT_CSUM => Some(MiniCqe::Checksum),
        MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    };
    if request.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD != 0 {
        // The device also lacks `cqe_128_always`. With 64-byte CQEs the flag is invalid.
        return Err(match request.cqe_size {
            128 => Errno::EOPNOTSUPP,
            _ => Errno::EINVAL,
        });
    }
    if request.flags & MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let created = call.device.hca.create_cq(CqContext {
        region: Region::Flat {
            addr: request.buf_addr,
            len: u64::from(entries) * u64::from(request.cqe_size),
        },
        log_entries: entries.trailing_zeros() as u8,
        cqe_size: request.cqe_size,
        doorbell_record: request.db_addr,
        uar: UarNumber(number),
        overrun_ignore: flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN != 0,
        padded: false,
        compressed,
    });
    Ok((created.map_err(errno)?.0, uar))
}

/// CQ.DESTROY: the destroy attribute has destroyed the queue.
pub(crate) fn destroy(call: &mut Call<'_>) -> Result<(), Errno> {
    let destroyed = call.destroyed.unwrap_or_default();
    let response = ib_uverbs_destroy_cq_resp {
        comp_events_reported: destroyed.comp_events,
        async_events_reported: destroyed.async_events,
    };
    call.output(UVERBS_ATTR_DESTROY_CQ_RESP, &response)
}

/// RESIZE_CQ (`ib_uverbs_resize_cq`, `mlx5_ib_resize_cq`, `resize_user`).
pub(crate) const RESIZE_CQ: Write = Write {
    command: IB_USER_VERBS_CMD_RESIZE_CQ,
    request: size_of::<ib_uverbs_resize_cq>(),
    response: size_of::<ib_uverbs_resize_cq_resp>(),
    handler: resize,
};

fn resize(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_resize_cq = call.request()?;
    let cq = call.file.objects.cq(request.cq_handle)?;
    let (cqn, old, old_pinned) = (cq.cqn, cq.entries, cq.pinned);
    let limit = 1u32 << call.device.config.log_max_cqes;
    if request.cqe < 1 || request.cqe > limit {
        return Err(Errno::EINVAL);
    }
    let entries = (request.cqe + 1).next_power_of_two();
    if entries > limit {
        return Err(Errno::EINVAL);
    }
    if entries != old {
        let pinned = move_ring(call, cqn, entries)?;
        call.device.unpin(old_pinned);
        if let Some(Object::Cq(cq)) = call.file.objects.get_mut(request.cq_handle) {
            (cq.entries, cq.pinned) = (entries, pinned);
        }
    }
    call.respond(&ib_uverbs_resize_cq_resp { cqe: entries - 1, reserved: 0 })
}

/// Pins another ring and gives it to the device. Returns the bytes pinned.
fn move_ring(call: &mut Call<'_>, cqn: Cqn, entries: u32) -> Result<u64, Errno> {
    if !call.has(UVERBS_ATTR_UHW_IN) {
        return Err(Errno::EFAULT);
    }
    let own = call.driver_input()?;
    // The kernel reads beyond an inline input, into the next attribute.
    if own.len() <= size_of::<u64>() {
        return Err(Errno::EINVAL);
    }
    let own: mlx5_ib_resize_cq = zero_extended(&own);
    if own.reserved0 != 0 || own.reserved1 != 0 {
        return Err(Errno::EINVAL);
    }
    let len = u64::from(entries) * u64::from(own.cqe_size);
    let device = &mut *call.device;
    let pinned = device.pin(own.buf_addr, len, true)?;
    let region = Region::Flat { addr: own.buf_addr, len };
    let log_entries = entries.trailing_zeros() as u8;
    // Fails with BAD_SIZE_OUTS_CQES_ERR if the unconsumed CQEs do not fit in the new ring. This and
    // all other failures become EINVAL.
    device.hca.resize_cq(cqn, region, log_entries, own.cqe_size.into()).map_err(|_| {
        device.unpin(pinned);
        Errno::EINVAL
    })?;
    Ok(pinned)
}

/// Extended MODIFY_CQ (`ib_uverbs_ex_modify_cq`, `mlx5_ib_modify_cq`).
pub(crate) const EX_MODIFY_CQ: Write = Write {
    command: IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_CQ,
    request: 0,
    response: 0,
    handler: modify,
};

/// `IB_CQ_MODERATE`.
const MODERATE: u32 = 1;

fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_ex_modify_cq = call.request()?;
    if request.attr_mask == 0 || request.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    if request.attr_mask > MODERATE {
        return Err(Errno::EOPNOTSUPP);
    }
    let cqn = call.file.objects.cq(request.cq_handle)?.cqn;
    let ib_uverbs_cq_moderation { cq_count: count, cq_period } = request.attr;
    if cq_period > MAX_CQ_PERIOD {
        return Err(Errno::EINVAL);
    }
    // Moderation periods start with the last event (`MLX5_CQ_PERIOD_MODE_START_FROM_EQE`), the only
    // mode of mlx5_ib's user CQs.
    let moderation = Moderation {
        period: Duration::from_micros(cq_period.into()),
        count,
        ..Moderation::default()
    };
    call.device.hca.moderate_cq(cqn, moderation).map_err(errno)
}
