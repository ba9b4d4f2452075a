//! Finding the kernel's RDMA devices: RDMA netlink first, then sysfs if netlink does not answer.
//!
//! rdma-core works in the same order (`libibverbs/init.c`, `ibdev_nl.c`). Netlink shows only the
//! devices of this network namespace, and its query for the character device loads `ib_uverbs`.

pub mod function;
pub mod netlink;
mod report;
pub mod sysfs;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uverbs_kernel_abi::driver_id::RDMA_DRIVER_UNKNOWN;

use crate::Errno;
use crate::doors::cm::{CmDoor, KernelCmDoor};
use crate::doors::kernel::KernelDoor;
use crate::doors::traced;
use crate::doors::{DeviceRecord, DeviceSource, UverbsDoor};
use crate::error::Error;
use crate::report::counters::Counters;
use crate::report::place::PortPlace;
use crate::report::resources::Resources;

/// Folder of the device nodes.
const DEV_DIR: &str = "/dev/infiniband";

/// An RDMA device of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelDevice {
    record: DeviceRecord,
    /// Number of the character device (`st_rdev`), if known.
    rdev: Option<u64>,
    node: PathBuf,
    sysfs: PathBuf,
}

impl KernelDevice {
    /// Path of the device node.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Text of a file in the device's sysfs folder (`fw_ver`, `board_id`, `ports/1/…`), trimmed.
    ///
    /// # Errors
    ///
    /// The errno of reading it.
    pub fn attribute(&self, path: &str) -> Result<String, Errno> {
        sysfs::read(&sysfs::ibdev(&self.sysfs, &self.record.name).join(path))
    }

    /// Returns true if the node now belongs to another device: the kernel reuses names and numbers
    /// of nodes. Called with the node open, which pins both.
    fn is_another(&self) -> bool {
        let ibdev = format!("class/infiniband_verbs/{}/ibdev", self.record.uverbs_name);
        sysfs::read(&self.sysfs.join(ibdev)).is_ok_and(|name| name != self.record.name)
    }
}

impl DeviceSource for KernelDevice {
    fn record(&self) -> &DeviceRecord {
        &self.record
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let door = KernelDoor::open(&self.node, self.rdev)?;
        if self.is_another() {
            return Err(Errno::ENODEV);
        }
        Ok(traced(&self.record.name, Arc::new(door)))
    }

    /// If the character device's number was reused for another device, the first command fails: a
    /// file of a removed device answers `EIO` to every command.
    fn import(&self, file: BorrowedFd<'_>) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let node = || nix::sys::stat::stat(&self.node).map(|node| node.st_rdev);
        let rdev = self.rdev.map_or_else(node, Ok).map_err(|_| Errno::ENODEV)?;
        let door = KernelDoor::import(file, &self.node, rdev)?;
        Ok(traced(&self.record.name, Arc::new(door)))
    }

    fn open_cm(&self) -> Result<Arc<dyn CmDoor>, Errno> {
        Ok(Arc::new(KernelCmDoor::open()?))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        let text = self.attribute(&format!("ports/{port}/pkeys/{index}"))?;
        let digits = text.strip_prefix("0x").ok_or(Errno::EINVAL)?;
        u16::from_str_radix(digits, 16).map_err(|_| Errno::EINVAL)
    }

    fn sysfs(&self) -> Option<PathBuf> {
        Some(sysfs::ibdev(&self.sysfs, &self.record.name))
    }

    fn ports(&self) -> Vec<PortPlace> {
        report::ports(self)
    }

    fn counters(&self) -> Counters {
        report::counters(self)
    }

    fn resources(&self) -> Resources {
        report::resources(self)
    }
}

/// Result of discovery for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Description of the device.
    pub record: DeviceRecord,
    /// Number of the character device, if known.
    pub rdev: Option<u64>,
}

/// Lists the kernel's devices that this process can see, in the order of their netlink index, or of
/// their number without netlink.
///
/// Devices without a node in `/dev/infiniband` are left out, because containers withhold devices in
/// this way. Without devices the list is empty.
///
/// # Errors
///
/// [`Error::System`] if sysfs exists and can't be read.
#[doc(alias = "ibv_get_device_list")]
pub fn list() -> Result<Vec<KernelDevice>, Error> {
    let root = sysfs::root();
    let found = match netlink::list() {
        // Sysfs takes some thirty calls for each device, and is rarely needed.
        Ok(devices) if devices.iter().all(is_complete) => devices,
        Ok(devices) => complete(devices, &sysfs::list(&root).unwrap_or_default()),
        Err(_) => {
            sysfs::list(&root).map_err(|errno| Error::System { what: "reading sysfs", errno })?
        }
    };
    Ok(select(found, &root, Path::new(DEV_DIR)))
}

/// Returns true if netlink reported all properties of a device.
fn is_complete(device: &Found) -> bool {
    !device.record.uverbs_name.is_empty() && device.record.driver_id != RDMA_DRIVER_UNKNOWN
}

/// Adds properties that only sysfs has: the character device of kernels before 5.3, and the driver
/// if netlink names none.
fn complete(mut devices: Vec<Found>, of_sysfs: &[Found]) -> Vec<Found> {
    for device in &mut devices {
        let Some(other) = of_sysfs.iter().find(|other| other.record.name == device.record.name)
        else {
            continue;
        };
        if device.record.uverbs_name.is_empty() {
            device.record.uverbs_name.clone_from(&other.record.uverbs_name);
            device.record.abi_version = other.record.abi_version;
            device.rdev = other.rdev;
        }
        if device.record.driver_id == RDMA_DRIVER_UNKNOWN {
            device.record.driver_id = other.record.driver_id;
        }
    }
    devices
}

/// Devices with a node in `dev`, in order.
fn select(mut found: Vec<Found>, sysfs: &Path, dev: &Path) -> Vec<KernelDevice> {
    found.sort_by_cached_key(|device| {
        let record = &device.record;
        (record.index.unwrap_or(u32::MAX), number_of(&record.uverbs_name), record.name.clone())
    });
    found
        .into_iter()
        .filter(|device| is_name(&device.record.uverbs_name) && is_name(&device.record.name))
        .map(|Found { record, rdev }| {
            let node = dev.join(&record.uverbs_name);
            KernelDevice { record, rdev, node, sysfs: sysfs.to_owned() }
        })
        // libc's `stat`, so that an interposer sees it, like the door's `open`.
        .filter(|device| nix::sys::stat::stat(&device.node).is_ok())
        .collect()
}

/// Returns true if a name can be part of a path.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// The number at the end of `uverbsN`, so that 10 comes after 2.
fn number_of(name: &str) -> u32 {
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, uverbs: &str, index: Option<u32>) -> Found {
        let mut record = DeviceRecord::new(name, 1);
        record.uverbs_name = uverbs.to_owned();
        record.index = index;
        Found { record, rdev: None }
    }

    fn names(devices: &[KernelDevice]) -> Vec<&str> {
        devices.iter().map(|device| device.record().name.as_str()).collect()
    }

    #[test]
    fn a_machine_without_devices_has_an_empty_list() {
        let devices = list().unwrap();
        if !Path::new(DEV_DIR).exists() {
            assert_eq!(devices, []);
        }
    }

    #[test]
    fn order_is_stable_and_numeric() {
        let dir = sysfs::tests::Tree::new("select");
        for node in ["uverbs0", "uverbs2", "uverbs10", "uverbs11"] {
            dir.file(node, "");
        }
        let devices = vec![
            found("mlx5_9", "uverbs11", None),
            found("mlx5_1", "uverbs10", None),
            found("mlx5_8", "uverbs2", None),
            found("rxe0", "uverbs0", Some(7)),
            found("gone", "uverbs5", None),
            found("nameless", "", None),
            found("evil", "../uverbs0", None),
        ];
        let chosen = select(devices.clone(), Path::new("/sys"), dir.path());
        assert_eq!(names(&chosen), ["rxe0", "mlx5_8", "mlx5_1", "mlx5_9"]);
        let reversed = devices.into_iter().rev().collect();
        assert_eq!(select(reversed, Path::new("/sys"), dir.path()), chosen);
    }

    #[test]
    fn sysfs_completes_what_netlink_left_out() {
        let mut known = found("mlx5_0", "uverbs3", Some(0));
        known.rdev = Some(9);
        let mut bare = found("mlx5_1", "", Some(1));
        bare.record.driver_id = RDMA_DRIVER_UNKNOWN;
        let of_sysfs = [found("mlx5_1", "uverbs1", None), found("mlx5_0", "uverbs0", None)];
        let done = complete(vec![known.clone(), bare], &of_sysfs);
        assert_eq!(done[0], known);
        assert_eq!((done[1].record.uverbs_name.as_str(), done[1].record.driver_id), ("uverbs1", 1));
    }

    #[test]
    fn pkeys_come_from_sysfs() {
        let tree = sysfs::tests::Tree::new("pkeys");
        tree.file("class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff\n");
        tree.file("class/infiniband/mlx5_0/ports/1/pkeys/1", "0x8001\n");
        tree.file("class/infiniband/mlx5_0/ports/1/pkeys/2", "none\n");
        tree.file("dev/uverbs0", "");
        let devices =
            select(vec![found("mlx5_0", "uverbs0", None)], tree.path(), &tree.path().join("dev"));
        let device = &devices[0];
        assert_eq!(device.pkey(1, 0), Ok(0xffff));
        assert_eq!(device.pkey(1, 1), Ok(0x8001));
        assert_eq!(device.pkey(1, 2), Err(Errno::EINVAL));
        assert_eq!(device.pkey(1, 3), Err(Errno::ENOENT));
        assert_eq!(device.pkey(2, 0), Err(Errno::ENOENT));
        // In this test the node is a regular file.
        assert_eq!(device.open().map(drop), Err(Errno::ENODEV));
    }

    #[test]
    fn a_node_that_was_given_to_another_device_is_not_opened() {
        let tree = sysfs::tests::Tree::new("another");
        let device = KernelDevice {
            record: found("rxe1", "uverbs2", None).record,
            rdev: None,
            node: PathBuf::from("/dev/null"),
            sysfs: tree.path().to_owned(),
        };
        assert_eq!(device.open().map(drop), Ok(()), "sysfs doesn't say");
        tree.file("class/infiniband_verbs/uverbs2/ibdev", "rxe1\n");
        assert_eq!(device.open().map(drop), Ok(()));
        tree.file("class/infiniband_verbs/uverbs2/ibdev", "rxe3\n");
        assert_eq!(device.open().map(drop), Err(Errno::ENODEV));
    }
}
