//! Identity and addresses of a device. All invented values are here.

use std::net::Ipv4Addr;

use super::capabilities::LOG_MAX_NUMBER;
use crate::hca::HcaConfig;
pub(crate) use uverbs_front::backend::config::{Gid, GidType};
use uverbs_front::backend::context::LinkLayer;
use uverbs_front::backend::network::{Network, link_local};

/// IEEE OUI of Mellanox.
pub(crate) const VENDOR_ID: u32 = 0x02c9;
/// Version 99.0.1 in mlx5's encoding (`fw_rev_maj << 32 | fw_rev_min << 16 | fw_rev_sub`), which no
/// silicon has.
pub(crate) const FW_VER: u64 = 99 << 32 | 1;
/// Identity and limits of one device.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// Number of the device, from which its addresses are derived.
    pub(crate) number: u16,
    /// `node_guid` as a number. Its bytes in network order are the interface id of the GID.
    pub(crate) guid: u64,
    pub(crate) gids: Vec<Gid>,
    pub(crate) lid: u16,
    pub(crate) max_pd: u32,
    pub(crate) max_ah: u32,
    /// RLIMIT_MEMLOCK as this device counts it: bytes of pinned pages.
    pub(crate) memlock: u64,
    pub(crate) hca: HcaConfig,
}

/// IPv4 address of the process's device with this number.
fn ipv4(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [10, 86, high, low]
}

impl Profile {
    /// Profile of the process's device `number`: address 02:ca:05:00:xx:xx (locally administered)
    /// and 10.86.x.y.
    pub(crate) fn new(number: u16, hca: HcaConfig) -> Self {
        let link_local = link_local(number);
        let (_, interface) = link_local.split_last_chunk().expect("a GID has 16 bytes");
        let ipv4 = ipv4_mapped(ipv4(number));
        let gids = match hca.link {
            // Order of `roce_gid_mgmt.c`: link local first, each GID in both versions.
            LinkLayer::Ethernet => [link_local, ipv4]
                .into_iter()
                .flat_map(|gid| {
                    [GidType::RoceV1, GidType::RoceV2].map(|kind| Gid { gid, kind, ifindex: 0 })
                })
                .collect(),
            LinkLayer::InfiniBand => vec![Gid { gid: link_local, kind: GidType::Ib, ifindex: 0 }],
        };
        let lid = match hca.link {
            LinkLayer::Ethernet => 0,
            LinkLayer::InfiniBand => number,
        };
        Self {
            number,
            guid: u64::from_be_bytes(*interface),
            gids,
            lid,
            max_pd: 1 << LOG_MAX_NUMBER,
            max_ah: 1 << 20,
            memlock: u64::MAX,
            hca,
        }
    }

    /// Network of an InfiniBand port's addresses: 10.86.x.y, where x.y is the LID.
    pub(crate) fn subnet(&self) -> Network {
        Network::of(Ipv4Addr::from(ipv4(self.lid)).into())
    }

    /// P_Key at an index: the default key is first; the rest of the table is empty.
    pub(crate) fn pkey(&self, index: u16) -> u16 {
        self.hca.pkeys.get(usize::from(index)).copied().unwrap_or(0)
    }
}

fn ipv4_mapped(addr: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10] = 0xff;
    gid[11] = 0xff;
    gid[12..].copy_from_slice(&addr);
    gid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roce_table_has_the_kernels_order() {
        let profile = Profile::new(0x0102, HcaConfig::default());
        let kinds = profile.gids.iter().map(|gid| gid.kind).collect::<Vec<_>>();
        assert_eq!(kinds, [GidType::RoceV1, GidType::RoceV2, GidType::RoceV1, GidType::RoceV2]);
        assert_eq!(
            profile.gids[0].gid,
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0xca, 0x05, 0xff, 0xfe, 0x00, 1, 2]
        );
        assert_eq!(profile.gids[3].gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 86, 1, 2]);
        assert_eq!(profile.lid, 0);
    }

    #[test]
    fn numbers_make_addresses_of_their_own() {
        let mut seen = std::collections::HashMap::new();
        for number in 1..=1000 {
            // Each GID is in the table in two versions.
            for gid in Profile::new(number, HcaConfig::default()).gids.iter().step_by(2) {
                let other = seen.insert(gid.gid, number);
                assert_eq!(other, None, "and {number} share {:?}", gid.gid);
            }
        }
        assert_eq!(seen.len(), 2000);
    }

    #[test]
    fn infiniband_has_one_gid_and_a_lid() {
        let hca = HcaConfig { link: LinkLayer::InfiniBand, ..HcaConfig::default() };
        let profile = Profile::new(7, hca);
        assert_eq!((profile.gids.len(), profile.lid), (1, 7));
        assert_eq!(profile.gids[0].kind, GidType::Ib);
    }
}
