//! Completion counters (kernel `uverbs_std_types_comp_cntr.c`, `efa_verbs.c:efa_create_comp_cntr`
//! and the functions after it).

use nix::errno::Errno;
use uverbs_kernel_abi::comp_cntr::{
    IB_UVERBS_BUFFER_TYPE_VA, IB_UVERBS_COMP_CNTR_ENTRY_COMP, IB_UVERBS_COMP_CNTR_ENTRY_ERR,
    IB_UVERBS_COMP_CNTR_MODIFY_OP_INC, IB_UVERBS_COMP_CNTR_MODIFY_OP_SET,
    IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_READ, IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE,
    IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV, IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ,
    IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE, IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_SEND,
    ib_uverbs_buffer_desc,
};
use uverbs_kernel_abi::efa::{
    EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER, EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER,
    EFA_QUERY_DEVICE_CAPS_COMP_CNTR, EFA_QUERY_DEVICE_CAPS_RDMA_READ,
    EFA_QUERY_DEVICE_CAPS_RDMA_WRITE,
};
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::{IB_QPS_INIT, IB_QPS_RESET};

use super::File;
use super::call::Call;
use crate::device::counters::{COMPLETED, Counter, FAILED, MAX_VALUE};
use crate::device::memory;
use crate::device::objects::Object;
use crate::device::world::World;

/// Counters of a device.
const MAX_COUNTERS: usize = 64;

/// Operations that a device counts.
fn counted(caps: u32) -> u32 {
    let mut ops = IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_SEND | IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV;
    if caps & EFA_QUERY_DEVICE_CAPS_RDMA_READ != 0 {
        ops |= IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_READ;
        ops |= IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ;
    }
    if caps & EFA_QUERY_DEVICE_CAPS_RDMA_WRITE != 0 {
        ops |= IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE;
        ops |= IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE;
    }
    ops
}

/// Capabilities of a device with counters.
fn caps(world: &World, file: File) -> Result<u32, Errno> {
    let caps = world.boards[file.board].caps;
    if caps & EFA_QUERY_DEVICE_CAPS_COMP_CNTR == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(caps)
}

/// QUERY_COMP_CNTR_CAPS.
pub(super) fn query_caps(world: &World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let ops = counted(caps(world, file)?);
    let count = MAX_COUNTERS as u32;
    call.output(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS, &count.to_ne_bytes())?;
    call.output(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE, &MAX_VALUE.to_ne_bytes())?;
    call.output(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS, &ops.to_ne_bytes())
}

/// Address of a count's memory (kernel `umem.c:ib_umem_get_attr`).
fn address(call: &Call<'_>, attr: u16) -> Result<u64, Errno> {
    if call.len(attr) < size_of::<ib_uverbs_buffer_desc>() {
        return Err(Errno::EINVAL);
    }
    let buffer: ib_uverbs_buffer_desc = call.input(attr)?;
    if buffer.r#type != IB_UVERBS_BUFFER_TYPE_VA {
        // The device reaches no dma-buf.
        return Err(Errno::EOPNOTSUPP);
    }
    let size = size_of::<u64>() as u64;
    if buffer.flags != 0 || buffer.length < size || !buffer.addr.is_multiple_of(size) {
        return Err(Errno::EINVAL);
    }
    let mut word = [0; size_of::<u64>()];
    memory::read(buffer.addr, &mut word)?;
    memory::write(buffer.addr, &word)?;
    Ok(buffer.addr)
}

/// COMP_CNTR_CREATE.
pub(super) fn create(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    caps(world, file)?;
    let mut at = [0; 2];
    at[COMPLETED] = address(call, EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER)?;
    at[FAILED] = address(call, EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER)?;
    let all = world.objects.values();
    let own = all.filter(|(owner, object)| {
        owner.board == file.board && matches!(object, Object::Counter(_))
    });
    if own.count() == MAX_COUNTERS {
        return Err(Errno::ENOMEM);
    }
    let handle = world.new_number();
    world.objects.insert(handle, (file.owner(), Object::Counter(Counter { at, values: [0; 2] })));
    call.set(UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE, handle.into());
    Ok(())
}

/// COMP_CNTR_MODIFY.
pub(super) fn modify(world: &mut World, file: File, call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.handle(UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE)?;
    let Object::Counter(_) = world.of(file.number, handle)? else { return Err(Errno::EINVAL) };
    let entry = match call.number(UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY)? as u32 {
        IB_UVERBS_COMP_CNTR_ENTRY_COMP => COMPLETED,
        IB_UVERBS_COMP_CNTR_ENTRY_ERR => FAILED,
        _ => return Err(Errno::EINVAL),
    };
    let value = call.number(UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE)?;
    let op = call.number(UVERBS_ATTR_MODIFY_COMP_CNTR_OP)? as u32;
    let Some(counter) = world.counter_mut(handle) else { return Err(Errno::EINVAL) };
    match op {
        IB_UVERBS_COMP_CNTR_MODIFY_OP_SET => counter.set(entry, value),
        IB_UVERBS_COMP_CNTR_MODIFY_OP_INC => counter.add(entry, value),
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// QP_ATTACH_COMP_CNTR.
pub(super) fn attach(world: &mut World, file: File, call: &Call<'_>) -> Result<(), Errno> {
    let caps = caps(world, file)?;
    let qp = call.handle(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_HANDLE)?;
    let counter = call.handle(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_CNTR_HANDLE)?;
    let Object::Counter(_) = world.of(file.number, counter)? else { return Err(Errno::EINVAL) };
    let Object::Qp(_) = world.of(file.number, qp)? else { return Err(Errno::EINVAL) };
    let ops = call.number(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK)? as u32;
    let all = counted(EFA_QUERY_DEVICE_CAPS_RDMA_READ | EFA_QUERY_DEVICE_CAPS_RDMA_WRITE);
    if ops == 0 || ops & !all != 0 {
        return Err(Errno::EINVAL);
    }
    let Some(qp) = world.qp_mut(qp) else { return Err(Errno::EINVAL) };
    if qp.counters.iter().any(|(taken, _)| ops & taken != 0) {
        return Err(Errno::EBUSY);
    }
    if ops & !counted(caps) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if ![IB_QPS_RESET, IB_QPS_INIT].contains(&qp.state) {
        return Err(Errno::EINVAL);
    }
    qp.counters.push((ops, counter));
    Ok(())
}
