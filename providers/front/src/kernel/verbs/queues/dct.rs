//! Targets of dynamic connections: queue pairs of a driver type without queues, which the device
//! creates at the transition to RTR (`create_dct`, `mlx5_ib_modify_dct` and `mlx5_ib_dct_query_qp`
//! in `hw/mlx5/qp.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{mlx5_ib_create_qp, mlx5_ib_modify_qp_resp};
use uverbs_kernel_abi::objects::UVERBS_ATTR_UHW_OUT;
use uverbs_kernel_abi::qp::{
    IB_QP_ACCESS_FLAGS, IB_QP_AV, IB_QP_MIN_RNR_TIMER, IB_QP_PATH_MTU, IB_QP_PKEY_INDEX,
    IB_QP_PORT, IB_QP_STATE, ib_uverbs_modify_qp, ib_uverbs_query_qp, ib_uverbs_query_qp_resp,
};
use zerocopy::IntoBytes;

use crate::backend::config::agree;
use crate::backend::context::{Access, DctContext, Mtu, QpState};
use crate::backend::error::errno;
use crate::backend::number::Queue;
use crate::kernel::call::Call;
use crate::kernel::state::objects::{Dct, Object};
use crate::kernel::transition;
use crate::kernel::verbs::memory::mr::{access_flags, queue_rights};
use crate::kernel::verbs::queues::qp_modify::{driver_request, source};
use crate::kernel::verbs::queues::qp_request::Asked;

/// Exact attributes: `INIT` from RESET to INIT, `RTR` from INIT to RTR.
const INIT: u32 = IB_QP_STATE | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT;
const RTR: u32 = IB_QP_STATE | IB_QP_MIN_RNR_TIMER | IB_QP_AV | IB_QP_PATH_MTU;

/// Keeps the parameters of the target (`create_dct`).
pub(crate) fn create(
    call: &mut Call<'_>,
    asked: &Asked,
    request: &mlx5_ib_create_qp,
) -> Result<(), Errno> {
    let srq = asked.srq.ok_or(Errno::EINVAL)?;
    let objects = &mut call.file.objects;
    let context = DctContext {
        pd: objects.pd(asked.pd)?.pdn,
        cq: objects.cq(asked.recv_cq)?.cqn,
        srq: objects.srq(srq)?.srqn,
        key: request.sq_buf_addr,
        user_index: request.uidx,
        cqe_version: call.file.context.as_ref().map_or(0, |context| context.cqe_version),
        access: Access::empty(),
        pkey_index: 0,
        path_mtu: Mtu::B256,
        min_rnr_timer: 0,
        counter_set: 0,
        ece: 0,
    };
    let held = [asked.pd, asked.send_cq, asked.recv_cq, srq];
    for handle in held {
        objects.hold(handle);
    }
    let ece = request.ece_options;
    let dct = Dct { context, held, dctn: None, state: QpState::Reset, port: 0, ece };
    call.put_object(asked.handle, Object::Dct(Box::new(dct)));
    Ok(())
}

/// Modifies a target (`mlx5_ib_modify_dct`): two transitions, each with exactly its attributes.
pub(crate) fn modify(call: &mut Call<'_>, request: &ib_uverbs_modify_qp) -> Result<(), Errno> {
    let own = driver_request(call)?.ece_options;
    let dct = call.file.objects.dct(request.qp_handle)?;
    let ece = if own == 0 { dct.ece } else { own };
    let (mut context, state, mask) = (dct.context, dct.state, request.attr_mask);
    if mask & IB_QP_STATE == 0 {
        return Err(Errno::EINVAL);
    }
    // `_ib_modify_qp` checks the path before the driver checks the rest.
    if mask & IB_QP_AV != 0 {
        source(call.device, &request.dest)?;
    }
    let to = transition::state(request.qp_state).ok_or(Errno::EINVAL)?;
    let mut dctn = None;
    match (state, to) {
        (QpState::Reset, QpState::Init) if mask == INIT => {
            if request.pkey_index >= call.device.config.pkey_table_len {
                return Err(Errno::EINVAL);
            }
            context.access = queue_rights(request.qp_access_flags, &call.device.config);
            context.pkey_index = request.pkey_index;
        }
        (QpState::Init, QpState::Rtr) if mask == RTR => {
            let shortest = std::mem::offset_of!(mlx5_ib_modify_qp_resp, ece_options);
            if call.len(UVERBS_ATTR_UHW_OUT) < shortest {
                return Err(Errno::EINVAL);
            }
            context.path_mtu = Mtu::from_code(request.path_mtu).ok_or(Errno::EINVAL)?;
            context.min_rnr_timer = request.min_rnr_timer & 0x1f;
            context.ece = ece;
            dctn = Some(call.device.hca.create_dct(context).map_err(errno)?);
        }
        _ => return Err(Errno::EINVAL),
    }
    if let Some(Object::Dct(dct)) = call.file.objects.get_mut(request.qp_handle) {
        dct.context = context;
        dct.state = to;
        dct.dctn = dctn;
        dct.ece = ece;
        if mask & IB_QP_PORT != 0 {
            dct.port = request.port_num;
        }
    }
    let Some(dctn) = dctn else { return Ok(()) };
    let common = || agree(call.device.config.ece, ece);
    let ece = call.device.hca.ece(Queue::Dct(dctn)).unwrap_or_else(common);
    let room = call.len(UVERBS_ATTR_UHW_OUT).min(size_of::<mlx5_ib_modify_qp_resp>());
    let answer = mlx5_ib_modify_qp_resp {
        response_length: room as u32,
        dctn: dctn.0,
        ece_options: ece,
        ..mlx5_ib_modify_qp_resp::default()
    };
    call.driver_output(answer.as_bytes())
}

/// Queries a target in RTR (`mlx5_ib_dct_query_qp`): only its attributes are filled in.
pub(crate) fn query(
    dct: &Dct,
    request: &ib_uverbs_query_qp,
) -> Result<ib_uverbs_query_qp_resp, Errno> {
    let known = INIT | RTR;
    if request.attr_mask & !known != 0 || dct.state != QpState::Rtr {
        return Err(Errno::EINVAL);
    }
    Ok(ib_uverbs_query_qp_resp {
        qp_state: QpState::Rtr as u8,
        port_num: dct.port,
        pkey_index: dct.context.pkey_index,
        qp_access_flags: access_flags(dct.context.access),
        path_mtu: dct.context.path_mtu as u8,
        min_rnr_timer: dct.context.min_rnr_timer,
        ..ib_uverbs_query_qp_resp::default()
    })
}
