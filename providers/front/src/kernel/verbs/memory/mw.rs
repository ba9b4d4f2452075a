//! Memory windows (`ib_uverbs_alloc_mw`, `mlx5_ib_alloc_mw`).

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::mlx5_ib_alloc_mw;
use uverbs_kernel_abi::mw::{
    IB_MW_TYPE_1, IB_MW_TYPE_2, ib_uverbs_alloc_mw, ib_uverbs_alloc_mw_resp,
};
use uverbs_kernel_abi::objects::UVERBS_OBJECT_MW;
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_ALLOC_MW;

use crate::backend::context::MkeyContext;
use crate::backend::error::errno;
use crate::backend::indirect::Indirect;
use crate::kernel::call::{Call, Write, zero_extended};
use crate::kernel::state::objects::{Mw, Object};

/// ALLOC_MW.
pub(crate) const ALLOC_MW: Write = Write {
    command: IB_USER_VERBS_CMD_ALLOC_MW,
    request: size_of::<ib_uverbs_alloc_mw>(),
    response: size_of::<ib_uverbs_alloc_mw_resp>(),
    handler: alloc,
};

/// Translations are allocated in units of this many octowords.
const UNIT: u32 = 4;

fn alloc(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_alloc_mw = call.request()?;
    let handle = call.new_handle(UVERBS_OBJECT_MW)?;
    let pdn = call.file.objects.pd(request.pd_handle)?.pdn;
    if !matches!(request.mw_type, IB_MW_TYPE_1 | IB_MW_TYPE_2) {
        return Err(Errno::EINVAL);
    }
    let parts = parts(call)?;
    let context = MkeyContext {
        pd: pdn,
        // The key is free until a WQE binds it; a peer may invalidate type 2.
        free: true,
        umr: true,
        // The driver asks for parts of an indirect key, which is made by the same command.
        window: parts == 0,
        remote_invalidate: request.mw_type == IB_MW_TYPE_2,
        indirect: Some(Indirect::default()),
        octowords: parts.max(1).next_multiple_of(UNIT),
        ..MkeyContext::default()
    };
    let key = call.device.hca.create_mkey(context).map_err(errno)?;
    call.file.objects.hold(request.pd_handle);
    call.put_object(handle, Object::Mw(Mw { pd: request.pd_handle, key }));
    call.respond(&ib_uverbs_alloc_mw_resp { mw_handle: handle, rkey: key.0 })
}

/// Number of parts in the driver's request; 0 if unset.
fn parts(call: &Call<'_>) -> Result<u32, Errno> {
    let own: mlx5_ib_alloc_mw = zero_extended(&call.driver_input()?);
    if own.comp_mask != 0 || own.reserved1 != 0 || own.reserved2 != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(own.num_klms.into())
}
