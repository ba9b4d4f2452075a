//! Queue pairs: bringing one up, splitting it, and taking it down.
//!
//! # Safety
//!
//! A reset is passed on to the rings only after the kernel confirmed it and the completion queues were swept.
#![allow(unsafe_code, reason = "resets the rings of a queue pair that the kernel reset")]

use std::sync::Arc;

use uverbs_core::attr::{
    AccessFlags, AckTimeout, AhAttr, AtomicCap, Gid, GidEntry, GlobalRoute, InitAttr, LinkLayer,
    Mtu, Path, QpAttr, QpCap, QpState, RnrTimer, UcRtrAttr, UdInitAttr, UdRtrAttr,
    UnreliableRtsAttr,
};
use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::memory::post::Room;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::ContextOps;

use crate::provider::Provider;
use crate::transport::{Connected, Rc, Transport, Ud};
use crate::{
    Any, Batch, CompletionQueue, Context, DatagramEndpoint, Destination, Endpoint, LocalPort,
};
use crate::{RecvBatch, RecvQueue, Refused, Rejected, SendQueue};

/// How a queue pair is brought up: the local half of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// Port, from 1.
    pub port: u8,
    /// Index into the port's GID table; `None` takes [`Context::best_gid`].
    pub gid_index: Option<u32>,
    /// Index into the port's partition table.
    pub pkey_index: u16,
    /// What the peer may do with memory exposed to it: nothing, unless said otherwise. Atomics are left out on a device that has none
    /// ([`DeviceAttr::atomic_cap`](crate::DeviceAttr)).
    pub access: AccessFlags,
    /// First PSN, 24 bits; `None` takes a random one.
    pub psn: Option<u32>,
    /// Largest packet payload; `None` takes the port's.
    pub mtu: Option<Mtu>,
    /// READs and atomics outstanding in each direction, as far as the device has them.
    pub rd_atomic: u8,
    /// How long the peer shall wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// How long to wait for an acknowledgement.
    pub timeout: AckTimeout,
    /// Retries after a timeout or a sequence error, 0 to 7.
    pub retry_count: u8,
    /// Retries after receiver-not-ready, 0 to 6; 7 is for ever.
    pub rnr_retry: u8,
    /// Service level, 0 to 15.
    pub service_level: u8,
    /// Traffic class (DSCP and ECN on RoCE v2).
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The Q_Key that datagrams must carry to be received; of UD alone.
    pub qkey: u32,
}

impl Default for Local {
    /// Port 1, the best GID, no remote rights, and retries that end: 67 ms times seven for an acknowledgement, and for a receive that
    /// isn't posted six times 163.84 ms, a second in all. Who exposes memory to the peer says so:
    ///
    /// ```
    /// # use uverbs::{AccessFlags, Local};
    /// let local = Local { access: AccessFlags::REMOTE_WRITE, ..Local::default() };
    /// ```
    fn default() -> Self {
        Self {
            port: 1,
            gid_index: None,
            pkey_index: 0,
            access: AccessFlags::empty(),
            psn: None,
            mtu: None,
            rd_atomic: 16,
            min_rnr_timer: RnrTimer::PATIENT,
            timeout: AckTimeout::DEFAULT,
            retry_count: 7,
            rnr_retry: 6,
            service_level: 0,
            traffic_class: 0,
            hop_limit: 64,
            qkey: 0x1111_1111,
        }
    }
}

/// What the whole queue pair needs besides its halves.
#[derive(Debug)]
pub(crate) struct Home<P: Provider> {
    context: Context<P>,
    prepared: Option<Prepared>,
}

impl<P: Provider> Home<P> {
    pub(crate) fn new(context: Context<P>) -> Self {
        Self { context, prepared: None }
    }
}

/// What [`QueuePair::prepare`] settled, for [`QueuePair::connect`].
#[derive(Debug)]
struct Prepared {
    local: Local,
    endpoint: Endpoint,
    gid: Option<GidEntry>,
    link: LinkLayer,
}

/// A queue pair, of a [transport](Transport): a reliable connection unless said otherwise.
///
/// Bring it up with [`prepare`](Self::prepare) and [`connect`](Self::connect), or transition by transition with typed attributes.
/// A transition that lacks an attribute doesn't compile:
///
/// ```compile_fail,E0063
/// # use uverbs::{InitAttr, QueuePair};
/// # fn f(qp: &mut QueuePair) -> Result<(), uverbs::Error> {
/// qp.init(&InitAttr { port: 1, pkey_index: 0 })?; // no `access`
/// # Ok(()) }
/// ```
///
/// Dropping it (or both its halves) destroys it; frames in flight go back to their slabs when the completion queue is polled next,
/// or dropped. Leaking it leaks its memory and never frees it.
#[derive(Debug)]
#[doc(alias = "ibv_qp")]
pub struct QueuePair<P: Provider = Any, T: Transport = Rc> {
    send: SendQueue<P, T>,
    recv: RecvQueue<P>,
}

/// A queue pair that the kernel confirmed as destroyed; [`CompletionQueue::reclaim`] gives its buffers back.
#[derive(Debug)]
#[must_use = "its buffers come back through `CompletionQueue::reclaim`"]
pub struct Gone {
    core: Arc<QpCore>,
}

impl Gone {
    pub(crate) fn core(&self) -> &Arc<QpCore> {
        &self.core
    }

    /// The number it had.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.core.qpn()
    }
}

impl<P: Provider, T: Transport> QueuePair<P, T> {
    pub(crate) fn new(send: SendQueue<P, T>, recv: RecvQueue<P>) -> Self {
        Self { send, recv }
    }

    fn core(&self) -> &Arc<QpCore> {
        self.send.core()
    }

    /// The kernel's handle, for commands of your own.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core().handle()
    }

    /// Its number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.core().qpn()
    }

    /// What asynchronous events name it by ([`AsyncElement::Qp`](crate::AsyncElement)).
    #[must_use]
    pub fn event_id(&self) -> u64 {
        self.core().event_id()
    }

    /// What the device granted: at least what was asked for.
    #[must_use]
    pub fn cap(&self) -> &QpCap {
        self.core().cap()
    }

    /// The state it was last brought to; the device may have put it into ERR since.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.core().state()
    }

    /// What it is set to, asked of the device.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttr, Error> {
        self.core().query()
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

    /// Posts one receive: a frame, a chain of them, or a part of exposed memory.
    ///
    /// # Errors
    ///
    /// As [`RecvBatch::post`].
    #[inline]
    pub fn post_recv<D: Room>(&mut self, id: u64, into: D) -> Result<(), Rejected<D>> {
        self.recv.post(id, into)
    }

    /// The two halves, which two threads may own. The queue pair is destroyed when both are gone.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// # let endpoint = qp.prepare(&Default::default())?;
    /// # qp.connect(&endpoint)?;
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

    /// RESET to INIT: receives can be posted from here on.
    ///
    /// # Errors
    ///
    /// [`Error::State`] from another state; the kernel's refusal: `EINVAL` for a port or partition that isn't there.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&mut self, attr: &T::Init) -> Result<(), Error> {
        self.whole()?;
        self.core().bring(attr)?;
        self.recv.enable(true);
        Ok(())
    }

    /// INIT to RTR.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for numbers over their field; [`Error::State`] from another state; the kernel's refusal.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(&mut self, attr: &T::Rtr) -> Result<(), Error> {
        self.whole()?;
        self.core().bring(attr)
    }

    /// RTR to RTS: sends can be posted from here on.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for numbers over their field; [`Error::State`] from another state; the kernel's refusal.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_send(&mut self, attr: &T::Rts) -> Result<(), Error> {
        self.whole()?;
        self.core().bring(attr)?;
        self.send.enable(true);
        Ok(())
    }

    /// To ERR: everything outstanding comes back flushed through the completion queues.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn fail(&mut self) -> Result<(), Error> {
        self.whole()?;
        self.core().fail()
    }

    /// To RESET: everything outstanding is forgotten, completions not yet polled included. The buffers come back with their work
    /// requests' numbers. `cqs` are its completion queues; others among them are left alone.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when one of its completion queues is not among `cqs`; the kernel's refusal.
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
                    why: "a reset sweeps the completions out of both completion queues",
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
        // SAFETY: the kernel confirmed the reset; `&mut self` is the posting side, `&mut` of the completion queues the polling side.
        let mut frames = unsafe { core.shared().send.reclaim() };
        // SAFETY: as above.
        frames.append(&mut unsafe { core.shared().recv.reclaim() });
        // SAFETY: the kernel confirmed the reset, and the completion queues were just swept.
        unsafe { self.send.reset() };
        // SAFETY: as above.
        unsafe { self.recv.reset() };
        Ok(frames)
    }

    /// Destroys it now. When the kernel has confirmed it, the buffers in flight can be had back from the completion queues.
    ///
    /// So it is after the device was removed, too ([`AsyncEventKind::DeviceFatal`](crate::AsyncEventKind), [`Error::DeviceGone`]): nothing
    /// completes any more, and this call and [`CompletionQueue::reclaim`] are how buffers come back. Linux has then taken the
    /// object from the device, waits here until that is done, and confirms it (kernel `rdma_core.c:uobj_destroy`,
    /// `rdma_lookup_get_uobject`: of a device that is gone only commands that destroy are let through).
    ///
    /// # Errors
    ///
    /// The kernel's refusal, with the queue pair, which goes on. If it is dropped then, and the kernel refuses again, its buffers and
    /// rings stay with the device for good.
    #[doc(alias = "ibv_destroy_qp")]
    #[allow(clippy::result_large_err, reason = "the error is the queue pair itself, once")]
    pub fn destroy(mut self) -> Result<Gone, Refused<Self>> {
        if let Err(error) = self.whole() {
            return Err(Refused { error, object: self });
        }
        self.send.forget_unrung();
        self.recv.forget_unrung();
        let core = Arc::clone(self.core());
        // SAFETY: both posting sides are here, and if it succeeds they go with `self`.
        match unsafe { core.destroy() } {
            Ok(()) => Ok(Gone { core }),
            Err(error) => Err(Refused { error, object: self }),
        }
    }

    /// A port of this queue pair's open device, with a GID index that commands have room for.
    fn owns(&self, port: &LocalPort) -> Result<(), Error> {
        if !Arc::ptr_eq(&port.core, self.recv.home.context.provider().core()) {
            return Err(Error::Invalid {
                verb: "modify_qp",
                what: "port",
                value: "of another context".to_owned(),
                why: "a queue pair uses the ports of the open device that it was made from",
            });
        }
        // The command has eight bits for it (`ib_uverbs_qp_dest::sgid_index`).
        limit("GID index", port.gid.as_ref().map_or(0, |gid| gid.index), 255)
    }

    /// Both halves are of the same queue pair: `mem::swap` through the accessors could have mixed them.
    fn whole(&self) -> Result<(), Error> {
        if Arc::ptr_eq(self.send.core(), self.recv.core()) {
            return Ok(());
        }
        Err(Error::Invalid {
            verb: "modify_qp",
            what: "receive queue",
            value: format!("of QP {:#x}", self.recv.core().qpn()),
            why: "both queues must be of the same queue pair",
        })
    }
}

impl<P: Provider, T: Connected> QueuePair<P, T> {
    /// Brings it to INIT and says what the peer must know. Receives can be posted from here on.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a GID index or a port that isn't there, an MTU over the port's; [`Error::Unsupported`] on an Ethernet port
    /// without GIDs; the kernel's refusal.
    pub fn prepare(&mut self, local: &Local) -> Result<Endpoint, Error> {
        self.whole()?;
        let port = self.recv.home.context.local_port(local)?;
        self.prepare_on(&port)
    }

    /// [`prepare`](Self::prepare) with a port that was looked at before: for many queue pairs on one port. The kernel is asked
    /// nothing; a port that has changed since shows in `connect`, or in a peer that can't be reached.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a port of another open device; [`Error::Limit`] for an MTU over the port's; the kernel's refusal.
    pub fn prepare_on(&mut self, port: &LocalPort) -> Result<Endpoint, Error> {
        self.whole()?;
        self.owns(port)?;
        let LocalPort { local, device, port, gid, .. } = port;
        let (mut local, gid) = (local.clone(), *gid);
        let rd_atomic = |most: u32| local.rd_atomic.min(u8::try_from(most).unwrap_or(u8::MAX));
        let (serves, asks) =
            (rd_atomic(device.max_qp_rd_atom), rd_atomic(device.max_qp_init_rd_atom));
        local.rd_atomic = asks;
        let mtu = local.mtu.unwrap_or(port.active_mtu);
        limit("path MTU", mtu.bytes().unwrap_or(0), port.active_mtu.bytes().unwrap_or(0))?;
        limit("first PSN", local.psn.unwrap_or(0), 0xff_ffff)?;
        self.init(&InitAttr {
            port: local.port,
            pkey_index: local.pkey_index,
            access: rights(local.access, device.atomic_cap),
        })?;
        let endpoint = Endpoint {
            lid: port.lid,
            qpn: self.qpn(),
            psn: local.psn.unwrap_or_else(|| self.recv.home.context.random_psn()),
            mtu,
            rd_atomic: serves,
            gid: gid.as_ref().map(|entry| entry.gid),
        };
        let link = port.link_layer;
        self.recv.home.prepared = Some(Prepared { local, endpoint, gid, link });
        Ok(endpoint)
    }

    /// Connects to the peer: INIT to RTR to RTS.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// let here = qp.prepare(&uverbs::Local::default())?;
    /// // Both sides tell each other, as text, over whatever they have.
    /// let there: uverbs::Endpoint = here.to_string().parse()?; // here the peer is itself
    /// qp.connect(&there)?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// The smaller of both sides' MTUs and READ depths is used, so the peer must be given
    /// this side's endpoint unchanged. If it fails on the way from RTR to RTS, the way back is a [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] unless [`prepare`](Self::prepare)d; [`Error::MissingAttribute`] when the peer gives no GID and this port is
    /// Ethernet, which can't do without; [`Error::Invalid`] for a GID that can't be reached from this side's; the kernel's refusal.
    pub fn connect(&mut self, peer: &Endpoint) -> Result<(), Error> {
        let Some(prepared) = self.recv.home.prepared.take() else {
            return Err(Error::Invalid {
                verb: "connect",
                what: "queue pair",
                value: format!("in {}, and not prepared", self.state()),
                why: "`prepare` comes first: it settles this side's half of the connection",
            });
        };
        let result = self.connect_prepared(&prepared, peer);
        self.recv.home.prepared = Some(prepared);
        result
    }

    fn connect_prepared(&mut self, prepared: &Prepared, peer: &Endpoint) -> Result<(), Error> {
        let Prepared { local, endpoint, gid, link } = prepared;
        let route = route(*link, gid.as_ref(), peer.gid)?;
        let mtu = if peer.mtu.raw() < endpoint.mtu.raw() { peer.mtu } else { endpoint.mtu };
        let common = UcRtrAttr {
            dest_qpn: peer.qpn,
            rq_psn: peer.psn,
            path_mtu: mtu,
            path: path(local, peer.lid, route),
        };
        self.ready_to_receive(&T::rtr(common, local, endpoint.rd_atomic))?;
        let asks = local.rd_atomic.min(peer.rd_atomic);
        self.ready_to_send(&T::rts(endpoint.psn, local, asks))
    }
}

/// A queue pair for datagrams.
impl<P: Provider> QueuePair<P, Ud> {
    /// Brings it all the way to RTS, since there is no peer to wait for, and says what others must know to send to it.
    ///
    /// # Errors
    ///
    /// As for a connected queue pair's [`prepare`](QueuePair::prepare).
    pub fn bring_up(&mut self, local: &Local) -> Result<DatagramEndpoint, Error> {
        self.whole()?;
        let port = self.recv.home.context.local_port(local)?;
        self.bring_up_on(&port)
    }

    /// [`bring_up`](Self::bring_up) with a port that was looked at before.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a port of another open device; the kernel's refusal.
    pub fn bring_up_on(&mut self, port: &LocalPort) -> Result<DatagramEndpoint, Error> {
        self.whole()?;
        self.owns(port)?;
        let LocalPort { local, port, gid, .. } = port;
        let Local { port: number, pkey_index, qkey, .. } = *local;
        let psn = local.psn.unwrap_or_else(|| self.recv.home.context.random_psn());
        self.init(&UdInitAttr { port: number, pkey_index, qkey })?;
        self.ready_to_receive(&UdRtrAttr)?;
        self.ready_to_send(&UnreliableRtsAttr { sq_psn: psn })?;
        let (lid, qpn) = (port.lid, self.qpn());
        let endpoint = Endpoint {
            lid,
            qpn,
            psn,
            mtu: port.active_mtu,
            rd_atomic: 0,
            gid: gid.as_ref().map(|entry| entry.gid),
        };
        let (local, gid, link) = (local.clone(), *gid, port.link_layer);
        self.recv.home.prepared = Some(Prepared { local, endpoint, gid, link });
        Ok(DatagramEndpoint { lid, qpn, qkey, gid: endpoint.gid })
    }

    /// Where datagrams to `peer` go, from the port that this was [brought up](Self::bring_up) on. One call to the kernel on
    /// Ethernet: keep it for many datagrams.
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless brought up; [`Error::MissingAttribute`] and [`Error::Invalid`] as for
    /// [`connect`](QueuePair::connect); as [`Context::create_ah`].
    pub fn destination(&self, peer: &DatagramEndpoint) -> Result<Destination<P>, Error> {
        let Some(Prepared { local, gid, link, .. }) = &self.recv.home.prepared else {
            return Err(Error::State {
                verb: "create_ah",
                state: self.state(),
                needs: QpState::ReadyToSend,
            });
        };
        let route = route(*link, gid.as_ref(), peer.gid)?;
        let attr = AhAttr { port: local.port, path: path(local, peer.lid, route) };
        let ah = self.recv.home.context.create_ah_of(self.core().pd(), &attr)?;
        Ok(ah.to(peer.qpn, peer.qkey))
    }
}

/// The way to a peer: its LID or its GID, and what this side sends with.
fn path(local: &Local, dlid: u16, route: Option<(Gid, u8)>) -> Path {
    Path {
        dlid,
        grh: route.map(|(dgid, sgid_index)| GlobalRoute {
            dgid,
            sgid_index,
            hop_limit: local.hop_limit,
            traffic_class: local.traffic_class,
            flow_label: 0,
        }),
        service_level: local.service_level,
        src_path_bits: 0,
        static_rate: 0,
    }
}

/// What the peer may do: what was asked for, less what the device doesn't have.
fn rights(asked: AccessFlags, atomics: AtomicCap) -> AccessFlags {
    match atomics {
        AtomicCap::None => asked.difference(AccessFlags::REMOTE_ATOMIC),
        _ => asked,
    }
}

/// The global route to the peer, or why there is none.
fn route(
    link: LinkLayer,
    own: Option<&GidEntry>,
    peer: Option<Gid>,
) -> Result<Option<(Gid, u8)>, Error> {
    let ethernet = link == LinkLayer::Ethernet;
    match (own, peer) {
        (None, _) if !ethernet => Ok(None),
        (Some(_), None) | (None, _) if ethernet => Err(Error::MissingAttribute {
            verb: "connect",
            attribute: "the peer's GID (RoCE has no route without)",
        }),
        (Some(own), Some(dgid)) => {
            if ethernet && own.gid.is_ipv4_mapped() != dgid.is_ipv4_mapped() {
                return Err(Error::Invalid {
                    verb: "connect",
                    what: "the peer's GID",
                    value: format!("{dgid}, from {}", own.gid),
                    why: "an IPv4 GID reaches only IPv4 GIDs, and an IPv6 GID only IPv6 ones",
                });
            }
            Ok(Some((dgid, own.index as u8)))
        }
        _ => Ok(None),
    }
}

fn limit(what: &'static str, value: u32, limit: u32) -> Result<(), Error> {
    if value <= limit {
        return Ok(());
    }
    Err(Error::Limit { verb: "modify_qp", what, value: value.into(), limit: limit.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_are_asked_for_where_there_are_some() {
        let all = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        assert_eq!(rights(all, AtomicCap::None), AccessFlags::REMOTE_WRITE);
        assert_eq!(rights(all, AtomicCap::Hca), all);
        assert_eq!(rights(all, AtomicCap::Global), all);
    }
}
