//! Raw posts: memory is named by address and key.
//!
//! # Safety
//!
//! Each post passes on the caller's contract. The cursor is the batch's, which borrows the queue.
#![allow(unsafe_code, reason = "posts that are the caller's promise")]

use uverbs_core::provider::SendOps;
use uverbs_core::queues::layout::KeyLayout;
use uverbs_core::queues::work::{PostError, Remote, Wr};

use crate::provider::Provider;
use crate::transport::{Connected, Rc, Reliable, Transport};
use crate::{Any, Batch};

#[doc(inline)]
pub use uverbs_core::attr::RawQpAttr;
#[doc(inline)]
pub use uverbs_core::queues::work::{Data, Rekey, SendOp, Sge};

/// Raw posts of a batch: memory is named by address and key, and keeping it alive is the caller's
/// part.
///
/// The contract of every method here: if the batch is rung, the local memory that `data` names by
/// key stays registered, and is not written by the program (nor read, for READ and atomics, to
/// which the device writes), until the completion of this or a later work request of the queue was
/// polled, or the queue pair was destroyed, or the region deregistered. Inline data is copied at
/// once.
///
/// On a queue pair built to [`scatter_to_cqe`](crate::QueuePairBuilder::scatter_to_cqe) polling
/// writes answers, too: where READs and atomics name memory, it is mapped here at the address that
/// they name, writable, and stays so until their completion was polled, or the queue pair was
/// destroyed and its completion queue polled afterwards.
#[derive(Debug)]
pub struct RawBatch<'b, 'q, P: Provider = Any, T: Transport = Rc> {
    pub(crate) batch: &'b mut Batch<'q, P, T>,
}

impl<P: Provider, T: Connected> RawBatch<'_, '_, P, T> {
    /// Any operation that the transport has; [`PostError::BadOperation`] for another one.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline(always)]
    #[doc(alias = "ibv_post_send")]
    pub unsafe fn post(
        &mut self,
        wr: impl Into<Wr>,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        if !T::RELIABLE && op.needs_reliable() {
            return Err(PostError::BadOperation);
        }
        let Batch { queue, at, .. } = &mut *self.batch;
        // SAFETY: the caller upholds this function's contract; the cursor is of this queue's last
        // `begin`.
        unsafe { queue.sq.post(at, wr.into(), op, data) }.map(|_| queue.unrung.note())
    }
}

impl<P: Provider, T: Connected> RawBatch<'_, '_, P, T> {
    /// Binds a window, or invalidates a key, of whatever region. The queue pair is built for it, as
    /// for [`Batch::bind`].
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`], of the memory that a window is bound to, for as long as it is
    /// bound.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline]
    pub unsafe fn rekey(&mut self, wr: impl Into<Wr>, op: &Rekey) -> Result<(), PostError> {
        let Batch { queue, at, .. } = &mut *self.batch;
        // SAFETY: the caller upholds this function's contract; the cursor is of this queue's last
        // `begin`.
        unsafe { queue.sq.rekey(at, wr.into(), op) }.map(|_| queue.unrung.note())
    }

    /// Gives an indirect key parts of whatever regions. The queue pair is built for it, as for
    /// [`Batch::map_list`].
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`], of the memory that the parts name, until the key has other
    /// parts, is invalidated or destroyed.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[doc(alias = "mlx5dv_wr_mkey_configure")]
    pub unsafe fn lay_out(
        &mut self,
        wr: impl Into<Wr>,
        op: &KeyLayout<'_>,
    ) -> Result<(), PostError> {
        let Batch { queue, at, .. } = &mut *self.batch;
        // SAFETY: the caller upholds this function's contract; the cursor is of this queue's last
        // `begin`.
        unsafe { queue.sq.lay_out(at, wr.into(), op) }.map(|_| queue.unrung.note())
    }

    /// SEND.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline]
    pub unsafe fn send(&mut self, wr: impl Into<Wr>, data: Data<'_>) -> Result<(), PostError> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.post(wr, SendOp::Send, data) }
    }

    /// SEND with immediate data.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline]
    pub unsafe fn send_imm(
        &mut self,
        wr: impl Into<Wr>,
        data: Data<'_>,
        imm: u32,
    ) -> Result<(), PostError> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.post(wr, SendOp::SendImm(imm), data) }
    }

    /// RDMA WRITE.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline]
    pub unsafe fn write(
        &mut self,
        wr: impl Into<Wr>,
        data: Data<'_>,
        to: Remote,
    ) -> Result<(), PostError> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.post(wr, SendOp::Write(to), data) }
    }

    /// RDMA WRITE with immediate data.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline]
    pub unsafe fn write_imm(
        &mut self,
        wr: impl Into<Wr>,
        data: Data<'_>,
        to: Remote,
        imm: u32,
    ) -> Result<(), PostError> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.post(wr, SendOp::WriteImm(to, imm), data) }
    }
}

impl<P: Provider, T: Reliable> RawBatch<'_, '_, P, T> {
    /// RDMA READ into a scatter list.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline]
    pub unsafe fn read(
        &mut self,
        wr: impl Into<Wr>,
        into: &[Sge],
        from: Remote,
    ) -> Result<(), PostError> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.post(wr, SendOp::Read(from), Data::List(into)) }
    }

    /// Atomic compare-and-swap; the old value goes to `into`, of eight bytes.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline]
    pub unsafe fn compare_swap(
        &mut self,
        wr: impl Into<Wr>,
        into: Sge,
        remote: Remote,
        compare: u64,
        swap: u64,
    ) -> Result<(), PostError> {
        let op = SendOp::CompareSwap { remote, compare, swap };
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.post(wr, op, Data::One(into)) }
    }

    /// Atomic fetch-and-add; the old value goes to `into`, of eight bytes.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline]
    pub unsafe fn fetch_add(
        &mut self,
        wr: impl Into<Wr>,
        into: Sge,
        remote: Remote,
        add: u64,
    ) -> Result<(), PostError> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.post(wr, SendOp::FetchAdd { remote, add }, Data::One(into)) }
    }
}
