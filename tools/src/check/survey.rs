//! First part of a check: what is there, and what may limit programs. It changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::utsname::uname;
use uverbs::{Device, PortState};

use super::report::Row;
use crate::base::error::Error;
use crate::base::select;

const PART: &str = "machine";
const DEVICE: &str = "device";

/// Pinned memory that programs of this field commonly need.
const MEMLOCK: u64 = 64 << 20;
/// Open files below which a program with some hundred devices or channels ends.
const FILES: u64 = 1024;

/// Rows of machine and device.
pub(super) fn rows(device: &Device, port: u8) -> Vec<Row> {
    let mut rows = machine();
    of_device(device, port, &mut rows);
    rows
}

/// Fences of this build; the other ones take another build.
pub(super) fn fences() -> &'static str {
    match cfg!(feature = "conservative-fences") {
        true => "conservative-fences",
        false => "the architecture's",
    }
}

fn machine() -> Vec<Row> {
    let mut rows = Vec::new();
    if let Ok(name) = uname() {
        let text = format!("{} {}", name.release().display(), name.machine().display());
        rows.push(Row::good(PART, "kernel", text));
    }
    let limit = |resource| getrlimit(resource).map_or(RLIM_INFINITY, |(soft, _)| soft);
    rows.push(match limit(Resource::RLIMIT_MEMLOCK) {
        RLIM_INFINITY => Row::good(PART, "memory that may be pinned", "unlimited"),
        bytes if bytes >= MEMLOCK => {
            Row::good(PART, "memory that may be pinned", format!("{} KiB", bytes >> 10))
        }
        bytes => Row::limited(
            PART,
            "memory that may be pinned",
            format!("{} KiB: raise it (ulimit -l, LimitMEMLOCK=)", bytes >> 10),
        ),
    });
    rows.push(match limit(Resource::RLIMIT_NOFILE) {
        RLIM_INFINITY => Row::good(PART, "open files", "unlimited"),
        files if files >= FILES => Row::good(PART, "open files", files.to_string()),
        files => Row::limited(PART, "open files", format!("{files}: raise it (ulimit -n)")),
    });
    let text = format!("{} (the others take another build)", fences());
    rows.push(Row::good(PART, "fences", text));
    rows.push(cgroup(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup")));
    let huge = fs::read_to_string("/proc/meminfo").ok();
    let huge = huge.as_deref().and_then(|text| field(text, "HugePages_Free:"));
    if let Some(pages) = huge {
        rows.push(Row::good(PART, "free huge pages", pages));
    }
    if let Ok(mode) = fs::read_to_string("/sys/module/ib_core/parameters/netns_mode") {
        let mode = if mode.trim() == "Y" { "shared" } else { "exclusive" };
        rows.push(Row::good(PART, "devices and namespaces", mode));
    }
    rows
}

/// First word behind a name at the start of a line.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

/// Limit of the rdma cgroup (kernel `Documentation/admin-guide/cgroup-v2.rst`, RDMA).
fn cgroup(own: &Path, mount: &Path) -> Row {
    const NAME: &str = "rdma cgroup";
    let own = fs::read_to_string(own).unwrap_or_default();
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let file: PathBuf = mount.join(path).join("rdma.max");
    match fs::read_to_string(file) {
        Err(_) => Row::good(PART, NAME, "no limit"),
        Ok(text) => {
            let limits: Vec<_> = text.lines().filter(|line| has_number(line)).collect();
            match limits.is_empty() {
                true => Row::good(PART, NAME, "no limit"),
                false => Row::limited(PART, NAME, format!("rdma.max: {}", limits.join("; "))),
            }
        }
    }
}

/// True for a line of `rdma.max` with another value than `max`.
fn has_number(line: &str) -> bool {
    line.split_whitespace().any(|word| word.split_once('=').is_some_and(|(_, most)| most != "max"))
}

/// Adds what can be asked of the device. An answer that does not come is a row, and the rest goes
/// on.
fn of_device(device: &Device, number: u8, rows: &mut Vec<Row>) {
    rows.push(Row::good(DEVICE, "driver", select::driver(device)));
    if let Some(address) = device.pci_address() {
        rows.push(Row::good(DEVICE, "PCI address", address.to_string()));
    }
    if let Some(node) = device.numa_node() {
        rows.push(Row::good(DEVICE, "NUMA node", node.to_string()));
    }
    let context = match device.open() {
        Ok(context) => context,
        Err(error) => return rows.push(Row::of_error(DEVICE, "open", &Error::Verb(error))),
    };
    match context.query_device() {
        Ok(attr) => {
            let firmware = attr.firmware();
            if !firmware.is_empty() {
                rows.push(Row::good(DEVICE, "firmware", firmware));
            }
            let text = format!("{} of {} work requests", attr.max_qp, attr.max_qp_wr);
            rows.push(Row::good(DEVICE, "queue pairs at most", text));
        }
        Err(error) => rows.push(Row::failed(DEVICE, "attributes", error.to_string())),
    }
    let name = format!("port {number}");
    match context.query_port(number) {
        Ok(port) => {
            let text = format!("{}, {}, MTU {}", port.state, port.link_layer, port.active_mtu);
            rows.push(match port.state {
                PortState::Active => Row::good(DEVICE, &name, text),
                _ => {
                    let text = format!("{text}: nothing can be sent until it is up");
                    Row::failed(DEVICE, &name, text)
                }
            });
        }
        Err(error) => rows.push(Row::failed(DEVICE, &name, error.to_string())),
    }
    match context.best_gid(number) {
        Ok(Some(gid)) => {
            rows.push(Row::good(DEVICE, "GID", format!("index {}, {}", gid.index, gid.kind)));
        }
        Ok(None) => {}
        Err(error) => rows.push(Row::failed(DEVICE, "GID", error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uverbs::Errno;
    use uverbs::unstable::doors::{DeviceRecord, DeviceSource, UverbsDoor};

    use super::*;

    /// A device that may not be opened.
    #[derive(Debug)]
    struct Denied(DeviceRecord);

    impl DeviceSource for Denied {
        fn record(&self) -> &DeviceRecord {
            &self.0
        }

        fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
            Err(Errno::EACCES)
        }

        fn pkey(&self, _: u8, _: u16) -> Result<u16, Errno> {
            Err(Errno::EACCES)
        }
    }

    #[test]
    fn a_device_without_permission_is_one_row_beside_what_can_be_read() {
        let device = Device::from_source(Arc::new(Denied(DeviceRecord::new("mlx5_0", 1))));
        let rows = serde_json::to_value(rows(&device, 1)).unwrap();
        let rows = rows.as_array().unwrap();
        let of = |name: &str| rows.iter().find(|row| row["name"] == name).cloned();
        assert_eq!(of("driver").unwrap()["text"], "mlx5");
        let open = of("open").unwrap();
        assert_eq!(open["verdict"], "failed", "{open}");
        assert!(open["text"].as_str().unwrap().contains("no permission"), "{open}");
        assert!(of("kernel").is_some(), "{rows:?}");
    }

    #[test]
    fn a_limit_of_the_cgroup_is_told_and_garbage_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let (own, group) = (folder.path().join("own"), folder.path().join("jobs"));
        fs::create_dir(&group).unwrap();
        fs::write(&own, "1:name=x:/y\n0::/jobs\n").unwrap();
        let verdict = |text: Option<&[u8]>| {
            let file = group.join("rdma.max");
            match text {
                Some(text) => fs::write(file, text).unwrap(),
                None => drop(fs::remove_file(file)),
            }
            serde_json::to_value(cgroup(&own, folder.path())).unwrap()
        };
        assert_eq!(verdict(None)["verdict"], "good");
        assert_eq!(verdict(Some(b"mlx5_0 hca_handle=max hca_object=max\n"))["verdict"], "good");
        let told = verdict(Some(b"mlx5_0 hca_handle=2 hca_object=max\n"));
        assert_eq!(told["verdict"], "limited");
        assert_eq!(told["text"], "rdma.max: mlx5_0 hca_handle=2 hca_object=max");
        assert_eq!(verdict(Some(b"\xff\xfe="))["verdict"], "good");
        assert_eq!(field("HugePages_Free:      7\n", "HugePages_Free:"), Some("7"));
        assert_eq!(field("HugePages_Free:\n", "HugePages_Free:"), None);
    }
}
