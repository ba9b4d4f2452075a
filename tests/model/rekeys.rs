//! Changes of windows and indirect keys, which work requests make.

use uverbs::memory::WindowKind;
use uverbs::{Batch, Completed, PostError, Wr};

use crate::choices::Choices;
use crate::keys::{BOTH, Key, Thing};
use crate::memory::{Memories, Reach, SLOT, Spot};
use crate::work::{KeyUse, Work};
use crate::world::{Side, World};

/// Keys of an end.
const MOST: usize = 3;

/// A key before a change: its slots, its version, and the two numbers by which peers name it.
type Before = (Vec<Spot>, u64, u32, u32);

impl World {
    /// Binds, lays out and takes away keys; makes and drops some.
    pub(crate) fn rekey(&mut self, pair: usize, side: usize) -> String {
        let at = (pair, side);
        let Self { choices, keys, sides, .. } = self;
        let mine = keys.of(|key| (key.pair, key.side) == at && key.pending == 0);
        if mine.is_empty() || mine.len() < MOST && choices.percent(20) {
            let Side { context, pd, .. } = &sides[side];
            keys.new_key(choices, (context, pd), at);
            if !mine.is_empty() {
                return format!("a key of end {side} of pair {pair}");
            }
        }
        let mine = keys.of(|key| (key.pair, key.side) == at && key.pending == 0);
        if mine.is_empty() {
            return format!("a key of end {side} of pair {pair} is being changed");
        }
        let number = mine[choices.below(mine.len())];
        let used = self.works.all.values().any(|work| work.uses(number));
        if used && choices.percent(70) {
            return format!("key {number} is used");
        }
        self.pairs[pair].is_spoiled |= used;
        if keys.all[&number].is_unsure || choices.percent(8) {
            keys.all.remove(&number);
            return format!("key {number} is dropped, used: {used}");
        }
        self.post_changes(pair, side, number)
    }

    /// Posts one or two changes of a key.
    fn post_changes(&mut self, pair: usize, side: usize, number: u32) -> String {
        let Self { choices, keys, memories, works, pairs, frames, .. } = self;
        let end = &mut pairs[pair].ends[side];
        let Some(qp) = &mut end.qp else { return "no end".to_owned() };
        frames.begin(end.sq);
        let key = keys.all.get_mut(&number).expect("chosen");
        if let (Some(name), Thing::Window(window)) = (key.undone.take(), &mut key.thing) {
            window.undo(name).expect("the key that it has");
        }
        let mut batch = qp.batch();
        let mut changes = Vec::new();
        for _ in 0..choices.within(1, 2) {
            let before = (key.spots.clone(), key.addr, key.version, key_of(&key.thing));
            let id = works.new_id();
            match change(choices, memories, &mut batch, key, Wr::new(id)) {
                Ok(true) => {
                    key.version += 1;
                    let mut work = Work::new(end.sq, side);
                    work.completed = Some(Completed::Rekey);
                    work.rekeys = Some(KeyUse { key: number, version: key.version });
                    changes.push((id, work, before));
                }
                Ok(false) => {}
                Err(error) => assert_eq!(error, PostError::Full, "a change of key {number}"),
            }
        }
        let count = changes.len();
        if choices.percent(80) {
            batch.ring();
            let first = changes.first().map(|(.., before)| before.3);
            for (id, work, _) in changes {
                key.pending += 1;
                works.add(id, work);
            }
            let told = format!("{count} changes of key {number} by end {side} of pair {pair}");
            if let (Some(name), Thing::Window(window)) = (first, &mut key.thing)
                && choices.percent(25)
            {
                key.undone = Some(window.rkey());
                window.undo(name).expect("the key that it had");
                return format!("{told}, undone all the same, {}", self.drop_named(number));
            }
            return told;
        }
        // As if never posted: the window has its earlier key, the indirect key has none.
        let Some((.., before)) = changes.into_iter().next() else {
            return format!("no change of key {number}");
        };
        let (spots, addr, version, name): Before = before;
        (key.spots, key.addr, key.version) = (spots, addr, version);
        match &mut key.thing {
            Thing::Window(window) => window.undo(name).expect("the key that it had"),
            Thing::Indirect(_) => key.is_unsure = true,
        }
        format!("{count} changes of key {number} that are not rung, {}", self.drop_named(number))
    }

    /// The program drops the memory that a key names, or keeps it. The key keeps it in any case.
    fn drop_named(&mut self, number: u32) -> String {
        match self.keys.all[&number].spots.first() {
            Some(spot) if self.choices.percent(50) => self.drop_memory(spot.memory),
            _ => "its memory stays".to_owned(),
        }
    }
}

fn key_of(thing: &Thing) -> u32 {
    match thing {
        Thing::Window(window) => window.rkey(),
        Thing::Indirect(key) => key.rkey(),
    }
}

/// Posts a change of a key. Returns true if it did.
fn change(
    choices: &mut Choices,
    memories: &mut Memories,
    batch: &mut Batch<'_>,
    key: &mut Key,
    wr: Wr,
) -> Result<bool, PostError> {
    let is_open = !key.spots.is_empty();
    match &mut key.thing {
        Thing::Window(window) => {
            let type2 = window.kind() == WindowKind::Type2;
            if is_open && (type2 || choices.percent(50)) {
                if type2 && choices.percent(30) {
                    batch.local_invalidate(wr, window.rkey())?;
                } else {
                    batch.unbind(wr, window)?;
                }
                key.spots.clear();
                return Ok(true);
            }
            let reach = [Reach::ByWindows];
            let Some(first) = memories.pick(choices, key.side, &reach, false) else {
                return Ok(false);
            };
            let count = choices.within(1, 3);
            let Some(part) = memories.part(first, count) else { return Ok(false) };
            batch.bind(wr, window, &part, BOTH)?;
            key.addr = memories.remote(first).map_or(0, |remote| remote.addr);
            let slots = first.slot..first.slot + count;
            key.spots = slots.map(|slot| Spot { slot, ..first }).collect();
        }
        Thing::Indirect(indirect) => {
            if is_open && choices.percent(30) {
                batch.unmap(wr, indirect)?;
                key.spots.clear();
                return Ok(true);
            }
            let reach = [Reach::ByIndirectKeys];
            let Some(first) = memories.pick(choices, key.side, &reach, false) else {
                return Ok(false);
            };
            if choices.percent(30) && first.slot + 4 < 12 {
                let memory = memories.exposed(first).expect("exposed");
                let (len, stride) = (SLOT as u16, 2 * SLOT as u16);
                let blocks = memory.blocks(first.slot * SLOT, len, stride, 3).expect("in range");
                batch.map_interleaved(wr, indirect, &[blocks], BOTH)?;
                key.spots = [0, 2, 4].map(|n| Spot { slot: first.slot + n, ..first }).into();
                return Ok(true);
            }
            let mut spots = vec![first];
            for _ in 0..choices.below(4) {
                let more = memories.pick(choices, key.side, &reach, false);
                spots.extend(more.filter(|spot| !spots.contains(spot)));
            }
            let parts: Vec<_> = spots.iter().filter_map(|spot| memories.part(*spot, 1)).collect();
            batch.map_list(wr, indirect, &parts, BOTH)?;
            key.spots = spots;
        }
    }
    Ok(true)
}
