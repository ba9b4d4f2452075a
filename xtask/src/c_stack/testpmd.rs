//! `cargo xtask testpmd`: DPDK's testpmd, unmodified, on our libraries and two software HCAs.

use std::path::PathBuf;
use std::time::Duration;

use crate::c_stack::c_abi;
use crate::debian;
use crate::step::{Outcome, run_tests};
use crate::targets;

const MINUTES: Duration = Duration::from_secs(60);
/// Packets that testpmd forwards.
const PACKETS: &str = "10000000";

/// testpmd, DPDK's libraries that it links to, and their libraries. Other releases of Debian name
/// their packages differently.
const PACKAGES: [&str; 62] = [
    "dpdk-dev",
    "libbsd0",
    "libcap2",
    "libdbus-1-3",
    "libelf1",
    "libfdt1",
    "libgcrypt20",
    "libgpg-error0",
    "libjansson4",
    "liblz4-1",
    "liblzma5",
    "libmd0",
    "libnuma1",
    "libpcap0.8",
    "librte-bitratestats23",
    "librte-bpf23",
    "librte-bus-auxiliary23",
    "librte-bus-dpaa23",
    "librte-bus-pci23",
    "librte-bus-vdev23",
    "librte-cmdline23",
    "librte-common-dpaax23",
    "librte-common-iavf23",
    "librte-common-mlx5-23",
    "librte-crypto-scheduler23",
    "librte-cryptodev23",
    "librte-eal23",
    "librte-ethdev23",
    "librte-eventdev23",
    "librte-gro23",
    "librte-gso23",
    "librte-hash23",
    "librte-ip-frag23",
    "librte-kvargs23",
    "librte-latencystats23",
    "librte-mbuf23",
    "librte-mempool-dpaa23",
    "librte-mempool-ring23",
    "librte-mempool23",
    "librte-meter23",
    "librte-metrics23",
    "librte-net-bnxt23",
    "librte-net-bond23",
    "librte-net-dpaa23",
    "librte-net-i40e23",
    "librte-net-ice23",
    "librte-net-ixgbe23",
    "librte-net-mlx5-23",
    "librte-net23",
    "librte-pcapng23",
    "librte-pci23",
    "librte-pdump23",
    "librte-rcu23",
    "librte-reorder23",
    "librte-ring23",
    "librte-sched23",
    "librte-security23",
    "librte-telemetry23",
    "librte-timer23",
    "libsystemd0",
    "libzstd1",
    "zlib1g",
];

/// Folder with the unpacked packages.
///
/// # Errors
///
/// As [`debian::root`].
pub(crate) fn dpdk() -> Result<PathBuf, Outcome> {
    debian::unpacked(&debian::target().join("dpdk"), &PACKAGES)
}

/// Builds the libraries, and forwards [`PACKETS`] packets.
pub(crate) fn testpmd() -> Outcome {
    let (root, dpdk) = match (debian::root(), dpdk()) {
        (Ok(root), Ok(dpdk)) => (root, dpdk),
        (Err(outcome), _) | (_, Err(outcome)) => return outcome,
    };
    let library = match c_abi::lay_out(None) {
        Outcome::Counted(library) => library,
        other => return other,
    };
    let mut test = targets::of_workspace(&["test"], "--test", ["testpmd"]);
    test.env("UVERBS_DEBIAN_ROOT", root).env("UVERBS_DPDK_ROOT", dpdk);
    test.env("UVERBS_OPTIMISED", library).env("UVERBS_TESTPMD_PACKETS", PACKETS);
    run_tests(test, 30 * MINUTES)
}
