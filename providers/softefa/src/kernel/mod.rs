//! Kernel side: what `ib_uverbs` and `efa` answer (`drivers/infiniband/core/uverbs_*.c`,
//! `hw/efa/efa_verbs.c`).

mod call;
mod counters;
mod device;
mod memory;
mod modify;
mod queues;

use nix::errno::Errno;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::write::*;

use crate::device::world::World;
use call::Call;

/// An open file of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) number: u32,
    pub(crate) board: usize,
}

/// Carries out one `RDMA_VERBS_IOCTL`.
///
/// # Errors
///
/// The errnos of Linux; `EPROTONOSUPPORT` for a method that the device lacks.
pub(crate) fn ioctl(world: &mut World, file: File, words: &mut [u64]) -> Result<(), Errno> {
    let mut call = Call::parse(words)?;
    match (call.object, call.method) {
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) => invoke(world, file, &mut call),
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT) => {
            device::get_context(world, file, &mut call)
        }
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT) => device::query_port(&mut call),
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE) => {
            device::query_gid_table(world, file, &mut call)
        }
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY) => {
            device::query_gid_entry(world, file, &mut call)
        }
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_COMP_CNTR_CAPS) => {
            counters::query_caps(world, file, &mut call)
        }
        (UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_CREATE) => {
            counters::create(world, file, &mut call)
        }
        (UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_MODIFY) => {
            counters::modify(world, file, &call)
        }
        // The kernel's driver reads no counter: programs do.
        (UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_READ) => Err(Errno::EOPNOTSUPP),
        (UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_DESTROY) => {
            memory::destroy(world, file, &call, UVERBS_ATTR_DESTROY_COMP_CNTR_HANDLE)
        }
        (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_ATTACH_COMP_CNTR) => {
            counters::attach(world, file, &call)
        }
        (UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC) => {
            device::async_event(world, file, &mut call)
        }
        (UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY) => {
            memory::destroy(world, file, &call, UVERBS_ATTR_DESTROY_PD_HANDLE)
        }
        (UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY) => {
            memory::destroy(world, file, &call, UVERBS_ATTR_DESTROY_MR_HANDLE)
        }
        (UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY) => {
            memory::destroy(world, file, &call, UVERBS_ATTR_DESTROY_AH_HANDLE)
        }
        (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE) => queues::create_cq(world, file, &mut call),
        (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY) => queues::destroy_cq(world, file, &mut call),
        (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE) => queues::create_qp(world, file, &mut call),
        (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY) => queues::destroy_qp(world, file, &mut call),
        _ => Err(Errno::EPROTONOSUPPORT),
    }
}

fn invoke(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    const QUERY_DEVICE: u32 = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
    match call.number(UVERBS_ATTR_WRITE_CMD)? as u32 {
        QUERY_DEVICE => device::query_device(world, file, call),
        IB_USER_VERBS_CMD_QUERY_DEVICE => device::query_verbs(world, file, call),
        IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL => device::create_channel(world, file, call),
        IB_USER_VERBS_CMD_ALLOC_PD => memory::alloc_pd(world, file, call),
        IB_USER_VERBS_CMD_REG_MR => memory::reg_mr(world, file, call),
        IB_USER_VERBS_CMD_CREATE_AH => memory::create_ah(world, file, call),
        IB_USER_VERBS_CMD_MODIFY_QP => modify::modify_qp(world, file, call),
        IB_USER_VERBS_CMD_QUERY_QP => modify::query_qp(world, file, call),
        _ => Err(Errno::EOPNOTSUPP),
    }
}
