//! Limits and capabilities of devices.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::MaybeUninit;

use uverbs_core::Errno;
use uverbs_core::attr::DeviceAttr;
use uverbs_core::objects::clock::DeviceClock;
use uverbs_core::provider::ContextOps;
use uverbs_kernel_abi::driver_id::{RDMA_DRIVER_EFA, RDMA_DRIVER_RXE};

use crate::base::answer::{code, refuse};
use crate::device::context::Context;
use crate::device::gid::write_sized;
use crate::device::list::text;
use crate::sys::{
    ibv_context, ibv_cq_moderation_caps, ibv_device_attr, ibv_device_attr_ex, ibv_odp_caps,
    ibv_odp_caps_per_transport_caps, ibv_packet_pacing_caps, ibv_pci_atomic_caps, ibv_rss_caps,
    ibv_tm_caps, ibv_tso_caps, ibv_values_ex,
};

/// Firmware version in each driver's format.
fn firmware(attr: &DeviceAttr, driver: u32) -> String {
    if driver == RDMA_DRIVER_RXE {
        let v = attr.fw_ver;
        return format!("{}.{}.{}", v >> 32 & 0xffff, v >> 16 & 0xffff, v & 0xffff);
    }
    if driver == RDMA_DRIVER_EFA {
        // The first four bytes, as the device wrote them (rdma-core `verbs.c:efa_query_device_ex`).
        let [a, b, c, d, ..] = attr.fw_ver.to_ne_bytes();
        return format!("{a}.{b}.{c}.{d}");
    }
    attr.firmware()
}

fn to_c(attr: &DeviceAttr, driver: u32) -> ibv_device_attr {
    let int = |number: u32| number as c_int;
    ibv_device_attr {
        fw_ver: text(&firmware(attr, driver)),
        node_guid: attr.node_guid.to_be(),
        sys_image_guid: attr.sys_image_guid.to_be(),
        max_mr_size: attr.max_mr_size,
        page_size_cap: attr.page_size_cap,
        vendor_id: attr.vendor_id,
        vendor_part_id: attr.vendor_part_id,
        hw_ver: attr.hw_ver,
        max_qp: int(attr.max_qp),
        max_qp_wr: int(attr.max_qp_wr),
        device_cap_flags: attr.caps.bits() as u32,
        max_sge: int(attr.max_sge),
        max_sge_rd: int(attr.max_sge_rd),
        max_cq: int(attr.max_cq),
        max_cqe: int(attr.max_cqe),
        max_mr: int(attr.max_mr),
        max_pd: int(attr.max_pd),
        max_qp_rd_atom: int(attr.max_qp_rd_atom),
        max_ee_rd_atom: int(attr.max_ee_rd_atom),
        max_res_rd_atom: int(attr.max_res_rd_atom),
        max_qp_init_rd_atom: int(attr.max_qp_init_rd_atom),
        max_ee_init_rd_atom: int(attr.max_ee_init_rd_atom),
        atomic_cap: attr.atomic_cap.raw(),
        max_ee: int(attr.max_ee),
        max_rdd: int(attr.max_rdd),
        max_mw: int(attr.max_mw),
        max_raw_ipv6_qp: int(attr.max_raw_ipv6_qp),
        max_raw_ethy_qp: int(attr.max_raw_ethy_qp),
        max_mcast_grp: int(attr.max_mcast_grp),
        max_mcast_qp_attach: int(attr.max_mcast_qp_attach),
        max_total_mcast_qp_attach: int(attr.max_total_mcast_qp_attach),
        max_ah: int(attr.max_ah),
        max_fmr: int(attr.max_fmr),
        max_map_per_fmr: int(attr.max_map_per_fmr),
        max_srq: int(attr.max_srq),
        max_srq_wr: int(attr.max_srq_wr),
        max_srq_sge: int(attr.max_srq_sge),
        max_pkeys: attr.max_pkeys,
        local_ca_ack_delay: attr.local_ca_ack_delay,
        phys_port_cnt: attr.phys_port_count,
    }
}

/// Hash functions and fields of RSS, which the driver reports beside the verbs' query
/// (providers/mlx5/verbs.c, `mlx5_query_device_ex`).
fn hashes(context: &Context) -> (u64, u8) {
    let caps = context.mlx5().and_then(|mlx5| mlx5.driver_caps().ok());
    let rss = caps.map(|caps| &caps.rss_caps);
    rss.map_or((0, 0), |rss| (rss.rx_hash_fields_mask, rss.rx_hash_function))
}

fn to_c_ex(attr: &DeviceAttr, driver: u32, hashes: (u64, u8)) -> ibv_device_attr_ex {
    let odp = &attr.odp;
    ibv_device_attr_ex {
        orig_attr: to_c(attr, driver),
        comp_mask: 0,
        odp_caps: ibv_odp_caps {
            general_caps: u64::from(odp.supported) | u64::from(odp.implicit) << 1,
            per_transport_caps: ibv_odp_caps_per_transport_caps {
                rc_odp_caps: odp.rc.bits(),
                uc_odp_caps: odp.uc.bits(),
                ud_odp_caps: odp.ud.bits(),
            },
        },
        completion_timestamp_mask: attr.completion_timestamp_mask,
        hca_core_clock: attr.hca_core_clock,
        device_cap_flags_ex: attr.caps_ex.bits(),
        tso_caps: ibv_tso_caps::default(),
        rss_caps: ibv_rss_caps {
            supported_qpts: attr.rss.supported_qpts,
            max_rwq_indirection_tables: attr.rss.max_rwq_indirection_tables,
            max_rwq_indirection_table_size: attr.rss.max_rwq_indirection_table_size,
            rx_hash_fields_mask: hashes.0,
            rx_hash_function: hashes.1,
        },
        max_wq_type_rq: attr.max_wq_type_rq,
        packet_pacing_caps: ibv_packet_pacing_caps::default(),
        raw_packet_caps: attr.raw_packet_caps.bits(),
        tm_caps: ibv_tm_caps {
            max_rndv_hdr_size: attr.tm.max_rndv_hdr_size,
            max_num_tags: attr.tm.max_num_tags,
            flags: attr.tm.flags,
            max_ops: attr.tm.max_ops,
            max_sge: attr.tm.max_sge,
        },
        cq_mod_caps: ibv_cq_moderation_caps {
            max_cq_count: attr.max_cq_moderation_count,
            max_cq_period: attr.max_cq_moderation_period,
        },
        max_dm_size: attr.max_dm_size,
        pci_atomic_caps: ibv_pci_atomic_caps::default(),
        xrc_odp_caps: odp.xrc.bits(),
        phys_port_cnt_ex: attr.phys_port_count.into(),
    }
}

/// `IBV_VALUES_MASK_RAW_CLOCK`.
const RAW_CLOCK: u32 = 1;

/// Reads the device's clock, in ticks.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    // SAFETY: by C's contract.
    let (context, values) = unsafe { (Context::of(context), &mut *values) };
    if values.comp_mask & !RAW_CLOCK != 0 {
        return refuse(Errno::EINVAL);
    }
    if values.comp_mask == 0 {
        return 0;
    }
    values.comp_mask = 0;
    code(context.clock().and_then(DeviceClock::ticks).map(|ticks| {
        *values = ibv_values_ex { comp_mask: RAW_CLOCK, raw_clock: [0, ticks as i64] };
    }))
}

pub(crate) unsafe extern "C" fn query_device(
    context: *mut ibv_context,
    attr: *mut MaybeUninit<ibv_device_attr>,
) -> c_int {
    // SAFETY: by C's contract.
    let context = unsafe { Context::of(context) };
    let driver = context.core().uverbs().driver_id();
    code(context.ops().query_device().map(|found| {
        // SAFETY: by C's contract.
        unsafe { (*attr).write(to_c(&found, driver)) };
    }))
}

pub(crate) unsafe extern "C" fn query_device_ex(
    context: *const ibv_context,
    input: *const u32,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: C's contract: null, or a struct that begins with a mask of extensions, all of which
    // are ignored.
    if unsafe { input.as_ref() }.is_some_and(|mask| *mask != 0) {
        return refuse(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let context = unsafe { Context::of(context) };
    let driver = context.core().uverbs().driver_id();
    code(context.ops().query_device().map(|found| {
        // SAFETY: C's contract: there is room for `size` bytes.
        unsafe { write_sized(attr, &to_c_ex(&found, driver, hashes(context)), size) };
    }))
}
