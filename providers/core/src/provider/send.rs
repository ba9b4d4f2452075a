//! Trait of posting sends.
//!
//! # Safety
//!
//! The file declares an unsafe trait: each method states its contract. Default methods pass the
//! contract of their caller on.
#![allow(unsafe_code, reason = "posting names memory by address, so it is the caller's promise")]

use std::fmt::Debug;

use super::AhOps;
use super::post_list::{Lone, Request, Requests};
use crate::Errno;
use crate::memory::registered::Held;
use crate::queues::layout::KeyLayout;
use crate::queues::placement::PlaceOp;
use crate::queues::work::{Checksums, Data, Destination, PostError, Rekey, SendOp, Target, Wr};

/// Posts sends.
///
/// Work requests are written behind the published producer index, at a cursor that the caller
/// holds. The device sees them at [`ring`](Self::ring). Dropping the cursor drops its work
/// requests.
///
/// # Safety
///
/// - [`post`](Self::post) returns a free slot: it holds no buffer, and no work request that the
///   device may still execute. `post` names exactly the memory in `data` to the device.
/// - [`own`](Self::own) keeps the buffer in that slot. Only these take it out: the completion of
///   the work request, [`begin`](Self::begin) if the work request was never rung,
///   [`reset`](Self::reset), and the end of the queue pair.
/// - The device never learns of work requests that were not rung.
pub unsafe trait SendOps: Debug + Send {
    /// Tentative producer position.
    type Cursor: Copy + Debug;
    /// Address handle of datagrams.
    type Ah: AhOps;

    /// Returns a cursor at the published producer index. Drops work requests that were written and
    /// never rung, and returns their buffers.
    fn begin(&mut self) -> Self::Cursor;

    /// Writes one work request at the cursor and advances it. Returns the slot, for
    /// [`own`](Self::own).
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed, and the cursor comes from the last [`begin`](Self::begin)
    /// of this queue. If the work request is rung, two conditions hold until its completion is
    /// polled, the queue pair's destruction is confirmed by the kernel, or the region is
    /// deregistered: the memory that `data` names by key stays registered, and the program neither
    /// reads nor writes the buffer of a READ or an atomic.
    ///
    /// # Errors
    ///
    /// On an error the cursor is unchanged.
    unsafe fn post(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: SendOp,
        data: Data<'_>,
    ) -> Result<u32, PostError>;

    /// [`post`](Self::post) of a datagram, on a UD queue pair. Where the device needs it, the queue
    /// holds the address handle until the work request completes.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](Self::post); the queue pair is UD, and the address handle belongs
    /// to its protection domain.
    ///
    /// # Errors
    ///
    /// On an error the cursor is unchanged. [`PostError::BadOperation`] for all operations but
    /// SEND.
    unsafe fn post_to(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: SendOp,
        to: Destination<'_, Self::Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError>;

    /// [`post`](Self::post) on an initiator of dynamic connections or XRC.
    ///
    /// # Safety
    ///
    /// The contract of [`post_to`](Self::post_to), for a target of the queue pair's transport.
    ///
    /// # Errors
    ///
    /// On an error the cursor is unchanged. [`PostError::BadOperation`] from a provider without
    /// this transport.
    unsafe fn post_to_target(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: SendOp,
        to: Target<'_, Self::Ah>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        let _ = (at, wr, op, to, data);
        Err(PostError::BadOperation)
    }

    /// Posts the work requests of a list, each as [`post`](Self::post), or a datagram (`UD`) as
    /// [`post_to`](Self::post_to). Stops at the first error, and where a provider leaves a work
    /// request to these functions. That one is then the list's current one; a single post of it
    /// returns the error.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](Self::post) or [`post_to`](Self::post_to), for each work request of
    /// the list.
    #[inline(always)]
    unsafe fn post_list<const UD: bool, R>(&mut self, at: &mut Self::Cursor, requests: &mut R)
    where
        R: Requests<One: Request<Ah = Self::Ah>>,
    {
        while let Some(request) = requests.first() {
            let (wr, op, data) = (request.wr(), request.op(), request.data());
            let posted = if UD {
                let Some(to) = request.to() else { return };
                // SAFETY: contract of `post_list`.
                unsafe { self.post_to(at, wr, op, to, data) }
            } else {
                // SAFETY: contract of `post_list`.
                unsafe { self.post(at, wr, op, data) }
            };
            if posted.is_err() {
                return;
            }
            requests.advance();
        }
    }

    /// Posts a list of one work request, and rings. False: nothing was posted.
    ///
    /// # Safety
    ///
    /// The contracts of [`post_list`](Self::post_list) and [`ring`](Self::ring). After a call that
    /// returned true, no cursor of an earlier [`begin`](Self::begin) may be used.
    #[inline(always)]
    unsafe fn post_alone<const UD: bool>(&mut self, request: impl Request<Ah = Self::Ah>) -> bool {
        let mut at = self.begin();
        let mut list = Lone(Some(request));
        // SAFETY: contract of `post_alone`; the cursor is of the `begin` above.
        unsafe { self.post_list::<UD, _>(&mut at, &mut list) };
        let posted = list.0.is_none();
        if posted {
            // SAFETY: contract of `post_alone`; the cursor is of the `begin` above.
            unsafe { self.ring(at) };
        }
        posted
    }

    /// Writes a whole packet with its Ethernet header, on a raw packet queue pair.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](Self::post). If the queue [copies headers](Self::copies_headers),
    /// each SGE of `data` is mapped at its address in this process, and the first bytes of the
    /// packet may be read during the call. Other threads may write them meanwhile; each byte read
    /// is then one of the values that it had.
    ///
    /// # Errors
    ///
    /// On an error the cursor is unchanged. [`PostError::ShortPacket`] below the size of an
    /// Ethernet header; [`PostError::BadOperation`] from a provider without raw packets, or for
    /// checksums that the device can't compute.
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

    /// True if [`post_packet`](Self::post_packet) reads the first bytes of a packet.
    fn copies_headers(&self) -> bool {
        false
    }

    /// Writes a work request that changes a local key: a bind or an invalidation. Later work
    /// requests begin after it.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](Self::post). While a window is bound, its region stays registered,
    /// and the device may use the memory as `access` says.
    ///
    /// # Errors
    ///
    /// On an error the cursor is unchanged. [`PostError::BadOperation`] if the queue was not
    /// created with [`REKEY`](crate::attr::SendOpSet::REKEY), [`PostError::MessageTooLong`] for a
    /// window over more than 2 GiB.
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
    /// On an error the cursor is unchanged. [`PostError::NotOnDevice`] if the device has neither
    /// operation; [`PostError::BadOperation`] on other transports; [`PostError::BadData`] for a
    /// FLUSH without a placement type, or an ATOMIC WRITE to an address that is not a multiple of
    /// eight.
    unsafe fn place(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: &PlaceOp,
    ) -> Result<u32, PostError> {
        let _ = (at, wr, op);
        Err(PostError::NotOnDevice)
    }

    /// Writes a work request that lays out an indirect key. Later work requests begin after it.
    ///
    /// # Safety
    ///
    /// The contract of [`post`](Self::post). Until the key is laid out anew, invalidated or
    /// destroyed, the regions of its parts stay registered, and the device may use their memory as
    /// `access` says.
    ///
    /// # Errors
    ///
    /// On an error the cursor is unchanged. [`PostError::BadOperation`] if the queue was not
    /// created with [`REKEY`](crate::attr::SendOpSet::REKEY), or the provider has no indirect keys;
    /// [`PostError::TooManySges`] for more parts than a work request or the queue has room for;
    /// [`PostError::MessageTooLong`] for a part of more than 2 GiB; [`PostError::BadData`] for an
    /// empty part.
    unsafe fn lay_out(
        &mut self,
        at: &mut Self::Cursor,
        wr: Wr,
        op: &KeyLayout<'_>,
    ) -> Result<u32, PostError> {
        let _ = (at, wr, op);
        Err(PostError::BadOperation)
    }

    /// Puts a buffer into the slot of the work request that was just written. Its completion
    /// returns the buffer.
    ///
    /// # Safety
    ///
    /// `slot` was returned by the last [`post`](Self::post), at this cursor.
    unsafe fn own(&mut self, at: &Self::Cursor, slot: u32, held: Held);

    /// Publishes all work requests before the cursor: doorbell record, then doorbell. Does nothing
    /// if there are no new ones.
    ///
    /// # Safety
    ///
    /// The queue pair is not destroyed, and the cursor comes from the last [`begin`](Self::begin),
    /// moved by [`post`](Self::post).
    unsafe fn ring(&mut self, at: Self::Cursor);

    /// Error of the kernel at the last ring. `None` where a doorbell is a store.
    fn doorbell_error(&self) -> Option<Errno>;

    /// Number of work requests at the end of the last [`ring`](Self::ring) that the kernel refused.
    /// They are not in the queue, and their buffers came back. 0 where a refused doorbell leaves
    /// the work requests in the queue.
    fn returned(&self) -> u32 {
        0
    }

    /// Allows posting (in RTS) or refuses it with [`PostError::State`], from the next
    /// [`begin`](Self::begin) on.
    fn enable(&mut self, on: bool);

    /// Makes a post of a READ fail with [`PostError::NoReads`], because the connection allows no
    /// READs by this side. Ignored where the device refuses such a READ by a completion.
    fn forbid_reads(&mut self) {}

    /// From now on one thread rings. Its own next fence
    /// ([`crate::order::fence::copy_flush`]) then drains what it left in the processor's
    /// write-combining buffer. Queues whose doorbells use no such buffer ignore it.
    ///
    /// # Safety
    ///
    /// Until [`leave`](Self::leave) only the calling thread rings and drops the queue.
    unsafe fn stay(&mut self) {}

    /// Ends [`stay`](Self::stay): drains the write-combining buffer, and any thread may ring.
    fn leave(&mut self) {}

    /// Restarts at index 0, as the device does after a reset.
    ///
    /// # Safety
    ///
    /// The kernel confirmed the reset, and the completion queue holds no completion of this queue.
    unsafe fn reset(&mut self);
}
