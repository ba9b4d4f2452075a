//! Receives that complete out of order: limits of the device, and setup of a queue pair (rdma-core
//! `verbs.c:mlx5_get_max_recv_wr`, `is_qpt_ooo_sup`).
//!
//! # Safety
//!
//! The driver's part of the change to INIT names no memory.
#![allow(unsafe_code, reason = "tells the driver by its own struct")]

use uverbs_core::attr::{QpCap, QpType};
use uverbs_core::error::Error;
use uverbs_core::objects::qp_object::QpObject;
use uverbs_core::provider::QpInit;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_MODIFY_QP_OOO_DP, MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP, mlx5_ib_modify_qp,
};
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap::{
    DP_ORDERING_OOO_ALL_DC, DP_ORDERING_OOO_ALL_RC, DP_ORDERING_OOO_ALL_UC, DP_ORDERING_OOO_ALL_UD,
    DP_ORDERING_OOO_ALL_XRC,
};
use zerocopy::IntoBytes;

use crate::Context;
use crate::create::size::RecvSize;

const VERB: &str = "create_qp";

/// Maximum receives of an out-of-order queue; 0 if unsupported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "mlx5dv_ooo_recv_wrs_caps")]
pub struct OutOfOrderCaps {
    /// Reliable connection.
    pub rc: u32,
    /// Shared receive queue of XRC.
    pub xrc: u32,
    /// Shared receive queue of dynamic connections.
    pub dc: u32,
    /// Datagrams.
    pub ud: u32,
    /// Unreliable connection.
    pub uc: u32,
}

impl OutOfOrderCaps {
    fn of(&self, qp_type: QpType) -> u32 {
        match qp_type {
            QpType::Rc => self.rc,
            QpType::Uc => self.uc,
            QpType::Ud => self.ud,
            QpType::XrcIni => self.xrc,
            QpType::Dci | QpType::Dct => self.dc,
            QpType::RawPacket | QpType::Srd => 0,
        }
    }
}

impl Context {
    /// Queries the limits of out-of-order receives; `None` if the kernel (such as 6.12) or the
    /// device does not support them.
    ///
    /// # Errors
    ///
    /// The errors of [`driver_caps`](Self::driver_caps).
    pub fn out_of_order_caps(&self) -> Result<Option<OutOfOrderCaps>, Error> {
        if self.driver_caps()?.flags & MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP == 0 {
            return Ok(None);
        }
        // Unsupported on a device that was opened without DEVX.
        let Ok(general) = self.general_caps() else { return Ok(Some(OutOfOrderCaps::default())) };
        let all = self.limits.recv_entries;
        // The ring of a queue pair has twice as many places; see `recv_size`.
        let half = if all > 1 { all / 2 } else { all };
        let of = |field: Field, most| if field.is_set(&general) { most } else { 0 };
        Ok(Some(OutOfOrderCaps {
            rc: of(DP_ORDERING_OOO_ALL_RC, half),
            xrc: of(DP_ORDERING_OOO_ALL_XRC, all),
            dc: of(DP_ORDERING_OOO_ALL_DC, all),
            ud: of(DP_ORDERING_OOO_ALL_UD, half),
            uc: of(DP_ORDERING_OOO_ALL_UC, half),
        }))
    }

    /// Size of a queue pair's receive queue, and its maximum receives. An out-of-order queue may
    /// use half of its ring, so that a slow receive keeps its place while others complete. For a
    /// capacity of one receive rdma-core does not double the ring, which may then be full; here it
    /// is doubled, too.
    pub(crate) fn recv_size(&self, init: &QpInit) -> Result<(RecvSize, u32), Error> {
        let most = match init.out_of_order {
            true => self.check_out_of_order(init.qp_type)?,
            false => 0,
        };
        let asked = if init.srq.is_some() { 0 } else { init.cap.max_recv_wr };
        let own = matches!(init.qp_type, QpType::Rc | QpType::Uc | QpType::Ud);
        let doubles = init.out_of_order && own && asked != 0;
        let mut cap = QpCap { max_recv_wr: asked, ..init.cap };
        if doubles {
            Error::limit(VERB, "max_recv_wr", asked, most)?;
            cap.max_recv_wr = 2 * asked;
        }
        let recv = RecvSize::of_qp(&cap, &self.limits)?;
        Ok((recv, recv.entries >> u32::from(doubles)))
    }

    /// Maximum receives of an out-of-order queue pair of this type.
    fn check_out_of_order(&self, qp_type: QpType) -> Result<u32, Error> {
        match self.out_of_order_caps()?.unwrap_or_default().of(qp_type) {
            0 => {
                let what = format!("out-of-order receives of {qp_type:?}");
                Err(Error::Unsupported { verb: VERB, what })
            }
            most => Ok(most),
        }
    }
}

/// Enables out-of-order receives at the queue pair's change to INIT (rdma-core
/// `verbs.c:mlx5_modify_qp`).
///
/// # Safety
///
/// The poller does not take a completed receive as the completion of earlier ones: the queue pair
/// was created with [`QpInit::out_of_order`], or has no receive queue.
pub unsafe fn announce(qp: &QpObject) {
    let comp_mask = MLX5_IB_MODIFY_QP_OOO_DP;
    let request = mlx5_ib_modify_qp { comp_mask, ..Default::default() };
    // SAFETY: mlx5_ib's part of MODIFY_QP contains numbers only.
    unsafe { qp.tell_at_init(request.as_bytes().to_vec()) };
}
