//! One device, put together: the builder, the handle, and the door that each opening gives.
//!
//! # Safety
//!
//! [`UverbsDoor::ioctl`] is an `unsafe fn` whose promises are the caller's; this file passes them
//! on to `kernel::user` and `memory`, which say how they use them.
#![allow(
    unsafe_code,
    reason = "implements a trait with an unsafe method; has no unsafe block of its own"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_core::doors::cm::CmDoor;
use uverbs_core::doors::{DeviceRecord, DeviceSource, UverbsDoor};
use uverbs_core::memory::pages::Pages;
use uverbs_core::memory::process::Process;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;

use crate::cm_door::CmFile;
use crate::guard::Guard;
use crate::hca::{Hca, HcaConfig, HcaStats, LinkLayer, Mtu, PendingCq, PendingQp, Strictness};
use crate::idle::Idle;
use crate::kernel::profile::{Gid, Profile};
use crate::kernel::{Device, Kernel, mr, port};
use crate::link::Link;
use crate::memory::ProcessDma;
use crate::run::{self, Shared, Thread};
use crate::sleep::Sleeper;
use crate::uar::UarSet;
use crate::udp::{self, Udp};
use crate::wire::{Address, Fabric, SharedStats, UdpStats, Wire};

/// Devices are numbered in the process; the number makes their addresses.
static NUMBER: AtomicU16 = AtomicU16::new(1);

/// `RDMA_NODE_IB_CA`.
const NODE_TYPE_CA: u8 = 1;

/// A software HCA. Clones name the same device; it ends with the last of them and of its doors.
#[derive(Clone)]
pub struct SoftHca {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    shared: Arc<Shared>,
    record: DeviceRecord,
    /// The port's end of the wire; `None` on a wire of the caller's.
    link: Option<Link>,
    process: Process,
    woken_by_stores: bool,
}

/// What the port tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Whether the link is up.
    pub active: bool,
    /// Kind.
    pub link: LinkLayer,
    /// MTU of the port.
    pub active_mtu: Mtu,
    /// LID; 0 on Ethernet.
    pub lid: u16,
    /// Entries of the GID table, used or not.
    pub gid_table_len: u32,
    /// Entries of the P_Key table.
    pub pkey_table_len: u16,
    /// Longest message in bytes.
    pub max_msg_sz: u32,
}

/// What clients have written for the device and it has not taken ([`SoftHca::pending`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Queue pairs, by number.
    pub qps: Vec<PendingQp>,
    /// Completion queues, by number.
    pub cqs: Vec<PendingCq>,
    /// Doorbell pages: number and contents.
    pub uars: Vec<(u32, Vec<u8>)>,
}

impl SoftHca {
    /// Starts to describe a device.
    pub fn builder() -> SoftHcaBuilder {
        SoftHcaBuilder::default()
    }

    /// Opens the device, as `open("/dev/infiniband/uverbsN")` does. Dropping the door frees all
    /// that was made through it.
    ///
    /// # Errors
    ///
    /// `ENOENT` after [`SoftHca::unplug`].
    pub fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        // A forked child has a copy without a thread.
        if !self.inner.process.is_current() {
            return Err(Errno::ENODEV);
        }
        let shared = Arc::clone(&self.inner.shared);
        let file = shared.change(Kernel::open).map_err(outward)?;
        Ok(Arc::new(Door { shared, file, process: Process::current() }))
    }

    /// One slice of the device's work; true if anything was done. Meant for stepped devices,
    /// allowed for others.
    pub fn step(&self) -> bool {
        self.inner.shared.step()
    }

    /// Steps until there is nothing to do now, at most `max` times. Gives the number of steps that
    /// did something; `max` means that there may be more. Time stands still meanwhile.
    pub fn step_until_idle(&self, max: usize) -> usize {
        (0..max).take_while(|_| self.step()).count()
    }

    /// Moves a stepped device's clock on. A threaded device follows real time and ignores it.
    pub fn advance(&self, by: Duration) {
        self.inner.shared.advance(by);
    }

    /// The device's time since it was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner.shared.now()
    }

    /// When an idle device will have something to do by itself (timers, delayed packets), on the
    /// clock of [`SoftHca::now`]. `None` once it is unplugged.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.inner.shared.lock().next_deadline()
    }

    /// Pulls the device out: its objects go, async event files get `DEVICE_FATAL`. Later ioctls get
    /// `EIO`, but for those that destroy what a client holds.
    pub fn unplug(&self) {
        if let Some(link) = &self.inner.link {
            link.unplug();
        }
        self.inner.shared.change(Kernel::unplug);
    }

    /// Takes the link down: packets are lost, the port says so (`PORT_ERR`). On a wire of the
    /// caller's ([`SoftHcaBuilder::wire`]) only the port's state changes; what is lost there is the
    /// wire's business.
    pub fn link_down(&self) {
        if let Some(link) = &self.inner.link {
            link.unplug();
        }
        self.inner.shared.change(|kernel| kernel.set_link(false));
    }

    /// Brings the link back up (`PORT_ACTIVE`).
    pub fn link_up(&self) {
        self.inner.shared.change(|kernel| {
            if kernel.device.gone {
                return;
            }
            if let Some(link) = &self.inner.link {
                link.replug();
            }
            kernel.set_link(true);
        });
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> HcaStats {
        self.inner.shared.lock().device.hca.stats().clone()
    }

    /// The counters of its UDP wire; `None` on another wire.
    #[must_use]
    pub fn udp_stats(&self) -> Option<UdpStats> {
        self.inner.link.as_ref()?.udp_stats()
    }

    /// The counters of its shared-memory wire; `None` on another wire.
    #[must_use]
    pub fn shared_stats(&self) -> Option<SharedStats> {
        self.inner.link.as_ref()?.shared_stats()
    }

    /// What clients have written for the device and it has not taken: rings, doorbell records,
    /// doorbell pages. Looking changes nothing. Of a stepped device it is all that was written
    /// since the last step; from a running one it is whatever is there.
    #[must_use]
    pub fn pending(&self) -> Pending {
        let kernel = self.inner.shared.lock();
        let Device { hca, uars, .. } = &kernel.device;
        Pending { qps: hca.pending_qps(), cqs: hca.pending_cqs(), uars: uars.contents() }
    }

    /// Zeroes the doorbell pages. A doorbell that the device has not seen yet is lost, so step it
    /// before. What a BlueFlame write stores behind the doorbell stays in the page otherwise, and
    /// would show in [`SoftHca::pending`] again.
    pub fn clear_uars(&self) {
        self.inner.shared.lock().device.uars.clear();
    }

    /// Whether a doorbell wakes the device's thread at once ([`Idle::protect`]). Otherwise the
    /// first message behind an idle time waits for the thread's next look, [`Idle::look`] at most.
    #[must_use]
    pub fn is_woken_by_doorbells(&self) -> bool {
        self.inner.woken_by_stores
    }

    /// The used entries of the GID table, by index.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.inner.shared.lock().device.profile.gids.clone()
    }

    /// The port.
    #[must_use]
    pub fn port_info(&self) -> PortInfo {
        let kernel = self.inner.shared.lock();
        let device = &kernel.device;
        let attributes = port::attributes(device);
        PortInfo {
            active: device.port_up,
            link: device.profile.hca.link,
            active_mtu: device.profile.active_mtu(),
            lid: attributes.lid,
            gid_table_len: attributes.gid_tbl_len,
            pkey_table_len: attributes.pkey_tbl_len,
            max_msg_sz: attributes.max_msg_sz,
        }
    }

    /// How many objects there are of each kind that has some, of all who have the device open: by
    /// the kernel's number of the kind, `UVERBS_OBJECT_*`. Files of events are not among them.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<u16, usize> {
        self.inner.shared.lock().objects()
    }

    /// Bytes of client memory that the device has pinned.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.inner.shared.lock().device.pinned
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("record", &self.record).finish_non_exhaustive()
    }
}

impl fmt::Debug for SoftHca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftHca").field("record", &self.inner.record).finish_non_exhaustive()
    }
}

impl DeviceSource for SoftHca {
    fn record(&self) -> &DeviceRecord {
        &self.inner.record
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        Self::open(self)
    }

    fn open_cm(&self) -> Result<Arc<dyn CmDoor>, Errno> {
        // A forked child has a copy without a thread.
        if !self.inner.process.is_current() {
            return Err(Errno::ENODEV);
        }
        Ok(Arc::new(CmFile::open(&self.inner.shared)?))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        let kernel = self.inner.shared.lock();
        let profile = &kernel.device.profile;
        // In sysfs there is no file of that name.
        if port != 1 || index >= profile.pkey_table_len() {
            return Err(Errno::ENOENT);
        }
        Ok(profile.pkey(index))
    }
}

/// An errno as doors give it: nix is no part of their interface.
fn outward(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw(errno as i32)
}

/// One open device file.
struct Door {
    shared: Arc<Shared>,
    file: u64,
    process: Process,
}

// SAFETY: the HCA drops its hold on memory before it answers; descriptors and mappings are made for
// the caller.
unsafe impl UverbsDoor for Door {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        mr::fault_in(command, |bytes| {
            let device = &self.shared.lock().device;
            !device.gone && device.over_memlock(bytes).is_none()
        });
        self.shared.change(|kernel| kernel.ioctl(self.file, command)).map_err(outward)
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.shared.change(|kernel| kernel.mmap(self.file, len, offset)).map_err(outward)
    }

    /// The device's own limit; the process's RLIMIT_MEMLOCK doesn't count.
    fn memlock(&self, wanted: u64) -> Option<u64> {
        self.shared.lock().device.over_memlock(wanted)
    }
}

/// In a forked child: what it has of the device is a copy without a thread, perhaps locked for
/// good, and the memory that the device reached isn't there. It is left as it is.
fn leave(shared: &Arc<Shared>) {
    std::mem::forget(Arc::clone(shared));
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.process.is_current() {
            leave(&self.shared);
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.shared.change(|kernel| kernel.close(self.file));
        } else {
            leave(&self.shared);
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("softhca::Door").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Describes a device. The defaults: Ethernet, MTU 4096, the HCA's own limits, a thread, a fabric
/// of its own.
#[derive(Debug, Default)]
#[must_use]
pub struct SoftHcaBuilder {
    name: Option<String>,
    number: Option<u16>,
    hca: HcaConfig,
    active_mtu: Option<Mtu>,
    stepped: bool,
    idle: Idle,
    memlock: Option<u64>,
    max_pd: Option<u32>,
    fabric: Option<Fabric>,
    udp: Option<Udp>,
    gids: Option<Vec<Gid>>,
    wire: Option<Box<dyn Wire>>,
}

impl SoftHcaBuilder {
    /// The name of the device; without one it is `softhca` and a number.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The number that makes its GUID and addresses, from 1; without one the devices of a process
    /// count up. Give one where devices of several processes meet on a wire, or where the GUID has
    /// to be known beforehand.
    pub fn number(mut self, number: u16) -> Self {
        self.number = Some(number);
        self
    }

    /// The kind of its port.
    pub fn link(mut self, link: LinkLayer) -> Self {
        self.hca.link = link;
        self
    }

    /// The MTU of its port.
    pub fn active_mtu(mut self, mtu: Mtu) -> Self {
        self.active_mtu = Some(mtu);
        self
    }

    /// No thread: the device works in [`SoftHca::step`] only, and its clock stands until
    /// [`SoftHca::advance`].
    pub fn stepped(mut self) -> Self {
        self.stepped = true;
        self
    }

    /// What its thread does while there is no work: spins, yields, sleeps. See [`Idle`] for the
    /// defaults.
    pub fn idle(mut self, change: impl FnOnce(&mut Idle)) -> Self {
        change(&mut self.idle);
        self
    }

    /// Attaches it to a fabric that other devices share.
    pub fn fabric(mut self, fabric: &Fabric) -> Self {
        self.fabric = Some(fabric.clone());
        self
    }

    /// Attaches it to the network, in place of a fabric: RoCEv2 over UDP, by which processes and
    /// machines reach each other, and reach Linux's soft-RoCE. Its GIDs are the addresses. Devices
    /// of one user on one host use shared memory instead ([`Carrier`](crate::Carrier)).
    ///
    /// ```
    /// use uverbs_softhca::{SoftHca, Udp};
    ///
    /// let device = SoftHca::builder().udp(Udp::loopback()).build()?;
    /// assert_eq!(device.gids().len(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn udp(mut self, udp: Udp) -> Self {
        self.udp = Some(udp);
        self
    }

    /// Gives its port a wire of the caller's making, instead of a fabric.
    pub fn wire(mut self, wire: Box<dyn Wire>) -> Self {
        self.wire = Some(wire);
        self
    }

    /// The addresses in its GID table, each as RoCEv2, in place of those that its number makes. For
    /// a wire of the caller's that leads to them.
    pub fn gids(mut self, addresses: &[IpAddr]) -> Self {
        self.gids = Some(udp::gids(addresses.iter().copied()));
        self
    }

    /// Bytes of memory that may be pinned, in whole pages; more gives `ENOMEM`. Without it there is
    /// no limit.
    pub fn memlock_limit(mut self, bytes: u64) -> Self {
        self.memlock = Some(bytes);
        self
    }

    /// QPs that may exist at once.
    pub fn max_qp(mut self, limit: u32) -> Self {
        self.hca.max_qp = limit;
        self
    }

    /// CQs that may exist at once.
    pub fn max_cq(mut self, limit: u32) -> Self {
        self.hca.max_cq = limit;
        self
    }

    /// Memory regions that may exist at once.
    pub fn max_mr(mut self, limit: u32) -> Self {
        self.hca.max_mkey = limit;
        self
    }

    /// Protection domains that may exist at once.
    pub fn max_pd(mut self, limit: u32) -> Self {
        self.max_pd = Some(limit);
        self
    }

    /// Entries of the largest CQ; rounded up to a power of two less one.
    pub fn max_cqe(mut self, limit: u32) -> Self {
        self.hca.log_max_cqes = log2_up(limit.saturating_add(1));
        self
    }

    /// WQEBBs of the largest send queue and WQEs of the largest receive queue; rounded up to a
    /// power of two.
    pub fn max_qp_wr(mut self, limit: u32) -> Self {
        self.hca.log_max_wqebbs = log2_up(limit);
        self.hca.log_max_rq_entries = log2_up(limit);
        self
    }

    /// Complains about what silicon lets pass ([`Strictness::Pedantic`]).
    pub fn strict(mut self) -> Self {
        self.hca.strict = Strictness::Pedantic;
        self
    }

    /// Anything else about the HCA side.
    pub fn hca(mut self, change: impl FnOnce(&mut HcaConfig)) -> Self {
        change(&mut self.hca);
        self
    }

    /// Makes the device.
    ///
    /// # Errors
    ///
    /// What the system says when the thread can't be started, or the address of a UDP wire can't be
    /// had.
    pub fn build(self) -> io::Result<SoftHca> {
        let udp = match &self.udp {
            Some(_) if self.hca.link == LinkLayer::InfiniBand => {
                let why = "RoCEv2 is Ethernet: a port of InfiniBand has no UDP";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            udp => udp.as_ref().map(Udp::bind).transpose()?,
        };
        let number = self.number.or(udp.as_ref().and_then(udp::number));
        let number = number.unwrap_or_else(|| NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut config = self.hca;
        if let Some(mtu) = self.active_mtu {
            config.active_mtu = mtu;
        }
        if let Some(wire) = &udp {
            config.active_mtu = config.active_mtu.min(udp::mtu(wire)?);
        }
        let mut profile = Profile::new(number, config);
        if let Some(wire) = &udp {
            profile.gids = udp::gids(wire.addresses().iter().map(SocketAddr::ip));
        }
        profile.gids = self.gids.unwrap_or(profile.gids);
        // The table has its full length on either side; only the front is in use.
        profile.hca.pkeys.resize(usize::from(profile.pkey_table_len()), 0);
        profile.memlock = self.memlock.unwrap_or(profile.memlock);
        profile.max_pd = self.max_pd.unwrap_or(profile.max_pd);
        let (mut wire, link): (Box<dyn Wire>, _) = match (self.wire, udp) {
            (Some(wire), _) => (wire, None),
            (None, Some(wire)) => {
                let carrier = self.udp.as_ref().map(Udp::carrier).unwrap_or_default();
                let (wire, link) = Link::network(wire, carrier, self.stepped)?;
                (wire, Some(link))
            }
            (None, None) => {
                let port = self.fabric.unwrap_or_default().attach(&addresses(&profile));
                let link = Link::Fabric(port.link_control());
                (Box::new(port), Some(link))
            }
        };
        let sleeper = if self.stepped { None } else { Some(Arc::new(Sleeper::new()?)) };
        let wire_wakes = match &sleeper {
            Some(sleeper) => wire.set_waker(Arc::clone(sleeper).into()),
            None => false,
        };
        let descriptor = wire.descriptor().map(|fd| fd.try_clone_to_owned()).transpose()?;
        let wire_wakes = wire_wakes || descriptor.is_some();
        let mut hca = Hca::new(profile.hca.clone(), Box::new(ProcessDma), wire);
        let gids = profile.gids.iter().map(|gid| gid.gid).collect::<Vec<_>>();
        hca.set_addresses(&gids, profile.lid);
        let name = self.name.unwrap_or_else(|| format!("softhca{number}"));
        let mut record = DeviceRecord::new(name.as_str(), RDMA_DRIVER_MLX5);
        record.node_guid = profile.guid;
        record.node_type = NODE_TYPE_CA;
        record.port_count = 1;
        let mut device = Device::new(profile, hca);
        if !self.stepped {
            device.cm.seed(RandomState::new().hash_one(std::process::id()));
        }
        // Refused, the thread looks at the pages now and then.
        let guard = if self.stepped || !self.idle.protect { None } else { Guard::new().ok() };
        let guard = guard.map(Arc::new);
        device.uars = guard.clone().map_or_else(UarSet::default, UarSet::guarded);
        let woken_by_stores = guard.is_some();
        let shared = Arc::new(Shared::new(Kernel::new(device), sleeper.clone()));
        if let Some(sleeper) = sleeper {
            let (device, idle) = (Arc::downgrade(&shared), self.idle);
            run::spawn(
                &name,
                Thread { device, sleeper, guard, idle, wire_wakes, wire: descriptor },
            )?;
        }
        let process = Process::current();
        Ok(SoftHca { inner: Arc::new(Inner { shared, record, link, process, woken_by_stores }) })
    }
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
