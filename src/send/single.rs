//! Single posts: a batch of one, written and rung by one call.

use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::queues::work::{PostError, Remote, Wr};

use crate::provider::Provider;
use crate::transport::{Connected, Reliable, Transport, Ud};
use crate::{Batch, Destination, QueuePair, SendQueue, Unposted};

impl<P: Provider, T: Transport> SendQueue<P, T> {
    #[inline(always)]
    fn single<E>(
        &mut self,
        write: impl FnOnce(&mut Batch<'_, P, T>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut batch = self.batch();
        write(&mut batch)?;
        batch.ring();
        Ok(())
    }
}

/// Writes each single post for a send queue, and for a queue pair whose send queue does it.
macro_rules! singles {
    (
        $kind:ident;
        $($(#[$doc:meta])* $name:ident = $batch:ident($($arg:ident: $of:ty),*) or $error:ty;)*
    ) => {
        impl<P: Provider, T: $kind> SendQueue<P, T> {$(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name(&mut self, wr: impl Into<Wr>, $($arg: $of),*) -> Result<(), $error> {
                self.single(|batch| batch.$batch(wr, $($arg),*))
            }
        )*}

        impl<P: Provider, T: $kind> QueuePair<P, T> {$(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name(&mut self, wr: impl Into<Wr>, $($arg: $of),*) -> Result<(), $error> {
                self.send_queue().$name(wr, $($arg),*)
            }
        )*}
    };
}

singles! {
    Connected;

    /// Posts one SEND and rings: [`Batch::send`] in a batch of one. Several at a time cost less in
    /// one batch.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the frame.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(512)?;
    /// # let mut client = context.queue_pair(&pd, &cq).build()?;
    /// # let mut server = context.queue_pair(&pd, &cq).build()?;
    /// # let here = client.prepare(&Default::default())?;
    /// # let there = server.prepare(&Default::default())?;
    /// # (server.connect(&here)?, client.connect(&there)?);
    /// let slab = pd.slab(64, 2)?;
    /// server.post_recv(1, slab.take().unwrap())?;
    /// client.post_send(2, slab.take().unwrap())?;
    /// # for _ in 0..2 { cq.wait(std::time::Duration::from_secs(20))?.result?; }
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_post_send")]
    post_send = send(frame: Frame) or Unposted;

    /// Posts one SEND with immediate data and rings: [`Batch::send_imm`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the frame.
    post_send_imm = send_imm(frame: Frame, imm: u32) or Unposted;

    /// Posts one RDMA WRITE and rings: [`Batch::write`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the frame.
    post_write = write(frame: Frame, to: Remote) or Unposted;

    /// Posts one RDMA WRITE with immediate data and rings: [`Batch::write_imm`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the frame.
    post_write_imm = write_imm(frame: Frame, to: Remote, imm: u32) or Unposted;

    /// Posts one SEND of copied bytes and rings: [`Batch::send_inline`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`PostError::InlineTooLong`] over the queue pair's `max_inline_data`; [`SendQueue::explain`]
    /// says by how much.
    post_send_inline = send_inline(data: &[u8]) or PostError;

    /// Posts one RDMA WRITE of copied bytes and rings: [`Batch::write_inline`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`PostError::InlineTooLong`] over the queue pair's `max_inline_data`; [`SendQueue::explain`]
    /// says by how much.
    post_write_inline = write_inline(data: &[u8], to: Remote) or PostError;
}

singles! {
    Reliable;

    /// Posts one RDMA READ and rings: [`Batch::read`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the frame.
    post_read = read(frame: Frame, from: Remote) or Unposted;

    /// Posts one compare-and-swap and rings: [`Batch::compare_swap`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the frame: [`PostError::BadData`] for one shorter than 8 bytes.
    post_compare_swap =
        compare_swap(frame: Frame, remote: Remote, compare: u64, swap: u64) or Unposted;

    /// Posts one fetch-and-add and rings: [`Batch::fetch_add`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the frame: [`PostError::BadData`] for one shorter than 8 bytes.
    post_fetch_add = fetch_add(frame: Frame, remote: Remote, add: u64) or Unposted;
}

impl<P: Provider, T: Transport> SendQueue<P, T> {
    /// Adds limit and requested value to the bare error of a refused post. `asked` is the requested
    /// value: bytes, or SGEs.
    ///
    /// A post itself says only why, in one word, since it is on the fast path. Errors without a
    /// limit, such as [`PostError::State`], ignore `asked`.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// let data = [7; 5000];
    /// let error = qp.post_send_inline(1, &data).unwrap_err();
    /// println!("{}", qp.send_queue().explain(error, data.len()));
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[cold]
    #[must_use]
    pub fn explain(&self, error: PostError, asked: usize) -> Error {
        let cap = self.core().cap();
        let (what, limit) = match error {
            PostError::InlineTooLong => {
                ("inline data (max_inline_data)", u64::from(cap.max_inline_data))
            }
            PostError::TooManySges => ("gather list (max_send_sge)", u64::from(cap.max_send_sge)),
            PostError::MessageTooLong => ("message", 1 << 31),
            _ => return error.into(),
        };
        Error::Limit { verb: "post_send", what, value: asked as u64, limit }
    }
}

impl<P: Provider> SendQueue<P, Ud> {
    /// Posts one datagram and rings: [`Batch::send_to`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the frame.
    #[inline(always)]
    pub fn post_send_to(
        &mut self,
        wr: impl Into<Wr>,
        frame: Frame,
        to: &Destination<P>,
    ) -> Result<(), Unposted> {
        self.single(|batch| batch.send_to(wr, frame, to))
    }

    /// Posts one datagram of copied bytes and rings: [`Batch::send_inline_to`] in a batch of one.
    ///
    /// # Errors
    ///
    /// [`PostError`]; [`explain`](Self::explain) has limit and value.
    #[inline(always)]
    pub fn post_send_inline_to(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        to: &Destination<P>,
    ) -> Result<(), PostError> {
        self.single(|batch| batch.send_inline_to(wr, data, to))
    }
}
