//! Queue pairs: making one, bringing it up, splitting it, and taking it down.
//!
//! # Safety
//!
//! A reset is passed on to the rings only after the kernel confirmed it and the completion queues were swept.
#![allow(unsafe_code, reason = "resets the rings of a queue pair that the kernel reset")]

use std::sync::Arc;

use uverbs_core::attr::{
    AccessFlags, AckTimeout, DoorbellMode, GidEntry, GlobalRoute, InitAttr, LinkLayer, Mtu, Path,
    QpAttr, QpCap, QpState, RnrTimer, RtrAttr, RtsAttr,
};
use uverbs_core::error::Error;
use uverbs_core::memory::frame::Frame;
use uverbs_core::memory::post::Room;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::provider::{ContextOps, QpInit};

use crate::provider::Provider;
use crate::transport::{Rc, Transport};
use crate::{Any, Batch, CompletionQueue, Context, Endpoint, LocalPort, ProtectionDomain};
use crate::{RecvBatch, RecvQueue, Rejected, SendQueue};

/// Begins a queue pair: sizes, completion queues, doorbell mode.
#[derive(Debug)]
pub struct QueuePairBuilder<P: Provider = Any> {
    context: Context<P>,
    init: QpInit,
}

impl<P: Provider> QueuePairBuilder<P> {
    pub(crate) fn new(context: Context<P>, pd: &ProtectionDomain, cq: &CompletionQueue<P>) -> Self {
        let init = QpInit::new(Arc::clone(pd.core()), Arc::clone(cq.core()), Arc::clone(cq.core()));
        Self { context, init }
    }

    /// Completions of receives go to another completion queue.
    #[must_use]
    pub fn recv_cq(mut self, cq: &CompletionQueue<P>) -> Self {
        self.init.recv_cq = Arc::clone(cq.core());
        self
    }

    /// Send work requests outstanding.
    #[must_use]
    pub fn max_send_wr(mut self, count: u32) -> Self {
        self.init.cap.max_send_wr = count;
        self
    }

    /// Receive work requests outstanding.
    #[must_use]
    pub fn max_recv_wr(mut self, count: u32) -> Self {
        self.init.cap.max_recv_wr = count;
        self
    }

    /// Entries in a send's gather list.
    #[must_use]
    pub fn max_send_sge(mut self, count: u32) -> Self {
        self.init.cap.max_send_sge = count;
        self
    }

    /// Entries in a receive's scatter list.
    #[must_use]
    pub fn max_recv_sge(mut self, count: u32) -> Self {
        self.init.cap.max_recv_sge = count;
        self
    }

    /// Bytes that a send may carry in the work request itself.
    #[must_use]
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.init.cap.max_inline_data = bytes;
        self
    }

    /// How the send queue rings: [`DoorbellMode::BlueFlame`] unless said otherwise.
    #[must_use]
    pub fn doorbell(mut self, mode: DoorbellMode) -> Self {
        self.init.doorbell = mode;
        self
    }

    /// Makes it, in RESET.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for sizes that the device doesn't have, [`Error::Invalid`] for objects of another device, and the
    /// kernel's refusal.
    pub fn build(self) -> Result<QueuePair<P>, Error> {
        let (core, sq, rq) = self.context.provider().create_qp(&self.init)?;
        let home = Box::new(Home { context: self.context, prepared: None });
        Ok(QueuePair {
            send: SendQueue::new(Arc::clone(&core), sq),
            recv: RecvQueue::new(core, rq, home),
        })
    }
}

/// How a queue pair is brought up: the local half of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Port, from 1.
    pub port: u8,
    /// Index into the port's GID table; `None` takes [`Context::best_gid`].
    pub gid_index: Option<u32>,
    /// Index into the port's partition table.
    pub pkey_index: u16,
    /// What the peer may do with memory exposed to it.
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
}

impl Default for Local {
    /// Port 1, the best GID, all remote rights, 67 ms times seven retries, and a minute-long patience with a slow receiver
    /// by retrying for ever.
    fn default() -> Self {
        Self {
            port: 1,
            gid_index: None,
            pkey_index: 0,
            access: AccessFlags::REMOTE_READ
                | AccessFlags::REMOTE_WRITE
                | AccessFlags::REMOTE_ATOMIC,
            psn: None,
            mtu: None,
            rd_atomic: 16,
            min_rnr_timer: RnrTimer::DEFAULT,
            timeout: AckTimeout::DEFAULT,
            retry_count: 7,
            rnr_retry: 7,
            service_level: 0,
            traffic_class: 0,
            hop_limit: 64,
        }
    }
}

/// What the whole queue pair needs besides its halves.
#[derive(Debug)]
pub(crate) struct Home<P: Provider> {
    context: Context<P>,
    prepared: Option<Prepared>,
}

/// What [`QueuePair::prepare`] settled, for [`QueuePair::connect`].
#[derive(Debug)]
struct Prepared {
    local: Local,
    endpoint: Endpoint,
    gid: Option<GidEntry>,
    link: LinkLayer,
}

/// A reliable-connected queue pair.
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

impl<P: Provider> QueuePair<P> {
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
    pub fn send_queue(&mut self) -> &mut SendQueue<P> {
        &mut self.send
    }

    /// The posting side of receives.
    pub fn recv_queue(&mut self) -> &mut RecvQueue<P> {
        &mut self.recv
    }

    /// Begins a batch of sends.
    #[inline]
    pub fn batch(&mut self) -> Batch<'_, P> {
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
    #[must_use]
    pub fn split(self) -> (SendQueue<P>, RecvQueue<P>) {
        (self.send, self.recv)
    }

    /// Puts the halves together again.
    ///
    /// # Errors
    ///
    /// The halves, when they are of two queue pairs.
    pub fn join(
        send: SendQueue<P>,
        recv: RecvQueue<P>,
    ) -> Result<Self, (SendQueue<P>, RecvQueue<P>)> {
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
    pub fn init(&mut self, attr: &InitAttr) -> Result<(), Error> {
        self.whole()?;
        self.core().init(attr)?;
        self.recv.enable(true);
        Ok(())
    }

    /// INIT to RTR.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for numbers over 24 bits; [`Error::State`] from another state; the kernel's refusal.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(&mut self, attr: &RtrAttr) -> Result<(), Error> {
        self.whole()?;
        limit("destination QPN", attr.dest_qpn, 0xff_ffff)?;
        limit("receive PSN", attr.rq_psn, 0xff_ffff)?;
        limit("service level", attr.path.service_level.into(), 15)?;
        limit("flow label", attr.path.grh.map_or(0, |grh| grh.flow_label), 0xf_ffff)?;
        self.core().ready_to_receive(attr)
    }

    /// RTR to RTS: sends can be posted from here on.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for counters over 7; [`Error::State`] from another state; the kernel's refusal.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_send(&mut self, attr: &RtsAttr) -> Result<(), Error> {
        self.whole()?;
        limit("send PSN", attr.sq_psn, 0xff_ffff)?;
        limit("retry count", attr.retry_count.into(), 7)?;
        limit("RNR retry count", attr.rnr_retry.into(), 7)?;
        self.core().ready_to_send(attr)?;
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
        if !Arc::ptr_eq(&port.core, self.recv.home.context.provider().core()) {
            return Err(Error::Invalid {
                verb: "modify_qp",
                what: "port",
                value: "of another context".to_owned(),
                why: "a queue pair uses the ports of the open device that it was made from",
            });
        }
        let LocalPort { local, device, port, gid, .. } = port;
        // The command has eight bits for it (`ib_uverbs_qp_dest::sgid_index`).
        limit("GID index", gid.as_ref().map_or(0, |gid| gid.index), 255)?;
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
            access: local.access,
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

    /// Connects to the peer: INIT to RTR to RTS. The smaller of both sides' MTUs and READ depths is used, so the peer must be given
    /// this side's endpoint unchanged. If it fails on the way from RTR to RTS, the way back is a [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless [`prepare`](Self::prepare)d; [`Error::MissingAttribute`] when the peer gives no GID and this port is
    /// Ethernet, which can't do without; [`Error::Invalid`] for a GID that can't be reached from this side's; the kernel's refusal.
    pub fn connect(&mut self, peer: &Endpoint) -> Result<(), Error> {
        let Some(prepared) = self.recv.home.prepared.take() else {
            return Err(Error::State {
                verb: "connect",
                state: self.state(),
                needs: QpState::Init,
            });
        };
        let result = self.connect_prepared(&prepared, peer);
        self.recv.home.prepared = Some(prepared);
        result
    }

    fn connect_prepared(&mut self, prepared: &Prepared, peer: &Endpoint) -> Result<(), Error> {
        let Prepared { local, endpoint, gid, link } = prepared;
        let route = route(*link, gid.as_ref(), peer)?;
        self.ready_to_receive(&RtrAttr {
            dest_qpn: peer.qpn,
            rq_psn: peer.psn,
            path_mtu: if peer.mtu.raw() < endpoint.mtu.raw() { peer.mtu } else { endpoint.mtu },
            path: Path {
                dlid: peer.lid,
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
            },
            max_dest_rd_atomic: endpoint.rd_atomic,
            min_rnr_timer: local.min_rnr_timer,
        })?;
        self.ready_to_send(&RtsAttr {
            sq_psn: endpoint.psn,
            max_rd_atomic: local.rd_atomic.min(peer.rd_atomic),
            timeout: local.timeout,
            retry_count: local.retry_count,
            rnr_retry: local.rnr_retry,
        })
    }

    /// Destroys it now. When the kernel has confirmed it, the buffers in flight can be had back from the completion queues.
    ///
    /// # Errors
    ///
    /// The kernel's refusal. Buffers and rings then stay with the device for good.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(mut self) -> Result<Gone, Error> {
        self.whole()?;
        self.send.forget_unrung();
        self.recv.forget_unrung();
        let core = Arc::clone(self.core());
        // SAFETY: both posting sides are here, and go with `self`.
        unsafe { core.destroy() }?;
        Ok(Gone { core })
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

/// The global route to the peer, or why there is none.
fn route(
    link: LinkLayer,
    own: Option<&GidEntry>,
    peer: &Endpoint,
) -> Result<Option<(uverbs_core::attr::Gid, u8)>, Error> {
    let ethernet = link == LinkLayer::Ethernet;
    match (own, peer.gid) {
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
