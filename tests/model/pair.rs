//! Connections, as the model knows them.

use std::collections::VecDeque;

use uverbs::QueuePair;

use crate::work::{Message, Queue};

/// Entries of scatter and gather lists.
pub(crate) const PIECES: u32 = 4;
/// Bytes that a send may carry itself.
pub(crate) const INLINE: u32 = 100;

/// One end of a connection.
pub(crate) struct End {
    /// `None` after it was destroyed, dropped or forgotten.
    pub(crate) qp: Option<QueuePair>,
    pub(crate) qpn: u32,
    pub(crate) sq: Queue,
    /// Its receive queue: the shared queue's number, or its separate one.
    pub(crate) rq: Queue,
    pub(crate) is_shared: bool,
    /// Answers may come in completions.
    pub(crate) scatters: bool,
}

/// Two connected queue pairs.
pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
    /// Messages of each end that are on their way to the other end.
    pub(crate) sent: [VecDeque<Message>; 2],
    /// Something was done that may make work requests fail.
    pub(crate) is_spoiled: bool,
}

impl Pair {
    pub(crate) fn new(ends: [End; 2]) -> Self {
        Self { ends, sent: Default::default(), is_spoiled: false }
    }
}

/// The pair that a queue belongs to, by its number.
pub(crate) fn pair_of(pairs: &[Pair], queue: Queue) -> Option<(usize, usize)> {
    let all = pairs.iter().enumerate();
    let mut all = all.flat_map(|(pair, of)| [0, 1].map(|side| (pair, side, &of.ends[side])));
    all.find(|(.., end)| end.sq == queue || end.rq == queue && !end.is_shared)
        .map(|(pair, side, _)| (pair, side))
}
