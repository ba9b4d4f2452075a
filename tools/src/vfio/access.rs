//! Reasons that this user can't open a function: access to its node, its owner, locked memory.

use std::fs::{self, DirEntry, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use uverbs_mlx5_vfio::Error;
use uverbs_mlx5_vfio::discovery::{PciFunction, VFIO_PCI};

use crate::base::sysfs;

/// Locked memory that is enough for the driver's own queues and the firmware's first pages.
const LOCKED: u64 = 64 << 20;

/// Opens the function's node and closes it, which leaves the function as it is. Returns the reason
/// if this user can't, or another process has it. A group's node is refused then. A node of the
/// function's own opens for anyone, and the owner is decided when it is bound to an IOMMU file
/// (`VFIO_DEVICE_BIND_IOMMUFD`), which would start the function: so [`holder`] looks.
pub(crate) fn refusal(function: &PciFunction) -> Option<String> {
    let Some(node) = function.node() else { return Some("no IOMMU group".to_owned()) };
    let holder = || function.cdev.as_ref().and_then(|_| holder(&node));
    let iommu = || function.cdev.as_ref().and_then(|_| refusal_by(Path::new("/dev/iommu")));
    refusal_by(&node).or_else(iommu).or_else(holder)
}

fn refusal_by(node: &Path) -> Option<String> {
    let opened = File::options().read(true).write(true).open(node);
    match Error::of_node(node, &opened.err()?) {
        error @ Error::System { .. } => Some(format!("{}: {error}", node.display())),
        error => Some(error.to_string()),
    }
}

/// Process that has a node open (proc(5)).
fn holder(node: &Path) -> Option<String> {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let is_node = |file: DirEntry| fs::read_link(file.path()).is_ok_and(|path| path == node);
    let mut processes = entries("/proc".into()).map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit())
    });
    let process = processes.find(|path| entries(path.join("fd")).any(is_node))?;
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let (node, number) = (node.display(), process.file_name()?.display().to_string());
    Some(format!("{node}: process {number} ({}) has the function", name.trim_end()))
}

/// Why this user can't open the function of a name, which may have options; `None` for names of
/// other devices, too.
pub(crate) fn refusal_of(name: &str) -> Option<String> {
    let name = name.split(',').next()?;
    if let Some(socket) = name.strip_prefix("vfio-user:") {
        // Connecting takes a server's turn.
        return socket_refusal(Path::new(socket));
    }
    let function = PciFunction::at(&sysfs::root(), name.strip_prefix("vfio:")?);
    let Some(function) = function else {
        return Some(
            "no Mellanox PCI function at this address; lspci -D -d 15b3: lists them".to_owned(),
        );
    };
    match function.driver.as_deref() {
        Some(VFIO_PCI) => refusal(&function),
        _ => {
            let address = &function.address;
            Some(format!("not bound to vfio-pci; as root: uverbs vfio bind {address} --yes"))
        }
    }
}

fn socket_refusal(path: &Path) -> Option<String> {
    match path.metadata() {
        Ok(found) if found.file_type().is_socket() => None,
        Ok(_) => Some("no socket: a vfio-user server makes it (uverbs softhca serve)".to_owned()),
        Err(error) => Some(format!("{error}: a vfio-user server makes it (uverbs softhca serve)")),
    }
}

/// Warning about a limit of locked memory that a function would reach soon. `status` is
/// `/proc/self/status`.
pub(crate) fn warning(status: &str) -> Option<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    is_short(limit, status).then(|| {
        format!(
            "locked memory is limited to {} KiB (ulimit -l), and a function has all its memory \
             locked: raise the limit, for example in /etc/security/limits.conf",
            limit / 1024
        )
    })
}

/// True for a limit that counts and is small. CAP_IPC_LOCK, bit 14 of the capabilities, lifts it.
fn is_short(limit: u64, status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let lifted = capabilities.is_some_and(|set| set >> 14 & 1 != 0);
    !lifted && limit != RLIM_INFINITY && limit < LOCKED
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_function_with_options_is_the_function() {
        let path = std::env::temp_dir().join(format!("uverbs-access-{}", std::process::id()));
        let _socket = UnixListener::bind(&path).unwrap();
        let name = format!("vfio-user:{}", path.display());
        let refused = [&name, &format!("{name},address=10.0.0.1/24")].map(|name| refusal_of(name));
        fs::remove_file(&path).unwrap();
        assert_eq!(refused, [None, None]);
    }

    #[test]
    fn the_process_that_has_a_node_is_named() {
        let path = std::env::temp_dir().join(format!("uverbs-holder-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let told = holder(&path);
        drop(file);
        let none = holder(&path);
        fs::remove_file(&path).unwrap();
        let process = format!("process {} (", std::process::id());
        assert!(told.as_ref().is_some_and(|told| told.contains(&process)), "{told:?}");
        assert_eq!(none, None);
    }

    #[test]
    fn a_small_limit_counts_without_the_capability() {
        let status = "Name:\tx\nCapEff:\t0000000000004000\n";
        assert!(is_short(8 << 20, "CapEff:\t0000000000000000\n"));
        assert!(is_short(8 << 20, ""));
        assert!(!is_short(8 << 20, status));
        assert!(!is_short(RLIM_INFINITY, "") && !is_short(LOCKED, ""));
    }
}
