//! Keys made of parts of other keys (mkc.access_mode KLM and KSM).

use std::collections::BTreeMap;

use crate::backend::number::Key;

/// Translation of an indirect key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indirect {
    /// Parts of any length.
    List(List),
    /// Parts of equal length.
    Blocks(Blocks),
}

impl Default for Indirect {
    fn default() -> Indirect {
        Indirect::List(List::default())
    }
}

impl Indirect {
    /// Position of the byte at `offset`: key, address, and bytes up to the part's end.
    pub fn locate(&self, offset: u64) -> Option<(Key, u64, u64)> {
        match self {
            Indirect::List(list) => list.locate(offset),
            Indirect::Blocks(blocks) => blocks.locate(offset),
        }
    }

    /// Number of parts in memory.
    pub fn kept(&self) -> usize {
        match self {
            Indirect::List(list) => list.parts.len(),
            Indirect::Blocks(blocks) => blocks.keys.len(),
        }
    }
}

/// Memory blocks of equal length, each a part of another key or missing. A driver makes one key for
/// all of a process's memory; most of its blocks are [`Key::NULL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Log2 of a block's bytes.
    pub shift: u8,
    count: u64,
    /// Blocks that are not null: key, and address of the block in that key.
    keys: BTreeMap<u64, (Key, u64)>,
}

impl Blocks {
    /// Creates an empty list of blocks.
    pub fn new(shift: u8) -> Blocks {
        Blocks { shift, count: 0, keys: BTreeMap::new() }
    }

    /// Replaces the keys of blocks from `first` on.
    pub fn put(&mut self, first: u64, new: impl Iterator<Item = (Key, u64)>) {
        let mut at = first;
        for (key, addr) in new {
            if key == Key::NULL {
                self.keys.remove(&at);
            } else {
                self.keys.insert(at, (key, addr));
            }
            at += 1;
        }
        self.count = self.count.max(at);
    }

    fn locate(&self, offset: u64) -> Option<(Key, u64, u64)> {
        let at = offset >> self.shift;
        if at >= self.count {
            return None;
        }
        let inside = offset & ((1 << self.shift) - 1);
        let (key, addr) = self.keys.get(&at).copied().unwrap_or((Key::NULL, 0));
        Some((key, addr.checked_add(inside)?, (1 << self.shift) - inside))
    }
}

/// Parts with an index by offset, so that a lookup needs no walk: a guest may make a list of
/// thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    parts: Vec<Part>,
    /// End offset of each part within a round.
    ends: Vec<u64>,
    rounds: u64,
}

/// A part of another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes.
    pub len: u32,
    /// Key of the part.
    pub key: Key,
    /// Address under that key, in the first round.
    pub addr: u64,
    /// Distance of the part's addresses from one round to the next, in bytes.
    pub stride: u16,
}

impl List {
    /// All parts in turn, `rounds` times; each round adds the stride to a part's address. A plain
    /// list has one round.
    pub fn new(parts: Vec<Part>, rounds: u32) -> List {
        let mut end = 0;
        let ends = parts.iter().map(|part| {
            end += u64::from(part.len);
            end
        });
        List { ends: ends.collect(), parts, rounds: rounds.into() }
    }

    fn round(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Length of all rounds in bytes.
    #[expect(clippy::len_without_is_empty, reason = "only the length is used")]
    pub fn len(&self) -> u64 {
        self.round().saturating_mul(self.rounds)
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Position of the byte at `offset`: key, address, and bytes up to the part's end.
    pub fn locate(&self, offset: u64) -> Option<(Key, u64, u64)> {
        let turn = offset.checked_div(self.round())?;
        if turn >= self.rounds {
            return None;
        }
        let within = offset % self.round();
        let at = self.ends.partition_point(|&end| end <= within);
        let (part, end) = (self.parts.get(at)?, self.ends.get(at)?);
        let into = within - (end - u64::from(part.len));
        let moved = u64::from(part.stride).checked_mul(turn)?;
        Some((part.key, part.addr.checked_add(moved)?.checked_add(into)?, end - within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_found_by_their_place() {
        let mut blocks = Blocks::new(30);
        const SIZE: u64 = 1 << 30;
        blocks.put(0, [(Key::NULL, 0), (Key(0x1107), 5 * SIZE), (Key::NULL, 0)].into_iter());
        assert_eq!(blocks.locate(7), Some((Key::NULL, 7, SIZE - 7)));
        assert_eq!(blocks.locate(SIZE + 7), Some((Key(0x1107), 5 * SIZE + 7, SIZE - 7)));
        assert_eq!(blocks.locate(3 * SIZE - 1), Some((Key::NULL, SIZE - 1, 1)));
        assert_eq!(blocks.locate(3 * SIZE), None);
        blocks.put(1, [(Key::NULL, 0)].into_iter());
        blocks.put(5, [(Key(0x1208), u64::MAX)].into_iter());
        assert_eq!(blocks.locate(SIZE).map(|(key, ..)| key), Some(Key::NULL));
        assert_eq!(blocks.locate(5 * SIZE), Some((Key(0x1208), u64::MAX, SIZE)));
        assert_eq!(blocks.locate(5 * SIZE + 1), None, "no such address");
        assert_eq!(Indirect::Blocks(blocks).kept(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Finds every byte where a walk over all parts of all rounds finds it, and none beyond the
        /// end.
        #[test]
        fn finds_what_a_walk_finds(
            lens in proptest::collection::vec(0u32..9, 0..6),
            strides in proptest::collection::vec(any::<u16>(), 6),
            rounds in 0u32..4,
        ) {
            let parts: Vec<_> = (0u32..).zip(&lens).zip(&strides)
                .map(|((key, &len), &stride)| {
                    let addr = 1000 * u64::from(key);
                    Part { len, key: Key(key), addr, stride }
                })
                .collect();
            let mut walk = Vec::new();
            for round in 0..u64::from(rounds) {
                for part in &parts {
                    for at in 0..part.len {
                        let addr = part.addr + u64::from(part.stride) * round + u64::from(at);
                        walk.push((part.key, addr, u64::from(part.len - at)));
                    }
                }
            }
            let whole = List::new(parts, rounds);
            prop_assert_eq!(whole.len(), walk.len() as u64);
            for (offset, expected) in (0..).zip(walk) {
                prop_assert_eq!(whole.locate(offset), Some(expected));
            }
            prop_assert_eq!(whole.locate(whole.len()), None);
            prop_assert_eq!(whole.locate(u64::MAX), None);
        }
    }
}
