//! Contexts: an open device, from which everything else is made.

use std::cmp::Reverse;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_core::attr::{DeviceAttr, GidEntry, GidType, LinkLayer, Mtu, PortAttr};
use uverbs_core::doors::UverbsDoor;
use uverbs_core::error::Error;
use uverbs_core::objects::context::{ContextCore, unique_id};
use uverbs_core::objects::event::{AsyncEvent, AsyncEvents};
use uverbs_core::provider::ContextOps;

use crate::provider::Provider;
use crate::{Any, Device, Local};

use super::interface::{Interfaces, Rank};

/// An open device. A cheap handle: clones share it, and it closes when the last object made from
/// it, a [`LocalPort`] included, is gone.
///
/// ```
/// let context = uverbs::device("softhca0")?.open()?;
/// let pd = context.alloc_pd()?;
/// let cq = context.create_cq(256)?;
/// let qp = context.queue_pair(&pd, &cq).build()?;
/// println!("QP {:#x} on {}", qp.qpn(), context.device().name());
/// # Ok::<(), uverbs::Error>(())
/// ```
#[doc(alias = "ibv_context")]
pub struct Context<P: Provider = Any> {
    inner: Arc<Inner<P>>,
}

/// Prints the device's name.
impl<P: Provider> fmt::Debug for Context<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.inner.device.name();
        f.debug_struct("Context").field("device", &name).finish_non_exhaustive()
    }
}

struct Inner<P: Provider> {
    device: Device,
    provider: P::Context,
    events: AsyncEvents,
    /// The system's randomness, asked for once.
    random: RandomState,
}

impl<P: Provider> Clone for Context<P> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<P: Provider> Context<P> {
    pub(crate) fn new(device: Device, provider: P::Context) -> Result<Self, Error> {
        let core = provider.core();
        let file = core.uverbs().alloc_async_fd()?;
        if core.is_imported() {
            let copy = file.try_clone().map_err(|error| Error::System {
                what: "a descriptor for asynchronous events",
                errno: Errno::of(&error),
            })?;
            core.report_to(copy);
        }
        let events = AsyncEvents::new(file)?;
        Ok(Self { inner: Arc::new(Inner { device, provider, events, random: RandomState::new() }) })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The provider's context, below this API. It creates objects for commands and raw queues.
    ///
    /// Ending or changing an object by its number is `unsafe`, since the kernel reuses numbers:
    ///
    /// ```compile_fail,E0133
    /// use uverbs_core::provider::{ContextOps, CqInit};
    /// fn takes_anothers_queue_pair(context: &uverbs::Context, victim: uverbs::QueuePair) {
    ///     let (core, _cq) = context.provider().create_cq(&CqInit::new(1)).unwrap();
    ///     // The next queue pair would get the number, and the victim's reset would be that one's.
    ///     let _ = core.context().uverbs().destroy_qp(victim.handle());
    /// }
    /// ```
    #[must_use]
    pub fn provider(&self) -> &P::Context {
        &self.inner.provider
    }

    /// Raw command interface, for commands that this library doesn't send.
    #[must_use]
    pub fn door(&self) -> &Arc<dyn UverbsDoor> {
        self.inner.provider.core().uverbs().door()
    }

    /// Capabilities and limits.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// let attr = context.query_device()?;
    /// println!("{}: {} queue pairs", attr.firmware(), attr.max_qp);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device(&self) -> Result<DeviceAttr, Error> {
        self.inner.provider.query_device()
    }

    /// A port, from 1.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a port that doesn't exist.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// let port = context.query_port(1)?;
    /// println!("{}, {}, MTU {}", port.state, port.link_layer, port.active_mtu);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<PortAttr, Error> {
        self.inner.provider.query_port(port)
    }

    /// Current speed of a port (from 1) in units of 100 megabits per second. It differs from the
    /// link's speed where ports are bonded or the device is a virtual function. 0 while the port is
    /// down. Since Linux 7.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] of an older kernel, or a driver that doesn't tell (soft-RoCE);
    /// [`Error::Limit`] for a port that doesn't exist; [`Error::Kernel`]: `EIO` of a removed
    /// device.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// assert_eq!(context.query_port_speed(1)?, 1000, "100 Gb/s");
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_port_speed")]
    pub fn query_port_speed(&self, port: u8) -> Result<u64, Error> {
        self.uverbs().query_port_speed(port)
    }

    /// One entry of a port's GID table.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for an index over the table's end; [`Error::EmptyGid`], which names the
    /// entries in use, for an empty entry; [`Error::Kernel`]: `EIO` of a removed device.
    #[doc(alias = "ibv_query_gid")]
    #[doc(alias = "ibv_query_gid_ex")]
    pub fn query_gid(&self, port: u8, index: u32) -> Result<GidEntry, Error> {
        let refused = match self.uverbs().query_gid_entry(port, index) {
            Err(error) if matches!(error.errno(), Some(Errno::EINVAL | Errno::ENODATA)) => error,
            other => return other,
        };
        // On the slow path, query the table's length and its entries for the error.
        let entries = self.query_port(port)?.gid_table_len;
        if index < entries {
            let used = self.query_gid_table().map_err(|_| refused)?;
            let used = used.iter().filter(|entry| entry.port == u32::from(port));
            let used = used.map(|entry| entry.index).collect();
            return Err(Error::EmptyGid { port, index, used });
        }
        Err(Error::Limit {
            verb: "query_gid",
            what: "GID index",
            value: index.into(),
            limit: entries.saturating_sub(1).into(),
        })
    }

    /// The GIDs in use, of all ports.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// for entry in context.query_gid_table()? {
    ///     println!("port {} index {}: {} ({})", entry.port, entry.index, entry.gid, entry.kind);
    /// }
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_gid_table")]
    pub fn query_gid_table(&self) -> Result<Vec<GidEntry>, Error> {
        match self.uverbs().query_gid_table(USUAL_GIDS) {
            Err(error) if error.errno() == Some(Errno::EINVAL) => {
                self.uverbs().query_gid_table(usize::MAX)
            }
            other => other,
        }
    }

    /// One entry of a port's partition table.
    ///
    /// # Errors
    ///
    /// `EINVAL` or `ENOENT` when port or index is out of range.
    #[doc(alias = "ibv_query_pkey")]
    pub fn query_pkey(&self, port: u8, index: u16) -> Result<u16, Error> {
        let pkey = self.inner.device.source().pkey(port, index);
        pkey.map_err(|errno| Error::kernel("query_pkey", errno))
    }

    /// Index of the first entry of a port's partition table that has this key; `None` if no entry
    /// has it.
    ///
    /// # Errors
    ///
    /// As [`query_port`](Self::query_port) and [`query_pkey`](Self::query_pkey).
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// assert_eq!(context.pkey_index(1, 0xffff)?, Some(0), "the default partition");
    /// assert_eq!(context.pkey_index(1, 0x1234)?, None);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_get_pkey_index")]
    pub fn pkey_index(&self, port: u8, pkey: u16) -> Result<Option<u16>, Error> {
        for index in 0..self.query_port(port)?.pkey_table_len {
            if self.query_pkey(port, index)? == pkey {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// The GID that a peer most likely reaches: RoCE v2 over an IPv4 address, then RoCE v2, then
    /// whatever there is. Of these, one of an interface of this network namespace rather than of
    /// another, of a port's own interface rather than of a VLAN or macvlan over it, and the lowest
    /// index. [`GidEntry::netdev_ifindex`] names the interface of the others.
    ///
    /// `None` on an InfiniBand port, which needs no GID within its subnet.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device; [`Error::Unsupported`] on an Ethernet port
    /// without any GID.
    pub fn best_gid(&self, port: u8) -> Result<Option<GidEntry>, Error> {
        self.best_gid_on(port, &self.query_port(port)?)
    }

    fn best_gid_on(&self, port: u8, attr: &PortAttr) -> Result<Option<GidEntry>, Error> {
        // A port of EFA has neither link layer nor LID: its GID is its only address.
        let is_efa = attr.link_layer == LinkLayer::Unspecified && attr.lid == 0;
        if attr.link_layer != LinkLayer::Ethernet && !is_efa {
            return Ok(None);
        }
        let mut gids = self.query_gid_table()?;
        gids.retain(|entry| u32::from(port) == entry.port && !entry.gid.is_zero());
        let interfaces = Interfaces::of(&gids);
        let best = gids.into_iter().max_by_key(|entry| preference(entry, &interfaces));
        best.map(Some).ok_or_else(|| Error::Unsupported {
            verb: "query_gid_table",
            what: format!("port {port} without any GID (is its network interface up?)"),
        })
    }

    /// Resolves `local` on this device: port attributes and GID, as they are now.
    /// [`QueuePair::prepare_on`](crate::QueuePair::prepare_on) brings up any number of queue pairs
    /// with the result, without further queries to the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a port that doesn't exist;
    /// [`Error::Limit`] or [`Error::EmptyGid`] for a GID index that doesn't exist;
    /// [`Error::Unsupported`] on an Ethernet port without GIDs.
    pub fn local_port(&self, local: &Local) -> Result<LocalPort, Error> {
        let core = Arc::clone(self.inner.provider.core());
        let device = *self.inner.provider.device_attr();
        let port = self.query_port(local.port)?;
        let gid = match local.gid_index {
            Some(index) => Some(self.query_gid(local.port, index)?),
            None => self.best_gid_on(local.port, &port)?,
        };
        Ok(LocalPort { core, local: local.clone(), device, port, gid })
    }

    /// Waits for the next asynchronous event; `None` if `timeout` passes first.
    ///
    /// # Errors
    ///
    /// Error of reading the event file; [`Error::OtherProcess`] in a forked child. The removal of
    /// the device is an event, [`DeviceFatal`](uverbs_core::objects::event::AsyncEventKind).
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// use std::time::Duration;
    ///
    /// if let Some(event) = context.async_event(Duration::from_millis(10))? {
    ///     println!("{:?} happened to {:?}", event.kind, event.element);
    /// }
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_get_async_event")]
    pub fn async_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>, Error> {
        match self.inner.events.next_within(timeout) {
            Ok(event) => Ok(Some(event)),
            Err(Error::TimedOut { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The file that becomes readable when there is an asynchronous event.
    #[must_use]
    pub fn async_events(&self) -> &AsyncEvents {
        &self.inner.events
    }

    /// Random first PSN of 24 bits: a connection that reuses a QP number must not accept packets of
    /// its predecessor.
    pub(crate) fn random_psn(&self) -> u32 {
        self.random() as u32 & 0xff_ffff
    }

    /// Random number, another one each time.
    pub(crate) fn random(&self) -> u64 {
        self.inner.random.hash_one(unique_id())
    }

    /// True if the device was removed. Asks the kernel, which answers from its tables. Waits of
    /// this library notice the removal; a program that waits on files asks after a long silence.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// assert!(!context.is_gone());
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.uverbs().is_gone()
    }

    fn uverbs(&self) -> &uverbs_core::commands::Uverbs {
        self.inner.provider.core().uverbs()
    }
}

/// Number of GIDs to query first: enough for a port with few addresses.
const USUAL_GIDS: usize = 256;

/// A port and its GID as [`Context::local_port`] found them, with the [`Local`] that it was given.
/// It keeps the device open, as every object made from a context does.
#[derive(Clone, Debug)]
pub struct LocalPort {
    pub(crate) core: Arc<ContextCore>,
    pub(crate) local: Local,
    pub(crate) device: DeviceAttr,
    pub(crate) port: PortAttr,
    pub(crate) gid: Option<GidEntry>,
}

impl LocalPort {
    /// The [`Local`] that was resolved.
    #[must_use]
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// The MTU that was asked for, or else the port's.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for one over the port's.
    pub(crate) fn path_mtu(&self) -> Result<Mtu, Error> {
        let (active, bytes) = (self.port.active_mtu, |mtu: Mtu| mtu.bytes().unwrap_or(0));
        let mtu = self.local.mtu.unwrap_or(active);
        Error::limit("modify_qp", "path MTU", bytes(mtu), bytes(active))?;
        Ok(mtu)
    }

    /// State and limits of the port.
    #[must_use]
    pub fn attr(&self) -> &PortAttr {
        &self.port
    }

    /// The GID that packets come from; `None` on InfiniBand, unless an index was given.
    #[must_use]
    pub fn gid(&self) -> Option<&GidEntry> {
        self.gid.as_ref()
    }
}

/// Preference among GIDs by the chance that a peer reaches them; the first of equals wins.
fn preference(entry: &GidEntry, interfaces: &Interfaces) -> (bool, bool, bool, Rank, Reverse<u32>) {
    let rank = interfaces.rank(entry.netdev_ifindex);
    let (newer, ipv4) = (entry.kind == GidType::RoceV2, entry.gid.is_ipv4_mapped());
    (rank != Rank::Elsewhere, newer, ipv4, rank, Reverse(entry.index))
}

#[cfg(test)]
mod tests {
    use uverbs_core::attr::Gid;

    use super::*;

    #[test]
    fn a_gid_of_this_namespace_and_of_no_vlan_is_best() {
        let interfaces = Interfaces::from_iter([
            (2, Rank::Elsewhere),
            (3, Rank::Stacked),
            (4, Rank::Own),
            (5, Rank::Own),
        ]);
        let entry = |index, netdev_ifindex, kind, ip: &str| {
            let gid = Gid::from(ip.parse::<std::net::IpAddr>().unwrap());
            let mut entry = GidEntry::from_abi(&Default::default());
            (entry.gid, entry.kind) = (gid, kind);
            (entry.index, entry.port, entry.netdev_ifindex) = (index, 1, netdev_ifindex);
            entry
        };
        let all = [
            entry(0, 4, GidType::RoceV1, "10.0.0.4"),
            entry(1, 2, GidType::RoceV2, "10.0.0.2"),
            entry(2, 3, GidType::RoceV2, "10.0.0.3"),
            entry(3, 4, GidType::RoceV2, "fe80::4"),
            entry(4, 4, GidType::RoceV2, "10.0.0.4"),
            entry(5, 5, GidType::RoceV2, "10.0.0.5"),
        ];
        let best = |all: &[GidEntry]| {
            all.iter().max_by_key(|entry| preference(entry, &interfaces)).unwrap().index
        };
        assert_eq!(best(&all), 4);
        assert_eq!(best(&all[..4]), 2, "a VLAN with IPv4 before a link-local address");
        assert_eq!(best(&all[..2]), 0, "version 1 before another namespace");
        assert_eq!(best(&all[1..2]), 1);
    }
}
