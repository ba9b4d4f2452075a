//! Reports on a kernel's device: RDMA netlink, and sysfs for what netlink lacks.
//!
//! Files: kernel `Documentation/ABI/stable/sysfs-class-infiniband`.

use std::path::Path;

use super::netlink::Queries;
use super::{KernelDevice, sysfs};
use crate::Errno;
use crate::doors::DeviceSource;
use crate::report::Gap;
use crate::report::counters::{Counter, CounterSet, Counters};
use crate::report::place::PortPlace;
use crate::report::resources::{Resource, ResourceKind, Resources};

/// File among a device's `hw_counters` that sets how long values are cached.
const LIFESPAN: &str = "lifespan";

/// Errnos by which the kernel says that it, or the driver, lacks a report.
const LACKS: [Errno; 5] =
    [Errno::EINVAL, Errno::EOPNOTSUPP, Errno::EPROTONOSUPPORT, Errno::EAFNOSUPPORT, Errno::ENOENT];

/// Asks RDMA netlink about a device.
fn ask<T>(
    device: &KernelDevice,
    question: impl FnOnce(&mut Queries, u32) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let index = device.record().index.ok_or(Errno::EPROTONOSUPPORT)?;
    question(&mut Queries::open()?, index)
}

pub(super) fn ports(device: &KernelDevice) -> Vec<PortPlace> {
    let Some(folder) = device.sysfs() else { return Vec::new() };
    let told = ask(device, |netlink, index| netlink.ports(index));
    complete(told.unwrap_or_default(), &folder)
}

/// Adds ports, states and interfaces that only sysfs has: without RDMA netlink, on kernels before
/// 5.1, and IPoIB's interfaces.
fn complete(mut ports: Vec<PortPlace>, folder: &Path) -> Vec<PortPlace> {
    for number in port_numbers(folder) {
        if !ports.iter().any(|port| port.port == number) {
            ports.push(PortPlace::new(number));
        }
    }
    ports.sort_by_key(|port| port.port);
    for port in &mut ports {
        let of_port = folder.join(format!("ports/{}", port.port));
        if port.state.is_none() {
            let state = sysfs::read(&of_port.join("state")).ok();
            port.state = state.and_then(|text| text.split(':').next()?.trim().parse().ok());
        }
        if port.interfaces.is_empty() {
            port.interfaces = names_of_gids(&of_port);
        }
        if port.interfaces.is_empty() {
            port.interfaces = names_of_function(folder, port.port);
        }
    }
    ports
}

/// Interfaces of a port's GIDs. The file of an unused GID can't be read.
fn names_of_gids(of_port: &Path) -> Vec<String> {
    let mut names: Vec<_> = file_names(&of_port.join("gid_attrs/ndevs"))
        .iter()
        .filter_map(|name| sysfs::read(&of_port.join("gid_attrs/ndevs").join(name)).ok())
        .filter(|name| super::is_name(name))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Interfaces of a port's PCI function. `dev_port` counts a function's ports from 0.
fn names_of_function(folder: &Path, port: u32) -> Vec<String> {
    let net = folder.join("device/net");
    let mut names = file_names(&net);
    names.retain(|name| {
        let text = sysfs::read(&net.join(name).join("dev_port"));
        text.map_or(0, |text| text.parse().unwrap_or(0)) == port.saturating_sub(1)
    });
    names
}

/// Names of a folder's entries, sorted; empty if the folder can't be read.
fn file_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn port_numbers(folder: &Path) -> Vec<u32> {
    let names = file_names(&folder.join("ports"));
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

pub(super) fn counters(device: &KernelDevice) -> Counters {
    let Some(folder) = device.sysfs() else { return Counters::default() };
    counters_of(
        &folder,
        |port| ask(device, |netlink, index| netlink.port_counters(index, port)),
        || ask(device, |netlink, index| netlink.qp_counters(index)),
    )
}

/// Counters of a device's folder, and netlink's answers: `hardware` of a port, `of_qps`.
fn counters_of(
    folder: &Path,
    hardware: impl Fn(u32) -> Result<Vec<Counter>, Errno>,
    of_qps: impl Fn() -> Result<Vec<Counter>, Errno>,
) -> Counters {
    let mut report = Counters::default();
    if !folder.exists() {
        report.lacks(Gap::new("counters", Errno::ENODEV));
        return report;
    }
    add_files(&mut report, &folder.join("hw_counters"), &CounterSet::Device);
    for port in port_numbers(folder) {
        let of_port = folder.join(format!("ports/{port}"));
        add_files(&mut report, &of_port.join("counters"), &CounterSet::Port(port));
        let files = of_port.join("hw_counters");
        match hardware(port) {
            Ok(values) => report.values.extend(values),
            // Sysfs has the same values, and had them before netlink.
            Err(errno) if LACKS.contains(&errno) || files.exists() => {
                add_files(&mut report, &files, &CounterSet::Hardware(port));
            }
            Err(errno) => {
                report.lacks(Gap::new(format!("hw_counters of port {port}"), errno));
            }
        }
    }
    match of_qps() {
        Ok(values) => report.values.extend(values),
        Err(errno) if LACKS.contains(&errno) => {}
        Err(errno) => report.lacks(Gap::new("counters of queue pairs", errno)),
    }
    report.sort();
    report
}

/// Adds the numbers in a folder's files. Drivers lack some folders.
fn add_files(report: &mut Counters, folder: &Path, set: &CounterSet) {
    for name in file_names(folder).into_iter().filter(|name| name != LIFESPAN) {
        let path = folder.join(&name);
        let value =
            sysfs::read(&path).and_then(|text| text.parse::<u64>().map_err(|_| Errno::EBADMSG));
        match value {
            Ok(value) => report.extend(set, [(name, value)]),
            Err(errno) => report.lacks(Gap::new(shown(&path), errno)),
        }
    }
}

/// The end of a path, from the device's name on.
fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    let start = text.rfind("/infiniband/").map_or(0, |at| at + "/infiniband/".len());
    text[start..].to_owned()
}

pub(super) fn resources(device: &KernelDevice) -> Resources {
    let Some(index) = device.record().index else {
        return resources_of(|_| Err(Errno::EPROTONOSUPPORT));
    };
    match Queries::open() {
        Ok(mut netlink) => resources_of(|kind| {
            let is_gone = || device.sysfs().is_none_or(|folder| !folder.exists());
            netlink.resources(index, kind).map_err(|errno| match errno {
                // `ib_device_get_by_index` finds no such device.
                Errno::EINVAL if is_gone() => Errno::ENODEV,
                errno => errno,
            })
        }),
        Err(errno) => resources_of(|_| Err(errno)),
    }
}

/// Objects of all kinds, by netlink's answers.
fn resources_of(mut list: impl FnMut(ResourceKind) -> Result<Vec<Resource>, Errno>) -> Resources {
    let mut report = Resources::default();
    for kind in ResourceKind::ALL {
        match list(kind) {
            Ok(held) => report.held.extend(held),
            // Kernels before 5.16 list neither open devices nor shared receive queues.
            Err(errno)
                if matches!(kind, ResourceKind::Context | ResourceKind::Srq)
                    && LACKS.contains(&errno) => {}
            // The remaining questions would end alike.
            Err(errno @ (Errno::EPROTONOSUPPORT | Errno::ENODEV | Errno::ETIMEDOUT)) => {
                report.lacks(Gap::new("objects", errno));
                break;
            }
            Err(errno) => report.lacks(Gap::new(format!("objects of kind {kind}"), errno)),
        }
    }
    report.sort();
    report
}

#[cfg(test)]
mod tests {
    use super::sysfs::tests::Tree;
    use super::*;
    use crate::report::resources::Holder;

    fn device(name: &str) -> (Tree, std::path::PathBuf) {
        let tree = Tree::new(name);
        tree.file("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
        tree.file("class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "12\n");
        tree.file("class/infiniband/mlx5_0/ports/1/counters/symbol_error", "garbage\n");
        tree.file("class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer", "3\n");
        tree.file("class/infiniband/mlx5_0/ports/1/hw_counters/lifespan", "10\n");
        tree.file("class/infiniband/mlx5_0/hw_counters/watchdogs", "1\n");
        let folder = tree.path().join("class/infiniband/mlx5_0");
        (tree, folder)
    }

    fn none() -> Result<Vec<Counter>, Errno> {
        Ok(Vec::new())
    }

    #[test]
    fn garbage_in_a_file_is_a_gap_and_the_rest_goes_on() {
        let (_tree, folder) = device("counters");
        let report = counters_of(&folder, |_| Err(Errno::EPROTONOSUPPORT), none);
        assert_eq!(report.get(&CounterSet::Port(1), "port_rcv_data"), Some(12));
        assert_eq!(report.get(&CounterSet::Hardware(1), "out_of_buffer"), Some(3));
        assert_eq!(report.get(&CounterSet::Device, "watchdogs"), Some(1));
        assert_eq!(report.values.len(), 3, "lifespan is no counter: {report:?}");
        let gaps: Vec<_> = report.gaps.iter().map(ToString::to_string).collect();
        assert_eq!(gaps, ["mlx5_0/ports/1/counters/symbol_error: cut short, or not a number"]);
    }

    #[test]
    fn netlink_comes_first_and_its_failure_is_said() {
        let (tree, folder) = device("first");
        let told = |port| Ok(vec![Counter::new(CounterSet::Hardware(port), "out_of_buffer", 4)]);
        let report = counters_of(&folder, told, || Err(Errno::EPERM));
        assert_eq!(report.get(&CounterSet::Hardware(1), "out_of_buffer"), Some(4));
        let last = report.gaps.last().unwrap();
        assert_eq!(last.to_string(), "counters of queue pairs: no permission (EPERM)");
        // Without files, the port's gap is netlink's.
        std::fs::remove_dir_all(folder.join("ports/1/hw_counters")).unwrap();
        let report = counters_of(&folder, |_| Err(Errno::EBADMSG), none);
        assert!(report.gaps.contains(&Gap::new("hw_counters of port 1", Errno::EBADMSG)));
        drop(tree);
        let report = counters_of(&folder, |_| Err(Errno::ENODEV), none);
        assert_eq!(report.gaps, [Gap::new("counters", Errno::ENODEV)]);
    }

    #[test]
    fn sysfs_completes_ports() {
        let (tree, folder) = device("ports");
        tree.file("class/infiniband/mlx5_0/ports/2/state", "garbage\n");
        tree.file("class/infiniband/mlx5_0/ports/2/gid_attrs/ndevs/0", "eth5\n");
        tree.file("class/infiniband/mlx5_0/ports/2/gid_attrs/ndevs/1", "eth5\n");
        tree.file("class/infiniband/mlx5_0/device/net/ib0/dev_port", "0\n");
        tree.file("class/infiniband/mlx5_0/device/net/ib1/dev_port", "1\n");
        let ports = complete(Vec::new(), &folder);
        let told: Vec<_> =
            ports.iter().map(|port| (port.state, port.interfaces.join(","))).collect();
        assert_eq!(told, [(Some(4), "ib0".to_owned()), (None, "eth5".to_owned())]);
        let mut known = PortPlace::new(1);
        known.state = Some(1);
        known.interfaces = vec!["eth0".to_owned()];
        assert_eq!(complete(vec![known.clone()], &folder)[0], known);
    }

    #[test]
    fn a_kind_that_fails_leaves_the_others() {
        let of = |kind| Ok(vec![Resource::new(kind, Some(1), Holder::Task(7))]);
        let report = resources_of(|kind| match kind {
            ResourceKind::Mr => Err(Errno::EBADMSG),
            ResourceKind::Context => Err(Errno::EOPNOTSUPP),
            kind => of(kind),
        });
        let kinds: Vec<_> = report.held.iter().map(|one| one.kind).collect();
        use ResourceKind::{CmId, Cq, Pd, Qp, Srq};
        assert_eq!(kinds, [Pd, Cq, Srq, Qp, CmId]);
        let gaps: Vec<_> = report.gaps.iter().map(ToString::to_string).collect();
        assert_eq!(gaps, ["objects of kind mr: cut short, or not a number"]);
        let mut asked = 0;
        let report = resources_of(|_| {
            asked += 1;
            Err(Errno::ENODEV)
        });
        assert_eq!((asked, report.gaps.len()), (1, 1), "{report:?}");
    }
}
