//! Making a queue pair: transport, sizes, completion queues.

use std::marker::PhantomData;
use std::sync::Arc;

use uverbs_core::attr::{DciStreams, DoorbellMode, QpCap, QpType, SendOpSet};
use uverbs_core::error::Error;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::provider::{ContextOps, NewQp, QpInit};

use crate::SharedReceiveQueue;
use crate::provider::Provider;
use crate::qp::prepared::Home;
use crate::recv::shared::Feeds;
use crate::transport::{Dci, RawPacket, Rc, Srd, Transport, Uc, Ud, XrcIni};
use crate::{Any, CompletionQueue, Context, ProtectionDomain, QueuePair, RecvQueue, SendQueue};

/// Builder of a queue pair: sizes, completion queues, doorbell mode.
///
/// Defaults are those in [`QpCap::default`]: 128 sends and 128 receives outstanding, each with one
/// SGE, and 64 bytes inline. A completion queue that serves both kinds then needs 256 entries.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// let qp = context.queue_pair(&pd, &cq).max_send_wr(64).max_recv_wr(192).max_recv_sge(2).build()?;
/// println!("the device gave {:?}", qp.cap());
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_qp_init_attr")]
pub struct QueuePairBuilder<P: Provider = Any, T: Transport = Rc> {
    context: Context<P>,
    init: QpInit,
    _transport: PhantomData<T>,
}

impl<P: Provider> QueuePairBuilder<P> {
    pub(crate) fn new(context: Context<P>, pd: &ProtectionDomain, cq: &CompletionQueue<P>) -> Self {
        let init = QpInit::new(Arc::clone(pd.core()), Arc::clone(cq.core()), Arc::clone(cq.core()));
        Self { context, init, _transport: PhantomData }
    }

    /// Selects an unreliable connection (UC) instead of a reliable one (RC).
    #[must_use]
    #[doc(alias = "IBV_QPT_UC")]
    pub fn uc(self) -> QueuePairBuilder<P, Uc> {
        self.transport()
    }

    /// Selects unreliable datagrams (UD) instead of a reliable connection (RC).
    #[must_use]
    #[doc(alias = "IBV_QPT_UD")]
    pub fn ud(self) -> QueuePairBuilder<P, Ud> {
        self.transport()
    }

    /// Selects scalable reliable datagrams (SRD) instead of a reliable connection (RC).
    #[must_use]
    #[doc(alias = "efadv_create_qp_ex")]
    pub fn srd(self) -> QueuePairBuilder<P, Srd> {
        self.transport()
    }

    /// An initiator of XRC, which receives nothing.
    #[must_use]
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    pub fn xrc(self) -> QueuePairBuilder<P, XrcIni> {
        self.transport()
    }

    /// Selects raw packets: whole Ethernet frames.
    #[must_use]
    #[doc(alias = "IBV_QPT_RAW_PACKET")]
    pub fn raw_packet(self) -> QueuePairBuilder<P, RawPacket> {
        self.transport()
    }

    /// An initiator of dynamic connections, which receives nothing.
    #[must_use]
    #[doc(alias = "mlx5dv_create_qp")]
    pub fn dci(self) -> QueuePairBuilder<P, Dci> {
        self.transport()
    }
}

impl<P: Provider> QueuePairBuilder<P, Dci> {
    /// Makes an error stop only the stream of its work request
    /// ([`DcDestination::on_stream`](crate::dc::DcDestination::on_stream)), until the stream is
    /// [reset](QueuePair::reset_stream). By default an error stops the initiator.
    #[must_use]
    #[doc(alias = "MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS")]
    pub fn streams(mut self, streams: DciStreams) -> Self {
        self.init.streams = Some(streams);
        self
    }
}

impl<P: Provider, T: Transport> QueuePairBuilder<P, T> {
    /// Selects the transport `U`, for code that is generic over transports.
    #[must_use]
    pub fn transport<U: Transport>(mut self) -> QueuePairBuilder<P, U> {
        self.init.qp_type = U::TYPE;
        if is_initiator(U::TYPE) {
            (self.init.cap.max_recv_wr, self.init.cap.max_recv_sge) = (0, 0);
        }
        let Self { context, init, .. } = self;
        QueuePairBuilder { context, init, _transport: PhantomData }
    }

    /// Completions of receives go to another completion queue.
    #[must_use]
    pub fn recv_cq(mut self, cq: &CompletionQueue<P>) -> Self {
        self.init.recv_cq = Arc::clone(cq.core());
        self
    }

    /// Receives come from this shared receive queue, which other queue pairs may use, too. The
    /// queue pair then has no receive queue, and posts to it are refused. The SRQ may belong to a
    /// protection domain other than the queue pair's; its buffers come from the SRQ's domain.
    #[must_use]
    pub fn shared_receives<U: Feeds<T>>(mut self, srq: &SharedReceiveQueue<P, U>) -> Self {
        self.init.srq = Some(Arc::clone(srq.core()));
        self
    }

    /// Send work requests outstanding; default 128.
    #[must_use]
    pub fn max_send_wr(mut self, count: u32) -> Self {
        self.init.cap.max_send_wr = count;
        self
    }

    /// Receive work requests outstanding; default 128.
    #[must_use]
    pub fn max_recv_wr(mut self, count: u32) -> Self {
        self.init.cap.max_recv_wr = count;
        self
    }

    /// Entries in a send's gather list; default 1.
    #[must_use]
    pub fn max_send_sge(mut self, count: u32) -> Self {
        self.init.cap.max_send_sge = count;
        self
    }

    /// Entries in a receive's scatter list; default 1.
    #[must_use]
    pub fn max_recv_sge(mut self, count: u32) -> Self {
        self.init.cap.max_recv_sge = count;
        self
    }

    /// Bytes that a send may carry in the work request itself; default 64.
    #[must_use]
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.init.cap.max_inline_data = bytes;
        self
    }

    /// Send operations to enable; the default is all that the transport supports. With
    /// [`SendOpSet::REKEY`] the send queue also has room for that many work requests that rewrite
    /// keys, which are three times as long on mlx5.
    #[must_use]
    pub fn send_ops(mut self, ops: SendOpSet) -> Self {
        self.init.send_ops = Some(ops);
        self
    }

    /// How the send queue rings; default [`DoorbellMode::BlueFlame`].
    #[must_use]
    pub fn doorbell(mut self, mode: DoorbellMode) -> Self {
        self.init.doorbell = mode;
        self
    }

    /// The completion queue may be smaller than this queue pair's work alone could fill. The
    /// program then sees to it that never more work requests are outstanding than the queue has
    /// room for: unsignaled sends count, since they complete if the queue pair fails. A completion
    /// that finds no room is lost, and the queue with it. Not with a queue that
    /// [ignores overruns](crate::CompletionQueueBuilder::ignore_overrun).
    #[must_use]
    pub fn overcommit(mut self) -> Self {
        self.init.overcommit = true;
        self
    }

    /// The device may put messages of up to 32 bytes, and answers of READs and atomics, into their
    /// completions: one write over the bus for both. Polling then copies them to the buffer, out of
    /// line. Up to 64 bytes where the completion queue's entries [have
    /// 128](crate::CompletionQueueBuilder::entry_size).
    ///
    /// Received data is in its buffer once its completion was polled. Before that, peers, later
    /// work requests (fenced ones, too) and other threads don't see it, and it is lost if the queue
    /// pair is reset or destroyed.
    ///
    /// A hint: devices other than ConnectX, transports other than RC and UC, and queue pairs with
    /// [shared receives](Self::shared_receives) ignore it. Raw posts must then name the program's
    /// memory by its address, which stays mapped until the completion was polled
    /// ([`RawBatch`](crate::raw::RawBatch)). Parts of an [indirect key](crate::memory::IndirectKey)
    /// can't be receive buffers: [`PostError::BadOperation`](crate::PostError::BadOperation).
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).scatter_to_cqe().build()?;
    /// # qp.prepare(&Default::default())?;
    /// # qp.connect_to_self()?;
    /// # let limit = std::time::Duration::from_secs(20);
    /// qp.post_recv(1, pd.slab(64, 1)?.take().expect("it is new"))?;
    /// let mut batch = qp.batch();
    /// batch.send_inline(uverbs::Wr::new(2).unsignaled(), b"short")?;
    /// batch.ring();
    /// let received = cq.wait(limit)?.frame.expect("it was posted with one");
    /// assert_eq!(&received[..], b"short");
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE")]
    pub fn scatter_to_cqe(mut self) -> Self {
        self.init.scatter_to_cqe = true;
        self
    }

    /// Creates the queue pair, in RESET.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for sizes above the device's limits, or for more work requests than a
    /// completion queue has room for (see [`overcommit`](Self::overcommit)). The sum over several
    /// queue pairs of a completion queue is not checked, unless the queue ignores overruns: give it
    /// room for all that may be outstanding together. [`Error::Invalid`] for
    /// objects of another device; [`Error::Kernel`]: `ENOMEM` if kernel or device is out of memory
    /// or queues exceed `RLIMIT_MEMLOCK`, so ask for shorter queues; `EPERM` for raw packets
    /// without `CAP_NET_RAW`.
    pub fn build(self) -> Result<QueuePair<P, T>, Error> {
        match self.init.overcommit {
            true => lossless(&self.init)?,
            false => room(&self.init)?,
        }
        if is_initiator(T::TYPE) {
            let count = self.init.cap.max_recv_wr;
            Error::limit("create_qp", "max_recv_wr of an initiator", count, 0)?;
            if self.init.srq.is_some() {
                return Err(Error::Invalid {
                    verb: "create_qp",
                    what: "shared receive queue",
                    value: format!("for {}", T::NAME),
                    why: "an XRC initiator has no receives; give the queue to the peer's target",
                });
            }
        }
        let NewQp { core, sq, rq } = self.context.provider().create_qp(&self.init)?;
        let home = Box::new(Home::new(self.context));
        let send = SendQueue::new(Arc::clone(&core), sq);
        Ok(QueuePair::new(send, RecvQueue::new(core, rq, home)))
    }
}

/// True for queue pair types without a receive side.
fn is_initiator(qp_type: QpType) -> bool {
    matches!(qp_type, QpType::XrcIni | QpType::Dci)
}

/// Refuses to fill a completion queue that ignores overruns: completions would be written over
/// others.
fn lossless(init: &QpInit) -> Result<(), Error> {
    if !init.send_cq.ignores_overrun() && !init.recv_cq.ignores_overrun() {
        return Ok(());
    }
    Err(Error::Invalid {
        verb: "create_qp",
        what: "overcommit",
        value: "with a completion queue that ignores overruns".to_owned(),
        why: "a completion queue that ignores overruns must have room for all completions",
    })
}

/// Refuses work that a completion queue has no room for. Other queue pairs' work isn't counted:
/// they may take turns.
pub(crate) fn room(init: &QpInit) -> Result<(), Error> {
    let QpCap { max_send_wr, max_recv_wr, .. } = init.cap;
    let max_recv_wr = init.srq.as_ref().map_or(max_recv_wr, |srq| srq.max_wr());
    let fits = |what, load: u32, cq: &CqCore| {
        let (value, limit) = (load.into(), cq.capacity().into());
        if value <= limit {
            return Ok(());
        }
        Err(Error::Limit { verb: "create_qp", what, value, limit })
    };
    if Arc::ptr_eq(&init.send_cq, &init.recv_cq) {
        let both = max_send_wr.saturating_add(max_recv_wr);
        let what = "max_send_wr + max_recv_wr (set less, or make their completion queue larger)";
        return fits(what, both, &init.send_cq);
    }
    let [send, recv] = [
        "max_send_wr (set less, or make its completion queue larger)",
        "max_recv_wr (set less, or make its completion queue larger)",
    ];
    fits(send, max_send_wr, &init.send_cq)?;
    fits(recv, max_recv_wr, &init.recv_cq)
}
