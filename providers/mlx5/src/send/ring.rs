//! Addresses of WQEBBs in a send ring, and copies around its end.
#![allow(unsafe_code, reason = "copies into and out of a ring by raw address")]

use uverbs_core::order::device_memory;
use uverbs_core::queues::slot::SLOT_BYTES;
use uverbs_mlx5_prm::ctrl::MLX5_SEND_WQE_BB;

/// Address of the WQEBB whose slot is at `offset`, in the ring that begins at `start`: a WQEBB has
/// four times a slot's size.
#[inline(always)]
pub(crate) fn unit_at(start: *mut u8, offset: usize) -> *mut u8 {
    start.wrapping_add(offset * (MLX5_SEND_WQE_BB / SLOT_BYTES))
}

/// A ring of WQEBBs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) start: *mut u8,
    /// Number of WQEBBs, a power of two, minus one.
    pub(crate) mask: u32,
}

impl Ring {
    /// Address of the WQEBB with this free-running index.
    #[inline(always)]
    pub(crate) fn unit(self, index: u32) -> *mut u8 {
        self.start.wrapping_add((index & self.mask) as usize * MLX5_SEND_WQE_BB)
    }

    /// True if `units` WQEBBs (at least one) from `index` wrap around the end. The compiler sees
    /// that one WQEBB never wraps.
    #[inline(always)]
    pub(crate) fn wraps(self, index: u32, units: u32) -> bool {
        (index & self.mask) + units.wrapping_sub(1) > self.mask
    }

    /// Copies `bytes` to the WQEBBs from `index` on, around the end, beginning at byte `offset`.
    ///
    /// # Safety
    ///
    /// The ring is valid for writes, no other thread accesses the destination now, and `offset` and
    /// `bytes` together are no longer than the ring.
    pub(crate) unsafe fn copy_in(self, index: u32, offset: usize, bytes: &[u8]) {
        debug_assert!(offset < MLX5_SEND_WQE_BB);
        let room = (self.mask + 1 - (index & self.mask)) as usize * MLX5_SEND_WQE_BB - offset;
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        let to = self.unit(index).wrapping_add(offset);
        // SAFETY: up to the end of the ring.
        unsafe { device_memory::copy(first.as_ptr(), to, first.len()) };
        // SAFETY: the rest, from the ring's start; it is no longer than the ring.
        unsafe { device_memory::copy(rest.as_ptr(), self.start, rest.len()) };
    }

    /// Copies up to `to.len()` bytes from the WQEBB `index` on, around the end, at most the whole
    /// ring.
    ///
    /// # Safety
    ///
    /// The ring is valid for reads, and no thread writes it now.
    pub(crate) unsafe fn copy_out(self, index: u32, to: &mut [u8]) -> &[u8] {
        let all = (self.mask + 1) as usize * MLX5_SEND_WQE_BB;
        let room = (self.mask + 1 - (index & self.mask)) as usize * MLX5_SEND_WQE_BB;
        let len = to.len().min(all);
        let (first, rest) = to[..len].split_at_mut(room.min(len));
        // SAFETY: up to the end of the ring.
        unsafe { std::ptr::copy_nonoverlapping(self.unit(index), first.as_mut_ptr(), first.len()) };
        // SAFETY: the rest, from the ring's start; it is no longer than the ring.
        unsafe { std::ptr::copy_nonoverlapping(self.start, rest.as_mut_ptr(), rest.len()) };
        &to[..len]
    }
}
