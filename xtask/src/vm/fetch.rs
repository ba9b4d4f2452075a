//! Debian's packages of a run, except kernels: QEMU and the guest's programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::debian::apt::{Apt, Archive, once, unpack};
use crate::debian::target;
use crate::step::Outcome;
use crate::vm::board::Board;

/// Packages of the guest's programs with their libraries, and headers to compile programs for it.
const GUEST: [&str; 11] = [
    "busybox-static",
    "ethtool",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "libgcc-s1",
    "libibverbs-dev",
    "librdmacm-dev",
    "perftest",
    "rdma-core",
    "rdmacm-utils",
];

/// Packages of rdma-core's test suite, which is in Python, and of scapy, which builds and parses
/// its frames.
const SUITE: [&str; 2] = ["python3-pyverbs", "python3-scapy"];

/// Folder of this chore's files.
pub(crate) fn base() -> PathBuf {
    target().join("vm")
}

/// apt of Debian 12: the guest's programs, the older kernel.
pub(crate) fn bookworm() -> Result<Apt, Outcome> {
    let archives = [
        Archive { name: "debian", suites: &["bookworm"] },
        Archive { name: "debian-security", suites: &["bookworm-security"] },
    ];
    Apt::of_suites(&base().join("apt/bookworm"), &archives)
}

/// apt of Debian 13 with backports: QEMU, the newer kernels.
pub(crate) fn trixie() -> Result<Apt, Outcome> {
    let archives = [
        Archive { name: "debian", suites: &["trixie", "trixie-backports"] },
        Archive { name: "debian-security", suites: &["trixie-security"] },
    ];
    Apt::of_suites(&base().join("apt/trixie"), &archives)
}

/// apt of Debian's unstable release: the newest rdma-core.
fn sid() -> Result<Apt, Outcome> {
    let archives = [Archive { name: "debian", suites: &["sid"] }];
    Apt::of_suites(&base().join("apt/sid"), &archives)
}

/// Suite of Debian 13 with newer packages.
pub(crate) const BACKPORTS: &str = "trixie-backports";

/// QEMU, unpacked into a folder, where it runs with its loader and libraries.
pub(crate) struct Qemu {
    root: PathBuf,
    board: Board,
    version: (u32, u32),
}

impl Qemu {
    /// Downloads QEMU, unless present.
    pub(crate) fn fetch(board: Board) -> Result<Self, Outcome> {
        let root = base().join(board.folder());
        let wanted = board.package();
        once(&root, wanted, || {
            println!("vm: fetching QEMU");
            let apt = trixie()?;
            apt.update();
            let debs = apt.download_all(&[wanted], Some(BACKPORTS))?;
            unpack(&debs, &root)?;
            let _ = std::fs::remove_dir_all(debs);
            Ok(())
        })?;
        let mut qemu = Self { root, board, version: (0, 0) };
        let output = qemu.command().arg("--version").stdin(Stdio::null()).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        qemu.version = text
            .ok()
            .and_then(|text| version(&text))
            .ok_or_else(|| Outcome::Failed("Debian's QEMU doesn't start here".to_owned()))?;
        if qemu.version < board.oldest() {
            let ((major, minor), (min, min_minor)) = (qemu.version, board.oldest());
            let why = format!("Debian's QEMU is {major}.{minor}, older than {min}.{min_minor}");
            return Err(Outcome::Skipped(why));
        }
        Ok(qemu)
    }

    /// Board that it emulates.
    pub(crate) fn board(&self) -> Board {
        self.board
    }

    /// Returns true if it has the option to end with its parent.
    pub(crate) fn exits_with_parent(&self) -> bool {
        self.version >= (10, 2)
    }

    /// Command that runs QEMU, without arguments.
    pub(crate) fn command(&self) -> Command {
        let libraries = self.root.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries);
        command.arg(self.root.join("usr/bin").join(self.board.program()));
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.root.join(data));
        }
        command
    }
}

/// Version `(11, 1)` of `QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("QEMU emulator version ")?.split(['.', ' ']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Folder of the guest's unpacked programs. Downloads them, unless present.
pub(crate) fn guest() -> Result<PathBuf, Outcome> {
    unpacked("guest", &GUEST, bookworm)
}

/// Folder of rdma-core's unpacked test suite and of guest programs of the same release. Downloads
/// them, unless present.
pub(crate) fn suite() -> Result<PathBuf, Outcome> {
    unpacked("pyverbs", &[&GUEST[..], &SUITE].concat(), sid)
}

fn unpacked(
    name: &str,
    packages: &[&str],
    apt: fn() -> Result<Apt, Outcome>,
) -> Result<PathBuf, Outcome> {
    let root = base().join(name);
    once(&root, &packages.join(" "), || {
        println!("vm: fetching the programs of {name}");
        let apt = apt()?;
        apt.update();
        let debs = apt.download_all(packages, None)?;
        unpack(&debs, &root)?;
        let _ = std::fs::remove_dir_all(debs);
        Ok(())
    })?;
    Ok(root)
}

/// Folder of the project's scripts and tables for guests.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vm")
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn qemu_says_its_version() {
        let debian = "QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)\nCopyright";
        assert_eq!(version(debian), Some((11, 1)));
        assert_eq!(version("QEMU emulator version 9.2.0\n"), Some((9, 2)));
        assert_eq!(version("error while loading shared libraries"), None);
    }
}
