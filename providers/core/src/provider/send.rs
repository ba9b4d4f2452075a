//! Posting sends.
//!
//! # Safety
//!
//! The file declares an unsafe trait: each method says what it asks for. What is done by default
//! hands on what its caller promised.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use super::AhOps;
use crate::Errno;
use crate::memory::registered::Held;
use crate::queues::layout::KeyLayout;
use crate::queues::placement::PlaceOp;
use crate::queues::work::{
    Checksums, Data, DcDestination, Destination, PostError, Rekey, SendOp, Wr,
};

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
    /// As for [`post`](Self::post). Where the queue [copies headers](Self::copies_headers), each
    /// piece that `data` names by key is at its address in this process, where the first bytes of
    /// the packet may be read during the call: of memory that others write meanwhile, each byte is
    /// one that it had.
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

    /// True if [`post_packet`](Self::post_packet) reads a packet's first bytes at their addresses.
    fn copies_headers(&self) -> bool {
        false
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
