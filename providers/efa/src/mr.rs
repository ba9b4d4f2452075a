//! Query of memory regions.
//!
//! # Safety
//!
//! The command reads, and writes its answer to local variables.
#![allow(unsafe_code, reason = "sends a command of the driver's own")]

use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_kernel_abi::efa::{
    EFA_IB_ATTR_QUERY_MR_HANDLE, EFA_IB_ATTR_QUERY_MR_RESP_IC_ID_VALIDITY,
    EFA_IB_ATTR_QUERY_MR_RESP_RDMA_READ_IC_ID, EFA_IB_ATTR_QUERY_MR_RESP_RDMA_RECV_IC_ID,
    EFA_IB_ATTR_QUERY_MR_RESP_RECV_IC_ID, EFA_IB_METHOD_MR_QUERY,
    EFA_QUERY_MR_VALIDITY_RDMA_READ_IC_ID, EFA_QUERY_MR_VALIDITY_RDMA_RECV_IC_ID,
    EFA_QUERY_MR_VALIDITY_RECV_IC_ID,
};
use uverbs_kernel_abi::objects::UVERBS_OBJECT_MR;

/// Interconnects by which a device reaches a memory region, where it tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "efadv_mr_attr")]
pub struct Interconnects {
    /// Interconnect of receives.
    pub recv: Option<u16>,
    /// Interconnect of RDMA READs from the region.
    pub rdma_read: Option<u16>,
    /// Interconnect of RDMA WRITEs to the region, and of data that READs bring.
    pub rdma_recv: Option<u16>,
}

/// Queries the interconnects of a memory region, by its handle.
///
/// # Errors
///
/// The kernel's: `EPROTONOSUPPORT` if it lacks the query.
#[doc(alias = "efadv_query_mr")]
pub fn interconnects(uverbs: &Uverbs, mr: u32) -> Result<Interconnects, Error> {
    let [mut validity, mut recv, mut read, mut rdma_recv] = [[0; 2]; 4];
    let command = uverbs
        .command(UVERBS_OBJECT_MR, EFA_IB_METHOD_MR_QUERY)
        .handle_in(EFA_IB_ATTR_QUERY_MR_HANDLE, mr)
        .output(EFA_IB_ATTR_QUERY_MR_RESP_IC_ID_VALIDITY, &mut validity)
        .output(EFA_IB_ATTR_QUERY_MR_RESP_RECV_IC_ID, &mut recv)
        .output(EFA_IB_ATTR_QUERY_MR_RESP_RDMA_READ_IC_ID, &mut read)
        .output(EFA_IB_ATTR_QUERY_MR_RESP_RDMA_RECV_IC_ID, &mut rdma_recv);
    // SAFETY: a query; the outputs are local variables of their size.
    unsafe { command.send(&**uverbs.door(), "query_mr") }?;
    let valid = |bit, id| (u16::from_ne_bytes(validity) & bit != 0).then(|| u16::from_ne_bytes(id));
    Ok(Interconnects {
        recv: valid(EFA_QUERY_MR_VALIDITY_RECV_IC_ID, recv),
        rdma_read: valid(EFA_QUERY_MR_VALIDITY_RDMA_READ_IC_ID, read),
        rdma_recv: valid(EFA_QUERY_MR_VALIDITY_RDMA_RECV_IC_ID, rdma_recv),
    })
}
