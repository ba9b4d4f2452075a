//! What a provider is: the traits between the public API and the drivers of each kind of device.
//!
//! The cold traits are about making things; [`SendOps`], [`RecvOps`] and [`CqOps`] are the data path and are inlined
//! through: the API is generic over the provider, or uses the enum over all of them, never `dyn`.
//!
//! # Safety
//!
//! The file declares unsafe methods and calls none. See each method's own section.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;
use std::sync::Arc;

use nix::errno::Errno;

use crate::attr::{DeviceAttr, DoorbellMode, PortAttr, QpCap};
use crate::error::Error;
use crate::memory::frame::Frame;
use crate::memory::registered::Held;
use crate::objects::context::ContextCore;
use crate::objects::cq::CqCore;
use crate::objects::pd::PdCore;
use crate::objects::qp::QpCore;
use crate::queues::completion::{Completed, Failure};
use crate::queues::work::{Data, PostError, SendOp, Sge, Wr};

/// A family of devices with one hardware interface.
pub trait Provider: Sized + Debug + 'static {
    /// An open device.
    type Context: ContextOps<Self>;
    /// The polling side of a completion queue.
    type Cq: CqOps;
    /// The posting side of a send queue.
    type Sq: SendOps;
    /// The posting side of a receive queue.
    type Rq: RecvOps;

    /// What it is called in messages.
    const NAME: &'static str;

    /// Shakes hands with the kernel driver.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, or [`Error::Unsupported`] for a driver that is too old.
    fn open(core: Arc<ContextCore>) -> Result<Self::Context, Error>;
}

/// What a completion queue is made from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CqInit {
    /// Completions it must hold.
    pub entries: u32,
    /// Completion vector: which of the device's interrupts events come by.
    pub comp_vector: u32,
}

impl CqInit {
    /// At least `entries` completions, vector 0.
    #[must_use]
    pub fn new(entries: u32) -> Self {
        Self { entries, comp_vector: 0 }
    }
}

/// What a reliable-connected queue pair is made from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QpInit {
    /// Protection domain.
    pub pd: Arc<PdCore>,
    /// Where completions of sends go.
    pub send_cq: Arc<CqCore>,
    /// Where completions of receives go.
    pub recv_cq: Arc<CqCore>,
    /// Sizes.
    pub cap: QpCap,
    /// How the send queue rings.
    pub doorbell: DoorbellMode,
}

impl QpInit {
    /// A queue pair of the default sizes.
    #[must_use]
    pub fn new(pd: Arc<PdCore>, send_cq: Arc<CqCore>, recv_cq: Arc<CqCore>) -> Self {
        Self { pd, send_cq, recv_cq, cap: QpCap::default(), doorbell: DoorbellMode::default() }
    }

    /// Whether everything is of this open device. Handles and user indexes are counted per device file: one of another file names
    /// something else there.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for the first that isn't.
    pub fn check_context(&self, context: &Arc<ContextCore>) -> Result<(), Error> {
        for (what, of) in [
            ("protection domain", self.pd.context()),
            ("send completion queue", self.send_cq.context()),
            ("receive completion queue", self.recv_cq.context()),
        ] {
            if !Arc::ptr_eq(of, context) {
                return Err(Error::Invalid {
                    verb: "create_qp",
                    what,
                    value: "of another context".to_owned(),
                    why: "all objects of a queue pair are made from the same open device",
                });
            }
        }
        Ok(())
    }
}

/// A queue pair just made: the kernel's object, and both posting sides.
pub type NewQp<P> = (Arc<QpCore>, <P as Provider>::Sq, <P as Provider>::Rq);

/// Making things on an open device.
pub trait ContextOps<P: Provider>: Debug + Send + Sync + 'static {
    /// The kernel's side of it.
    fn core(&self) -> &Arc<ContextCore>;

    /// Capabilities and limits.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn query_device(&self) -> Result<DeviceAttr, Error>;

    /// Capabilities and limits as they were when the device was opened. They change only with firmware or driver.
    fn device_attr(&self) -> &DeviceAttr;

    /// State of a port, from 1.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `EINVAL` for a port that isn't there.
    fn query_port(&self, port: u8) -> Result<PortAttr, Error>;

    /// Allocates a protection domain.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn alloc_pd(&self) -> Result<Arc<PdCore>, Error>;

    /// Creates a completion queue.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], or the kernel's refusal.
    fn create_cq(&self, init: &CqInit) -> Result<(Arc<CqCore>, P::Cq), Error>;

    /// Creates a reliable-connected queue pair.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for objects of another context ([`QpInit::check_context`]), [`Error::Limit`], or the kernel's refusal.
    fn create_qp(&self, init: &QpInit) -> Result<NewQp<P>, Error>;
}

/// Posting sends.
///
/// Work requests are written behind the published producer index, at a cursor that the caller holds. Nothing is visible
/// to the device until [`ring`](Self::ring); a cursor that is dropped takes its work requests with it.
pub trait SendOps: Debug + Send {
    /// Tentative producer position.
    type Cursor: Copy + Debug;

    /// The published position. Also takes back buffers of work requests that were written and never rung.
    fn begin(&mut self) -> Self::Cursor;

    /// Writes one work request at the cursor and moves it. Returns the slot, for [`own`](Self::own).
    ///
    /// # Safety
    ///
    /// The cursor comes from the last [`begin`](Self::begin) of this queue. If it is rung: the memory that `data` names
    /// by key stays registered, and for READ and atomics is not read or written by the program, until the completion
    /// is polled, the queue pair is destroyed with the kernel's confirmation, or the region is deregistered.
    ///
    /// # Errors
    ///
    /// The cursor is then as before.
    unsafe fn post(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError>;

    /// Puts a buffer into the slot of a work request that was just written; its completion gives it back.
    ///
    /// # Safety
    ///
    /// `slot` is what the last [`post`](Self::post) returned, which was at this cursor.
    unsafe fn own(&mut self, at: &Self::Cursor, slot: u32, held: Held);

    /// Publishes everything before the cursor: doorbell record, then doorbell. Nothing happens if there is nothing new.
    ///
    /// # Safety
    ///
    /// The cursor comes from the last [`begin`](Self::begin), moved by [`post`](Self::post).
    unsafe fn ring(&mut self, at: Self::Cursor);

    /// Why the kernel did not hear of what was rung last. `None` where a doorbell is a store.
    fn refused(&self) -> Option<Errno>;

    /// Allows posting (in RTS) or refuses it with [`PostError::State`], from the next [`begin`](Self::begin) on.
    fn enable(&mut self, on: bool);

    /// Starts over at index 0, as the device does after a reset.
    ///
    /// # Safety
    ///
    /// The kernel confirmed the reset, and no completion of this queue is left in its completion queue.
    unsafe fn reset(&mut self);
}

/// Posting receives. The same discipline as [`SendOps`].
pub trait RecvOps: Debug + Send {
    /// Tentative producer position.
    type Cursor: Copy + Debug;

    /// See [`SendOps::begin`].
    fn begin(&mut self) -> Self::Cursor;

    /// Writes one receive at the cursor and moves it. Returns the slot.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::post`]; the device writes to the memory that `list` names.
    ///
    /// # Errors
    ///
    /// The cursor is then as before.
    unsafe fn post(
        &mut self,
        at: &mut Self::Cursor,
        wr_id: u64,
        list: &[Sge],
    ) -> Result<u32, PostError>;

    /// See [`SendOps::own`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn own(&mut self, at: &Self::Cursor, slot: u32, held: Held);

    /// Publishes everything before the cursor: the doorbell record is all that a receive queue has.
    ///
    /// # Safety
    ///
    /// As for [`SendOps::ring`].
    unsafe fn ring(&mut self, at: Self::Cursor);

    /// Allows posting (from INIT on) or refuses it with [`PostError::State`], from the next [`begin`](Self::begin) on.
    fn enable(&mut self, on: bool);

    /// See [`SendOps::reset`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn reset(&mut self);
}

/// A completion as the polling side hands it on: already retired, its queue entry not yet given back.
#[derive(Debug)]
pub struct Polled<V> {
    /// The queue entry, decoded on demand.
    pub view: V,
    /// The work request's number.
    pub wr_id: u64,
    /// The buffer that was posted with it.
    pub frame: Option<Frame>,
}

/// A completion queue entry, decoded on demand.
pub trait View: Debug + Copy {
    /// What completed, or how it failed.
    fn result(&self) -> Result<Completed, Failure>;

    /// Whether it is of a receive; also for a failed one.
    fn is_recv(&self) -> bool;

    /// Bytes received, read, or returned by an atomic. Not known of SEND and WRITE: 0.
    fn byte_len(&self) -> u32;

    /// Immediate data, in host order, of a receive that got some.
    fn immediate(&self) -> Option<u32>;

    /// The local queue pair.
    fn qpn(&self) -> u32;

    /// All of it at once.
    #[inline(always)]
    fn decode(&self) -> Decoded {
        Decoded {
            result: self.result(),
            is_recv: self.is_recv(),
            byte_len: self.byte_len(),
            immediate: self.immediate(),
            qpn: self.qpn(),
        }
    }
}

/// What a [`View`] shows.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    /// See [`View::result`].
    pub result: Result<Completed, Failure>,
    /// See [`View::is_recv`].
    pub is_recv: bool,
    /// See [`View::byte_len`].
    pub byte_len: u32,
    /// See [`View::immediate`].
    pub immediate: Option<u32>,
    /// See [`View::qpn`].
    pub qpn: u32,
}

/// Polling.
pub trait CqOps: Debug + Send {
    /// A queue entry that lives until the next call.
    type View<'a>: View
    where
        Self: 'a;

    /// The next completion, if there is one; its work request is retired. The entry goes back to the device at
    /// [`publish`](Self::publish), which is this call's own when it gives nothing but skipped entries.
    fn next(&mut self) -> Option<Polled<Self::View<'_>>>;

    /// Tells the device how far was polled: the consumer index in the doorbell record.
    fn publish(&mut self);

    /// Learns of queue pairs that came, and drops what is left of those that went, their completions included.
    fn settle(&mut self);

    /// Drops the completions of the queue pair with this user index, which was just reset and stays attached.
    fn sweep(&mut self, user_index: u32);
}
