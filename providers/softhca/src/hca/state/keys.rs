//! Memory keys: the table and the access check. `access` copies bytes through them.

use std::collections::{BTreeSet, VecDeque};

use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;

use crate::hca::dma::DmaFault;
use crate::hca::failure::Vendor;
use uverbs_front::backend::context::{Access, MkeyContext};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::indirect::Indirect;
use uverbs_front::backend::number::{Key, Pdn, Qpn};
use uverbs_front::backend::region::{ABSENT, Region};

/// First index handed out. Index 1 with variant 0 would be 0x100, the lkey that ends a receive list
/// (mlx5dv.h, `MLX5_INVALID_LKEY`). Silicon reserves the low indexes, too.
const FIRST_INDEX: u32 = 0x10;

/// Maximum page addresses of all keys together, where a part of another key counts as
/// [`PART_WEIGHT`]: 64 GiB in pages of 4 KiB. The lists are memory of this process, and each of
/// many keys may have a list of megabytes.
const MAX_ENTRIES: u64 = 1 << 24;
/// Number of page addresses that take as much memory as a part of a key.
const PART_WEIGHT: u64 = 4;

/// Context of [`Key::DUMP_FILL`]: valid in every domain, for local accesses only.
static DUMP_FILL: MkeyContext = MkeyContext {
    pd: Pdn(0),
    iova: 0,
    len: u64::MAX,
    access: Access::LOCAL_WRITE,
    remote_invalidate: false,
    region: Region::Void,
    device_memory: false,
    indirect: None,
    free: false,
    qpn: None,
    umr: false,
    window: false,
    no_windows: true,
    octowords: 0,
};

/// Reason why an access by key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyFault {
    /// The key does not exist.
    NoKey,
    /// The key belongs to another protection domain.
    WrongPd,
    /// The access is outside of the key's range.
    Range,
    /// The key does not grant the right.
    Right,
    /// The key is bound to another queue pair.
    WrongQp,
    /// The translations of all keys together exceed the limit.
    Room,
    /// The host refused access to the memory behind the key.
    Dma(DmaFault),
    /// A page is missing or not writable; a driver may bring it.
    Absent,
}

impl KeyFault {
    /// Vendor syndrome of the check.
    pub(crate) const fn vendor(self) -> Vendor {
        match self {
            KeyFault::NoKey => Vendor::NO_KEY,
            KeyFault::WrongPd => Vendor::WRONG_PD,
            KeyFault::Range => Vendor::RANGE,
            KeyFault::Right => Vendor::RIGHT,
            KeyFault::Dma(_) | KeyFault::Absent => Vendor::DMA,
            KeyFault::Room => Vendor::ROOM,
            KeyFault::WrongQp => Vendor::WRONG_QP,
        }
    }
}

/// The protection domain and queue pair for which memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// Protection domain.
    pub(crate) pd: Pdn,
    /// Queue pair, local side or responder.
    pub(crate) qpn: Qpn,
}

/// One element of a scatter or gather list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// lkey or rkey.
    pub(crate) key: Key,
    /// Address under the key.
    pub(crate) addr: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

impl From<&mlx5_wqe_data_seg> for Segment {
    fn from(data: &mlx5_wqe_data_seg) -> Segment {
        Segment { key: Key(data.lkey.get()), addr: data.addr.get(), len: data.length().into() }
    }
}

#[derive(Debug, Default)]
struct Slot {
    variant: u8,
    /// Free or invalidated: the key can only be bound again or destroyed.
    dead: bool,
    key: Option<MkeyContext>,
}

/// All keys. A slot's variant byte changes with each use, so a stale key does not match.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    live: u32,
    /// Slots of the live keys of memory windows.
    windows: BTreeSet<usize>,
    /// Entries that the live keys hold, at most [`MAX_ENTRIES`].
    entries: u64,
    /// Memory of a key may have moved, or the key may be gone.
    changed: bool,
}

impl KeyTable {
    /// Creates a key. `variant`: the driver's choice, if the command interface leaves it to the
    /// driver.
    pub(crate) fn create(
        &mut self,
        ctx: MkeyContext,
        variant: Option<u8>,
        max: u32,
    ) -> Result<Key, HcaError> {
        check_context(&ctx)?;
        if self.live >= max.min((1 << 24) - FIRST_INDEX) {
            return Err(HcaError::Limit { what: "max_mkey", limit: max.into() });
        }
        self.entries = self.room(0, entries(&ctx)).map_err(|_| TOO_MANY)?;
        // Takes the slot that is free longest, so that a stale key matches no live one for as long
        // as possible.
        let slot = match self.free.pop_front() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
        };
        let entry = &mut self.slots[slot as usize];
        entry.variant = variant.unwrap_or(entry.variant.wrapping_add(1));
        entry.dead = ctx.free;
        if ctx.window {
            self.windows.insert(slot as usize);
        }
        entry.key = Some(ctx);
        self.live += 1;
        Ok(Key::new(slot + FIRST_INDEX, entry.variant))
    }

    pub(crate) fn modify(&mut self, key: Key, ctx: MkeyContext) -> Result<(), HcaError> {
        check_context(&ctx)?;
        let slot = self.slot(key).ok_or(bad_handle(key))?;
        let old = self.slots[slot].key.as_ref().map_or(0, entries);
        self.entries = self.room(old, entries(&ctx)).map_err(|_| TOO_MANY)?;
        self.slots[slot].dead = false;
        match ctx.window {
            true => self.windows.insert(slot),
            false => self.windows.remove(&slot),
        };
        self.slots[slot].key = Some(ctx);
        self.changed = true;
        Ok(())
    }

    /// Ignores the variant, as DESTROY_MKEY does: a window's owner may have changed it.
    pub(crate) fn destroy(&mut self, key: Key) -> Result<(), HcaError> {
        let slot = self.index(key).ok_or(bad_handle(key))?;
        let old = self.slots[slot].key.take();
        self.entries -= old.as_ref().map_or(0, entries);
        self.windows.remove(&slot);
        self.free.push_back(slot as u32);
        self.live -= 1;
        self.changed = true;
        Ok(())
    }

    /// Number of windows that are bound to a key. Looks at all windows, unless the key is one.
    pub(crate) fn windows_on(&self, key: Key) -> usize {
        if self.index(key).is_some_and(|slot| self.windows.contains(&slot)) {
            return 0;
        }
        let is_on = |slot: &Slot| match slot.key.as_ref().and_then(|key| key.indirect.as_ref()) {
            Some(Indirect::List(list)) => list.parts().iter().any(|part| part.key == key),
            _ => false,
        };
        let windows = self.windows.iter().map(|slot| &self.slots[*slot]);
        windows.filter(|slot| !slot.dead && is_on(slot)).count()
    }

    /// True if a key was changed, destroyed or invalidated since the last call.
    pub(crate) fn were_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Index of the live slot that `key` names, variant included.
    fn slot(&self, key: Key) -> Option<usize> {
        let slot = key.index().checked_sub(FIRST_INDEX)? as usize;
        let entry = self.slots.get(slot)?;
        (entry.key.is_some() && entry.variant == key.variant()).then_some(slot)
    }

    /// Index of the live slot that `key` names; the variant is ignored.
    fn index(&self, key: Key) -> Option<usize> {
        let slot = key.index().checked_sub(FIRST_INDEX)? as usize;
        self.slots.get(slot)?.key.is_some().then_some(slot)
    }

    /// The key of an index, free or bound; the variant is ignored.
    pub(crate) fn key_at(&self, key: Key) -> Result<&MkeyContext, KeyFault> {
        let slot = self.index(key).ok_or(KeyFault::NoKey)?;
        self.slots[slot].key.as_ref().ok_or(KeyFault::NoKey)
    }

    pub(crate) fn is_free(&self, key: Key) -> bool {
        self.index(key).is_some_and(|slot| self.slots[slot].dead)
    }

    /// Entries of all keys after replacement of `old` by `new` ones.
    fn room(&self, old: u64, new: u64) -> Result<u64, KeyFault> {
        let entries = self.entries - old + new;
        // Shrinking is never refused.
        if new > old && entries > MAX_ENTRIES { Err(KeyFault::Room) } else { Ok(entries) }
    }

    /// Replaces a key's parts. An error has no effect.
    pub(crate) fn set_parts(&mut self, key: Key, parts: Indirect) -> Result<(), KeyFault> {
        let slot = self.index(key).ok_or(KeyFault::NoKey)?;
        let old = self.slots[slot].key.as_ref().and_then(|ctx| ctx.indirect.as_ref());
        let entries = self.room(old.map_or(0, weight), weight(&parts))?;
        if let Some(ctx) = &mut self.slots[slot].key {
            ctx.indirect = Some(parts);
            (self.entries, self.changed) = (entries, true);
        }
        Ok(())
    }

    /// Replaces the keys of a key's blocks from `first` on. An error has no effect.
    pub(crate) fn set_blocks(
        &mut self,
        key: Key,
        (shift, first): (u8, u64),
        new: &[(Key, u64)],
    ) -> Result<(), KeyFault> {
        let slot = self.index(key).ok_or(KeyFault::NoKey)?;
        let indirect = self.slots[slot].key.as_ref().and_then(|ctx| ctx.indirect.as_ref());
        let old = indirect.map_or(0, weight);
        let more = new.iter().filter(|(key, _)| *key != Key::NULL).count() as u64;
        self.room(old, old + more * PART_WEIGHT)?;
        if let Some(MkeyContext { indirect: Some(indirect), .. }) = &mut self.slots[slot].key
            && let Indirect::Blocks(blocks) = indirect
        {
            blocks.shift = shift;
            blocks.put(first, new.iter().copied());
            self.changed = true;
            self.entries = self.entries - old + weight(indirect);
        }
        Ok(())
    }

    /// Writes page addresses into a key's list, from `first` on. An error has no effect.
    pub(crate) fn set_pages(&mut self, key: Key, first: u64, new: &[u64]) -> Result<(), KeyFault> {
        self.stretch(key, first + new.len() as u64)?;
        if let Some(pages) = self.pages(key) {
            // In range: the list was extended to hold them.
            pages[first as usize..][..new.len()].copy_from_slice(new);
        }
        Ok(())
    }

    /// Extends a key's page list to at least `count` pages, with absent ones. An error has no
    /// effect.
    pub(crate) fn stretch(&mut self, key: Key, count: u64) -> Result<(), KeyFault> {
        let old = self.pages(key).ok_or(KeyFault::Right)?.len() as u64;
        let entries = self.room(old, count.max(old))?;
        self.entries = entries;
        if let Some(pages) = self.pages(key) {
            pages.resize(count.max(old) as usize, ABSENT);
        }
        Ok(())
    }

    fn pages(&mut self, key: Key) -> Option<&mut Vec<u64>> {
        let slot = self.index(key)?;
        match &mut self.slots[slot].key.as_mut()?.region {
            Region::Pages { pages, .. } => Some(pages),
            Region::Flat { .. } | Region::OnDemand { .. } | Region::Void => None,
        }
    }

    /// Changes a key's attributes, its variant and its free flag; its translation stays. The caller
    /// checked the new attributes.
    pub(crate) fn change(
        &mut self,
        key: Key,
        variant: Option<u8>,
        free: bool,
        change: impl FnOnce(&mut MkeyContext),
    ) {
        if let Some(slot) = self.index(key) {
            self.changed = true;
            let entry = &mut self.slots[slot];
            entry.variant = variant.unwrap_or(entry.variant);
            entry.dead = free;
            entry.key.as_mut().map(change);
        }
    }

    /// Invalidates a key by SEND with invalidate, if it allows that (IBTA 10.6.3.3).
    pub(crate) fn invalidate(&mut self, who: Who, key: Key) -> Result<(), KeyFault> {
        let allowed = self.find(who, Segment { key, addr: 0, len: 0 }, Access::empty());
        match (self.slot(key), allowed) {
            (None, _) => Err(KeyFault::NoKey),
            (_, Err(fault @ (KeyFault::NoKey | KeyFault::WrongPd | KeyFault::WrongQp))) => {
                Err(fault)
            }
            // Invalidation ignores the range.
            (Some(slot), _) => {
                let entry = &mut self.slots[slot];
                if !entry.key.as_ref().is_some_and(|key| key.remote_invalidate) {
                    return Err(KeyFault::Right);
                }
                entry.dead = true;
                self.changed = true;
                Ok(())
            }
        }
    }

    /// Checks an access. Returns the key and the offset of `segment` in its region.
    pub(crate) fn find(
        &self,
        who: Who,
        segment: Segment,
        need: Access,
    ) -> Result<(&MkeyContext, u64), KeyFault> {
        if segment.key == Key::DUMP_FILL {
            let allowed = DUMP_FILL.access.contains(need);
            return if allowed { Ok((&DUMP_FILL, segment.addr)) } else { Err(KeyFault::Right) };
        }
        let slot = self.slot(segment.key).ok_or(KeyFault::NoKey)?;
        let entry = &self.slots[slot];
        let key = entry.key.as_ref().filter(|_| !entry.dead).ok_or(KeyFault::NoKey)?;
        if key.pd != who.pd {
            return Err(KeyFault::WrongPd);
        }
        // IBTA 10.6.7.2.4: only the queue pair that bound a window of type 2B may use it.
        if key.qpn.is_some_and(|qpn| qpn != who.qpn) {
            return Err(KeyFault::WrongQp);
        }
        if !key.access.contains(need) {
            return Err(KeyFault::Right);
        }
        let offset = segment.addr.checked_sub(key.iova).ok_or(KeyFault::Range)?;
        match offset.checked_add(segment.len) {
            Some(end) if end <= key.len => Ok((key, offset)),
            _ => Err(KeyFault::Range),
        }
    }
}

fn check_context(ctx: &MkeyContext) -> Result<(), HcaError> {
    if ctx.indirect.is_some() || ctx.free {
        // A free key is checked when it is bound; an indirect key's rights depend on its parts.
        return Ok(());
    }
    if !ctx.region.is_sound() || ctx.region.len() < ctx.len {
        return Err(HcaError::BadParam { what: "region", value: ctx.region.len() });
    }
    // Remote write and atomics change the owner's memory, so they need local write (IBTA 10.6.3.1;
    // uverbs refuses the combination in `ib_check_mr_access`).
    let remote = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if ctx.access.intersects(remote) && !ctx.access.contains(Access::LOCAL_WRITE) {
        return Err(HcaError::BadParam { what: "access", value: ctx.access.bits().into() });
    }
    Ok(())
}

const TOO_MANY: HcaError = HcaError::Limit { what: "mkey translations", limit: MAX_ENTRIES };

/// Entries of a key: page addresses, and parts by their weight.
fn entries(ctx: &MkeyContext) -> u64 {
    let pages = match &ctx.region {
        Region::Flat { .. } | Region::OnDemand { .. } | Region::Void => 0,
        Region::Pages { pages, .. } => pages.len() as u64,
    };
    pages + ctx.indirect.as_ref().map_or(0, weight)
}

fn weight(parts: &Indirect) -> u64 {
    parts.kept() as u64 * PART_WEIGHT
}

fn bad_handle(key: Key) -> HcaError {
    HcaError::BadHandle { noun: Noun::Mkey, number: key.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::testing::Arena;

    fn key(arena: &Arena, pd: Pdn, iova: u64, len: u64, access: Access) -> MkeyContext {
        MkeyContext {
            pd,
            iova,
            len,
            access,
            region: Region::Flat { addr: arena.base(), len },
            ..MkeyContext::default()
        }
    }

    fn who(pd: Pdn) -> Who {
        Who { pd, qpn: Qpn(0x40) }
    }

    #[test]
    fn stale_keys_do_not_match() {
        let arena = Arena::new(0x1000);
        let mut table = KeyTable::default();
        let ctx = key(&arena, Pdn(1), 0, 64, Access::empty());
        let first = table.create(ctx.clone(), None, 1).unwrap();
        assert!(matches!(table.create(ctx.clone(), None, 1), Err(HcaError::Limit { .. })));
        table.destroy(first).unwrap();
        let second = table.create(ctx, None, 1).unwrap();
        assert_eq!(first.index(), second.index(), "the slot is used again");
        assert_ne!(first, second);
        let at = |key| Segment { key, addr: 0, len: 1 };
        assert_eq!(table.check(who(Pdn(1)), at(first), Access::empty()), Err(KeyFault::NoKey));
        assert_eq!(table.check(who(Pdn(1)), at(second), Access::empty()), Ok(()));
        // Destruction ignores the variant.
        table.destroy(first).unwrap();
        assert!(table.destroy(second).is_err());
    }

    #[test]
    fn translations_have_a_bound_together() {
        use uverbs_front::backend::indirect::{List, Part};
        const QUARTER: u64 = MAX_ENTRIES / 4;
        let arena = Arena::new(0x1000);
        let mut table = KeyTable::default();
        let flat = key(&arena, Pdn(1), 0, 64, Access::empty());
        let pages = |count: u64| {
            let pages = vec![0; count as usize];
            let region = Region::Pages { page_shift: 12, offset: 0, pages, len: 64 };
            MkeyContext { region, ..flat.clone() }
        };
        let parts = |count: u64| {
            let part = Part { len: 1, key: Key(0), addr: 0, stride: 0 };
            Indirect::List(List::new(vec![part; count as usize], 1))
        };
        let full = [(); 3].map(|()| table.create(pages(QUARTER), None, 9).unwrap());
        let list = MkeyContext { indirect: Some(Indirect::default()), free: true, ..flat.clone() };
        let list = table.create(list, None, 9).unwrap();
        table.set_parts(list, parts(QUARTER / PART_WEIGHT)).unwrap();
        // Any further entry exceeds the limit.
        let limit = Err(HcaError::Limit { what: "mkey translations", limit: MAX_ENTRIES });
        assert_eq!(table.create(pages(1), None, 9), limit);
        assert_eq!(table.modify(full[0], pages(QUARTER + 1)).map(|()| Key(0)), limit);
        let more = parts(QUARTER / PART_WEIGHT + 1);
        assert_eq!(table.set_parts(list, more.clone()), Err(KeyFault::Room));
        table.create(flat.clone(), None, 9).unwrap();
        // Removal makes room for as many entries.
        table.modify(full[0], pages(QUARTER - PART_WEIGHT)).unwrap();
        table.set_parts(list, more).unwrap();
        assert_eq!(table.create(pages(1), None, 9), limit);
        table.destroy(list).unwrap();
        table.create(pages(QUARTER), None, 9).unwrap();
        for key in full {
            table.destroy(key).unwrap();
        }
        assert_eq!(table.entries, QUARTER);
    }

    #[test]
    fn live_windows_count_on_their_key() {
        use uverbs_front::backend::indirect::{List, Part};
        let arena = Arena::new(0x1000);
        let mut table = KeyTable::default();
        let flat = key(&arena, Pdn(1), 0, 64, Access::empty());
        let [base, other] = [(); 2].map(|()| table.create(flat.clone(), None, 9).unwrap());
        let free = MkeyContext { indirect: Some(Indirect::default()), free: true, ..flat.clone() };
        let window = MkeyContext { window: true, ..free.clone() };
        let [one, two] = [(); 2].map(|()| table.create(window.clone(), None, 9).unwrap());
        let list = table.create(free, None, 9).unwrap();
        let part = Part { len: 1, key: base, addr: 0, stride: 0 };
        for (live, key) in [one, two, list].into_iter().enumerate() {
            let parts = Indirect::List(List::new(vec![part], 1));
            table.set_parts(key, parts).unwrap();
            assert_eq!(table.windows_on(base), live, "free keys do not count");
            table.change(key, None, false, |_| ());
        }
        assert_eq!((table.windows_on(base), table.windows_on(other)), (2, 0));
        table.change(two, None, true, |_| ());
        assert_eq!(table.windows_on(base), 1);
        table.modify(one, flat).unwrap();
        assert_eq!(table.windows_on(base), 0, "no window any more");
        for key in [one, two] {
            table.destroy(key).unwrap();
        }
        assert!(table.windows.is_empty());
    }

    #[test]
    fn each_check_has_its_fault() {
        let arena = Arena::new(0x1000);
        let mut table = KeyTable::default();
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let key = table.create(key(&arena, Pdn(7), 0x1000, 64, rights), None, 8).unwrap();
        let at = |addr, len| Segment { key, addr, len };
        assert_eq!(table.check(who(Pdn(7)), at(0x1000, 64), rights), Ok(()));
        assert_eq!(table.check(who(Pdn(7)), at(0x1040, 0), rights), Ok(()));
        assert_eq!(table.check(who(Pdn(8)), at(0x1000, 1), rights), Err(KeyFault::WrongPd));
        assert_eq!(
            table.check(who(Pdn(7)), at(0x1000, 1), Access::REMOTE_READ),
            Err(KeyFault::Right)
        );
        assert_eq!(table.check(who(Pdn(7)), at(0xfff, 1), rights), Err(KeyFault::Range));
        assert_eq!(table.check(who(Pdn(7)), at(0x1000, 65), rights), Err(KeyFault::Range));
        assert_eq!(table.check(who(Pdn(7)), at(0x1001, u64::MAX), rights), Err(KeyFault::Range));
    }
}
