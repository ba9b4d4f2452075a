//! The device's clock.

use uverbs_core::error::Error;
use uverbs_core::provider::ContextOps;

use crate::Context;
use crate::provider::Provider;

#[doc(inline)]
pub use uverbs_core::objects::clock::{ClockReading, DeviceClock};

impl<P: Provider> Context<P> {
    /// The device's clock, which gives completions their
    /// [timestamps](crate::Completion::timestamp), and its conversion to the time of day. It maps a
    /// page or two; keep it.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// # qp.prepare(&Default::default())?;
    /// # qp.connect_to_self()?;
    /// # qp.post_recv(1, pd.slab(64, 1)?.take().expect("free"))?;
    /// # qp.post_send_inline(2, b"now")?;
    /// let clock = context.clock()?;
    /// let reading = clock.read()?; // before each burst, or now and then
    /// cq.poll_with(32, |completion| {
    ///     if let Some(timestamp) = completion.timestamp() {
    ///         println!("completed at {:?}", reading.time_of(timestamp));
    ///     }
    /// });
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a device without a clock (soft-RoCE); [`Error::System`] if it
    /// can't be mapped.
    pub fn clock(&self) -> Result<DeviceClock, Error> {
        self.provider().map_clock()
    }
}
