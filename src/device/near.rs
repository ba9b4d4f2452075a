//! Devices near a place of the machine: a processor, a NUMA node, a PCI function, an interface.
//!
//! Read from sysfs: `class/net`, `bus/pci/devices`, `devices/system/cpu` (kernel
//! `Documentation/ABI`).

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use uverbs_core::discovery::sysfs;
use uverbs_core::error::Error;
use uverbs_core::report::place::PciAddress;

use super::choose::{Choice, Reason, Tried};
use super::find::{Device, devices};

/// Place in the machine, as text: `eth0`, `cpu:3`, `node:1`, `0000:17:00.0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Locality {
    /// A network interface.
    Interface(String),
    /// A processor.
    Cpu(u32),
    /// A NUMA node.
    Node(u32),
    /// A PCI function, such as a GPU.
    Pci(PciAddress),
}

impl FromStr for Locality {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || Error::Invalid {
            verb: "near",
            what: "place",
            value: text.to_owned(),
            why: "an interface, cpu:N, node:N, or a PCI address such as 0000:17:00.0",
        };
        if let Some(number) = text.strip_prefix("cpu:") {
            return number.parse().map(Self::Cpu).map_err(|_| invalid());
        }
        if let Some(number) = text.strip_prefix("node:") {
            return number.parse().map(Self::Node).map_err(|_| invalid());
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Pci(address));
        }
        // As the kernel allows (`dev_valid_name`).
        let is_name = !text.is_empty() && text.len() < 16 && text != "." && text != "..";
        if !is_name || text.contains(['/', ':']) || text.contains(char::is_whitespace) {
            return Err(invalid());
        }
        Ok(Self::Interface(text.to_owned()))
    }
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => f.write_str(name),
            Self::Cpu(number) => write!(f, "cpu:{number}"),
            Self::Node(number) => write!(f, "node:{number}"),
            Self::Pci(address) => address.fmt(f),
        }
    }
}

/// Distance of two PCI functions, or of a function and a NUMA node, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Distance {
    /// One card.
    Card,
    /// A PCI bridge or switch is above both.
    Switch,
    /// A PCI host bridge is above both.
    HostBridge,
    /// One NUMA node.
    Node,
    /// Different NUMA nodes, or unknown ones.
    System,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Card => "one card",
            Self::Switch => "one PCI switch",
            Self::HostBridge => "one host bridge",
            Self::Node => "one NUMA node",
            Self::System => "other NUMA node",
        })
    }
}

/// Point in the machine: the PCI functions down to it, host bridge first, and its NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Point {
    /// Names of the host bridge (`pci0000:16`), the bridges and the function. Empty for a
    /// processor or a node.
    pub path: Vec<String>,
    /// NUMA node, if known.
    pub node: Option<u32>,
}

impl Point {
    /// Point of a PCI function. `None` if the machine has no such function.
    #[must_use]
    pub fn of_function(address: PciAddress) -> Option<Self> {
        Self::of(&sysfs::root(), &Locality::Pci(address))
    }

    fn of(root: &Path, place: &Locality) -> Option<Self> {
        match place {
            Locality::Node(node) => {
                let folder = root.join(format!("devices/system/node/node{node}"));
                folder.exists().then_some(Self { path: Vec::new(), node: Some(*node) })
            }
            Locality::Cpu(cpu) => {
                let folder = root.join(format!("devices/system/cpu/cpu{cpu}"));
                let entries = std::fs::read_dir(folder).ok()?.flatten();
                let numbers = entries.filter_map(|entry| {
                    entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()
                });
                Some(Self { path: Vec::new(), node: numbers.into_iter().next() })
            }
            Locality::Pci(address) => Self::below(&root.join(format!("bus/pci/devices/{address}"))),
            Locality::Interface(name) => Self::below(&interface(root, name)?),
        }
    }

    /// Point of a device in sysfs.
    fn below(device: &Path) -> Option<Self> {
        let whole = std::fs::canonicalize(device).ok()?;
        let names = whole.components().filter_map(|part| part.as_os_str().to_str());
        let is_bridge = |name: &str| name.starts_with("pci") && name.contains(':');
        let path = names
            .filter(|name| is_bridge(name) || name.parse::<PciAddress>().is_ok())
            .map(str::to_owned);
        Some(Self { path: path.collect(), node: node(device) })
    }

    /// Distance to another point.
    #[must_use]
    pub fn distance(&self, other: &Self) -> Distance {
        let common = self.path.iter().zip(&other.path).take_while(|(a, b)| a == b).count();
        let card = |point: &Self| {
            let function: PciAddress = point.path.last()?.parse().ok()?;
            Some(PciAddress { function: 0, ..function })
        };
        match common {
            0 if self.node.is_some() && self.node == other.node => Distance::Node,
            0 => Distance::System,
            _ if card(self).is_some() && card(self) == card(other) => Distance::Card,
            1 => Distance::HostBridge,
            _ => Distance::Switch,
        }
    }
}

/// Interfaces that may lie over each other: a VLAN over a bond over two ports is 2.
const LAYERS: usize = 8;

/// Folder of an interface's device. Interfaces over others, such as VLANs, have a lower one's.
fn interface(root: &Path, name: &str) -> Option<std::path::PathBuf> {
    interface_within(root, name, LAYERS)
}

fn interface_within(root: &Path, name: &str, layers: usize) -> Option<std::path::PathBuf> {
    let folder = root.join("class/net").join(name);
    let device = folder.join("device");
    if device.exists() {
        return Some(device);
    }
    let entries = std::fs::read_dir(&folder).ok()?.flatten();
    let mut lower = entries
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("lower_")?.to_owned()));
    lower.find_map(|lower| interface_within(root, &lower, layers.checked_sub(1)?))
}

/// PCI function of a device in sysfs, or above it.
pub(crate) fn function(device: &Path) -> Option<PciAddress> {
    Point::below(device)?.path.last()?.parse().ok()
}

/// NUMA node of a device in sysfs, or of the device above it; -1 stands for unknown.
pub(crate) fn node(device: &Path) -> Option<u32> {
    let whole = std::fs::canonicalize(device).ok()?;
    let read = |folder: &Path| sysfs::read(&folder.join("numa_node")).ok();
    whole.ancestors().find_map(read)?.parse().ok()
}

/// The device that is nearest to a place, such as `eth0`, `cpu:3`, `node:1`, `0000:17:00.0` (a
/// GPU). The device of an interface comes first for that interface; of devices at one distance the
/// first with an active port.
///
/// # Errors
///
/// [`Error::Invalid`] for text that is no place, or for a place that the machine lacks;
/// [`Error::NoSuchDevice`] on a machine without RDMA devices; [`Error::NoUsableDevice`] if no
/// device can be opened.
///
/// ```no_run
/// let choice = uverbs::near("eth0")?;
/// let context = choice.device.open()?;
/// # Ok::<(), uverbs::Error>(())
/// ```
pub fn near(place: &str) -> Result<Choice, Error> {
    near_in(&sysfs::root(), &place.parse()?, &devices()?)
}

fn near_in(root: &Path, place: &Locality, devices: &[Device]) -> Result<Choice, Error> {
    if devices.is_empty() {
        return Err(Error::NoSuchDevice { name: String::new(), available: Vec::new() });
    }
    let point = Point::of(root, place);
    let mut ranked: Vec<_> = devices
        .iter()
        .filter_map(|device| Some((distance(device, place, point.as_ref())?, device)))
        .collect();
    if ranked.is_empty() {
        let why = "this machine has no such place; see `uverbs topology`";
        let value = place.to_string();
        return Err(Error::Invalid { verb: "near", what: "place", value, why });
    }
    ranked.sort_by_key(|(distance, _)| *distance);
    let mut tried = Tried::default();
    for alike in ranked.chunk_by(|(one, _), (other, _)| one == other) {
        for (distance, device) in alike {
            if tried.active_port(device)?.is_some() {
                return Ok(tried.choice(device, Reason::Near(*distance)));
            }
        }
        // A device that is down is nearer than all that follow.
        if tried.has_down() {
            break;
        }
    }
    tried.without_active()
}

/// Distance of a device; `None` if the machine lacks the place.
fn distance(device: &Device, place: &Locality, point: Option<&Point>) -> Option<Distance> {
    if let Locality::Interface(name) = place
        && device.net_interfaces().contains(name)
    {
        return Some(Distance::Card);
    }
    let here = device.source().sysfs().and_then(|folder| Point::below(&folder.join("device")));
    Some(here.unwrap_or_default().distance(point?))
}

#[cfg(all(test, feature = "softhca"))]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use uverbs_core::Errno;
    use uverbs_core::doors::{DeviceRecord, DeviceSource, UverbsDoor};
    use uverbs_core::report::place::PortPlace;
    use uverbs_softhca::SoftHca;

    use super::*;

    /// A device whose folder is in a directory of this test.
    #[derive(Debug)]
    struct Placed(DeviceRecord, PathBuf, SoftHca, Vec<String>);

    impl DeviceSource for Placed {
        fn record(&self) -> &DeviceRecord {
            &self.0
        }

        fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
            self.2.open()
        }

        fn pkey(&self, _: u8, _: u16) -> Result<u16, Errno> {
            Err(Errno::ENOENT)
        }

        fn sysfs(&self) -> Option<PathBuf> {
            Some(self.1.clone())
        }

        fn ports(&self) -> Vec<PortPlace> {
            let mut port = PortPlace::new(1);
            port.interfaces.clone_from(&self.3);
            vec![port]
        }
    }

    struct Machine(tempfile::TempDir);

    impl Machine {
        /// Two nodes. Below node 0's host bridge a switch with a GPU and mlx5_0, and mlx5_1 beside;
        /// below node 1's mlx5_2 and eth9.
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            let (one, two) = ("devices/pci0000:16/0000:16:02.0", "devices/pci0000:97/0000:97:02.0");
            for (path, node) in [
                (format!("{one}/0000:17:00.0/0000:18:00.0"), "0"),
                (format!("{one}/0000:17:00.0/0000:19:00.0"), "0"),
                ("devices/pci0000:16/0000:16:03.0/0000:1a:00.0".to_owned(), "0"),
                (format!("{two}/0000:98:00.0"), "1"),
                (format!("{two}/0000:98:00.1"), "garbage"),
            ] {
                machine.file(&format!("{path}/numa_node"), node);
                let name = path.rsplit('/').next().unwrap().to_owned();
                machine.link(&format!("bus/pci/devices/{name}"), &path);
            }
            machine.file("devices/system/node/node1/cpulist", "4-7");
            machine.file("devices/system/cpu/cpu5/node1/cpulist", "4-7");
            machine.link("class/net/eth9/device", &format!("{two}/0000:98:00.0"));
            machine.file("class/net/eth9.7/lower_eth9/ifindex", "9");
            machine
        }

        fn path(&self, path: &str) -> PathBuf {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        }

        fn file(&self, path: &str, text: &str) {
            std::fs::write(self.path(path), text).unwrap();
        }

        fn link(&self, path: &str, to: &str) {
            std::os::unix::fs::symlink(self.0.path().join(to), self.path(path)).unwrap();
        }

        fn device(&self, name: &str, pci: &str, interface: &str, active: bool) -> Device {
            let folder = format!("class/infiniband/{name}");
            self.link(&format!("{folder}/device"), &format!("bus/pci/devices/{pci}"));
            let hca = SoftHca::builder().build().unwrap();
            if !active {
                hca.link_down();
            }
            let (record, folder) = (DeviceRecord::new(name, 1), self.path(&folder));
            let interfaces = vec![interface.to_owned()];
            Device::from_source(Arc::new(Placed(record, folder, hca, interfaces)))
        }

        fn near(&self, place: &str, devices: &[Device]) -> Result<(String, Distance), Error> {
            let choice = near_in(self.0.path(), &place.parse()?, devices)?;
            let Reason::Near(distance) = choice.reason else { panic!("{choice}") };
            Ok((choice.device.name().to_owned(), distance))
        }
    }

    #[test]
    fn the_nearest_device_with_a_link_is_chosen() {
        let machine = Machine::new();
        let devices = [
            machine.device("mlx5_1", "0000:1a:00.0", "eth1", true),
            machine.device("mlx5_0", "0000:19:00.0", "eth0", true),
            machine.device("mlx5_2", "0000:98:00.1", "eth2", true),
        ];
        let address = devices[1].pci_address().map(|address| address.to_string());
        assert_eq!((address.as_deref(), devices[1].numa_node()), (Some("0000:19:00.0"), Some(0)));
        assert_eq!(devices[2].numa_node(), None, "garbage is absent");
        for (place, name, distance) in [
            ("0000:18:00.0", "mlx5_0", Distance::Switch),
            ("0000:1a:00.0", "mlx5_1", Distance::Card),
            ("eth9", "mlx5_2", Distance::Card),
            ("eth9.7", "mlx5_2", Distance::Card),
            ("eth0", "mlx5_0", Distance::Card),
            ("node:1", "mlx5_1", Distance::System),
        ] {
            let found = machine.near(place, &devices).unwrap();
            assert_eq!(found, (name.to_owned(), distance), "{place}");
        }
        for bad in ["eth77", "node:9", "cpu:99", "0000:aa:00.0", "cpu:x", "a/b", ""] {
            let error = machine.near(bad, &devices).unwrap_err();
            assert!(matches!(error, Error::Invalid { verb: "near", .. }), "{bad}: {error:?}");
        }
    }

    #[test]
    fn a_near_device_that_is_down_is_taken_before_a_far_one() {
        let machine = Machine::new();
        let devices = [
            machine.device("mlx5_1", "0000:1a:00.0", "eth1", true),
            machine.device("mlx5_0", "0000:19:00.0", "eth0", false),
            machine.device("mlx5_2", "0000:98:00.0", "eth2", true),
        ];
        assert_eq!(machine.near("cpu:5", &devices).unwrap().0, "mlx5_2");
        let choice = near_in(machine.0.path(), &"0000:18:00.0".parse().unwrap(), &devices).unwrap();
        assert_eq!((choice.device.name(), &choice.reason), ("mlx5_0", &Reason::Down));
        assert!(choice.warning().is_some());
    }
}
