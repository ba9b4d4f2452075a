//! Protection domains, memory regions, address handles.

use nix::errno::Errno;
use uverbs_kernel_abi::ah::{ib_uverbs_create_ah, ib_uverbs_create_ah_resp};
use uverbs_kernel_abi::efa::{
    EFA_QUERY_DEVICE_CAPS_RDMA_READ, EFA_QUERY_DEVICE_CAPS_RDMA_WRITE, efa_ibv_alloc_pd_resp,
    efa_ibv_create_ah_resp,
};
use uverbs_kernel_abi::mr::{
    IB_UVERBS_ACCESS_LOCAL_WRITE, IB_UVERBS_ACCESS_OPTIONAL_RANGE, IB_UVERBS_ACCESS_REMOTE_ATOMIC,
    IB_UVERBS_ACCESS_REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_WRITE, ib_uverbs_reg_mr,
    ib_uverbs_reg_mr_resp,
};
use uverbs_kernel_abi::pd::ib_uverbs_alloc_pd_resp;

use super::File;
use super::call::Call;
use crate::device::objects::{Ah, Mr, Object};
use crate::device::world::World;

/// Keys have 24 bits in work requests.
const KEY_BITS: u32 = 0xff_ffff;

/// ALLOC_PD (`efa_alloc_pd`).
pub(super) fn alloc_pd(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let pd_handle = world.new_number();
    world.objects.insert(pd_handle, (file.owner(), Object::Pd));
    call.respond(&ib_uverbs_alloc_pd_resp { pd_handle })?;
    call.respond_driver(&efa_ibv_alloc_pd_resp { pdn: pd_handle as u16, ..Default::default() })
}

fn check_pd(world: &World, file: File, pd: u32) -> Result<(), Errno> {
    match world.of(file.number, pd)? {
        Object::Pd => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// REG_MR (`efa_reg_mr`).
pub(super) fn reg_mr(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_reg_mr = call.request()?;
    let ib_uverbs_reg_mr { start, length, hca_va, pd_handle, access_flags, .. } = request;
    check_pd(world, file, pd_handle)?;
    // Kernel `ib_verbs.h`, `ib_check_mr_access`.
    let remote = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC;
    if access_flags & remote != 0 && access_flags & IB_UVERBS_ACCESS_LOCAL_WRITE == 0 {
        return Err(Errno::EINVAL);
    }
    let caps = world.boards[file.board].caps;
    let mut allowed = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_OPTIONAL_RANGE;
    if caps & EFA_QUERY_DEVICE_CAPS_RDMA_READ != 0 {
        allowed |= IB_UVERBS_ACCESS_REMOTE_READ;
    }
    if caps & EFA_QUERY_DEVICE_CAPS_RDMA_WRITE != 0 {
        allowed |= IB_UVERBS_ACCESS_REMOTE_WRITE;
    }
    if access_flags & !allowed != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if length == 0 || start.checked_add(length).is_none() || hca_va.checked_add(length).is_none() {
        return Err(Errno::EINVAL);
    }
    let mr_handle = world.new_number();
    let key = mr_handle & KEY_BITS;
    let mr =
        Mr { pd: pd_handle, iova: hca_va, addr: start, len: length, access: access_flags, key };
    world.objects.insert(mr_handle, (file.owner(), Object::Mr(mr)));
    call.respond(&ib_uverbs_reg_mr_resp { mr_handle, lkey: key, rkey: key })
}

/// CREATE_AH (`efa_create_ah`).
pub(super) fn create_ah(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_create_ah = call.request()?;
    let ib_uverbs_create_ah { pd_handle, attr, .. } = request;
    check_pd(world, file, pd_handle)?;
    if attr.port_num != 1 || attr.is_global == 0 || attr.grh.sgid_index != 0 {
        return Err(Errno::EINVAL);
    }
    let ah_handle = world.new_number();
    let number = ah_handle as u16;
    let ah = Ah { pd: pd_handle, gid: attr.grh.dgid, number };
    world.objects.insert(ah_handle, (file.owner(), Object::Ah(ah)));
    call.respond(&ib_uverbs_create_ah_resp { ah_handle })?;
    let part = efa_ibv_create_ah_resp { efa_address_handle: number, ..Default::default() };
    call.respond_driver(&part)
}

/// Destroys an object that the attribute names.
pub(super) fn destroy(
    world: &mut World,
    file: File,
    call: &Call<'_>,
    attr: u16,
) -> Result<(), Errno> {
    let handle = call.handle(attr)?;
    world.of(file.number, handle)?;
    let in_use = world.objects.values().any(|(_, object)| match object {
        Object::Mr(mr) => mr.pd == handle,
        Object::Ah(ah) => ah.pd == handle,
        Object::Qp(qp) => {
            let counters = qp.counters.iter().any(|(_, counter)| *counter == handle);
            counters || [qp.pd, qp.send_cq, qp.recv_cq].contains(&handle)
        }
        _ => false,
    });
    if in_use {
        return Err(Errno::EBUSY);
    }
    world.remove(handle);
    Ok(())
}
