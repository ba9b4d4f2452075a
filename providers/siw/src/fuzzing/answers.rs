//! A kernel that answers anything to the commands by which a software iWARP device is opened and
//! used.

use std::sync::Arc;

use uverbs_core::provider::Provider;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_SIW;

use crate::Siw;
use crate::tests::kernel::Kernel;
use uverbs_kernel_rings::testing::{Liar, objects};

/// Opens a device, makes objects and uses them. Whatever the kernel answers, each command returns
/// an object or an error, posts stay within their rings, and all objects are destroyed.
pub fn siw_answers(data: &[u8]) {
    let liar = Liar::new(Arc::new(Kernel::default()), |_, _, _| false, data);
    let opened = Siw::open(Arc::clone(&liar).core(RDMA_DRIVER_SIW));
    if let Err(error) = opened.and_then(|context| objects::<Siw>(&context, &liar)) {
        assert!(!error.to_string().is_empty());
    }
    liar.check();
}
