//! Messages between devices, and their layout on a wire.

use uverbs_kernel_abi::efa::io::{
    EFA_IO_COMP_STATUS_REMOTE_ERROR_ABORT, EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN, EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_STATUS, EFA_IO_COMP_STATUS_REMOTE_ERROR_FEATURE_MISMATCH,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR, EFA_IO_COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER,
    EFA_IO_RDMA_READ, EFA_IO_RDMA_WRITE, EFA_IO_SEND,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::message::{Checked, MAX_MESSAGE, MAX_RDMA, Refusal};
use super::request::Piece;
use crate::srd::Gid;

/// A message that its sender has checked, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parcel {
    /// The sending device.
    pub(crate) from: Gid,
    pub(crate) src_qpn: u16,
    pub(crate) qpn: u16,
    pub(crate) qkey: u32,
    pub(crate) is_srd: bool,
    pub(crate) op: u8,
    pub(crate) imm: Option<u32>,
    /// The target's memory, of READ and WRITE.
    pub(crate) remote: Option<Piece>,
    pub(crate) data: Vec<u8>,
}

/// A READ of a device on a wire, which waits until its answer would be sent soon.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) board: usize,
    /// The sender's number.
    pub(crate) number: u64,
    pub(crate) parcel: Parcel,
}

/// A message on the wire. The number is the sender's; the answer has it, too.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Letter {
    Request(u64, Parcel),
    Answer(u64, Checked<Vec<u8>>),
}

/// First byte.
const REQUEST: u8 = 0;
const ANSWER: u8 = 1;

/// Flags of a request.
const SRD: u8 = 1;
const IMMEDIATE: u8 = 2;

/// Outcomes of an answer.
const DONE: u8 = 0;
const FAILED: u8 = 1;
const NOT_READY: u8 = 2;

/// Statuses that a peer may tell.
const REMOTE_ERRORS: [u8; 8] = [
    EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_ABORT,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_STATUS,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER,
    EFA_IO_COMP_STATUS_REMOTE_ERROR_FEATURE_MISMATCH,
];

/// Bytes of a request without its data.
pub(crate) const HEADER: usize = size_of::<Request>();

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Request {
    kind: u8,
    op: u8,
    flags: u8,
    reserved: u8,
    src_qpn: U16,
    qpn: U16,
    number: U64,
    qkey: U32,
    imm: U32,
    addr: U64,
    len: U32,
    key: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Answer {
    kind: u8,
    outcome: u8,
    status: u8,
    reserved: [u8; 5],
    number: U64,
}

impl Parcel {
    /// Bytes of the request.
    pub(crate) fn request(&self, number: u64) -> Vec<u8> {
        let srd = if self.is_srd { SRD } else { 0 };
        let immediate = if self.imm.is_some() { IMMEDIATE } else { 0 };
        let remote = self.remote.unwrap_or(Piece { addr: 0, len: 0, key: 0 });
        let header = Request {
            kind: REQUEST,
            op: self.op,
            flags: srd | immediate,
            reserved: 0,
            src_qpn: self.src_qpn.into(),
            qpn: self.qpn.into(),
            number: number.into(),
            qkey: self.qkey.into(),
            imm: self.imm.unwrap_or(0).into(),
            addr: remote.addr.into(),
            len: remote.len.into(),
            key: remote.key.into(),
        };
        [header.as_bytes(), &self.data].concat()
    }

    /// True if a device could have sent it.
    fn is_possible(&self) -> bool {
        let len = self.data.len() as u64;
        match (self.op, self.remote) {
            (EFA_IO_SEND, None) => len <= MAX_MESSAGE.into(),
            (EFA_IO_RDMA_READ, Some(remote)) => {
                self.is_srd && len == 0 && self.imm.is_none() && remote.len <= MAX_RDMA
            }
            (EFA_IO_RDMA_WRITE, Some(remote)) => {
                self.is_srd && len == u64::from(remote.len) && remote.len <= MAX_RDMA
            }
            _ => false,
        }
    }
}

/// Bytes of an answer.
pub(crate) fn answer(number: u64, outcome: &Checked<Vec<u8>>) -> Vec<u8> {
    let (outcome, status, data) = match outcome {
        Ok(data) => (DONE, 0, &data[..]),
        Err(Refusal::Failed(status)) => (FAILED, *status, &[][..]),
        Err(Refusal::NotReady) => (NOT_READY, 0, &[][..]),
    };
    let header = Answer { kind: ANSWER, outcome, status, reserved: [0; 5], number: number.into() };
    [header.as_bytes(), data].concat()
}

impl Letter {
    /// Parses a message of a device; `None` if it is malformed.
    pub(crate) fn parse(from: Gid, bytes: &[u8]) -> Option<Self> {
        if *bytes.first()? == ANSWER {
            let (header, data) = Answer::read_from_prefix(bytes).ok()?;
            let outcome = match (header.outcome, header.status) {
                (DONE, _) => Ok(data.to_vec()),
                (NOT_READY, _) => Err(Refusal::NotReady),
                (FAILED, status) if REMOTE_ERRORS.contains(&status) => Err(Refusal::Failed(status)),
                (FAILED, _) => Err(Refusal::Failed(EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_STATUS)),
                _ => return None,
            };
            return Some(Self::Answer(header.number.get(), outcome));
        }
        let (header, data) = Request::read_from_prefix(bytes).ok()?;
        let remote =
            Piece { addr: header.addr.get(), len: header.len.get(), key: header.key.get() };
        let parcel = Parcel {
            from,
            src_qpn: header.src_qpn.get(),
            qpn: header.qpn.get(),
            qkey: header.qkey.get(),
            is_srd: header.flags & SRD != 0,
            op: header.op,
            imm: (header.flags & IMMEDIATE != 0).then(|| header.imm.get()),
            remote: (header.op != EFA_IO_SEND).then_some(remote),
            data: data.to_vec(),
        };
        (header.kind == REQUEST && parcel.is_possible())
            .then(|| Self::Request(header.number.get(), parcel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_wire() {
        let from = [7; 16];
        let send = Parcel {
            from,
            src_qpn: 1,
            qpn: 0xfffe,
            qkey: 0x8765_4321,
            is_srd: true,
            op: EFA_IO_SEND,
            imm: Some(9),
            remote: None,
            data: vec![1, 2, 3],
        };
        let remote = Some(Piece { addr: u64::MAX, len: 3, key: 0xff_ffff });
        let write = Parcel { op: EFA_IO_RDMA_WRITE, imm: None, remote, ..send.clone() };
        let read = Parcel { op: EFA_IO_RDMA_READ, data: Vec::new(), ..write.clone() };
        for parcel in [send.clone(), write.clone(), read.clone()] {
            let bytes = parcel.request(5);
            assert_eq!(Letter::parse(from, &bytes), Some(Letter::Request(5, parcel)));
            assert_eq!(Letter::parse(from, &bytes[..39]), None);
        }
        let long = vec![0; MAX_MESSAGE as usize + 1];
        for bad in [
            Parcel { op: 3, ..send.clone() },
            Parcel { data: long, ..send },
            Parcel { data: vec![0; 4], ..write.clone() },
            Parcel { is_srd: false, ..write },
            Parcel { data: vec![0; 3], ..read },
        ] {
            assert_eq!(Letter::parse(from, &bad.request(5)), None, "{bad:?}");
        }
        for outcome in [Ok(vec![4; 9]), Err(Refusal::Failed(10)), Err(Refusal::NotReady)] {
            let bytes = answer(8, &outcome);
            assert_eq!(Letter::parse(from, &bytes), Some(Letter::Answer(8, outcome)));
        }
    }

    #[test]
    fn a_peer_tells_remote_errors_alone() {
        let told = |status| {
            let bytes = answer(8, &Err(Refusal::Failed(status)));
            Letter::parse([7; 16], &bytes)
        };
        for status in 0..=u8::MAX {
            let is_remote = matches!(status, 7..=12 | 14 | 18);
            let expected = if is_remote { status } else { 12 };
            let outcome = Err(Refusal::Failed(expected));
            assert_eq!(told(status), Some(Letter::Answer(8, outcome)), "status {status}");
        }
        let mut bytes = answer(8, &Ok(Vec::new()));
        bytes[1] = 3;
        assert_eq!(Letter::parse([7; 16], &bytes), None, "an unknown outcome");
    }
}
