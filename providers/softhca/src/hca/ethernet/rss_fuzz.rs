//! Fuzz target: headers and hash of an arbitrary frame.

use super::*;
use crate::feed::Feed;
use crate::hca::ethernet::headers::L4;
use uverbs_front::backend::steering::Selector;

/// Headers of any frame lie within it. Its hash equals the definition's, in both directions if it
/// is symmetric.
pub(crate) fn ethernet(data: &[u8]) {
    let mut feed = Feed::new(data);
    let bits = feed.u8();
    let fields = u32::from(feed.u8()) & FIELDS;
    let function = match bits >> 2 & 3 {
        0 => HashFunction::None,
        1 => HashFunction::InvertedXor8,
        _ => HashFunction::Toeplitz,
    };
    let context = HashContext {
        function,
        symmetric: bits & 16 != 0,
        key: std::array::from_fn(|_| feed.u8()),
        selector: Selector { ipv6: bits & 1 != 0, udp: bits & 2 != 0, fields },
    };
    let frame = feed.bytes(usize::MAX);
    let mut headers = Headers::parse(frame);
    let Some(ip) = &headers.ip else {
        return assert_eq!(hash_of(&context, &headers), Hash::default());
    };
    assert!(ip.at <= ip.payload && ip.payload <= ip.end && ip.end <= frame.len(), "{ip:?}");
    let hash = hash_of(&context, &headers);
    assert_eq!(hash.value, number(&context, ip), "{context:?} {ip:?}");
    let of = |pair: [u32; 2]| pair.map(|field| fields & field != 0);
    let [ips, ports] = [of([SRC_IP, DST_IP]), of([SRC_PORT, DST_PORT])];
    if context.symmetric && ips[0] == ips[1] && ports[0] == ports[1] {
        if let Some(ip) = &mut headers.ip {
            std::mem::swap(&mut ip.src, &mut ip.dst);
            ip.l4 = ip.l4.map(|l4| L4 { src: l4.dst, dst: l4.src, ..l4 });
        }
        assert_eq!(hash_of(&context, &headers), hash, "the other direction");
    }
}

/// Hash of a packet by the definition, bit by bit.
fn number(context: &HashContext, ip: &Ip) -> u32 {
    let Selector { ipv6, udp, fields } = context.selector;
    if ip.v6 != ipv6 {
        return 0;
    }
    let mut bits = Vec::new();
    let mut put = |number: u128, count: u32| {
        bits.extend((0..count).rev().map(|bit| number >> bit & 1 != 0));
    };
    let mut pair = |[src, dst]: [u128; 2], [with_src, with_dst]: [u32; 2], count: u32| {
        let (with_src, with_dst) = (fields & with_src != 0, fields & with_dst != 0);
        // Linux uapi `ethtool.h`, `RXH_XFRM_SYM_OR_XOR`.
        let both = context.symmetric && with_src && with_dst;
        if with_src {
            put(if both { src | dst } else { src }, count);
        }
        if with_dst {
            put(if both { src ^ dst } else { dst }, count);
        }
    };
    let count = if ip.v6 { 128 } else { 32 };
    pair([ip.src, ip.dst].map(u128::from_be_bytes), [SRC_IP, DST_IP], count);
    if let Some(l4) = ip.l4.filter(|l4| l4.tcp != udp) {
        pair([l4.src, l4.dst].map(u128::from), [SRC_PORT, DST_PORT], 16);
    }
    if let Some(spi) = ip.spi.filter(|_| fields & IPSEC_SPI != 0) {
        put(spi.into(), 32);
    }
    let set = bits.iter().enumerate().filter(|(_, bit)| **bit).map(|(at, _)| at);
    let key = |bit: usize| {
        u32::from(context.key.get(bit / 8).map_or(0, |byte| byte >> (7 - bit % 8) & 1))
    };
    match context.function {
        HashFunction::None => 0,
        HashFunction::InvertedXor8 => set.fold(0, |all, bit| all ^ 1 << (bit % 8)),
        HashFunction::Toeplitz => {
            set.fold(0, |all, bit| all ^ (0..32).fold(0, |word, at| word << 1 | key(bit + at)))
        }
    }
}
