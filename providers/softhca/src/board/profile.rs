//! Identity and limits of a device. All invented values are here.

use uverbs_mlx5_prm::cmd::caps::{DMA_MMO_SQ, LOG_DMA_MMO_MAX_SIZE};

use crate::hca::{HcaConfig, LinkLayer, Mtu};

/// Type of a GID; the numbers are `IB_UVERBS_GID_TYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidType {
    /// InfiniBand.
    Ib = 0,
    /// RoCE version 1: over Ethernet.
    RoceV1 = 1,
    /// RoCE version 2: over UDP.
    RoceV2 = 2,
}

/// One entry of the port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gid {
    /// GID in network order.
    pub gid: [u8; 16],
    /// Type of the GID.
    pub kind: GidType,
}

/// IEEE OUI of Mellanox.
pub(crate) const VENDOR_ID: u32 = 0x02c9;
/// ConnectX-6 Dx: providers use every feature that this device has on it.
pub(crate) const VENDOR_PART_ID: u32 = 4125;
/// Version 99.0.1 in mlx5's encoding (`fw_rev_maj << 32 | fw_rev_min << 16 | fw_rev_sub`), which no
/// silicon has.
pub(crate) const FW_VER: u64 = 99 << 32 | 1;
/// Number of completion vectors, all of which are equal.
pub(crate) const COMP_VECTORS: u32 = 8;
/// Bytes of a BlueFlame register, both halves together (`log_bf_reg_size` 9).
pub(crate) const BF_REG_SIZE: u32 = 512;
/// Bytes of the largest send WQE (`max_wqe_sz_sq`).
pub(crate) const MAX_SQ_DESC: u16 = 1024;
/// Bytes of the largest receive WQE (`max_wqe_sz_rq`).
pub(crate) const MAX_RQ_DESC: u16 = 512;
/// Maximum SGEs of a work request: limited by the smaller of the two WQEs.
pub(crate) const MAX_SGE: u32 = 30;
/// `gid_table_size` of an Ethernet port, and of an InfiniBand port, of this family.
pub(crate) const GID_TABLE_LEN: [u32; 2] = [255, 8];
/// P_Keys in the table: RoCE has only the default key (`mlx5_query_port_roce`).
pub(crate) const PKEY_TABLE_LEN: [u16; 2] = [1, 128];
/// Bytes of device memory. The driver's bitmap has 256 pages at most (Linux
/// `include/linux/mlx5/driver.h`, `MLX5_MAX_MEMIC_PAGES`).
pub(crate) const DEVICE_MEMORY_LEN: u64 = 256 << 10;
/// Maximum count and period (in microseconds) of event moderation (`MLX5_MAX_CQ_COUNT`,
/// `MLX5_MAX_CQ_PERIOD`).
pub(crate) const MAX_CQ_COUNT: u16 = u16::MAX;
pub(crate) const MAX_CQ_PERIOD: u16 = (1 << 12) - 1;
/// Maximum number each of TIRs, TISes, RQ tables and flow tables.
pub(crate) const MAX_STEERING: u32 = 1 << 16;
/// Maximum UAR pages.
pub(crate) const MAX_UARS: u32 = 1 << 10;

/// Identity and limits of one device.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// Number of the device, from which its addresses are derived.
    #[cfg_attr(not(feature = "pci"), expect(dead_code, reason = "VHCA_ID of the PCI function"))]
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

impl Profile {
    /// Profile of the process's device `number`: address 02:ca:05:00:xx:xx (locally administered)
    /// and 10.86.x.y.
    pub(crate) fn new(number: u16, hca: HcaConfig) -> Self {
        let [high, low] = number.to_be_bytes();
        let mac = [0x02, 0xca, 0x05, 0x00, high, low];
        // EUI-64 by RFC 4291 appendix A, as the kernel builds RoCE's default GID
        // (`addrconf_ifid_eui48`).
        let guid =
            u64::from_be_bytes([mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]]);
        let link_local = link_local(guid);
        let ipv4 = ipv4_mapped([10, 86, high, low]);
        let gids = match hca.link {
            // Order of `roce_gid_mgmt.c`: link local first, each GID in both versions.
            LinkLayer::Ethernet => [link_local, ipv4]
                .into_iter()
                .flat_map(|gid| [GidType::RoceV1, GidType::RoceV2].map(|kind| Gid { gid, kind }))
                .collect(),
            LinkLayer::InfiniBand => vec![Gid { gid: link_local, kind: GidType::Ib }],
        };
        let lid = match hca.link {
            LinkLayer::Ethernet => 0,
            LinkLayer::InfiniBand => number,
        };
        Self { number, guid, gids, lid, max_pd: 1 << 24, max_ah: 1 << 20, memlock: u64::MAX, hca }
    }

    pub(crate) fn is_ethernet(&self) -> bool {
        self.hca.link == LinkLayer::Ethernet
    }

    pub(crate) fn gid_table_len(&self) -> u32 {
        GID_TABLE_LEN[usize::from(!self.is_ethernet())]
    }

    pub(crate) fn pkey_table_len(&self) -> u16 {
        PKEY_TABLE_LEN[usize::from(!self.is_ethernet())]
    }

    /// P_Key at an index: the default key is first; the rest of the table is empty.
    pub(crate) fn pkey(&self, index: u16) -> u16 {
        self.hca.pkeys.get(usize::from(index)).copied().unwrap_or(0)
    }

    pub(crate) fn active_mtu(&self) -> Mtu {
        self.hca.active_mtu
    }
}

fn link_local(interface: u64) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[0] = 0xfe;
    gid[1] = 0x80;
    gid[8..].copy_from_slice(&interface.to_be_bytes());
    gid
}

fn ipv4_mapped(addr: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10] = 0xff;
    gid[11] = 0xff;
    gid[12..].copy_from_slice(&addr);
    gid
}

/// Sets the general capability of memory copies, and log2 of the longest copy, rounded down. Unset
/// for a device without copies.
pub(crate) fn tell_copies(general: &mut [u8], config: &HcaConfig) {
    if let Some(log) = config.max_copy.checked_ilog2() {
        DMA_MMO_SQ.set(general, 1);
        LOG_DMA_MMO_MAX_SIZE.set(general, log.into());
    }
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
