//! Builder of a software HCA.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use uverbs_core::doors::DeviceRecord;
use uverbs_core::memory::process::Process;
use uverbs_core::trace::Trace;
use uverbs_kernel_abi::driver_id::{RDMA_DRIVER_HFI1, RDMA_DRIVER_MLX5};

use crate::SoftHca;
use crate::board::card::{Card, UnknownCard};
use crate::board::profile::{Gid, Profile};
use crate::handle::Handle;
use crate::hca::tap::Tap;
use crate::hca::{Hca, HcaConfig, Strictness};
use crate::idle::Idle;
use crate::memory::ProcessDma;
use crate::model;
use crate::run::{self, Shared, Thread};
use crate::sleep::Sleeper;
use crate::softhca::Inner;
use crate::udp::{self, Udp};
use crate::wire::{Address, Capture, Fabric, LidWire, UdpWire, Wire};
use crate::wire_control::WireControl;
use uverbs_front::Kernel;
use uverbs_front::backend::context::{LinkLayer, Mtu};
use uverbs_front::uar::UarSet;
use uverbs_front::watch::Watch;

/// Number of the next device of this process. GUID and addresses are derived from it.
static NUMBER: AtomicU16 = AtomicU16::new(1);

/// `RDMA_NODE_IB_CA`.
const NODE_TYPE_CA: u8 = 1;

/// Builds a [`SoftHca`]. Defaults: Ethernet, MTU 4096, the HCA's limits, a thread, a private
/// fabric.
#[derive(Debug, Default)]
#[must_use]
pub struct SoftHcaBuilder {
    name: Option<String>,
    number: Option<u16>,
    hca: HcaConfig,
    active_mtu: Option<Mtu>,
    stepped: bool,
    /// A description, which writes to no capture and no trace.
    silent: bool,
    idle: Idle,
    memlock: Option<u64>,
    max_pd: Option<u32>,
    fabric: Option<Fabric>,
    udp: Option<Udp>,
    gids: Option<Vec<Gid>>,
    wire: Option<Box<dyn Wire>>,
    capture: Option<Capture>,
    /// The device goes by Omni-Path's driver.
    rdmavt: bool,
    /// Profile that the environment names and no card has.
    unknown: Option<UnknownCard>,
}

impl SoftHcaBuilder {
    /// Defaults, by the card that the environment names.
    pub(crate) fn new() -> Self {
        let mut new = Self::default();
        match Card::of_environment() {
            Some(Ok(card)) => new.profile(card),
            Some(Err(unknown)) => {
                new.unknown = Some(unknown);
                new
            }
            None => new,
        }
    }

    /// Gives the device the capabilities of a card; calls after this one change them. Default:
    /// `UVERBS_SOFTHCA_PROFILE`, else [`Card::ConnectX6Dx`].
    ///
    /// ```
    /// use uverbs_softhca::{Card, SoftHca};
    ///
    /// let device = SoftHca::builder().profile(Card::ConnectX5).build()?;
    /// # let _ = device;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn profile(mut self, card: Card) -> Self {
        card.apply(&mut self.hca);
        self.unknown = None;
        self
    }

    /// Sets the device's name. Default: `softhca` and a number.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the number from which GUID and addresses are derived, 1 or more. Default: the devices
    /// of a process count up. Needed if devices of several processes share a wire, or if the GUID
    /// must be known beforehand.
    pub fn number(mut self, number: u16) -> Self {
        self.number = Some(number);
        self
    }

    /// Sets the port's link layer. An InfiniBand port [on the network](Self::udp) has a LID: the
    /// last 16 bits of its address. It reaches ports whose addresses differ in these bits alone,
    /// and its packets carry no GRH.
    pub fn link(mut self, link: LinkLayer) -> Self {
        self.hca.link = link;
        self
    }

    /// Makes the device one of Omni-Path, with the rings of Linux's rdmavt (`hfi1`) and an
    /// InfiniBand port, in place of a ConnectX.
    pub fn omni_path(mut self) -> Self {
        self.rdmavt = true;
        self.link(LinkLayer::InfiniBand)
    }

    /// Sets the port's MTU.
    pub fn active_mtu(mut self, mtu: Mtu) -> Self {
        self.active_mtu = Some(mtu);
        self
    }

    /// Requires the first 18 bytes of each raw packet inline in the WQE, as devices before
    /// ConnectX-5 do. In-process devices only.
    pub fn wants_headers(mut self) -> Self {
        self.hca.min_inline_header = uverbs_mlx5_prm::eth::MLX5_ETH_L2_INLINE_HEADER_SIZE as u16;
        self
    }

    /// Runs the device without a thread: it works in [`SoftHca::step`] only, and its clock moves by
    /// [`SoftHca::advance`].
    pub fn stepped(mut self) -> Self {
        self.stepped = true;
        self
    }

    /// Leaves the files of the environment alone.
    pub(crate) fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    /// Sets what the thread does without work: spin, yield, sleep. Defaults: [`Idle`].
    pub fn idle(mut self, change: impl FnOnce(&mut Idle)) -> Self {
        change(&mut self.idle);
        self
    }

    /// Attaches the device to a fabric shared with other devices.
    pub fn fabric(mut self, fabric: &Fabric) -> Self {
        self.fabric = Some(fabric.clone());
        self
    }

    /// Attaches the device to the network instead of a fabric. It speaks RoCEv2 over UDP and
    /// reaches devices of other processes and hosts, and Linux's soft-RoCE. Its GID table is
    /// Linux's: a link-local GID, then the addresses, each as RoCE v1 and as v2. Devices of one
    /// user on one host use shared memory instead ([`Carrier`](crate::Carrier)).
    ///
    /// ```
    /// use uverbs_softhca::{SoftHca, Udp};
    ///
    /// let device = SoftHca::builder().udp(Udp::loopback()).build()?;
    /// assert_eq!(device.gids().len(), 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn udp(mut self, udp: Udp) -> Self {
        self.udp = Some(udp);
        self
    }

    /// Attaches the port to the caller's wire instead of a fabric.
    pub fn wire(mut self, wire: Box<dyn Wire>) -> Self {
        self.wire = Some(wire);
        self
    }

    /// Captures the packets of its wire. Default: the file named by `UVERBS_CAPTURE`, shared by all
    /// devices of the process.
    pub fn capture(mut self, capture: &Capture) -> Self {
        self.capture = Some(capture.clone());
        self
    }

    /// Sets the addresses of its GID table, each as RoCEv2. Default: derived from the number. Meant
    /// for a caller's wire that leads to these addresses.
    pub fn gids(mut self, addresses: &[IpAddr]) -> Self {
        self.gids = Some(udp::given(addresses));
        self
    }

    /// Accepts FLUSH and ATOMIC WRITE from peers (IBTA vol 1, annex A19), which no ConnectX does.
    /// The device announces the capability, and accepts the FLUSH right of regions and queue pairs
    /// (`IB_ACCESS_FLUSH_GLOBAL`). Its own programs cannot post either operation: mlx5 has no such
    /// work request.
    pub fn memory_placement(mut self) -> Self {
        self.hca.placement = true;
        self
    }

    /// Maximum pinned memory in bytes, counted in whole pages; beyond, registration fails with
    /// `ENOMEM`. Default: unlimited.
    pub fn memlock_limit(mut self, bytes: u64) -> Self {
        self.memlock = Some(bytes);
        self
    }

    /// Maximum number of QPs.
    pub fn max_qp(mut self, limit: u32) -> Self {
        self.hca.max_qp = limit;
        self
    }

    /// Maximum number of CQs.
    pub fn max_cq(mut self, limit: u32) -> Self {
        self.hca.max_cq = limit;
        self
    }

    /// Maximum number of memory regions.
    pub fn max_mr(mut self, limit: u32) -> Self {
        self.hca.max_mkey = limit;
        self
    }

    /// Maximum number of protection domains.
    pub fn max_pd(mut self, limit: u32) -> Self {
        self.max_pd = Some(limit);
        self
    }

    /// Maximum entries of a CQ, rounded up to a power of two less one.
    pub fn max_cqe(mut self, limit: u32) -> Self {
        self.hca.log_max_cqes = log2_up(limit.saturating_add(1));
        self
    }

    /// Maximum WQEBBs of a send queue and WQEs of a receive queue, rounded up to a power of two.
    pub fn max_qp_wr(mut self, limit: u32) -> Self {
        self.hca.log_max_wqebbs = log2_up(limit);
        self.hca.log_max_rq_entries = log2_up(limit);
        self
    }

    /// Makes acts that silicon tolerates fatal to their queue pair ([`Strictness::Pedantic`]).
    pub fn strict(mut self) -> Self {
        self.hca.strict = Strictness::Pedantic;
        self
    }

    /// Changes any other setting of the HCA.
    pub fn hca(mut self, change: impl FnOnce(&mut HcaConfig)) -> Self {
        change(&mut self.hca);
        self
    }

    /// Binds the UDP addresses, if it has some.
    fn bind(&self) -> io::Result<Option<UdpWire>> {
        let Some(udp) = &self.udp else { return Ok(None) };
        let wire = udp.bind()?;
        let lid = udp::network(&wire).and_then(|network| network.own_lid());
        if self.hca.link == LinkLayer::InfiniBand && (lid.is_none() || wire.addresses().len() != 1)
        {
            let why = "an InfiniBand port needs one address, whose last 16 bits are its LID: \
                       1 to 49151 (0xbfff)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Some(wire))
    }

    /// Identity and limits of the device with this number.
    fn identity(&self, number: u16, udp: Option<&UdpWire>) -> io::Result<Profile> {
        let mut config = self.hca.clone();
        if let Some(mtu) = self.active_mtu {
            config.active_mtu = mtu;
        }
        if let Some(wire) = udp {
            config.active_mtu = config.active_mtu.min(udp::mtu(wire)?);
            // Half of the receive buffer is left for requests and for other queue pairs.
            let answers = wire.holds(config.active_mtu.bytes()) / 2;
            config.read_window = config.read_window.min(answers);
        }
        let mut profile = Profile::new(number, config);
        match udp {
            Some(wire) if profile.hca.is_ethernet() => profile.gids = udp::gids(wire),
            Some(wire) => profile.lid = udp::network(wire).map_or(0, |network| network.number()),
            None => {}
        }
        if let Some(gids) = &self.gids {
            profile.gids.clone_from(gids);
        }
        // The table has its full length in both worlds; only its first entries are used.
        profile.hca.pkeys.resize(usize::from(profile.hca.pkey_table_len()), 0);
        profile.memlock = self.memlock.unwrap_or(profile.memlock);
        profile.max_pd = self.max_pd.unwrap_or(profile.max_pd);
        Ok(profile)
    }

    /// Builds the device.
    ///
    /// # Errors
    ///
    /// The system's error if the thread cannot be started or a UDP address cannot be bound.
    pub fn build(self) -> io::Result<SoftHca> {
        if let Some(unknown) = self.unknown {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, unknown));
        }
        let udp = self.bind()?;
        let infiniband = self.hca.link == LinkLayer::InfiniBand;
        let of_wire = udp.as_ref().filter(|_| self.wire.is_none()).and_then(udp::network);
        let number = self.number.or(udp.as_ref().and_then(udp::network).map(|at| at.number()));
        let number = number.unwrap_or_else(|| NUMBER.fetch_add(1, Ordering::Relaxed));
        let profile = self.identity(number, udp.as_ref())?;
        let network = self.wire.is_none() && udp.is_some();
        let (mut wire, link): (Box<dyn Wire>, _) = match (self.wire, udp) {
            (Some(wire), _) => (wire, None),
            (None, Some(wire)) => {
                let carrier = self.udp.as_ref().map(Udp::carrier).unwrap_or_default();
                let (wire, link) = WireControl::network(wire, carrier, self.stepped)?;
                match of_wire.filter(|_| infiniband) {
                    Some(network) => (Box::new(LidWire::new(wire, network)), Some(link)),
                    None => (wire, Some(link)),
                }
            }
            (None, None) => {
                let port = self.fabric.unwrap_or_default().attach(&addresses(&profile));
                let link = WireControl::Fabric(port.link_control());
                (Box::new(port), Some(link))
            }
        };
        let name = self.name.unwrap_or_else(|| default_name(self.rdmavt, number));
        let capture = match self.capture {
            None if !self.silent => Capture::of_environment()?,
            own => own,
        };
        if let Some(capture) = capture {
            wire = capture.tap(&name, wire);
        }
        let sleeper = if self.stepped { None } else { Some(Arc::new(Sleeper::new()?)) };
        let wire_wakes = match &sleeper {
            Some(sleeper) => wire.set_waker(Arc::clone(sleeper).into()),
            None => false,
        };
        let descriptor = wire.descriptor().map(|fd| fd.try_clone_to_owned()).transpose()?;
        let wire_wakes = wire_wakes || descriptor.is_some();
        let mut hca = Hca::new(profile.hca.clone(), Box::new(ProcessDma), wire);
        if let Some(network) = of_wire.filter(|_| !infiniband) {
            hca.set_network(network);
        }
        let gids = profile.gids.iter().map(|gid| gid.gid).collect::<Vec<_>>();
        hca.set_addresses(&gids, profile.lid);
        let random = RandomState::new();
        if network && !self.stepped {
            hca.number_from(random.hash_one("queue pairs"));
        }
        if let Some(trace) = Trace::of_environment().filter(|_| !self.silent) {
            hca.set_tap(&Tap::new(trace, &name));
        }
        let record = record(&name, &profile, self.rdmavt);
        let mut device = model::device(&profile, hca);
        if self.rdmavt {
            device.as_rdmavt();
        }
        if network {
            device.cm.route_by_kernel(of_wire.filter(|_| infiniband));
        }
        if !self.stepped {
            device.cm.seed(random.hash_one("connections"));
        }
        // Without a watch the thread polls the doorbell pages instead.
        let watch = if self.stepped || !self.idle.protect { None } else { watch() };
        device.uars = watch.clone().map_or_else(UarSet::default, UarSet::watched);
        let woken_by_stores = watch.is_some();
        let (kernel, progress) = (Kernel::new(device), self.idle.client_progress);
        let shared = Handle::new(Shared::new(kernel, sleeper.clone(), progress));
        if let Some(sleeper) = sleeper {
            let (device, idle) = (shared.downgrade(), self.idle);
            let thread = Thread { device, sleeper, watch, idle, wire_wakes, wire: descriptor };
            run::spawn(&name, thread)?;
        }
        let process = Process::current();
        Ok(SoftHca { inner: Arc::new(Inner { shared, record, link, process, woken_by_stores }) })
    }
}

fn watch() -> Option<Arc<Watch>> {
    Watch::new().ok().map(Arc::new)
}

/// Name of a device that is given none.
fn default_name(rdmavt: bool, number: u16) -> String {
    let kind = if rdmavt { "softhfi" } else { "softhca" };
    format!("{kind}{number}")
}

/// Listing of the device.
fn record(name: &str, profile: &Profile, rdmavt: bool) -> DeviceRecord {
    let driver = if rdmavt { RDMA_DRIVER_HFI1 } else { RDMA_DRIVER_MLX5 };
    let mut record = DeviceRecord::new(name, driver);
    record.node_guid = profile.guid;
    record.node_type = NODE_TYPE_CA;
    record.port_count = 1;
    record
}

fn addresses(profile: &Profile) -> Vec<Address> {
    let mut all = profile
        .gids
        .iter()
        .map(|gid| Address { gid: gid.gid, lid: profile.lid })
        .collect::<Vec<_>>();
    all.dedup();
    all
}

fn log2_up(value: u32) -> u8 {
    value.checked_next_power_of_two().unwrap_or(1 << 31).trailing_zeros() as u8
}
