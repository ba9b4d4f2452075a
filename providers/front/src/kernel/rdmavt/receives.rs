//! Receives: taken from a program's ring into a receive queue of the device.

use std::collections::VecDeque;

use nix::errno::Errno;
use uverbs_kernel_abi::rvt::{rvt_rwqe, rvt_wqe_sge};
use uverbs_mlx5_prm::data::{mlx5_wqe_data_seg, mlx5_wqe_srq_next_seg};
use zerocopy::{FromBytes, IntoBytes};

use super::memory::{HEAD, Memory, Ring, TAIL};
use crate::backend::context::RqContext;
use crate::backend::region::Region;

/// Bytes of an SGE, and of the link segment of a shared queue's WQE.
const SEGMENT: u32 = 16;

/// Bytes of a ring's element.
pub(super) fn element(max_sge: u32) -> u64 {
    size_of::<rvt_rwqe>() as u64 + u64::from(max_sge) * u64::from(SEGMENT)
}

/// A ring of receives, and the device's queue behind it.
#[derive(Debug)]
pub(super) struct Receives {
    pub(super) ring: Ring,
    max_sge: u32,
    /// Next element to take. The program's `tail` follows when receives complete.
    taken: u32,
    /// The device's WQEs.
    wqes: Memory,
    /// Its doorbell record.
    record: Memory,
    log_entries: u8,
    stride_shift: u8,
    /// WQEs given to the device.
    posted: u16,
    /// Number of each WQE's work request.
    numbers: Vec<u64>,
    /// Free WQEs of a shared queue, in the order of their use.
    free: Option<VecDeque<u16>>,
}

impl Receives {
    /// A ring for `max_wr` receives, and a device queue for `most`, of several queue pairs if
    /// `shared`.
    pub(super) fn new(max_wr: u32, max_sge: u32, most: u32, shared: bool) -> Result<Self, Errno> {
        // One WQE of a list stays behind, as the link to the next.
        let entries = (most + 1).next_power_of_two();
        let segments = max_sge + u32::from(shared);
        let stride = (segments.max(1 + u32::from(shared)) * SEGMENT).next_power_of_two();
        Ok(Self {
            ring: Ring::new(max_wr, element(max_sge))?,
            max_sge,
            taken: 0,
            wqes: Memory::own(u64::from(entries) * u64::from(stride))?,
            record: Memory::own(8)?,
            log_entries: entries.trailing_zeros() as u8,
            stride_shift: stride.trailing_zeros() as u8,
            posted: 0,
            numbers: vec![0; entries as usize],
            free: shared.then(|| (0..entries as u16).collect()),
        })
    }

    /// Memory of the doorbell record.
    pub(super) fn doorbells(&self) -> &Memory {
        &self.record
    }

    /// Memory of the device's queue, and log2 of its WQEs and of their bytes.
    pub(super) fn queue(&self) -> (Region, u8, u8) {
        let len = 1u64 << (self.log_entries + self.stride_shift);
        (self.wqes.region(0, len), self.log_entries, self.stride_shift)
    }

    pub(super) fn context(&self) -> RqContext {
        let (region, log_entries, stride_shift) = self.queue();
        RqContext { region, log_entries, stride_shift }
    }

    /// Gives the device the receives in the ring. True if there was one.
    pub(super) fn pump(&mut self) -> bool {
        let head = self.ring.index(HEAD);
        let mut any = false;
        while self.taken != head {
            let element = self.ring.read(self.taken);
            if !self.post(&element) {
                break;
            }
            self.taken = self.ring.after(self.taken);
            any = true;
        }
        if any {
            self.record.store(0, u32::from(self.posted).to_be());
        }
        any
    }

    /// Writes a WQE. False if the device's queue is full.
    fn post(&mut self, element: &[u8]) -> bool {
        let Ok((head, list)) = rvt_rwqe::read_from_prefix(element) else { return false };
        let mut wqe = Vec::with_capacity(1 << self.stride_shift);
        let slot = match &mut self.free {
            None => self.posted & ((1 << self.log_entries) - 1),
            Some(free) => {
                let (Some(&slot), Some(&next)) = (free.front(), free.get(1)) else { return false };
                free.pop_front();
                let link =
                    mlx5_wqe_srq_next_seg { next_wqe_index: next.into(), ..Default::default() };
                wqe.extend_from_slice(link.as_bytes());
                slot
            }
        };
        let sges = list.chunks_exact(size_of::<rvt_wqe_sge>());
        let sges = sges.filter_map(|sge| rvt_wqe_sge::read_from_bytes(sge).ok());
        let count = u32::from(head.num_sge).min(self.max_sge);
        for sge in sges.take(count as usize).filter(|sge| sge.length != 0) {
            let segment = mlx5_wqe_data_seg::new(sge.length, sge.lkey, sge.addr);
            wqe.extend_from_slice(segment.as_bytes());
        }
        if wqe.len() < 1 << self.stride_shift {
            wqe.extend_from_slice(mlx5_wqe_data_seg::TERMINATOR.as_bytes());
        }
        self.wqes.write(u64::from(slot) << self.stride_shift, &wqe);
        if let Some(number) = self.numbers.get_mut(usize::from(slot)) {
            *number = head.wr_id;
        }
        self.posted = self.posted.wrapping_add(1);
        true
    }

    /// Ends the receive of a WQE. Returns its work request's number.
    pub(super) fn complete(&mut self, wqe: u16) -> u64 {
        let slot = wqe & ((1u32 << self.log_entries) - 1) as u16;
        if let Some(free) = &mut self.free {
            free.push_back(slot);
        }
        let tail = self.ring.index(TAIL);
        self.ring.memory.store(TAIL, self.ring.after(tail));
        self.numbers.get(usize::from(slot)).copied().unwrap_or_default()
    }

    /// Forgets the device's queue, which was reset. Receives that have not completed are taken
    /// again (`rvt_init_qp`).
    pub(super) fn reset(&mut self) {
        self.posted = 0;
        self.record.store(0, 0);
        self.taken = self.ring.index(TAIL);
    }

    /// Moves to a ring for `max_wr` receives (`rvt_modify_srq`).
    pub(super) fn resize(&mut self, max_wr: u32) -> Result<(), Errno> {
        let new = self.ring.resized(max_wr)?;
        self.taken = self.ring.between(self.ring.index(TAIL), self.taken);
        self.ring = new;
        Ok(())
    }
}
