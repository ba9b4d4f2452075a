//! Handle of a software HCA.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_core::doors::cm::CmDoor;
use uverbs_core::doors::{DeviceRecord, DeviceSource, UverbsDoor, traced};
use uverbs_core::memory::process::Process;
use uverbs_core::report::counters::Counters;
use uverbs_core::report::place::PortPlace;
use uverbs_core::report::resources::Resources;

use crate::SoftHcaBuilder;
use crate::cm_door;
use crate::door::{self, Door};
use crate::handle::Handle;
use crate::hca::{HcaStats, PendingCq, PendingQp, PendingSrq, Placement};
use crate::model::{Device, Kernel};
use crate::report;
use crate::wire::{SharedStats, UdpStats};
use crate::wire_control::WireControl;
use uverbs_front::backend::config::Gid;
use uverbs_front::backend::context::{LinkLayer, Mtu};
use uverbs_front::backend::number::{Qpn, Srqn};

/// A software HCA. Clones are the same device. It ends with the last clone and the last door, which
/// frees its address.
#[derive(Clone)]
pub struct SoftHca {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Handle,
    pub(crate) record: DeviceRecord,
    /// The port's end of the wire; `None` on a caller's wire.
    pub(crate) link: Option<WireControl>,
    pub(crate) process: Process,
    pub(crate) woken_by_stores: bool,
}

/// Port attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// True if the link is up.
    pub active: bool,
    /// Link layer.
    pub link: LinkLayer,
    /// MTU of the port.
    pub active_mtu: Mtu,
    /// LID; 0 on Ethernet.
    pub lid: u16,
    /// LID of the subnet manager; 0 on Ethernet.
    pub sm_lid: u16,
    /// `port_cap_flags` of the port.
    pub cap_flags: u32,
    /// Entries of the GID table, used or not.
    pub gid_table_len: u32,
    /// Entries of the P_Key table.
    pub pkey_table_len: u16,
    /// Maximum message size in bytes.
    pub max_msg_sz: u32,
}

/// Client writes that await processing ([`SoftHca::pending`]).
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
    /// Begins to build a device.
    pub fn builder() -> SoftHcaBuilder {
        SoftHcaBuilder::new()
    }

    /// Opens the device, like `open("/dev/infiniband/uverbsN")`. Dropping the door frees all
    /// objects created through it.
    ///
    /// # Errors
    ///
    /// `ENOENT` after [`SoftHca::unplug`].
    pub fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        // A forked child has a copy of the handle without a thread.
        if !self.inner.process.is_current() {
            return Err(Errno::ENODEV);
        }
        Ok(traced(&self.inner.record.name, door::open(&self.inner)?))
    }

    /// Returns the device of an open door by a descriptor that [`UverbsDoor::export`] returned in
    /// this process. `None` for other descriptors, and once the door is closed.
    #[must_use]
    pub fn exported(file: BorrowedFd<'_>) -> Option<Self> {
        Door::exported(file)?.runner().device().map(|inner| Self { inner })
    }

    /// Runs one slice of the device's work; true if it did anything. Meant for stepped devices,
    /// allowed for others.
    pub fn step(&self) -> bool {
        self.inner.shared.step()
    }

    /// Steps until the device is idle, at most `max` times, without moving its clock. Returns the
    /// number of steps that did work; `max` means that there may be more.
    pub fn step_until_idle(&self, max: usize) -> usize {
        (0..max).take_while(|_| self.step()).count()
    }

    /// Advances a stepped device's clock. A threaded device follows real time and ignores it.
    pub fn advance(&self, by: Duration) {
        self.inner.shared.advance(by);
    }

    /// Time since the device's creation.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner.shared.now()
    }

    /// Time of the idle device's next event (timer or delayed packet) on the clock of
    /// [`SoftHca::now`]. `None` after [`SoftHca::unplug`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.inner.shared.lock().next_deadline()
    }

    /// Unplugs the device: its objects are destroyed, async event files get `DEVICE_FATAL`. Later
    /// ioctls fail with `EIO`, except those that destroy a client's objects.
    pub fn unplug(&self) {
        if let Some(link) = &self.inner.link {
            link.unplug();
        }
        self.inner.shared.change(Kernel::unplug);
    }

    /// Takes the link down: packets are lost, and the port reports `PORT_ERR`. On a caller's wire
    /// ([`SoftHcaBuilder::wire`]) only the port's state changes; the wire decides about packets.
    pub fn link_down(&self) {
        if let Some(link) = &self.inner.link {
            link.unplug();
        }
        self.inner.shared.change(|kernel| kernel.set_link(false));
    }

    /// Brings the link back up (`PORT_ACTIVE`).
    pub fn link_up(&self) {
        self.inner.shared.change(|kernel| {
            if kernel.device.is_gone() {
                return;
            }
            if let Some(link) = &self.inner.link {
                link.replug();
            }
            kernel.set_link(true);
        });
    }

    /// Counters of the device.
    #[must_use]
    pub fn stats(&self) -> HcaStats {
        self.inner.shared.lock().device.hca.stats().clone()
    }

    /// Counters of its UDP wire; `None` on another wire.
    #[must_use]
    pub fn udp_stats(&self) -> Option<UdpStats> {
        self.inner.link.as_ref()?.udp_stats()
    }

    /// Counters of its shared-memory wire; `None` on another wire.
    #[must_use]
    pub fn shared_stats(&self) -> Option<SharedStats> {
        self.inner.link.as_ref()?.shared_stats()
    }

    /// Client writes that await processing: rings, doorbell records, doorbell pages. The call
    /// changes no state. A stepped device returns all writes since the last step; a running device
    /// returns the writes pending at this moment.
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

    /// Executes a FLUSH or an ATOMIC WRITE in place of the NOP that a program will post at WQEBB
    /// `index` of the send ring of `qpn`, since mlx5 has no work request for either. Call it before
    /// the NOP's doorbell.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an unknown queue pair, or a service other than RC and XRC.
    pub fn place(&self, qpn: u32, index: u16, operation: Placement) -> Result<(), Errno> {
        let mut kernel = self.inner.shared.lock();
        let placed = kernel.device.hca.place(Qpn(qpn), index, Srqn(0), operation);
        placed.map_err(|_| Errno::EINVAL)
    }

    /// Zeroes the doorbell pages. Unprocessed doorbells are lost, so step the device before.
    /// Without the call, the bytes of a BlueFlame write behind the doorbell stay in the page and
    /// appear again in [`SoftHca::pending`].
    pub fn clear_uars(&self) {
        self.inner.shared.lock().device.uars.clear();
    }

    /// Returns `true` if a doorbell wakes the device's thread at once
    /// ([`protect`](crate::Idle::protect)). Otherwise the first message after an idle time waits
    /// for the thread's next look, at most [`look`](crate::Idle::look).
    #[must_use]
    pub fn is_woken_by_doorbells(&self) -> bool {
        self.inner.woken_by_stores
    }

    /// Used entries of the GID table, by index.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.inner.shared.lock().device.config.gids.clone()
    }

    /// PCI device number of the card that it goes by, `vendor_part_id` of the verbs.
    #[must_use]
    pub fn part_id(&self) -> u16 {
        self.inner.shared.lock().device.config.part
    }

    /// Attributes of the port.
    #[must_use]
    pub fn port_info(&self) -> PortInfo {
        let kernel = self.inner.shared.lock();
        let device = &kernel.device;
        let attributes = uverbs_front::port_attributes(device);
        PortInfo {
            active: device.is_up(),
            link: device.config.link,
            active_mtu: device.config.active_mtu,
            lid: attributes.lid,
            sm_lid: attributes.sm_lid,
            cap_flags: attributes.port_cap_flags,
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

    /// Number of objects of all clients by type (`UVERBS_OBJECT_*`), without event files. Types
    /// without objects are left out.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<u16, usize> {
        self.inner.shared.lock().objects()
    }

    /// Bytes of client memory that the device has pinned.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.inner.shared.lock().device.pinned()
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
        match door.runner().device() {
            Some(inner) if Arc::ptr_eq(&inner, &self.inner) => Ok(door),
            _ => Err(Errno::ENODEV),
        }
    }

    fn open_cm(&self) -> Result<Arc<dyn CmDoor>, Errno> {
        // A forked child has a copy of the handle without a thread.
        if !self.inner.process.is_current() {
            return Err(Errno::ENODEV);
        }
        cm_door::open(&self.inner.shared)
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        let kernel = self.inner.shared.lock();
        let config = &kernel.device.config;
        // sysfs has no such file either.
        if port != 1 || index >= config.pkey_table_len {
            return Err(Errno::ENOENT);
        }
        Ok(config.pkey(index))
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.inner.shared.lock().device.cm.port_address().into_iter().collect()
    }

    fn ports(&self) -> Vec<PortPlace> {
        vec![report::port(self.port_info().active)]
    }

    fn counters(&self) -> Counters {
        let udp = self.udp_stats().map(|stats| ("udp", stats.by_name()));
        let shared = self.shared_stats().map(|stats| ("shared_memory", stats.by_name()));
        let wires: Vec<_> = udp.into_iter().chain(shared).collect();
        report::counters(&self.inner.shared.lock().device, &wires)
    }

    fn resources(&self) -> Resources {
        self.inner.shared.lock().resources()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.process.is_current() {
            self.shared.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use uverbs_core::report::counters::CounterSet;

    use super::*;

    #[test]
    fn an_idle_device_counts_nothing_and_holds_nothing() {
        let hca = SoftHca::builder().build().unwrap();
        assert_eq!(hca.ports()[0].state, Some(4));
        assert_eq!(hca.resources(), Resources::default());
        let report = hca.counters();
        assert_eq!(report.get(&CounterSet::Port(1), "port_xmit_packets"), Some(0));
        assert_eq!(report.get(&CounterSet::Hardware(1), "out_of_buffer"), Some(0));
        assert_eq!(report.get(&CounterSet::Device, "retransmits"), Some(0));
        assert_eq!(report.gaps, []);
        let _door = hca.open().unwrap();
        assert_eq!(hca.resources().held, [], "a file without a context");
        hca.link_down();
        assert_eq!(hca.ports()[0].state, Some(1));
    }
}
