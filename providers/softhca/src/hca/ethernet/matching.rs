//! Matching of frames: a frame in the form of `fte_match_param`, and masks over it.

use std::sync::LazyLock;

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::flow::{fte_match_param, fte_match_set_lyr_2_4, fte_match_set_misc};

use super::headers::{Headers, Tag};
use uverbs_front::backend::steering::{MATCH_LEN, Param};

/// Mask of the bits that this device compares.
static KNOWN: LazyLock<Param> = LazyLock::new(|| {
    let mut known = [0; MATCH_LEN];
    {
        use fte_match_set_lyr_2_4::*;
        let outer = fte_match_param::OUTER_HEADERS.of_mut(&mut known);
        for field in [
            SMAC_47_16,
            SMAC_15_0,
            ETHERTYPE,
            DMAC_47_16,
            DMAC_15_0,
            FIRST_PRIO,
            FIRST_CFI,
            FIRST_VID,
            IP_PROTOCOL,
            IP_DSCP,
            IP_ECN,
            CVLAN_TAG,
            SVLAN_TAG,
            FRAG,
            IP_VERSION,
            TCP_FLAGS,
            TCP_SPORT,
            TCP_DPORT,
            TTL_HOPLIMIT,
            UDP_SPORT,
            UDP_DPORT,
        ] {
            field.set(outer, u64::MAX);
        }
        SRC_IPV4_SRC_IPV6.of_mut(outer).fill(0xff);
        DST_IPV4_DST_IPV6.of_mut(outer).fill(0xff);
    }
    use fte_match_set_misc::*;
    let misc = fte_match_param::MISC_PARAMETERS.of_mut(&mut known);
    for field in [
        OUTER_SECOND_PRIO,
        OUTER_SECOND_CFI,
        OUTER_SECOND_VID,
        OUTER_SECOND_CVLAN_TAG,
        OUTER_SECOND_SVLAN_TAG,
        OUTER_IPV6_FLOW_LABEL,
        GENEVE_VNI,
        GENEVE_OAM,
        GENEVE_OPT_LEN,
        GENEVE_PROTOCOL_TYPE,
    ] {
        field.set(misc, u64::MAX);
    }
    known
});

/// Stores a tag's priority, CFI and VLAN in their fields.
fn tci(bytes: &mut [u8], fields: [Field; 3], tag: Tag) {
    let [prio, cfi, vid] = fields;
    prio.set(bytes, u64::from(tag.tci >> 13));
    cfi.set(bytes, u64::from(tag.tci >> 12));
    vid.set(bytes, u64::from(tag.tci));
}

/// Stores a MAC address in its two fields.
fn mac(bytes: &mut [u8], [high, low]: [Field; 2], mac: [u8; 6]) {
    let [a, b, c, d, e, f] = mac;
    high.set(bytes, u32::from_be_bytes([a, b, c, d]).into());
    low.set(bytes, u16::from_be_bytes([e, f]).into());
}

/// Match fields of a frame. Fields that the frame lacks are 0.
pub(crate) fn param(headers: &Headers) -> Param {
    let mut param = [0; MATCH_LEN];
    {
        use fte_match_set_lyr_2_4::*;
        let outer = fte_match_param::OUTER_HEADERS.of_mut(&mut param);
        mac(outer, [SMAC_47_16, SMAC_15_0], headers.smac);
        mac(outer, [DMAC_47_16, DMAC_15_0], headers.dmac);
        ETHERTYPE.set(outer, headers.ethertype.into());
        if let Some(tag) = headers.tags[0] {
            tci(outer, [FIRST_PRIO, FIRST_CFI, FIRST_VID], tag);
            if tag.service { SVLAN_TAG } else { CVLAN_TAG }.set(outer, 1);
        }
        if let Some(ip) = &headers.ip {
            IP_VERSION.set(outer, if ip.v6 { 6 } else { 4 });
            IP_PROTOCOL.set(outer, ip.protocol.into());
            IP_DSCP.set(outer, u64::from(ip.class >> 2));
            IP_ECN.set(outer, ip.class.into());
            FRAG.set(outer, ip.fragment.into());
            TTL_HOPLIMIT.set(outer, ip.ttl.into());
            SRC_IPV4_SRC_IPV6.of_mut(outer).copy_from_slice(&ip.src);
            DST_IPV4_DST_IPV6.of_mut(outer).copy_from_slice(&ip.dst);
            match ip.l4 {
                Some(l4) if l4.tcp => {
                    TCP_SPORT.set(outer, l4.src.into());
                    TCP_DPORT.set(outer, l4.dst.into());
                    TCP_FLAGS.set(outer, l4.flags.into());
                }
                Some(l4) => {
                    UDP_SPORT.set(outer, l4.src.into());
                    UDP_DPORT.set(outer, l4.dst.into());
                }
                None => {}
            }
        }
    }
    use fte_match_set_misc::*;
    let misc = fte_match_param::MISC_PARAMETERS.of_mut(&mut param);
    if let Some(tag) = headers.tags[1] {
        tci(misc, [OUTER_SECOND_PRIO, OUTER_SECOND_CFI, OUTER_SECOND_VID], tag);
        if tag.service { OUTER_SECOND_SVLAN_TAG } else { OUTER_SECOND_CVLAN_TAG }.set(misc, 1);
    }
    if let Some(ip) = &headers.ip {
        OUTER_IPV6_FLOW_LABEL.set(misc, ip.flow_label.into());
    }
    if let Some(geneve) = headers.tunnel.and_then(|tunnel| tunnel.geneve) {
        GENEVE_VNI.set(misc, geneve.vni.into());
        GENEVE_OAM.set(misc, geneve.oam.into());
        GENEVE_OPT_LEN.set(misc, geneve.options.into());
        GENEVE_PROTOCOL_TYPE.set(misc, geneve.protocol.into());
    }
    param
}

/// The bytes of a frame that a group compares. Keeps the match value of an entry short.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    bytes: Vec<(usize, u8)>,
}

impl Mask {
    /// Mask of a group's `criteria`. `enable` selects their parts (`match_criteria_enable`, a bit
    /// for each 64 bytes). None if the criteria contain a bit that this device does not compare.
    pub(crate) fn new(criteria: &Param, enable: u8) -> Option<Mask> {
        let part = fte_match_param::OUTER_HEADERS.len();
        let counts =
            |at: usize| enable.checked_shr((at / part) as u32).is_some_and(|bits| bits & 1 != 0);
        let bytes = criteria.iter().enumerate().filter(|&(at, &bits)| bits != 0 && counts(at));
        let bytes: Vec<_> = bytes.map(|(at, &bits)| (at, bits)).collect();
        bytes.iter().all(|&(at, bits)| bits & !KNOWN[at] == 0).then_some(Mask { bytes })
    }

    /// The bytes of `param` under the mask.
    pub(crate) fn of(&self, param: &Param) -> Box<[u8]> {
        self.bytes.iter().map(|&(at, bits)| param[at] & bits).collect()
    }
}
