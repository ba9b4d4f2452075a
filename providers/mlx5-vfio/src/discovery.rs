//! PCI functions of this machine in sysfs (Linux `Documentation/ABI/testing/sysfs-bus-pci`).

use std::fs;
use std::path::{Path, PathBuf};

pub use uverbs_core::discovery::function::is_function;

use crate::config::MELLANOX;

/// Driver that gives a function to user space.
pub const VFIO_PCI: &str = "vfio-pci";

/// A PCI function of Mellanox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciFunction {
    /// Address: `0000:65:00.2`.
    pub address: String,
    /// Device number.
    pub part: u16,
    /// Bound driver.
    pub driver: Option<String>,
    /// IOMMU group; `None` without an IOMMU.
    pub group: Option<u32>,
    /// Addresses of the other functions in the group.
    pub companions: Vec<String>,
    /// Name in `/dev/vfio/devices`, where the kernel has such nodes.
    pub cdev: Option<String>,
    /// Network interfaces and RDMA devices of the bound driver.
    pub users: Vec<String>,
    /// Number of virtual functions that it has now.
    pub virtual_functions: u32,
    /// Directory in sysfs.
    pub path: PathBuf,
}

impl PciFunction {
    /// Node in `/dev/vfio`: the function's own, where the kernel has such nodes, otherwise the
    /// group's. `None` without an IOMMU.
    #[must_use]
    pub fn node(&self) -> Option<PathBuf> {
        let own = self.cdev.as_ref().map(|name| Path::new("/dev/vfio/devices").join(name));
        own.or_else(|| Some(Path::new("/dev/vfio").join(self.group?.to_string())))
    }

    /// Reads the function at `address`; `None` without one, or for another vendor's.
    #[must_use]
    pub fn at(sysfs: &Path, address: &str) -> Option<Self> {
        // An address names one directory.
        if address.contains('/') || address.starts_with('.') {
            return None;
        }
        let path = sysfs.join("bus/pci/devices").join(address);
        let number = |name: &str| {
            let text = fs::read_to_string(path.join(name)).ok()?;
            u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
        };
        if number("vendor")? != MELLANOX {
            return None;
        }
        let link = |name: &str| Some(fs::read_link(path.join(name)).ok()?.file_name()?.to_owned());
        let link = |name: &str| link(name)?.into_string().ok();
        let text = |name: &str| fs::read_to_string(path.join(name)).ok();
        let mut companions = names(&path.join("iommu_group/devices"));
        companions.retain(|other| other != address);
        Some(Self {
            address: address.to_owned(),
            part: number("device")?,
            driver: link("driver"),
            group: link("iommu_group").and_then(|group| group.parse().ok()),
            companions,
            // Without iommufd the kernel lists the device, which then has no number.
            cdev: names(&path.join("vfio-dev"))
                .into_iter()
                .find(|name| path.join("vfio-dev").join(name).join("dev").exists()),
            users: ["net", "infiniband"].iter().flat_map(|kind| names(&path.join(kind))).collect(),
            virtual_functions: text("sriov_numvfs")
                .and_then(|count| count.trim().parse().ok())
                .unwrap_or(0),
            path,
        })
    }

    /// Reads all functions that are bound to vfio-pci, by address.
    #[must_use]
    pub fn bound(sysfs: &Path) -> Vec<Self> {
        let bound = names(&sysfs.join("bus/pci/drivers").join(VFIO_PCI));
        let found = bound.iter().filter_map(|name| Self::at(sysfs, name));
        found.filter(|function| function.driver.as_deref() == Some(VFIO_PCI)).collect()
    }
}

/// Names in a directory, sorted; empty if it can't be read.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
