//! One device: its handle.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_core::doors::cm::CmDoor;
use uverbs_core::doors::{DeviceRecord, DeviceSource, UverbsDoor, traced};
use uverbs_core::memory::process::Process;

use crate::SoftHcaBuilder;
use crate::cm_door::CmFile;
use crate::door::{Door, outward};
use crate::handle::Handle;
use crate::hca::{
    HcaError, HcaStats, LinkLayer, Mtu, PendingCq, PendingQp, PendingSrq, Placement, Qpn, Srqn,
};
use crate::kernel::Device;
use crate::kernel::Kernel;
use crate::kernel::port;
use crate::kernel::profile::Gid;
use crate::link::Link;
use crate::wire::{SharedStats, UdpStats};

/// A software HCA. Clones name the same device; it ends with the last of them and of its doors, and
/// then another can have its address.
#[derive(Clone)]
pub struct SoftHca {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Handle,
    pub(crate) record: DeviceRecord,
    /// The port's end of the wire; `None` on a wire of the caller's.
    pub(crate) link: Option<Link>,
    pub(crate) process: Process,
    pub(crate) woken_by_stores: bool,
}

/// Port attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The link is up.
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

/// Client writes that the device has not processed yet ([`SoftHca::pending`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Queue pairs, by number.
    pub qps: Vec<PendingQp>,
    /// Shared receive queues, by number.
    pub srqs: Vec<PendingSrq>,
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
        let shared = self.inner.shared.clone();
        let file = shared.change(Kernel::open).map_err(outward)?;
        Ok(traced(&self.inner.record.name, Door::new(shared, file, &self.inner)))
    }

    /// The device of an open door, by a descriptor that [`UverbsDoor::export`] of the door gave in
    /// this process; `None` for any other descriptor, and once the door is closed.
    #[must_use]
    pub fn exported(file: BorrowedFd<'_>) -> Option<Self> {
        Door::exported(file)?.device().map(|inner| Self { inner })
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

    /// Time of the idle device's next event (timers, delayed packets), on the clock of
    /// [`SoftHca::now`]. `None` once it is unplugged.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.inner.shared.lock().next_deadline()
    }

    /// Pulls the device out: its objects go, async event files get `DEVICE_FATAL`. Later ioctls get
    /// `EIO`, except those that destroy a client's objects.
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

    /// Client writes that the device has not processed yet: rings, doorbell records, doorbell
    /// pages. The call changes no state. A stepped device returns all writes since the last step; a
    /// running device returns the writes pending at this moment.
    #[must_use]
    pub fn pending(&self) -> Pending {
        let kernel = self.inner.shared.lock();
        let Device { hca, uars, .. } = &kernel.device;
        Pending {
            qps: hca.pending_qps(),
            srqs: hca.pending_srqs(),
            cqs: hca.pending_cqs(),
            uars: uars.contents(),
        }
    }

    /// Carries out a FLUSH or an ATOMIC WRITE in place of the NOP that a program will post at
    /// WQEBB `index` of the send ring of `qpn` ([`Hca::place`](crate::hca::Hca::place)): mlx5 has
    /// no work request of either. Call it before the NOP's doorbell.
    ///
    /// # Errors
    ///
    /// As [`Hca::place`](crate::hca::Hca::place).
    pub fn place(&self, qpn: u32, index: u16, operation: Placement) -> Result<(), HcaError> {
        let mut kernel = self.inner.shared.lock();
        kernel.device.hca.place(Qpn(qpn), index, Srqn(0), operation)
    }

    /// Zeroes the doorbell pages. A doorbell that the device has not seen yet is lost, so step it
    /// before. What a BlueFlame write stores behind the doorbell stays in the page otherwise, and
    /// would show in [`SoftHca::pending`] again.
    pub fn clear_uars(&self) {
        self.inner.shared.lock().device.uars.clear();
    }

    /// Returns `true` if a doorbell wakes the device's thread at once
    /// ([`protect`](crate::Idle::protect)). Otherwise the first message behind an idle time waits
    /// for the thread's next look, [`look`](crate::Idle::look) at most.
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

    /// Number of ids of its connection manager: listeners, connections, unanswered requests.
    #[must_use]
    pub fn cm_ids(&self) -> usize {
        self.inner.shared.lock().device.cm.ids()
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

    fn import(&self, file: BorrowedFd<'_>) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let door = Door::exported(file).ok_or(Errno::EINVAL)?;
        match door.device() {
            Some(inner) if Arc::ptr_eq(&inner, &self.inner) => Ok(door),
            _ => Err(Errno::ENODEV),
        }
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

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.process.is_current() {
            self.shared.leave();
        }
    }
}
