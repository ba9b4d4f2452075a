//! The C stack as Debian builds it: packages fetched with the machine's own apt, unpacked below the
//! target folder.

pub(crate) mod apt;
pub(crate) mod chroot;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::debian::apt::{Apt, once, unpack};
use crate::step::Outcome;

/// What is fetched: libibverbs, libmlx5, librdmacm, their programs and headers, perftest, what
/// these link to, rdma-core's own tests, the kernel's headers, and programs of TCP for the
/// preloaded library.
const PACKAGES: [&str; 18] = [
    "ibverbs-providers",
    "ibverbs-utils",
    "iperf3",
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

/// Programs over libibverbs and librdmacm that bring a layer of their own: libfabric's, UCX's, and
/// Open MPI with a benchmark, and what these link to besides.
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

/// The workspace's target folder.
pub(crate) fn target() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let path = workspace.join(target);
    fs::canonicalize(&path).unwrap_or(path)
}

/// The folder into which the packages are unpacked; the first call fetches them, later ones find
/// them there. What could not be had is not asked for again.
///
/// # Errors
///
/// A skip where there is no apt or it reaches no mirror, a failure where the packages can't be
/// unpacked.
pub(crate) fn root() -> Result<PathBuf, Outcome> {
    static ROOT: OnceLock<Result<PathBuf, Outcome>> = OnceLock::new();
    ROOT.get_or_init(|| unpacked(&target().join("debian"), &PACKAGES)).clone()
}

/// The same of the frameworks, whose packages have other names in other releases of Debian.
///
/// # Errors
///
/// As [`root`].
pub(crate) fn frameworks() -> Result<PathBuf, Outcome> {
    unpacked(&target().join("frameworks"), &FRAMEWORKS)
}

/// The folder below `base` into which these packages are unpacked.
///
/// # Errors
///
/// As [`root`].
pub(crate) fn unpacked(base: &Path, packages: &[&str]) -> Result<PathBuf, Outcome> {
    let root = base.join("root");
    once(&root, &packages.join("\n"), || {
        let apt = Apt::of_the_machine(base)?;
        apt.update();
        let debs = base.join("debs");
        apt.download(packages, &debs)?;
        unpack(&debs, &root)
    })?;
    Ok(root)
}
