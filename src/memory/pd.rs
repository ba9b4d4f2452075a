//! Protection domains, and memory registered in them.

use std::sync::Arc;

use uverbs_core::objects::pd::PdCore;

/// A protection domain: queue pairs and memory that may meet. A cheap handle.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// let pd = context.alloc_pd()?;
/// let frames = pd.slab(2048, 64)?; // to send from and receive into
/// let shared = pd.expose(4096, uverbs::AccessFlags::REMOTE_READ)?; // for peers to read
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain {
    core: Arc<PdCore>,
}

impl ProtectionDomain {
    pub(crate) fn new(core: Arc<PdCore>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Arc<PdCore> {
        &self.core
    }

    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.handle()
    }
}
