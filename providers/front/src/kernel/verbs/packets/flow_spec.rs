//! Specifications of a flow rule (`kern_spec_to_ib_spec` in `core/uverbs_cmd.c`, `parse_flow_attr`
//! in `hw/mlx5/fs.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::flow::{
    IB_FLOW_SPEC_ACTION_COUNT, IB_FLOW_SPEC_ACTION_DROP, IB_FLOW_SPEC_ACTION_TAG, IB_FLOW_SPEC_ETH,
    IB_FLOW_SPEC_IPV4, IB_FLOW_SPEC_IPV6, IB_FLOW_SPEC_TCP, IB_FLOW_SPEC_UDP,
    ib_uverbs_flow_eth_filter, ib_uverbs_flow_ipv4_filter, ib_uverbs_flow_ipv6_filter,
    ib_uverbs_flow_spec_action_count, ib_uverbs_flow_spec_action_drop,
    ib_uverbs_flow_spec_action_tag, ib_uverbs_flow_spec_hdr, ib_uverbs_flow_tcp_udp_filter,
};
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::flow::{fte_match_param, fte_match_set_lyr_2_4, fte_match_set_misc};
use zerocopy::{FromBytes, IntoBytes};

use crate::backend::steering::MATCH_LEN;
use crate::kernel::call::zero_extended;
use crate::kernel::state::flows::Param;

const HEAD: usize = size_of::<ib_uverbs_flow_spec_hdr>();
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// First tag and first flow label that do not fit their fields.
pub(crate) const TAGS: u32 = 1 << 24;
const LABELS: u32 = 1 << 20;

/// Match and actions of a rule, built from its specifications.
#[derive(Clone, Debug)]
pub(crate) struct Specs {
    pub(crate) criteria: Param,
    pub(crate) value: Param,
    pub(crate) tag: Option<u32>,
    pub(crate) drops: bool,
    /// Handle of the counters.
    pub(crate) counters: Option<u32>,
    /// True if the first specification has a multicast destination (`flow_is_multicast_only`).
    pub(crate) multicast_only: bool,
    /// EtherType with its mask, and IP's EtherType if there is an IP specification
    /// (`is_valid_ethertype`).
    ether_type: Option<(u16, u16)>,
    ip: Option<u16>,
}

impl Default for Specs {
    fn default() -> Self {
        Self {
            criteria: [0; MATCH_LEN],
            value: [0; MATCH_LEN],
            tag: None,
            drops: false,
            counters: None,
            multicast_only: false,
            ether_type: None,
            ip: None,
        }
    }
}

impl Specs {
    /// Parses `count` specifications, which must fill `bytes`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for wrong sizes and layers; `EOPNOTSUPP` for fields that mlx5 cannot compare.
    pub(crate) fn parse(mut bytes: &[u8], count: u8) -> Result<Self, Errno> {
        let mut specs = Self::default();
        for number in 0..count {
            let head = ib_uverbs_flow_spec_hdr::read_from_prefix(bytes);
            let (head, _) = head.map_err(|_| Errno::EINVAL)?;
            let spec = bytes.get(HEAD..usize::from(head.size)).ok_or(Errno::EINVAL)?;
            if head.reserved != 0 {
                return Err(Errno::EINVAL);
            }
            specs.add(head.r#type, spec, number == 0)?;
            bytes = &bytes[usize::from(head.size)..];
        }
        match bytes.is_empty() && specs.is_valid_ethertype() {
            true => Ok(specs),
            false => Err(Errno::EINVAL),
        }
    }

    fn add(&mut self, kind: u32, spec: &[u8], is_first: bool) -> Result<(), Errno> {
        match kind {
            IB_FLOW_SPEC_ETH => self.eth(filters(spec)?, is_first),
            IB_FLOW_SPEC_IPV4 => self.ipv4(filters(spec)?, is_first),
            IB_FLOW_SPEC_IPV6 => self.ipv6(filters(spec)?),
            IB_FLOW_SPEC_TCP => self.ports(filters(spec)?, TCP),
            IB_FLOW_SPEC_UDP => self.ports(filters(spec)?, UDP),
            IB_FLOW_SPEC_ACTION_TAG => {
                let tag = exact::<ib_uverbs_flow_spec_action_tag>(spec)?;
                if tag >= TAGS {
                    return Err(Errno::EINVAL);
                }
                self.tag = Some(tag);
                Ok(())
            }
            IB_FLOW_SPEC_ACTION_DROP => {
                exact::<ib_uverbs_flow_spec_action_drop>(spec)?;
                self.drops = true;
                Ok(())
            }
            IB_FLOW_SPEC_ACTION_COUNT => {
                let handle = exact::<ib_uverbs_flow_spec_action_count>(spec)?;
                match self.counters.replace(handle) {
                    None => Ok(()),
                    Some(_) => Err(Errno::EINVAL),
                }
            }
            // Tunnels, inner headers and IPsec, which the device cannot compare.
            _ => Err(Errno::EINVAL),
        }
    }

    /// True if the EtherType fits the IP specification. With an IP specification its mask must be
    /// whole.
    fn is_valid_ethertype(&self) -> bool {
        match (self.ether_type, self.ip) {
            (Some((value, mask)), Some(ip)) => mask == u16::MAX && value == ip,
            _ => true,
        }
    }

    /// Sets a field of the outer headers, in mask and value.
    fn set(&mut self, field: Field, mask: impl Into<u64>, value: impl Into<u64>) {
        field.set(fte_match_param::OUTER_HEADERS.of_mut(&mut self.criteria), mask.into());
        field.set(fte_match_param::OUTER_HEADERS.of_mut(&mut self.value), value.into());
    }

    /// Sets the IP protocol; another layer may have set it already (`set_proto`).
    fn set_protocol(&mut self, mask: u8, value: u8) -> Result<(), Errno> {
        use fte_match_set_lyr_2_4::IP_PROTOCOL;
        if mask == 0 {
            return Ok(());
        }
        let of = |param: &Param| IP_PROTOCOL.get(fte_match_param::OUTER_HEADERS.of(param)) as u8;
        match (of(&self.criteria), of(&self.value)) {
            (0, _) => self.set(IP_PROTOCOL, mask, value),
            given if given != (mask, value) => return Err(Errno::EINVAL),
            _ => {}
        }
        Ok(())
    }

    /// Type of service, or traffic class (`set_tos`).
    fn set_class(&mut self, mask: u8, value: u8) {
        use fte_match_set_lyr_2_4::{IP_DSCP, IP_ECN};
        self.set(IP_ECN, mask, value);
        self.set(IP_DSCP, mask >> 2, value >> 2);
    }

    fn eth(
        &mut self,
        (value, mask): (ib_uverbs_flow_eth_filter, ib_uverbs_flow_eth_filter),
        is_first: bool,
    ) -> Result<(), Errno> {
        use fte_match_set_lyr_2_4::*;
        for (fields, mask, value) in [
            ([DMAC_47_16, DMAC_15_0], mask.dst_mac, value.dst_mac),
            ([SMAC_47_16, SMAC_15_0], mask.src_mac, value.src_mac),
        ] {
            let halves = |[a, b, c, d, e, f]: [u8; 6]| {
                (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]))
            };
            let ((mask_high, mask_low), (high, low)) = (halves(mask), halves(value));
            self.set(fields[0], mask_high, high);
            self.set(fields[1], mask_low, low);
        }
        let (tag_mask, tag) = (mask.vlan_tag.get(), value.vlan_tag.get());
        if tag_mask != 0 {
            self.set(CVLAN_TAG, 1u8, 1u8);
            self.set(FIRST_VID, tag_mask, tag);
            self.set(FIRST_CFI, tag_mask >> 12, tag >> 12);
            self.set(FIRST_PRIO, tag_mask >> 13, tag >> 13);
        }
        self.set(ETHERTYPE, mask.ether_type.get(), value.ether_type.get());
        if mask.ether_type.get() != 0 {
            self.ether_type = Some((value.ether_type.get(), mask.ether_type.get()));
        }
        self.multicast_only |= is_first && mask.dst_mac[0] & value.dst_mac[0] & 1 != 0;
        Ok(())
    }

    fn ipv4(
        &mut self,
        (value, mask): (ib_uverbs_flow_ipv4_filter, ib_uverbs_flow_ipv4_filter),
        is_first: bool,
    ) -> Result<(), Errno> {
        use fte_match_set_lyr_2_4::*;
        if (mask.ttl, mask.flags) != (0, 0) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.ip = Some(IPV4);
        self.set(IP_VERSION, 0xf_u8, 4u8);
        for (filter, param) in [(&mask, &mut self.criteria), (&value, &mut self.value)] {
            let outer = fte_match_param::OUTER_HEADERS.of_mut(param);
            // An IPv4 address is in the last four bytes of the IPv6 field.
            SRC_IPV4_SRC_IPV6.of_mut(outer)[12..].copy_from_slice(filter.src_ip.as_bytes());
            DST_IPV4_DST_IPV6.of_mut(outer)[12..].copy_from_slice(filter.dst_ip.as_bytes());
        }
        self.set_class(mask.tos, value.tos);
        self.multicast_only |= is_first && value.dst_ip.get() >> 28 == 0xe;
        self.set_protocol(mask.proto, value.proto)
    }

    fn ipv6(
        &mut self,
        (value, mask): (ib_uverbs_flow_ipv6_filter, ib_uverbs_flow_ipv6_filter),
    ) -> Result<(), Errno> {
        use fte_match_set_lyr_2_4::*;
        if mask.flow_label.get() >= LABELS || value.flow_label.get() >= LABELS {
            return Err(Errno::EINVAL);
        }
        if (mask.hop_limit, mask.reserved) != (0, 0) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.ip = Some(IPV6);
        self.set(IP_VERSION, 0xf_u8, 6u8);
        for (filter, param) in [(&mask, &mut self.criteria), (&value, &mut self.value)] {
            let outer = fte_match_param::OUTER_HEADERS.of_mut(param);
            SRC_IPV4_SRC_IPV6.of_mut(outer).copy_from_slice(&filter.src_ip);
            DST_IPV4_DST_IPV6.of_mut(outer).copy_from_slice(&filter.dst_ip);
            let misc = fte_match_param::MISC_PARAMETERS.of_mut(param);
            fte_match_set_misc::OUTER_IPV6_FLOW_LABEL.set(misc, filter.flow_label.get().into());
        }
        self.set_class(mask.traffic_class, value.traffic_class);
        self.set_protocol(mask.next_hdr, value.next_hdr)
    }

    fn ports(
        &mut self,
        (value, mask): (ib_uverbs_flow_tcp_udp_filter, ib_uverbs_flow_tcp_udp_filter),
        protocol: u8,
    ) -> Result<(), Errno> {
        use fte_match_set_lyr_2_4::*;
        self.set_protocol(u8::MAX, protocol)?;
        let (sport, dport) = match protocol {
            TCP => (TCP_SPORT, TCP_DPORT),
            _ => (UDP_SPORT, UDP_DPORT),
        };
        self.set(sport, mask.src_port.get(), value.src_port.get());
        self.set(dport, mask.dst_port.get(), value.dst_port.get());
        Ok(())
    }

    /// Enabled parts of the criteria (`get_match_criteria_enable`).
    pub(crate) fn enable(&self) -> u8 {
        let has = |part: &[u8]| part.iter().any(|byte| *byte != 0);
        let outer = has(fte_match_param::OUTER_HEADERS.of(&self.criteria));
        let misc = has(fte_match_param::MISC_PARAMETERS.of(&self.criteria));
        u8::from(outer) | u8::from(misc) << 1
    }

    /// Match of packets without rule (`create_leftovers_rule`): multicast destinations, or unicast
    /// ones.
    pub(crate) fn rest(multicast: bool) -> Self {
        let mut specs = Self::default();
        let group = |is: bool| ib_uverbs_flow_eth_filter {
            dst_mac: [u8::from(is), 0, 0, 0, 0, 0],
            ..Default::default()
        };
        // This specification is always accepted.
        let _ = specs.eth((group(multicast), group(true)), false);
        specs
    }
}

/// Value and mask of a specification (`ib_uverbs_kern_spec_to_ib_spec_filter`): shorter ones are
/// extended with zeros, longer ones must end in zeros.
fn filters<T: FromBytes + IntoBytes>(spec: &[u8]) -> Result<(T, T), Errno> {
    let len = spec.len() / 2;
    if !spec.len().is_multiple_of(8) || len == 0 {
        return Err(Errno::EINVAL);
    }
    let (value, mask) = spec.split_at(len);
    match mask.get(size_of::<T>()..) {
        Some(tail) if tail.iter().any(|byte| *byte != 0) => Err(Errno::EINVAL),
        _ => Ok((zero_extended(value), zero_extended(mask))),
    }
}

/// First word of an action, which must have the size of `T`; 0 if `T` has no word.
fn exact<T>(spec: &[u8]) -> Result<u32, Errno> {
    match spec.len() == size_of::<T>() - HEAD {
        true => Ok(zero_extended::<u32>(spec)),
        false => Err(Errno::EINVAL),
    }
}
