//! Queries of mlx5: capabilities, ports and clock of a ConnectX.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_CQE_RES_FORMAT_CSUM, MLX5_IB_CQE_RES_FORMAT_HASH,
    MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD, mlx5_ib_uapi_query_port,
};

use crate::base::answer::{code, refuse};
use crate::device::context::Context;
use crate::device::gid::write_sized;
use crate::post::copies;
use crate::sys::ibv_context;

/// `struct mlx5dv_context`. `comp_mask` bits stay clear for members without a function in this
/// library. The struct of rdma-core 44 ends at `num_lag_ports`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mlx5Context {
    version: u8,
    flags: u64,
    comp_mask: u64,
    compression: [u32; 2],
    sw_parsing: [u32; 2],
    striding: [u32; 5],
    tunnels: u32,
    max_dynamic_bfregs: u32,
    max_clock_info_update_nsec: u64,
    flow_action_flags: u32,
    dc_odp_caps: u32,
    hca_core_clock: *mut c_void,
    num_lag_ports: u8,
    signatures: Signatures,
    dci_streams: [u8; 2],
    max_wr_memcpy_length: usize,
    crypto: [u32; 3],
    max_dc_rd_atom: u64,
    max_dc_init_rd_atom: u64,
    reg_c0: [u32; 2],
    ooo_recv_wrs: [u32; 5],
}

/// `struct mlx5dv_sig_caps`.
#[derive(Debug)]
#[repr(C)]
struct Signatures {
    block_size: u64,
    block_prot: u32,
    types: [u16; 2],
}

const _: () = assert!(size_of::<Mlx5Context>() == 200);

/// `MLX5DV_CONTEXT_MASK_*`.
const COMPRESSION: u64 = 1;
const DC_ODP: u64 = 1 << 7;
const LAG_PORTS: u64 = 1 << 9;
const DCI_STREAMS: u64 = 1 << 11;
const COPIES: u64 = 1 << 12;
const DC_READS: u64 = 1 << 14;
const OUT_OF_ORDER: u64 = 1 << 16;
/// `MLX5DV_CONTEXT_FLAGS_*`.
const CQE_V1: u64 = 1;
const PADDING: u64 = 1 << 5;

/// Formats of compressed CQEs that this library reads.
const FORMATS: u32 = (MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM) as u32;

/// # Safety
///
/// C's contract.
unsafe fn query(context: &uverbs_mlx5::Context, out: *mut Mlx5Context) -> Result<(), Error> {
    let caps = context.driver_caps()?;
    // SAFETY: C's contract: there is room for what is asked for.
    unsafe {
        let asked = (*out).comp_mask;
        let (mut told, mut flags) = (0, CQE_V1);
        if caps.flags & MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD != 0 {
            flags |= PADDING;
        }
        if asked & COMPRESSION != 0 {
            let formats = caps.cqe_comp_caps.supported_format;
            let known = formats & FORMATS;
            (*out).compression = [if known == 0 { 0 } else { caps.cqe_comp_caps.max_num }, known];
            told |= COMPRESSION;
        }
        if asked & LAG_PORTS != 0
            && let Some(ports) = context.lag_ports()
        {
            (*out).num_lag_ports = ports;
            told |= LAG_PORTS;
        }
        if asked & DCI_STREAMS != 0 {
            let streams = caps.dci_streams_caps;
            (*out).dci_streams = [streams.max_log_num_concurent, streams.max_log_num_errored];
            told |= DCI_STREAMS;
        }
        if asked & COPIES != 0 {
            (*out).max_wr_memcpy_length = copies::longest(context);
            told |= COPIES;
        }
        // A device without DEVX commands lacks these capabilities.
        if asked & (DC_ODP | DC_READS) != 0
            && let Ok(dc) = context.dc_caps()
        {
            if asked & DC_ODP != 0 {
                (*out).dc_odp_caps = dc.odp.bits();
            }
            if asked & DC_READS != 0 {
                (*out).max_dc_rd_atom = dc.max_rd_atomic;
                (*out).max_dc_init_rd_atom = dc.max_init_rd_atomic;
            }
            told |= asked & (DC_ODP | DC_READS);
        }
        if asked & OUT_OF_ORDER != 0
            && let Some(caps) = context.out_of_order_caps()?
        {
            (*out).ooo_recv_wrs = [caps.rc, caps.xrc, caps.dc, caps.ud, caps.uc];
            told |= OUT_OF_ORDER;
        }
        ((*out).version, (*out).flags, (*out).comp_mask) = (0, flags, told);
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn query_device(
    context: *const ibv_context,
    out: *mut Mlx5Context,
) -> c_int {
    // SAFETY: by C's contract.
    let Some(context) = (unsafe { Context::of(context) }).mlx5() else {
        return refuse(Errno::EOPNOTSUPP);
    };
    // SAFETY: by C's contract.
    code(unsafe { query(context, out) })
}

/// Queries a port. `size` is the program's size of `struct mlx5dv_port`, which is the kernel's
/// struct.
pub(crate) unsafe extern "C" fn query_port(
    context: *const ibv_context,
    port: u32,
    out: *mut mlx5_ib_uapi_query_port,
    size: usize,
) -> c_int {
    // SAFETY: by C's contract.
    let Some(context) = (unsafe { Context::of(context) }).mlx5() else {
        return refuse(Errno::EOPNOTSUPP);
    };
    // SAFETY: C's contract: there is room for `size` bytes.
    code(context.query_vport(port).map(|found| unsafe { write_sized(out, &found, size) }))
}

/// Path of the device with the direct path to a GPU, below `/sys`.
pub(crate) unsafe extern "C" fn data_direct_path(
    context: *const ibv_context,
    buf: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: by C's contract.
    let Some(context) = (unsafe { Context::of(context) }).mlx5() else {
        return refuse(Errno::EOPNOTSUPP);
    };
    // The longest attribute.
    if len > usize::from(u16::MAX) {
        return refuse(Errno::EINVAL);
    }
    let mut path = vec![0; len];
    code(context.data_direct_path(&mut path).map(|()| {
        let used = path.iter().position(|byte| *byte == 0).map_or(len, |end| end + 1);
        // SAFETY: C's contract: there is room for `len` bytes.
        unsafe { buf.cast::<u8>().copy_from_nonoverlapping(path.as_ptr(), used) };
    }))
}

/// `struct mlx5dv_clock_info`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ClockInfo {
    nsec: u64,
    last_cycles: u64,
    frac: u64,
    mult: u32,
    shift: u32,
    mask: u64,
}

const _: () = assert!(size_of::<ClockInfo>() == 40);

pub(crate) unsafe extern "C" fn get_clock_info(
    context: *const ibv_context,
    out: *mut MaybeUninit<ClockInfo>,
) -> c_int {
    // SAFETY: by C's contract.
    let of = unsafe { Context::of(context) };
    if of.mlx5().is_none() {
        return refuse(Errno::EOPNOTSUPP);
    }
    let Ok(clock) = of.clock() else { return refuse(Errno::EINVAL) };
    code(clock.read().map(|found| {
        let info = ClockInfo {
            nsec: found.nanoseconds,
            last_cycles: found.ticks,
            frac: found.fraction,
            mult: found.factor,
            shift: found.shift,
            mask: found.mask,
        };
        // SAFETY: by C's contract.
        unsafe { (*out).write(info) };
    }))
}
