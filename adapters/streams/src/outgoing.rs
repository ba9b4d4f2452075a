//! Bytes that go: where the peer takes them, and which of this end's memory is still in use.

use super::wire::RemoteMemory;

/// Minimum free bytes of the ring for a piece of a longer write, so that pieces don't become ever
/// smaller (`RS_SNDLOWAT`).
const LOW_WATER: u32 = 2048;
/// Length of the first piece of a long write, and the longest one: while the first is sent the
/// next, twice as long, is copied.
const FIRST_PIECE: u32 = 2048;
const LONGEST_PIECE: u32 = 65536;

#[derive(Debug)]
pub(super) struct Outgoing {
    /// Messages sent, and the number that isn't allowed any more; both wrap.
    sent: u16,
    limit: u16,
    /// The peer's memory for the next bytes.
    place: RemoteMemory,
    /// Work requests that may be posted, less those that are kept for control messages.
    slots: u32,
    /// Bytes of the ring, the next one to be used, and those in use.
    len: u32,
    at: u32,
    used: u32,
    inline: u32,
}

/// Destination of a piece that is copied before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// Into the work request.
    Inline,
    /// Into the ring, here.
    At(u32),
}

/// A piece that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) len: u32,
    pub(super) copied: Copied,
}

impl Piece {
    /// Bytes of the ring that its completion frees.
    pub(super) fn ring_bytes(self) -> u32 {
        if self.copied == Copied::Inline { 0 } else { self.len }
    }
}

impl Outgoing {
    /// `slots` work requests, a ring of `len` bytes, and the peer's first words.
    pub(super) fn new(slots: u32, len: u32, inline: u32, limit: u16, place: RemoteMemory) -> Self {
        Self { sent: 0, limit, place, slots, len, at: 0, used: 0, inline }
    }

    /// The peer allows messages up to this number.
    pub(super) fn allow(&mut self, limit: u16) {
        self.limit = limit;
    }

    /// True if the place is used up, and the next one must be looked up.
    pub(super) fn needs_place(&self) -> bool {
        self.place.len == 0
    }

    pub(super) fn set_place(&mut self, place: RemoteMemory) {
        self.place = place;
    }

    fn has_credit(&self) -> bool {
        self.sent != self.limit
    }

    /// The next piece of `left` bytes, after `done` bytes of the same write. `None` while work
    /// requests, memory, or the peer's credit are lacking.
    pub(super) fn piece(&self, left: usize, done: usize) -> Option<Piece> {
        if !self.has_credit() || self.place.len == 0 {
            return None;
        }
        self.fit(left, done, self.place.len)
    }

    /// As [`piece`](Self::piece), of a WRITE that the peer isn't told of, to a place of `room`
    /// bytes.
    pub(super) fn fit(&self, left: usize, done: usize, room: u32) -> Option<Piece> {
        let left = u32::try_from(left).unwrap_or(u32::MAX).min(room);
        if self.slots == 0 || left == 0 {
            return None;
        }
        if left <= self.inline {
            return Some(Piece { len: left, copied: Copied::Inline });
        }
        let free = self.len - self.used;
        if free < left.min(LOW_WATER).min(self.len) {
            return None;
        }
        // Double what went: 2048, 2048, 4096 ...
        let step = u32::try_from(done).unwrap_or(u32::MAX).clamp(FIRST_PIECE, LONGEST_PIECE);
        let len = left.min(step).min(free).min(self.len - self.at);
        Some(Piece { len, copied: Copied::At(self.at) })
    }

    /// Counts a piece of the stream as posted, and returns its destination.
    pub(super) fn send(&mut self, piece: Piece) -> RemoteMemory {
        let to = self.place;
        self.sent = self.sent.wrapping_add(1);
        self.place.addr = to.addr.wrapping_add(piece.len.into());
        self.place.len -= piece.len;
        self.post(piece);
        to
    }

    /// Counts a WRITE as posted.
    pub(super) fn post(&mut self, piece: Piece) {
        self.slots -= 1;
        self.used += piece.ring_bytes();
        self.at = (self.at + piece.ring_bytes()) % self.len;
    }

    /// True if a write, or a part of it, can be posted.
    pub(super) fn may_write(&self) -> bool {
        self.piece(LOW_WATER as usize, 0).is_some()
    }

    /// True if a message without stream bytes can be posted.
    pub(super) fn may_tell(&self) -> bool {
        self.slots != 0 && self.has_credit()
    }

    /// It goes.
    pub(super) fn tell(&mut self) {
        self.slots -= 1;
        self.sent = self.sent.wrapping_add(1);
    }

    /// Frees the ring bytes of a completed work request. Work requests complete in order.
    pub(super) fn completed(&mut self, ring_bytes: u32) {
        self.slots += 1;
        self.used -= ring_bytes;
    }

    pub(super) fn free_slots(&self) -> u32 {
        self.slots
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const PLACE: RemoteMemory = RemoteMemory { addr: 0x1000, key: 7, len: 100_000 };

    #[test]
    fn pieces_grow_and_end_where_the_ring_does() {
        let mut outgoing = Outgoing::new(16, 10_240, 64, 100, PLACE);
        let (mut done, mut at) = (0, Vec::new());
        while let Some(piece) = outgoing.piece(50_000 - done, done) {
            let to = outgoing.send(piece);
            assert_eq!(to.addr, 0x1000 + done as u64);
            at.push((piece.copied, piece.len));
            done += piece.len as usize;
        }
        let at_len = |at, len| (Copied::At(at), len);
        assert_eq!(
            at,
            [at_len(0, 2048), at_len(2048, 2048), at_len(4096, 4096), at_len(8192, 2048)]
        );
        // 1000 free bytes are under the mark, and few bytes need no ring.
        outgoing.completed(1000);
        assert_eq!(outgoing.piece(5000, 0), None);
        assert_eq!(outgoing.piece(64, 0).unwrap().copied, Copied::Inline);
        assert_eq!(outgoing.piece(900, 0), Some(Piece { len: 900, copied: Copied::At(0) }));
    }

    #[test]
    fn nothing_goes_without_leave() {
        let mut outgoing = Outgoing::new(16, 10_000, 64, 1, PLACE);
        let piece = outgoing.piece(10, 0).unwrap();
        outgoing.send(piece);
        assert_eq!(outgoing.piece(10, 0), None, "no message more");
        outgoing.allow(2);
        outgoing.set_place(RemoteMemory { len: 3, ..PLACE });
        assert_eq!(outgoing.piece(10, 0).unwrap().len, 3);
        outgoing.set_place(RemoteMemory::default());
        assert!(outgoing.needs_place() && outgoing.piece(10, 0).is_none());
    }

    proptest! {
        /// Pieces stay within the ring and the peer's credit, and leave outstanding memory alone,
        /// whatever the peer grants.
        #[test]
        fn pieces_stay_inside(
            len in 1..9000u32, slots in 1..20u32,
            steps in prop::collection::vec(
                (0..3u8, 0..9000usize, any::<u16>(), any::<u32>()),
                1..200,
            ),
        ) {
            let mut outgoing = Outgoing::new(slots, len, 64, 0, RemoteMemory::default());
            let mut posted: VecDeque<Piece> = VecDeque::new();
            for (what, count, limit, room) in steps {
                match what {
                    0 => {
                        if let Some(piece) = outgoing.piece(count, 0) {
                            prop_assert!(piece.len > 0 && piece.len as usize <= count);
                            prop_assert!(piece.len <= outgoing.place.len);
                            if let Copied::At(at) = piece.copied {
                                prop_assert!(at + piece.len <= len);
                                let used: u32 = posted.iter().map(|piece| piece.ring_bytes()).sum();
                                prop_assert!(used + piece.len <= len);
                            }
                            outgoing.send(piece);
                            posted.push_back(piece);
                        }
                    }
                    1 => {
                        if let Some(piece) = posted.pop_front() {
                            outgoing.completed(piece.ring_bytes());
                        }
                    }
                    _ => {
                        outgoing.allow(limit);
                        outgoing.set_place(RemoteMemory { addr: u64::MAX, key: 0, len: room });
                    }
                }
                prop_assert_eq!(outgoing.free_slots() as usize, slots as usize - posted.len());
            }
        }
    }
}
