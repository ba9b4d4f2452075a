//! The traits that a provider implements: between the public API and each family of devices.
//!
//! The cold traits are about making things; [`SendOps`], [`RecvOps`] and [`CqOps`] are the data
//! path and are inlined through: the API is generic over the provider, or uses the enum over all of
//! them, never `dyn`.
//!
//! # Safety
//!
//! The file declares unsafe traits and methods and calls none. Safe posts and polls lean on what an
//! implementation answers, so each trait says what that is; see its own section, and each method's.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

mod ah;
mod arm;
mod context;
mod init;
mod pieces;
mod usual;
mod view;

use std::fmt::Debug;
use std::sync::Arc;

use crate::Errno;
use crate::error::Error;
use crate::memory::registered::Held;
use crate::objects::context::ContextCore;
use crate::objects::srq::SrqCore;
use crate::queues::layout::KeyLayout;
use crate::queues::placement::PlaceOp;
use crate::queues::tag_work::{TagHandle, TagOp, TagWr};
use crate::queues::work::{
    Checksums, Data, DcDestination, Destination, PostError, Rekey, SendOp, Sge, Wr,
};

pub use ah::AhOps;
pub use arm::{Armer, Notify};
pub use context::{ContextOps, NewQp, NewSrq, NewWq};
pub use init::{CqInit, CqeSize, QpInit, SrqInit, TagsInit, WqInit};
pub use pieces::{PieceOps, PostsWhole, Waiting};
pub use usual::{Sink, Usual};
pub use view::{Decoded, PacketInfo, Polled, View};

/// A family of devices with one hardware interface.
///
/// # Safety
///
/// The parts of one implementation work together: what its [`ContextOps`] makes keeps the contracts
/// of [`CqOps`], [`SendOps`] and [`RecvOps`] with each other. [`open`](Self::open) hands on the
/// core that it was given.
pub unsafe trait Provider: Sized + Debug + 'static {
    /// An open device.
    type Context: ContextOps<Self>;
    /// The polling side of a completion queue.
    type Cq: CqOps;
    /// The posting side of a send queue.
    type Sq: SendOps<Ah = Self::Ah>;
    /// The posting side of a receive queue.
    type Rq: RqOps;
    /// The posting side of a shared receive queue.
    type Srq: SrqOps;
    /// An address handle.
    type Ah: AhOps;

    /// What it is called in messages.
    const NAME: &'static str;

    /// Shakes hands with the kernel driver.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, or [`Error::Unsupported`] for a driver that is too old.
    fn open(core: Arc<ContextCore>) -> Result<Self::Context, Error>;

    /// The same for a device that another opened: the kernel driver is asked what it said.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] of a driver that can't tell; as for [`open`](Self::open).
    fn import(core: Arc<ContextCore>) -> Result<Self::Context, Error> {
        drop(core);
        let what = format!("devices of {} that another opened", Self::NAME);
        Err(Error::Unsupported { verb: "import_device", what })
    }
}

/// Posting sends.
///
/// Work requests are written behind the published producer index, at a cursor that the caller
/// holds. Nothing is visible to the device until [`ring`](Self::ring); a cursor that is dropped
/// takes its work requests with it.
///
/// # Safety
///
/// - [`post`](Self::post) gives a slot that is free: no work request that the device may still
///   carry out, and no buffer, is in it; and it names the memory in `data`, and no other, to the
///   device.
/// - [`own`](Self::own) keeps the buffer in that slot, and nothing takes it out but the work
///   request's completion, [`begin`](Self::begin) if it was never rung, [`reset`](Self::reset), or
///   the end of the queue pair.
/// - The device hears of nothing that was not rung.
pub unsafe trait SendOps: Debug + Send {
    /// Tentative producer position.
    type Cursor: Copy + Debug;
    /// Where datagrams go.
    type Ah: AhOps;

    /// The published position. Also takes back buffers of work requests that were written and never
    /// rung.
    fn begin(&mut self) -> Self::Cursor;

    /// Writes one work request at the cursor and moves it. Returns the slot, for
    /// [`own`](Self::own).
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed, and the cursor comes from the last [`begin`](Self::begin)
    /// of this queue. If it is rung: the memory that `data` names by key stays registered, and for
    /// READ and atomics is not read or written by the program, until the completion is polled, the
    /// queue pair is destroyed with the kernel's confirmation, or the region is deregistered.
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

    /// The same with a list of pieces, for programs that post nothing else here: a provider may go
    /// through the list once.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Errors
    ///
    /// As there.
    #[inline(always)]
    unsafe fn post_list(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: SendOp,
        list: &[Sge],
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.post(at, wr, op, Data::List(list)) }
    }

    /// The same to a destination, on a queue pair of datagrams. The queue holds on to the address
    /// handle until the work request is done, where the device asks for that.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post); the queue pair is of datagrams, and the address handle of its
    /// protection domain.
    ///
    /// # Errors
    ///
    /// The cursor is then as before. [`PostError::BadOperation`] for anything but a SEND.
    unsafe fn post_to(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: SendOp,
        to: Destination<'_, Self::Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError>;

    /// The same to a target of dynamic connections, on an initiator of those.
    ///
    /// # Safety
    ///
    /// As for [`post_to`](Self::post_to).
    ///
    /// # Errors
    ///
    /// The cursor is then as before. [`PostError::BadOperation`] of a provider without DC.
    unsafe fn post_dc(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: SendOp,
        to: DcDestination<'_, Self::Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let _ = (at, wr, op, to, data);
        Err(PostError::BadOperation)
    }

    /// The same to a shared receive queue of the peer's, on an initiator of XRC: `srqn` is its
    /// number, 24 bits.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Errors
    ///
    /// The cursor is then as before. [`PostError::BadOperation`] of a provider without XRC.
    unsafe fn post_xrc(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: SendOp,
        srqn: u32,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let _ = (at, wr, op, srqn, data);
        Err(PostError::BadOperation)
    }

    /// Writes a whole packet, its Ethernet header first, on a raw packet queue.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post); and each piece that `data` names by key is at its address in
    /// this process, where the first bytes of the packet may be read during the call: of memory
    /// that others write meanwhile, each byte is one that it had.
    ///
    /// # Errors
    ///
    /// The cursor is then as before. [`PostError::ShortPacket`];
    /// [`PostError::BadOperation`] of a provider without raw packets, or for checksums that the
    /// device doesn't fill in.
    unsafe fn post_packet(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        checksums: Checksums,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let _ = (at, wr, checksums, data);
        Err(PostError::BadOperation)
    }

    /// Writes a work request that changes a key of this side. The next one begins only when it is
    /// carried out.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post). The region that a window is bound to stays registered, and its
    /// memory the device's to use as `access` says, for as long as the window is bound.
    ///
    /// # Errors
    ///
    /// The cursor is then as before. [`PostError::BadOperation`] if the queue wasn't made for it
    /// ([`REKEY`](crate::attr::SendOpSet::REKEY)), [`PostError::MessageTooLong`] for a window over
    /// more than 2 GiB.
    unsafe fn rekey(&mut self, at: &mut Self::Cursor, wr: Wr, op: &Rekey)
    -> Result<u32, PostError>;

    /// Writes a FLUSH or an ATOMIC WRITE.
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed, and the cursor comes from the last
    /// [`begin`](SendOps::begin) of this queue.
    ///
    /// # Errors
    ///
    /// The cursor is then as before. [`PostError::NotOnDevice`] of a device without;
    /// [`PostError::BadOperation`] of a transport without; [`PostError::BadData`] for a FLUSH of no
    /// placement type, or an address of an ATOMIC WRITE that isn't a multiple of eight.
    unsafe fn place(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: &PlaceOp,
    ) -> Result<u32, PostError> {
        let _ = (at, wr, op);
        Err(PostError::NotOnDevice)
    }

    /// Writes a work request that gives an indirect key its parts. The next one begins only when it
    /// is carried out.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post). The regions that the parts are of stay registered, and their
    /// memory the device's to use as `access` says, until the key has other parts, is invalidated
    /// or destroyed.
    ///
    /// # Errors
    ///
    /// The cursor is then as before. [`PostError::BadOperation`] if the queue wasn't made for it
    /// ([`REKEY`](crate::attr::SendOpSet::REKEY)), or of a provider without such keys;
    /// [`PostError::TooManySges`] for more parts than a work request, or the queue, has room for;
    /// [`PostError::MessageTooLong`] for a part of more than 2 GiB; [`PostError::BadData`] for no
    /// bytes.
    unsafe fn lay_out(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: &KeyLayout<'_>,
    ) -> Result<u32, PostError> {
        let _ = (at, wr, op);
        Err(PostError::BadOperation)
    }

    /// Puts a buffer into the slot of a work request that was just written; its completion gives it
    /// back.
    ///
    /// # Safety
    ///
    /// `slot` is what the last [`post`](Self::post) returned, which was at this cursor.
    unsafe fn own(&mut self, at: &Self::Cursor, slot: u32, held: Held);

    /// Publishes everything before the cursor: doorbell record, then doorbell. Nothing happens if
    /// there is nothing new.
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed, and the cursor comes from the last [`begin`](Self::begin),
    /// moved by [`post`](Self::post).
    unsafe fn ring(&mut self, at: Self::Cursor);

    /// The same of what [`post_to`](Self::post_to) wrote, of which a provider may know more: on
    /// mlx5 how its words were stored, by which they are copied to the device.
    ///
    /// # Safety
    ///
    /// As for [`ring`](Self::ring).
    #[inline(always)]
    unsafe fn ring_datagrams(&mut self, at: Self::Cursor) {
        // SAFETY: the caller's promise.
        unsafe { self.ring(at) };
    }

    /// Why the kernel did not hear of what was rung last. `None` where a doorbell is a store.
    fn refused(&self) -> Option<Errno>;

    /// Allows posting (in RTS) or refuses it with [`PostError::State`], from the next
    /// [`begin`](Self::begin) on.
    fn enable(&mut self, on: bool);

    /// The connection was made for no READs of this side: a post of one is
    /// [`PostError::NoReads`]. Ignored where the device refuses such a READ by a completion.
    fn forbid_reads(&mut self) {}

    /// From now on one thread rings, so what it left in its processor's write-combining buffer is
    /// drained by its own next fence ([`crate::order::fence::copy_flush`]). A queue whose doorbells
    /// need none ignores it.
    ///
    /// # Safety
    ///
    /// Until [`leave`](Self::leave) only the calling thread rings, and drops the queue.
    unsafe fn stay(&mut self) {}

    /// Ends what [`stay`](Self::stay) began: drains what is left, and any thread may ring.
    fn leave(&mut self) {}

    /// Starts over at index 0, as the device does after a reset.
    ///
    /// # Safety
    ///
    /// The kernel confirmed the reset, and no completion of this queue is left in its completion
    /// queue.
    unsafe fn reset(&mut self);
}

/// Posting receives. The same discipline as [`SendOps`].
///
/// # Safety
///
/// As for [`SendOps`].
pub unsafe trait RecvOps: Debug + Send {
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

    /// The same with one piece, which most receives have.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post).
    ///
    /// # Errors
    ///
    /// As there.
    #[inline(always)]
    unsafe fn post_one(
        &mut self,
        at: &mut Self::Cursor,
        wr_id: u64,
        piece: &Sge,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.post(at, wr_id, std::slice::from_ref(piece)) }
    }

    /// Posts one receive of one piece, if nothing about it is rare. False if nothing was done;
    /// [`post_one`](Self::post_one) tells why.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post).
    #[inline(always)]
    unsafe fn post_at_once(&mut self, at: &mut Self::Cursor, wr_id: u64, piece: &Sge) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.post_one(at, wr_id, piece) }.is_ok()
    }

    /// Posts one receive of one piece and publishes it. False if nothing was posted: the receive is
    /// refused, or rare; [`post_one`](Self::post_one) tells.
    ///
    /// # Safety
    ///
    /// As for [`post`](Self::post) and [`ring`](Self::ring).
    #[inline(always)]
    unsafe fn post_lone(&mut self, wr_id: u64, piece: &Sge) -> bool {
        let mut at = self.begin();
        // SAFETY: the caller's promise; the cursor is of the `begin` above.
        let posted = unsafe { self.post_one(&mut at, wr_id, piece) };
        // A cursor that has not moved publishes nothing.
        // SAFETY: as above.
        unsafe { self.ring(at) };
        posted.is_ok()
    }

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
}

/// Posting receives of one queue pair.
///
/// # Safety
///
/// As for [`SendOps`].
pub unsafe trait RqOps: RecvOps {
    /// Allows posting (from INIT on) or refuses it with [`PostError::State`], from the next
    /// [`begin`](RecvOps::begin) on.
    fn enable(&mut self, on: bool);

    /// See [`SendOps::reset`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn reset(&mut self);
}

/// Posting receives that any of several queue pairs takes. A slot that [`RecvOps::post`] gives is
/// free again when its completion was polled, by whichever completion queue.
///
/// # Safety
///
/// As for [`SendOps`].
pub unsafe trait SrqOps: RecvOps {
    /// Sets the limit, 0 for none; it isn't over the queue's size. `core` is its own.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn set_limit(&mut self, core: &SrqCore, limit: u32) -> Result<(), Error>;

    /// Room for another number of receives; answers how many it is then. `core` is its own.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the device can't; [`Error::Limit`]; the kernel's refusal, also
    /// for fewer than are outstanding.
    fn resize(&mut self, core: &SrqCore, max_wr: u32) -> Result<u32, Error>;

    /// Of a queue that matches tags: takes back the changes of its list that were written and never
    /// rung.
    fn begin_tags(&mut self) {}

    /// Writes a change of the list. Of a tag that is added or removed it returns the handle.
    ///
    /// # Safety
    ///
    /// The queue is not destroyed. If it is rung: the memory that a tag names by key stays
    /// registered, and is neither read nor written by the program, until the completion that says
    /// that its message came, won't come, or that the tag was removed; or the queue is destroyed
    /// with the kernel's confirmation. A tag that is removed without a completion
    /// ([`TagWr::signaled`]) is one that no message has found or finds.
    ///
    /// # Errors
    ///
    /// The list is then as before. [`PostError::Full`] of changes outstanding;
    /// [`PostError::TagsFull`], [`PostError::UnknownTag`]; [`PostError::State`] once
    /// [closed](Self::close_tags), and once a completion told that a change failed;
    /// [`PostError::BadOperation`] of a queue without a list.
    unsafe fn change_tags(&mut self, wr: TagWr, op: &TagOp) -> Result<TagHandle, PostError> {
        let _ = (wr, op);
        Err(PostError::BadOperation)
    }

    /// Puts a buffer into the place of a tag that was just added. It stays there until the
    /// completion that [`change_tags`](Self::change_tags) speaks of,
    /// [`begin_tags`](Self::begin_tags) if it was never rung, or the end of the queue.
    ///
    /// # Safety
    ///
    /// `tag` is what the last change returned, which added it.
    unsafe fn own_tag(&mut self, tag: TagHandle, held: Held) {
        let _ = (tag, held);
    }

    /// Tells the device of the changes that were written.
    ///
    /// # Safety
    ///
    /// The queue is not destroyed.
    unsafe fn ring_tags(&mut self) {}

    /// Ends what changes the list: without this the kernel destroys no queue that has one. Tags
    /// stay in the list.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    fn close_tags(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Polling.
///
/// # Safety
///
/// - [`next`](Self::next) gives a buffer only if the device is done with the work request that it
///   was posted with, each at most once: of a slot that the completion names, or that is behind it
///   in a queue which completes in order.
/// - A slot is retired after what was in it was taken, never before its work request is over.
/// - The entry of a view goes back to the device no sooner than the view's lifetime ends.
/// - A queue pair's slots, and those of the shared queue that it receives from, are touched only
///   between the messages that attach and detach it ([`CqCore::messages`]).
///
/// [`CqCore::messages`]: crate::objects::cq::CqCore::messages
pub unsafe trait CqOps: Debug + Send {
    /// A queue entry that lives until the next call.
    type View<'a>: View
    where
        Self: 'a;

    /// The next completion, if there is one; its work request is retired. The entry goes back to
    /// the device at [`publish`](Self::publish), which is this call's own when it gives nothing but
    /// skipped entries.
    fn next(&mut self) -> Option<Polled<Self::View<'_>>>;

    /// [`next`](Self::next) of what programs poll most, by the least code, for callers that take no
    /// buffers: `sink` is compiled for each kind of completion.
    ///
    /// What it gives is retired, and its entry goes back to the device at
    /// [`publish`](Self::publish). Where it finds something unusual nothing is changed. All is
    /// unusual to a provider without such a way.
    ///
    /// To be called where `next` may be: after [`settle`](Self::settle), if there are messages.
    #[inline(always)]
    fn next_usual<'a, S: Sink<Self::View<'a>>>(&'a mut self, sink: S) -> Usual<S::Output> {
        let _ = sink;
        Usual::Unusual
    }

    /// Tells the device how far was polled: the consumer index in the doorbell record.
    fn publish(&mut self);

    /// Learns of queue pairs that came, and drops what is left of those that went, their
    /// completions included. To be called when a poll begins and there are
    /// [messages](crate::objects::cq::CqCore::pace): [`next`](Self::next) need not look for them.
    fn settle(&mut self);

    /// Drops the completions of the queue pair with this user index, which was just reset and stays
    /// attached. Receives of a shared queue that they are of are free again, and their buffers go
    /// back to their slabs.
    fn sweep(&mut self, user_index: u32);

    /// Asks for an event. One that completed since the last poll may raise it or not, so the caller
    /// polls once more before it sleeps.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] without a channel ([`CqCore::events_to_arm`]); the kernel's refusal where
    /// the kernel is asked.
    ///
    /// [`CqCore::events_to_arm`]: crate::objects::cq::CqCore::events_to_arm
    fn arm(&mut self, notify: Notify) -> Result<(), Error>;

    /// Arms it without the queue, from any thread.
    fn armer(&self) -> Armer;

    /// Gives the queue room for `entries` completions. What is in it stays, in turn. It is not for
    /// the data path: it asks the kernel, and copies.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for 0 entries, more than the device has, or fewer than queue pairs were
    /// promised ([`CqCore::room_of`]); the kernel's refusal: `EINVAL` for a size that what is in
    /// the queue doesn't fit. The queue is as it was.
    ///
    /// [`CqCore::room_of`]: crate::objects::cq::CqCore::room_of
    fn resize(&mut self, entries: u32) -> Result<(), Error>;
}
