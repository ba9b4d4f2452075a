//! Memory that peers access, in slots. The model knows each slot's bytes and writer.

use std::collections::BTreeMap;

use uverbs::memory::{DeviceMemory, ExposedPart};
use uverbs::{AccessFlags, Context, ExposedMemory, MemoryRegion, ProtectionDomain, Remote};

use crate::choices::Choices;

/// Bytes of a slot.
pub(crate) const SLOT: usize = 64;
const SLOTS: usize = 12;
const OPEN: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

/// A slot of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) memory: u32,
    pub(crate) slot: usize,
}

/// How peers reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    ByItsKey,
    ByWindows,
    ByIndirectKeys,
    OnDevice,
}

/// Outstanding write to a slot, by a work request of this connection.
struct Coming {
    pair: usize,
    /// `None`: the message is not known yet.
    bytes: Option<Vec<u8>>,
}

struct Slot {
    bytes: Vec<u8>,
    coming: Option<Coming>,
    readers: u32,
}

enum Backing {
    Exposed(ExposedMemory),
    Device(DeviceMemory, MemoryRegion),
}

struct Memory {
    side: usize,
    reach: Reach,
    backing: Backing,
    slots: Vec<Slot>,
}

/// All memory of a world, by number.
#[derive(Default)]
pub(crate) struct Memories {
    all: BTreeMap<u32, Memory>,
    /// Slots of memory that the program dropped, which keys may keep.
    gone: BTreeMap<u32, Vec<Slot>>,
    next: u32,
}

impl Backing {
    fn read(&self, slot: usize) -> Vec<u8> {
        let mut bytes = vec![0; SLOT];
        match self {
            Self::Exposed(memory) => memory.read(slot * SLOT, &mut bytes).expect("in range"),
            Self::Device(memory, _) => memory.read(slot * SLOT, &mut bytes).expect("in range"),
        }
        bytes
    }
}

impl Memories {
    pub(crate) fn add(
        &mut self,
        context: &Context,
        pd: &ProtectionDomain,
        side: usize,
        reach: Reach,
    ) {
        let len = SLOTS * SLOT;
        let expose = |access| Backing::Exposed(pd.expose(len, access).expect("expose"));
        let backing = match reach {
            Reach::ByItsKey => expose(OPEN),
            Reach::ByWindows => expose(AccessFlags::MW_BIND),
            Reach::ByIndirectKeys => expose(AccessFlags::empty()),
            Reach::OnDevice => {
                let memory = context.alloc_device_memory(len, 6).expect("alloc_dm");
                memory.write(0, &vec![0; len]).expect("in range");
                let access = OPEN | AccessFlags::LOCAL_WRITE;
                let region = pd.register_device_memory(&memory, 0, len, access);
                Backing::Device(memory, region.expect("reg_dm_mr"))
            }
        };
        let slot = || Slot { bytes: vec![0; SLOT], coming: None, readers: 0 };
        let slots = std::iter::repeat_with(slot).take(SLOTS).collect();
        self.all.insert(self.next, Memory { side, reach, backing, slots });
        self.next += 1;
    }

    /// The number of any of them.
    pub(crate) fn any(&self, choices: &mut Choices) -> Option<u32> {
        self.all.keys().nth(choices.index(self.all.len())?).copied()
    }

    /// Drops one of them, whoever uses it.
    pub(crate) fn drop_one(&mut self, number: u32) -> Option<(usize, Reach)> {
        let Memory { side, reach, slots, .. } = self.all.remove(&number)?;
        self.gone.insert(number, slots);
        Some((side, reach))
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    fn slot(&mut self, spot: Spot) -> Option<&mut Slot> {
        self.all.get_mut(&spot.memory)?.slots.get_mut(spot.slot)
    }

    /// Picks a slot that no work request writes, nor reads if it is `to_write`.
    pub(crate) fn pick(
        &self,
        choices: &mut Choices,
        side: usize,
        reach: &[Reach],
        to_write: bool,
    ) -> Option<Spot> {
        let mut found = Vec::new();
        for (&number, memory) in &self.all {
            if memory.side == side && reach.contains(&memory.reach) {
                let quiet = |slot: &Slot| slot.coming.is_none() && (slot.readers == 0 || !to_write);
                let slots = memory.slots.iter().enumerate().filter(|(_, slot)| quiet(slot));
                found.extend(slots.map(|(slot, _)| Spot { memory: number, slot }));
            }
        }
        Some(found[choices.index(found.len())?])
    }

    /// Returns true if the program dropped it, and no work request reads it.
    pub(crate) fn is_dropped(&self, spot: Spot) -> bool {
        let slot = self.gone.get(&spot.memory).and_then(|slots| slots.get(spot.slot));
        slot.is_some_and(|slot| slot.readers == 0)
    }

    /// Returns true if no work request writes it, nor reads it if it is `to_write`.
    pub(crate) fn is_quiet(&mut self, spot: Spot, to_write: bool) -> bool {
        let slot = self.slot(spot);
        slot.is_some_and(|slot| slot.coming.is_none() && (slot.readers == 0 || !to_write))
    }

    /// The slot as peers name it.
    pub(crate) fn remote(&self, spot: Spot) -> Option<Remote> {
        Some(match &self.all.get(&spot.memory)?.backing {
            Backing::Exposed(memory) => memory.remote(spot.slot * SLOT),
            Backing::Device(_, region) => {
                Remote { addr: region.addr() + (spot.slot * SLOT) as u64, rkey: region.rkey() }
            }
        })
    }

    pub(crate) fn exposed(&self, spot: Spot) -> Option<&ExposedMemory> {
        match &self.all.get(&spot.memory)?.backing {
            Backing::Exposed(memory) => Some(memory),
            Backing::Device(..) => None,
        }
    }

    /// Returns `slots` slots from `spot` on, to be posted.
    pub(crate) fn part(&self, spot: Spot, slots: usize) -> Option<ExposedPart> {
        self.exposed(spot)?.part(spot.slot * SLOT, slots * SLOT).ok()
    }

    pub(crate) fn bytes(&mut self, spot: Spot) -> Vec<u8> {
        self.slot(spot).map_or_else(|| vec![0; SLOT], |slot| slot.bytes.clone())
    }

    pub(crate) fn claim(&mut self, spot: Spot, pair: usize, bytes: Option<Vec<u8>>) {
        if let Some(slot) = self.slot(spot) {
            assert!(slot.coming.is_none(), "the model writes a slot once at a time");
            slot.coming = Some(Coming { pair, bytes });
        }
    }

    pub(crate) fn read_by(&mut self, spot: Spot, more: bool) {
        let gone = self.gone.get_mut(&spot.memory).and_then(|slots| slots.get_mut(spot.slot));
        let all = self.all.get_mut(&spot.memory);
        let there = all.and_then(|memory| memory.slots.get_mut(spot.slot));
        if let Some(slot) = there.or(gone) {
            slot.readers = if more { slot.readers + 1 } else { slot.readers - 1 };
        }
    }

    /// The write completed: the slot holds these bytes, or the announced ones.
    pub(crate) fn landed(&mut self, spot: Spot, bytes: Option<&[u8]>) {
        let Some(slot) = self.slot(spot) else { return };
        let coming = slot.coming.take().expect("announced");
        match (bytes, coming.bytes) {
            (Some(bytes), _) => slot.bytes[..bytes.len()].copy_from_slice(bytes),
            (None, Some(bytes)) => slot.bytes = bytes,
            (None, None) => panic!("the model has no bytes for {spot:?}"),
        }
        let found = self.all[&spot.memory].backing.read(spot.slot);
        let slot = self.slot(spot).expect("just there");
        assert_eq!(found, slot.bytes, "a completed write to {spot:?}");
    }

    /// A queue pair that was dropped or forgotten may still fill its own side's slot, at the latest
    /// when a completion with data is polled.
    pub(crate) fn abandon(&mut self, spot: Spot, side: usize) {
        if self.all.get(&spot.memory).is_some_and(|memory| memory.side == side)
            && let Some(slot) = self.slot(spot)
        {
            slot.coming = Some(Coming { pair: usize::MAX, bytes: None });
        }
    }

    /// The write was never rung.
    pub(crate) fn never(&mut self, spot: Spot) {
        if let Some(slot) = self.slot(spot) {
            slot.coming = None;
        }
    }

    /// Both ends of the connection are gone: slots that they were writing keep their bytes, old or
    /// new.
    pub(crate) fn settle(&mut self, pair: usize) {
        self.check();
        for memory in self.all.values_mut() {
            for (at, slot) in memory.slots.iter_mut().enumerate() {
                if slot.coming.as_ref().is_some_and(|coming| coming.pair == pair) {
                    slot.coming = None;
                    slot.bytes = memory.backing.read(at);
                }
            }
        }
    }

    /// Every byte is old, or new while it is being written.
    pub(crate) fn check(&self) {
        for (number, memory) in &self.all {
            for (at, Slot { bytes, coming, .. }) in memory.slots.iter().enumerate() {
                let found = memory.backing.read(at);
                let new = match coming {
                    None => bytes,
                    Some(Coming { bytes: None, .. }) => &found,
                    Some(Coming { bytes: Some(new), .. }) => new,
                };
                let fits = (0..SLOT).all(|at| found[at] == bytes[at] || found[at] == new[at]);
                let reach = memory.reach;
                assert!(fits, "slot {at} of memory {number}, {reach:?}: {found:?} for {bytes:?}");
            }
        }
    }

    /// The program writes a slot.
    pub(crate) fn write(&mut self, choices: &mut Choices) {
        let all = [Reach::ByItsKey, Reach::ByWindows, Reach::ByIndirectKeys, Reach::OnDevice];
        let side = choices.below(2);
        let Some(spot) = self.pick(choices, side, &all, true) else { return };
        let bytes = choices.bytes(SLOT);
        match &self.all[&spot.memory].backing {
            Backing::Exposed(memory) => memory.write(spot.slot * SLOT, &bytes).expect("in range"),
            Backing::Device(memory, _) => memory.write(spot.slot * SLOT, &bytes).expect("in range"),
        }
        self.slot(spot).expect("picked").bytes = bytes;
    }
}
