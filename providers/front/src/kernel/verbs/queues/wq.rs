//! Work queues: receive queues without queue pair (`uverbs_std_types_wq.c`,
//! `ib_uverbs_ex_modify_wq` in `core/uverbs_cmd.c`; `mlx5_ib_create_wq` and `mlx5_ib_modify_wq` in
//! `hw/mlx5/qp.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{mlx5_ib_create_wq, mlx5_ib_create_wq_resp, mlx5_ib_modify_wq};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, UVERBS_ATTR_CREATE_WQ_EVENT_FD, UVERBS_ATTR_CREATE_WQ_FLAGS,
    UVERBS_ATTR_CREATE_WQ_HANDLE, UVERBS_ATTR_CREATE_WQ_MAX_SGE, UVERBS_ATTR_CREATE_WQ_MAX_WR,
    UVERBS_ATTR_CREATE_WQ_PD_HANDLE, UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE,
    UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM,
    UVERBS_ATTR_CREATE_WQ_TYPE, UVERBS_ATTR_CREATE_WQ_USER_HANDLE, UVERBS_ATTR_DESTROY_WQ_RESP,
    UVERBS_ATTR_UHW_OUT,
};
use uverbs_kernel_abi::wq::{
    IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING, IB_UVERBS_WQ_FLAGS_DELAY_DROP,
    IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING, IB_UVERBS_WQ_FLAGS_SCATTER_FCS, IB_UVERBS_WQT_RQ,
    IB_WQ_CUR_STATE, IB_WQ_FLAGS, IB_WQ_STATE, IB_WQS_ERR, IB_WQS_RDY, IB_WQS_RESET,
    ib_uverbs_ex_modify_wq,
};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_EX_CMD_MODIFY_WQ};
use zerocopy::IntoBytes;

use crate::backend::context::{QpAttrs, QpContext, QpState, QpTransition, RqContext, Service};
use crate::backend::error::errno;
use crate::backend::number::{Qpn, Queue};
use crate::backend::region::Region;
use crate::backend::steering::QueueOptions;
use crate::kernel::call::{Call, Write, zero_extended};
use crate::kernel::state::flows;
use crate::kernel::state::objects::{Object, Wq};
use crate::kernel::verbs::queues::raw_packet::is_place;

/// Parameters of WQ.CREATE, checked as the core does.
struct Asked {
    flags: u32,
    max_sge: u32,
    max_wr: u32,
    user_handle: u64,
}

/// WQ.CREATE.
pub(crate) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let asked = Asked::read(call)?;
    let object = |attr| call.object(attr).ok_or(Errno::ENOENT);
    let pd = object(UVERBS_ATTR_CREATE_WQ_PD_HANDLE)?;
    let cq = object(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE)?;
    let handle = object(UVERBS_ATTR_CREATE_WQ_HANDLE)?;
    let event_file = call.object(UVERBS_ATTR_CREATE_WQ_EVENT_FD);
    let request = driver_request(call, &asked)?;
    let strips_vlan = asked.flags & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING != 0;
    let (context, len) = context(call, (pd, cq), &request, QueueOptions { strips_vlan })?;
    let (queue, pinned) = call.device.create_qp(request.buf_addr, len, context)?;

    for held in [pd, cq] {
        call.file.objects.hold(held);
    }
    call.device.qp_owners.insert(queue, vec![(call.file.id, handle)]);
    let wq = Wq {
        rqn: queue.number(),
        held: [pd, cq],
        user_handle: asked.user_handle,
        async_file: call.file.events.async_file(event_file),
        async_events: 0,
        state: IB_WQS_RESET,
        pinned,
    };
    call.put_object(handle, Object::Wq(wq));
    let response_length = size_of::<u32>() as u32;
    let response = mlx5_ib_create_wq_resp { response_length, reserved: 0 };
    call.driver_output(&response.as_bytes()[..size_of::<u32>()])?;
    call.output(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, &asked.max_wr)?;
    call.output(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, &asked.max_sge)?;
    // Optional in the method table, required by the handler.
    call.output(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, &queue.number().0)
}

impl Asked {
    fn read(call: &Call<'_>) -> Result<Self, Errno> {
        let flags = call.flags(
            UVERBS_ATTR_CREATE_WQ_FLAGS,
            IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING
                | IB_UVERBS_WQ_FLAGS_SCATTER_FCS
                | IB_UVERBS_WQ_FLAGS_DELAY_DROP
                | IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING,
        )?;
        let max_sge: u32 = call.input(UVERBS_ATTR_CREATE_WQ_MAX_SGE)?;
        let max_wr: u32 = call.input(UVERBS_ATTR_CREATE_WQ_MAX_WR)?;
        let user_handle: u64 = call.input(UVERBS_ATTR_CREATE_WQ_USER_HANDLE)?;
        let kind = call.constant(UVERBS_ATTR_CREATE_WQ_TYPE, u64::from(u32::MAX))?;
        match kind == u64::from(IB_UVERBS_WQT_RQ) {
            true => Ok(Self { flags, max_sge, max_wr, user_handle }),
            false => Err(Errno::EINVAL),
        }
    }
}

/// Parses the driver's request (`prepare_user_rq`, `set_user_rq_size`), and checks the capabilities
/// that `create_rq` needs.
fn driver_request(call: &Call<'_>, asked: &Asked) -> Result<mlx5_ib_create_wq, Errno> {
    let room = call.len(UVERBS_ATTR_UHW_OUT);
    if room != 0 && room < size_of::<mlx5_ib_create_wq_resp>() {
        return Err(Errno::EINVAL);
    }
    let bytes = call.driver_input()?;
    if bytes.len() < std::mem::offset_of!(mlx5_ib_create_wq, single_wqe_log_num_of_strides) {
        return Err(Errno::EINVAL);
    }
    if let Some(tail) = bytes.get(size_of::<mlx5_ib_create_wq>()..)
        && tail.iter().any(|byte| *byte != 0)
    {
        return Err(Errno::EOPNOTSUPP);
    }
    let request: mlx5_ib_create_wq = zero_extended(&bytes);
    // This device lacks the capability of striding queues.
    if request.comp_mask != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let config = &call.device.config;
    if asked.max_wr > 1 << config.log_max_wqebbs || request.rq_wqe_count == 0 {
        return Err(Errno::EINVAL);
    }
    let lacking = IB_UVERBS_WQ_FLAGS_SCATTER_FCS
        | IB_UVERBS_WQ_FLAGS_DELAY_DROP
        | IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING;
    match asked.flags & lacking {
        0 => Ok(request),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Context for firmware (`create_rq`), and the bytes of the ring.
fn context(
    call: &Call<'_>,
    (pd, cq): (u32, u32),
    request: &mlx5_ib_create_wq,
    options: QueueOptions,
) -> Result<(QpContext, u64), Errno> {
    let (log, shift) = (request.rq_wqe_count.ilog2(), request.rq_wqe_shift);
    let largest = u32::from(call.device.config.max_rq_desc).ilog2();
    let most = call.device.config.log_max_rq_entries;
    // Firmware checks: size of a WQE, length of the ring, and its address.
    if log > u32::from(most) || !(4..=largest).contains(&shift) || !is_place(request.buf_addr) {
        return Err(Errno::EINVAL);
    }
    let objects = &call.file.objects;
    let len = 1 << (log + shift);
    let region = Region::Flat { addr: request.buf_addr, len };
    let rq = Some(RqContext { region, log_entries: log as u8, stride_shift: shift as u8 });
    let context = QpContext {
        rq,
        doorbell_record: request.db_addr,
        user_index: request.user_index,
        options,
        ..QpContext::bare(Service::Raw, objects.pd(pd)?.pdn, objects.cq(cq)?.cqn)
    };
    Ok((context, len))
}

/// Extended MODIFY_WQ.
pub(crate) const EX_MODIFY_WQ: Write = Write {
    command: IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_WQ,
    request: 0,
    response: 0,
    handler: modify,
};

fn modify(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_ex_modify_wq = call.request()?;
    let mask = request.attr_mask;
    if mask == 0 || mask > (IB_WQ_STATE | IB_WQ_CUR_STATE | IB_WQ_FLAGS) {
        return Err(Errno::EINVAL);
    }
    let wq = call.file.objects.wq(request.wq_handle)?;
    let (rqn, known) = (wq.rqn, wq.state);
    let from = if mask & IB_WQ_CUR_STATE != 0 { request.curr_wq_state } else { known };
    let to = if mask & IB_WQ_STATE != 0 { request.wq_state } else { from };
    if from > IB_WQS_ERR || to > IB_WQS_ERR {
        return Err(Errno::EINVAL);
    }
    check_modify_request(call)?;
    let flags = if mask & IB_WQ_FLAGS != 0 { request.flags_mask } else { 0 };
    if flags & IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    change(call, rqn, from, to)?;
    if let Some(Object::Wq(wq)) = call.file.objects.get_mut(request.wq_handle) {
        wq.state = to;
    }
    if flags & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING != 0 {
        let strips_vlan = request.flags & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING != 0;
        let steering = call.device.hca.steering();
        steering.change_queue(rqn.0, QueueOptions { strips_vlan }).map_err(flows::errno)?;
    }
    Ok(())
}

/// Checks `mlx5_ib_modify_wq`'s request, which must be all zeros.
fn check_modify_request(call: &Call<'_>) -> Result<(), Errno> {
    let bytes = call.driver_input()?;
    if bytes.len() < size_of::<mlx5_ib_modify_wq>() {
        return Err(Errno::EINVAL);
    }
    match bytes.iter().any(|byte| *byte != 0) {
        true => Err(Errno::EOPNOTSUPP),
        false => Ok(()),
    }
}

/// MODIFY_RQ. Firmware checks that the queue is in the state `said`, since a queue may go to error
/// on an error.
fn change(call: &mut Call<'_>, rqn: Qpn, said: u32, to: u32) -> Result<(), Errno> {
    let queue = Queue::Rq(rqn);
    let from = match call.device.hca.query_qp(queue).map_err(errno)?.0 {
        QpState::Reset | QpState::Init => IB_WQS_RESET,
        QpState::Err | QpState::Sqe => IB_WQS_ERR,
        _ => IB_WQS_RDY,
    };
    if said != from {
        return Err(Errno::EINVAL);
    }
    let steps: &[QpTransition] = match (from, to) {
        (IB_WQS_RESET, IB_WQS_RDY) => &[QpTransition::RstToInit, QpTransition::InitToRtr],
        (IB_WQS_RDY, IB_WQS_ERR) => &[QpTransition::ToErr],
        (_, IB_WQS_RESET) => &[QpTransition::ToRst],
        (from, to) if from == to => &[],
        _ => return Err(Errno::EINVAL),
    };
    for step in steps {
        call.device.hca.modify_qp(queue, *step, &QpAttrs::default()).map_err(errno)?;
    }
    Ok(())
}

/// WQ.DESTROY: the destroy attribute has destroyed the queue.
pub(crate) fn destroy(call: &mut Call<'_>) -> Result<(), Errno> {
    let events = call.destroyed.unwrap_or_default().async_events;
    call.output(UVERBS_ATTR_DESTROY_WQ_RESP, &events)
}
