//! Builds test packets byte by byte, as the RFCs draw them.

/// Headers of a test packet.
#[derive(Clone, Debug)]
pub(in super::super) struct Packet {
    dmac: [u8; 6],
    smac: [u8; 6],
    tags: Vec<(u16, u16)>,
    v6: bool,
    src: Vec<u8>,
    dst: Vec<u8>,
    class: u8,
    label: u32,
    ttl: u8,
    fragment: u16,
    tcp: bool,
    protocol: Option<u8>,
    sport: u16,
    dport: u16,
    seq: u32,
    flags: u16,
    payload: Vec<u8>,
    longer: u16,
}

impl Packet {
    /// IPv4's identification.
    pub(in super::super) const ID: u16 = 0x1234;

    pub(in super::super) fn tcp() -> Packet {
        Packet {
            dmac: [2, 0, 0, 0, 0, 1],
            smac: [2, 0, 0, 0, 0, 2],
            tags: Vec::new(),
            v6: false,
            src: vec![10, 0, 0, 2],
            dst: vec![10, 0, 0, 1],
            class: 0,
            label: 0,
            ttl: 64,
            fragment: 0,
            tcp: true,
            protocol: None,
            sport: 1000,
            dport: 2000,
            seq: 0,
            flags: 0x10,
            payload: b"what is carried".to_vec(),
            longer: 0,
        }
    }

    pub(in super::super) fn udp() -> Packet {
        Packet { tcp: false, ..Packet::tcp() }
    }

    pub(in super::super) fn to(self, dmac: [u8; 6]) -> Packet {
        Packet { dmac, ..self }
    }
    pub(in super::super) fn from(self, smac: [u8; 6]) -> Packet {
        Packet { smac, ..self }
    }
    /// Adds a VLAN tag: EtherType and TCI, from the outside in.
    pub(in super::super) fn tag(mut self, tpid: u16, tci: u16) -> Packet {
        self.tags.push((tpid, tci));
        self
    }
    pub(in super::super) fn v4(self, src: [u8; 4], dst: [u8; 4]) -> Packet {
        Packet { v6: false, src: src.to_vec(), dst: dst.to_vec(), ..self }
    }
    pub(in super::super) fn v6(self, src: [u8; 16], dst: [u8; 16]) -> Packet {
        Packet { v6: true, src: src.to_vec(), dst: dst.to_vec(), ..self }
    }
    pub(in super::super) fn class(self, class: u8) -> Packet {
        Packet { class, ..self }
    }
    pub(in super::super) fn label(self, label: u32) -> Packet {
        Packet { label, ..self }
    }
    pub(in super::super) fn ttl(self, ttl: u8) -> Packet {
        Packet { ttl, ..self }
    }
    pub(in super::super) fn fragment(self, fragment: u16) -> Packet {
        Packet { fragment, ..self }
    }
    pub(in super::super) fn protocol(self, protocol: u8) -> Packet {
        Packet { protocol: Some(protocol), ..self }
    }
    pub(in super::super) fn ports(self, sport: u16, dport: u16) -> Packet {
        Packet { sport, dport, ..self }
    }
    pub(in super::super) fn seq(self, seq: u32) -> Packet {
        Packet { seq, ..self }
    }
    pub(in super::super) fn flags(self, flags: u16) -> Packet {
        Packet { flags, ..self }
    }
    pub(in super::super) fn payload(self, payload: &[u8]) -> Packet {
        Packet { payload: payload.to_vec(), ..self }
    }

    /// Makes the IP length exceed the packet.
    pub(in super::super) fn longer(self, longer: u16) -> Packet {
        Packet { longer, ..self }
    }

    /// Bytes of the packet, with zero checksums.
    pub(in super::super) fn bytes(&self) -> Vec<u8> {
        let mut l4 = [self.sport.to_be_bytes(), self.dport.to_be_bytes()].concat();
        if self.tcp {
            l4.extend(self.seq.to_be_bytes());
            l4.extend(0u32.to_be_bytes());
            l4.extend((5 << 12 | self.flags).to_be_bytes());
            l4.extend([0xff, 0xff, 0, 0, 0, 0]);
        } else {
            l4.extend((8 + self.payload.len() as u16).to_be_bytes());
            l4.extend([0, 0]);
        }
        l4.extend(&self.payload);
        let protocol = self.protocol.unwrap_or(if self.tcp { 6 } else { 17 });
        let mut frame = [self.dmac, self.smac].concat();
        for (tpid, tci) in &self.tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        if self.v6 {
            frame.extend([0x86, 0xdd]);
            frame.extend((6 << 28 | u32::from(self.class) << 20 | self.label).to_be_bytes());
            frame.extend((l4.len() as u16 + self.longer).to_be_bytes());
            frame.extend([protocol, self.ttl]);
        } else {
            frame.extend([8, 0, 0x45, self.class]);
            frame.extend((20 + l4.len() as u16 + self.longer).to_be_bytes());
            frame.extend(Self::ID.to_be_bytes());
            frame.extend(self.fragment.to_be_bytes());
            frame.extend([self.ttl, protocol, 0, 0]);
        }
        frame.extend(&self.src);
        frame.extend(&self.dst);
        frame.extend(l4);
        frame
    }
}
