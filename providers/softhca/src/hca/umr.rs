//! User-mode memory registration: a WQE that changes a memory key (PRM, "UMR"). Memory windows, local
//! invalidation, and keys made of parts of other keys are all this one operation.

use super::context::{Access, Service};
use super::indirect::{Indirect, Part};
use super::mkey::{KeyFault, KeyTable, Segment};
use super::shared::Shared;
use uverbs_mlx5_prm::umr::{
    AccessFlags, MLX5_WQE_MKEY_CONTEXT_FREE, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC as ATOMIC,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE as LOCAL_WRITE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ as REMOTE_READ,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE as REMOTE_WRITE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE as FREE, MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN as LEN,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY as MKEY, MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR as START_ADDR,
    UMR_REPEAT_OP, UmrFlags, mlx5_wqe_umr_klm_seg, mlx5_wqe_umr_repeat_block_seg,
    mlx5_wqe_umr_repeat_ent_seg,
};
use uverbs_mlx5_prm::wqe::{Segment as Seg, WqeView};
use zerocopy::FromBytes;

/// Bytes of one translation entry.
const ENTRY: usize = 16;
/// Bit 7 of the mask, protection domain (Linux include/linux/mlx5/qp.h, `MLX5_MKEY_MASK_PD`).
const PD: u64 = 1 << 7;
/// Flag bit 6: fails if the key is free; bit 5 fails if it is not (Linux include/linux/mlx5/qp.h, `MLX5_UMR_CHECK_*`).
const CHECK_NOT_FREE: u8 = 1 << 6;
/// What any user's queue may change; the rest is the driver's.
const USERS: u64 =
    LEN | START_ADDR | MKEY | LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | ATOMIC | FREE | 1 << 14;

/// A change, taken out of its WQE.
#[derive(Debug)]
pub(super) struct Umr {
    /// Number of the key; the variant does not matter.
    key: u32,
    flags: UmrFlags,
    mask: u64,
    access: Access,
    free: bool,
    variant: u8,
    pd: u32,
    start_addr: u64,
    len: u64,
    translation: Translation,
}

#[derive(Debug)]
enum Translation {
    Kept,
    Inline(Indirect),
    /// A list that lies elsewhere, and the bytes of it that count.
    Elsewhere(Segment, usize),
}

/// Takes the change out of a WQE; None if it has not the segments of one.
pub(super) fn parse(view: &WqeView<'_>) -> Option<Umr> {
    let mut segments = view.segments();
    let Some(Seg::UmrCtrl(ctrl)) = segments.next() else { return None };
    let Some(Seg::MkeyContext(mkey)) = segments.next() else { return None };
    let flags = UmrFlags(ctrl.flags);
    let octowords = usize::from(ctrl.klm_octowords.get());
    let translation = match (octowords, flags.inline()) {
        (0, _) => Translation::Kept,
        (_, true) => Translation::Inline(inline(segments, octowords)?),
        (_, false) => match segments.next() {
            Some(Seg::Data(data)) => {
                let (key, addr) = (data.lkey.get(), data.addr.get());
                let segment = Segment { key, addr, len: data.length().into() };
                Translation::Elsewhere(segment, octowords * ENTRY)
            }
            _ => return None,
        },
    };
    Some(Umr {
        key: view.ctrl().imm.get(),
        flags,
        mask: ctrl.mkey_mask.get(),
        access: access_of(AccessFlags(mkey.access_flags)),
        free: mkey.free & MLX5_WQE_MKEY_CONTEXT_FREE != 0,
        variant: mkey.qpn_mkey.get() as u8,
        pd: mkey.flags_pd.get() & 0x00ff_ffff,
        start_addr: mkey.start_addr.get(),
        len: mkey.len.get(),
        translation,
    })
}

fn inline<'a>(segments: impl Iterator<Item = Seg<'a>>, octowords: usize) -> Option<Indirect> {
    let (mut parts, mut rounds) = (Vec::new(), 1);
    for segment in segments {
        match segment {
            Seg::Klm(klm) if parts.len() < octowords => parts.push(part_of(klm)),
            Seg::Klm(_) | Seg::Opaque(_) => {}
            Seg::RepeatBlock(head) => rounds = head.repeat_count.get(),
            Seg::RepeatEntry(entry) => parts.push(strided_of(entry)),
            _ => return None,
        }
    }
    Some(Indirect::new(parts, rounds))
}

/// A list in memory, as bytes.
fn decode(bytes: &[u8]) -> Option<Indirect> {
    if let Ok((head, rest)) = mlx5_wqe_umr_repeat_block_seg::ref_from_prefix(bytes)
        && head.op.get() == UMR_REPEAT_OP
    {
        let count = usize::from(head.num_ent.get());
        let (entries, _) =
            <[mlx5_wqe_umr_repeat_ent_seg]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let parts = entries.iter().map(strided_of).collect();
        return Some(Indirect::new(parts, head.repeat_count.get()));
    }
    let list = <[mlx5_wqe_umr_klm_seg]>::ref_from_bytes(bytes).ok()?;
    Some(Indirect::new(list.iter().map(part_of).collect(), 1))
}

fn part_of(klm: &mlx5_wqe_umr_klm_seg) -> Part {
    Part { len: klm.byte_count.get(), key: klm.mkey.get(), addr: klm.address.get(), stride: 0 }
}

fn strided_of(entry: &mlx5_wqe_umr_repeat_ent_seg) -> Part {
    Part {
        len: entry.byte_count.get().into(),
        key: entry.memkey.get(),
        addr: entry.va.get(),
        stride: entry.stride.get(),
    }
}

fn access_of(flags: AccessFlags) -> Access {
    let bits = [
        (flags.local_write(), Access::LOCAL_WRITE),
        (flags.remote_write(), Access::REMOTE_WRITE),
        (flags.remote_read(), Access::REMOTE_READ),
        (flags.atomic(), Access::REMOTE_ATOMIC),
    ];
    bits.into_iter().filter(|(on, _)| *on).map(|(_, bit)| bit).collect()
}

/// Carries the change out for a queue of domain `pd`. Nothing changes on an error.
pub(super) fn execute(
    umr: &Umr,
    service: Service,
    pd: u32,
    shared: &mut Shared,
) -> Result<(), KeyFault> {
    let Shared { keys, dma, .. } = shared;
    let drivers = service == Service::Umr;
    if !drivers && umr.mask & !USERS != 0 {
        return Err(KeyFault::Right);
    }
    let indirect = match &umr.translation {
        Translation::Kept => None,
        Translation::Inline(indirect) => Some(indirect.clone()),
        Translation::Elsewhere(segment, bytes) => {
            let mut list = vec![0; (*bytes).min(segment.len as usize)];
            let at = (segment.key, segment.addr);
            keys.read(&**dma, pd, at, Access::empty(), &mut list)?;
            Some(decode(&list).ok_or(KeyFault::Range)?)
        }
    };
    let old = keys.key_at(umr.key)?;
    if !drivers && old.pd != pd {
        return Err(KeyFault::WrongPd);
    }
    // A registration of memory is as the kernel made it (mkc.umr_en is clear); a user's queue changes windows and lists.
    if !drivers && old.indirect.is_none() {
        return Err(KeyFault::Right);
    }
    let is_free = keys.is_free(umr.key);
    if umr.flags.check_free() && !is_free || umr.flags.0 & CHECK_NOT_FREE != 0 && is_free {
        return Err(KeyFault::NoKey);
    }
    let has = |bit| umr.mask & bit != 0;
    let mut access = old.access;
    for (bit, right) in [
        (LOCAL_WRITE, Access::LOCAL_WRITE),
        (REMOTE_READ, Access::REMOTE_READ),
        (REMOTE_WRITE, Access::REMOTE_WRITE),
        (ATOMIC, Access::REMOTE_ATOMIC),
    ] {
        if has(bit) {
            access.set(right, umr.access.contains(right));
        }
    }
    let pd = if has(PD) { umr.pd } else { old.pd };
    let len = if has(LEN) { umr.len } else { old.len };
    let frees = has(FREE) && umr.free;
    let parts = indirect.as_ref().or(old.indirect.as_ref());
    // The driver moves keys to domains where their parts follow; each access looks at the parts anyway.
    let moves = drivers && indirect.is_none();
    match parts {
        _ if frees => {}
        None if old.region.len() < len => return Err(KeyFault::Range),
        Some(parts) if !moves => check_parts(keys, parts, (pd, len, access))?,
        _ => {}
    }
    let free = if has(FREE) { umr.free } else { is_free };
    let iova = has(START_ADDR).then_some(umr.start_addr);
    if let Some(parts) = indirect {
        keys.set_parts(umr.key, parts)?;
    }
    keys.change(umr.key, has(MKEY).then_some(umr.variant), free, |key| {
        (key.pd, key.len, key.access) = (pd, len, access);
        key.iova = iova.unwrap_or(key.iova);
    });
    Ok(())
}

/// Every part must be a key of the same domain, and one that may be written where the whole may be (IBTA 10.6.7.2.3: a
/// window grants no more than its region).
fn check_parts(
    keys: &KeyTable,
    parts: &Indirect,
    (pd, len, access): (u32, u64, Access),
) -> Result<(), KeyFault> {
    if parts.len() < len {
        return Err(KeyFault::Range);
    }
    let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let need = if access.intersects(writes) { Access::LOCAL_WRITE } else { Access::empty() };
    // Each part once: a repetition is the same key further on.
    parts.parts().iter().filter(|part| part.len != 0).try_for_each(|part| {
        keys.check(pd, Segment { key: part.key, addr: part.addr, len: part.len.into() }, need)
    })
}
