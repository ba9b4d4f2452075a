//! The region of no memory.

use uverbs_core::error::Error;
use uverbs_core::provider::ContextOps;
use uverbs_core::queues::work::Sge;

use crate::Context;
use crate::provider::Provider;

/// A region without memory: receives into it discard the data, and sends from it carry zeros. Only
/// local work requests can use it, of any protection domain.
///
/// ```
/// # use uverbs::AccessFlags;
/// # use uverbs::raw::Data;
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// # let mut qp = context.queue_pair(&pd, &cq).max_recv_sge(2).build()?;
/// # qp.prepare(&Default::default())?;
/// # qp.connect_to_self()?;
/// let nothing = context.null_region()?;
/// let body = pd.expose(4096, AccessFlags::empty())?;
/// let mut batch = qp.recv_batch();
/// // SAFETY: `body` stays registered until the completion was polled.
/// unsafe { batch.post_raw(1, &[nothing.sge(64), body.sge(0, 4096)]) }?; // a header isn't wanted
/// batch.ring();
/// # qp.post_send_inline(2, &[7; 66])?;
/// # cq.wait(std::time::Duration::from_secs(20))?.result?;
/// # cq.wait(std::time::Duration::from_secs(20))?.result?;
/// # let mut bytes = [0; 3];
/// # body.read(0, &mut bytes)?;
/// # assert_eq!(bytes, [7, 7, 0]);
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_alloc_null_mr")]
pub struct NullRegion {
    lkey: u32,
}

impl NullRegion {
    /// Local key.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// SGE of `len` bytes of the null region.
    #[must_use]
    pub fn sge(&self, len: u32) -> Sge {
        Sge { addr: 0, len, lkey: self.lkey }
    }
}

impl<P: Provider> Context<P> {
    /// The region of no memory. Nothing is allocated: the device has one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a device without a null region (soft-RoCE), and before Linux 4.19.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn null_region(&self) -> Result<NullRegion, Error> {
        let lkey = self.provider().null_lkey().ok_or_else(|| Error::Unsupported {
            verb: "alloc_null_mr",
            what: "null memory regions".to_owned(),
        })?;
        Ok(NullRegion { lkey })
    }
}
