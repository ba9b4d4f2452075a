//! Datagrams: address handles, destinations, and sends to them.
//!
//! # Safety
//!
//! As in the send queue's file: safe posts move a frame in or copy, raw posts pass on the caller's
//! contract. Each post first checks that the address handle belongs to the queue pair's protection
//! domain. Providers rely on that.
#![allow(unsafe_code, reason = "calls the provider's unsafe posts, and has raw posts of its own")]

use std::sync::Arc;

use uverbs_core::attr::{AhAttr, GidEntry, GidType, GlobalRoute, Grh, Path};
use uverbs_core::error::Error;
use uverbs_core::memory::post::{MOST_PIECES, Source};
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::{AhOps, ContextOps, SendOps};
use uverbs_core::queues::completion::Sender;
use uverbs_core::queues::work::{self, Data, PostError, SendOp, Sge, Wr};

use crate::provider::Provider;
use crate::raw::RawBatch;
use crate::transport::directed::{Cursor, Directed};
use crate::transport::{Srd, Ud};
use crate::{Any, Batch, Context, ProtectionDomain, Unposted};

/// Bytes before the data of every received datagram: room for the packet's GRH, even if the packet
/// has none. A receive buffer needs so many bytes more than the longest message.
#[doc(alias = "ib_grh")]
pub const GRH_LEN: usize = 40;

/// An address handle: the way to a port, for datagrams. A cheap handle; clones share it.
#[derive(Debug)]
#[doc(alias = "ibv_ah")]
pub struct AddressHandle<P: Provider = Any> {
    ah: P::Ah,
    domain: u64,
}

// Not derived: that would ask it of the provider, too.
impl<P: Provider> Clone for AddressHandle<P> {
    fn clone(&self) -> Self {
        Self { ah: self.ah.clone(), domain: self.domain }
    }
}

impl<P: Provider> AddressHandle<P> {
    /// A queue pair behind this handle.
    #[must_use]
    pub fn to(&self, qpn: u32, qkey: u32) -> Destination<P> {
        Destination { ah: self.clone(), qpn, qkey, peer: self.ah.peer(qpn, qkey) }
    }

    #[inline]
    pub(crate) fn domain(&self) -> u64 {
        self.domain
    }

    /// The provider's own handle.
    #[must_use]
    pub fn provider(&self) -> &P::Ah {
        &self.ah
    }
}

/// Destination of a datagram: address handle, remote queue pair number and Q_Key.
#[derive(Debug)]
pub struct Destination<P: Provider = Any> {
    ah: AddressHandle<P>,
    qpn: u32,
    qkey: u32,
    /// `qpn` and `qkey` as posts take them.
    peer: [u64; 2],
}

impl<P: Provider> Clone for Destination<P> {
    fn clone(&self) -> Self {
        Self { ah: self.ah.clone(), ..*self }
    }
}

impl<P: Provider> Destination<P> {
    /// The way.
    #[must_use]
    pub fn address_handle(&self) -> &AddressHandle<P> {
        &self.ah
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The Q_Key that datagrams carry.
    #[must_use]
    pub fn qkey(&self) -> u32 {
        self.qkey
    }

    #[inline(always)]
    fn as_work(&self) -> work::Destination<'_, P::Ah> {
        // Word by word: copied whole they would go through memory.
        let [first, second] = self.peer;
        work::Destination { ah: &self.ah.ah, peer: [first, second] }
    }
}

impl<P: Provider> Context<P> {
    /// Makes an address handle: the way out of a port, to a peer's port.
    ///
    /// [`QueuePair::destination`](crate::QueuePair::destination) makes one from the peer's
    /// [`Endpoint`](crate::Endpoint).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a protection domain of another open device;
    /// [`Error::MissingAttribute`] without a global route on a port that needs one;
    /// [`Error::Limit`] for values over their field, and for a port or a GID index that isn't
    /// there; [`Error::EmptyGid`]; [`Error::Kernel`]: `EHOSTUNREACH` or `ETIMEDOUT` for a peer
    /// whose MAC address can't be found.
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(
        &self,
        pd: &ProtectionDomain,
        attr: &AhAttr,
    ) -> Result<AddressHandle<P>, Error> {
        self.create_ah_of(pd.core(), attr)
    }

    /// Attributes of an address handle back to a datagram's sender, from the completion's
    /// [`sender`](crate::WorkCompletion::sender) and the first [`GRH_LEN`] bytes of the buffer.
    /// [`QueuePair::reply_to`](crate::QueuePair::reply_to) makes a destination of it.
    ///
    /// The answer to a multicast datagram leaves by the port's first GID of the same kind.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for bytes that are no header although one came, or that were sent to
    /// another port's GID; [`Error::Kernel`]: `EIO` of a removed device.
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn sender_address(&self, port: u8, from: Sender, grh: &[u8]) -> Result<AhAttr, Error> {
        const VERB: &str = "init_ah_from_wc";
        let mut path = Path {
            dlid: from.lid(),
            grh: None,
            service_level: from.service_level(),
            src_path_bits: 0,
            static_rate: 0,
        };
        if from.has_grh() {
            let grh = Grh::parse(grh).ok_or_else(|| Error::Invalid {
                verb: VERB,
                what: "GRH",
                value: format!("{:02x?}", &grh[..grh.len().min(GRH_LEN)]),
                why: "the 40 bytes before a datagram's data must hold a GRH or an IP header",
            })?;
            let own = self.gid_reached(port, &grh)?.ok_or_else(|| Error::Invalid {
                verb: VERB,
                what: "destination GID",
                value: grh.destination.to_string(),
                why: "the port has no such GID, so the datagram was not sent to it",
            })?;
            if own.kind != GidType::Ib {
                // RoCE packets have no service level; the field holds other bits there.
                path.service_level = 0;
            }
            path.grh = Some(GlobalRoute {
                dgid: grh.source,
                sgid_index: u8::try_from(own.index).unwrap_or(u8::MAX),
                hop_limit: grh.hop_limit,
                traffic_class: grh.traffic_class,
                flow_label: grh.flow_label,
            });
        }
        Ok(AhAttr { port, path })
    }

    /// The port's GID that a packet was sent to; of a group's any of the same family.
    fn gid_reached(&self, port: u8, grh: &Grh) -> Result<Option<GidEntry>, Error> {
        let to = grh.destination;
        let to_group = to.is_multicast() || to.to_ipv4().is_some_and(|ip| ip.is_multicast());
        let fits = |entry: &GidEntry| {
            let same = match to_group {
                false => entry.gid == to,
                true => entry.gid.is_ipv4_mapped() == to.is_ipv4_mapped(),
            };
            entry.port == u32::from(port) && grh.kind.is_of(entry.kind) && same
        };
        Ok(self.query_gid_table()?.into_iter().find(fits))
    }

    pub(crate) fn create_ah_of(
        &self,
        pd: &Arc<PdCore>,
        attr: &AhAttr,
    ) -> Result<AddressHandle<P>, Error> {
        let ah = self.provider().create_ah(pd, attr).map_err(|refused| {
            let bad = matches!(refused.errno(), Some(crate::Errno::EINVAL | crate::Errno::ENODATA));
            // Only now is the GID worth a question.
            match attr.path.grh.filter(|_| bad).map(|grh| grh.sgid_index.into()) {
                Some(index) => self.query_gid(attr.port, index).err().unwrap_or(refused),
                None => refused,
            }
        })?;
        let domain = ah.core().pd().domain();
        Ok(AddressHandle { ah, domain })
    }
}

/// A datagram names a destination, and no remote memory:
///
/// ```compile_fail,E0599
/// # use uverbs::{Any, Batch, Remote, Ud};
/// # fn f(batch: &mut Batch<'_, Any, Ud>, remote: Remote) {
/// batch.write_inline(1, b"bytes", remote).unwrap(); // UD has no RDMA
/// # }
/// ```
///
/// Safe posts of datagrams. A post sends the frame's current length in one packet. More than the
/// path's MTU fails with a [local length error](crate::Status::LocalLength), or is dropped.
impl<P: Provider> Batch<'_, P, Ud> {
    /// SEND of a frame, or of what else a [`Source`] is, to a destination.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data.
    #[inline(always)]
    #[doc(alias = "ibv_wr_set_ud_addr")]
    pub fn send_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        to: &Destination<P>,
    ) -> Result<(), Unposted<D>> {
        self.data_to(wr.into(), SendOp::Send, data, to)
    }

    /// [`send_to`](Self::send_to) with immediate data.
    ///
    /// # Errors
    ///
    /// [`Unposted`] with the data.
    #[inline(always)]
    pub fn send_imm_to<D: Source>(
        &mut self,
        wr: impl Into<Wr>,
        data: D,
        imm: u32,
        to: &Destination<P>,
    ) -> Result<(), Unposted<D>> {
        self.data_to(wr.into(), SendOp::SendImm(imm), data, to)
    }

    /// SEND of bytes that are copied into the work request: the program may reuse them at once.
    ///
    /// # Errors
    ///
    /// [`PostError::InlineTooLong`] over the queue pair's `max_inline_data`.
    #[inline(always)]
    pub fn send_inline_to(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        to: &Destination<P>,
    ) -> Result<(), PostError> {
        // SAFETY: the bytes are copied now; no memory is named by key.
        unsafe { self.raw().post_to(wr, SendOp::Send, Data::Inline(data), to) }
    }

    /// SEND with immediate data of copied bytes.
    ///
    /// # Errors
    ///
    /// As [`send_inline_to`](Self::send_inline_to).
    #[inline(always)]
    pub fn send_imm_inline_to(
        &mut self,
        wr: impl Into<Wr>,
        data: &[u8],
        imm: u32,
        to: &Destination<P>,
    ) -> Result<(), PostError> {
        // SAFETY: as in `send_inline_to`.
        unsafe { self.raw().post_to(wr, SendOp::SendImm(imm), Data::Inline(data), to) }
    }

    #[inline(always)]
    fn data_to<D: Source>(
        &mut self,
        wr: Wr,
        op: SendOp,
        data: D,
        to: &Destination<P>,
    ) -> Result<(), Unposted<D>> {
        if data.domain() != self.queue.domain {
            return Err(Unposted { error: PostError::ForeignBuffer, data });
        }
        if to.ah.domain != self.queue.domain {
            return Err(Unposted { error: PostError::ForeignAddress, data });
        }
        let sq = &mut self.queue.sq;
        let posted = if D::LIST {
            let mut list = [Sge { addr: 0, len: 0, lkey: 0 }; MOST_PIECES];
            data.pieces(&mut list).and_then(|list| {
                // SAFETY: as below, of each piece.
                unsafe { sq.post_to(&mut self.at, wr, op, to.as_work(), Data::List(list)) }
            })
        } else {
            let one = Data::One(data.first());
            // SAFETY: the memory is registered for as long as what holds it lives, which moves into
            // the slot of this work request and stays until completion or destruction. The handle's
            // domain is the queue's.
            unsafe { sq.post_to(&mut self.at, wr, op, to.as_work(), one) }
        };
        // SAFETY: of the post just made.
        unsafe { self.keep(posted, data) }
    }
}

impl<P: Provider> RawBatch<'_, '_, P, Ud> {
    /// SEND, or SEND with immediate data, to a destination; [`PostError::BadOperation`] for another
    /// operation.
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
        to: &Destination<P>,
    ) -> Result<(), PostError> {
        let Batch { queue, at, .. } = &mut *self.batch;
        if to.ah.domain != queue.domain {
            return Err(PostError::ForeignAddress);
        }
        // SAFETY: the caller upholds this function's contract; the cursor is of this queue's last
        // `begin`, and the
        // handle's domain is the queue's.
        unsafe { queue.sq.post_to(at, wr.into(), op, to.as_work(), data) }
            .map(|_| queue.unrung.note())
    }
}

impl Directed for Srd {
    type To<P: Provider> = Destination<P>;

    #[inline]
    fn domain<P: Provider>(to: &Destination<P>) -> Option<u64> {
        Some(to.ah.domain)
    }

    #[inline(always)]
    unsafe fn post<P: Provider>(
        sq: &mut P::Sq,
        at: &mut Cursor<P>,
        wr: Wr,
        op: SendOp,
        to: &Destination<P>,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { sq.post_to(at, wr, op, to.as_work(), data) }
    }
}
