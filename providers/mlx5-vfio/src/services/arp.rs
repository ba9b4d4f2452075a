//! Frames that ask for MAC addresses and tell them: ARP (RFC 826), and neighbour discovery of IPv6
//! (RFC 4861).

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::interface::Mac;

/// EtherTypes.
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
/// IP protocol of ICMPv6.
pub(crate) const ICMP: u8 = 58;
/// Addresses, EtherType.
const HEADER: usize = 14;
/// Bytes of the addresses, behind which a VLAN tag is, and the tag's EtherType and VLAN (IEEE
/// 802.1Q, 9.6).
const ADDRESSES: usize = 12;
const TAG: [u8; 2] = [0x81, 0x00];
const VLAN: u16 = 0xfff;
pub(crate) const BROADCAST: Mac = [0xff; 6];
/// MAC address of all nodes' group.
pub(crate) const ALL_NODES: Mac = [0x33, 0x33, 0, 0, 0, 1];
/// Start of an ARP packet: Ethernet, IPv4, lengths of addresses.
const KINDS: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_LEN: usize = 28;
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
/// Bytes of an IPv6 header, and of a message before its options.
const IP: usize = 40;
const MESSAGE: usize = 24;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Options: the sender's address, the target's, in one unit of 8 bytes.
const SOURCE_ADDRESS: u8 = 1;
const TARGET_ADDRESS: u8 = 2;
/// Flags of an advertisement: solicited, override.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Hop limit that no router forwards (RFC 4861, 7.1).
const HOPS: u8 = 255;

/// A frame that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A station asks for the MAC address of `target`. `ip` is `None` if it has no address yet.
    Asked { ip: Option<IpAddr>, mac: Mac, target: IpAddr },
    /// A station tells its own.
    Told { ip: IpAddr, mac: Mac },
}

fn is_station(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

fn frame(to: Mac, from: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), payload].concat()
}

/// Puts a frame on a VLAN.
pub(crate) fn tag(frame: Vec<u8>, vlan: Option<u16>) -> Vec<u8> {
    match (vlan, frame.split_at_checked(ADDRESSES)) {
        (Some(vlan), Some((to_from, rest))) => [to_from, &TAG, &vlan.to_be_bytes(), rest].concat(),
        _ => frame,
    }
}

/// Takes the tag off a frame. A tag without a VLAN has a priority only.
pub(crate) fn untag(frame: &[u8]) -> (Option<u16>, Cow<'_, [u8]>) {
    match frame.split_at_checked(ADDRESSES) {
        Some((to_from, [a, b, high, low, rest @ ..])) if [*a, *b] == TAG => {
            let vlan = u16::from_be_bytes([*high, *low]) & VLAN;
            (Some(vlan).filter(|vlan| *vlan != 0), [to_from, rest].concat().into())
        }
        _ => (None, frame.into()),
    }
}

/// Parses a frame without a tag. `None` unless it is whole and says something about one station.
pub(crate) fn parse(frame: &[u8]) -> Option<Heard> {
    let (header, payload) = frame.split_at_checked(HEADER)?;
    match u16::from_be_bytes(header[12..].try_into().ok()?) {
        ARP => parse_arp(payload),
        IPV6 => parse_message(header, payload),
        _ => None,
    }
}

fn parse_arp(packet: &[u8]) -> Option<Heard> {
    let packet: &[u8; ARP_LEN] = packet.first_chunk()?;
    let ip = |at: usize| -> Option<Ipv4Addr> {
        Some(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?.into())
    };
    let mac = Mac::try_from(&packet[8..14]).ok().filter(|mac| is_station(*mac))?;
    if packet[..6] != KINDS || packet[6] != 0 {
        return None;
    }
    let (sender, target) = (ip(14)?, ip(24)?);
    let is_host = !(sender.is_multicast() || sender.is_broadcast());
    let ip = (is_host && !sender.is_unspecified()).then_some(sender.into());
    match packet[7] {
        REQUEST if is_host => Some(Heard::Asked { ip, mac, target: target.into() }),
        REPLY => Some(Heard::Told { ip: ip?, mac }),
        _ => None,
    }
}

fn parse_message(header: &[u8], packet: &[u8]) -> Option<Heard> {
    let (ip, rest) = packet.split_at_checked(IP)?;
    let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let message = rest.get(..len).filter(|message| message.len() >= MESSAGE)?;
    if ip[0] >> 4 != 6 || ip[6] != ICMP || ip[7] != HOPS || message[1] != 0 {
        return None;
    }
    let address = |at: &[u8]| <[u8; 16]>::try_from(at).ok().map(Ipv6Addr::from);
    let (source, to, target) =
        (address(&ip[8..24])?, address(&ip[24..40])?, address(&message[8..24])?);
    if sum(source, to, message) != 0 || target.is_multicast() || source.is_multicast() {
        return None;
    }
    match message[0] {
        SOLICITATION => {
            let ip = (!source.is_unspecified()).then_some(source.into());
            // A unicast solicitation may omit the source link-layer address option (RFC 4861,
            // 7.2.2): take the Ethernet source address.
            let told = option(&message[MESSAGE..], SOURCE_ADDRESS)?;
            let sender = Mac::try_from(&header[6..12]).ok().filter(|mac| is_station(*mac));
            let mac = told.or(sender)?;
            Some(Heard::Asked { ip, mac, target: target.into() })
        }
        ADVERTISEMENT => {
            let mac = option(&message[MESSAGE..], TARGET_ADDRESS)??;
            Some(Heard::Told { ip: target.into(), mac })
        }
        _ => None,
    }
}

/// MAC address in an option of type `kind`. `Some(None)`: the option is absent. `None`: the options
/// are malformed.
#[expect(clippy::option_option, reason = "malformed options differ from missing ones")]
fn option(mut options: &[u8], kind: u8) -> Option<Option<Mac>> {
    let mut found = None;
    while let [this, units, ..] = *options {
        let (option, rest) = options.split_at_checked(8 * usize::from(units))?;
        if units == 0 {
            return None;
        }
        if this == kind {
            let mac = Mac::try_from(option.get(2..8)?).ok().filter(|mac| is_station(*mac))?;
            found = Some(mac);
        }
        options = rest;
    }
    options.is_empty().then_some(found)
}

/// Checksum of a message with its pseudo-header (RFC 4443, 2.3); 0 if it is right.
fn sum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let len = (message.len() as u32).to_be_bytes();
    let all = [&from.octets()[..], &to.octets(), &len, &[0, 0, 0, ICMP], message].concat();
    let words = all
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |b| u32::from(*b)));
    let sum = words.fold(0u32, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    });
    !(sum as u16)
}

fn arp(operation: u8, (mac, ip): (Mac, Ipv4Addr), (to, target): (Mac, Ipv4Addr)) -> Vec<u8> {
    let (ip, target) = (ip.octets(), target.octets());
    [&KINDS[..], &[0, operation], &mac, &ip, &to, &target].concat()
}

fn message(
    from: Ipv6Addr,
    to: Ipv6Addr,
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    mac: Mac,
) -> Vec<u8> {
    let option = if kind == SOLICITATION { SOURCE_ADDRESS } else { TARGET_ADDRESS };
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message.extend([option, 1]);
    message.extend(mac);
    let sum = sum(from, to, &message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let [high, low] = (message.len() as u16).to_be_bytes();
    let first = [0x60, 0, 0, 0, high, low, ICMP, HOPS];
    [&first[..], &from.octets(), &to.octets(), &message].concat()
}

/// Group of an address' solicitations (RFC 4291, 2.7.1), and its MAC address.
pub(crate) fn solicited(ip: Ipv6Addr) -> (Ipv6Addr, Mac) {
    let [.., a, b, c] = ip.octets();
    let mut group = [0; 16];
    group[..2].copy_from_slice(&[0xff, 0x02]);
    group[11..].copy_from_slice(&[1, 0xff, a, b, c]);
    (group.into(), [0x33, 0x33, 0xff, a, b, c])
}

/// Frame by which the station `mac`, `ip` asks for `target`; `None` for two families.
pub(crate) fn ask(mac: Mac, ip: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    match (ip, target) {
        (IpAddr::V4(ip), IpAddr::V4(target)) => {
            Some(frame(BROADCAST, mac, ARP, &arp(REQUEST, (mac, ip), ([0; 6], target))))
        }
        (IpAddr::V6(ip), IpAddr::V6(target)) => {
            let (group, to) = solicited(target);
            Some(frame(to, mac, IPV6, &message(ip, group, SOLICITATION, 0, target, mac)))
        }
        _ => None,
    }
}

/// Frame by which the station `mac` tells a station `to` that it has `ip`. `asker`: address of the
/// other station, if it has one.
pub(crate) fn tell(mac: Mac, ip: IpAddr, to: Mac, asker: Option<IpAddr>) -> Option<Vec<u8>> {
    /// All nodes of the link, to whom an answer goes for a station without an address.
    const ALL: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    match (ip, asker) {
        (IpAddr::V4(ip), asker) => {
            let Some(IpAddr::V4(asker)) = asker.or(Some(Ipv4Addr::UNSPECIFIED.into())) else {
                return None;
            };
            Some(frame(to, mac, ARP, &arp(REPLY, (mac, ip), (to, asker))))
        }
        (IpAddr::V6(ip), Some(IpAddr::V6(asker))) => {
            let flags = SOLICITED | OVERRIDE;
            Some(frame(to, mac, IPV6, &message(ip, asker, ADVERTISEMENT, flags, ip, mac)))
        }
        (IpAddr::V6(ip), None) => {
            Some(frame(ALL_NODES, mac, IPV6, &message(ip, ALL, ADVERTISEMENT, OVERRIDE, ip, mac)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: Mac = [2, 0, 0, 0, 0, 1];
    const TWO: Mac = [2, 0, 0, 0, 0, 2];
    const PAIRS: [[&str; 2]; 2] = [["10.0.0.1", "10.0.0.2"], ["2001:db8::1", "2001:db8::2"]];

    #[test]
    fn an_arp_request_has_the_bytes_of_rfc_826() {
        let frame = ask(ONE, "10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()).unwrap();
        let bytes = [
            &[0xff; 6][..],
            &ONE,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &ONE,
            &[10, 0, 0, 1],
            &[0; 6],
            &[10, 0, 0, 2],
        ]
        .concat();
        assert_eq!(frame, bytes);
    }

    #[test]
    fn a_tag_is_behind_the_addresses() {
        let bytes = frame(ONE, TWO, ARP, &[7]);
        assert_eq!(tag(bytes.clone(), None), bytes);
        let tagged = tag(bytes.clone(), Some(0x123));
        assert_eq!(tagged[..12], bytes[..12]);
        assert_eq!(tagged[12..], [0x81, 0, 0x01, 0x23, 8, 6, 7]);
        assert_eq!(untag(&tagged), (Some(0x123), bytes.clone().into()));
        assert_eq!(untag(&bytes), (None, bytes.clone().into()));
        let mut priority = tag(bytes.clone(), Some(0));
        priority[14] = 0xe0;
        assert_eq!(untag(&priority), (None, bytes.into()));
        assert_eq!(untag(&tagged[..15]), (None, tagged[..15].into()), "a cut tag");
        assert_eq!(untag(&[]), (None, [][..].into()));
    }

    #[test]
    fn questions_and_answers_come_back() {
        for [own, peer] in PAIRS {
            let [own, peer]: [IpAddr; 2] = [own, peer].map(|ip| ip.parse().unwrap());
            let asked = Heard::Asked { ip: Some(own), mac: ONE, target: peer };
            assert_eq!(parse(&ask(ONE, own, peer).unwrap()), Some(asked));
            let told = Some(Heard::Told { ip: peer, mac: TWO });
            assert_eq!(parse(&tell(TWO, peer, ONE, Some(own)).unwrap()), told);
            assert!(tell(TWO, peer, ONE, None).is_some_and(|frame| parse(&frame).is_some()));
        }
    }

    #[test]
    fn a_frame_that_is_cut_or_changed_says_nothing() {
        for [own, peer] in PAIRS {
            let [own, peer]: [IpAddr; 2] = [own, peer].map(|ip| ip.parse().unwrap());
            for frame in [ask(ONE, own, peer), tell(TWO, peer, ONE, Some(own))].map(Option::unwrap)
            {
                for len in 0..frame.len() {
                    assert_eq!(parse(&frame[..len]), None, "{len}");
                }
                // Types, lengths, version, hop limit, checksum.
                let fixed = if own.is_ipv4() { 12..21 } else { 12..22 };
                for at in fixed.filter(|at| own.is_ipv4() || !(15..18).contains(at)) {
                    let mut other = frame.clone();
                    other[at] ^= 0x90;
                    assert_eq!(parse(&other), None, "{at}");
                }
            }
        }
        // A group is no station.
        let group = [1, 0, 0, 0, 0, 1];
        assert_eq!(
            parse(&ask(group, PAIRS[0][0].parse().unwrap(), PAIRS[0][1].parse().unwrap()).unwrap()),
            None
        );
        assert_eq!(option(&[1, 0, 0, 0, 0, 0, 0, 0], 1), None, "an option of no length");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(bytes: Vec<u8>, kind in prop_oneof![Just(ARP), Just(IPV6)]) {
            let _ = parse(&bytes);
            let _ = parse(&untag(&bytes).1);
            let _ = parse(&frame(ONE, TWO, kind, &bytes));
            let _ = option(&bytes, 1);
        }
    }
}
