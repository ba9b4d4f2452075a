//! Rights of memory regions and queue pairs.

use bitflags::bitflags;
use uverbs_kernel_abi::mr as abi;

bitflags! {
    /// Access rights of a memory region, or of a queue pair's peer. Local read is always granted.
    ///
    /// IBTA vol 1, 10.6.3.1; numbers of `enum ib_uverbs_access_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_access_flags")]
    pub struct AccessFlags: u32 {
        /// The device may write for local work requests: receives, and the results of READs and
        /// atomics.
        #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
        const LOCAL_WRITE = abi::IB_UVERBS_ACCESS_LOCAL_WRITE;
        /// The peer may RDMA WRITE. `expose` adds [`Self::LOCAL_WRITE`]; `register` needs it.
        #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
        const REMOTE_WRITE = abi::IB_UVERBS_ACCESS_REMOTE_WRITE;
        /// The peer may RDMA READ.
        #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
        const REMOTE_READ = abi::IB_UVERBS_ACCESS_REMOTE_READ;
        /// The peer may do atomics. `expose` adds [`Self::LOCAL_WRITE`]; `register` needs it.
        #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
        const REMOTE_ATOMIC = abi::IB_UVERBS_ACCESS_REMOTE_ATOMIC;
        /// Memory windows may be bound to the region.
        #[doc(alias = "IBV_ACCESS_MW_BIND")]
        const MW_BIND = abi::IB_UVERBS_ACCESS_MW_BIND;
        /// Zero-based: addresses are offsets from the region's start, not from its iova.
        #[doc(alias = "IBV_ACCESS_ZERO_BASED")]
        const ZERO_BASED = abi::IB_UVERBS_ACCESS_ZERO_BASED;
        /// On-demand paging: pages are not pinned; the device faults them in.
        #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
        const ON_DEMAND = abi::IB_UVERBS_ACCESS_ON_DEMAND;
        /// The region lies in huge pages (on-demand paging only).
        #[doc(alias = "IBV_ACCESS_HUGETLB")]
        const HUGETLB = abi::IB_UVERBS_ACCESS_HUGETLB;
        /// The peer may FLUSH to where all of the host sees it (Linux 6.2; IBTA vol 1, annex A19).
        #[doc(alias = "IBV_ACCESS_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = 1 << 8;
        /// The peer may FLUSH to persistence (memory that keeps its content without power).
        #[doc(alias = "IBV_ACCESS_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = 1 << 9;
        /// Relaxed ordering: the device may write out of order on PCI. Optional: a device without
        /// it ignores the flag.
        #[doc(alias = "IBV_ACCESS_RELAXED_ORDERING")]
        const RELAXED_ORDERING = abi::IB_UVERBS_ACCESS_RELAXED_ORDERING;
        /// Rights of newer kernels, unknown here.
        const _ = !0;
    }
}

impl AccessFlags {
    /// The flags without the optional ones.
    ///
    /// Needed by kernels whose context lacks `IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS`, which
    /// reject optional flags (rdma-core `libibverbs/verbs.c`, `ibv_reg_mr_iova2`).
    #[must_use]
    pub const fn without_optional(self) -> Self {
        Self::from_bits_retain(self.bits() & !abi::IB_UVERBS_ACCESS_OPTIONAL_RANGE)
    }

    /// Returns true if a region may have these rights: remote write and atomics need local write.
    #[must_use]
    pub const fn is_valid_for_region(self) -> bool {
        let remote = Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC);
        !self.intersects(remote) || self.contains(Self::LOCAL_WRITE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_rights_can_be_left_off() {
        let all = AccessFlags::LOCAL_WRITE
            | AccessFlags::RELAXED_ORDERING
            | AccessFlags::from_bits_retain(1 << 29);
        assert_eq!(all.without_optional(), AccessFlags::LOCAL_WRITE);
        let later = AccessFlags::from_bits_retain(1 << 30);
        assert_eq!(later.without_optional(), later);
    }

    #[test]
    fn remote_write_needs_local_write() {
        assert!(AccessFlags::REMOTE_READ.is_valid_for_region());
        assert!(!AccessFlags::REMOTE_WRITE.is_valid_for_region());
        assert!(!AccessFlags::REMOTE_ATOMIC.is_valid_for_region());
        assert!((AccessFlags::REMOTE_ATOMIC | AccessFlags::LOCAL_WRITE).is_valid_for_region());
    }
}
