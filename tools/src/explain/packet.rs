//! Packets: InfiniBand transport headers, and the headers of RoCEv2 before them.

use std::net::{Ipv4Addr, Ipv6Addr};

use uverbs_softhca::wire::Syndrome;
use uverbs_softhca::wire::crc32;
use uverbs_softhca::wire::{Bth, Packet};

use super::report::{Explained, Structure, Wrong};

const ROCE_PORT: u16 = 4791;
const UDP: u8 = 17;
const BTH: usize = 12;
const ICRC: usize = 4;

/// Headers before the BTH, if present.
#[derive(Default)]
struct Before {
    structures: Vec<Structure>,
    /// Bytes of these headers that the ICRC covers, with ones in the fields that a router may
    /// change; empty without an IP header.
    covered: Vec<u8>,
}

pub(super) fn explain(bytes: &[u8]) -> Result<Explained, Wrong> {
    let wrong = |why: String| (bytes.len(), why);
    let mut before = Before::default();
    let transport = before.strip(bytes).map_err(wrong)?;
    // Parsed with an ICRC of 0, which means "not computed"; the ICRC is checked below.
    let mut plain = transport.to_vec();
    let Some((_, icrc)) = plain.split_last_chunk_mut::<ICRC>() else {
        return Err(wrong(format!("a packet has {} at least", BTH + ICRC)));
    };
    let found = u32::from_le_bytes(std::mem::take(icrc));
    let packet = Packet::parse(&plain).map_err(|error| wrong(error.to_string()))?;
    let mut structures = before.structures;
    structures.push(bth(packet.bth()));
    extensions(&packet, &mut structures);
    let payload = packet.payload();
    if !payload.is_empty() {
        let digits: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        structures
            .push(Structure::new("payload").note("length", payload.len()).note("data", digits));
    }
    let mut covered = if before.covered.is_empty() {
        Vec::new()
    } else {
        [vec![0xff; 8], before.covered].concat()
    };
    covered.extend(&transport[..transport.len() - ICRC]);
    let congestion = covered.len() - (transport.len() - ICRC) + 4;
    covered[congestion] = 0xff;
    let computed = crc32(&covered);
    let verdict = match found {
        _ if found == computed => "right".to_owned(),
        0 => "none".to_owned(),
        _ => format!("wrong: the bytes give {computed:#010x}"),
    };
    structures.push(Structure::new("ICRC").note("value", format!("{found:#010x} {verdict}")));
    let what = format!("{:?}, PSN {}", packet.opcode(), packet.psn());
    Ok(Explained::new(what, structures))
}

impl Before {
    /// Removes Ethernet, IP and UDP headers, from any of them on.
    fn strip<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let mut rest = bytes;
        let mut kind = kind(bytes);
        if kind == Kind::Ethernet {
            let (header, behind) = cut(rest, 14, "an Ethernet header")?;
            self.structures.push(
                Structure::new("Ethernet")
                    .at(0, "destination", mac(&header[..6]))
                    .at(6, "source", mac(&header[6..12]))
                    .at(12, "type", format!("{:#06x}", two(header, 12))),
            );
            rest = behind;
            kind = if rest.first().is_some_and(|first| first >> 4 == 6) {
                Kind::Ipv6
            } else {
                Kind::Ipv4
            };
        }
        if kind == Kind::Ipv4 {
            rest = self.ipv4(rest)?;
        } else if kind == Kind::Ipv6 {
            rest = self.ipv6(rest)?;
        }
        if kind == Kind::Transport { Ok(rest) } else { self.udp(rest) }
    }

    fn ipv4<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let (header, rest) = cut(bytes, 20, "an IPv4 header")?;
        if header[0] != 0x45 || header[9] != UDP {
            return Err("an IPv4 header with options, or with something else than UDP".to_owned());
        }
        let address =
            |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        self.structures.push(
            Structure::new("IPv4")
                .at(1, "dscp", header[1] >> 2)
                .at(1, "ecn", header[1] & 3)
                .at(2, "length", two(header, 2))
                .at(4, "id", format!("{:#06x}", two(header, 4)))
                .at(8, "ttl", header[8])
                .at(12, "source", address(12))
                .at(16, "destination", address(16)),
        );
        let mut covered = header.to_vec();
        for at in [1, 8, 10, 11] {
            covered[at] = 0xff;
        }
        self.covered.extend(covered);
        // Removes Ethernet's padding.
        Ok(&rest[..rest.len().min(usize::from(two(header, 2)).saturating_sub(20))])
    }

    fn ipv6<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let (header, rest) = cut(bytes, 40, "an IPv6 header")?;
        if header[6] != UDP {
            return Err(
                "an IPv6 header with extensions, or with something else than UDP".to_owned()
            );
        }
        let word = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let address = |at: usize| {
            Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap_or_default())
        };
        self.structures.push(
            Structure::new("IPv6")
                .at(0, "dscp", word >> 22 & 0x3f)
                .at(0, "ecn", word >> 20 & 3)
                .at(0, "flow_label", format!("{:#07x}", word & 0xf_ffff))
                .at(4, "length", two(header, 4))
                .at(7, "hop_limit", header[7])
                .at(8, "source", address(8))
                .at(24, "destination", address(24)),
        );
        let mut covered = header.to_vec();
        covered[0] |= 0x0f;
        for at in [1, 2, 3, 7] {
            covered[at] = 0xff;
        }
        self.covered.extend(covered);
        Ok(&rest[..rest.len().min(usize::from(two(header, 4)))])
    }

    fn udp<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let (header, rest) = cut(bytes, 8, "an UDP header")?;
        let port = two(header, 2);
        if port != ROCE_PORT {
            return Err(format!("UDP port {port}: RoCEv2 has {ROCE_PORT}"));
        }
        self.structures.push(
            Structure::new("UDP")
                .at(0, "source_port", two(header, 0))
                .at(2, "destination_port", port)
                .at(4, "length", two(header, 4)),
        );
        if !self.covered.is_empty() {
            self.covered.extend(&header[..6]);
            self.covered.extend([0xff, 0xff]);
        }
        Ok(rest)
    }
}

/// The outermost header of the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ethernet,
    Ipv4,
    Ipv6,
    Udp,
    Transport,
}

/// Kind of packet by the fixed bytes of headers; otherwise it begins with a BTH.
fn kind(bytes: &[u8]) -> Kind {
    let is = |at: usize, wanted: &[u8]| bytes.get(at..at + wanted.len()) == Some(wanted);
    if (is(12, &[0x08, 0x00]) && is(14, &[0x45])) || is(12, &[0x86, 0xdd]) {
        Kind::Ethernet
    } else if is(0, &[0x45]) && is(9, &[UDP]) && is(22, &ROCE_PORT.to_be_bytes()) {
        Kind::Ipv4
    } else if bytes.first().is_some_and(|first| first >> 4 == 6)
        && is(6, &[UDP])
        && is(42, &ROCE_PORT.to_be_bytes())
    {
        Kind::Ipv6
    } else if is(2, &ROCE_PORT.to_be_bytes()) {
        Kind::Udp
    } else {
        Kind::Transport
    }
}

fn bth(bth: &Bth) -> Structure {
    Structure::new("BTH")
        .at(0, "opcode", format!("{:#04x} {:?}", bth.opcode, bth.opcode()))
        .at(1, "solicited", u8::from(bth.is_solicited()))
        .at(1, "migrated", u8::from(bth.flags & Bth::MIG_REQ != 0))
        .at(1, "pad_count", bth.pad_count())
        .at(1, "version", bth.version())
        .at(2, "pkey", format!("{:#06x}", bth.pkey.get()))
        .at(4, "fecn", u8::from(bth.congestion & Bth::FECN != 0))
        .at(4, "becn", u8::from(bth.congestion & Bth::BECN != 0))
        .at(5, "dest_qp", format!("{:#08x}", bth.dest_qp()))
        .at(8, "ack_request", u8::from(bth.is_ack_requested()))
        .at(9, "psn", bth.psn())
}

/// Extension headers of the opcode.
fn extensions(packet: &Packet<'_>, to: &mut Vec<Structure>) {
    to.extend(
        packet
            .xrceth()
            .map(|x| Structure::new("XRCETH").at(1, "srq", format!("{:#08x}", x.srq.get()))),
    );
    to.extend(packet.dceth().map(|x| {
        Structure::new("DCETH")
            .at(0, "key", format!("{:#018x}", x.key.get()))
            .at(9, "src_qp", format!("{:#08x}", x.src_qp.get()))
            .at(12, "connection", format!("{:#010x}", x.connection.get()))
    }));
    to.extend(packet.deth().map(|x| {
        Structure::new("DETH").at(0, "qkey", format!("{:#010x}", x.qkey.get())).at(
            5,
            "src_qp",
            format!("{:#08x}", x.src_qp.get()),
        )
    }));
    to.extend(packet.feth().map(|x| {
        Structure::new("FETH").at(3, "selectivity_level", x.level()).at(
            3,
            "placement_types",
            format!("{:#x}", x.placement()),
        )
    }));
    to.extend(packet.reth().map(|x| {
        Structure::new("RETH")
            .at(0, "va", format!("{:#018x}", x.va.get()))
            .at(8, "rkey", format!("{:#010x}", x.rkey.get()))
            .at(12, "dma_length", x.dma_length.get())
    }));
    to.extend(packet.atomic_eth().map(|x| {
        Structure::new("AtomicETH")
            .at(0, "va", format!("{:#018x}", x.va.get()))
            .at(8, "rkey", format!("{:#010x}", x.rkey.get()))
            .at(12, "swap_or_add", format!("{:#018x}", x.swap_or_add.get()))
            .at(20, "compare", format!("{:#018x}", x.compare.get()))
    }));
    to.extend(packet.aeth().map(|x| {
        Structure::new("AETH")
            .at(0, "syndrome", format!("{:#04x} {}", x.syndrome, syndrome(x.syndrome())))
            .at(1, "msn", x.msn())
    }));
    to.extend(packet.atomic_ack().map(|x| {
        Structure::new("AtomicAckETH").at(0, "original", format!("{:#018x}", x.original.get()))
    }));
    to.extend(
        packet
            .immdt()
            .map(|x| Structure::new("ImmDt").at(0, "imm", format!("{:#010x}", x.imm.get()))),
    );
    to.extend(
        packet
            .ieth()
            .map(|x| Structure::new("IETH").at(0, "rkey", format!("{:#010x}", x.rkey.get()))),
    );
}

fn syndrome(syndrome: Syndrome) -> String {
    format!("{syndrome:?}")
}

fn cut<'a>(bytes: &'a [u8], len: usize, what: &str) -> Result<(&'a [u8], &'a [u8]), String> {
    bytes.split_at_checked(len).ok_or_else(|| format!("{what} has {len}"))
}

fn two(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::hex;

    /// A SEND of four bytes with acknowledge request, made by scapy 2 (`scapy.contrib.roce`).
    const IPV4: &str = "0200000000020200000000010800456a0030123440002111331d0a0000010a000002\
        c00012b7001c9e490400ffff0000001280000005010203041072e222";
    const IPV6: &str = "02000000000202000000000186dd66a12345001c1107fd0000000000000000000000\
        00000001fd000000000000000000000000000002c00012b7001cc94b0400ffff000000128000000501020304\
        c94f1841";

    fn bytes(text: &str) -> Vec<u8> {
        hex::parse(text).unwrap()
    }

    #[test]
    fn another_programs_packets() {
        for (text, says) in [
            (IPV4, ["destination  10.0.0.2", "dscp         26", "ttl          33"]),
            (IPV6, ["destination  fd00::2", "flow_label   0x12345", "hop_limit    7"]),
        ] {
            let shown = explain(&bytes(text)).unwrap().to_string();
            assert!(shown.starts_with("RC_SEND_ONLY, PSN 0x000005\n"), "{shown}");
            for says in says.into_iter().chain(["data    01020304", " right"]) {
                assert!(shown.contains(says), "{says}:\n{shown}");
            }
        }
    }

    #[test]
    fn a_packet_is_found_from_each_of_its_headers_on() {
        let whole = bytes(IPV4);
        for (from, first) in [(0, "Ethernet"), (14, "IPv4"), (34, "UDP"), (42, "BTH")] {
            let shown = explain(&whole[from..]).unwrap().to_string();
            assert_eq!(shown.lines().nth(1), Some(first));
        }
    }

    #[test]
    fn a_changed_byte_is_told_unless_a_router_may_change_it() {
        let whole = bytes(IPV4);
        // Type of service, time to live, checksums, congestion bits.
        let may = [15, 22, 24, 25, 40, 41, 46];
        // Fields that the parser needs to find the next header.
        let read = [12, 13, 14, 16, 17, 23, 36, 37];
        for at in (14..whole.len()).filter(|at| !read.contains(at) && *at != 42 && *at != 43) {
            let mut changed = whole.clone();
            changed[at] ^= 0x20;
            let shown = explain(&changed).unwrap().to_string();
            assert_eq!(shown.contains(" right"), may.contains(&at), "{at}:\n{shown}");
        }
    }

    #[test]
    fn any_bytes_are_explained_or_refused() {
        let whole = bytes(IPV6);
        for len in 0..whole.len() {
            let _ = explain(&whole[..len]);
            for at in 0..len {
                let mut changed = whole[..len].to_vec();
                changed[at] ^= 0xff;
                let _ = explain(&changed);
            }
        }
    }
}
