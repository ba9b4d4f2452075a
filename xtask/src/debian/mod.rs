//! Debian's C stack: packages downloaded with the machine's apt, unpacked below the target folder.

pub(crate) mod apt;
pub(crate) mod chroot;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::debian::apt::{Apt, once, unpack};
use crate::step::Outcome;

/// Packages of the C stack: libibverbs, libmlx5, librdmacm, their programs and headers, perftest,
/// InfiniBand diagnostics, their libraries, rdma-core's tests, the kernel's headers, and TCP
/// programs for the preloaded library.
const PACKAGES: [&str; 21] = [
    "ibverbs-providers",
    "ibverbs-utils",
    "infiniband-diags",
    "iperf3",
    "libibmad5",
    "libibnetdisc5",
    "libibumad3",
    "libibverbs-dev",
    "libibverbs1",
    "libiperf0",
    "libnl-3-200",
    "libnl-route-3-200",
    "libpci3",
    "librdmacm-dev",
    "librdmacm1",
    "libsctp1",
    "linux-libc-dev",
    "netcat-openbsd",
    "perftest",
    "python3-pyverbs",
    "rdmacm-utils",
];

/// Frameworks over libibverbs and librdmacm: libfabric, UCX, and Open MPI with a benchmark, and
/// their libraries.
const FRAMEWORKS: [&str; 21] = [
    "libatomic1",
    "libevent-core-2.1-7",
    "libevent-pthreads-2.1-7",
    "libfabric-bin",
    "libfabric1",
    "libgomp1",
    "libhwloc-plugins",
    "libhwloc15",
    "libmunge2",
    "libnuma1",
    "libopenmpi3",
    "libpmix2",
    "libpsm-infinipath1",
    "libpsm2-2",
    "libucx0",
    "libudev1",
    "libuuid1",
    "netpipe-openmpi",
    "openmpi-bin",
    "openmpi-common",
    "ucx-utils",
];

/// Target folder of the workspace.
pub(crate) fn target() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let path = workspace.join(target);
    fs::canonicalize(&path).unwrap_or(path)
}

/// Folder with the unpacked packages. The first call downloads them. A failed call is not repeated.
///
/// # Errors
///
/// A skip without apt or without a mirror, a failure if the packages can't be unpacked.
pub(crate) fn root() -> Result<PathBuf, Outcome> {
    static ROOT: OnceLock<Result<PathBuf, Outcome>> = OnceLock::new();
    ROOT.get_or_init(|| unpacked(&target().join("debian"), &PACKAGES)).clone()
}

/// Folder with the unpacked frameworks. Other releases of Debian name their packages differently.
///
/// # Errors
///
/// As [`root`].
pub(crate) fn frameworks() -> Result<PathBuf, Outcome> {
    unpacked(&target().join("frameworks"), &FRAMEWORKS)
}

/// Folder below `base` with these packages unpacked.
///
/// # Errors
///
/// As [`root`].
pub(crate) fn unpacked(base: &Path, packages: &[&str]) -> Result<PathBuf, Outcome> {
    unpacked_by(base, packages, || Apt::of_the_machine(base))
}

/// Folder below `base` with these packages unpacked, which an apt downloads.
///
/// # Errors
///
/// As [`root`].
pub(crate) fn unpacked_by(
    base: &Path,
    packages: &[&str],
    apt: impl FnOnce() -> Result<Apt, Outcome>,
) -> Result<PathBuf, Outcome> {
    let root = base.join("root");
    once(&root, &packages.join("\n"), || {
        let apt = apt()?;
        apt.update();
        let debs = base.join("debs");
        apt.download(packages, &debs)?;
        unpack(&debs, &root)
    })?;
    Ok(root)
}
