//! An open device: the exchange with the kernel driver, and its response.
//!
//! # Safety
//!
//! Commands contain numbers only.
#![allow(unsafe_code, reason = "sends a command")]

use std::sync::{Arc, OnceLock};

use uverbs_core::attr::{DeviceAttr, LinkLayer, PortAttr};
use uverbs_core::commands::device::ContextInfo;
use uverbs_core::error::Error;
use uverbs_core::memory::dbrec::Dbrecs;
use uverbs_core::memory::pool::Pool;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::queues::user_index::UserIndexes;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY, MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE,
    MLX5_IB_ALLOC_UCTX_DEVX, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, MLX5_IB_ATTR_QUERY_PD_HANDLE,
    MLX5_IB_ATTR_QUERY_PD_RESP_PDN, MLX5_IB_METHOD_PD_QUERY, MLX5_LIB_CAP_4K_UAR,
    MLX5_LIB_CAP_DYN_UAR, MLX5_USER_CMDS_SUPP_UHW_CREATE_AH, mlx5_ib_alloc_ucontext_req_v2,
    mlx5_ib_alloc_ucontext_resp, mlx5_ib_query_device_resp,
};
use uverbs_kernel_abi::objects::UVERBS_OBJECT_PD;
use zerocopy::IntoBytes;

use crate::create::size::Limits;
use crate::device::clock::Clock;
use crate::device::reserved::Reserved;
use crate::device::uar::Uars;

const OPEN: &str = "open_device";
const IMPORT: &str = "import_device";

/// Requested doorbell registers, and how many of them have low latency: rdma-core's defaults.
/// Kernels with dynamic UARs ignore them. Older kernels require them, and are then rejected here
/// with a clear error.
const TOTAL_BFREGS: u32 = 16;
const LOW_LATENCY_BFREGS: u32 = 4;

/// Completions carry the user index.
const CQE_VERSION: u8 = 1;

/// Properties of a port that address handles need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) ethernet: bool,
    pub(crate) grh_required: bool,
}

/// An open ConnectX.
#[derive(Debug)]
pub struct Context {
    pub(crate) uars: Uars,
    /// Memory of queues and doorbell records.
    pub(crate) memory: Pool,
    pub(crate) dbrecs: Dbrecs,
    pub(crate) indexes: UserIndexes,
    pub(crate) limits: Limits,
    /// True if queue pairs support enhanced connection establishment.
    pub(crate) ece: bool,
    /// True if CREATE_AH returns the peer's MAC address.
    pub(crate) tells_mac: bool,
    /// True if it was opened with DEVX.
    devx: bool,
    pub(crate) reserved: Reserved,
    pub(crate) clock: Clock,
    /// The driver's part of QUERY_DEVICE, once queried.
    pub(crate) caps: OnceLock<Box<mlx5_ib_query_device_resp>>,
    /// Local key that names no memory (dump fill).
    pub(crate) dump_fill: Option<u32>,
    device: DeviceAttr,
    /// Properties of each port, once queried.
    ports: Box<[OnceLock<Port>]>,
    pub(crate) core: Arc<ContextCore>,
}

impl Context {
    /// Sends `GET_CONTEXT`, queries the device's limits, and allocates the page that completion
    /// queues are armed through. Commands and order follow rdma-core `mlx5.c:mlx5_alloc_context`,
    /// without the optional ones. Requests DEVX, as rdma-core does; resetting a DCI stream needs
    /// it.
    pub(crate) fn open(core: Arc<ContextCore>) -> Result<Self, Error> {
        is_mlx5(OPEN, &core)?;
        let mut request = mlx5_ib_alloc_ucontext_req_v2 {
            flags: MLX5_IB_ALLOC_UCTX_DEVX,
            total_num_bfregs: TOTAL_BFREGS,
            num_low_latency_bfregs: LOW_LATENCY_BFREGS,
            max_cqe_version: CQE_VERSION,
            lib_caps: MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
            ..Default::default()
        };
        let mut answer = mlx5_ib_alloc_ucontext_resp::default();
        let mut ask = |request: &mlx5_ib_alloc_ucontext_req_v2| {
            core.uverbs().get_context(request.as_bytes(), answer.as_mut_bytes())
        };
        let info = ask(&request).or_else(|_| {
            // The device or the kernel has no DEVX.
            request.flags = 0;
            ask(&request)
        })?;
        let devx = request.flags & MLX5_IB_ALLOC_UCTX_DEVX != 0;
        Ok(Self { devx, ..Self::new(OPEN, core, info, &answer)? })
    }

    /// Sends `QUERY_CONTEXT`, then continues as [`open`](Self::open) (rdma-core
    /// `mlx5.c:mlx5_import_context`). Since Linux 5.9.
    pub(crate) fn import(core: Arc<ContextCore>) -> Result<Self, Error> {
        is_mlx5(IMPORT, &core)?;
        let mut answer = mlx5_ib_alloc_ucontext_resp::default();
        let id = MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX;
        let info = core.uverbs().query_context(id, answer.as_mut_bytes())?;
        Self::new(IMPORT, core, info, &answer)
    }

    fn new(
        verb: &'static str,
        core: Arc<ContextCore>,
        info: ContextInfo,
        answer: &mlx5_ib_alloc_ucontext_resp,
    ) -> Result<Self, Error> {
        // Kernels without DYN_UAR (mlx5_ib before 5.8) allocate static registers, and an imported
        // device may also have them.
        if answer.tot_bfregs != 0 {
            let what = "static UARs (the kernel is older than Linux 5.8: update it)".to_owned();
            return Err(Error::Unsupported { verb, what });
        }
        if answer.cqe_version != CQE_VERSION {
            let what = format!("CQE version {} (this library supports 1)", answer.cqe_version);
            return Err(Error::Unsupported { verb, what });
        }
        let has_dump_fill = answer.comp_mask & MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY != 0;
        let device = core.uverbs().query_device_ex(&mut [])?;
        let uars = Uars::open(&core, answer.bf_reg_size, answer.num_uars_per_page)?;
        let memory = Pool::of(core.uverbs().door())?;
        Ok(Self {
            uars,
            dbrecs: Dbrecs::new(&memory),
            memory,
            indexes: UserIndexes::default(),
            limits: Limits::new(answer, &device, info.num_comp_vectors),
            tells_mac: answer.cmds_supp_uhw & MLX5_USER_CMDS_SUPP_UHW_CREATE_AH != 0,
            ece: answer.comp_mask & MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE != 0,
            devx: false,
            reserved: Reserved::default(),
            clock: Clock::new(answer),
            caps: OnceLock::new(),
            dump_fill: has_dump_fill.then_some(answer.dump_fill_mkey),
            ports: vec![OnceLock::new(); device.phys_port_count.into()].into(),
            device,
            core,
        })
    }

    /// Returns true if the device was opened with [DEVX](crate::devx). False for an imported
    /// device, for which it is unknown.
    #[must_use]
    pub fn has_devx(&self) -> bool {
        self.devx
    }

    /// Capabilities and limits, read when the device was opened.
    pub(crate) fn attr(&self) -> &DeviceAttr {
        &self.device
    }

    /// Properties of a port, counted from 1. Queried once; rdma-core queries when the device is
    /// opened, and also keeps the result (`mlx5.c:mlx5_set_context`, `cached_link_layer`).
    pub(crate) fn port(&self, number: u8) -> Result<Port, Error> {
        let slot = self.ports.get(usize::from(number).wrapping_sub(1));
        if let Some(port) = slot.and_then(OnceLock::get) {
            return Ok(*port);
        }
        let PortAttr { link_layer, grh_required, .. } = self.core.uverbs().query_port(number)?;
        let port = Port { ethernet: link_layer == LinkLayer::Ethernet, grh_required };
        Ok(*slot.map_or(&port, |slot| slot.get_or_init(|| port)))
    }
}

/// Rejects a device of another driver.
fn is_mlx5(verb: &'static str, core: &ContextCore) -> Result<(), Error> {
    let driver = core.uverbs().driver_id();
    if driver == RDMA_DRIVER_MLX5 {
        return Ok(());
    }
    let what = format!("drivers other than mlx5_ib (RDMA driver id {driver})");
    Err(Error::Unsupported { verb, what })
}

impl Context {
    /// Device number of a protection domain, for DEVX commands. Since Linux 5.9.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    #[doc(alias = "mlx5dv_pd")]
    pub fn pdn(&self, pd: &PdCore) -> Result<u32, Error> {
        self.pd_number("query_pd", pd.handle())
    }

    /// As [`pdn`](Self::pdn), by the kernel's handle.
    pub(crate) fn pd_number(&self, verb: &'static str, handle: u32) -> Result<u32, Error> {
        let mut pdn = [0; 4];
        let uverbs = self.core.uverbs();
        let command = uverbs
            .command(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY)
            .handle_in(MLX5_IB_ATTR_QUERY_PD_HANDLE, handle)
            .output(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, &mut pdn);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**uverbs.door(), verb) }?;
        Ok(u32::from_ne_bytes(pdn))
    }

    /// Rejects features that need an Ethernet port.
    pub(crate) fn check_ethernet(&self, verb: &'static str) -> Result<(), Error> {
        for number in 1..=self.device.phys_port_count {
            if self.port(number)?.ethernet {
                return Ok(());
            }
        }
        Err(Error::Unsupported { verb, what: "raw packets on an InfiniBand port".to_owned() })
    }
}
