//! Requests of QP.CREATE, with the checks of core and driver and their errnos.

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{
    MLX5_QP_FLAG_ALLOW_SCATTER_CQE, MLX5_QP_FLAG_BFREG_INDEX, MLX5_QP_FLAG_DCI_STREAM,
    MLX5_QP_FLAG_SCATTER_CQE, MLX5_QP_FLAG_TYPE_DCI, MLX5_QP_FLAG_TYPE_DCT,
    MLX5_QP_FLAG_UAR_PAGE_INDEX, mlx5_ib_create_qp,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_QP_CAP, UVERBS_ATTR_CREATE_QP_EVENT_FD, UVERBS_ATTR_CREATE_QP_FLAGS,
    UVERBS_ATTR_CREATE_QP_HANDLE, UVERBS_ATTR_CREATE_QP_PD_HANDLE,
    UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE,
    UVERBS_ATTR_CREATE_QP_SOURCE_QPN, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, UVERBS_ATTR_CREATE_QP_TYPE,
    UVERBS_ATTR_CREATE_QP_USER_HANDLE, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE,
};
use uverbs_kernel_abi::qp::{
    IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK, IB_UVERBS_QP_CREATE_CVLAN_STRIPPING,
    IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING, IB_UVERBS_QP_CREATE_SCATTER_FCS,
    IB_UVERBS_QP_CREATE_SQ_SIG_ALL, IB_UVERBS_QPT_DRIVER, IB_UVERBS_QPT_RAW_PACKET,
    IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC, IB_UVERBS_QPT_UD, IB_UVERBS_QPT_XRC_INI,
    IB_UVERBS_QPT_XRC_TGT, ib_uverbs_qp_cap,
};

use crate::backend::context::Service;
use crate::kernel::call::{Call, zero_extended};

/// Bytes of a WQEBB.
const WQEBB: u64 = 64;
/// `MLX5_IB_DEFAULT_UIDX`: no user index.
const DEFAULT_UIDX: u32 = 0xff_ffff;
/// A client's request after the checks of the core and of `check_qp_type`.
pub(crate) struct Asked {
    pub(crate) service: Service,
    pub(crate) cap: ib_uverbs_qp_cap,
    pub(crate) user_handle: u64,
    pub(crate) pd: u32,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) srq: Option<u32>,
    pub(crate) sq_sig_all: bool,
    /// Raw packet QP: the VLAN tag goes into the CQE.
    pub(crate) strips_vlan: bool,
    /// Event file, if one is given.
    pub(crate) event_file: Option<u32>,
    pub(crate) handle: u32,
}

impl Asked {
    /// Selects the driver's QP type (`process_vendor_flags`, `check_qp_attr`).
    pub(crate) fn subtype(&mut self, flags: u32) -> Result<(), Errno> {
        let kind = flags & (MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT);
        match (self.service, kind) {
            (Service::Dci, MLX5_QP_FLAG_TYPE_DCI) => {
                match (self.cap.max_recv_wr, self.cap.max_recv_sge) {
                    (0, 0) => Ok(()),
                    _ => Err(Errno::EINVAL),
                }
            }
            (Service::Dci, MLX5_QP_FLAG_TYPE_DCT) => {
                self.service = Service::Dct;
                Ok(())
            }
            (Service::Dci, _) | (_, 1..) => Err(Errno::EINVAL),
            (_, 0) => Ok(()),
        }
    }

    pub(crate) fn read(call: &Call<'_>, kind: u8) -> Result<Self, Errno> {
        let cap: ib_uverbs_qp_cap = call.input(UVERBS_ATTR_CREATE_QP_CAP)?;
        let user_handle: u64 = call.input(UVERBS_ATTR_CREATE_QP_USER_HANDLE)?;
        let srq = call.object(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
        if call.has(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE)
            || srq.is_some() && kind == IB_UVERBS_QPT_XRC_INI
        {
            return Err(Errno::EINVAL);
        }
        let pd = call.object(UVERBS_ATTR_CREATE_QP_PD_HANDLE).ok_or(Errno::ENOENT)?;
        let send_cq = call.object(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE).ok_or(Errno::ENOENT)?;
        let recv_cq = match call.object(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE) {
            Some(handle) => handle,
            None if kind == IB_UVERBS_QPT_XRC_INI => send_cq,
            None => return Err(Errno::ENOENT),
        };
        let flags = flags(call)?;
        check_flags(kind, flags & !IB_UVERBS_QP_CREATE_SQ_SIG_ALL)?;
        let service = service(kind)?;
        if let Some(srq) = srq
            && call.file.objects.srq(srq)?.is_xrc
        {
            return Err(Errno::EINVAL);
        }
        // `process_create_flags`: a source QPN is for datagrams over an Ethernet underlay.
        if call.has(UVERBS_ATTR_CREATE_QP_SOURCE_QPN) {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(Self {
            cap,
            user_handle,
            service,
            pd,
            send_cq,
            recv_cq,
            srq,
            sq_sig_all: flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0,
            strips_vlan: flags & IB_UVERBS_QP_CREATE_CVLAN_STRIPPING != 0,
            event_file: call.object(UVERBS_ATTR_CREATE_QP_EVENT_FD),
            handle: call.object(UVERBS_ATTR_CREATE_QP_HANDLE).ok_or(Errno::ENOENT)?,
        })
    }
}

/// Kind of the queue pair, if the core knows it.
pub(crate) fn kind(call: &Call<'_>) -> Result<u8, Errno> {
    let kind = call.constant(UVERBS_ATTR_CREATE_QP_TYPE, u64::from(u32::MAX))?;
    let kind = u8::try_from(kind).map_err(|_| Errno::EINVAL)?;
    match kind {
        // CAP_NET_RAW is not required, since the device is the program's.
        IB_UVERBS_QPT_RAW_PACKET
        | IB_UVERBS_QPT_RC
        | IB_UVERBS_QPT_UC
        | IB_UVERBS_QPT_UD
        | IB_UVERBS_QPT_XRC_INI
        | IB_UVERBS_QPT_XRC_TGT
        | IB_UVERBS_QPT_DRIVER => Ok(kind),
        _ => Err(Errno::EINVAL),
    }
}

pub(crate) fn flags(call: &Call<'_>) -> Result<u32, Errno> {
    call.flags(
        UVERBS_ATTR_CREATE_QP_FLAGS,
        IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK
            | IB_UVERBS_QP_CREATE_SCATTER_FCS
            | IB_UVERBS_QP_CREATE_CVLAN_STRIPPING
            | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING
            | IB_UVERBS_QP_CREATE_SQ_SIG_ALL,
    )
}

/// Transport service of a QP type (`check_qp_type`). Refuses transports that the device lacks.
fn service(kind: u8) -> Result<Service, Errno> {
    match kind {
        IB_UVERBS_QPT_RC => Ok(Service::Rc),
        IB_UVERBS_QPT_UC => Ok(Service::Uc),
        IB_UVERBS_QPT_UD => Ok(Service::Ud),
        IB_UVERBS_QPT_XRC_INI => Ok(Service::Xrc),
        IB_UVERBS_QPT_RAW_PACKET => Ok(Service::Raw),
        // The driver's flags may change it to a DC target.
        IB_UVERBS_QPT_DRIVER => Ok(Service::Dci),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Checks creation flags (`check_creation_flags`).
pub(crate) fn check_flags(kind: u8, flags: u32) -> Result<(), Errno> {
    if flags == 0 || kind == IB_UVERBS_QPT_DRIVER {
        return Ok(());
    }
    if kind == IB_UVERBS_QPT_RAW_PACKET && flags == IB_UVERBS_QP_CREATE_CVLAN_STRIPPING {
        return Ok(());
    }
    let raw_only = IB_UVERBS_QP_CREATE_SCATTER_FCS | IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;
    if kind != IB_UVERBS_QPT_UD || flags & raw_only != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Parses the driver's request (`process_udata_size`, `check_ucmd_data`, `process_vendor_flags`,
/// `get_qp_uidx`).
pub(crate) fn driver_request(call: &Call<'_>) -> Result<mlx5_ib_create_qp, Errno> {
    // Requests of clients without ECE end here.
    let shortest = std::mem::offset_of!(mlx5_ib_create_qp, ece_options);
    let bytes = call.driver_input()?;
    if bytes.len() < shortest {
        return Err(Errno::EINVAL);
    }
    if let Some(tail) = bytes.get(size_of::<mlx5_ib_create_qp>()..)
        && tail.iter().any(|byte| *byte != 0)
    {
        return Err(Errno::EINVAL);
    }
    let request: mlx5_ib_create_qp = zero_extended(&bytes);
    let known = MLX5_QP_FLAG_SCATTER_CQE
        | MLX5_QP_FLAG_ALLOW_SCATTER_CQE
        | MLX5_QP_FLAG_TYPE_DCI
        | MLX5_QP_FLAG_TYPE_DCT
        | MLX5_QP_FLAG_DCI_STREAM
        | MLX5_QP_FLAG_BFREG_INDEX
        | MLX5_QP_FLAG_UAR_PAGE_INDEX;
    if request.flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let cqe_version = call.file.context.as_ref().map_or(0, |context| context.cqe_version);
    match fits(request.uidx, cqe_version) {
        true => Ok(request),
        false => Err(Errno::EINVAL),
    }
}

/// True if a user index is valid (`verify_assign_uidx`).
pub(crate) fn fits(uidx: u32, cqe_version: u8) -> bool {
    match cqe_version {
        0 => uidx == DEFAULT_UIDX,
        _ => uidx < DEFAULT_UIDX,
    }
}

/// Checked sizes of the queues.
pub(crate) struct Queues {
    pub(crate) sq_count: u32,
    pub(crate) rq_count: u32,
    pub(crate) rq_shift: u32,
}

impl Queues {
    /// Checks the sizes as `set_rq_size`, `set_user_buf_size` and firmware do.
    pub(crate) fn check(
        call: &Call<'_>,
        asked: &Asked,
        request: &mlx5_ib_create_qp,
    ) -> Result<Self, Errno> {
        let config = &call.device.config;
        let most_recv = 1u32 << config.log_max_rq_entries;
        let most_send = 1u32 << config.log_max_wqebbs;
        if asked.cap.max_recv_wr > most_recv {
            return Err(Errno::EINVAL);
        }
        // `qp_has_rq`: with an SRQ, the receive queue's parameters are ignored.
        let none = asked.srq.is_some() || asked.service == Service::Xrc;
        let rq_count = if none { 0 } else { request.rq_wqe_count };
        let (sq_count, rq_shift) = (request.sq_wqe_count, request.rq_wqe_shift);
        if rq_count != 0 {
            let largest = u32::from(config.max_rq_desc).ilog2();
            if rq_count > most_recv || !(4..=largest).contains(&rq_shift) {
                return Err(Errno::EINVAL);
            }
        }
        if sq_count != 0 && (!sq_count.is_power_of_two() || sq_count > most_send) {
            return Err(Errno::EINVAL);
        }
        if u64::from(config.max_sq_desc) < WQEBB {
            return Err(Errno::EINVAL);
        }
        Ok(Self { sq_count, rq_count, rq_shift })
    }

    /// Log2 of the receive queue's entries for firmware: `rq_count` need not be a power of two, and
    /// is rounded down to one (`log_rq_size` in `_create_user_qp`).
    pub(crate) fn log_rq_entries(&self) -> Option<u32> {
        self.rq_count.checked_ilog2()
    }

    /// Bytes of the receive queue on the device.
    pub(crate) fn rq_bytes(&self) -> u64 {
        self.log_rq_entries().map_or(0, |log| 1 << (log + self.rq_shift))
    }

    pub(crate) fn sq_bytes(&self) -> u64 {
        u64::from(self.sq_count) * WQEBB
    }

    /// Log2 of the send queue's WQEBBs.
    pub(crate) fn log_sq_units(&self) -> u8 {
        self.sq_count.trailing_zeros() as u8
    }

    /// Bytes to pin (`set_user_buf_size`).
    pub(crate) fn bytes(&self) -> u64 {
        let receives = match self.rq_count {
            0 => 0,
            count => u64::from(count) << self.rq_shift,
        };
        receives + self.sq_bytes()
    }

    /// Capabilities for QUERY_QP (`mlx5_ib_query_qp`): only the provider knows the send side of a
    /// user's QP.
    pub(crate) fn cap(&self) -> ib_uverbs_qp_cap {
        ib_uverbs_qp_cap {
            max_recv_wr: self.rq_count,
            max_recv_sge: match self.rq_count {
                0 => 0,
                _ => (1 << self.rq_shift) / 16,
            },
            ..ib_uverbs_qp_cap::default()
        }
    }
}
