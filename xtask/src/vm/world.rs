//! The worlds: each with its modules, the script that makes its devices, and the server that they
//! need.

use clap::ValueEnum;

/// A world of `docs/TESTING.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum World {
    /// The software HCA as a PCI device, under Linux's own mlx5 drivers.
    B,
    /// Linux's software RoCE, rxe.
    C,
    /// As B, with an Ethernet port: mlx5e's network device, RoCE, and what needs IP addresses.
    E,
}

impl World {
    pub(crate) const ALL: [Self; 3] = [Self::B, Self::C, Self::E];

    /// As in `tests/vm/programs.txt`.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::B => 'b',
            Self::C => 'c',
            Self::E => 'e',
        }
    }

    /// Driver and link, for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::B => "mlx5, InfiniBand",
            Self::C => "rxe",
            Self::E => "mlx5, Ethernet",
        }
    }

    /// The modules to load, without their dependencies. One whose name ends in `?` is not in every
    /// kernel.
    pub(crate) fn modules(self) -> &'static [&'static str] {
        match self {
            Self::B | Self::E => &["mlx5_ib", "ib_uverbs", "rdma_ucm"],
            // Up to Linux 6.15 rxe asks the crypto layer for crc32 by name, which is no dependency
            // of the module.
            Self::C => &["veth", "crc32_generic?", "ib_uverbs", "rdma_ucm", "rdma_rxe"],
        }
    }

    /// The device that `UVERBS_TEST_DEVICE` names.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Self::B | Self::E => "mlx5_0",
            Self::C => "rxe0",
        }
    }

    /// The script in `tests/vm` that makes the devices, and how many seconds it may take.
    pub(crate) fn setup(self) -> (&'static str, u64) {
        match self {
            Self::B | Self::E => ("setup-b.sh", 60),
            Self::C => ("setup-c.sh", 30),
        }
    }

    /// The words of our command line that serve the devices, without their sockets.
    pub(crate) fn server(self) -> Option<&'static [&'static str]> {
        match self {
            Self::B => Some(&["softhca", "serve"]),
            Self::C => None,
            Self::E => Some(&["softhca", "serve", "--port", "eth"]),
        }
    }
}

/// Whether each letter of a table's word is a world's.
pub(crate) fn are_worlds(word: &str) -> bool {
    word.chars().all(|letter| World::ALL.iter().any(|world| world.letter() == letter))
}

/// The modules of all worlds.
pub(crate) fn all_modules() -> Vec<&'static str> {
    World::ALL.iter().flat_map(|world| world.modules()).copied().collect()
}
