//! User-mode memory registration: a WQE that changes a memory key (PRM, "UMR"). It binds memory
//! windows, invalidates keys locally, defines indirect keys, and gives a key pages.

use uverbs_mlx5_prm::umr::{
    AccessFlags, FlagsPd, MLX5_WQE_MKEY_CONTEXT_FREE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC as ATOMIC,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE as LOCAL_WRITE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ as REMOTE_READ,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE as REMOTE_WRITE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_EN_RINVAL as EN_RINVAL, MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE as FREE,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN as LEN, MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY as MKEY,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_PAGE_SIZE as PAGE_SIZE, MLX5_WQE_UMR_CTRL_MKEY_MASK_PD as PD,
    MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN as QPN, MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR as START_ADDR,
    QpnMkey, UMR_REPEAT_OP, UmrFlags, mlx5_wqe_umr_klm_seg, mlx5_wqe_umr_repeat_block_seg,
    mlx5_wqe_umr_repeat_ent_seg,
};
use uverbs_mlx5_prm::wqe::{Segment as Seg, WqeView};
use zerocopy::{FromBytes, IntoBytes};

use crate::hca::dma::Dma;
use crate::hca::state::keys::{KeyFault, KeyTable, Segment, Who};
use uverbs_front::backend::context::{ANY_QPN, Access, MkeyContext, QpContext, Service};
use uverbs_front::backend::indirect::{Indirect, List as PartList, Part};
use uverbs_front::backend::number::{Key, Pdn, Qpn};
use uverbs_front::backend::region::{ABSENT, READ_ONLY, Region};

/// Bytes of an octoword: one part of an indirect key, or two page addresses.
const OCTOWORD: usize = 16;
const PER_OCTOWORD: u64 = 2;
/// Octowords in which translations are allocated (Linux hw/mlx5/umr.h,
/// `MLX5_IB_UMR_XLT_ALIGNMENT`).
const UNIT: u64 = 4;
/// Low bits of a page entry: the device may read it, and write it (Linux
/// include/linux/mlx5/device.h, `MLX5_EN_RD`, `MLX5_EN_WR`).
const READABLE: u64 = 0b01;
const WRITABLE: u64 = 0b10;
/// Low bits of a page entry that do not belong to the address.
const FLAGS: u64 = (1 << 12) - 1;
/// Log2 of the allowed page sizes.
const PAGE_SHIFTS: std::ops::RangeInclusive<u8> = 12..=40;
/// Fields that a user's queue may change; other fields are for a driver's queue.
const USERS: u64 =
    LEN | START_ADDR | MKEY | LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | ATOMIC | FREE | QPN;

/// A decoded change.
#[derive(Debug)]
pub(crate) struct Umr {
    /// The key; its variant is ignored.
    key: Key,
    flags: UmrFlags,
    mask: u64,
    access: Access,
    remote_invalidate: bool,
    free: bool,
    variant: u8,
    qpn: Option<Qpn>,
    pd: Pdn,
    start_addr: u64,
    len: u64,
    page_shift: u8,
    /// First octoword of the translation to replace.
    offset: u64,
    octowords: usize,
    list: List,
}

/// New translation as raw bytes; the key's kind tells if they are parts or pages.
#[derive(Debug)]
enum List {
    None,
    Inline(Vec<u8>),
    /// The list is in memory.
    At(Segment),
}

/// Decodes the change of a WQE. None if segments are missing.
pub(crate) fn parse(view: &WqeView<'_>) -> Option<Umr> {
    let mut segments = view.segments();
    let Some(Seg::UmrCtrl(ctrl)) = segments.next() else { return None };
    let Some(Seg::MkeyContext(mkey)) = segments.next() else { return None };
    let flags = UmrFlags(ctrl.flags);
    let octowords = usize::from(ctrl.klm_octowords.get());
    let list = match (octowords, flags.inline()) {
        (0, _) => List::None,
        (_, true) => List::Inline(inline(segments, octowords)?),
        (_, false) => match segments.next() {
            Some(Seg::Data(data)) => List::At(Segment::from(data)),
            _ => return None,
        },
    };
    let owner = QpnMkey(mkey.qpn_mkey.get());
    let flags_pd = FlagsPd(mkey.flags_pd.get());
    Some(Umr {
        key: Key(view.ctrl().imm.get()),
        flags,
        mask: ctrl.mkey_mask.get(),
        access: access_of(AccessFlags(mkey.access_flags)),
        remote_invalidate: flags_pd.en_rinval(),
        free: mkey.free & MLX5_WQE_MKEY_CONTEXT_FREE != 0,
        variant: owner.mkey(),
        qpn: (owner.qpn() != ANY_QPN).then_some(Qpn(owner.qpn())),
        pd: Pdn(flags_pd.pd()),
        start_addr: mkey.start_addr.get(),
        // The whole address space.
        len: if flags_pd.length64() { u64::MAX } else { mkey.len.get() },
        page_shift: mkey.log_page_size & 0x3f,
        offset: if flags.translation_offset() { ctrl.translation_offset_48() } else { 0 },
        octowords,
        list,
    })
}

fn inline<'a>(segments: impl Iterator<Item = Seg<'a>>, octowords: usize) -> Option<Vec<u8>> {
    let mut list = Vec::new();
    for segment in segments {
        match segment {
            Seg::Klm(klm) => list.extend_from_slice(klm.as_bytes()),
            Seg::RepeatBlock(head) => list.extend_from_slice(head.as_bytes()),
            Seg::RepeatEntry(entry) => list.extend_from_slice(entry.as_bytes()),
            Seg::Opaque(_) => {}
            _ => return None,
        }
    }
    list.truncate(octowords * OCTOWORD);
    Some(list)
}

/// Decodes a list of parts.
fn parts_of(bytes: &[u8]) -> Option<PartList> {
    if let Ok((head, rest)) = mlx5_wqe_umr_repeat_block_seg::ref_from_prefix(bytes)
        && head.op.get() == UMR_REPEAT_OP
    {
        let count = usize::from(head.num_ent.get());
        let (entries, _) =
            <[mlx5_wqe_umr_repeat_ent_seg]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let parts = entries.iter().map(strided_of).collect();
        return Some(PartList::new(parts, head.repeat_count.get()));
    }
    let list = <[mlx5_wqe_umr_klm_seg]>::ref_from_bytes(bytes).ok()?;
    Some(PartList::new(list.iter().map(part_of).collect(), 1))
}

/// Decodes a list of pages.
fn pages_of(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
    words.map(page_of).collect()
}

/// Converts a page entry. A page without the right to read is absent.
pub(crate) fn page_of(entry: u64) -> u64 {
    match entry & (READABLE | WRITABLE) {
        READABLE => entry & !FLAGS | READ_ONLY,
        flags if flags & READABLE != 0 => entry & !FLAGS,
        _ => ABSENT,
    }
}

fn part_of(klm: &mlx5_wqe_umr_klm_seg) -> Part {
    Part { len: klm.byte_count.get(), key: Key(klm.mkey.get()), addr: klm.address.get(), stride: 0 }
}

fn strided_of(entry: &mlx5_wqe_umr_repeat_ent_seg) -> Part {
    Part {
        len: entry.byte_count.get().into(),
        key: Key(entry.memkey.get()),
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

impl KeyTable {
    /// Applies a change for a queue. An error has no effect.
    pub(crate) fn apply(
        &mut self,
        umr: &Umr,
        who: Who,
        queue: &QpContext,
        dma: &dyn Dma,
    ) -> Result<(), KeyFault> {
        if !queue.privileged && umr.mask & !USERS != 0 {
            return Err(KeyFault::Right);
        }
        let bytes = list(umr, who, queue, self, dma)?;
        let old = self.key_at(umr.key)?;
        // Linux's UMR queue has no protection domain: it changes keys of all domains.
        if queue.service != Service::Umr && old.pd != who.pd {
            return Err(KeyFault::WrongPd);
        }
        if !old.umr {
            return Err(KeyFault::Right);
        }
        let is_free = self.is_free(umr.key);
        if umr.flags.check_free() && !is_free || umr.flags.check_not_free() && is_free {
            return Err(KeyFault::NoKey);
        }
        // A key bound to no queue pair may be changed by any: rdma-core invalidates lists of parts
        // with the check on (its tests, `test_mkey_list`; providers/mlx5/qp.c,
        // `set_umr_control_seg`).
        if umr.flags.check_qpn() && old.qpn.is_some_and(|qpn| qpn != who.qpn) {
            return Err(KeyFault::WrongQp);
        }
        let new = Changed::new(umr, old, is_free);
        match &old.indirect {
            Some(Indirect::List(_)) => {
                give_parts(umr, bytes.as_deref(), &new, Who { pd: new.pd, ..who }, queue, self)?;
            }
            // Only the driver changes a registration of memory; a user's queue changes windows and
            // indirect keys.
            _ if !queue.privileged => return Err(KeyFault::Right),
            _ if !PAGE_SHIFTS.contains(&new.page_shift) => return Err(KeyFault::Range),
            Some(Indirect::Blocks(_)) => give_blocks(umr, bytes.as_deref(), &new, self)?,
            None => give_pages(umr, bytes.as_deref(), &new, self)?,
        }
        let variant = (umr.mask & MKEY != 0).then_some(umr.variant);
        self.change(umr.key, variant, new.free, |key| new.put_into(key));
        Ok(())
    }
}

/// Bytes of the new list, if the WQE has one.
fn list(
    umr: &Umr,
    who: Who,
    queue: &QpContext,
    keys: &KeyTable,
    dma: &dyn Dma,
) -> Result<Option<Vec<u8>>, KeyFault> {
    let segment = match &umr.list {
        List::None => return Ok(None),
        List::Inline(bytes) => return Ok(Some(bytes.clone())),
        List::At(segment) => segment,
    };
    let mut bytes = vec![0; (umr.octowords * OCTOWORD).min(segment.len as usize)];
    let pd = if queue.service == Service::Umr { keys.key_at(segment.key)?.pd } else { who.pd };
    let (who, at) = (Who { pd, ..who }, (segment.key, segment.addr));
    keys.read(dma, who, at, Access::empty(), &mut bytes)?;
    Ok(Some(bytes))
}

/// Attributes of a key after the change. The translation is separate.
struct Changed {
    pd: Pdn,
    iova: u64,
    len: u64,
    access: Access,
    remote_invalidate: bool,
    qpn: Option<Qpn>,
    page_shift: u8,
    free: bool,
}

impl Changed {
    fn new(umr: &Umr, old: &MkeyContext, is_free: bool) -> Changed {
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
        let page_shift = match (&old.indirect, &old.region) {
            (Some(Indirect::Blocks(blocks)), _) => blocks.shift,
            (_, Region::Pages { page_shift, .. }) => *page_shift,
            (_, Region::Flat { .. } | Region::OnDemand { .. } | Region::Void) => 0,
        };
        Changed {
            pd: if has(PD) { umr.pd } else { old.pd },
            iova: if has(START_ADDR) { umr.start_addr } else { old.iova },
            len: if has(LEN) { umr.len } else { old.len },
            access,
            remote_invalidate: match has(EN_RINVAL) {
                true => umr.remote_invalidate,
                false => old.remote_invalidate,
            },
            qpn: if has(QPN) { umr.qpn } else { old.qpn },
            page_shift: if has(PAGE_SIZE) { umr.page_shift } else { page_shift },
            free: if has(FREE) { umr.free } else { is_free },
        }
    }

    /// Offset of the key in its first page.
    fn in_page(&self) -> u64 {
        self.iova & ((1 << self.page_shift) - 1)
    }

    fn put_into(&self, key: &mut MkeyContext) {
        if let Region::Pages { page_shift, offset, len, .. } = &mut key.region {
            (*page_shift, *offset, *len) = (self.page_shift, self.in_page(), self.len);
        }
        (key.pd, key.iova, key.len, key.access) = (self.pd, self.iova, self.len, self.access);
        (key.remote_invalidate, key.qpn) = (self.remote_invalidate, self.qpn);
    }
}

/// Replaces an indirect key's parts, if the WQE has new ones. Kept parts are checked against the
/// changed attributes.
fn give_parts(
    umr: &Umr,
    bytes: Option<&[u8]>,
    new: &Changed,
    who: Who,
    queue: &QpContext,
    keys: &mut KeyTable,
) -> Result<(), KeyFault> {
    let given = match bytes {
        // Parts are replaced as a whole.
        Some(_) if umr.offset != 0 => return Err(KeyFault::Range),
        Some(bytes) => Some(parts_of(bytes).ok_or(KeyFault::Range)?),
        None => None,
    };
    let old = keys.key_at(umr.key)?;
    let kept = match &old.indirect {
        Some(Indirect::List(list)) => Some(list),
        _ => None,
    };
    let parts = given.as_ref().or(kept);
    if parts.is_some_and(|parts| parts.parts().len() as u64 > room(old)) {
        return Err(KeyFault::Range);
    }
    // The driver may move a key to another domain before its parts; each access checks the parts
    // anyway.
    let moves = queue.service == Service::Umr && given.is_none();
    let frees = umr.mask & FREE != 0 && umr.free;
    match parts {
        Some(parts) if !frees && !moves => {
            check_parts(keys, parts, who, (new.len, new.access))?;
            if old.window {
                check_windows(keys, parts)?;
            }
        }
        _ => {}
    }
    match given {
        Some(parts) => keys.set_parts(umr.key, Indirect::List(parts)),
        None => Ok(()),
    }
}

/// Replaces the keys of blocks. Each access checks them.
fn give_blocks(
    umr: &Umr,
    bytes: Option<&[u8]>,
    new: &Changed,
    keys: &mut KeyTable,
) -> Result<(), KeyFault> {
    let list = <[mlx5_wqe_umr_klm_seg]>::ref_from_bytes(bytes.unwrap_or_default());
    let list = list.map_err(|_| KeyFault::Range)?;
    if umr.offset + list.len() as u64 > room(keys.key_at(umr.key)?) {
        return Err(KeyFault::Range);
    }
    let blocks =
        list.iter().map(|klm| (Key(klm.mkey.get()), klm.address.get())).collect::<Vec<_>>();
    keys.set_blocks(umr.key, (new.page_shift, umr.offset), &blocks)
}

/// Replaces a key's pages. A page that no WQE set is absent, and an access to it is a page fault.
fn give_pages(
    umr: &Umr,
    bytes: Option<&[u8]>,
    new: &Changed,
    keys: &mut KeyTable,
) -> Result<(), KeyFault> {
    let room = room(keys.key_at(umr.key)?) * PER_OCTOWORD;
    let need = match new.len {
        // A key for all memory has blocks of unlimited length, each of which ends with its pages
        // (`hw/mlx5/odp.c`, `implicit_get_child_mr`).
        _ if new.free => 0,
        u64::MAX if new.in_page() == 0 => 0,
        len => {
            let end = new.in_page().checked_add(len).ok_or(KeyFault::Range)?;
            end.div_ceil(1 << new.page_shift)
        }
    };
    let pages = pages_of(bytes.unwrap_or_default());
    let first = umr.offset * PER_OCTOWORD;
    let last = if pages.is_empty() { 0 } else { first + pages.len() as u64 };
    if need.max(last) > room {
        return Err(KeyFault::Range);
    }
    // Extends the list before writing, so that an error has no effect.
    keys.stretch(umr.key, need.max(last))?;
    match pages.is_empty() {
        true => Ok(()),
        false => keys.set_pages(umr.key, first, &pages),
    }
}

/// Maximum octowords of a key's translation.
fn room(key: &MkeyContext) -> u64 {
    u64::from(key.octowords).next_multiple_of(UNIT)
}

/// Checks that every part allows windows (IBTA 10.6.7.2.1; Linux `rxe_mw.c`, `rxe_check_bind_mw`).
fn check_windows(keys: &KeyTable, parts: &PartList) -> Result<(), KeyFault> {
    parts.parts().iter().filter(|part| part.len != 0).try_for_each(|part| {
        if keys.key_at(part.key)?.no_windows { Err(KeyFault::Right) } else { Ok(()) }
    })
}

/// Checks that every part is a key of the same domain, and writable if the whole key is (IBTA
/// 10.6.7.2.3: a window grants no more than its region).
fn check_parts(
    keys: &KeyTable,
    parts: &PartList,
    who: Who,
    (len, access): (u64, Access),
) -> Result<(), KeyFault> {
    if parts.len() < len {
        return Err(KeyFault::Range);
    }
    let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let need = if access.intersects(writes) { Access::LOCAL_WRITE } else { Access::empty() };
    // Each part once: a further round uses the same key at a higher address.
    parts.parts().iter().filter(|part| part.len != 0).try_for_each(|part| {
        keys.check(who, Segment { key: part.key, addr: part.addr, len: part.len.into() }, need)
    })
}
