//! Keys made of parts of other keys (mkc.access_mode KLM).

use crate::hca::number::Key;

/// The parts, found by offset without a walk: a guest may make a list of thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indirect {
    parts: Vec<Part>,
    /// Where each part ends within a round.
    ends: Vec<u64>,
    rounds: u64,
}

/// A part of another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes.
    pub len: u32,
    /// The key.
    pub key: Key,
    /// Address in that key's numbering, in the first round.
    pub addr: u64,
    /// Bytes from one round to the next.
    pub stride: u16,
}

impl Indirect {
    /// All parts in turn, `rounds` times, each moved on by its stride every time. A plain list is
    /// one round.
    #[must_use]
    pub fn new(parts: Vec<Part>, rounds: u32) -> Indirect {
        let mut end = 0;
        let ends = parts.iter().map(|part| {
            end += u64::from(part.len);
            end
        });
        Indirect { ends: ends.collect(), parts, rounds: rounds.into() }
    }

    fn round(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Bytes of all parts together.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.round().saturating_mul(self.rounds)
    }

    /// Whether there is no byte in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The parts, in order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Where the byte at `offset` is: key, address there, and bytes up to the part's end.
    #[must_use]
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Every byte is where a walk over all parts of all rounds finds it, and none lies beyond.
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
            let whole = Indirect::new(parts, rounds);
            prop_assert_eq!(whole.len(), walk.len() as u64);
            for (offset, expected) in (0..).zip(walk) {
                prop_assert_eq!(whole.locate(offset), Some(expected));
            }
            prop_assert_eq!(whole.locate(whole.len()), None);
            prop_assert_eq!(whole.locate(u64::MAX), None);
        }
    }
}
