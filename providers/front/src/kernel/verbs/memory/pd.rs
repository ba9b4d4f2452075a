//! Protection domains (`ib_uverbs_alloc_pd`, `mlx5_ib_alloc_pd`).

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_QUERY_PD_HANDLE, MLX5_IB_ATTR_QUERY_PD_RESP_PDN, mlx5_ib_alloc_pd_resp,
};
use uverbs_kernel_abi::objects::UVERBS_OBJECT_PD;
use uverbs_kernel_abi::pd::{ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_ALLOC_PD;
use zerocopy::IntoBytes;

use crate::backend::number::Pdn;
use crate::kernel::call::{Call, Write};
use crate::kernel::state::objects::{Object, Pd};

/// ALLOC_PD.
pub(crate) const ALLOC_PD: Write = Write {
    command: IB_USER_VERBS_CMD_ALLOC_PD,
    request: size_of::<ib_uverbs_alloc_pd>(),
    response: size_of::<ib_uverbs_alloc_pd_resp>(),
    handler: alloc,
};

/// PD.QUERY of mlx5 (`hw/mlx5/std_types.c`), for clients that import a PD.
pub(crate) fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.object(MLX5_IB_ATTR_QUERY_PD_HANDLE).ok_or(Errno::ENOENT)?;
    let pdn = call.file.objects.pd(handle)?.pdn;
    call.output(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, &pdn.0)
}

fn alloc(call: &mut Call<'_>) -> Result<(), Errno> {
    let _request: ib_uverbs_alloc_pd = call.request()?;
    let handle = call.new_handle(UVERBS_OBJECT_PD)?;
    let device = &mut *call.device;
    if device.pds.len() >= device.config.max_pd as usize {
        return Err(Errno::ENOMEM);
    }
    // Firmware reserves number 0. Takes the number above the highest, or a gap.
    let highest = device.pds.last().copied().unwrap_or(0);
    let pdn = match highest < 0xff_ffff {
        true => highest + 1,
        false => (1..=0xff_ffff).find(|pdn| !device.pds.contains(pdn)).ok_or(Errno::ENOMEM)?,
    };
    device.pds.insert(pdn);
    call.put_object(handle, Object::Pd(Pd { pdn: Pdn(pdn) }));
    // `rvt_alloc_pd` answers no number.
    if call.device.rings.is_none() {
        call.driver_must_output(mlx5_ib_alloc_pd_resp { pdn }.as_bytes())?;
    }
    call.respond(&ib_uverbs_alloc_pd_resp { pd_handle: handle })
}
