//! Enhanced connection establishment (ECE): options that two devices of one vendor negotiate when
//! they connect. Only the vendor knows their meaning.

use uverbs_kernel_abi::rdma_cm::rdma_ucm_ece;

/// Enhanced connection establishment (ECE): options that two devices of one vendor negotiate when
/// they connect. Only the vendor knows their meaning. Kernels before 5.8 and iWARP have no ECE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_ece")]
#[doc(alias = "rdma_set_local_ece")]
pub struct Ece {
    /// Vendor number, 24 bits; 0 means no options.
    pub vendor: u32,
    /// Option bits, defined by the vendor.
    pub options: u32,
}

impl From<rdma_ucm_ece> for Ece {
    fn from(ece: rdma_ucm_ece) -> Self {
        Self { vendor: ece.vendor_id, options: ece.attr_mod }
    }
}

impl From<Ece> for rdma_ucm_ece {
    fn from(ece: Ece) -> Self {
        Self { vendor_id: ece.vendor, attr_mod: ece.options }
    }
}

/// ECE support of a driver: how it passes options in its part of the extended MODIFY_QP.
#[derive(Debug)]
pub struct EceDriver {
    /// Vendor whose options the driver takes.
    pub vendor: u32,
    /// Builds the driver's part of the request from option bits.
    pub request: fn(u32) -> Vec<u8>,
    /// Bytes of the driver's response.
    pub answer: usize,
    /// Reads the granted option bits from the driver's response.
    pub granted: fn(&[u8]) -> u32,
}
