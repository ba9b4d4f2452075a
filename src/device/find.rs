//! Devices: finding them, and opening one.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::{GidEntry, GidType};
use uverbs_core::commands::Uverbs;
use uverbs_core::discovery;
use uverbs_core::doors::{DeviceRecord, DeviceSource};
use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;

use crate::provider::Provider;
use crate::{Any, Context};

/// Node type of an iWARP device (kernel `ib_verbs.h`, `RDMA_NODE_RNIC`).
const RDMA_NODE_RNIC: u8 = 4;

/// An RDMA device: the kernel's, or a software HCA. A cheap handle; nothing is open yet.
#[derive(Clone)]
#[doc(alias = "ibv_device")]
pub struct Device {
    source: Arc<dyn DeviceSource>,
}

/// The RDMA devices of this machine, in the kernel's order. Empty on a machine without any.
///
/// Read from RDMA netlink; if it is missing or refused, from sysfs (under `SYSFS_PATH` if that is
/// set). A device without a usable `/dev/infiniband/uverbsN` is left out, since containers hide
/// devices so.
///
/// # Errors
///
/// When netlink and sysfs both fail in an unexpected way.
///
/// ```
/// for device in uverbs::devices()? {
///     println!("{} {:016x}", device.name(), device.node_guid());
/// }
/// # Ok::<(), uverbs::Error>(())
/// ```
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Result<Vec<Device>, Error> {
    let found = discovery::list()?;
    Ok(found.into_iter().map(|source| Device { source: Arc::new(source) }).collect())
}

/// The process's own software device of that name, if there is such a name.
pub(crate) fn embedded(name: &str) -> Option<Result<Device, Error>> {
    let Some(made) = software_hca(name).or_else(|| software_efa(name)) else {
        return function(name);
    };
    Some(made.map_err(|error| {
        let errno = match error.kind() {
            // Errors with a custom text carry no OS error number.
            ErrorKind::AddrInUse => Errno::EADDRINUSE,
            ErrorKind::AddrNotAvailable => Errno::EADDRNOTAVAIL,
            ErrorKind::InvalidInput => Errno::EINVAL,
            ErrorKind::Unsupported => Errno::EOPNOTSUPP,
            _ => Errno::of(&error),
        };
        Error::SoftHca { name: name.to_owned(), errno, why: error.to_string() }
    }))
}

#[cfg(feature = "softhca")]
fn software_hca(name: &str) -> Option<io::Result<Device>> {
    uverbs_softhca::SoftHca::embedded(name).map(|made| made.map(Device::from))
}

#[cfg(not(feature = "softhca"))]
fn software_hca(_: &str) -> Option<io::Result<Device>> {
    None
}

#[cfg(feature = "softefa")]
fn software_efa(name: &str) -> Option<io::Result<Device>> {
    let made = uverbs_softefa::SoftEfa::embedded(name)?;
    Some(made.map(|efa| Device::from_source(Arc::new(efa))))
}

#[cfg(not(feature = "softefa"))]
fn software_efa(_: &str) -> Option<io::Result<Device>> {
    None
}

#[cfg(feature = "vfio")]
fn function(name: &str) -> Option<Result<Device, Error>> {
    let made = uverbs_mlx5_vfio::Hca::named(name)?;
    Some(made.map(|hca| Device::from_source(Arc::new(hca))).map_err(|error| Error::SoftHca {
        name: name.to_owned(),
        errno: error.errno(),
        why: error.to_string(),
    }))
}

#[cfg(not(feature = "vfio"))]
fn function(_: &str) -> Option<Result<Device, Error>> {
    None
}

/// Number of device lists to read before a device counts as missing.
const LISTINGS: usize = 3;

/// The device that `choose` picks from the kernel's list, if any, and all names in the list.
///
/// A list may lack a device because another was removed meanwhile: the kernel sends a dump in
/// parts, one device each, and resumes by the number of devices sent (`nldev.c`,
/// `_nldev_get_dumpit`). So a device missing in one list is searched in the next list. An empty
/// list is final: without a listed device, no removal can have shifted the count.
pub(crate) fn look_for(
    choose: impl Fn(&[Device]) -> Option<Device>,
) -> Result<(Option<Device>, Vec<String>), Error> {
    look_in(devices, choose)
}

fn look_in(
    mut list: impl FnMut() -> Result<Vec<Device>, Error>,
    choose: impl Fn(&[Device]) -> Option<Device>,
) -> Result<(Option<Device>, Vec<String>), Error> {
    let mut devices = list()?;
    let mut found = choose(&devices);
    for _ in 1..LISTINGS {
        if found.is_some() || devices.is_empty() {
            break;
        }
        devices = list()?;
        found = choose(&devices);
    }
    Ok((found, devices.iter().map(|device| device.name().to_owned()).collect()))
}

impl Device {
    /// A device of another kind: a software HCA, or a recording wrapper of a device.
    #[must_use]
    pub fn from_source(source: Arc<dyn DeviceSource>) -> Self {
        Self { source }
    }

    /// Source that opens the device.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn DeviceSource> {
        &self.source
    }

    /// The kernel's name: `mlx5_0`.
    #[must_use]
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.record().name
    }

    /// Node GUID, in the order it is printed. 0 when not known before opening.
    #[must_use]
    #[doc(alias = "ibv_get_device_guid")]
    pub fn node_guid(&self) -> u64 {
        self.record().node_guid
    }

    /// Index that the kernel gave the device; renaming doesn't change it. `None` for devices
    /// without an index (a software HCA in process).
    #[must_use]
    #[doc(alias = "ibv_get_device_index")]
    pub fn index(&self) -> Option<u32> {
        self.record().index
    }

    /// IP addresses of the device's RoCE GIDs, IPv4 first, without link-local ones. Peers and the
    /// connection manager reach the device there. Empty on InfiniBand and iWARP, where a network
    /// interface has the addresses; a software InfiniBand port has one itself.
    ///
    /// ```
    /// let device = uverbs::device("softhca0")?;
    /// let ip = device.addresses()?[0];
    /// assert!(ip.is_ipv4());
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open), and [`Error::Kernel`]: `EIO` of a removed device.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, Error> {
        let gids = self.open()?.query_gid_table()?;
        let is_ip = |entry: &&GidEntry| entry.kind != GidType::Ib && !entry.gid.is_link_local();
        let of_gids = gids.iter().filter(is_ip).map(|entry| entry.gid.to_ip());
        let mut found: Vec<_> = of_gids.chain(self.source.addresses()).collect();
        // Stable: addresses of a family stay in the order of the GIDs, v1 beside v2.
        found.sort_by_key(IpAddr::is_ipv6);
        found.dedup();
        Ok(found)
    }

    /// True for iWARP, RDMA over TCP. Its WRITEs carry no immediate data, and it has no datagrams.
    ///
    /// ```
    /// assert!(!uverbs::device("softhca0")?.is_iwarp(), "RoCE");
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "IBV_TRANSPORT_IWARP")]
    pub fn is_iwarp(&self) -> bool {
        self.record().node_type == RDMA_NODE_RNIC
    }

    /// All that is known before opening.
    #[must_use]
    pub fn record(&self) -> &DeviceRecord {
        self.source.record()
    }

    /// Opens it with whichever provider it needs.
    ///
    /// # Errors
    ///
    /// [`Error::PermissionDenied`] without access to the device node, [`Error::Unsupported`] for a
    /// driver that no provider speaks to or that is too old (mlx5: Linux 5.8), and
    /// [`Error::Kernel`]: `EPERM` in another network namespace, `EAGAIN` at the limit of the rdma
    /// cgroup, `EMFILE` (two descriptors a device), `ENODEV` or `EIO` of a device that was removed
    /// since it was listed.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context, Error> {
        self.open_as::<Any>()
    }

    /// Opens it with one provider: the types are then that provider's own, with its extensions, and
    /// nothing is dispatched.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); the handshake fails if the device is not the provider's.
    pub fn open_as<P: Provider>(&self) -> Result<Context<P>, Error> {
        let door = self.source.open().map_err(|errno| match errno {
            Errno::EACCES => Error::PermissionDenied {
                path: format!("/dev/infiniband/{}", self.record().uverbs_name),
            },
            errno => Error::kernel("open_device", errno),
        })?;
        let core = ContextCore::new(Uverbs::new(door, self.record().driver_id));
        Context::new(self.clone(), P::open(core)?)
    }
}

#[cfg(feature = "softhca")]
impl From<uverbs_softhca::SoftHca> for Device {
    fn from(hca: uverbs_softhca::SoftHca) -> Self {
        Self { source: Arc::new(hca) }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(self.record()).finish()
    }
}

#[cfg(all(test, feature = "softhca"))]
mod tests {
    use super::*;

    /// The name that was found, after how many lists.
    fn found(lists: &[&[&str]], name: &str) -> (Option<String>, usize) {
        let mut asked = 0;
        let list = || {
            asked += 1;
            Ok(lists[asked - 1].iter().map(|name| embedded(name).unwrap().unwrap()).collect())
        };
        let by_name = |list: &[Device]| list.iter().find(|device| device.name() == name).cloned();
        let (device, available) = look_in(list, by_name).unwrap();
        assert_eq!(available, lists[asked - 1]);
        (device.map(|device| device.name().to_owned()), asked)
    }

    #[test]
    fn a_device_that_a_list_lacks_is_looked_for_in_the_next() {
        let (first, second) = ("softhca0", "softhca1");
        assert_eq!(found(&[&[first, second]], second), (Some(second.to_owned()), 1));
        assert_eq!(found(&[&[first], &[second]], second), (Some(second.to_owned()), 2));
        assert_eq!(found(&[&[first], &[first], &[first]], second), (None, LISTINGS));
        let none: &[&str] = &[];
        assert_eq!(found(&[none], second), (None, 1));
    }
}
