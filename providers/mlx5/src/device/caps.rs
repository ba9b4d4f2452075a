//! Capabilities beyond the verbs' query: the driver's part of QUERY_DEVICE, the firmware's
//! capability lists, and ports (rdma-core `verbs.c:mlx5_query_device_ctx`,
//! `mlx5.c:get_dc_odp_caps`).
//!
//! # Safety
//!
//! Commands contain numbers only.
#![allow(unsafe_code, reason = "sends commands")]

use uverbs_core::attr::OdpTransportCaps;
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH, MLX5_IB_ATTR_QUERY_PORT,
    MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS,
    MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH, MLX5_IB_METHOD_QUERY_PORT,
    MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT, mlx5_ib_query_device_resp, mlx5_ib_uapi_query_port,
};
use uverbs_kernel_abi::objects::UVERBS_OBJECT_DEVICE;
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::caps::NUM_LAG_PORTS;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap::{LOG_MAX_RA_REQ_DC, LOG_MAX_RA_RES_DC, SQ_TS_FORMAT};
use uverbs_mlx5_prm::cmd::caps::odp_per_transport_service_cap::{
    ATOMIC, READ, RECEIVE, SEND, SRQ_RECEIVE, WRITE,
};
use uverbs_mlx5_prm::cmd::caps::{odp_cap, odp_scheme_cap};
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use zerocopy::IntoBytes;

use crate::{Context, devx};

/// Numbers of capability lists.
const GENERAL: u64 = 0;
const GENERAL_2: u64 = 0x20;
const ODP: u64 = 2;
/// Operations in the order of the verbs' bits (`IBV_ODP_SUPPORT_*`).
const IN_ORDER: [Field; 6] = [SEND, RECEIVE, WRITE, READ, ATOMIC, SRQ_RECEIVE];
/// Size of a capability list in bytes (PRM "QUERY_HCA_CAP").
const LIST: usize = 4096;
/// Size of the header of a command and of a response in bytes.
const HEAD: usize = 16;

/// Capabilities of dynamic connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcCaps {
    /// Operations that support on-demand paging.
    pub odp: OdpTransportCaps,
    /// Maximum READs and atomics that a target accepts outstanding from each initiator (rdma-core
    /// `mlx5dv_context::max_dc_rd_atom`).
    pub max_rd_atomic: u64,
    /// Maximum outstanding READs and atomics of an initiator (rdma-core
    /// `mlx5dv_context::max_dc_init_rd_atom`).
    pub max_init_rd_atomic: u64,
}

/// Attribute of a dma-buf's registration: the direct path to a GPU (rdma-core
/// `verbs.c:mlx5dv_reg_dmabuf_mr`).
pub const DATA_DIRECT: (u16, u32) =
    (MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT);

impl Context {
    /// The driver's part of QUERY_DEVICE, queried once. Fields unknown to the kernel are 0.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    #[doc(alias = "mlx5dv_query_device")]
    pub fn driver_caps(&self) -> Result<&mlx5_ib_query_device_resp, Error> {
        if let Some(known) = self.caps.get() {
            return Ok(known);
        }
        let mut answer = mlx5_ib_query_device_resp::default();
        self.core.uverbs().query_device_ex(answer.as_mut_bytes())?;
        Ok(self.caps.get_or_init(|| Box::new(answer)))
    }

    /// Capabilities of dynamic connections, from the firmware's lists.
    ///
    /// # Errors
    ///
    /// The errors of [`devx::general`]: the query needs a device that was opened with DEVX.
    pub fn dc_caps(&self) -> Result<DcCaps, Error> {
        let general = self.general_caps()?;
        let odp = hca_caps(self.core.uverbs(), ODP)?;
        let scheme = odp_cap::TRANSPORT_PAGE_FAULT_SCHEME_CAP.of(&odp);
        let service = odp_scheme_cap::DC_ODP_CAPS.of(scheme);
        let bits = IN_ORDER.iter().enumerate().map(|(at, field)| field.get32(service) << at);
        Ok(DcCaps {
            odp: OdpTransportCaps::from_bits_retain(bits.sum()),
            max_rd_atomic: 1 << LOG_MAX_RA_REQ_DC.get(&general),
            max_init_rd_atomic: 1 << LOG_MAX_RA_RES_DC.get(&general),
        })
    }

    /// Ports that may be bonded (LAG); `None` if the device or the kernel does not say.
    #[must_use]
    pub fn lag_ports(&self) -> Option<u8> {
        let ports = NUM_LAG_PORTS.get(&self.general_caps().ok()?) as u8;
        (ports != 0).then_some(ports)
    }

    /// True if timestamps are in real time. Queue pairs stamp by the free-running counter if the
    /// device can (kernel `qp.c:get_ts_format`).
    pub(crate) fn is_in_real_time(&self) -> bool {
        // `MLX5_TIMESTAMP_FORMAT_CAP_REAL_TIME` of `mlx5_ifc.h`: real time alone.
        self.general_caps().is_ok_and(|caps| SQ_TS_FORMAT.get(&caps) == 1)
    }

    /// General capability list.
    pub(crate) fn general_caps(&self) -> Result<Vec<u8>, Error> {
        general_caps(self.core.uverbs())
    }

    /// Second general capability list.
    pub(crate) fn more_caps(&self) -> Result<Vec<u8>, Error> {
        hca_caps(self.core.uverbs(), GENERAL_2)
    }

    /// Steering properties of a port, counted from 1. Since Linux 5.14.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `EINVAL` for a port that does not exist.
    #[doc(alias = "mlx5dv_query_port")]
    pub fn query_vport(&self, port: u32) -> Result<mlx5_ib_uapi_query_port, Error> {
        let mut answer = mlx5_ib_uapi_query_port::default();
        let uverbs = self.core.uverbs();
        let command = uverbs
            .command(UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT)
            .number(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, port)
            .output(MLX5_IB_ATTR_QUERY_PORT, answer.as_mut_bytes());
        // SAFETY: the input is a number.
        unsafe { command.send(&**uverbs.door(), "query_port") }?;
        Ok(answer)
    }

    /// Path of the device with the direct path to a GPU, below `/sys`: in `path`, with a zero at
    /// its end. Since Linux 6.12.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `ENODEV` without such a device, `ENOSPC` for a path that is too short.
    #[doc(alias = "mlx5dv_get_data_direct_sysfs_path")]
    pub fn data_direct_path(&self, path: &mut [u8]) -> Result<(), Error> {
        let uverbs = self.core.uverbs();
        let command = uverbs
            .command(UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH)
            .output(MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH, path);
        // SAFETY: there is no input.
        unsafe { command.send(&**uverbs.door(), "get_data_direct_sysfs_path") }?;
        Ok(())
    }
}

/// General capability list.
pub(crate) fn general_caps(uverbs: &Uverbs) -> Result<Vec<u8>, Error> {
    hca_caps(uverbs, GENERAL)
}

/// Queries a capability list (PRM "QUERY_HCA_CAP"), with its current values.
fn hca_caps(uverbs: &Uverbs, list: u64) -> Result<Vec<u8>, Error> {
    let mut request = [0; HEAD];
    header::cmd_in::OPCODE.set(&mut request, CmdOpcode::QUERY_HCA_CAP.0.into());
    // The lowest bit selects current values instead of maximum values.
    header::cmd_in::OP_MOD.set(&mut request, (list << 1) | 1);
    let mut answer = vec![0; HEAD + LIST];
    // SAFETY: a query, which names no memory.
    unsafe { devx::general(uverbs, &request, &mut answer) }?;
    Ok(answer.split_off(HEAD))
}
