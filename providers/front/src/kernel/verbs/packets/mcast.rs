//! Multicast groups (`ib_uverbs_attach_mcast` in `core/uverbs_cmd.c`, `ib_attach_mcast` in
//! `core/verbs.c`, `mlx5_ib_mcg_attach` in `hw/mlx5/main.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::mcast::{ib_uverbs_attach_mcast, ib_uverbs_detach_mcast};
use uverbs_kernel_abi::qp::IB_UVERBS_QPT_UD;
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_ATTACH_MCAST, IB_USER_VERBS_CMD_DETACH_MCAST};

use crate::backend::address::Address;
use crate::backend::error::errno;
use crate::backend::number::Qpn;
use crate::kernel::call::{Call, Write};
use crate::kernel::state::objects::{Object, Qp};

/// ATTACH_MCAST.
pub(crate) const ATTACH_MCAST: Write = Write {
    command: IB_USER_VERBS_CMD_ATTACH_MCAST,
    request: size_of::<ib_uverbs_attach_mcast>(),
    response: 0,
    handler: attach,
};

/// DETACH_MCAST.
pub(crate) const DETACH_MCAST: Write = Write {
    command: IB_USER_VERBS_CMD_DETACH_MCAST,
    request: size_of::<ib_uverbs_detach_mcast>(),
    response: 0,
    handler: detach,
};

/// First multicast LID; the last LID is the permissive one (`is_valid_mcast_lid`).
const FIRST_LID: u16 = 0xc000;
const PERMISSIVE_LID: u16 = 0xffff;

fn attach(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_attach_mcast = call.request()?;
    let group = (request.gid, request.mlid);
    let qp = call.file.objects.qp(request.qp_handle)?;
    if qp.groups.contains(&group) {
        return Ok(());
    }
    let qpn = check(call, qp, group)?;
    call.device.hca.steering().attach_mcast(qpn, request.gid).map_err(errno)?;
    if let Some(Object::Qp(qp)) = call.file.objects.get_mut(request.qp_handle) {
        qp.groups.insert(group);
    }
    Ok(())
}

fn detach(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_detach_mcast = call.request()?;
    let group = (request.gid, request.mlid);
    let qp = call.file.objects.qp(request.qp_handle)?;
    if !qp.groups.contains(&group) {
        return Err(Errno::EINVAL);
    }
    let qpn = check(call, qp, group)?;
    if let Some(Object::Qp(qp)) = call.file.objects.get_mut(request.qp_handle) {
        qp.groups.remove(&group);
    }
    call.device.hca.steering().detach_mcast(qpn, request.gid).map_err(errno)
}

/// Checks group and QP (`ib_attach_mcast` and `ib_detach_mcast`). On Ethernet the LID is ignored.
fn check(call: &Call<'_>, qp: &Qp, (gid, lid): ([u8; 16], u16)) -> Result<Qpn, Errno> {
    let lid_fits = call.device.config.is_ethernet() || (FIRST_LID..PERMISSIVE_LID).contains(&lid);
    match (Address { gid, lid: 0 }).is_group() && qp.kind == IB_UVERBS_QPT_UD && lid_fits {
        true => Ok(qp.qpn),
        false => Err(Errno::EINVAL),
    }
}
