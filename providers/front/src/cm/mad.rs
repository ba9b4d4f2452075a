//! Messages of InfiniBand's connection manager, encoded as MADs (IBTA vol 1, 13.4 the header, 12.6
//! the messages).

/// Bytes of a MAD.
pub(crate) const MAD: usize = 256;
/// Bytes of the MAD header.
const HEADER: usize = 24;
/// Management class "communication management", version 2 (IBTA 16.7).
const CLASS: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
/// Method "Send", the only one of the class.
const METHOD_SEND: u8 = 0x03;

/// Bytes of private data in each message.
pub(crate) mod room {
    pub(crate) const REQ: usize = 92;
    pub(crate) const REP: usize = 196;
    pub(crate) const REJ: usize = 148;
    pub(crate) const SIDR_REQ: usize = 216;
    pub(crate) const SIDR_REP: usize = 136;
}

/// A message with its transaction id, which answers repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mad {
    pub(crate) tid: u64,
    pub(crate) message: Message,
}

/// Content of a message. "Local" is the sender, "remote" the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Req(Req),
    Rep(Rep),
    Rtu(Ids),
    Rej(Rej),
    Dreq { ids: Ids, remote_qpn: u32 },
    Drep(Ids),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
}

/// Communication ids of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) local: u32,
    pub(crate) remote: u32,
}

/// Enhanced connection establishment (IBTA 12.6.5.1 and 13.4.2): vendor options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ece {
    /// Vendor id of 24 bits; 0 for none.
    pub(crate) vendor: u32,
    /// Options, in the attribute modifier of the MAD header.
    pub(crate) options: u32,
}

/// Request for a connection (IBTA 12.6.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Req {
    pub(crate) local_id: u32,
    pub(crate) service_id: u64,
    pub(crate) ca_guid: u64,
    pub(crate) qpn: u32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    /// Transport: 0 RC, 1 UC, 3 the extended one.
    pub(crate) transport: u8,
    /// Extended transport: 1 XRC.
    pub(crate) extended: u8,
    pub(crate) flow_control: bool,
    /// First PSN that the receiver of this message must send with.
    pub(crate) psn: u32,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) mtu: u8,
    pub(crate) srq: bool,
    pub(crate) ece: Ece,
    pub(crate) sgid: [u8; 16],
    pub(crate) dgid: [u8; 16],
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) private: [u8; room::REQ],
}

/// Reply that accepts a request (IBTA 12.6.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rep {
    pub(crate) ids: Ids,
    pub(crate) qpn: u32,
    /// Queue pair of an XRC target ("EE context").
    pub(crate) eecn: u32,
    pub(crate) psn: u32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) ack_delay: u8,
    pub(crate) flow_control: bool,
    pub(crate) rnr_retry: u8,
    pub(crate) srq: bool,
    pub(crate) ece: Ece,
    pub(crate) ca_guid: u64,
    pub(crate) private: [u8; room::REP],
}

/// Rejection (IBTA 12.6.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rej {
    pub(crate) ids: Ids,
    /// Rejected message: 0 REQ, 1 REP, 2 none.
    pub(crate) message: u8,
    pub(crate) reason: u16,
    /// Additional information; the sender's GUID for a timeout.
    pub(crate) info: [u8; 8],
    pub(crate) private: [u8; room::REJ],
}

/// Request for a datagram queue pair (IBTA 12.11.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SidrReq {
    pub(crate) request_id: u32,
    pub(crate) service_id: u64,
    pub(crate) private: [u8; room::SIDR_REQ],
}

/// Answer with a datagram queue pair, or with an error status (IBTA 12.11.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SidrRep {
    pub(crate) request_id: u32,
    /// Status: 0 valid, 1 no such service, 2 rejected.
    pub(crate) status: u8,
    pub(crate) qpn: u32,
    pub(crate) service_id: u64,
    pub(crate) qkey: u32,
    pub(crate) private: [u8; room::SIDR_REP],
}

/// Attribute ids (IBTA table 105).
const REQ: u16 = 0x10;
const REJ: u16 = 0x12;
const REP: u16 = 0x13;
const RTU: u16 = 0x14;
const DREQ: u16 = 0x15;
const DREP: u16 = 0x16;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;

/// Timeout that this side requests from peers, as a code: 4.3 s (as Linux, `cma.c`,
/// CMA_CM_RESPONSE_TIMEOUT).
pub(crate) const RESPONSE_TIMEOUT: u8 = 20;
/// Repetitions of a message (`cma.c`, CMA_MAX_CM_RETRIES).
pub(crate) const MAX_RETRIES: u8 = 15;
/// Extended transport, and XRC among the extended ones (IBTA 12.6.5).
pub(crate) const EXTENDED: u8 = 3;
pub(crate) const XRC: u8 = 1;
/// LID of a path that leaves the subnet (IBTA 12.6.5.1, "permissive").
const NO_LID: u16 = 0xffff;

impl Mad {
    pub(crate) fn to_bytes(&self) -> [u8; MAD] {
        let mut bytes = [0; MAD];
        let (header, body) = bytes.split_at_mut(HEADER);
        header[..4].copy_from_slice(&[1, CLASS, CLASS_VERSION, METHOD_SEND]);
        header[8..16].copy_from_slice(&self.tid.to_be_bytes());
        header[16..18].copy_from_slice(&self.message.attribute().to_be_bytes());
        header[20..24].copy_from_slice(&self.message.modifier().to_be_bytes());
        self.message.write(&mut Body(body));
        bytes
    }

    /// Parses a message. `None` for invalid bytes, and for messages that this connection manager
    /// never uses.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MAD] = bytes.get(..MAD)?.try_into().ok()?;
        let (header, body) = bytes.split_at(HEADER);
        if header[..4] != [1, CLASS, CLASS_VERSION, METHOD_SEND] {
            return None;
        }
        let tid = u64::from_be_bytes(header[8..16].try_into().ok()?);
        let attribute = u16::from_be_bytes([header[16], header[17]]);
        let modifier = u32::from_be_bytes(header[20..24].try_into().ok()?);
        Some(Self { tid, message: Message::read(attribute, modifier, &Fields(body))? })
    }
}

/// Writer of a message body: big-endian fields at offsets behind the MAD header.
struct Body<'a>(&'a mut [u8]);

impl Body<'_> {
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.0[at..at + N].copy_from_slice(&bytes);
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, value.to_be_bytes());
    }

    fn u24(&mut self, at: usize, value: u32) {
        let [_, high, middle, low] = value.to_be_bytes();
        self.put(at, [high, middle, low]);
    }

    fn ids(&mut self, ids: Ids) {
        self.u32(0, ids.local);
        self.u32(4, ids.remote);
    }
}

/// Reader of a message body.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.get(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.get(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.get(at))
    }

    fn u24(&self, at: usize) -> u32 {
        let [high, middle, low] = self.get(at);
        u32::from_be_bytes([0, high, middle, low])
    }

    fn ids(&self) -> Ids {
        Ids { local: self.u32(0), remote: self.u32(4) }
    }
}

impl Message {
    fn attribute(&self) -> u16 {
        match self {
            Self::Req(_) => REQ,
            Self::Rep(_) => REP,
            Self::Rtu(_) => RTU,
            Self::Rej(_) => REJ,
            Self::Dreq { .. } => DREQ,
            Self::Drep(_) => DREP,
            Self::SidrReq(_) => SIDR_REQ,
            Self::SidrRep(_) => SIDR_REP,
        }
    }

    fn modifier(&self) -> u32 {
        match self {
            Self::Req(req) => req.ece.options,
            Self::Rep(rep) => rep.ece.options,
            _ => 0,
        }
    }

    fn write(&self, body: &mut Body<'_>) {
        match self {
            Self::Req(req) => req.write(body),
            Self::Rep(rep) => rep.write(body),
            Self::Rtu(ids) | Self::Drep(ids) => body.ids(*ids),
            Self::Rej(rej) => {
                body.ids(rej.ids);
                body.put(8, [rej.message << 6, (rej.info.len() as u8) << 1]);
                body.put(10, rej.reason.to_be_bytes());
                body.put(12, rej.info);
                body.put(84, rej.private);
            }
            Self::Dreq { ids, remote_qpn } => {
                body.ids(*ids);
                body.u24(8, *remote_qpn);
            }
            Self::SidrReq(req) => {
                body.u32(0, req.request_id);
                body.put(4, 0xffff_u16.to_be_bytes());
                body.put(8, req.service_id.to_be_bytes());
                body.put(16, req.private);
            }
            Self::SidrRep(rep) => {
                body.u32(0, rep.request_id);
                body.put(4, [rep.status]);
                body.u24(8, rep.qpn);
                body.put(12, rep.service_id.to_be_bytes());
                body.u32(20, rep.qkey);
                body.put(96, rep.private);
            }
        }
    }

    fn read(attribute: u16, modifier: u32, body: &Fields<'_>) -> Option<Self> {
        Some(match attribute {
            REQ => Self::Req(Req::read(modifier, body)),
            REP => Self::Rep(Rep::read(modifier, body)),
            RTU => Self::Rtu(body.ids()),
            REJ => Self::Rej(Rej {
                ids: body.ids(),
                message: body.0[8] >> 6,
                reason: body.u16(10),
                info: body.get(12),
                private: body.get(84),
            }),
            DREQ => Self::Dreq { ids: body.ids(), remote_qpn: body.u24(8) },
            DREP => Self::Drep(body.ids()),
            SIDR_REQ => Self::SidrReq(SidrReq {
                request_id: body.u32(0),
                service_id: body.u64(8),
                private: body.get(16),
            }),
            SIDR_REP => Self::SidrRep(SidrRep {
                request_id: body.u32(0),
                status: body.0[4],
                qpn: body.u24(8),
                service_id: body.u64(12),
                qkey: body.u32(20),
                private: body.get(96),
            }),
            _ => return None,
        })
    }
}

impl Req {
    fn write(&self, body: &mut Body<'_>) {
        body.u32(0, self.local_id);
        body.u24(5, self.ece.vendor);
        body.put(8, self.service_id.to_be_bytes());
        body.put(16, self.ca_guid.to_be_bytes());
        body.u24(32, self.qpn);
        body.put(35, [self.responder_resources]);
        body.put(39, [self.initiator_depth]);
        let flow_control = u8::from(self.flow_control);
        body.put(43, [RESPONSE_TIMEOUT << 3 | self.transport << 1 | flow_control]);
        body.u24(44, self.psn);
        body.put(47, [RESPONSE_TIMEOUT << 3 | self.retry]);
        body.put(48, 0xffff_u16.to_be_bytes());
        body.put(50, [self.mtu << 4 | self.rnr_retry]);
        body.put(51, [MAX_RETRIES << 4 | u8::from(self.srq) << 3 | self.extended]);
        body.put(52, NO_LID.to_be_bytes());
        body.put(54, NO_LID.to_be_bytes());
        body.put(56, self.sgid);
        body.put(72, self.dgid);
        body.put(92, [self.traffic_class, self.hop_limit]);
        body.put(95, [self.ack_timeout << 3]);
        body.put(140, self.private);
    }

    fn read(options: u32, body: &Fields<'_>) -> Self {
        Self {
            local_id: body.u32(0),
            service_id: body.u64(8),
            ca_guid: body.u64(16),
            qpn: body.u24(32),
            responder_resources: body.0[35],
            initiator_depth: body.0[39],
            transport: body.0[43] >> 1 & 3,
            extended: body.0[51] & 7,
            flow_control: body.0[43] & 1 != 0,
            psn: body.u24(44),
            retry: body.0[47] & 7,
            rnr_retry: body.0[50] & 7,
            mtu: body.0[50] >> 4,
            srq: body.0[51] & 8 != 0,
            ece: Ece { vendor: body.u24(5), options },
            sgid: body.get(56),
            dgid: body.get(72),
            traffic_class: body.0[92],
            hop_limit: body.0[93],
            ack_timeout: body.0[95] >> 3,
            private: body.get(140),
        }
    }
}

impl Rep {
    fn write(&self, body: &mut Body<'_>) {
        body.ids(self.ids);
        body.u24(12, self.qpn);
        body.u24(16, self.eecn);
        body.u24(20, self.psn);
        body.put(24, [self.responder_resources, self.initiator_depth]);
        body.put(26, [self.ack_delay << 3 | u8::from(self.flow_control)]);
        body.put(27, [self.rnr_retry << 5 | u8::from(self.srq) << 4]);
        let [_, high, middle, low] = self.ece.vendor.to_be_bytes();
        for (at, byte) in [(15, high), (19, middle), (23, low)] {
            body.put(at, [byte]);
        }
        body.put(28, self.ca_guid.to_be_bytes());
        body.put(36, self.private);
    }

    fn read(options: u32, body: &Fields<'_>) -> Self {
        let vendor = u32::from_be_bytes([0, body.0[15], body.0[19], body.0[23]]);
        Self {
            ids: body.ids(),
            qpn: body.u24(12),
            eecn: body.u24(16),
            psn: body.u24(20),
            responder_resources: body.0[24],
            initiator_depth: body.0[25],
            ack_delay: body.0[26] >> 3,
            flow_control: body.0[26] & 1 != 0,
            rnr_retry: body.0[27] >> 5,
            srq: body.0[27] & 0x10 != 0,
            ece: Ece { vendor, options },
            ca_guid: body.u64(28),
            private: body.get(36),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_read_is_written_again(attribute in 0x10u16..0x19, bytes: [u8; 232]) {
            let mut mad = [0; MAD];
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            mad[16..18].copy_from_slice(&attribute.to_be_bytes());
            mad[24..].copy_from_slice(&bytes);
            // Bytes outside of the fields are dropped, so a second round trip changes no byte.
            if let Some(read) = Mad::parse(&mad) {
                prop_assert_eq!(Mad::parse(&read.to_bytes()), Some(read));
            } else {
                prop_assert_eq!(attribute, 0x11);
            }
        }

        #[test]
        fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Mad::parse(&bytes);
        }
    }

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let req = Req {
            local_id: 0x0102_0304,
            service_id: 0x0106_1d2f,
            ca_guid: 0x1112_1314_1516_1718,
            qpn: 0x21_2223,
            responder_resources: 4,
            initiator_depth: 5,
            transport: 0,
            extended: 0,
            flow_control: true,
            psn: 0x31_3233,
            retry: 7,
            rnr_retry: 6,
            mtu: 5,
            srq: true,
            ece: Ece { vendor: 0x06_0708, options: 0x0a0b_0c0d },
            sgid: [0x41; 16],
            dgid: [0x42; 16],
            traffic_class: 0x43,
            hop_limit: 64,
            ack_timeout: 17,
            private: [0x51; room::REQ],
        };
        let mad = Mad { tid: 9, message: Message::Req(req) }.to_bytes();
        let body = &mad[24..];
        assert_eq!(mad[..4], [1, 7, 2, 3]);
        assert_eq!(mad[15..18], [9, 0, 0x10]);
        assert_eq!(mad[20..24], [0xa, 0xb, 0xc, 0xd]);
        assert_eq!(body[..8], [1, 2, 3, 4, 0, 6, 7, 8]);
        assert_eq!(body[32..36], [0x21, 0x22, 0x23, 4]);
        assert_eq!(body[39], 5);
        assert_eq!(body[43..48], [20 << 3 | 1, 0x31, 0x32, 0x33, 20 << 3 | 7]);
        assert_eq!(body[50..56], [5 << 4 | 6, 15 << 4 | 8, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(body[92..96], [0x43, 64, 0, 17 << 3]);
        assert_eq!(body[140], 0x51);
    }
    #[test]
    fn an_answers_vendor_lies_in_three_pieces() {
        let ids = Ids { local: 1, remote: 2 };
        let rep = Rep {
            ids,
            qpn: 0x21_2223,
            eecn: 0,
            psn: 0x31_3233,
            responder_resources: 4,
            initiator_depth: 5,
            ack_delay: 15,
            flow_control: true,
            rnr_retry: 6,
            srq: true,
            ece: Ece { vendor: 0x06_0708, options: 9 },
            ca_guid: 0,
            private: [0; room::REP],
        };
        let mad = Mad { tid: 9, message: Message::Rep(rep) }.to_bytes();
        let body = &mad[24..];
        assert_eq!(mad[20..24], [0, 0, 0, 9]);
        assert_eq!(body[12..16], [0x21, 0x22, 0x23, 6]);
        assert_eq!(body[19..24], [7, 0x31, 0x32, 0x33, 8]);
        assert_eq!(body[24..28], [4, 5, 15 << 3 | 1, 6 << 5 | 1 << 4]);
    }
}
