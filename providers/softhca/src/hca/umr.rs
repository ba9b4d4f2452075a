//! User-mode memory registration: a WQE that changes a memory key (PRM, "UMR"). Memory windows, local
//! invalidation, and keys made of parts of other keys are all this one operation.

use super::context::{Access, Indirect, Klm, MkeyContext, Service, Strided};
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
    let mut list = Vec::new();
    let mut block: Option<(u32, Vec<Strided>)> = None;
    for segment in segments {
        match segment {
            Seg::Klm(klm) if list.len() < octowords => list.push(klm_of(klm)),
            Seg::Klm(_) | Seg::Opaque(_) => {}
            Seg::RepeatBlock(head) => block = Some((head.repeat_count.get(), Vec::new())),
            Seg::RepeatEntry(entry) => block.as_mut()?.1.push(strided_of(entry)),
            _ => return None,
        }
    }
    Some(match block {
        Some((repeat, entries)) => Indirect::Interleaved { repeat, entries },
        None => Indirect::List(list),
    })
}

/// A list in memory, as bytes.
fn decode(bytes: &[u8]) -> Option<Indirect> {
    if let Ok((head, rest)) = mlx5_wqe_umr_repeat_block_seg::ref_from_prefix(bytes)
        && head.op.get() == UMR_REPEAT_OP
    {
        let count = usize::from(head.num_ent.get());
        let (entries, _) =
            <[mlx5_wqe_umr_repeat_ent_seg]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let entries = entries.iter().map(strided_of).collect();
        return Some(Indirect::Interleaved { repeat: head.repeat_count.get(), entries });
    }
    let list = <[mlx5_wqe_umr_klm_seg]>::ref_from_bytes(bytes).ok()?;
    Some(Indirect::List(list.iter().map(klm_of).collect()))
}

fn klm_of(klm: &mlx5_wqe_umr_klm_seg) -> Klm {
    Klm { len: klm.byte_count.get(), key: klm.mkey.get(), addr: klm.address.get() }
}

fn strided_of(entry: &mlx5_wqe_umr_repeat_ent_seg) -> Strided {
    Strided {
        stride: entry.stride.get(),
        len: entry.byte_count.get(),
        key: entry.memkey.get(),
        addr: entry.va.get(),
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
    let is_free = keys.is_free(umr.key);
    if umr.flags.check_free() && !is_free || umr.flags.0 & CHECK_NOT_FREE != 0 && is_free {
        return Err(KeyFault::NoKey);
    }
    let has = |bit| umr.mask & bit != 0;
    let mut new = old.clone();
    if let Some(indirect) = indirect {
        new.indirect = Some(indirect);
    }
    if has(PD) {
        new.pd = umr.pd;
    }
    if has(START_ADDR) {
        new.iova = umr.start_addr;
    }
    if has(LEN) {
        new.len = umr.len;
    }
    for (bit, right) in [
        (LOCAL_WRITE, Access::LOCAL_WRITE),
        (REMOTE_READ, Access::REMOTE_READ),
        (REMOTE_WRITE, Access::REMOTE_WRITE),
        (ATOMIC, Access::REMOTE_ATOMIC),
    ] {
        if has(bit) {
            new.access.set(right, umr.access.contains(right));
        }
    }
    // The driver moves keys to domains where their parts follow; each access looks at the parts anyway.
    let moves = drivers && new.indirect.is_some() && matches!(umr.translation, Translation::Kept);
    let frees = has(FREE) && umr.free;
    if !moves && !frees {
        check_parts(keys, &new)?;
    }
    let free = if has(FREE) { umr.free } else { is_free };
    keys.replace(umr.key, new, has(MKEY).then_some(umr.variant), free);
    Ok(())
}

/// Every part must be a key of the same domain, and one that may be written where the whole may be (IBTA 10.6.7.2.3: a
/// window grants no more than its region).
fn check_parts(keys: &KeyTable, key: &MkeyContext) -> Result<(), KeyFault> {
    let Some(indirect) = &key.indirect else {
        return if key.region.len() < key.len { Err(KeyFault::Range) } else { Ok(()) };
    };
    if indirect.len() < key.len {
        return Err(KeyFault::Range);
    }
    let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let need = if key.access.intersects(writes) { Access::LOCAL_WRITE } else { Access::empty() };
    // Each part once: a repetition is the same key further on.
    match indirect {
        Indirect::List(list) => list.iter().filter(|klm| klm.len != 0).try_for_each(|klm| {
            keys.check(key.pd, Segment { key: klm.key, addr: klm.addr, len: klm.len.into() }, need)
        }),
        Indirect::Interleaved { entries, .. } => entries.iter().try_for_each(|entry| {
            let segment = Segment { key: entry.key, addr: entry.addr, len: entry.len.into() };
            keys.check(key.pd, segment, need)
        }),
    }
}
