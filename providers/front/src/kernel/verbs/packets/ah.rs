//! Address handles (`ib_uverbs_create_ah`, `mlx5_ib_create_ah`): providers create one on RoCE to
//! learn the destination's MAC.

use nix::errno::Errno;
use uverbs_kernel_abi::ah::{ib_uverbs_create_ah, ib_uverbs_create_ah_resp};
use uverbs_kernel_abi::mlx5::mlx5_ib_create_ah_resp;
use uverbs_kernel_abi::objects::{UVERBS_ATTR_UHW_OUT, UVERBS_OBJECT_AH};
use uverbs_kernel_abi::qp::ib_uverbs_qp_dest;
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_CREATE_AH;
use zerocopy::IntoBytes;

use crate::backend::error::errno;
use crate::kernel::call::{Call, Write};
use crate::kernel::state::objects::{Ah, Object};
use crate::kernel::verbs::queues::qp_modify::path;

/// CREATE_AH.
pub(crate) const CREATE_AH: Write = Write {
    command: IB_USER_VERBS_CMD_CREATE_AH,
    request: size_of::<ib_uverbs_create_ah>(),
    response: size_of::<ib_uverbs_create_ah_resp>(),
    handler: create,
};

fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_create_ah = call.request()?;
    let handle = call.new_handle(UVERBS_OBJECT_AH)?;
    let attr = &request.attr;
    if attr.port_num != 1 {
        return Err(Errno::EINVAL);
    }
    call.file.objects.pd(request.pd_handle)?;
    // modify_qp checks a path the same way.
    let dest = ib_uverbs_qp_dest {
        dgid: attr.grh.dgid,
        flow_label: attr.grh.flow_label,
        dlid: attr.dlid,
        sgid_index: attr.grh.sgid_index,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        is_global: attr.is_global,
        port_num: attr.port_num,
        ..ib_uverbs_qp_dest::default()
    };
    path(call.device, &dest)?;
    // `mlx5_ib_create_ah`: on RoCE the driver returns the MAC, and the response must have room for
    // it.
    let resolves = call.device.config.is_ethernet();
    let shortest = std::mem::offset_of!(mlx5_ib_create_ah_resp, reserved);
    if resolves && call.len(UVERBS_ATTR_UHW_OUT) < shortest {
        return Err(Errno::EINVAL);
    }
    let dmac = match resolves {
        true => call.device.hca.mac(&attr.grh.dgid).map_err(errno)?,
        false => [0; 6],
    };
    if call.device.ahs >= call.device.config.max_ah {
        return Err(Errno::ENOMEM);
    }
    call.device.ahs += 1;
    call.file.objects.hold(request.pd_handle);
    call.put_object(handle, Object::Ah(Ah { pd: request.pd_handle, dest }));
    if resolves {
        let response =
            mlx5_ib_create_ah_resp { response_length: shortest as u32, dmac, reserved: [0; 6] };
        call.driver_output(&response.as_bytes()[..shortest])?;
    }
    call.respond(&ib_uverbs_create_ah_resp { ah_handle: handle })
}
