//! Dynamic connections (DC), of ConnectX: one initiator reaches any number of targets, reliably,
//! and connects to each as it posts.
//!
//! # Safety
//!
//! As in the file of datagrams: safe posts move a frame in or copy, raw posts hand on the caller's
//! promise, and each looks first whether the address handle is of the queue pair's domain.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts, and has raw posts of its own")]

use uverbs_core::attr::{AhAttr, DciInitAttr, DciRtrAttr};
use uverbs_core::error::Error;
use uverbs_core::memory::post::{MOST_PIECES, Source, Target};
use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{self, Data, PostError, Remote, SendOp, Sge, Wr};

use crate::connect::{Prepared, path, route};
use crate::provider::Provider;
use crate::sq::first_word;
use crate::transport::{Connected, Dci, Rc};
use crate::{AddressHandle, Any, Batch, DcEndpoint, Local, QueuePair, RawBatch, Rejected};

/// Where a work request of an initiator goes: the way, the target's number, and its key.
#[derive(Debug)]
pub struct DcDestination<P: Provider = Any> {
    ah: AddressHandle<P>,
    dctn: u32,
    key: u64,
}

impl<P: Provider> Clone for DcDestination<P> {
    fn clone(&self) -> Self {
        Self { ah: self.ah.clone(), ..*self }
    }
}

impl<P: Provider> AddressHandle<P> {
    /// A target of dynamic connections behind this handle.
    #[must_use]
    #[doc(alias = "mlx5dv_wr_set_dc_addr")]
    pub fn to_target(&self, dctn: u32, key: u64) -> DcDestination<P> {
        DcDestination { ah: self.clone(), dctn, key }
    }
}

impl<P: Provider> DcDestination<P> {
    /// The target's number.
    #[must_use]
    pub fn dctn(&self) -> u32 {
        self.dctn
    }

    #[inline]
    fn as_work(&self) -> work::DcDestination<'_, P::Ah> {
        work::DcDestination { ah: self.ah.provider(), dctn: self.dctn, key: self.key }
    }
}

/// An initiator of dynamic connections.
impl<P: Provider> QueuePair<P, Dci> {
    /// Brings it all the way to RTS: each post names its target, so there is no peer to wait for.
    ///
    /// # Errors
    ///
    /// As for a connected queue pair's [`prepare`](QueuePair::prepare).
    pub fn bring_up(&mut self, local: &Local) -> Result<(), Error> {
        self.whole()?;
        let at = self.recv.home.context.local_port(local)?;
        let most = u8::try_from(at.device.max_qp_init_rd_atom).unwrap_or(u8::MAX);
        let psn = local.psn.unwrap_or_else(|| self.recv.home.context.random_psn());
        let path_mtu = at.path_mtu()?;
        self.init(&DciInitAttr { port: local.port, pkey_index: local.pkey_index })?;
        self.ready_to_receive(&DciRtrAttr { path_mtu })?;
        self.ready_to_send(&Rc::rts(psn, local, local.rd_atomic.min(most)))?;
        self.recv.home.prepared = Some(Prepared::new(&at, self.qpn(), psn));
        Ok(())
    }

    /// Where work requests to a target go, from the port that this was
    /// [brought up](Self::bring_up) on. Keep it for many of them.
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless brought up; [`Error::MissingAttribute`] and [`Error::Invalid`] for a
    /// GID that can't be reached; as [`Context::create_ah`](crate::Context::create_ah).
    pub fn destination(&self, to: &DcEndpoint) -> Result<DcDestination<P>, Error> {
        let Prepared { local, gid, link, .. } = self.brought_up()?;
        let route = route(*link, gid.as_ref(), to.gid)?;
        let attr = AhAttr { port: local.port, path: path(local, to.lid, route) };
        let ah = self.recv.home.context.create_ah_of(self.core().pd(), &attr)?;
        Ok(ah.to_target(to.dctn, to.key))
    }
}

/// Of the safe posts: each operation of a reliable connection, to a target.
///
/// ```compile_fail,E0599
/// # use uverbs::{Any, Batch, Frame, transport::Dci};
/// # fn f(batch: &mut Batch<'_, Any, Dci>, frame: Frame) {
/// batch.send(1, frame).unwrap(); // to whom?
/// # }
/// ```
impl<P: Provider> Batch<'_, P, Dci> {
    /// SEND of a frame, or of what else a [`Source`] is, to a target.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with what was to be posted.
    #[inline]
    pub fn send_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        to: &DcDestination<P>,
    ) -> Result<(), Rejected<D>> {
        self.data_to_target(wr.into(), SendOp::Send, data, to)
    }

    /// SEND with immediate data.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with what was to be posted.
    #[inline]
    pub fn send_imm_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        imm: u32,
        to: &DcDestination<P>,
    ) -> Result<(), Rejected<D>> {
        self.data_to_target(wr.into(), SendOp::SendImm(imm), data, to)
    }

    /// RDMA WRITE to a target's memory.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with what was to be posted.
    #[inline]
    pub fn write_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        remote: Remote,
        to: &DcDestination<P>,
    ) -> Result<(), Rejected<D>> {
        self.data_to_target(wr.into(), SendOp::Write(remote), data, to)
    }

    /// RDMA WRITE with immediate data, which uses up one of the target's receives.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with what was to be posted.
    #[inline]
    pub fn write_imm_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        (remote, imm): (Remote, u32),
        to: &DcDestination<P>,
    ) -> Result<(), Rejected<D>> {
        self.data_to_target(wr.into(), SendOp::WriteImm(remote, imm), data, to)
    }

    /// RDMA READ of as many bytes as `into` has from a target's memory.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with what was to be posted.
    #[inline]
    pub fn read_from<D: Target>(
        &mut self,
        wr: impl Into<Wr>,
        into: D,
        remote: Remote,
        to: &DcDestination<P>,
    ) -> Result<(), Rejected<D>> {
        self.data_to_target(wr.into(), SendOp::Read(remote), into, to)
    }

    /// Atomic compare-and-swap on eight aligned bytes of a target's memory; the old value comes
    /// into the first eight bytes of `into`.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with `into`: [`PostError::BadData`] for what is shorter than 8 bytes.
    #[inline]
    pub fn compare_swap_at<D: Target>(
        &mut self,
        wr: impl Into<Wr>,
        into: D,
        remote: Remote,
        (compare, swap): (u64, u64),
        to: &DcDestination<P>,
    ) -> Result<(), Rejected<D>> {
        let word = first_word(&into);
        let op = SendOp::CompareSwap { remote, compare, swap };
        self.piece_to_target(wr.into(), op, Data::One(word), into, to)
    }

    /// Atomic fetch-and-add on eight aligned bytes of a target's memory; the old value comes into
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
        to: &DcDestination<P>,
    ) -> Result<(), Rejected<D>> {
        let word = first_word(&into);
        let op = SendOp::FetchAdd { remote, add };
        self.piece_to_target(wr.into(), op, Data::One(word), into, to)
    }

    /// SEND of bytes that are copied into the work request: they are yours at once.
    ///
    /// # Errors
    ///
    /// [`PostError::InlineTooLong`] over the queue pair's `max_inline_data`.
    #[inline]
    pub fn send_inline_to(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        to: &DcDestination<P>,
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
        to: &DcDestination<P>,
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
        to: &DcDestination<P>,
    ) -> Result<(), Rejected<D>> {
        if !D::LIST {
            let one = Data::One(data.first());
            return self.piece_to_target(wr, op, one, data, to);
        }
        let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; MOST_PIECES];
        match data.pieces(&mut list) {
            Ok(list) => self.piece_to_target(wr, op, Data::List(list), data, to),
            Err(error) => Err(Rejected { error, data }),
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
        to: &DcDestination<P>,
    ) -> Result<(), Rejected<D>> {
        if data.domain() != self.queue.domain {
            return Err(Rejected { error: PostError::ForeignBuffer, data });
        }
        if to.ah.domain() != self.queue.domain {
            return Err(Rejected { error: PostError::ForeignAddress, data });
        }
        // SAFETY: the memory is registered for as long as what holds it lives, and it is the
        // device's to use as the two traits promise; what holds it moves into the slot of this work
        // request, and stays until completion or destruction. The handle's domain is the queue's.
        let posted = unsafe { self.queue.sq.post_dc(&mut self.at, wr, op, to.as_work(), pieces) };
        // SAFETY: of the post just made.
        unsafe { self.keep(posted, data) }
    }
}

impl<P: Provider> RawBatch<'_, '_, P, Dci> {
    /// Any operation to a target.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`].
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    #[inline]
    pub unsafe fn post_to(
        &mut self,
        wr: impl Into<Wr>,
        op: SendOp,
        data: Data<'_>,
        to: &DcDestination<P>,
    ) -> Result<(), PostError> {
        let Batch { queue, at, .. } = &mut *self.batch;
        if to.ah.domain() != queue.domain {
            return Err(PostError::ForeignAddress);
        }
        // SAFETY: the caller's promise; the cursor is of this queue's last `begin`, and the
        // handle's domain is the queue's.
        unsafe { queue.sq.post_dc(at, wr.into(), op, to.as_work(), data) }
            .map(|_| queue.unrung.note())
    }
}
