//! Operations that completion counters count.

use bitflags::bitflags;
use uverbs_kernel_abi::comp_cntr as abi;

bitflags! {
    /// Operations of a queue pair that a completion counter counts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_qp_attach_comp_cntr_op")]
    pub struct CountedOps: u32 {
        /// SENDs of the queue pair.
        const SEND = abi::IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_SEND;
        /// Receives.
        const RECV = abi::IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV;
        /// RDMA READs of the queue pair.
        const READ = abi::IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_READ;
        /// RDMA READs of peers.
        const REMOTE_READ = abi::IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ;
        /// RDMA WRITEs of the queue pair.
        const WRITE = abi::IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE;
        /// RDMA WRITEs of peers.
        const REMOTE_WRITE = abi::IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE;
        const _ = !0;
    }
}

/// Completion counters that a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_comp_cntr_caps")]
pub struct CounterCaps {
    /// Number of counters.
    pub max_counters: u32,
    /// Largest value of a count. The next one is 0.
    pub max_value: u64,
    /// Operations that the device counts.
    pub ops: CountedOps,
}
