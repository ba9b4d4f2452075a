//! Attributes of MODIFY_QP by mask, as the kernel has them.

use bitflags::bitflags;
use uverbs_kernel_abi::qp as abi;

/// The kernel's attributes of a queue pair, for a change by mask: those of MODIFY_QP in `base`, and
/// the rate limit.
#[doc(alias = "ibv_qp_attr")]
pub type RawQpAttr = abi::ib_uverbs_ex_modify_qp;

bitflags! {
    /// Which attributes a change by mask names. `enum ib_qp_attr_mask`; bits that are unknown here
    /// are passed on.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_qp_attr_mask")]
    pub struct QpAttrMask: u32 {
        /// The state to go to.
        const STATE = abi::IB_QP_STATE;
        /// The state that it is in, where the device went there by itself.
        const CUR_STATE = abi::IB_QP_CUR_STATE;
        /// An event when the send queue is drained.
        const EN_SQD_ASYNC_NOTIFY = abi::IB_QP_EN_SQD_ASYNC_NOTIFY;
        /// What the peer may do.
        const ACCESS_FLAGS = abi::IB_QP_ACCESS_FLAGS;
        /// Index into the port's P_Key table.
        const PKEY_INDEX = abi::IB_QP_PKEY_INDEX;
        /// Port.
        const PORT = abi::IB_QP_PORT;
        /// Q_Key.
        const QKEY = abi::IB_QP_QKEY;
        /// The way to the peer.
        const AV = abi::IB_QP_AV;
        /// Largest packet payload.
        const PATH_MTU = abi::IB_QP_PATH_MTU;
        /// How long to wait for an acknowledgement.
        const TIMEOUT = abi::IB_QP_TIMEOUT;
        /// Retries after a timeout.
        const RETRY_CNT = abi::IB_QP_RETRY_CNT;
        /// Retries after receiver-not-ready.
        const RNR_RETRY = abi::IB_QP_RNR_RETRY;
        /// PSN expected first.
        const RQ_PSN = abi::IB_QP_RQ_PSN;
        /// READs and atomics outstanding at the peer.
        const MAX_QP_RD_ATOMIC = abi::IB_QP_MAX_QP_RD_ATOMIC;
        /// The other way to the peer.
        const ALT_PATH = abi::IB_QP_ALT_PATH;
        /// How long the peer shall wait when no receive is posted.
        const MIN_RNR_TIMER = abi::IB_QP_MIN_RNR_TIMER;
        /// First PSN sent.
        const SQ_PSN = abi::IB_QP_SQ_PSN;
        /// READs and atomics the peer may have outstanding here.
        const MAX_DEST_RD_ATOMIC = abi::IB_QP_MAX_DEST_RD_ATOMIC;
        /// Whether the connection may move to its alternate path.
        const PATH_MIG_STATE = abi::IB_QP_PATH_MIG_STATE;
        /// Sizes; the kernel refuses them.
        const CAP = abi::IB_QP_CAP;
        /// The peer's number.
        const DEST_QPN = abi::IB_QP_DEST_QPN;
        /// Kilobits per second: only by the extended command.
        const RATE_LIMIT = abi::IB_QP_RATE_LIMIT;
        const _ = !0;
    }
}
