//! Worlds: each with its modules, the script that makes its devices, and the devices' server.

use clap::ValueEnum;

use crate::vm::built::Source;

/// World of `docs/TESTING.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum World {
    /// Software HCA as a PCI device, under Linux's mlx5 drivers.
    B,
    /// Linux's software RoCE, rxe.
    C,
    /// World B with an Ethernet port: mlx5e's network device, RoCE, and IP addresses.
    E,
    /// Linux's rdmavt, the verbs of Omni-Path, under a device of ours.
    H,
    /// Linux's software iWARP, siw.
    S,
    /// World E on a machine with an emulated IOMMU: one function goes to vfio-pci, and is driven in
    /// user space.
    V,
}

impl World {
    pub(crate) const ALL: [Self; 6] = [Self::B, Self::C, Self::E, Self::H, Self::S, Self::V];

    /// Letter in `tests/vm/programs.txt`.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::B => 'b',
            Self::C => 'c',
            Self::E => 'e',
            Self::H => 'h',
            Self::S => 's',
            Self::V => 'v',
        }
    }

    /// Driver and link, for tables.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::B => "mlx5, InfiniBand",
            Self::C => "rxe",
            Self::E => "mlx5, Ethernet",
            Self::H => "rdmavt",
            Self::S => "siw",
            Self::V => "VFIO beside mlx5",
        }
    }

    /// Modules to load, without their dependencies. A name that ends in `?` is not in every kernel.
    pub(crate) fn modules(self) -> &'static [&'static str] {
        match self {
            Self::B | Self::E => &["mlx5_ib", "ib_uverbs", "rdma_ucm"],
            // Up to Linux 6.15 rxe asks the crypto layer for crc32 by name, so its module names no
            // dependency.
            Self::C => {
                &["veth", "sch_netem", "crc32_generic?", "ib_uverbs", "rdma_ucm", "rdma_rxe"]
            }
            Self::H => &["ib_uverbs", "rdma_ucm", "rvt_loopback"],
            // siw asks for crc32c by name, too.
            Self::S => &["veth", "crc32c_generic?", "ib_uverbs", "rdma_ucm", "siw"],
            Self::V => &["mlx5_ib", "ib_uverbs", "rdma_ucm", "vfio_pci", "vfio_iommu_type1"],
        }
    }

    /// Source of the module that the kernel's packages lack.
    pub(crate) fn built(self) -> Option<Source> {
        match self {
            Self::B | Self::C | Self::E | Self::V => None,
            Self::H => Some(Source::Rdmavt),
            Self::S => Some(Source::Siw),
        }
    }

    /// Value of `UVERBS_TEST_DEVICE`.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Self::B | Self::E | Self::V => "mlx5_0",
            Self::C => "rxe0",
            Self::H => "hfi1_0",
            Self::S => "siw0",
        }
    }

    /// IP address of the device, unless its GIDs have it.
    pub(crate) fn address(self) -> Option<&'static str> {
        match self {
            Self::B | Self::C | Self::E | Self::H | Self::V => None,
            Self::S => Some("10.0.0.1"),
        }
    }

    /// Script in `tests/vm` that makes the devices, and its limit in seconds.
    pub(crate) fn setup(self) -> (&'static str, u64) {
        match self {
            Self::B | Self::E => ("setup-b.sh", 60),
            Self::C => ("setup-c.sh", 30),
            Self::H => ("setup-h.sh", 30),
            Self::S => ("setup-s.sh", 30),
            Self::V => ("setup-v.sh", 60),
        }
    }

    /// Words of our command line that serve the devices, without the sockets.
    pub(crate) fn server(self) -> Option<&'static [&'static str]> {
        match self {
            Self::B => Some(&["softhca", "serve"]),
            Self::C | Self::H | Self::S => None,
            Self::E => Some(&["softhca", "serve", "--port", "eth"]),
            Self::V => Some(&["softhca", "serve", "--port", "eth", "--strict"]),
        }
    }

    /// Returns true if the machine has an IOMMU.
    pub(crate) fn has_iommu(self) -> bool {
        self == Self::V
    }
}

/// Returns true if each letter of a table's word names a world.
pub(crate) fn are_worlds(word: &str) -> bool {
    word.chars().all(|letter| World::ALL.iter().any(|world| world.letter() == letter))
}

/// Modules of all worlds in the kernels' packages. Other modules and their dependencies are
/// [built](super::built) on demand.
pub(crate) fn all_modules() -> Vec<&'static str> {
    let worlds = World::ALL.iter().filter(|world| world.built().is_none());
    worlds.flat_map(|world| world.modules()).copied().collect()
}
