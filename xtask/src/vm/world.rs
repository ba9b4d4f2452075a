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
    /// Linux's software iWARP, siw.
    S,
}

impl World {
    pub(crate) const ALL: [Self; 4] = [Self::B, Self::C, Self::E, Self::S];

    /// As in `tests/vm/programs.txt`.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::B => 'b',
            Self::C => 'c',
            Self::E => 'e',
            Self::S => 's',
        }
    }

    /// Driver and link, for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::B => "mlx5, InfiniBand",
            Self::C => "rxe",
            Self::E => "mlx5, Ethernet",
            Self::S => "siw",
        }
    }

    /// The modules to load, without their dependencies. One whose name ends in `?` is not in every
    /// kernel.
    pub(crate) fn modules(self) -> &'static [&'static str] {
        match self {
            Self::B | Self::E => &["mlx5_ib", "ib_uverbs", "rdma_ucm"],
            // Up to Linux 6.15 rxe asks the crypto layer for crc32 by name, which is no dependency
            // of the module.
            Self::C => {
                &["veth", "sch_netem", "crc32_generic?", "ib_uverbs", "rdma_ucm", "rdma_rxe"]
            }
            // siw asks for crc32c by name, too.
            Self::S => &["veth", "crc32c_generic?", "ib_uverbs", "rdma_ucm", "siw"],
        }
    }

    /// The device that `UVERBS_TEST_DEVICE` names.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Self::B | Self::E => "mlx5_0",
            Self::C => "rxe0",
            Self::S => "siw0",
        }
    }

    /// The words by which cargo builds what `Any` needs there.
    pub(crate) fn features(self) -> &'static [&'static str] {
        match self {
            Self::B | Self::C | Self::E => &[],
            Self::S => &["--features", "uverbs/any-siw,uverbs-c-abi/any-siw"],
        }
    }

    /// The IP address of that device, where its GIDs don't tell it.
    pub(crate) fn address(self) -> Option<&'static str> {
        match self {
            Self::B | Self::C | Self::E => None,
            Self::S => Some("10.0.0.1"),
        }
    }

    /// The script in `tests/vm` that makes the devices, and how many seconds it may take.
    pub(crate) fn setup(self) -> (&'static str, u64) {
        match self {
            Self::B | Self::E => ("setup-b.sh", 60),
            Self::C => ("setup-c.sh", 30),
            Self::S => ("setup-s.sh", 30),
        }
    }

    /// The words of our command line that serve the devices, without their sockets.
    pub(crate) fn server(self) -> Option<&'static [&'static str]> {
        match self {
            Self::B => Some(&["softhca", "serve"]),
            Self::C | Self::S => None,
            Self::E => Some(&["softhca", "serve", "--port", "eth"]),
        }
    }
}

/// Whether each letter of a table's word is a world's.
pub(crate) fn are_worlds(word: &str) -> bool {
    word.chars().all(|letter| World::ALL.iter().any(|world| world.letter() == letter))
}

/// The modules of all worlds that the kernels' packages have. World S's other one, and what that
/// needs, are [made](super::siw) when it is asked for.
pub(crate) fn all_modules() -> Vec<&'static str> {
    [World::B, World::C, World::E].iter().flat_map(|world| world.modules()).copied().collect()
}
