//! Files of the software HCAs in sysfs's layout (kernel `Documentation/ABI/stable/
//! sysfs-class-infiniband`), for programs that read `/sys/class/infiniband/NAME`.
//!
//! The tree of a process is a private folder in memory. The process removes it at exit; the next
//! one removes trees of processes that were killed. The folder's name identifies the process.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process;

use nix::errno::Errno;
use nix::unistd::{Pid, geteuid, getpgid};
use uverbs::softhca::{GidType, LinkLayer, PortInfo, SoftHca};
use uverbs_core::doors::DeviceSource;
use uverbs_core::report::counters::CounterSet;

/// Prefix of the folders' names.
const PREFIX: &str = "uverbs-sysfs-";
/// Domain of the devices' PCI addresses, which no real device has.
const DOMAIN: &str = "ca05:00";
/// PCI vendor: Mellanox.
const VENDOR: u32 = 0x15b3;

/// Tree of this process.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    owner: u32,
}

impl Tree {
    /// Creates an empty tree, after the removal of those whose processes have ended.
    ///
    /// # Errors
    ///
    /// The system's error where no folder for temporary files can be written, or where another
    /// user has taken the tree's name.
    pub(crate) fn create() -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Self::create_in(&base)
    }

    fn create_in(base: &Path) -> io::Result<Self> {
        let space = fs::metadata("/proc/self/ns/pid")?.ino();
        sweep(base, space);
        let owner = process::id();
        let root = base.join(name(space, owner).ok_or(io::ErrorKind::NotFound)?);
        // A tree of this process before it executed its program.
        remove(&root);
        // Fails if anything has the name, also a link: other users may write to `base`.
        DirBuilder::new().mode(0o700).create(&root)?;
        let tree = Self { root, owner };
        tree.file("class/infiniband_verbs/abi_version", "6")?;
        tree.file("class/infiniband_mad/abi_version", "5")?;
        fs::create_dir_all(tree.root.join("class/infiniband"))?;
        fs::create_dir_all(tree.root.join("bus/pci/devices"))?;
        Ok(tree)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// True in a forked child, whose parent removes the tree.
    pub(crate) fn is_inherited(&self) -> bool {
        self.owner != process::id()
    }

    pub(crate) fn remove(&self) {
        if !self.is_inherited() {
            remove(&self.root);
        }
    }

    /// Writes a device with the name that programs see and its number among the nodes.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(crate) fn write(&self, name: &str, number: usize, hca: &SoftHca) -> io::Result<()> {
        let address = format!("{DOMAIN}:{:02x}.{:x}", number / 8, number % 8);
        let device = format!("devices/pci{DOMAIN}/{address}");
        let node = format!("uverbs{number}");
        self.pci(&device, &address, hca)?;
        let verbs = format!("{device}/infiniband_verbs/{node}");
        self.file(&format!("{verbs}/ibdev"), name)?;
        self.file(&format!("{verbs}/dev"), &format!("231:{}", 192 + number))?;
        self.file(&format!("{verbs}/abi_version"), "1")?;
        self.link(&format!("{verbs}/device"), "../..")?;
        let folder = format!("{device}/infiniband/{name}");
        let guid = groups(&hca.record().node_guid.to_be_bytes());
        for (file, text) in [
            ("node_type", "1: CA"),
            ("node_guid", &guid),
            ("sys_image_guid", &guid),
            ("node_desc", "software HCA"),
            ("fw_ver", "99.0.0001"),
            ("hw_rev", "0"),
            ("hca_type", &format!("MT{}", hca.part_id())),
            ("board_id", "UVERBS_SOFTHCA"),
        ] {
            self.file(&format!("{folder}/{file}"), text)?;
        }
        self.link(&format!("{folder}/device"), "../..")?;
        self.link(&format!("{folder}/subsystem"), "../../../../../class/infiniband")?;
        self.port(&format!("{folder}/ports/1"), hca)?;
        self.link(&format!("class/infiniband/{name}"), &format!("../../{folder}"))?;
        self.count(name, hca, |_, _| true)?;
        self.link(&format!("class/infiniband_verbs/{node}"), &format!("../../{verbs}"))?;
        self.link(&format!("bus/pci/devices/{address}"), &format!("../../../{device}"))
    }

    /// Writes counters of a device's port, as they are now: those whose folder and file `is_asked`
    /// accepts. Whoever reads a file meanwhile sees one value.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(crate) fn count(
        &self,
        name: &str,
        hca: &SoftHca,
        is_asked: impl Fn(&str, &str) -> bool,
    ) -> io::Result<()> {
        for counter in hca.counters().values {
            let folder = match counter.set {
                CounterSet::Port(_) => "counters",
                CounterSet::Hardware(_) => "hw_counters",
                // Linux has no such set.
                _ => continue,
            };
            if !is_asked(folder, &counter.name) {
                continue;
            }
            let path = format!("class/infiniband/{name}/ports/1/{folder}/{}", counter.name);
            let new = format!("{path}.new");
            self.file(&new, &counter.value.to_string())?;
            fs::rename(self.root.join(new), self.root.join(path))?;
        }
        Ok(())
    }

    /// Shows a device of the kernel.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(crate) fn show(&self, name: &str) -> io::Result<()> {
        let path = format!("class/infiniband/{name}");
        self.link(&path, &format!("/sys/{path}"))
    }

    /// PCI function of a device, with its network interfaces.
    fn pci(&self, device: &str, address: &str, hca: &SoftHca) -> io::Result<()> {
        let (vendor, part) = (VENDOR, u32::from(hca.part_id()));
        let id = format!("pci:v{vendor:08X}d{part:08X}sv{vendor:08X}sd{part:08X}bc02sc00i00");
        let uevent = format!(
            "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID={vendor:04X}:{part:04X}\n\
             PCI_SUBSYS_ID={vendor:04X}:{part:04X}\nPCI_SLOT_NAME={address}\nMODALIAS={id}"
        );
        let (vendor, part) = (format!("{vendor:#06x}"), format!("{part:#06x}"));
        let processors = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        for (file, text) in [
            ("vendor", vendor.as_str()),
            ("device", &part),
            ("subsystem_vendor", &vendor),
            ("subsystem_device", &part),
            ("class", "0x020000"),
            ("revision", "0x00"),
            ("numa_node", "-1"),
            ("local_cpulist", processors.trim()),
            ("modalias", &id),
            ("uevent", &uevent),
        ] {
            self.file(&format!("{device}/{file}"), text)?;
        }
        for interface in hca.gids().iter().filter_map(interface) {
            self.link(
                &format!("{device}/net/{interface}"),
                &format!("/sys/class/net/{interface}"),
            )?;
        }
        Ok(())
    }

    fn port(&self, folder: &str, hca: &SoftHca) -> io::Result<()> {
        let PortInfo { active, link, lid, sm_lid, cap_flags, pkey_table_len, .. } = hca.port_info();
        let number = |lid: u16| format!("{lid:#x}");
        for (file, text) in [
            ("state", if active { "4: ACTIVE" } else { "1: DOWN" }),
            ("phys_state", if active { "5: LinkUp" } else { "3: Disabled" }),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("link_layer", if link == LinkLayer::Ethernet { "Ethernet" } else { "InfiniBand" }),
            ("lid", &number(lid)),
            ("sm_lid", &number(sm_lid)),
            ("lid_mask_count", "0"),
            ("sm_sl", "0"),
            ("cap_mask", &format!("{cap_flags:#010x}")),
        ] {
            self.file(&format!("{folder}/{file}"), text)?;
        }
        // The rest of the table is empty.
        let pkeys = (0..pkey_table_len).map(|index| hca.pkey(1, index).unwrap_or(0));
        for (index, pkey) in pkeys.take_while(|&pkey| pkey != 0).enumerate() {
            self.file(&format!("{folder}/pkeys/{index}"), &format!("{pkey:#06x}"))?;
        }
        for (index, gid) in hca.gids().iter().enumerate() {
            self.file(&format!("{folder}/gids/{index}"), &groups(&gid.gid))?;
            let kind = if gid.kind == GidType::RoceV2 { "RoCE v2" } else { "IB/RoCE v1" };
            self.file(&format!("{folder}/gid_attrs/types/{index}"), kind)?;
            if let Some(interface) = interface(gid) {
                self.file(&format!("{folder}/gid_attrs/ndevs/{index}"), &interface)?;
            }
        }
        Ok(())
    }

    fn file(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, format!("{text}\n"))
    }

    fn link(&self, path: &str, to: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match symlink(to, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }
}

/// Name of the interface that has a GID's address.
fn interface(gid: &uverbs::softhca::Gid) -> Option<String> {
    let name = (gid.ifindex != 0).then(|| nix::net::if_::if_indextoname(gid.ifindex))?;
    name.ok()?.into_string().ok()
}

/// Formats bytes as `fe80:0000:…`, two bytes a group.
fn groups(bytes: &[u8]) -> String {
    let pairs = bytes.chunks(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect());
    pairs.collect::<Vec<String>>().join(":")
}

/// Name of a living process's tree: PID namespace, process, and time of its start.
fn name(space: u64, process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The process's name, in parentheses, may contain spaces; field 22 is the start (proc(5)).
    let (_, fields) = stat.rsplit_once(')')?;
    let start = fields.split_whitespace().nth(19)?;
    Some(format!("{PREFIX}{space}-{process}-{start}"))
}

/// Removes trees of this user whose processes have ended. Other PID namespaces sweep their own.
fn sweep(base: &Path, space: u64) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let Ok(found) = entry.file_name().into_string() else { continue };
        let process = found.strip_prefix(&format!("{PREFIX}{space}-"));
        let process = process.and_then(|rest| rest.split('-').next()?.parse().ok());
        if process.is_some_and(|process| is_over(space, process, &found)) {
            remove(&entry.path());
        }
    }
}

/// Returns true if a tree's process has ended. Its number may belong to a later process.
fn is_over(space: u64, process: u32, tree: &str) -> bool {
    let number = i32::try_from(process).ok().filter(|number| *number > 0);
    match (name(space, process), number) {
        (Some(living), _) => living != tree,
        // `/proc` may hide living processes (proc(5), `hidepid`).
        (None, Some(number)) => getpgid(Some(Pid::from_raw(number))) == Err(Errno::ESRCH),
        (None, None) => true,
    }
}

/// Removes a folder of this user. Another user may have placed a link or a folder of that name, and
/// both stay. `fs::remove_dir_all` calls `openat`, which is a cancellation point.
fn remove(folder: &Path) {
    let own = geteuid().as_raw();
    if !fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == own) {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        } else {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty folder, which the test removes.
    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("uverbs-tree-{}-{test}", process::id()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn space() -> u64 {
        fs::metadata("/proc/self/ns/pid").unwrap().ino()
    }

    fn own_name() -> String {
        name(space(), process::id()).unwrap()
    }

    #[test]
    fn a_link_of_the_trees_name_is_not_followed() {
        let base = folder("link");
        let (victim, link) = (base.join("victim"), base.join(own_name()));
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("file"), "kept").unwrap();
        symlink(&victim, &link).unwrap();
        let error = Tree::create_in(&base).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "kept");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
        fs::remove_file(link).unwrap();
        // A tree of this process is replaced.
        for _ in 0..2 {
            assert!(Tree::create_in(&base).unwrap().root().join("class/infiniband").is_dir());
        }
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn trees_of_ended_processes_are_removed() {
        let base = folder("sweep");
        let (space, own) = (space(), own_name());
        // Over PID_MAX_LIMIT, which is 4194304.
        let trees = [own.clone(), format!("{own}0"), format!("{PREFIX}{space}-4194305-1")];
        for tree in &trees {
            fs::create_dir_all(base.join(tree).join("class")).unwrap();
        }
        sweep(&base, space);
        assert_eq!(trees.map(|tree| base.join(tree).exists()), [true, false, false]);
        fs::remove_dir_all(base).unwrap();
    }
}
