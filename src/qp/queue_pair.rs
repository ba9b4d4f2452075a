//! Queue pairs: bringing one up, splitting it, and taking it down.
//!
//! # Safety
//!
//! A reset is passed on to the rings only after the kernel confirmed it and the completion queues
//! were swept.
#![allow(unsafe_code, reason = "resets the rings of a queue pair that the kernel reset")]

use std::fmt;
use std::sync::Arc;

use uverbs_core::attr::{Ece, LagPort, QpAttr, QpCap, QpState, QpType};
use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::memory::post::Room;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::ContextOps;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;

use crate::provider::Provider;
use crate::qp::destroyed::Destroyed;
use crate::transport::{Rc, Transport};
use crate::{Any, Batch, CompletionQueue, LocalPort};
use crate::{RecvBatch, RecvQueue, Refused, SendQueue, Unposted};

/// A queue pair of a [transport](Transport); by default a reliable connection.
///
/// Bring it up with [`prepare`](Self::prepare) and [`connect`](Self::connect), or transition by
/// transition with typed attributes. A transition that lacks an attribute doesn't compile:
///
/// ```compile_fail,E0063
/// # use uverbs::QueuePair;
/// # use uverbs::attr::InitAttr;
/// # fn f(qp: &mut QueuePair) -> Result<(), uverbs::Error> {
/// qp.init(&InitAttr { port: 1, pkey_index: 0 })?; // no `access`
/// # Ok(()) }
/// ```
///
/// Dropping the queue pair (or both halves) destroys it. Frames in flight go back to their slabs
/// when the completion queue is polled next, or dropped. Leaking the queue pair leaks its memory.
#[doc(alias = "ibv_qp")]
pub struct QueuePair<P: Provider = Any, T: Transport = Rc> {
    pub(crate) send: SendQueue<P, T>,
    pub(crate) recv: RecvQueue<P>,
}

/// Prints number and state.
impl<P: Provider, T: Transport> fmt::Debug for QueuePair<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("qpn", &format_args!("{:#x}", self.qpn()))
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// True if receives can be posted only from RTR on. A raw packet's receive queue works in INIT
/// already and would fill receives that its doorbell record announces (rdma-core
/// `verbs.c:mlx5_modify_qp`).
pub(crate) fn receives_from_rtr(qp_type: QpType) -> bool {
    qp_type == QpType::RawPacket
}

impl<P: Provider, T: Transport> QueuePair<P, T> {
    pub(crate) fn new(send: SendQueue<P, T>, recv: RecvQueue<P>) -> Self {
        Self { send, recv }
    }

    pub(crate) fn core(&self) -> &Arc<QpCore> {
        self.send.core()
    }

    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core().handle()
    }

    /// QP number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.core().qpn()
    }

    /// Number of the queue pair in asynchronous events
    /// ([`AsyncElement::Qp`](crate::event::AsyncElement)).
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.core().event_id()
    }

    /// Granted capacities: at least those requested.
    #[must_use]
    pub fn cap(&self) -> &QpCap {
        self.core().cap()
    }

    /// State of the last transition; the device may have moved the queue pair to ERR since.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.core().state()
    }

    /// Queries the queue pair's current attributes from the device.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttr, Error> {
        self.core().query()
    }

    /// Port of a queue pair on bonded ports (LAG), by which it sends. The device spreads queue
    /// pairs over the ports.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device's ports are not bonded.
    #[doc(alias = "mlx5dv_query_qp_lag_port")]
    pub fn lag_port(&self) -> Result<LagPort, Error> {
        self.has_lag_port("query_qp_lag_port")?;
        crate::unstable::mlx5::query_lag_port(self.core())
    }

    /// Moves a queue pair in RTS to another of the bonded ports, counted from 1. A queue pair for
    /// raw packets may be in any state.
    ///
    /// # Errors
    ///
    /// The errors of [`lag_port`](Self::lag_port); [`Error::State`] unless in RTS;
    /// [`Error::Kernel`]: `EINVAL` for a port that the device lacks.
    #[doc(alias = "mlx5dv_modify_qp_lag_port")]
    pub fn set_lag_port(&mut self, port: u8) -> Result<(), Error> {
        self.has_lag_port("modify_qp_lag_port")?;
        crate::unstable::mlx5::set_lag_port(self.core(), port)
    }

    fn has_lag_port(&self, verb: &'static str) -> Result<(), Error> {
        let driver = self.core().pd().context().uverbs().driver_id();
        if driver != RDMA_DRIVER_MLX5 {
            let what = "bonded ports (LAG) on this device".to_owned();
            return Err(Error::Unsupported { verb, what });
        }
        Ok(())
    }

    /// Options of enhanced connection establishment (ECE). Right after creation: all that the
    /// device supports. After [`set_ece`](Self::set_ece) and the next transition: the accepted
    /// ones. The vendor is 0 if the device or the kernel has no ECE.
    #[must_use]
    #[doc(alias = "ibv_query_ece")]
    pub fn ece(&self) -> Ece {
        self.core().ece()
    }

    /// Sets the ECE options for the next transition: the peer's, or the options that both sides
    /// agreed on. The vendor's documentation says when to ask for them; rdma_cm carries them
    /// between the sides ([`cm::Param`](crate::cm::Param)).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if [`ece`](Self::ece) returns no options; [`Error::Invalid`] for
    /// another vendor's options.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// let theirs = qp.ece(); // of the peer's queue pair, which is this one
    /// if theirs.vendor != 0 {
    ///     qp.set_ece(theirs)?;
    /// }
    /// qp.prepare(&uverbs::Local::default())?;
    /// qp.connect_to_self()?;
    /// println!("agreed on {:#x}", qp.ece().options);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_set_ece")]
    pub fn set_ece(&mut self, options: Ece) -> Result<(), Error> {
        self.core().set_ece(options)
    }

    /// The posting side of sends.
    pub fn send_queue(&mut self) -> &mut SendQueue<P, T> {
        &mut self.send
    }

    /// The posting side of receives.
    pub fn recv_queue(&mut self) -> &mut RecvQueue<P> {
        &mut self.recv
    }

    /// Begins a batch of sends.
    #[inline]
    pub fn batch(&mut self) -> Batch<'_, P, T> {
        self.send.batch()
    }

    /// Begins a batch of receives.
    #[inline]
    pub fn recv_batch(&mut self) -> RecvBatch<'_, P> {
        self.recv.batch()
    }

    /// Posts one receive, into a frame, a chain of them, or a part of exposed memory, and rings.
    ///
    /// # Errors
    ///
    /// As [`RecvBatch::post`].
    #[inline]
    #[doc(alias = "rdma_post_recv")]
    pub fn post_recv<D: Room>(&mut self, id: u64, into: D) -> Result<(), Unposted<D>> {
        self.recv.post(id, into)
    }

    /// The two halves, which two threads may own. The queue pair is destroyed when both are gone.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// # qp.prepare(&Default::default())?;
    /// # qp.connect_to_self()?;
    /// let slab = pd.slab(64, 1)?;
    /// let (mut sends, mut receives) = qp.split();
    /// let other = std::thread::spawn(move || {
    ///     let posted = receives.post(1, slab.take().expect("it is new"));
    ///     (receives, posted)
    /// });
    /// let (receives, posted) = other.join().expect("it doesn't panic");
    /// posted?;
    /// sends.post_send_inline(2, b"to myself")?;
    /// let whole = uverbs::QueuePair::join(sends, receives).expect("they belong together");
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    pub fn split(self) -> (SendQueue<P, T>, RecvQueue<P>) {
        (self.send, self.recv)
    }

    /// Puts the halves together again.
    ///
    /// # Errors
    ///
    /// The halves, when they are of two queue pairs.
    pub fn join(
        send: SendQueue<P, T>,
        recv: RecvQueue<P>,
    ) -> Result<Self, (SendQueue<P, T>, RecvQueue<P>)> {
        if Arc::ptr_eq(send.core(), recv.core()) {
            Ok(Self { send, recv })
        } else {
            Err((send, recv))
        }
    }

    /// RESET to INIT: receives can be posted from here on, of raw packets from RTR on.
    ///
    /// # Errors
    ///
    /// [`Error::State`] from another state; [`Error::Kernel`]: `EINVAL` for a port or partition
    /// that doesn't exist.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&mut self, attr: &T::Init) -> Result<(), Error> {
        self.whole()?;
        self.core().bring(attr)?;
        if !receives_from_rtr(T::TYPE) {
            self.recv.enable(true);
        }
        Ok(())
    }

    /// INIT to RTR.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for numbers over their field; [`Error::State`] from another state;
    /// [`Error::Kernel`]: `ENETUNREACH`, `EHOSTUNREACH` or `ETIMEDOUT` if RoCE finds no route or
    /// neighbor for the peer's GID; `EINVAL` for a value that the driver rejects.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(&mut self, attr: &T::Rtr) -> Result<(), Error> {
        self.whole()?;
        self.core().bring(attr)?;
        if receives_from_rtr(T::TYPE) {
            self.recv.enable(true);
        }
        Ok(())
    }

    /// RTR to RTS: sends can be posted from here on.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for numbers over their field; [`Error::State`] from another state;
    /// [`Error::Kernel`]: `EINVAL` for a value that the driver rejects.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_send(&mut self, attr: &T::Rts) -> Result<(), Error> {
        self.whole()?;
        self.core().bring(attr)?;
        self.send.enable(true);
        Ok(())
    }

    /// Records that the kernel brought the queue pair to RTS with its connection (iWARP).
    /// `initiator_depth` is the maximum of this side's outstanding READs.
    pub(crate) fn connected(&mut self, initiator_depth: u8) -> Result<(), Error> {
        self.whole()?;
        // SAFETY: the kernel told that the connection is there, for which it brings it to RTS.
        unsafe { self.core().note(QpState::ReadyToSend) };
        self.send.enable(true);
        if initiator_depth == 0 {
            self.send.forbid_reads();
        }
        Ok(())
    }

    /// Moves the queue pair to ERR: outstanding work requests are flushed to the completion queues.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    pub fn fail(&mut self) -> Result<(), Error> {
        self.whole()?;
        self.core().fail()
    }

    /// Moves the queue pair to RESET, which drops outstanding work requests and unpolled
    /// completions. Returns the buffers with their work requests' ids. `cqs` are its completion
    /// queues; unrelated ones among them are left alone.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when one of its completion queues is not among `cqs`; [`Error::Kernel`]:
    /// `EIO` of a removed device.
    pub fn reset(
        &mut self,
        cqs: &mut [&mut CompletionQueue<P>],
    ) -> Result<Vec<(u64, Frame)>, Error> {
        self.whole()?;
        let core = Arc::clone(self.core());
        for (what, needed) in [
            ("send completion queue", core.send_cq()),
            ("receive completion queue", core.recv_cq()),
        ] {
            if !cqs.iter().any(|cq| Arc::ptr_eq(cq.core(), needed)) {
                return Err(Error::Invalid {
                    verb: "modify_qp",
                    what,
                    value: "not given".to_owned(),
                    why: "a reset needs both completion queues of the queue pair",
                });
            }
        }
        self.send.forget_unrung();
        self.recv.forget_unrung();
        // SAFETY: the rings are reset below, and nothing is posted before.
        unsafe { core.reset() }?;
        self.send.enable(false);
        self.recv.enable(false);
        self.recv.home.prepared = None;
        for cq in cqs {
            if Arc::ptr_eq(cq.core(), core.send_cq()) || Arc::ptr_eq(cq.core(), core.recv_cq()) {
                cq.sweep(core.shared().user_index.value());
            }
        }
        // SAFETY: the kernel confirmed the reset; `&mut self` is the posting side, `&mut` of the
        // completion queues the polling side.
        let mut frames = unsafe { core.shared().send.reclaim() };
        // SAFETY: as above.
        frames.append(&mut unsafe { core.shared().recv.reclaim() });
        // SAFETY: the kernel confirmed the reset, and the completion queues were just swept.
        unsafe { self.send.reset() };
        // SAFETY: the kernel confirmed the reset, and the completion queues were just swept.
        unsafe { self.recv.reset() };
        Ok(frames)
    }

    /// Destroys the queue pair now. Then [`CompletionQueue::reclaim`] takes the buffers in flight
    /// back from the completion queues.
    ///
    /// After the device's removal ([`AsyncEventKind::DeviceFatal`](crate::event::AsyncEventKind),
    /// [`Error::DeviceGone`]) work requests no longer complete, and this call with
    /// [`CompletionQueue::reclaim`] gets their buffers back. Linux then only allows destroy
    /// commands; it waits until it has taken the object from the device, and confirms (kernel
    /// `rdma_core.c:uobj_destroy`, `rdma_lookup_get_uobject`).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while a multicast group or a flow rule uses the queue pair, which
    /// stays usable: end these first. If it is dropped then and the kernel refuses again, its
    /// buffers and rings are leaked.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(mut self) -> Result<Destroyed, Refused<Self>> {
        if let Err(error) = self.whole() {
            return Err(Refused::new(error, self));
        }
        self.send.forget_unrung();
        self.recv.forget_unrung();
        let core = Arc::clone(self.core());
        // SAFETY: both posting sides are here, and if it succeeds they go with `self`.
        match unsafe { core.destroy() } {
            Ok(()) => Ok(Destroyed::of_qp(&core)),
            Err(error) => Err(Refused::new(error, self)),
        }
    }

    /// A port of this queue pair's open device, with a GID index that commands have room for.
    pub(crate) fn owns(&self, port: &LocalPort) -> Result<(), Error> {
        if !Arc::ptr_eq(&port.core, self.recv.home.context.provider().core()) {
            return Err(Error::Invalid {
                verb: "modify_qp",
                what: "port",
                value: "of another context".to_owned(),
                why: "the port must belong to the queue pair's open device",
            });
        }
        // The command has eight bits for it (`ib_uverbs_qp_dest::sgid_index`).
        Error::limit("modify_qp", "GID index", port.gid.as_ref().map_or(0, |gid| gid.index), 255)
    }

    /// Both halves are of the same queue pair: `mem::swap` through the accessors could have mixed
    /// them.
    pub(crate) fn whole(&self) -> Result<(), Error> {
        if Arc::ptr_eq(self.send.core(), self.recv.core()) {
            return Ok(());
        }
        Err(Error::Invalid {
            verb: "modify_qp",
            what: "receive queue",
            value: format!("of QP {:#x}", self.recv.core().qpn()),
            why: "both queues must belong to the same queue pair",
        })
    }
}
