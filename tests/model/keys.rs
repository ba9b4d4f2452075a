//! Memory windows and indirect keys: their memory, their users, and their binds.

use std::collections::BTreeMap;

use uverbs::memory::{IndirectKey, IndirectPart, MemoryWindow, WindowKind};
use uverbs::{AccessFlags, Context, ProtectionDomain, Remote};

use crate::choices::Choices;
use crate::memory::{Memories, Reach, SLOT, Spot};
use crate::work::{KeyUse, Must};

pub(crate) const BOTH: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);
pub(crate) enum Thing {
    Window(MemoryWindow),
    Indirect(IndirectKey),
}

/// A window or an indirect key: one end of a connection binds it, the other one uses it.
pub(crate) struct Key {
    pub(crate) thing: Thing,
    pub(crate) pair: usize,
    pub(crate) side: usize,
    /// The slots that it opens; empty if the key is bound to no memory.
    pub(crate) spots: Vec<Spot>,
    /// Address of the first one, as a window's peers name it.
    pub(crate) addr: u64,
    /// Changes with each binding.
    pub(crate) version: u32,
    /// Work requests outstanding that change it.
    pub(crate) pending: u32,
    /// A change of it failed, or may have.
    pub(crate) is_unsure: bool,
    /// The key that the device has of a window which was told that a change never happened.
    pub(crate) undone: Option<u32>,
}

/// All of a world.
#[derive(Default)]
pub(crate) struct Keys {
    pub(crate) all: BTreeMap<u32, Key>,
    next: u32,
}

/// A slot that a peer names.
pub(crate) struct Target {
    pub(crate) spot: Spot,
    pub(crate) remote: Remote,
    pub(crate) must: Must,
    pub(crate) by: Option<KeyUse>,
}

impl Key {
    fn is_quiet(&self) -> bool {
        self.pending == 0 && !self.is_unsure
    }

    /// The slot at `at`, as a peer names it.
    fn remote(&self, at: usize) -> Remote {
        let offset = (at * SLOT) as u64;
        match &self.thing {
            Thing::Window(window) => {
                let rkey = self.undone.unwrap_or(window.rkey());
                Remote { addr: self.addr + offset, rkey }
            }
            Thing::Indirect(key) => key.remote(offset),
        }
    }
}

impl Keys {
    pub(crate) fn of(&self, wanted: impl Fn(&Key) -> bool) -> Vec<u32> {
        self.all.iter().filter(|(_, key)| wanted(key)).map(|(number, _)| *number).collect()
    }

    /// A slot of this side that the connection's other end may name by one of these keys, or may
    /// not.
    pub(crate) fn target(
        &self,
        choices: &mut Choices,
        memories: &mut Memories,
        (pair, side): (usize, usize),
        to_write: bool,
    ) -> Option<Target> {
        let mine = self.of(|key| (key.pair, key.side) == (pair, side) && key.is_quiet());
        let number = mine[choices.index(mine.len())?];
        let key = &self.all[&number];
        let by = Some(KeyUse { key: number, version: key.version });
        let Some(at) = choices.index(key.spots.len()) else {
            // An unbound key is used rarely, since its use ends the connection.
            if choices.percent(80) {
                return None;
            }
            let spot = memories.pick(choices, side, &[Reach::ByWindows], to_write)?;
            let Remote { addr, .. } = memories.remote(spot)?;
            let remote = Remote { addr, ..key.remote(0) };
            return Some(Target { spot, remote, must: Must::Fail, by });
        };
        let spot = key.spots[at];
        // Memory that the program dropped is there for as long as the key is: it is written, and
        // not looked at.
        let is_kept = to_write && memories.is_dropped(spot);
        if !is_kept && !memories.is_quiet(spot, to_write) {
            return None;
        }
        let (mut remote, mut must) = (key.remote(at), Must::Succeed);
        if choices.percent(2) {
            // The key of the binding before.
            remote.rkey = remote.rkey & !0xff | remote.rkey.wrapping_sub(1) & 0xff;
            must = Must::Fail;
        }
        Some(Target { spot, remote, must, by })
    }

    /// Part of one of this side's indirect keys, to be posted, with its slot.
    pub(crate) fn part(
        &self,
        choices: &mut Choices,
        memories: &mut Memories,
        (pair, side): (usize, usize),
        to_write: bool,
    ) -> Option<(Spot, IndirectPart, KeyUse)> {
        let mine = self.of(|key| (key.pair, key.side) == (pair, side) && key.is_quiet());
        let number = mine[choices.index(mine.len())?];
        let Key { thing: Thing::Indirect(key), spots, version, .. } = &self.all[&number] else {
            return None;
        };
        let at = choices.index(spots.len())?;
        let part = key.part((at * SLOT) as u64, SLOT as u32).expect("within its layout");
        let used = KeyUse { key: number, version: *version };
        memories.is_quiet(spots[at], to_write).then_some((spots[at], part, used))
    }

    /// Returns true if the key is as it was when a work request was posted with it.
    pub(crate) fn is_same(&self, used: KeyUse) -> bool {
        self.all.get(&used.key).is_some_and(|key| key.version == used.version && key.is_quiet())
    }

    /// A work request that changes a key completed.
    pub(crate) fn changed(&mut self, used: KeyUse, well: bool) {
        if let Some(key) = self.all.get_mut(&used.key) {
            key.pending -= 1;
            key.is_unsure |= !well;
        }
    }

    /// The queue pairs of a connection are ended, and its keys with them.
    pub(crate) fn forget_pair(&mut self, pair: usize) {
        self.all.retain(|_, key| key.pair != pair);
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    pub(crate) fn new_key(
        &mut self,
        choices: &mut Choices,
        (context, pd): (&Context, &ProtectionDomain),
        (pair, side): (usize, usize),
    ) {
        let thing = match choices.below(4) {
            0 => Thing::Window(pd.alloc_window(WindowKind::Type1).expect("alloc_mw")),
            1 => Thing::Window(pd.alloc_window(WindowKind::Type2).expect("alloc_mw")),
            _ => Thing::Indirect(context.alloc_indirect_key(pd, 4).expect("create_mkey")),
        };
        let key = Key {
            thing,
            pair,
            side,
            spots: Vec::new(),
            addr: 0,
            version: 0,
            pending: 0,
            is_unsure: false,
            undone: None,
        };
        self.all.insert(self.next, key);
        self.next += 1;
    }
}
