//! Flow rules: they steer packets of a port to a queue pair. Kernel `uverbs_cmd.c`,
//! `ib_uverbs_ex_create_flow`; `hw/mlx5/fs.c`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::BitAnd;

use uverbs_kernel_abi::flow as abi;
use zerocopy::IntoBytes;

use crate::error::Error;

const VERB: &str = "create_flow";
/// Largest flow tag: a CQE has 24 bits for it (kernel `fs.c:parse_flow_attr`).
const TAG_MAX: u32 = (1 << 24) - 1;
/// Ethertypes.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// IP protocol numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bits of an IPv6 flow label.
const LABEL: u32 = 0xf_ffff;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns true for a multicast address: the lowest bit of the first byte is set.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl BitAnd for MacAddr {
    type Output = Self;

    fn bitand(self, mask: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & mask.0[at]))
    }
}

/// Value and mask that a packet's field is compared with. Converting a plain value compares all
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Masked<T> {
    /// Required bits; bits outside `mask` must be 0.
    pub value: T,
    /// Bits to compare.
    pub mask: T,
}

/// Implements, for each field type, the full mask and the zero value.
macro_rules! masked {
    ($($type:ty: $all:expr, $none:expr;)*) => {$(
        impl From<$type> for Masked<$type> {
            fn from(value: $type) -> Self {
                Self { value, mask: $all }
            }
        }

        impl Pair for Option<Masked<$type>> {
            type Field = $type;

            fn pair(self) -> ($type, $type) {
                self.map_or(($none, $none), |masked| (masked.value, masked.mask))
            }
        }
    )*};
}

/// Value and mask in the kernel's form: zeros for a field that is not compared.
trait Pair {
    type Field;

    fn pair(self) -> (Self::Field, Self::Field);
}

masked! {
    MacAddr: MacAddr([0xff; 6]), MacAddr([0; 6]);
    u8: u8::MAX, 0;
    u16: u16::MAX, 0;
    u32: u32::MAX, 0;
    Ipv4Addr: Ipv4Addr::BROADCAST, Ipv4Addr::UNSPECIFIED;
    Ipv6Addr: Ipv6Addr::from_bits(u128::MAX), Ipv6Addr::UNSPECIFIED;
}

/// Ethernet header fields to match; `None` matches any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_flow_spec_eth")]
pub struct EthMatch {
    /// Destination address.
    pub dst: Option<Masked<MacAddr>>,
    /// Source address.
    pub src: Option<Masked<MacAddr>>,
    /// Ethertype: 0x0800 is IPv4.
    pub ether_type: Option<Masked<u16>>,
    /// VLAN tag: 3 bits of priority, drop eligibility, 12 bits of VLAN id. Untagged packets never
    /// match.
    pub vlan_tag: Option<Masked<u16>>,
}

/// IPv4 header fields to match; `None` matches any value. Other packets never match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_flow_spec_ipv4_ext")]
pub struct Ipv4Match {
    /// Source address.
    pub src: Option<Masked<Ipv4Addr>>,
    /// Destination address.
    pub dst: Option<Masked<Ipv4Addr>>,
    /// Protocol number: 17 is UDP.
    pub protocol: Option<Masked<u8>>,
    /// Type of service: 6 bits of DSCP, 2 of ECN.
    pub tos: Option<Masked<u8>>,
}

/// IPv6 header fields to match; `None` matches any value. Other packets never match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_flow_spec_ipv6")]
pub struct Ipv6Match {
    /// Source address.
    pub src: Option<Masked<Ipv6Addr>>,
    /// Destination address.
    pub dst: Option<Masked<Ipv6Addr>>,
    /// Flow label: 20 bits of value and of mask.
    pub flow_label: Option<Masked<u32>>,
    /// Next header: 17 is UDP.
    pub next_header: Option<Masked<u8>>,
    /// Traffic class: 6 bits of DSCP, 2 of ECN.
    pub traffic_class: Option<Masked<u8>>,
}

/// TCP or UDP ports to match; `None` matches any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_flow_spec_tcp_udp")]
pub struct PortMatch {
    /// Destination port.
    pub dst: Option<Masked<u16>>,
    /// Source port.
    pub src: Option<Masked<u16>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ip {
    V4(Ipv4Match),
    V6(Ipv6Match),
}

/// Packets that a rule selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Packets that match the rule's fields.
    Normal,
    /// Packets that match no other rule.
    Rest,
    /// Multicast packets that match no other rule.
    MulticastRest,
    Sniffer,
}

/// A flow rule. A port's packets that match all its fields go to a queue pair. Several queue pairs
/// may have equal rules: each gets a copy.
///
/// ```
/// # mod uverbs { pub mod flow { pub use uverbs_core::attr::*; } }
/// use uverbs::flow::{EthMatch, FlowRule, Ipv4Match, MacAddr, PortMatch};
///
/// let host: std::net::Ipv4Addr = "10.0.0.1".parse()?;
/// let rule = FlowRule::new()
///     .eth(EthMatch { dst: Some(MacAddr([2, 0, 0, 0, 0, 1]).into()), ..Default::default() })
///     .ipv4(Ipv4Match { dst: Some(host.into()), ..Default::default() })
///     .udp(PortMatch { dst: Some(4791.into()), ..Default::default() })
///     .tag(7);
/// assert!(rule.check().is_ok());
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_flow_attr")]
#[must_use = "a rule steers nothing until a queue pair takes it"]
pub struct FlowRule {
    kind: Kind,
    priority: u16,
    eth: Option<EthMatch>,
    ip: Option<Ip>,
    /// IP protocol number, and ports.
    transport: Option<(u8, PortMatch)>,
    tag: Option<u32>,
    drop: bool,
    go_on: bool,
}

impl FlowRule {
    /// Matches all packets; each added layer narrows the match.
    pub const fn new() -> Self {
        Self {
            kind: Kind::Normal,
            priority: 0,
            eth: None,
            ip: None,
            transport: None,
            tag: None,
            drop: false,
            go_on: false,
        }
    }

    /// Matches packets that match no other rule, including packets for the network stack.
    ///
    /// Linux 6.16 to at least 7.3 reject it with `EINVAL`: they look for its specification in the
    /// wrong place (`hw/mlx5/fs.c:create_leftovers_rule`).
    #[doc(alias = "IBV_FLOW_ATTR_ALL_DEFAULT")]
    pub const fn rest() -> Self {
        Self { kind: Kind::Rest, ..Self::new() }
    }

    /// Matches multicast packets that match no other rule. Linux 6.16 and later reject it, like
    /// [`rest`](Self::rest).
    #[doc(alias = "IBV_FLOW_ATTR_MC_DEFAULT")]
    pub const fn multicast_rest() -> Self {
        Self { kind: Kind::MulticastRest, ..Self::new() }
    }

    /// Copies all packets that the port sends and receives, RDMA's among them. They go on to where
    /// they would go without the rule.
    ///
    /// mlx5 rejects it with `EOPNOTSUPP` if the firmware lacks the capability (`hw/mlx5/fs.c:
    /// get_flow_table`).
    #[doc(alias = "IBV_FLOW_ATTR_SNIFFER")]
    pub const fn sniffer() -> Self {
        Self { kind: Kind::Sniffer, ..Self::new() }
    }

    /// Matches packets with these Ethernet header fields.
    pub fn eth(self, eth: EthMatch) -> Self {
        Self { eth: Some(eth), ..self }
    }

    /// Matches IPv4 packets with these header fields. Replaces [`ipv6`](Self::ipv6).
    pub fn ipv4(self, ip: Ipv4Match) -> Self {
        Self { ip: Some(Ip::V4(ip)), ..self }
    }

    /// Matches IPv6 packets with these header fields. Replaces [`ipv4`](Self::ipv4).
    pub fn ipv6(self, ip: Ipv6Match) -> Self {
        Self { ip: Some(Ip::V6(ip)), ..self }
    }

    /// Matches TCP packets with these ports. Replaces [`udp`](Self::udp).
    pub fn tcp(self, ports: PortMatch) -> Self {
        Self { transport: Some((TCP, ports)), ..self }
    }

    /// Matches UDP packets with these ports. Replaces [`tcp`](Self::tcp).
    pub fn udp(self, ports: PortMatch) -> Self {
        Self { transport: Some((UDP, ports)), ..self }
    }

    /// Sets the priority (default 0). Rules of a lower number apply first. mlx5 has 0 to 15.
    pub fn priority(self, priority: u16) -> Self {
        Self { priority, ..self }
    }

    /// Sets the flow tag, 24 bits, that completions of matching packets carry; 0 without a tag.
    #[doc(alias = "ibv_flow_spec_action_tag")]
    pub fn tag(self, tag: u32) -> Self {
        Self { tag: Some(tag), ..self }
    }

    /// Drops matching packets.
    #[doc(alias = "ibv_flow_spec_action_drop")]
    pub fn dropped(self) -> Self {
        Self { drop: true, ..self }
    }

    /// Passes matching packets on to rules of later priorities too.
    #[doc(alias = "IBV_FLOW_ATTR_FLAGS_DONT_TRAP")]
    pub fn and_go_on(self) -> Self {
        Self { go_on: true, ..self }
    }

    /// Rejects a rule that no packet can match, or whose values exceed their fields.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a tag over 24 bits or a flow label over 20; [`Error::Invalid`] for bits
    /// outside of a mask, layers that contradict each other, a tag or fields with a rule for the
    /// rest.
    pub fn check(&self) -> Result<(), Error> {
        Error::limit(VERB, "tag", self.tag.unwrap_or(0), TAG_MAX)?;
        let narrowed = self.eth.is_some() || self.ip.is_some() || self.transport.is_some();
        if self.kind != Kind::Normal && (narrowed || self.tag.is_some() || self.drop) {
            let why =
                "a rule for the rest, or for copies, has no fields, no tag, and drops nothing";
            return Err(invalid("flow rule", "narrowed down".to_owned(), why));
        }
        if self.kind != Kind::Normal && self.go_on {
            let why = "nothing comes after the rest, and copied packets go on";
            return Err(invalid("flow rule", "that goes on".to_owned(), why));
        }
        self.check_eth()?;
        let protocol = match &self.ip {
            None => None,
            Some(Ip::V4(ip)) => ip.check()?,
            Some(Ip::V6(ip)) => ip.check()?,
        };
        let Some((number, ports)) = &self.transport else { return Ok(()) };
        ports.check()?;
        match protocol {
            Some(given) if given != Masked::from(*number) => {
                let why = "the rule asks for ports of TCP (6) or UDP (17), whichever it names";
                Err(invalid("protocol", format!("{:#x}/{:#x}", given.value, given.mask), why))
            }
            _ => Ok(()),
        }
    }

    fn check_eth(&self) -> Result<(), Error> {
        let Some(eth) = &self.eth else { return Ok(()) };
        bits("destination address", eth.dst, |mac| mac.to_string())?;
        bits("source address", eth.src, |mac| mac.to_string())?;
        bits("Ethernet type", eth.ether_type, |kind| format!("{kind:#06x}"))?;
        bits("VLAN tag", eth.vlan_tag, |tag| format!("{tag:#06x}"))?;
        let wanted = match &self.ip {
            None => return Ok(()),
            Some(Ip::V4(_)) => IPV4,
            Some(Ip::V6(_)) => IPV6,
        };
        match eth.ether_type {
            Some(given) if given != Masked::from(wanted) => {
                let why = "the rule has fields of IPv4 (0x0800) or IPv6 (0x86dd), which that isn't";
                Err(invalid("Ethernet type", format!("{:#06x}", given.value), why))
            }
            _ => Ok(()),
        }
    }

    /// Encodes the rule for the kernel, for a queue pair on `port`: a header, then the
    /// specifications. `counters` is the handle of the counters object.
    #[must_use]
    pub fn command(&self, qp: u32, port: u8, counters: Option<u32>) -> Vec<u8> {
        let mut specs = Vec::new();
        let mut count = 0;
        let mut add = |spec: &[u8]| {
            specs.extend_from_slice(spec);
            count += 1;
        };
        if let Some(eth) = &self.eth {
            add(eth.spec().as_bytes());
        }
        match &self.ip {
            None => {}
            Some(Ip::V4(ip)) => add(ip.spec().as_bytes()),
            Some(Ip::V6(ip)) => add(ip.spec().as_bytes()),
        }
        if let Some((number, ports)) = &self.transport {
            add(ports.spec(*number).as_bytes());
        }
        if let Some(tag_id) = self.tag {
            let hdr = head::<abi::ib_uverbs_flow_spec_action_tag>(abi::IB_FLOW_SPEC_ACTION_TAG);
            add(abi::ib_uverbs_flow_spec_action_tag { hdr, tag_id, reserved1: 0 }.as_bytes());
        }
        if self.drop {
            let hdr = head::<abi::ib_uverbs_flow_spec_action_drop>(abi::IB_FLOW_SPEC_ACTION_DROP);
            add(abi::ib_uverbs_flow_spec_action_drop { hdr }.as_bytes());
        }
        if let Some(handle) = counters {
            let hdr = head::<abi::ib_uverbs_flow_spec_action_count>(abi::IB_FLOW_SPEC_ACTION_COUNT);
            add(abi::ib_uverbs_flow_spec_action_count { hdr, handle, reserved1: 0 }.as_bytes());
        }
        let request = abi::ib_uverbs_create_flow {
            comp_mask: 0,
            qp_handle: qp,
            flow_attr: abi::ib_uverbs_flow_attr {
                r#type: match self.kind {
                    Kind::Normal => abi::IB_FLOW_ATTR_NORMAL,
                    Kind::Rest => abi::IB_FLOW_ATTR_ALL_DEFAULT,
                    Kind::MulticastRest => abi::IB_FLOW_ATTR_MC_DEFAULT,
                    Kind::Sniffer => abi::IB_FLOW_ATTR_SNIFFER,
                },
                size: specs.len() as u16,
                priority: self.priority,
                num_of_specs: count,
                reserved: [0; 2],
                port,
                flags: if self.go_on { abi::IB_FLOW_ATTR_FLAGS_DONT_TRAP } else { 0 },
            },
        };
        [request.as_bytes(), &specs].concat()
    }
}

impl Default for FlowRule {
    fn default() -> Self {
        Self::new()
    }
}

fn invalid(what: &'static str, value: String, why: &'static str) -> Error {
    Error::Invalid { verb: VERB, what, value, why }
}

/// Rejects value bits outside the mask.
fn bits<T: BitAnd<Output = T> + PartialEq + Copy>(
    what: &'static str,
    field: Option<Masked<T>>,
    show: impl Fn(T) -> String,
) -> Result<(), Error> {
    match field {
        Some(Masked { value, mask }) if value & mask != value => {
            let value = format!("{} under the mask {}", show(value), show(mask));
            Err(invalid(what, value, "bits that the mask leaves out are 0"))
        }
        _ => Ok(()),
    }
}

/// Header of a specification.
fn head<T>(kind: u32) -> abi::ib_uverbs_flow_spec_hdr {
    abi::ib_uverbs_flow_spec_hdr { r#type: kind, size: size_of::<T>() as u16, reserved: 0 }
}

impl EthMatch {
    fn spec(&self) -> abi::ib_uverbs_flow_spec_eth {
        let (dst, dst_mask) = self.dst.pair();
        let (src, src_mask) = self.src.pair();
        let (kind, kind_mask) = self.ether_type.pair();
        let (tag, tag_mask) = self.vlan_tag.pair();
        let filter =
            |dst: MacAddr, src: MacAddr, kind: u16, tag: u16| abi::ib_uverbs_flow_eth_filter {
                dst_mac: dst.0,
                src_mac: src.0,
                ether_type: kind.into(),
                vlan_tag: tag.into(),
            };
        abi::ib_uverbs_flow_spec_eth {
            hdr: head::<abi::ib_uverbs_flow_spec_eth>(abi::IB_FLOW_SPEC_ETH),
            val: filter(dst, src, kind, tag),
            mask: filter(dst_mask, src_mask, kind_mask, tag_mask),
        }
    }
}

impl Ipv4Match {
    /// Checks the fields; returns the protocol.
    fn check(&self) -> Result<Option<Masked<u8>>, Error> {
        bits("source address", self.src, |ip| ip.to_string())?;
        bits("destination address", self.dst, |ip| ip.to_string())?;
        bits("protocol", self.protocol, |number| number.to_string())?;
        bits("type of service", self.tos, |tos| format!("{tos:#04x}"))?;
        Ok(self.protocol)
    }

    fn spec(&self) -> abi::ib_uverbs_flow_spec_ipv4 {
        let (src, src_mask) = self.src.pair();
        let (dst, dst_mask) = self.dst.pair();
        let (proto, proto_mask) = self.protocol.pair();
        let (tos, tos_mask) = self.tos.pair();
        let filter = |src: Ipv4Addr, dst: Ipv4Addr, proto, tos| abi::ib_uverbs_flow_ipv4_filter {
            src_ip: src.to_bits().into(),
            dst_ip: dst.to_bits().into(),
            proto,
            tos,
            ..Default::default()
        };
        abi::ib_uverbs_flow_spec_ipv4 {
            hdr: head::<abi::ib_uverbs_flow_spec_ipv4>(abi::IB_FLOW_SPEC_IPV4),
            val: filter(src, dst, proto, tos),
            mask: filter(src_mask, dst_mask, proto_mask, tos_mask),
        }
    }
}

impl Ipv6Match {
    /// Checks the fields; returns the next header.
    fn check(&self) -> Result<Option<Masked<u8>>, Error> {
        bits("source address", self.src, |ip| ip.to_string())?;
        bits("destination address", self.dst, |ip| ip.to_string())?;
        bits("flow label", self.flow_label, |label| format!("{label:#x}"))?;
        // A mask with all bits of `u32` stands for all 20 bits of the label.
        let label = self.flow_label.map_or(0, |label| label.value);
        Error::limit(VERB, "flow label", label, LABEL)?;
        bits("next header", self.next_header, |number| number.to_string())?;
        bits("traffic class", self.traffic_class, |class| format!("{class:#04x}"))?;
        Ok(self.next_header)
    }

    fn spec(&self) -> abi::ib_uverbs_flow_spec_ipv6 {
        let (src, src_mask) = self.src.pair();
        let (dst, dst_mask) = self.dst.pair();
        let (label, label_mask) = self.flow_label.pair();
        let (next_hdr, next_mask) = self.next_header.pair();
        let (class, class_mask) = self.traffic_class.pair();
        let filter = |src: Ipv6Addr, dst: Ipv6Addr, label: u32, next_hdr, traffic_class| {
            abi::ib_uverbs_flow_ipv6_filter {
                src_ip: src.octets(),
                dst_ip: dst.octets(),
                flow_label: (label & LABEL).into(),
                next_hdr,
                traffic_class,
                ..Default::default()
            }
        };
        abi::ib_uverbs_flow_spec_ipv6 {
            hdr: head::<abi::ib_uverbs_flow_spec_ipv6>(abi::IB_FLOW_SPEC_IPV6),
            val: filter(src, dst, label, next_hdr, class),
            mask: filter(src_mask, dst_mask, label_mask, next_mask, class_mask),
        }
    }
}

impl PortMatch {
    fn check(&self) -> Result<(), Error> {
        bits("destination port", self.dst, |port| port.to_string())?;
        bits("source port", self.src, |port| port.to_string())
    }

    fn spec(&self, number: u8) -> abi::ib_uverbs_flow_spec_tcp_udp {
        let kind = if number == TCP { abi::IB_FLOW_SPEC_TCP } else { abi::IB_FLOW_SPEC_UDP };
        let (dst, dst_mask) = self.dst.pair();
        let (src, src_mask) = self.src.pair();
        let filter = |dst: u16, src: u16| abi::ib_uverbs_flow_tcp_udp_filter {
            dst_port: dst.into(),
            src_port: src.into(),
        };
        abi::ib_uverbs_flow_spec_tcp_udp {
            hdr: head::<abi::ib_uverbs_flow_spec_tcp_udp>(kind),
            val: filter(dst, src),
            mask: filter(dst_mask, src_mask),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(rule: FlowRule) -> &'static str {
        match rule.check() {
            Err(Error::Limit { what, .. } | Error::Invalid { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rules_that_contradict_themselves_are_refused() {
        let eth = |kind: u16| EthMatch { ether_type: Some(kind.into()), ..Default::default() };
        assert_eq!(why(FlowRule::new().eth(eth(IPV6)).ipv4(Ipv4Match::default())), "Ethernet type");
        assert_eq!(why(FlowRule::new().eth(eth(IPV4)).ipv6(Ipv6Match::default())), "Ethernet type");
        let tcp = Ipv4Match { protocol: Some(TCP.into()), ..Default::default() };
        assert_eq!(why(FlowRule::new().ipv4(tcp).udp(PortMatch::default())), "protocol");
        assert!(FlowRule::new().ipv4(tcp).tcp(PortMatch::default()).check().is_ok());
        assert_eq!(why(FlowRule::new().tag(1 << 24)), "tag");
        let label = Ipv6Match { flow_label: Some((1 << 20).into()), ..Default::default() };
        assert_eq!(why(FlowRule::new().ipv6(label)), "flow label");
        let dst = Some(Masked { value: 0x1001, mask: 0xff });
        assert_eq!(why(FlowRule::new().udp(PortMatch { dst, src: None })), "destination port");
        assert_eq!(why(FlowRule::rest().tag(1)), "flow rule");
        assert_eq!(why(FlowRule::multicast_rest().and_go_on()), "flow rule");
    }

    #[test]
    fn a_rule_is_bytes_in_the_networks_order() {
        let rule = FlowRule::new()
            .ipv4(Ipv4Match { dst: Some(Ipv4Addr::new(10, 0, 0, 1).into()), ..Default::default() })
            .udp(PortMatch { dst: Some(0x1234.into()), src: None })
            .priority(3)
            .tag(9);
        let (v4, udp, tag): (u8, u8, u8) = (0x30, 0x41, 16);
        #[rustfmt::skip]
        let bytes = [
            0, 0, 0, 0,  5, 0, 0, 0, // comp_mask, qp_handle
            0, 0, 0, 0,  64, 0,  3, 0, // type, size, priority
            3,  0, 0,  1,  0, 0, 0, 0, // num_of_specs, reserved, port, flags
            v4, 0, 0, 0,  32, 0,  0, 0,
            0, 0, 0, 0,  10, 0, 0, 1,  0, 0, 0, 0, // src_ip, dst_ip, proto, tos, ttl, flags
            0, 0, 0, 0,  255, 255, 255, 255,  0, 0, 0, 0,
            udp, 0, 0, 0,  16, 0,  0, 0,
            0x12, 0x34, 0, 0,  255, 255, 0, 0, // dst_port, src_port, and their masks
            0, 0x10, 0, 0,  tag, 0,  0, 0,
            9, 0, 0, 0,  0, 0, 0, 0, // tag_id, reserved
        ];
        assert_eq!(rule.command(5, 1, None), bytes);
    }
}
