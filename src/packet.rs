//! Raw packets: whole Ethernet frames, out of and into registered memory.
//!
//! # Safety
//!
//! As in the send queue's file: safe posts move a frame in or copy, raw posts hand on the caller's
//! promise. What a safe post names is at its address in this process, and is the program's until it
//! is posted, or exposed memory, which is reached by atomic accesses.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts, and has raw posts of its own")]

use uverbs_core::error::Error;
use uverbs_core::memory::post::{MOST_PIECES, Source};
use uverbs_core::provider::SendOps;
use uverbs_core::queues::work::{Data, PostError, Sge, Wr};

use crate::provider::Provider;
use crate::raw::RawBatch;
use crate::transport::RawPacket;
use crate::{Batch, QueuePair, Unposted};

#[doc(inline)]
pub use uverbs_core::attr::{
    RawPacketCaps, RawPacketChange, RawPacketInitAttr, RawPacketRtrAttr, RawPacketRtsAttr,
};
#[doc(inline)]
pub use uverbs_core::provider::PacketInfo;
#[doc(inline)]
pub use uverbs_core::queues::work::Checksums;
/// A queue pair for whole Ethernet frames.
pub type RawPacketQueuePair<P = crate::Any> = QueuePair<P, RawPacket>;

/// A queue pair for whole packets: it sends any, and receives those that
/// [rules](crate::flow::FlowRule) [steer](Self::steer) to it. On Linux it needs `CAP_NET_RAW`.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// use uverbs::flow::{EthMatch, FlowRule, MacAddr};
///
/// let mut qp = context.queue_pair(&pd, &cq).raw_packet().build()?;
/// qp.bring_up(1)?;
/// let mine = EthMatch { dst: Some(MacAddr([2, 0, 0, 0, 0, 9]).into()), ..Default::default() };
/// let flow = qp.steer(&FlowRule::new().eth(mine))?;
/// let slab = pd.slab(2048, 8)?;
/// while let Some(frame) = slab.take() {
///     qp.post_recv(1, frame)?;
/// }
/// # drop(flow);
/// # Ok::<(), uverbs::Error>(())
/// ```
impl<P: Provider> QueuePair<P, RawPacket> {
    /// Brings the queue pair to RTS on a port, from 1: raw packets have no peer to wait for.
    ///
    /// # Errors
    ///
    /// [`Error::State`] from another state than RESET; [`Error::Kernel`]: `EINVAL` for a port that
    /// doesn't exist.
    pub fn bring_up(&mut self, port: u8) -> Result<(), Error> {
        self.init(&RawPacketInitAttr { port })?;
        self.ready_to_receive(&RawPacketRtrAttr)?;
        self.ready_to_send(&RawPacketRtsAttr)
    }
}

/// A packet has all its headers, the Ethernet header first, and no check sequence: that is the
/// port's.
impl<P: Provider> Batch<'_, P, RawPacket> {
    /// Sends a packet: a frame, or another [`Source`].
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data: [`PostError::ShortPacket`] under 14 bytes, or under 18
    /// if the device needs so many inline; [`PostError::BadOperation`] if the device doesn't fill
    /// in checksums, and for a part of an [indirect key](crate::memory::IndirectKey) if the device
    /// needs the first bytes inline, since they have no address in this process.
    #[doc(alias = "IBV_WR_SEND")]
    pub fn send_packet<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        checksums: Checksums,
    ) -> Result<(), Unposted<D>> {
        if data.domain() != self.queue.domain {
            return Err(Unposted { error: PostError::ForeignBuffer, data });
        }
        if !D::MAPPED && self.queue.sq.copies_headers() {
            return Err(Unposted { error: PostError::BadOperation, data });
        }
        let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; MOST_PIECES];
        let sq = &mut self.queue.sq;
        let posted = data.pieces(&mut list).and_then(|list| {
            // SAFETY: the memory is registered for as long as what holds it lives, which moves into
            // the slot of this work request and stays until completion or destruction. Where the
            // queue copies headers, its bytes are at their addresses, and read by atomic loads.
            unsafe { sq.post_packet(&mut self.at, wr.into(), checksums, Data::List(list)) }
        });
        // SAFETY: of the post just made.
        unsafe { self.keep(posted, data) }
    }

    /// Sends a packet of bytes that are copied into the work request: the program may reuse them
    /// at once.
    ///
    /// # Errors
    ///
    /// As [`send_packet`](Self::send_packet); [`PostError::InlineTooLong`] over the queue pair's
    /// `max_inline_data`.
    pub fn send_packet_inline(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        checksums: Checksums,
    ) -> Result<(), PostError> {
        // SAFETY: the bytes are copied now; no memory is named by key.
        unsafe { self.raw().post_packet(wr, checksums, Data::Inline(data)) }
    }
}

impl<P: Provider> RawBatch<'_, '_, P, RawPacket> {
    /// Sends a packet by address and key.
    ///
    /// # Safety
    ///
    /// The contract of [`RawBatch`] holds, and the SGEs name addresses of this process: if the
    /// device wants the packet's first 18 bytes in the WQE, they are read now by atomic loads.
    /// Memory registered at another address (`register_at`) doesn't qualify.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch is as before.
    pub unsafe fn post_packet(
        &mut self,
        wr: impl Into<Wr>,
        checksums: Checksums,
        data: Data<'_>,
    ) -> Result<(), PostError> {
        let Batch { queue, at, .. } = &mut *self.batch;
        // SAFETY: the caller upholds this function's contract; the cursor is of this queue's last
        // `begin`.
        unsafe { queue.sq.post_packet(at, wr.into(), checksums, data) }.map(|_| queue.unrung.note())
    }
}
