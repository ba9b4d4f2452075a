//! Contexts, device, port and event files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use uverbs_kernel_abi::cq::ib_uverbs_create_comp_channel_resp;
use uverbs_kernel_abi::device::{ib_uverbs_ex_query_device_resp, ib_uverbs_query_device_resp};
use uverbs_kernel_abi::efa::{
    EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR, EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH,
    EFA_USER_CMDS_SUPP_UDATA_CREATE_AH, EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE,
    efa_ibv_alloc_ucontext_cmd, efa_ibv_alloc_ucontext_resp, efa_ibv_ex_query_device_resp,
};
use uverbs_kernel_abi::gid::ib_uverbs_gid_entry;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::port::{
    IB_MTU_4096, IB_PORT_ACTIVE, ib_uverbs_query_port_resp, ib_uverbs_query_port_resp_ex,
};
use zerocopy::IntoBytes;

use super::File;
use super::call::Call;
use crate::device::channel::Channel;
use crate::device::message::{MAX_MESSAGE, MAX_RDMA};
use crate::device::objects::Object;
use crate::device::world::{Board, Owner, World};

/// Limits of the device.
pub(super) const MAX_SQ_WR: u32 = 4096;
pub(super) const MAX_RQ_WR: u32 = 32768;
pub(super) const MAX_SGE: u16 = 2;
pub(super) const MAX_CQE: u32 = 65536;
pub(super) const MAX_LLQ: u32 = 256 << 10;
const INLINE: u16 = 32;
const INLINE_LONG: u16 = 80;
/// PCI numbers of the third generation, the last one that rdma-core 44 knows.
const VENDOR: u32 = 0x1d0f;
const DEVICE: u32 = 0xefa2;
/// `IB_PORT_PHYS_STATE_LINK_UP`.
const LINK_UP: u8 = 5;

impl File {
    /// Owner of objects that the file makes.
    pub(super) fn owner(self) -> Owner {
        Owner { file: self.number, board: self.board }
    }
}

/// GET_CONTEXT (`efa_alloc_ucontext`).
pub(super) fn get_context(world: &World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let request: efa_ibv_alloc_ucontext_cmd = call.driver()?;
    if request.reserved_20 != [0; 4] {
        return Err(Errno::EINVAL);
    }
    let board = &world.boards[file.board];
    let has = |cap| request.supported_caps & cap != 0;
    let batch = board.max_tx_batch != 0 && !has(EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH);
    let least = board.min_sq_wr != 0 && !has(EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR);
    if batch || least {
        return Err(Errno::EOPNOTSUPP);
    }
    let answer = efa_ibv_alloc_ucontext_resp {
        cmds_supp_udata_mask: EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE
            | EFA_USER_CMDS_SUPP_UDATA_CREATE_AH,
        sub_cqs_per_cq: board.sub_cqs,
        inline_buf_size: INLINE,
        max_llq_size: MAX_LLQ,
        max_tx_batch: board.max_tx_batch,
        min_sq_wr: board.min_sq_wr,
        inline_buf_size_ex: INLINE_LONG,
        ..Default::default()
    };
    call.output(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &1u32.to_ne_bytes())?;
    call.output(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &1u64.to_ne_bytes())?;
    call.respond_driver(&answer)
}

/// Limits of the verbs (`efa_query_device`).
fn limits(board: &Board) -> Result<ib_uverbs_query_device_resp, Errno> {
    let guid = u64::from_be_bytes(board.gid[8..].try_into().map_err(|_| Errno::EINVAL)?);
    Ok(ib_uverbs_query_device_resp {
        fw_ver: 0x0001_0000_0000,
        node_guid: guid.into(),
        sys_image_guid: guid.into(),
        max_mr_size: 1 << 40,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR,
        vendor_part_id: DEVICE,
        max_qp: 256,
        max_qp_wr: MAX_SQ_WR.min(MAX_RQ_WR),
        max_sge: MAX_SGE.into(),
        max_sge_rd: 1,
        max_cq: 512,
        max_cqe: MAX_CQE,
        max_mr: 1 << 16,
        max_pd: 256,
        max_ah: 1 << 12,
        phys_port_cnt: 1,
        ..Default::default()
    })
}

/// QUERY_DEVICE of old programs: limits of the verbs alone.
pub(super) fn query_verbs(world: &World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    call.respond(&limits(&world.boards[file.board])?)
}

/// QUERY_DEVICE.
pub(super) fn query_device(world: &World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let board = &world.boards[file.board];
    let answer = ib_uverbs_ex_query_device_resp {
        base: limits(board)?,
        response_length: size_of::<ib_uverbs_ex_query_device_resp>() as u32,
        ..Default::default()
    };
    let part = efa_ibv_ex_query_device_resp {
        max_sq_wr: MAX_SQ_WR,
        max_rq_wr: MAX_RQ_WR,
        max_sq_sge: MAX_SGE,
        max_rq_sge: MAX_SGE,
        max_rdma_size: MAX_RDMA,
        device_caps: board.caps,
        ..Default::default()
    };
    call.respond(&answer)?;
    call.respond_driver(&part)
}

/// QUERY_PORT (`efa_query_port`).
pub(super) fn query_port(call: &mut Call<'_>) -> Result<(), Errno> {
    if call.number(UVERBS_ATTR_QUERY_PORT_PORT_NUM)? != 1 {
        return Err(Errno::EINVAL);
    }
    let legacy_resp = ib_uverbs_query_port_resp {
        max_msg_sz: MAX_MESSAGE,
        gid_tbl_len: 1,
        pkey_tbl_len: 1,
        state: IB_PORT_ACTIVE,
        max_mtu: IB_MTU_4096,
        active_mtu: IB_MTU_4096,
        lmc: 1,
        max_vl_num: 1,
        active_width: 2,
        active_speed: 32,
        phys_state: LINK_UP,
        ..Default::default()
    };
    let answer = ib_uverbs_query_port_resp_ex { legacy_resp, ..Default::default() };
    call.output(UVERBS_ATTR_QUERY_PORT_RESP, answer.as_bytes())
}

fn gid_entry(world: &World, file: File) -> ib_uverbs_gid_entry {
    let gid = world.boards[file.board].gid;
    ib_uverbs_gid_entry { gid: zerocopy::transmute!(gid), port_num: 1, ..Default::default() }
}

/// QUERY_GID_TABLE.
pub(super) fn query_gid_table(world: &World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let size = call.number(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE)? as usize;
    if size == 0 || call.len(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES) < size {
        return Err(Errno::EINVAL);
    }
    let entry = gid_entry(world, file);
    call.output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entry.as_bytes())?;
    call.output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &1u64.to_ne_bytes())
}

/// QUERY_GID_ENTRY.
pub(super) fn query_gid_entry(world: &World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let port = call.number(UVERBS_ATTR_QUERY_GID_ENTRY_PORT)?;
    let index = call.number(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)?;
    if (port, index) != (1, 0) {
        return Err(Errno::EINVAL);
    }
    let entry = gid_entry(world, file);
    call.output(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry.as_bytes())
}

/// ASYNC_EVENT_ALLOC: EFA has no events for programs.
pub(super) fn async_event(world: &mut World, file: File, call: &mut Call<'_>) -> Result<(), Errno> {
    let (source, channel) = Channel::open()?;
    let number = world.new_number();
    world.objects.insert(number, (file.owner(), Object::Channel(channel)));
    call.set(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, source);
    Ok(())
}

/// CREATE_COMP_CHANNEL.
pub(super) fn create_channel(
    world: &mut World,
    file: File,
    call: &mut Call<'_>,
) -> Result<(), Errno> {
    let (source, channel) = Channel::open()?;
    let number = world.new_number();
    world.objects.insert(number, (file.owner(), Object::Channel(channel)));
    call.respond(&ib_uverbs_create_comp_channel_resp { fd: source as u32 })
}

/// The channel of a descriptor.
///
/// # Errors
///
/// `EBADF`.
pub(super) fn channel(world: &World, file: File, fd: u64) -> Result<u32, Errno> {
    let status = fs::metadata(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::EBADF)?;
    let identity = (status.dev(), status.ino());
    let found = world.objects.iter().find_map(|(handle, (owner, object))| match object {
        Object::Channel(channel) if channel.identity == identity => {
            (owner.file == file.number).then_some(*handle)
        }
        _ => None,
    });
    found.ok_or(Errno::EBADF)
}
