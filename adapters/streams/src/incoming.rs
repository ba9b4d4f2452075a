//! Received bytes, and the credit that the peer gets.
//!
//! The buffer has two halves. The peer gets credit for a half at a time, fills it from its start,
//! and sends a message for each piece. A half whose bytes were read goes back to the peer. This
//! file only counts: the peer's messages can't lead outside of the buffer.

use std::collections::VecDeque;

use super::StreamError;

#[derive(Debug)]
pub(super) struct Incoming {
    half: u32,
    /// Ring offset of the next unread byte.
    at: u32,
    /// Lengths of the unread pieces; the first entry is what remains of its piece.
    pieces: VecDeque<u32>,
    unread: u32,
    /// Bytes that the peer may still write.
    room: u64,
    /// Bytes free again: read, or skipped by the peer. Not announced to the peer yet.
    free: u32,
    /// Ring offset of the next half to announce to the peer.
    next_half: u32,
    /// Number of pieces read, and the number at which the peer is told; both wrap.
    read: u16,
    tell_at: u16,
    /// Pieces that may be unread at a time.
    most: u16,
}

/// A part of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) at: u32,
    pub(super) len: u32,
}

/// Credit to announce to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The number of the last message that it may send, plus one.
    pub(super) limit: u16,
    /// The half that is its to fill.
    pub(super) half: Option<Span>,
}

impl Incoming {
    /// State of a new stream: the peer may write the first half of the ring, in `most` messages.
    pub(super) fn new(len: u32, most: u16) -> Self {
        let half = len / 2;
        Self {
            half,
            at: 0,
            pieces: VecDeque::with_capacity(most.into()),
            unread: 0,
            room: half.into(),
            free: half,
            next_half: half,
            read: 0,
            tell_at: most / 2,
            most,
        }
    }

    /// The half that the peer has from the start.
    pub(super) fn first_half(&self) -> Span {
        Span { at: 0, len: self.half }
    }

    /// A piece came.
    ///
    /// # Errors
    ///
    /// [`StreamError::TooManyBytes`], [`StreamError::TooManyMessages`].
    pub(super) fn came(&mut self, len: u32) -> Result<(), StreamError> {
        let Some(room) = self.room.checked_sub(len.into()) else {
            return Err(StreamError::TooManyBytes { bytes: len, room: self.room });
        };
        if self.pieces.len() >= usize::from(self.most) {
            return Err(StreamError::TooManyMessages { limit: self.most });
        }
        self.room = room;
        // No more than the buffer has, since that much was granted.
        self.unread += len;
        self.pieces.push_back(len);
        Ok(())
    }

    /// Consumes the next contiguous bytes, at most `most`.
    pub(super) fn take(&mut self, most: usize) -> Option<Span> {
        let len =
            (self.half * 2 - self.at).min(self.unread).min(u32::try_from(most).unwrap_or(u32::MAX));
        if len == 0 {
            return None;
        }
        let span = Span { at: self.at, len };
        self.at = (self.at + len) % (self.half * 2);
        self.unread -= len;
        self.free += len;
        let mut left = len;
        while let Some(piece) = self.pieces.front_mut() {
            if *piece > left {
                *piece -= left;
                break;
            }
            left -= *piece;
            self.pieces.pop_front();
            self.read = self.read.wrapping_add(1);
        }
        Some(span)
    }

    /// Spans of the bytes that [`take`](Self::take) would consume: up to the ring's end, and from
    /// its start.
    pub(super) fn ahead(&self, most: usize) -> [Span; 2] {
        let all = self.unread.min(u32::try_from(most).unwrap_or(u32::MAX));
        let first = all.min(self.half * 2 - self.at);
        [Span { at: self.at, len: first }, Span { at: 0, len: all - first }]
    }

    /// True if there are unread bytes.
    pub(super) fn has_some(&self) -> bool {
        self.unread > 0
    }

    /// True if the peer should be told of free room (`rs_give_credits`).
    pub(super) fn owes(&self) -> bool {
        self.free >= self.half || self.read.wrapping_sub(self.tell_at) as i16 >= 0
    }

    /// Returns the credit to announce, and counts it as announced.
    pub(super) fn grant(&mut self) -> Grant {
        self.tell_at = self.read.wrapping_add(self.most / 2);
        let half = (self.free >= self.half).then_some(Span { at: self.next_half, len: self.half });
        if half.is_some() {
            self.free -= self.half;
            self.room += u64::from(self.half);
            self.next_half = if self.next_half == 0 { self.half } else { 0 };
        }
        Grant { limit: self.read.wrapping_add(self.most), half }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_halves_are_granted_in_turn() {
        let mut incoming = Incoming::new(200, 10);
        assert!(incoming.owes(), "the second half is free");
        let second = Grant { limit: 10, half: Some(Span { at: 100, len: 100 }) };
        assert_eq!(incoming.grant(), second);
        assert!(!incoming.owes());
        incoming.came(60).unwrap();
        incoming.came(40).unwrap();
        assert_eq!(incoming.take(70), Some(Span { at: 0, len: 70 }));
        assert!(!incoming.owes());
        assert_eq!(incoming.take(70), Some(Span { at: 70, len: 30 }));
        assert_eq!(incoming.grant(), Grant { limit: 12, half: Some(Span { at: 0, len: 100 }) });
        assert_eq!(incoming.take(1), None);
    }

    #[test]
    fn messages_alone_are_granted_when_half_of_them_was_read() {
        let mut incoming = Incoming::new(2000, 10);
        incoming.grant();
        for _ in 0..5 {
            assert!(!incoming.owes());
            incoming.came(1).unwrap();
            incoming.take(1).unwrap();
        }
        assert!(incoming.owes());
        assert_eq!(incoming.grant(), Grant { limit: 15, half: None });
    }

    #[test]
    fn what_was_not_granted_is_refused() {
        let mut incoming = Incoming::new(200, 3);
        let error = incoming.came(101).unwrap_err();
        assert_eq!(error, StreamError::TooManyBytes { bytes: 101, room: 100 });
        // A hostile peer's messages of no bytes.
        for _ in 0..3 {
            incoming.came(0).unwrap();
        }
        assert_eq!(incoming.came(0), Err(StreamError::TooManyMessages { limit: 3 }));
    }

    proptest! {
        /// Whatever a peer says: no span outside of the buffer, no count under zero, no more
        /// granted than is free, and each byte of an honest peer is read once and in order.
        #[test]
        fn nothing_leads_outside(
            half in 1..300u32, most in 1..20u16,
            steps in prop::collection::vec((any::<bool>(), 0..700u32), 0..200),
        ) {
            let len = half * 2;
            let mut incoming = Incoming::new(len, most);
            let (mut written, mut read) = (0u64, 0u64);
            for (writes, count) in steps {
                if writes {
                    let room = incoming.room;
                    match incoming.came(count) {
                        Ok(()) => written += u64::from(count),
                        Err(StreamError::TooManyBytes { .. }) => {
                            prop_assert!(u64::from(count) > room);
                        }
                        Err(_) => prop_assert_eq!(incoming.pieces.len(), usize::from(most)),
                    }
                } else if let Some(span) = incoming.take(count as usize) {
                    prop_assert!(span.len <= count && span.at + span.len <= len);
                    prop_assert_eq!(u64::from(span.at), read % u64::from(len));
                    read += u64::from(span.len);
                }
                if incoming.owes()
                    && let Some(half) = incoming.grant().half
                {
                    prop_assert!(half.at == 0 || half.at == len / 2);
                }
                prop_assert_eq!(written - read, u64::from(incoming.unread));
                let all = incoming.room + u64::from(incoming.unread) + u64::from(incoming.free);
                prop_assert_eq!(all, u64::from(len));
            }
        }
    }
}
