//! Parses captures (`src/capture.rs`), and finds the meaningful bytes of a WQE.

use std::collections::BTreeMap;
use std::ops::Range;

use uverbs_mlx5_prm::wqe::Service;

/// Bytes of half a BlueFlame register.
pub(crate) const HALF: usize = 256;

/// Name of the case for completions before the first capture.
pub(crate) const BEFORE: &str = "before the first";

/// Ring with its pending entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) entries: u32,
    pub(crate) stride: usize,
    pub(crate) first: u16,
    pub(crate) bytes: Vec<u8>,
}

/// Captured state of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Doorbell records, by `qp` or `cq` and number.
    pub(crate) records: BTreeMap<String, Vec<u8>>,
    pub(crate) sends: BTreeMap<u32, Ring>,
    pub(crate) recvs: BTreeMap<u32, Ring>,
    /// Shared receive queues: slot of the first pending WQE, and pending WQEs in list order.
    pub(crate) lists: BTreeMap<u32, (u32, Ring)>,
    /// Contents of doorbell pages, by page and offset, in units of half a register.
    pub(crate) registers: BTreeMap<(u32, usize), Vec<u8>>,
    /// Completions, and the hash of the memory at the end.
    pub(crate) notes: Vec<String>,
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn hexadecimal(text: &str) -> u32 {
    u32::from_str_radix(text, 16).unwrap()
}

/// Parses captures.
pub(crate) fn read(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("case ") {
            cases.push(Case { name: name.to_owned(), ..Case::default() });
            continue;
        }
        if cases.is_empty() {
            cases.push(Case { name: BEFORE.to_owned(), ..Case::default() });
        }
        let case = cases.last_mut().unwrap();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["srq", number, "record", record] => {
                case.records.insert(format!("srq {number}"), hex(record));
            }
            [kind @ ("qp" | "cq"), number, "record", first, second] => {
                case.records.insert(format!("{kind} {number}"), hex(&format!("{first}{second}")));
            }
            ["sq", qpn, entries, first, bytes] => {
                let entries = entries.parse().unwrap();
                let (first, bytes) = (hexadecimal(first) as u16, hex(bytes));
                case.sends.insert(hexadecimal(qpn), Ring { entries, stride: 64, first, bytes });
            }
            ["rq", qpn, entries, stride, first, bytes] => {
                let (entries, stride) = (entries.parse().unwrap(), stride.parse().unwrap());
                let (first, bytes) = (hexadecimal(first) as u16, hex(bytes));
                case.recvs.insert(hexadecimal(qpn), Ring { entries, stride, first, bytes });
            }
            ["lq", srqn, entries, stride, first, slot, bytes] => {
                let (entries, stride) = (entries.parse().unwrap(), stride.parse().unwrap());
                let (first, bytes) = (hexadecimal(first) as u16, hex(bytes));
                let ring = Ring { entries, stride, first, bytes };
                case.lists.insert(hexadecimal(srqn), (hexadecimal(slot), ring));
            }
            ["uar", page, offset, bytes] => {
                let offset = hexadecimal(offset) as usize;
                let key = (hexadecimal(page), offset / HALF * HALF);
                let register = case.registers.entry(key).or_insert_with(|| vec![0; HALF]);
                let bytes = hex(bytes);
                register[offset % HALF..][..bytes.len()].copy_from_slice(&bytes);
            }
            _ => case.notes.push(line.to_owned()),
        }
    }
    cases
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_be_bytes(word.try_into().unwrap()))
}

/// Length of a WQE, from its control segment (`ds`).
pub(crate) fn wqe_bytes(bytes: &[u8]) -> usize {
    (word(bytes, 4) & 0x3f) as usize * 16
}

/// WQEs of a send ring, each `ds` times 16 bytes.
pub(crate) fn wqes(ring: &Ring) -> Vec<&[u8]> {
    let mut rest = &ring.bytes[..];
    let mut all = Vec::new();
    while !rest.is_empty() {
        let len = wqe_bytes(rest).clamp(16, rest.len().max(16)).min(rest.len());
        all.push(&rest[..len]);
        rest = &rest[len.next_multiple_of(ring.stride).min(rest.len())..];
    }
    all
}

/// Range of a datagram's address vector (`struct mlx5_wqe_av`).
pub(crate) const VECTOR: Range<usize> = 16..64;
/// LID in the address vector; for RoCE v2 the UDP source port.
pub(crate) const LID: Range<usize> = 30..32;

/// Tests for a datagram whose sender chose the UDP source port (0xc000 and up): its flow label is
/// 0, from which no port follows. libmlx5 takes a random one.
pub(crate) fn chose_port(wqe: &[u8], service: Service) -> bool {
    let lid = wqe.get(LID).map_or(0, |lid| u16::from_be_bytes([lid[0], lid[1]]));
    matches!(service, Service::Ud | Service::Dc) && word(wqe, 44) & 0xf_ffff == 0 && lid >= 0xc000
}

/// Meaningful bytes of a UMR: control segments, the fields of the key's context that the mask
/// names, and the list. libmlx5 leaves other bytes as they were.
fn umr_meaning(wqe: &[u8]) -> Vec<Range<usize>> {
    // Free flag; owner and variant.
    let mut ranges = vec![0..64, 64..65, 68..72];
    // With a list: rights, start and length.
    if wqe[20..22] != [0, 0] {
        ranges.extend([66..67, 80..96, 128..wqe.len()]);
    }
    ranges
}

/// Meaningful bytes of a send WQE. Left out: bytes after inline data; unless `all`, the immediate
/// field of operations without immediate data, which libmlx5's `ibv_wr_*` leave as it was; a UDP
/// port chosen by the sender.
pub(crate) fn meaning(wqe: &[u8], all: bool, service: Service) -> Vec<Range<usize>> {
    let opcode = word(wqe, 0) & 0xff;
    if opcode == 0x25 && wqe.len() >= 128 {
        return umr_meaning(wqe);
    }
    // Segment that names the peer's queue. libmlx5 leaves its twelve reserved bytes as they were.
    let named = match service {
        Service::Xrc if opcode != 0 => 16,
        // The address vector, which also tells whose Q_Key is used.
        Service::Dc if opcode != 0 => 48,
        _ => 0,
    };
    let (head, operands) = match opcode {
        _ if service == Service::Ud => (VECTOR.end, VECTOR.end),
        // Ethernet segment, with inline headers (`inline_hdr_sz`) or without.
        _ if service == Service::Raw && wqe.get(28..30) == Some(&[0, 0]) => (32, 32),
        _ if service == Service::Raw => (48, 48),
        // RDMA_WRITE, RDMA_WRITE_IMM, RDMA_READ: a remote address.
        0x08 | 0x09 | 0x10 => (32, 32),
        // ATOMIC_CS: two operands. ATOMIC_FA: one, and libmlx5 leaves the second as it was.
        0x11 => (48, 48),
        0x12 => (48, 40),
        // TAG_MATCHING: tag and mask. libmlx5 leaves them as they were if no tag is added.
        0x28 if wqe.get(16).is_some_and(|op| op >> 4 == 1) => (48, 48),
        0x28 => (48, 32),
        _ => (16, 16),
    };
    // SEND_INVAL, RDMA_WRITE_IMM, SEND_IMM.
    let immediate = all || matches!(opcode, 0x01 | 0x09 | 0x0b);
    let ctrl = if immediate { 16 } else { 12 };
    let (head, operands) = (named + head, named + operands);
    let mut ranges = vec![0..ctrl, 16..operands.min(wqe.len())];
    if service == Service::Xrc && named != 0 {
        ranges[1].end = 20;
        ranges.push(32..operands.min(wqe.len()));
    }
    if chose_port(wqe, service) {
        ranges[1].end = LID.start;
        ranges.push(LID.end..operands.min(wqe.len()));
    }
    let mut at = head;
    while at + 16 <= wqe.len() {
        let count = word(wqe, at);
        if count >> 31 == 0 {
            ranges.push(at..at + 16);
            at += 16;
        } else {
            let end = (at + 4 + (count & 0x7fff_ffff) as usize).min(wqe.len());
            ranges.push(at..end);
            at = end.next_multiple_of(16);
        }
    }
    ranges
}

/// Meaningful bytes of a shared receive WQE, which begins with the link to the next.
pub(crate) fn shared_meaning(wqe: &[u8]) -> Range<usize> {
    0..16 + recv_meaning(&wqe[16.min(wqe.len())..]).end
}

/// Meaningful bytes of a receive WQE: up to the segment that ends the list.
pub(crate) fn recv_meaning(wqe: &[u8]) -> Range<usize> {
    let segments = wqe.chunks(16);
    let end =
        segments.clone().position(|segment| (word(segment, 0), word(segment, 4)) == (0, 0x100));
    0..end.map_or(wqe.len(), |at| (at + 1) * 16)
}
