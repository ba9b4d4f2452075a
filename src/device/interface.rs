//! Network interfaces of a port's GIDs, ranked by how well peers reach the port through them.

use std::path::Path;

use nix::net::if_::if_indextoname;
use uverbs_core::attr::GidEntry;
use uverbs_core::discovery::sysfs;

/// Rank of an interface; the better one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// No interface of this network namespace: the kernel lists the GIDs of all of them
    /// (`rdma system`: `netns shared`).
    Elsewhere,
    /// On top of another interface: VLAN, macvlan, ipvlan.
    Stacked,
    /// The port's own interface, or a bond.
    Own,
}

/// Interfaces of a GID table.
#[derive(Debug, Default)]
pub(super) struct Interfaces(Vec<(u32, Rank)>);

impl Interfaces {
    /// Looks each interface up. A table with GIDs of one interface needs no look.
    pub(super) fn of(gids: &[GidEntry]) -> Self {
        let mut indexes: Vec<_> = gids.iter().map(|entry| entry.netdev_ifindex).collect();
        indexes.sort_unstable();
        indexes.dedup();
        if indexes.len() < 2 {
            return Self::default();
        }
        // Folder of this network namespace's interfaces.
        let class = sysfs::root().join("class/net");
        indexes.into_iter().map(|index| (index, rank(index, &class))).collect()
    }

    /// Rank of the interface with this index.
    pub(super) fn rank(&self, index: u32) -> Rank {
        self.0.iter().find(|(one, _)| *one == index).map_or(Rank::Own, |(_, rank)| *rank)
    }
}

fn rank(index: u32, class: &Path) -> Rank {
    // An unknown index has an empty name.
    let name = if_indextoname(index).unwrap_or_default();
    if name.is_empty() {
        return Rank::Elsewhere;
    }
    let uevent = class.join(name.to_string_lossy().as_ref()).join("uevent");
    // Without sysfs all interfaces of the namespace are equal.
    let uevent = std::fs::read_to_string(uevent).unwrap_or_default();
    match uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")) {
        Some("vlan" | "macvlan" | "ipvlan" | "macvtap" | "ipvtap") => Rank::Stacked,
        _ => Rank::Own,
    }
}

impl FromIterator<(u32, Rank)> for Interfaces {
    fn from_iter<T: IntoIterator<Item = (u32, Rank)>>(ranks: T) -> Self {
        Self(ranks.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_interfaces_are_told_apart() {
        let class = std::env::temp_dir().join(format!("interfaces-{}", std::process::id()));
        let lo = nix::net::if_::if_nametoindex("lo").unwrap();
        assert_eq!(rank(lo, &class), Rank::Own, "without sysfs");
        std::fs::create_dir_all(class.join("lo")).unwrap();
        for (uevent, expected) in [
            ("INTERFACE=lo\nIFINDEX=1\n", Rank::Own),
            ("DEVTYPE=bond\nINTERFACE=lo\n", Rank::Own),
            ("DEVTYPE=vlan\nINTERFACE=lo\n", Rank::Stacked),
            ("\u{fffd}garbage", Rank::Own),
        ] {
            std::fs::write(class.join("lo/uevent"), uevent).unwrap();
            assert_eq!(rank(lo, &class), expected, "{uevent}");
        }
        std::fs::remove_dir_all(&class).unwrap();
        assert_eq!(rank(u32::MAX, &class), Rank::Elsewhere);
        assert!(Rank::Own > Rank::Stacked && Rank::Stacked > Rank::Elsewhere);
    }
}
