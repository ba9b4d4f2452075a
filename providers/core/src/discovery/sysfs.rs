//! Devices in sysfs: `class/infiniband_verbs/uverbsN` and `class/infiniband/<device>`.
//!
//! Files: kernel `Documentation/ABI/stable/sysfs-class-infiniband`.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use uverbs_kernel_abi::driver_id::{
    RDMA_DRIVER_BNXT_RE, RDMA_DRIVER_EFA, RDMA_DRIVER_ERDMA, RDMA_DRIVER_HFI1, RDMA_DRIVER_HNS,
    RDMA_DRIVER_IRDMA, RDMA_DRIVER_MLX4, RDMA_DRIVER_MLX5, RDMA_DRIVER_QIB, RDMA_DRIVER_RXE,
    RDMA_DRIVER_SIW, RDMA_DRIVER_UNKNOWN,
};

use super::Found;
use crate::Errno;
use crate::doors::DeviceRecord;
use crate::environment::Variable;

/// Mount point of sysfs: `SYSFS_PATH`, or `/sys`.
#[must_use]
pub fn root() -> PathBuf {
    root_from(Variable::SysfsPath.path())
}

fn root_from(variable: Option<PathBuf>) -> PathBuf {
    variable.unwrap_or_else(|| PathBuf::from("/sys"))
}

/// Directory of a device.
#[must_use]
pub fn ibdev(root: &Path, name: &str) -> PathBuf {
    root.join("class/infiniband").join(name)
}

/// Text of a file, trimmed. At most a page, the maximum size of a sysfs file.
///
/// # Errors
///
/// The errno; `EINVAL` if the file is not text.
pub fn read(path: &Path) -> Result<String, Errno> {
    let mut file = File::open(path).map_err(|error| Errno::of(&error))?;
    let mut page = [0; 4096];
    // The first read returns the whole file (kernel `fs/kernfs/file.c`, `kernfs_file_read_iter`).
    let len = loop {
        match file.read(&mut page) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => break result.map_err(|error| Errno::of(&error))?,
        }
    };
    let text = str::from_utf8(&page[..len]).map_err(|_| Errno::EINVAL)?;
    Ok(text.trim().to_owned())
}

/// Lists all devices that have a directory in `class/infiniband_verbs`; empty if that directory
/// does not exist.
///
/// # Errors
///
/// The errno of listing the directory, except its absence.
pub fn list(root: &Path) -> Result<Vec<Found>, Errno> {
    let entries = match std::fs::read_dir(root.join("class/infiniband_verbs")) {
        Ok(entries) => entries,
        Err(error) => {
            return match Errno::of(&error) {
                Errno::ENOENT | Errno::ENOTDIR => Ok(Vec::new()),
                other => Err(other),
            };
        }
    };
    // A device that can't be read is being removed.
    Ok(entries.flatten().filter_map(|entry| device(root, &entry.path())).collect())
}

/// The device of one `uverbsN` directory.
fn device(root: &Path, verbs: &Path) -> Option<Found> {
    let uverbs_name = verbs.file_name()?.to_str()?;
    let name = read(&verbs.join("ibdev")).ok()?;
    let folder = ibdev(root, &name);
    let mut record = DeviceRecord::new(&name, driver_id(&folder, verbs, &name));
    record.uverbs_name = uverbs_name.to_owned();
    record.abi_version = read(&verbs.join("abi_version")).ok()?.parse().ok()?;
    record.node_type = read(&folder.join("node_type")).ok().and_then(|text| node_type(&text))?;
    record.node_guid =
        read(&folder.join("node_guid")).ok().and_then(|text| guid(&text)).unwrap_or(0);
    record.port_count = std::fs::read_dir(folder.join("ports"))
        .map_or(0, |ports| u32::try_from(ports.flatten().count()).unwrap_or(0));
    let rdev = read(&verbs.join("dev")).ok().and_then(|text| device_number(&text));
    Some(Found { record, rdev })
}

/// `1: CA`: the number is `RDMA_NODE_*`.
fn node_type(text: &str) -> Option<u8> {
    text.split(':').next()?.trim().parse().ok()
}

/// `0c42:a103:0065:9a5e`.
fn guid(text: &str) -> Option<u64> {
    let mut value = 0;
    let mut groups = 0;
    for group in text.split(':') {
        if group.len() != 4 || !group.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        value = value << 16 | u64::from_str_radix(group, 16).ok()?;
        groups += 1;
    }
    (groups == 4).then_some(value)
}

/// `231:192`, major and minor.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(nix::sys::stat::makedev(
        major.parse::<u32>().ok()?.into(),
        minor.parse::<u32>().ok()?.into(),
    ))
}

/// Kernel modules and their driver.
const DRIVERS: [(&str, u32); 11] = [
    ("mlx5", RDMA_DRIVER_MLX5),
    ("mlx4", RDMA_DRIVER_MLX4),
    ("bnxt", RDMA_DRIVER_BNXT_RE),
    ("hns", RDMA_DRIVER_HNS),
    ("efa", RDMA_DRIVER_EFA),
    ("hfi1", RDMA_DRIVER_HFI1),
    ("ib_qib", RDMA_DRIVER_QIB),
    ("erdma", RDMA_DRIVER_ERDMA),
    ("irdma", RDMA_DRIVER_IRDMA),
    ("rxe", RDMA_DRIVER_RXE),
    ("siw", RDMA_DRIVER_SIW),
];

/// The driver of the underlying device. Software devices have none; their driver follows from the
/// usual prefix of their names.
fn driver_id(folder: &Path, verbs: &Path, name: &str) -> u32 {
    let by_prefix = |text: &str| {
        DRIVERS.iter().find(|(prefix, _)| text.starts_with(prefix)).map(|&(_, driver)| driver)
    };
    let driver = [folder, verbs].into_iter().find_map(|base| {
        let link = std::fs::read_link(base.join("device/driver")).ok()?;
        link.file_name()?.to_str().map(str::to_owned)
    });
    match driver {
        Some(driver) => by_prefix(&driver),
        None => by_prefix(name).filter(|&id| id == RDMA_DRIVER_RXE || id == RDMA_DRIVER_SIW),
    }
    .unwrap_or(RDMA_DRIVER_UNKNOWN)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A directory for one test, removed at its end.
    pub(crate) struct Tree(PathBuf);

    impl Tree {
        pub(crate) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("uverbs-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }

        pub(crate) fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn link(&self, path: &str, to: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(to, path).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn tree(name: &str) -> Tree {
        let tree = Tree::new(name);
        tree.file("class/infiniband_verbs/abi_version", "6\n");
        tree.file("class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
        tree.file("class/infiniband_verbs/uverbs0/dev", "231:192\n");
        tree.file("class/infiniband_verbs/uverbs0/abi_version", "1\n");
        tree.link("class/infiniband/mlx5_0/device/driver", "../../bus/pci/drivers/mlx5_core");
        tree.file("class/infiniband/mlx5_0/node_type", "1: CA\n");
        tree.file("class/infiniband/mlx5_0/node_guid", "0c42:a103:0065:9a5e\n");
        tree.file("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
        tree.file("class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
        tree
    }

    #[test]
    fn a_device_is_read_whole() {
        let tree = tree("whole");
        let mut record = DeviceRecord::new("mlx5_0", RDMA_DRIVER_MLX5);
        record.uverbs_name = "uverbs0".into();
        record.node_guid = 0x0c42_a103_0065_9a5e;
        record.node_type = 1;
        record.port_count = 2;
        let rdev = Some(nix::sys::stat::makedev(231, 192));
        assert_eq!(list(tree.path()).unwrap(), [Found { record, rdev }]);
    }

    #[test]
    fn a_device_that_is_half_gone_is_skipped() {
        let tree = tree("half");
        tree.file("class/infiniband_verbs/uverbs1/ibdev", "mlx5_1\n");
        tree.file("class/infiniband_verbs/uverbs1/abi_version", "1\n");
        assert_eq!(list(tree.path()).unwrap().len(), 1);
        tree.file("class/infiniband/mlx5_1/node_type", "1: CA\n");
        let devices = list(tree.path()).unwrap();
        let second = devices.iter().find(|device| device.record.name == "mlx5_1").unwrap();
        assert_eq!(second.record.driver_id, RDMA_DRIVER_UNKNOWN);
        assert_eq!((second.record.node_guid, second.record.port_count), (0, 0));
        assert_eq!(second.rdev, None);
    }

    #[test]
    fn a_driver_is_known_by_the_name_of_its_module() {
        for (module, driver) in
            [("hfi1", RDMA_DRIVER_HFI1), ("ib_qib", RDMA_DRIVER_QIB), ("efa", RDMA_DRIVER_EFA)]
        {
            let tree = Tree::new(module);
            tree.link("dev/device/driver", &format!("/drivers/{module}"));
            let folder = tree.path().join("dev");
            assert_eq!(driver_id(&folder, &folder, "renamed"), driver, "{module}");
        }
    }

    #[test]
    fn software_devices_are_known_by_name_and_others_are_not() {
        let tree = Tree::new("names");
        let none = tree.path().join("none");
        assert_eq!(driver_id(&none, &none, "rxe_eth0"), RDMA_DRIVER_RXE);
        assert_eq!(driver_id(&none, &none, "siw0"), RDMA_DRIVER_SIW);
        // Users can rename devices; without a driver link it is no ConnectX.
        assert_eq!(driver_id(&none, &none, "mlx5_0"), RDMA_DRIVER_UNKNOWN);
        tree.link("dev/device/driver", "/drivers/irdma");
        assert_eq!(driver_id(&tree.path().join("dev"), &none, "rxe0"), RDMA_DRIVER_IRDMA);
    }

    #[test]
    fn no_sysfs_is_no_device() {
        let tree = Tree::new("empty");
        assert_eq!(list(tree.path()), Ok(Vec::new()));
        assert_eq!(list(&tree.path().join("nowhere")), Ok(Vec::new()));
        tree.file("class/infiniband_verbs", "a file");
        assert_eq!(list(tree.path()), Ok(Vec::new()));
    }

    #[test]
    fn the_variable_names_the_root() {
        assert_eq!(root_from(None), Path::new("/sys"));
        assert_eq!(root_from(Some("/tmp/x/".into())), Path::new("/tmp/x"));
    }

    #[test]
    fn numbers_are_read_strictly() {
        assert_eq!(guid("0000:0000:0000:0001"), Some(1));
        for bad in
            ["", "1:2:3:4", "0000:0000:0000", "0000:0000:0000:0000:0000", "+001:0000:0000:0000"]
        {
            assert_eq!(guid(bad), None, "{bad}");
        }
        assert_eq!(device_number("1:5"), Some(nix::sys::stat::makedev(1, 5)));
        assert_eq!(device_number("1"), None);
        assert_eq!(node_type("4: RNIC"), Some(4));
        assert_eq!(node_type("RNIC"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text: String) {
            let _ = (guid(&text), device_number(&text), node_type(&text));
        }

        #[test]
        fn guids_round_trip(value: u64) {
            let [a, b, c, d] = [48, 32, 16, 0].map(|shift| value >> shift & 0xffff);
            prop_assert_eq!(guid(&format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")), Some(value));
        }
    }
}
