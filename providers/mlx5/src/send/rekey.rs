//! Work requests that change local keys: window binds and invalidations. For the device each is a
//! UMR (PRM, "UMR"), as in rdma-core `qp.c:set_bind_wr`.
//!
//! The device may begin the WQE after a UMR before the UMR is complete, so that WQE needs a small
//! fence (PRM, "fence"). Posts don't check for UMRs: the queue remembers the end of the last UMR,
//! and sets the fence when the batch is rung or the next UMR is written.
//!
//! # Safety
//!
//! WQEs are written where `make_room` found room, behind the published index.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use uverbs_core::attr::AccessFlags;
use uverbs_core::order::device_memory;
use uverbs_core::queues::slot::RingPosition;
use uverbs_core::queues::work::{PostError, Rekey, WINDOW_MAX, WindowKind, Wr};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::umr::{
    AccessFlags as KeyAccess, MLX5_WQE_MKEY_CONTEXT_FREE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC as ATOMIC,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE as LOCAL_WRITE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ as REMOTE_READ,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE as REMOTE_WRITE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE as FREE, MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN as LEN,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY as MKEY, MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN as QPN,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR as START_ADDR, QpnMkey, UmrFlags,
    mlx5_wqe_mkey_context_seg, mlx5_wqe_umr_ctrl_seg, mlx5_wqe_umr_klm_seg,
};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::Sq;
use crate::send::queue::SendCursor;
use crate::send::wqe::{self, DS_PER_UNIT, Words};

/// QP number of keys that any queue pair may use.
pub(crate) const ANY_QPN: u32 = 0xff_ffff;
/// Octowords of a list with one entry: lists are padded to units of four.
const LIST: u16 = 4;

/// Segments after the control segment.
#[derive(FromZeros, IntoBytes, Immutable)]
#[repr(C)]
struct Segments {
    umr: mlx5_wqe_umr_ctrl_seg,
    mkey: mlx5_wqe_mkey_context_seg,
    list: [mlx5_wqe_umr_klm_seg; LIST as usize],
}

/// Bytes of a WQE without a list, and with a list.
const SHORT: usize = DS_BYTES + std::mem::offset_of!(Segments, list);
const LONG: usize = DS_BYTES + size_of::<Segments>();

pub(crate) fn key_access(access: AccessFlags) -> KeyAccess {
    KeyAccess::ZERO
        .with_local_write(access.contains(AccessFlags::LOCAL_WRITE))
        .with_remote_read(access.contains(AccessFlags::REMOTE_READ))
        .with_remote_write(access.contains(AccessFlags::REMOTE_WRITE))
        .with_atomic(access.contains(AccessFlags::REMOTE_ATOMIC))
}

/// Key whose context changes, and the segments.
fn segments(op: &Rekey, qpn: u32) -> (u32, Segments) {
    let mut all = Segments::new_zeroed();
    let mut flags = UmrFlags::ZERO.with_inline(true).with_translation_offset(true);
    let mut mask = FREE | MKEY;
    let key = match *op {
        Rekey::Bind { kind, old, new, lkey, addr, len, access } => {
            let of_queue = kind == WindowKind::Type2;
            let owner = if of_queue { qpn } else { ANY_QPN };
            if of_queue {
                (flags, mask) = (flags.with_check_free(true), mask | QPN);
            }
            let mkey = QpnMkey::ZERO.with_qpn(owner).with_mkey(new as u8);
            all.mkey.qpn_mkey = U32::new(mkey.0);
            if len == 0 {
                all.mkey.free = MLX5_WQE_MKEY_CONTEXT_FREE;
            } else {
                mask |= LEN | START_ADDR | LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | ATOMIC;
                all.umr.klm_octowords = U16::new(LIST);
                all.mkey.access_flags = key_access(access).0;
                all.mkey.start_addr = U64::new(addr);
                all.mkey.len = U64::new(len);
                all.list[0] = mlx5_wqe_umr_klm_seg {
                    // At most 2^31, checked by the caller.
                    byte_count: U32::new(len as u32),
                    mkey: U32::new(lkey),
                    address: U64::new(addr),
                };
            }
            old
        }
        Rekey::Invalidate { key } => {
            (flags, mask) = (flags.with_check_qpn(true), mask | QPN);
            all.mkey.free = MLX5_WQE_MKEY_CONTEXT_FREE;
            all.mkey.qpn_mkey = U32::new(QpnMkey::ZERO.with_qpn(ANY_QPN).0);
            key
        }
    };
    (all.umr.flags, all.umr.mkey_mask) = (flags.0, U64::new(mask));
    (key, all)
}

/// Adds the small fence to a control segment; any other fence is stronger, and stays.
fn behind_umr(ctrl: Words) -> Words {
    let [head, rest] = ctrl;
    // The fence is the highest three bits in the fourth byte of the second half
    // (`mlx5_wqe_ctrl_seg::fm_ce_se`).
    let byte = |bits: u8| (u64::from(bits) << 32).to_be();
    if rest & byte(0b111 << 5) != 0 {
        return ctrl;
    }
    [head, rest | byte(MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE)]
}

impl Sq {
    /// Posts a UMR. Takes the cursor by value, so that a batch stays in registers.
    ///
    /// # Safety
    ///
    /// See [`SendOps::rekey`](uverbs_core::provider::SendOps::rekey).
    #[inline(never)]
    pub(crate) unsafe fn rekey_at(
        &mut self,
        at: SendCursor,
        wr: Wr,
        op: Rekey,
    ) -> Result<(SendCursor, u32), PostError> {
        if !self.rekeys() {
            return Err(PostError::BadOperation);
        }
        let bytes = match op {
            Rekey::Bind { len, .. } if len > WINDOW_MAX => return Err(PostError::MessageTooLong),
            Rekey::Bind { len: 1.., .. } => LONG,
            Rekey::Bind { .. } | Rekey::Invalidate { .. } => SHORT,
        };
        let (key, segments) = segments(&op, self.qpn());
        let mut wqe = [0; LONG];
        wqe[DS_BYTES..].copy_from_slice(segments.as_bytes());
        // SAFETY: contract of `rekey_at`.
        unsafe { self.write_umr(at, wr, key, &mut wqe[..bytes]) }
    }

    /// Writes a UMR of `key`, and advances the cursor. `wqe` contains everything except the control
    /// segment. Returns cursor and slot.
    ///
    /// # Safety
    ///
    /// As for [`rekey_at`](Self::rekey_at), and `wqe` is no longer than the ring.
    pub(crate) unsafe fn write_umr(
        &mut self,
        mut at: SendCursor,
        wr: Wr,
        key: u32,
        wqe: &mut [u8],
    ) -> Result<(SendCursor, u32), PostError> {
        let ds = (wqe.len() / DS_BYTES) as u32;
        let units = ds.div_ceil(DS_PER_UNIT);
        self.reserve(&mut at, units)?;
        let plain = wqe::raw_ctrl(Opcode::UMR.0, 0, at.pi(), self.qpn_ds(ds), wr.flags, key);
        // Directly after another UMR this WQE gets the fence; otherwise the WQE that follows that
        // UMR gets it.
        let ctrl = match self.umr_end {
            Some(end) if end == at.pi() => behind_umr(plain),
            Some(end) => {
                self.fence_at(end);
                plain
            }
            None => plain,
        };
        wqe[..DS_BYTES].copy_from_slice(ctrl.as_bytes());
        // SAFETY: behind the published index, where `reserve` found room.
        unsafe { self.ring_memory().copy_in(at.pi(), 0, wqe) };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        let slot = unsafe { self.note(&mut at, wr.id, (ds, units)) };
        // Marked, so that both are taken back if the batch is dropped.
        (self.umr_end, self.marked) = (Some(at.pi()), at.pi());
        Ok((at, slot))
    }

    /// Sets the fence of the WQE after the last UMR, and publishes the batch, whose cursor is given
    /// in parts. If the UMR is the last WQE, the next batch sets the fence.
    ///
    /// # Safety
    ///
    /// As for [`publish`](Self::publish).
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn publish_behind_umr(
        &mut self,
        position: RingPosition,
        stop: u32,
        units: u32,
    ) {
        let at = self.position_behind(position, stop, units);
        if let Some(index) = self.umr_end.filter(|index| *index != at.pi()) {
            self.fence_at(index);
            self.umr_end = None;
        }
        self.rung_umr_end = self.umr_end;
        // SAFETY: contract of `publish_behind_umr`.
        unsafe { self.publish(at) };
        if self.umr_end.is_some() {
            self.look_first();
        }
    }

    /// Reads the control segment of the WQE at `index`, which is written and not published.
    fn ctrl_at(&self, index: u32) -> Words {
        let at = self.ring_memory().unit(index).cast::<u64>();
        // SAFETY: an aligned control segment of this ring, not published.
        [0, 1].map(|word| unsafe { device_memory::read_own(at.wrapping_add(word)) })
    }

    /// Sets the small fence of the WQE at `index`, which is written and not published.
    fn fence_at(&self, index: u32) {
        let (to, ctrl) = (self.ring_memory().unit(index), self.ctrl_at(index));
        // SAFETY: a control segment of this ring, not published; this is the only poster.
        unsafe { wqe::store(to, behind_umr(ctrl)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_added_where_there_is_none() {
        let with = |byte: u8| [7, u64::from_be_bytes([1, 2, 3, byte, 5, 6, 7, 8]).to_be()];
        let bytes = |[head, rest]: Words| (head, rest.to_ne_bytes());
        assert_eq!(bytes(behind_umr(with(0x08))), (7, [1, 2, 3, 0x28, 5, 6, 7, 8]));
        for fenced in [0x20, 0x68, 0x80] {
            assert_eq!(behind_umr(with(fenced)), with(fenced));
        }
    }
}
