//! Attributes of MODIFY_QP with a mask, in the kernel's form.

use bitflags::bitflags;
use uverbs_kernel_abi::qp as abi;

/// Attributes of a queue pair in the kernel's form, for a change by mask: `base` has MODIFY_QP's
/// attributes, and the rate limit follows.
#[doc(alias = "ibv_qp_attr")]
pub type RawQpAttr = abi::ib_uverbs_ex_modify_qp;

bitflags! {
    /// Attributes that a change by mask names. Numbers of `enum ib_qp_attr_mask`; unknown bits are
    /// passed on.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_qp_attr_mask")]
    pub struct QpAttrMask: u32 {
        /// State to enter.
        const STATE = abi::IB_QP_STATE;
        /// Current state, if the device itself changed it.
        const CUR_STATE = abi::IB_QP_CUR_STATE;
        /// Event when the send queue is drained.
        const EN_SQD_ASYNC_NOTIFY = abi::IB_QP_EN_SQD_ASYNC_NOTIFY;
        /// Access rights granted to the peer.
        const ACCESS_FLAGS = abi::IB_QP_ACCESS_FLAGS;
        /// Index into the port's P_Key table.
        const PKEY_INDEX = abi::IB_QP_PKEY_INDEX;
        /// Port.
        const PORT = abi::IB_QP_PORT;
        /// Q_Key.
        const QKEY = abi::IB_QP_QKEY;
        /// Path to the peer (address vector).
        const AV = abi::IB_QP_AV;
        /// Largest packet payload.
        const PATH_MTU = abi::IB_QP_PATH_MTU;
        /// Acknowledgement timeout.
        const TIMEOUT = abi::IB_QP_TIMEOUT;
        /// Retries after a timeout.
        const RETRY_CNT = abi::IB_QP_RETRY_CNT;
        /// RNR retries.
        const RNR_RETRY = abi::IB_QP_RNR_RETRY;
        /// First PSN expected.
        const RQ_PSN = abi::IB_QP_RQ_PSN;
        /// READs and atomics outstanding at the peer.
        const MAX_QP_RD_ATOMIC = abi::IB_QP_MAX_QP_RD_ATOMIC;
        /// Alternate path to the peer.
        const ALT_PATH = abi::IB_QP_ALT_PATH;
        /// RNR timer.
        const MIN_RNR_TIMER = abi::IB_QP_MIN_RNR_TIMER;
        /// First PSN sent.
        const SQ_PSN = abi::IB_QP_SQ_PSN;
        /// READs and atomics that the peer may have outstanding here.
        const MAX_DEST_RD_ATOMIC = abi::IB_QP_MAX_DEST_RD_ATOMIC;
        /// Path migration state.
        const PATH_MIG_STATE = abi::IB_QP_PATH_MIG_STATE;
        /// Capacities; the kernel rejects the bit.
        const CAP = abi::IB_QP_CAP;
        /// The peer's QP number.
        const DEST_QPN = abi::IB_QP_DEST_QPN;
        /// Rate limit in kilobits per second; extended command only.
        const RATE_LIMIT = abi::IB_QP_RATE_LIMIT;
        const _ = !0;
    }
}
