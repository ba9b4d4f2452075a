//! Ports and their GID tables (`uverbs_std_types_device.c`; `mlx5_query_port_roce` and
//! `mlx5_query_hca_port` in `hw/mlx5/main.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::gid::ib_uverbs_gid_entry;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX,
    UVERBS_ATTR_QUERY_GID_ENTRY_PORT, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
    UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS,
    UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES,
    UVERBS_ATTR_QUERY_PORT_PORT_NUM, UVERBS_ATTR_QUERY_PORT_RESP,
    UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, UVERBS_ATTR_QUERY_PORT_SPEED_RESP,
};
use uverbs_kernel_abi::port::{
    IB_MTU_4096, IB_PORT_ACTIVE, IB_PORT_DOWN, IB_UVERBS_PCF_CM_SUP, IB_UVERBS_PCF_IP_BASED_GIDS,
    IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP, IB_UVERBS_QPF_GRH_REQUIRED, ib_uverbs_query_port_resp,
    ib_uverbs_query_port_resp_ex,
};
use zerocopy::IntoBytes;

use crate::kernel::call::Call;
use crate::kernel::state::device::Device;
use crate::kernel::verbs::queues::qp_modify::gid;

/// Values of `link_layer`.
const INFINIBAND: u8 = 1;
const ETHERNET: u8 = 2;
/// `phys_state` of a port that is down, and of one that is up (IBTA 14.2.5.6).
const DISABLED: u8 = 3;
const LINK_UP: u8 = 5;
/// 100 Gb/s in units of 100 Mb/s.
const SPEED: u64 = 1000;

/// DEVICE.QUERY_PORT.
pub(crate) fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    if !call.file.has_context() {
        return Err(Errno::EINVAL);
    }
    let port = call.constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, u64::from(u8::MAX))?;
    if port != 1 {
        return Err(Errno::EINVAL);
    }
    let response = ib_uverbs_query_port_resp_ex {
        legacy_resp: attributes(call.device),
        ..ib_uverbs_query_port_resp_ex::default()
    };
    call.output_or_zero(UVERBS_ATTR_QUERY_PORT_RESP, &response)
}

/// DEVICE.QUERY_PORT_SPEED (Linux 7; `mlx5_ib_query_port_speed_from_port`).
pub(crate) fn query_speed(call: &mut Call<'_>) -> Result<(), Errno> {
    if !call.file.has_context() {
        return Err(Errno::EINVAL);
    }
    let port = call.constant(UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, u64::from(u32::MAX))?;
    if port != 1 {
        return Err(Errno::EINVAL);
    }
    let speed = if call.device.port_up { SPEED } else { 0 };
    call.output(UVERBS_ATTR_QUERY_PORT_SPEED_RESP, &speed)
}

/// Port attributes, as `ib_query_port` reads them.
pub fn attributes(device: &Device) -> ib_uverbs_query_port_resp {
    let config = &device.config;
    let (state, phys_state) = match device.port_up {
        true => (IB_PORT_ACTIVE, LINK_UP),
        false => (IB_PORT_DOWN, DISABLED),
    };
    let common = ib_uverbs_query_port_resp {
        max_msg_sz: config.max_msg_size,
        gid_tbl_len: config.gid_table_len,
        pkey_tbl_len: config.pkey_table_len,
        state,
        max_mtu: IB_MTU_4096,
        active_mtu: config.active_mtu as u8,
        active_width: config.active_width,
        active_speed: config.active_speed,
        phys_state,
        ..ib_uverbs_query_port_resp::default()
    };
    match config.is_ethernet() {
        true => ib_uverbs_query_port_resp {
            port_cap_flags: IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS,
            link_layer: ETHERNET,
            flags: IB_UVERBS_QPF_GRH_REQUIRED,
            ..common
        },
        false => ib_uverbs_query_port_resp {
            port_cap_flags: IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_SYS_IMAGE_GUID_SUP,
            link_layer: INFINIBAND,
            lid: config.lid,
            sm_lid: config.sm_lid,
            max_vl_num: 4,
            subnet_timeout: 18,
            ..common
        },
    }
}

fn entry(device: &Device, index: u32) -> Result<ib_uverbs_gid_entry, Errno> {
    let gid = gid(device, index)?;
    let entry = device.config.gids.get(index as usize).ok_or(Errno::ENODATA)?;
    Ok(ib_uverbs_gid_entry {
        gid: zerocopy::transmute!(gid),
        gid_index: index,
        port_num: 1,
        gid_type: entry.kind as u32,
        netdev_ifindex: entry.ifindex,
    })
}

/// DEVICE.QUERY_GID_ENTRY.
pub(crate) fn query_gid_entry(call: &mut Call<'_>) -> Result<(), Errno> {
    call.flags(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0)?;
    let index = call.constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, u64::from(u32::MAX))?;
    let port = call.constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, u64::from(u32::MAX))?;
    if !call.file.has_context() || port != 1 {
        return Err(Errno::EINVAL);
    }
    let entry = entry(call.device, u32::try_from(index).map_err(|_| Errno::EINVAL)?)?;
    call.output_or_zero(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &entry)
}

/// DEVICE.QUERY_GID_TABLE: the valid entries of all ports.
pub(crate) fn query_gid_table(call: &mut Call<'_>) -> Result<(), Errno> {
    call.flags(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0)?;
    let size = call.constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, u64::MAX >> 1)?;
    let size = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
    let room = call.len(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
    // `uverbs_attr_ptr_get_array_size`: a whole number of entries; the client sets their size.
    if size == 0 || !room.is_multiple_of(size) {
        return Err(Errno::EINVAL);
    }
    let count = call.device.config.gids.len();
    if !call.file.has_context() || count > room / size {
        return Err(Errno::EINVAL);
    }
    let mut bytes = Vec::with_capacity(count * size);
    for index in 0..count {
        let entry = entry(call.device, index as u32)?;
        let known = size.min(size_of_val(&entry));
        bytes.extend_from_slice(&entry.as_bytes()[..known]);
        bytes.resize((index + 1) * size, 0);
    }
    call.output_bytes(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, &bytes)?;
    call.output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &(count as u64))
}
