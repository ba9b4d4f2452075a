//! Indirect keys: their allocation by the kernel, and the UMR that lays them out (rdma-core
//! `qp.c:mlx5_send_wr_set_mkey_layout`).
//!
//! libmlx5 creates such a key by a DEVX command (`verbs.c:_mlx5dv_create_mkey`), which requires a
//! device opened with DEVX. The kernel creates the same key as a memory window with room for
//! several parts (Linux `hw/mlx5/mr.c:mlx5_ib_alloc_mw`, `num_klms`): free, of indirect access
//! mode, with UMR enabled. It has type 2, so that a peer may invalidate it, like Linux's fast
//! registration (`hw/mlx5/wr.c:set_reg_umr_seg`).
//!
//! # Safety
//!
//! See `rekey.rs`.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::objects::mw::MwCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::queues::layout::{Block, KeyLayout, KeyParts};
use uverbs_core::queues::work::{PostError, Sge, WINDOW_MAX, WindowKind, Wr};
use uverbs_kernel_abi::mlx5::mlx5_ib_alloc_mw;
use uverbs_mlx5_prm::ctrl::{DS_BYTES, DS_MAX, MLX5_SEND_WQE_BB};
use uverbs_mlx5_prm::umr::{
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC as ATOMIC,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE as LOCAL_WRITE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ as REMOTE_READ,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE as REMOTE_WRITE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE as FREE, MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN as LEN,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY as MKEY, QpnMkey, UMR_REPEAT_OP, UmrFlags,
    mlx5_wqe_mkey_context_seg, mlx5_wqe_umr_ctrl_seg, mlx5_wqe_umr_klm_seg,
    mlx5_wqe_umr_repeat_block_seg, mlx5_wqe_umr_repeat_ent_seg,
};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use crate::Sq;
use crate::send::queue::SendCursor;
use crate::send::rekey::{ANY_QPN, key_access};

/// Number of entries in a unit of a list (Linux `hw/mlx5/mr.c`, `roundup(req.num_klms, 4)`).
const PER_UNIT: usize = MLX5_SEND_WQE_BB / DS_BYTES;
/// Bytes of a WQE before the list: control, UMR control, key context.
const HEAD: usize =
    DS_BYTES + size_of::<mlx5_wqe_umr_ctrl_seg>() + size_of::<mlx5_wqe_mkey_context_seg>();
/// Bytes of the longest WQE.
const LONGEST: usize = DS_MAX as usize * DS_BYTES / MLX5_SEND_WQE_BB * MLX5_SEND_WQE_BB;

/// Allocates a key with room for `parts` parts; `most` is the maximum of a work request.
pub(crate) fn alloc(pd: &Arc<PdCore>, parts: u32, most: u32) -> Result<(MwCore, u32), Error> {
    Error::limit("alloc_mw", "max_parts", parts.max(1), most)?;
    let room = parts.max(1).next_multiple_of(PER_UNIT as u32);
    // At most 52, the limit of a WQE.
    let request = mlx5_ib_alloc_mw { num_klms: room as u8, ..Default::default() };
    let core = MwCore::alloc_of(Arc::clone(pd), WindowKind::Type2, request.as_bytes())?;
    Ok((core, room))
}

fn part(part: &Sge) -> mlx5_wqe_umr_klm_seg {
    mlx5_wqe_umr_klm_seg {
        byte_count: U32::new(part.len),
        mkey: U32::new(part.lkey),
        address: U64::new(part.addr),
    }
}

fn block(block: &Block) -> mlx5_wqe_umr_repeat_ent_seg {
    mlx5_wqe_umr_repeat_ent_seg {
        stride: U16::new(block.stride),
        byte_count: U16::new(block.len),
        memkey: U32::new(block.lkey),
        va: U64::new(block.addr),
    }
}

/// Writes the list. `to` has room for it.
fn write_list(parts: &KeyParts<'_>, to: &mut [u8]) {
    let (entries, _) = to.as_chunks_mut::<DS_BYTES>();
    match parts {
        KeyParts::List(list) => {
            for (entry, given) in entries.iter_mut().zip(*list) {
                entry.copy_from_slice(part(given).as_bytes());
            }
        }
        KeyParts::Interleaved { rounds, blocks } => {
            let round: u32 = blocks.iter().map(|block| u32::from(block.len)).sum();
            let head = mlx5_wqe_umr_repeat_block_seg {
                byte_count: U32::new(round),
                op: U32::new(UMR_REPEAT_OP),
                repeat_count: U32::new(*rounds),
                reserved: U16::ZERO,
                num_ent: U16::new(blocks.len() as u16),
            };
            let Some((first, entries)) = entries.split_first_mut() else { return };
            first.copy_from_slice(head.as_bytes());
            for (entry, given) in entries.iter_mut().zip(*blocks) {
                entry.copy_from_slice(block(given).as_bytes());
            }
        }
    }
}

/// Writes the WQE without its control segment. Returns its length.
fn write(op: &KeyLayout<'_>, wqe: &mut [u8; LONGEST]) -> Result<usize, PostError> {
    if let KeyParts::List(list) = op.parts
        && list.iter().any(|part| u64::from(part.len) > WINDOW_MAX)
    {
        return Err(PostError::MessageTooLong);
    }
    let len = op.parts.bytes();
    if len == 0 {
        return Err(PostError::BadData);
    }
    let entries = op.parts.entries().next_multiple_of(PER_UNIT);
    let end = entries.saturating_mul(DS_BYTES).saturating_add(HEAD);
    let wqe = wqe.get_mut(..end).ok_or(PostError::TooManySges)?;
    let (head, list) = wqe.split_at_mut(HEAD);
    write_list(&op.parts, list);
    let mut umr = mlx5_wqe_umr_ctrl_seg::new_zeroed();
    umr.flags = UmrFlags::ZERO.with_inline(true).0;
    // At most 56.
    umr.klm_octowords = U16::new(entries as u16);
    umr.mkey_mask = U64::new(FREE | MKEY | LEN | LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | ATOMIC);
    let mut mkey = mlx5_wqe_mkey_context_seg::new_zeroed();
    mkey.access_flags = key_access(op.access).0;
    mkey.qpn_mkey = U32::new(QpnMkey::ZERO.with_qpn(ANY_QPN).with_mkey(op.new as u8).0);
    mkey.len = U64::new(len);
    let (umr_at, mkey_at) = head[DS_BYTES..].split_at_mut(size_of_val(&umr));
    umr_at.copy_from_slice(umr.as_bytes());
    mkey_at.copy_from_slice(mkey.as_bytes());
    Ok(end)
}

impl Sq {
    /// Posts a layout. Takes the cursor by value, so that a batch stays in registers.
    ///
    /// # Safety
    ///
    /// See [`SendOps::lay_out`](uverbs_core::provider::SendOps::lay_out).
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn lay_out_at(
        &mut self,
        at: SendCursor,
        wr: Wr,
        op: KeyLayout<'_>,
    ) -> Result<(SendCursor, u32), PostError> {
        if !self.rekeys() {
            return Err(PostError::BadOperation);
        }
        let mut wqe = [0; LONGEST];
        let len = write(&op, &mut wqe)?;
        if len > self.units() as usize * MLX5_SEND_WQE_BB {
            return Err(PostError::TooManySges);
        }
        // SAFETY: contract of `lay_out_at`; it is no longer than the ring.
        unsafe { self.write_umr(at, wr, op.old, &mut wqe[..len]) }
    }
}
