//! RDMA devices, GPUs and NVMe of the machine, with their PCI functions and NUMA nodes.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use uverbs::Device;
use uverbs::place::{Distance, PciAddress, Point};

use crate::base::select;
use crate::base::sysfs;

/// Kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Rdma,
    Gpu,
    Nvme,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rdma => "RDMA",
            Self::Gpu => "GPU",
            Self::Nvme => "NVMe",
        }
    }

    /// Kind by the class code of a PCI function: display and processing accelerators, NVMe (PCI
    /// Code and ID Assignment Specification).
    fn of_class(class: u32) -> Option<Self> {
        match (class >> 16, class >> 8) {
            (0x03 | 0x12, _) => Some(Self::Gpu),
            (_, 0x0108) => Some(Self::Nvme),
            _ => None,
        }
    }
}

/// A device of the machine.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// `mlx5_0`, `nvme0`; the address of a GPU.
    pub(super) name: String,
    /// Network interfaces, and so on.
    pub(super) detail: String,
    pub(super) address: Option<PciAddress>,
    pub(super) point: Point,
}

/// A NUMA node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) number: u32,
    /// Processors, as the kernel lists them: `0-15,32-47`.
    pub(super) cpus: String,
}

#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) nodes: Vec<Node>,
    pub(super) items: Vec<Item>,
}

/// Trimmed text of a file; `None` if it is missing.
fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Names of a folder's entries, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

impl Machine {
    pub(super) fn read(devices: &[Device]) -> Self {
        let mut machine = Self { nodes: nodes(&sysfs::root()), items: functions(&sysfs::root()) };
        machine.items.extend(devices.iter().map(rdma));
        machine.items.sort_by_key(|item| (item.point.path.clone(), item.kind));
        machine
    }

    /// Items of other kinds by their distance from an item, nearest first.
    pub(super) fn near(&self, from: &Item) -> Vec<(Distance, &Item)> {
        let others = self.items.iter().filter(|item| item.kind != Kind::Rdma);
        let mut all: Vec<_> = others.map(|item| (from.point.distance(&item.point), item)).collect();
        all.sort_by_key(|(distance, _)| *distance);
        all
    }

    pub(super) fn json(&self) -> Value {
        let node = |node: &Node| json!({ "node": node.number, "cpus": node.cpus });
        let item = |item: &Item| {
            let near = |(distance, other): (Distance, &Item)| {
                let distance = distance.to_string();
                json!({ "name": other.name, "distance": distance })
            };
            let near = match item.kind {
                Kind::Rdma => self.near(item).into_iter().map(near).collect(),
                _ => Vec::new(),
            };
            json!({
                "kind": item.kind.name(),
                "name": item.name,
                "detail": item.detail,
                "pci_address": item.address.map(|address| address.to_string()),
                "numa_node": item.point.node, "path": item.point.path, "near": near,
            })
        };
        json!({
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "devices": self.items.iter().map(item).collect::<Vec<_>>(),
        })
    }
}

fn nodes(root: &Path) -> Vec<Node> {
    let folder = root.join("devices/system/node");
    let mut nodes: Vec<_> = names(&folder)
        .iter()
        .filter_map(|name| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            let cpus = read(&folder.join(name).join("cpulist")).unwrap_or_default();
            Some(Node { number, cpus })
        })
        .collect();
    nodes.sort_by_key(|node| node.number);
    nodes
}

/// GPUs and NVMe among the PCI functions.
fn functions(root: &Path) -> Vec<Item> {
    let folder = root.join("bus/pci/devices");
    let item = |name: &String| {
        let device = folder.join(name);
        let class = read(&device.join("class"))?;
        let class = u32::from_str_radix(class.strip_prefix("0x")?, 16).ok()?;
        let kind = Kind::of_class(class)?;
        let address: PciAddress = name.parse().ok()?;
        let nvme = names(&device.join("nvme")).into_iter().next();
        let id = |file: &str| {
            let text = read(&device.join(file)).unwrap_or_default();
            text.trim_start_matches("0x").to_owned()
        };
        Some(Item {
            kind,
            name: nvme.unwrap_or_else(|| name.clone()),
            detail: format!("{}:{}", id("vendor"), id("device")),
            address: Some(address),
            point: Point::of_function(address)?,
        })
    };
    names(&folder).iter().filter_map(item).collect()
}

fn rdma(device: &Device) -> Item {
    let address = device.pci_address();
    let mut point = address.and_then(Point::of_function).unwrap_or_default();
    point.node = point.node.or_else(|| device.numa_node());
    let interfaces = device.net_interfaces().join(", ");
    let driver = select::driver(device);
    let detail = if interfaces.is_empty() { driver } else { format!("{driver}, {interfaces}") };
    Item { kind: Kind::Rdma, name: device.name().to_owned(), detail, address, point }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::topology) fn item(kind: Kind, name: &str, path: &[&str], node: u32) -> Item {
        let mut point = Point::default();
        point.path = path.iter().map(|part| (*part).to_owned()).collect();
        point.node = Some(node);
        let address = path.last().and_then(|last| last.parse().ok());
        Item { kind, name: name.to_owned(), detail: "detail".to_owned(), address, point }
    }

    /// Two nodes: on the first a switch with a card and a GPU, and an NVMe beside; on the second a
    /// GPU.
    pub(in crate::topology) fn machine() -> Machine {
        let bridge = ["pci0000:16", "0000:16:02.0", "0000:17:00.0"];
        let below = |last: &'static str| [&bridge[..], &[last]].concat();
        let node = |number, cpus: &str| Node { number, cpus: cpus.to_owned() };
        Machine {
            nodes: vec![node(0, "0-15"), node(1, "16-31")],
            items: vec![
                item(Kind::Gpu, "0000:18:00.0", &below("0000:18:00.0"), 0),
                item(Kind::Rdma, "mlx5_0", &below("0000:19:00.0"), 0),
                item(Kind::Nvme, "nvme0", &["pci0000:16", "0000:16:03.0", "0000:1a:00.0"], 0),
                item(Kind::Gpu, "0000:98:00.0", &["pci0000:97", "0000:98:00.0"], 1),
            ],
        }
    }

    #[test]
    fn classes_of_functions() {
        let kinds = [0x03_0200, 0x12_0000, 0x01_0802, 0x02_0000, 0x01_0601].map(Kind::of_class);
        assert_eq!(kinds, [Some(Kind::Gpu), Some(Kind::Gpu), Some(Kind::Nvme), None, None]);
    }

    #[test]
    fn distances_are_sorted() {
        let machine = machine();
        let near = machine.near(&machine.items[1]);
        let seen: Vec<_> = near.iter().map(|(d, item)| (*d, item.name.as_str())).collect();
        assert_eq!(
            seen,
            [
                (Distance::Switch, "0000:18:00.0"),
                (Distance::HostBridge, "nvme0"),
                (Distance::System, "0000:98:00.0"),
            ]
        );
        let json = machine.json();
        assert_eq!(json["devices"][1]["near"][0]["distance"], "one PCI switch");
        assert_eq!(json["nodes"][1]["cpus"], "16-31");
    }
}
