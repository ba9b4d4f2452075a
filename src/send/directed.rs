//! Posts that name their destination, on a reliable transport: a target of dynamic connections, by
//! XRC one of the peer's shared receive queues, or by SRD a queue pair.
//!
//! # Safety
//!
//! As in the file of datagrams: safe posts move a frame in or copy, raw posts hand on the caller's
//! promise, and each looks first whether an address handle is of the queue pair's domain.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts, and has raw posts of its own")]

use uverbs_core::memory::post::{MOST_PIECES, Source, Target};
use uverbs_core::queues::work::{Data, PostError, Remote, SendOp, Sge, Wr};

use crate::provider::Provider;
use crate::raw::RawBatch;
use crate::send::queue::first_word;
use crate::transport::directed::{Atomics, Directed};
use crate::{Batch, Unposted};

/// The safe posts of DC, XRC and SRD: each operation of a reliable connection, to a target of
/// dynamic connections, to a shared receive queue, or to a queue pair.
///
/// ```compile_fail,E0599
/// # use uverbs::{Any, Batch, Frame, transport::Dci};
/// # fn f(batch: &mut Batch<'_, Any, Dci>, frame: Frame) {
/// batch.send(1, frame).unwrap(); // to whom?
/// # }
/// ```
impl<P: Provider, T: Directed> Batch<'_, P, T> {
    /// SEND of a frame, or of what else a [`Source`] is.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data.
    #[inline]
    pub fn send_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        to: &T::To<P>,
    ) -> Result<(), Unposted<D>> {
        self.data_to_target(wr.into(), SendOp::Send, data, to)
    }

    /// SEND with immediate data.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data.
    #[inline]
    pub fn send_imm_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        imm: u32,
        to: &T::To<P>,
    ) -> Result<(), Unposted<D>> {
        self.data_to_target(wr.into(), SendOp::SendImm(imm), data, to)
    }

    /// RDMA WRITE to the peer's memory.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data.
    #[inline]
    pub fn write_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        remote: Remote,
        to: &T::To<P>,
    ) -> Result<(), Unposted<D>> {
        self.data_to_target(wr.into(), SendOp::Write(remote), data, to)
    }

    /// RDMA WRITE with immediate data, which uses up one of the receives of the queue that it is
    /// sent to.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data.
    #[inline]
    pub fn write_imm_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        (remote, imm): (Remote, u32),
        to: &T::To<P>,
    ) -> Result<(), Unposted<D>> {
        self.data_to_target(wr.into(), SendOp::WriteImm(remote, imm), data, to)
    }

    /// RDMA READ of as many bytes as `into` has from the peer's memory.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data.
    #[inline]
    pub fn read_from<D: Target>(
        &mut self,
        wr: impl Into<Wr>,
        into: D,
        remote: Remote,
        to: &T::To<P>,
    ) -> Result<(), Unposted<D>> {
        self.data_to_target(wr.into(), SendOp::Read(remote), into, to)
    }

    /// SEND of bytes that are copied into the work request: the program may reuse them at once.
    ///
    /// # Errors
    ///
    /// [`PostError::InlineTooLong`] over the queue pair's `max_inline_data`.
    #[inline]
    pub fn send_inline_to(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        to: &T::To<P>,
    ) -> Result<(), PostError> {
        // SAFETY: the bytes are copied now; no memory is named by key.
        unsafe { self.raw().post_to(wr, SendOp::Send, Data::Inline(data), to) }
    }

    /// RDMA WRITE of copied bytes.
    ///
    /// # Errors
    ///
    /// As [`send_inline_to`](Self::send_inline_to).
    #[inline]
    pub fn write_inline_to(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        remote: Remote,
        to: &T::To<P>,
    ) -> Result<(), PostError> {
        // SAFETY: as in `send_inline_to`.
        unsafe { self.raw().post_to(wr, SendOp::Write(remote), Data::Inline(data), to) }
    }

    #[inline]
    fn data_to_target<D: Source>(
        &mut self,
        wr: Wr,
        op: SendOp,
        data: D,
        to: &T::To<P>,
    ) -> Result<(), Unposted<D>> {
        if !D::LIST {
            let one = Data::One(data.first());
            return self.piece_to_target(wr, op, one, data, to);
        }
        let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; MOST_PIECES];
        match data.pieces(&mut list) {
            Ok(list) => self.piece_to_target(wr, op, Data::List(list), data, to),
            Err(error) => Err(Unposted { error, data }),
        }
    }

    /// Posts pieces of `data`, which holds them.
    #[inline]
    fn piece_to_target<D: Source>(
        &mut self,
        wr: Wr,
        op: SendOp,
        pieces: Data<'_>,
        data: D,
        to: &T::To<P>,
    ) -> Result<(), Unposted<D>> {
        if data.domain() != self.queue.domain {
            return Err(Unposted { error: PostError::ForeignBuffer, data });
        }
        if T::domain(to).is_some_and(|domain| domain != self.queue.domain) {
            return Err(Unposted { error: PostError::ForeignAddress, data });
        }
        // SAFETY: the data keeps the memory registered, and lets the device use it, as the two
        // traits promise. It moves into the slot of this work request, and stays until completion
        // or destruction. The handle's domain is the queue's.
        let posted = unsafe { T::post::<P>(&mut self.queue.sq, &mut self.at, wr, op, to, pieces) };
        // SAFETY: of the post just made.
        unsafe { self.keep(posted, data) }
    }
}

/// Atomics, of DC and XRC.
///
/// ```compile_fail,E0599
/// # use uverbs::{Any, Batch, Destination, Frame, Remote, transport::Srd};
/// # fn f(batch: &mut Batch<'_, Any, Srd>, frame: Frame, remote: Remote, to: &Destination) {
/// batch.fetch_add_at(1, frame, remote, 1, to).unwrap(); // SRD has no atomics
/// # }
/// ```
impl<P: Provider, T: Atomics> Batch<'_, P, T> {
    /// Atomic compare-and-swap on eight aligned bytes of the peer's memory; the old value comes
    /// into the first eight bytes of `into`.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with `into`: [`PostError::BadData`] for data shorter than 8 bytes.
    #[inline]
    pub fn compare_swap_at<D: Target>(
        &mut self,
        wr: impl Into<Wr>,
        into: D,
        remote: Remote,
        (compare, swap): (u64, u64),
        to: &T::To<P>,
    ) -> Result<(), Unposted<D>> {
        let word = first_word(&into);
        let op = SendOp::CompareSwap { remote, compare, swap };
        self.piece_to_target(wr.into(), op, Data::One(word), into, to)
    }

    /// Atomic fetch-and-add on eight aligned bytes of the peer's memory; the old value comes into
    /// the first eight bytes of `into`.
    ///
    /// # Errors
    ///
    /// As [`compare_swap_at`](Self::compare_swap_at).
    #[inline]
    pub fn fetch_add_at<D: Target>(
        &mut self,
        wr: impl Into<Wr>,
        into: D,
        remote: Remote,
        add: u64,
        to: &T::To<P>,
    ) -> Result<(), Unposted<D>> {
        let word = first_word(&into);
        let op = SendOp::FetchAdd { remote, add };
        self.piece_to_target(wr.into(), op, Data::One(word), into, to)
    }
}

impl<P: Provider, T: Directed> RawBatch<'_, '_, P, T> {
    /// Any operation, to where a work request of this transport goes.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline(always)]
    pub unsafe fn post_to(
        &mut self,
        wr: impl Into<Wr>,
        op: SendOp,
        data: Data<'_>,
        to: &T::To<P>,
    ) -> Result<(), PostError> {
        let Batch { queue, at, .. } = &mut *self.batch;
        if T::domain(to).is_some_and(|domain| domain != queue.domain) {
            return Err(PostError::ForeignAddress);
        }
        // SAFETY: the caller upholds this function's contract; the cursor is of this queue's last
        // `begin`, and the
        // handle's domain is the queue's.
        unsafe { T::post::<P>(&mut queue.sq, at, wr.into(), op, to, data) }
            .map(|_| queue.unrung.note())
    }
}
