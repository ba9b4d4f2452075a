//! Enhanced connection establishment (ECE): what two devices of a vendor agree on besides, by
//! options that only the vendor knows.

use uverbs_kernel_abi::rdma_cm::rdma_ucm_ece;

/// Enhanced connection establishment (ECE): what two devices of a vendor agree on besides, by
/// options that only the vendor knows. Kernels before 5.8 leave it out, and so does iWARP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_ece")]
#[doc(alias = "rdma_set_local_ece")]
pub struct Ece {
    /// The vendor's number, of 24 bits; 0 says nothing.
    pub vendor: u32,
    /// The options.
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

/// How a driver takes options: by its part of the extended MODIFY_QP.
#[derive(Debug)]
pub struct EceDriver {
    /// Whose options they are.
    pub vendor: u32,
    /// The driver's request.
    pub request: fn(u32) -> Vec<u8>,
    /// Bytes of its answer.
    pub answer: usize,
    /// The options in it.
    pub granted: fn(&[u8]) -> u32,
}
