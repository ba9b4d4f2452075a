//! Copies of work that drivers have posted and the device is yet to fetch.

use super::device::Hca;
use super::dma::{Dma, RegionAccess};
use uverbs_front::backend::region::Region;

/// Rings and doorbell record of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingQp {
    /// QPN.
    pub qpn: u32,
    /// The doorbell record as it is in memory: RCV, then SND, big-endian.
    pub record: [u8; 8],
    /// The send ring, in WQEBBs.
    pub send: Option<PendingRing>,
    /// The receive ring, in WQEs.
    pub recv: Option<PendingRing>,
}

/// A ring, and its entries that the record has published and the device will fetch next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRing {
    /// Number of entries of the ring.
    pub entries: u32,
    /// Bytes of one entry.
    pub entry_bytes: u32,
    /// Counter of the first pending entry: number of entries before it, modulo 2^16.
    pub first: u16,
    /// The pending entries in a row, also across the end of the ring. Empty if the record is
    /// further ahead than the ring is long, or memory can't be read.
    pub bytes: Vec<u8>,
}

/// Doorbell record and pending WQEs of a shared receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSrq {
    /// SRQN.
    pub srqn: u32,
    /// The doorbell record as it is in memory: RCV, big-endian.
    pub record: [u8; 4],
    /// Slot of the first pending WQE.
    pub slot: u16,
    /// The pending WQEs in the order of the list, each with its link.
    pub ring: PendingRing,
}

/// Doorbell record of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCq {
    /// CQN.
    pub cqn: u32,
    /// The doorbell record as it is in memory: SET_CI, then ARM, big-endian.
    pub record: [u8; 8],
}

impl Hca {
    /// Rings and records of all queue pairs, by number.
    pub(crate) fn pending_qps(&self) -> Vec<PendingQp> {
        let dma = &*self.common.dma;
        let all = self.qps.values().map(|qp| {
            let record = record(dma, qp.ctx.doorbell_record);
            let published = |word: usize| u16::from_be_bytes([record[word + 2], record[word + 3]]);
            PendingQp {
                qpn: qp.qpn.0,
                record,
                send: qp.ctx.sq.as_ref().map(|sq| {
                    let size = (1 << sq.log_wqebbs, 64);
                    ring(dma, &sq.region, size, qp.sq_fetched, published(4))
                }),
                recv: qp.ctx.rq.as_ref().map(|rq| {
                    let size = (1 << rq.log_entries, 1 << rq.stride_shift);
                    ring(dma, &rq.region, size, qp.rq_taken, published(0))
                }),
            }
        });
        all.collect()
    }

    /// Rings and records of all shared receive queues, by number.
    pub(crate) fn pending_srqs(&self) -> Vec<PendingSrq> {
        let dma = &*self.common.dma;
        let all = self.common.srqs.iter().map(|(srqn, srq)| {
            let record = dma.load_u32(srq.ctx.doorbell_record).unwrap_or_default().to_ne_bytes();
            let published = u16::from_be_bytes([record[2], record[3]]);
            let (first, slot) = srq.next();
            let size = (1 << srq.ctx.log_entries, 1 << srq.ctx.stride_shift);
            let ring = list(dma, &srq.ctx.region, size, (first, slot), published);
            PendingSrq { srqn: srqn.0, record, slot, ring }
        });
        all.collect()
    }

    /// Records of all completion queues, by number.
    pub(crate) fn pending_cqs(&self) -> Vec<PendingCq> {
        let all = self.common.cqs.cqs.iter().map(|(&cqn, cq)| PendingCq {
            cqn: cqn.0,
            record: record(&*self.common.dma, cq.ctx.doorbell_record),
        });
        all.collect()
    }
}

/// Reads a doorbell record; zeros if it can't be read.
fn record(dma: &dyn Dma, addr: u64) -> [u8; 8] {
    // Word by word, as the driver stores it.
    let word = |addr| dma.load_u32(addr).unwrap_or_default().to_ne_bytes();
    let ([a, b, c, d], [e, f, g, h]) = (word(addr), word(addr + 4));
    [a, b, c, d, e, f, g, h]
}

fn ring(
    dma: &dyn Dma,
    region: &Region,
    (entries, entry_bytes): (u32, u32),
    first: u16,
    published: u16,
) -> PendingRing {
    let count = u32::from(published.wrapping_sub(first));
    let mut bytes = Vec::new();
    if count <= entries {
        for index in 0..count {
            let at = (u32::from(first) + index) % entries;
            let mut entry = vec![0; entry_bytes as usize];
            if region.read(dma, u64::from(at * entry_bytes), &mut entry).is_err() {
                bytes.clear();
                break;
            }
            bytes.append(&mut entry);
        }
    }
    PendingRing { entries, entry_bytes, first, bytes }
}

/// As [`ring`], for WQEs linked into a list (`struct mlx5_wqe_srq_next_seg`).
fn list(
    dma: &dyn Dma,
    region: &Region,
    (entries, entry_bytes): (u32, u32),
    (first, mut slot): (u16, u16),
    published: u16,
) -> PendingRing {
    let count = u32::from(published.wrapping_sub(first));
    let mut bytes = Vec::new();
    for _ in 0..if count <= entries { count } else { 0 } {
        let at = u64::from(u32::from(slot) % entries * entry_bytes);
        let mut entry = vec![0; entry_bytes as usize];
        if region.read(dma, at, &mut entry).is_err() {
            bytes.clear();
            break;
        }
        slot = u16::from_be_bytes([entry[2], entry[3]]);
        bytes.append(&mut entry);
    }
    PendingRing { entries, entry_bytes, first, bytes }
}
