//! Doors: traits through which everything of the control path leaves the process.
//!
//! [`UverbsDoor`] is one open file of `/dev/infiniband/uverbsN`: ioctl bytes in and out, and mmap.
//! The kernel's door ([`kernel`]) and the software HCA implement it, and also wrappers that record,
//! replay or inject faults. The data path passes through no door: a mapped queue is plain memory
//! and one doorbell address.
//!
//! # Safety
//!
//! The file declares one `unsafe fn` and calls none.
#![allow(
    unsafe_code,
    reason = "an ioctl's attributes carry addresses, so sending one is the caller's promise"
)]

pub mod cm;
pub mod faulty;
pub mod kernel;
pub mod recorder;
pub mod traced;
pub mod words;

pub use faulty::Faulty;
pub use recorder::{Recorded, RecordedAttr, Recorder};
pub use traced::traced;

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use crate::Errno;
use crate::doors::cm::CmDoor;
use crate::memory::pages::Pages;
use crate::report::counters::Counters;
use crate::report::place::PortPlace;
use crate::report::resources::Resources;

/// One open uverbs file, or a stand-in for one.
///
/// Dropping the last handle closes the file; the kernel then frees every object created through it.
///
/// # Safety
///
/// Memory safety relies on an implementation as it does on the kernel. After a destruction that it
/// reports as done, the device no longer accesses the object's memory. A file descriptor that it
/// returns is new and belongs to the caller. A mapping has the requested length, is readable and
/// writable, and stays until the [`Pages`] are dropped. Only the caller writes to memory from
/// [`memory`](Self::memory). A wrapper forwards these properties, or returns errors.
pub unsafe trait UverbsDoor: Send + Sync + fmt::Debug {
    /// Sends one `RDMA_VERBS_IOCTL`.
    ///
    /// `command` starts with an `ib_uverbs_ioctl_hdr` whose `length` is the number of bytes to read
    /// and write: the header and its attributes. Words instead of bytes, because the kernel
    /// requires 8-byte alignment. On return `command` holds the kernel's results (handles, file
    /// descriptors, `UVERBS_ATTR_F_VALID_OUTPUT`).
    ///
    /// # Safety
    ///
    /// Each attribute with an address names memory that is valid for its length, for reads of
    /// inputs and for writes of outputs, and not borrowed elsewhere until the call returns. Memory
    /// that the command registers (`REG_MR`, queue buffers, doorbell records) stays mapped until
    /// the object is destroyed.
    ///
    /// # Errors
    ///
    /// The errno of the call.
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno>;

    /// Maps `len` bytes of the file at `offset`, readable and writable, shared: doorbell pages,
    /// rings.
    ///
    /// # Errors
    ///
    /// The errno of the call.
    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno>;

    /// Maps for reading only, for clock pages. The mapping may be writable too.
    ///
    /// # Errors
    ///
    /// The errno of the call.
    fn mmap_read_only(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.mmap(len, offset)
    }

    /// The file descriptor, if there is one.
    fn raw_fd(&self) -> Option<RawFd> {
        None
    }

    /// Returns a new, close-on-exec descriptor of this open file, for [`DeviceSource::import`].
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if there is no file; `EMFILE`.
    fn export(&self) -> Result<OwnedFd, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// The `RLIMIT_MEMLOCK` limit in bytes, if pinning `wanted` more bytes through this file
    /// exceeds it. The kernel then answers `ENOMEM`.
    fn memlock(&self, wanted: u64) -> Option<u64> {
        crate::memory::memlock::exceeded(wanted)
    }

    /// Memory for the program's messages, if the device transfers a special kind of memory faster:
    /// at least `len` zeroed bytes. `None` if any memory is as fast.
    fn memory(&self, len: usize) -> Option<Pages> {
        let _ = len;
        None
    }

    /// True if rings and doorbell records should be in memory from [`memory`](Self::memory): a PCI
    /// function in another process reaches other memory by messages.
    fn wants_rings_in_memory(&self) -> bool {
        false
    }

    /// For a thread that found nothing and looks again soon: lets an in-process device do some of
    /// its work on this thread, or yields the processor to whoever has work. Never blocks. Must not
    /// be called from a signal handler, which may have interrupted this call.
    fn progress(&self) {
        std::thread::yield_now();
    }

    /// True if polls that find nothing call [`progress`](Self::progress): a thread of this process
    /// does the device's work or passes doorbells on, and may need the poller's processor.
    fn wants_progress(&self) -> bool {
        false
    }

    /// Tells an in-process device that the caller armed a completion queue, and may sleep instead
    /// of making [`progress`](Self::progress).
    fn will_sleep(&self) {}
}

/// Description of a device before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceRecord {
    /// The kernel's name of the RDMA device: `mlx5_0`, `rxe0`.
    pub name: String,
    /// The kernel's name of the character device: `uverbs0`. Empty for a device without one.
    pub uverbs_name: String,
    /// Index of the device in RDMA netlink; `None` if sysfs reported it.
    pub index: Option<u32>,
    /// Node GUID, most significant byte first, as printed. 0 if unknown.
    pub node_guid: u64,
    /// `RDMA_NODE_*`: 1 channel adapter, 2 switch, 3 router, 4 RNIC… 0 if unknown.
    pub node_type: u8,
    /// `RDMA_DRIVER_*` (`rdma/ib_user_ioctl_verbs.h`): selects the provider. 0 if unknown.
    pub driver_id: u32,
    /// The kernel driver's uverbs ABI version.
    pub abi_version: u32,
    /// Number of ports. 0 if unknown.
    pub port_count: u32,
}

impl DeviceRecord {
    /// A record with name and driver; the rest is unknown.
    #[must_use]
    pub fn new(name: impl Into<String>, driver_id: u32) -> Self {
        Self {
            name: name.into(),
            uverbs_name: String::new(),
            index: None,
            node_guid: 0,
            node_type: 0,
            driver_id,
            abi_version: 1,
            port_count: 0,
        }
    }
}

/// A device that can be opened: the kernel's, or a software one.
pub trait DeviceSource: Send + Sync + fmt::Debug {
    /// Description of the device.
    fn record(&self) -> &DeviceRecord;

    /// Opens the device.
    ///
    /// # Errors
    ///
    /// `EACCES` without permission on the device node, `ENOENT` or `ENODEV` if the device is gone.
    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno>;

    /// Imports the open file behind a descriptor that [`UverbsDoor::export`] returned, in this or
    /// another process. The descriptor may be closed afterwards.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a descriptor of no device, `ENODEV` for a descriptor of another device,
    /// `EOPNOTSUPP` if devices have no files.
    fn import(&self, file: BorrowedFd<'_>) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let _ = file;
        Err(Errno::EOPNOTSUPP)
    }

    /// Opens an event channel of the connection manager that connects this device's queue pairs.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has none; the errno of opening the file.
    fn open_cm(&self) -> Result<Arc<dyn CmDoor>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Partition key at `index` of `port` (from 1). The kernel reports it only in sysfs.
    ///
    /// # Errors
    ///
    /// `EINVAL` or `ENOENT` if port or index is out of range.
    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno>;

    /// IP addresses of an InfiniBand port, if no network interface has them.
    fn addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Folder of the device in sysfs; `None` for a device without one.
    fn sysfs(&self) -> Option<PathBuf> {
        None
    }

    /// State and network interfaces of the ports, without opening the device. Empty if unknown.
    fn ports(&self) -> Vec<PortPlace> {
        Vec::new()
    }

    /// Counters of the device.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Objects of the device, of all processes.
    fn resources(&self) -> Resources {
        Resources::default()
    }
}

/// Command number of an `INVOKE_WRITE`; `None` for other methods.
fn write_command(command: &[u64]) -> Option<u32> {
    use uverbs_kernel_abi::objects::{
        UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE,
    };
    let (header, mut attrs) = words::parse(command)?;
    if (header.object_id, header.method_id) != (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) {
        return None;
    }
    attrs.find(|attr| attr.attr_id == UVERBS_ATTR_WRITE_CMD).map(|attr| attr.data as u32)
}
