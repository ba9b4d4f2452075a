//! Send queues: posting sends, RDMA and atomics.
//!
//! # Safety
//!
//! Safe posts name only memory whose holder moves into the queue's table, or copy inline. The
//! cursor of a batch comes from `begin`, and the batch borrows the queue, so no other code moves it
//! meanwhile. Raw posts pass on the caller's contract.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts, and has raw posts of its own")]

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::memory::post::{MOST_PIECES, Source, Target};
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{Data, PostError, Remote, SendOp, Sge, Wr};

use crate::provider::Provider;
use crate::raw::RawBatch;
use crate::send::unrung::Unrung;
use crate::transport::{Connected, Rc, Reliable, Transport};
use crate::{Any, Unposted};

/// The posting side of a send queue: a unique value that one thread at a time owns.
///
/// It can be sent to another thread, but not shared:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<uverbs::SendQueue>();
/// ```
///
/// To share one, put it into a lock: that is a different type, so a single owner pays no cost.
#[derive(Debug)]
pub struct SendQueue<P: Provider = Any, T: Transport = Rc> {
    // Before `core`: its pointers go into memory that `core` keeps.
    pub(crate) sq: P::Sq,
    core: Arc<QpCore>,
    pub(crate) domain: u64,
    pub(crate) unrung: Unrung,
    // `Cell` makes it `!Sync` whatever the provider's type is.
    _transport: PhantomData<(T, std::cell::Cell<()>)>,
}

impl<P: Provider, T: Transport> SendQueue<P, T> {
    pub(crate) fn new(core: Arc<QpCore>, sq: P::Sq) -> Self {
        let domain = core.pd().domain();
        Self { sq, core, domain, unrung: Unrung::default(), _transport: PhantomData }
    }

    pub(crate) fn core(&self) -> &Arc<QpCore> {
        &self.core
    }

    /// The number of the queue pair, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.core.qpn()
    }

    /// Brings the queue pair to ERR: everything outstanding, of both halves, comes back flushed.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    pub fn fail(&mut self) -> Result<(), Error> {
        self.core.fail()
    }

    /// Errno of the last doorbell, if the kernel refused it. Only where a doorbell is a command
    /// (rxe, siw, rdmavt). On rxe and siw posts are [`PostError::DoorbellRefused`] until the kernel
    /// takes it; on rdmavt the refused work requests [came back](Self::returned). After `EIO` and
    /// `ENODEV` posts are [`PostError::DeviceGone`].
    #[must_use]
    pub fn doorbell_error(&self) -> Option<Errno> {
        self.sq.doorbell_error()
    }

    /// Number of work requests at the end of the last batch that the kernel refused, and that are
    /// not in the queue: their frames are in their slabs again. The work requests before them are
    /// under way. Only on rdmavt, whose kernel looks at keys when a batch is rung.
    #[must_use]
    #[doc(alias = "bad_wr")]
    pub fn returned(&self) -> u32 {
        self.sq.returned()
    }

    /// The provider's own posting side.
    #[must_use]
    pub fn provider(&self) -> &P::Sq {
        &self.sq
    }

    /// The provider's posting side, for work requests that this library doesn't write.
    ///
    /// # Safety
    ///
    /// The caller is responsible for the work requests posted through it, and leaves the queue
    /// consistent: not swapped for another one, its indexes moved only by posts.
    pub unsafe fn provider_mut(&mut self) -> &mut P::Sq {
        &mut self.sq
    }

    pub(crate) fn enable(&mut self, on: bool) {
        self.sq.enable(on);
    }

    /// The connection was made for no READs of this side.
    pub(crate) fn forbid_reads(&mut self) {
        self.sq.forbid_reads();
    }

    /// Takes back what a batch that was never rung left behind.
    pub(crate) fn forget_unrung(&mut self) {
        let _ = self.sq.begin();
    }

    /// # Safety
    ///
    /// See [`SendOps::reset`].
    pub(crate) unsafe fn reset(&mut self) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.sq.reset() };
    }

    /// Begins a batch. The device sees its work requests only after [`Batch::ring`].
    ///
    /// While it lives the queue is borrowed:
    ///
    /// ```compile_fail,E0499
    /// # fn f(sq: &mut uverbs::SendQueue) {
    /// let one = sq.batch();
    /// let two = sq.batch();
    /// one.ring();
    /// two.ring();
    /// # }
    /// ```
    #[inline(always)]
    #[doc(alias = "ibv_wr_start")]
    pub fn batch(&mut self) -> Batch<'_, P, T> {
        self.unrung.begin();
        let at = self.sq.begin();
        Batch { queue: self, at, _thread: PhantomData }
    }
}

/// Work requests that are written but not published. Dropped or forgotten, they are as if never
/// written; their frames go back to their slabs. A debug build says so once, when the next batch
/// begins or the queue is dropped.
#[derive(Debug)]
#[must_use = "nothing is posted until `ring`"]
pub struct Batch<'q, P: Provider = Any, T: Transport = Rc> {
    pub(crate) queue: &'q mut SendQueue<P, T>,
    pub(crate) at: <P::Sq as SendOps>::Cursor,
    // Not `Send`: a queue that stays on its thread (`OnThread`) is rung there.
    _thread: PhantomData<*const ()>,
}

impl<'q, P: Provider, T: Transport> Batch<'q, P, T> {
    /// Publishes the batch and rings the doorbell once.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// # qp.prepare(&Default::default())?;
    /// # qp.connect_to_self()?;
    /// # let slab = pd.slab(64, 2)?;
    /// # for id in 0..2 { qp.post_recv(id, slab.take().unwrap())?; }
    /// let mut batch = qp.batch();
    /// batch.send_inline(uverbs::Wr::new(10).unsignaled(), b"first")?;
    /// batch.send_inline(11, b"second")?; // its completion tells of both
    /// batch.ring();
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// Never fails if the doorbell is a store. If it is a command, the kernel may refuse it, which
    /// [`SendQueue::doorbell_error`] reports at once. On rxe and siw the work requests then stay in
    /// the queue and don't complete, and the next post reports it ([`PostError::DoorbellRefused`],
    /// [`PostError::DeviceGone`]). On rdmavt [some](SendQueue::returned) come back.
    #[inline(always)]
    #[doc(alias = "ibv_wr_complete")]
    pub fn ring(self) {
        self.queue.unrung.rung();
        // SAFETY: the cursor is of this queue's last `begin`, since the batch borrows the queue
        // from then on.
        unsafe { self.queue.sq.ring(self.at) };
    }

    /// Posts by address and key, with the same names. Raw, and so `unsafe`:
    ///
    /// ```compile_fail,E0133
    /// # fn f(batch: &mut uverbs::Batch<'_>, sge: uverbs::raw::Sge) {
    /// batch.raw().send(1, uverbs::raw::Data::One(sge)).unwrap();
    /// # }
    /// ```
    #[inline]
    pub fn raw(&mut self) -> RawBatch<'_, 'q, P, T> {
        RawBatch { batch: self }
    }

    /// Posts a frame, which its completion gives back, or what else there is.
    #[inline(always)]
    fn data<D: Source>(&mut self, wr: Wr, op: SendOp, data: D) -> Result<(), Unposted<D>> {
        if data.domain() != self.queue.domain {
            return Err(Unposted { error: PostError::ForeignBuffer, data });
        }
        if !D::MAPPED && matches!(op, SendOp::Read(_)) && self.queue.core.brings_data() {
            return Err(Unposted { error: PostError::BadOperation, data });
        }
        if D::LIST {
            let (at, done) = pieces(self.queue, self.at, wr, op, data);
            self.at = at;
            return done;
        }
        let one = data.first();
        self.piece(wr, op, one, data)
    }

    /// Posts an atomic, whose answer goes to the first eight bytes.
    #[inline(always)]
    fn atomic<D: Target>(&mut self, wr: Wr, op: SendOp, data: D) -> Result<(), Unposted<D>> {
        if data.domain() != self.queue.domain {
            return Err(Unposted { error: PostError::ForeignBuffer, data });
        }
        if !D::MAPPED && self.queue.core.brings_data() {
            return Err(Unposted { error: PostError::BadOperation, data });
        }
        let word = first_word(&data);
        self.piece(wr, op, word, data)
    }

    /// Posts a piece of `data`, which is of the queue's domain.
    #[inline(always)]
    fn piece<D: Source>(
        &mut self,
        wr: Wr,
        op: SendOp,
        piece: Sge,
        data: D,
    ) -> Result<(), Unposted<D>> {
        // SAFETY: the data keeps the memory registered, and lets the device use it, as the two
        // traits promise. It moves into the slot of this work request, and stays until completion
        // or destruction.
        let posted = unsafe { self.queue.sq.post(&mut self.at, wr, op, Data::One(piece)) };
        // SAFETY: of the post just made.
        unsafe { self.keep(posted, data) }
    }

    /// Moves `data` into the slot of the work request that names it; gives it back if the post was
    /// refused.
    ///
    /// # Safety
    ///
    /// `posted` is what the last post of this batch answered.
    #[inline(always)]
    pub(crate) unsafe fn keep<D: Source>(
        &mut self,
        posted: Result<u32, PostError>,
        data: D,
    ) -> Result<(), Unposted<D>> {
        match posted {
            Ok(slot) => {
                // SAFETY: the caller upholds this function's contract.
                unsafe { self.queue.sq.own(&self.at, slot, data.hold()) };
                self.queue.unrung.note();
                Ok(())
            }
            Err(error) => Err(Unposted { error, data }),
        }
    }

    #[inline(always)]
    fn inline(&mut self, wr: Wr, op: SendOp, data: &[u8]) -> Result<(), PostError> {
        // SAFETY: the bytes are copied now; no memory is named by key.
        unsafe { self.queue.sq.post(&mut self.at, wr, op, Data::Inline(data)) }
            .map(|_| self.queue.unrung.note())
    }
}

/// SGE for the result of an atomic: the first 8 bytes of `into`. A shorter SGE stays as it is, and
/// the post refuses it.
#[inline(always)]
pub(crate) fn first_word<D: Target>(into: &D) -> Sge {
    let first = into.first();
    Sge { len: first.len.min(8), ..first }
}

/// Posts a chain of frames. By value: the batch stays in registers.
#[inline(never)]
fn pieces<P: Provider, T: Transport, D: Source>(
    queue: &mut SendQueue<P, T>,
    mut at: Cursor<P>,
    wr: Wr,
    op: SendOp,
    data: D,
) -> (Cursor<P>, Result<(), Unposted<D>>) {
    let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; MOST_PIECES];
    let posted = data.pieces(&mut list).and_then(|list| {
        // SAFETY: as in `Batch::piece`, of each piece.
        unsafe { queue.sq.post(&mut at, wr, op, Data::List(list)) }
    });
    match posted {
        Ok(slot) => {
            // SAFETY: the slot of the post just made.
            unsafe { queue.sq.own(&at, slot, data.hold()) };
            queue.unrung.note();
            (at, Ok(()))
        }
        Err(error) => (at, Err(Unposted { error, data })),
    }
}

type Cursor<P> = <<P as uverbs_core::provider::Provider>::Sq as SendOps>::Cursor;

/// The safe posts. They take
///
/// - a [`Frame`](crate::Frame), [a part of one](crate::Frame::part) or [a chain of
///   them](crate::Frame::chain), which the completion gives back;
/// - a [`SharedFrame`](crate::memory::SharedFrame), a part of one or a chain, to send or write: any
///   number of handles may be posted, and the completions give nothing back;
/// - a [part of exposed memory](crate::ExposedMemory::part), also for answers; the completion gives
///   nothing back.
impl<P: Provider, T: Connected> Batch<'_, P, T> {
    /// SEND from a frame, which is the device's from here on:
    ///
    /// ```compile_fail,E0382
    /// # fn f(batch: &mut uverbs::Batch<'_>, frame: uverbs::Frame) {
    /// batch.send(1, frame).unwrap();
    /// println!("{}", frame.len()); // moved away
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data: [`PostError::TooManySges`] for a chain of more
    /// frames than the queue was made for.
    #[inline(always)]
    #[doc(alias = "IBV_WR_SEND")]
    pub fn send<D: Source>(&mut self, wr: impl Into<Wr>, data: D) -> Result<(), Unposted<D>> {
        self.data(wr.into(), SendOp::Send, data)
    }

    /// SEND with immediate data from a frame.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data: [`PostError::TooManySges`] for a chain of more
    /// frames than the queue was made for.
    #[inline(always)]
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    pub fn send_imm<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        imm: u32,
    ) -> Result<(), Unposted<D>> {
        self.data(wr.into(), SendOp::SendImm(imm), data)
    }

    /// RDMA WRITE from a frame to the peer's memory.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data: [`PostError::TooManySges`] for a chain of more
    /// frames than the queue was made for.
    #[inline(always)]
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    pub fn write<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        to: Remote,
    ) -> Result<(), Unposted<D>> {
        self.data(wr.into(), SendOp::Write(to), data)
    }

    /// RDMA WRITE with immediate data, which uses up one of the peer's receives.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data: [`PostError::TooManySges`] for a chain of more
    /// frames than the queue was made for.
    #[inline(always)]
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    pub fn write_imm<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        to: Remote,
        imm: u32,
    ) -> Result<(), Unposted<D>> {
        self.data(wr.into(), SendOp::WriteImm(to, imm), data)
    }

    /// SEND of bytes that are copied into the work request: the program may reuse them at once.
    ///
    /// # Errors
    ///
    /// [`PostError::InlineTooLong`] over the queue pair's `max_inline_data`.
    #[inline(always)]
    #[doc(alias = "IBV_SEND_INLINE")]
    pub fn send_inline(&mut self, wr: impl Into<Wr>, data: &[u8]) -> Result<(), PostError> {
        self.inline(wr.into(), SendOp::Send, data)
    }

    /// SEND with immediate data of copied bytes.
    ///
    /// # Errors
    ///
    /// As [`send_inline`](Self::send_inline).
    #[inline(always)]
    pub fn send_imm_inline(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        imm: u32,
    ) -> Result<(), PostError> {
        self.inline(wr.into(), SendOp::SendImm(imm), data)
    }

    /// RDMA WRITE of copied bytes.
    ///
    /// # Errors
    ///
    /// As [`send_inline`](Self::send_inline).
    #[inline(always)]
    pub fn write_inline(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        to: Remote,
    ) -> Result<(), PostError> {
        self.inline(wr.into(), SendOp::Write(to), data)
    }

    /// RDMA WRITE with immediate data of copied bytes.
    ///
    /// # Errors
    ///
    /// As [`send_inline`](Self::send_inline).
    #[inline(always)]
    pub fn write_imm_inline(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        to: Remote,
        imm: u32,
    ) -> Result<(), PostError> {
        self.inline(wr.into(), SendOp::WriteImm(to, imm), data)
    }
}

/// Safe posts that need a transport with acknowledgements.
///
/// ```compile_fail,E0599
/// # use uverbs::{Any, Batch, Frame, transport::Uc};
/// # fn f(batch: &mut Batch<'_, Any, Uc>, frame: Frame) {
/// let from = uverbs::Remote { addr: 0, rkey: 0 };
/// batch.read(1, frame, from).unwrap(); // UC has no READ
/// # }
/// ```
impl<P: Provider, T: Reliable> Batch<'_, P, T> {
    /// SEND from a frame that also invalidates one of the peer's rkeys, of a [memory
    /// window](crate::memory::MemoryWindow) of type 2. The peer's completion names the key
    /// ([`Completion::invalidated`](crate::Completion::invalidated)).
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data: [`PostError::TooManySges`] for a chain of more
    /// frames than the queue was made for.
    #[inline(always)]
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    #[doc(alias = "ibv_wr_send_inv")]
    pub fn send_invalidate<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        key: u32,
    ) -> Result<(), Unposted<D>> {
        self.data(wr.into(), SendOp::SendInvalidate(key), data)
    }

    /// [`send_invalidate`](Self::send_invalidate) with inline data.
    ///
    /// # Errors
    ///
    /// As [`send_inline`](Self::send_inline).
    #[inline(always)]
    pub fn send_invalidate_inline(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        key: u32,
    ) -> Result<(), PostError> {
        self.inline(wr.into(), SendOp::SendInvalidate(key), data)
    }

    /// RDMA READ of as many bytes as `into` has from the peer's memory.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data: [`PostError::TooManySges`] for a chain of more
    /// frames than the queue was made for.
    #[inline(always)]
    #[doc(alias = "IBV_WR_RDMA_READ")]
    pub fn read<D: Target>(
        &mut self,
        wr: impl Into<Wr>,
        into: D,
        from: Remote,
    ) -> Result<(), Unposted<D>> {
        self.data(wr.into(), SendOp::Read(from), into)
    }

    /// Atomic compare-and-swap on eight aligned bytes of the peer's memory. The old value stands in
    /// the first eight bytes of `into`, in the byte order of this host.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with `into`: [`PostError::BadData`] for data shorter than 8 bytes.
    #[inline(always)]
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub fn compare_swap<D: Target>(
        &mut self,
        wr: impl Into<Wr>,
        into: D,
        remote: Remote,
        compare: u64,
        swap: u64,
    ) -> Result<(), Unposted<D>> {
        let op = SendOp::CompareSwap { remote, compare, swap };
        self.atomic(wr.into(), op, into)
    }

    /// Atomic fetch-and-add on eight aligned bytes of the peer's memory. The old value stands in
    /// the first eight bytes of `into`, in the byte order of this host.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with `into`: [`PostError::BadData`] for data shorter than 8 bytes.
    #[inline(always)]
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub fn fetch_add<D: Target>(
        &mut self,
        wr: impl Into<Wr>,
        into: D,
        remote: Remote,
        add: u64,
    ) -> Result<(), Unposted<D>> {
        self.atomic(wr.into(), SendOp::FetchAdd { remote, add }, into)
    }
}
