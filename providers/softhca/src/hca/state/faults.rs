//! Open page faults: a driver was told of them and is to bring the page. Without such a driver a
//! missing page is unreadable memory, and no page fault opens.

use std::collections::BTreeMap;

use crate::wire::{Frame, Psn};
use uverbs_front::backend::number::Qpn;

/// Maximum open page faults. Beyond it an access fails at once.
const MAX_OPEN: usize = 1 << 16;
/// Tokens have 24 bits (`mlx5_ifc_trans_page_fault_info_bits`).
const TOKEN_MASK: u32 = 0x00ff_ffff;

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// A driver takes the events.
    pub(crate) are_told: bool,
    last: u32,
    /// Waiting queue pairs and targets, by token.
    open: BTreeMap<u32, Qpn>,
}

impl Faults {
    /// Allocates a token for a queue pair that is to wait. None if no driver would end the wait.
    pub(crate) fn open(&mut self, qpn: Qpn) -> Option<u32> {
        if !self.are_told || self.open.len() >= MAX_OPEN {
            return None;
        }
        // Terminates: there are more tokens than open faults.
        loop {
            self.last = (self.last + 1) & TOKEN_MASK;
            if !self.open.contains_key(&self.last) {
                self.open.insert(self.last, qpn);
                return Some(self.last);
            }
        }
    }

    /// Closes a token, and returns the number that waited.
    pub(crate) fn close(&mut self, token: u32) -> Option<Qpn> {
        self.open.remove(&token)
    }

    /// Closes any open token, and returns it with the number that waited.
    pub(crate) fn close_any(&mut self) -> Option<(u32, Qpn)> {
        self.open.pop_first()
    }

    /// Removes the page faults of a destroyed queue pair or target.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.open.retain(|_, other| *other != qpn);
    }

    /// Number of open page faults.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }
}

/// A requester's wait for a page of one of its WQEs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halt {
    pub(crate) token: u32,
    /// Index of the WQE.
    pub(crate) index: u16,
    /// A response was lost meanwhile: all outstanding requests must be sent again.
    pub(crate) again: bool,
}

/// A responder's wait for a page.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) token: u32,
    /// PSN of the request that needs the page, and is sent again.
    pub(crate) psn: Psn,
    /// The page belongs to the receive of a message.
    pub(crate) receive: bool,
    /// Datagrams that arrived meanwhile: their senders do not repeat them.
    pub(crate) datagrams: Vec<Frame>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens wrap around, and no two open faults have an equal token.
    #[test]
    fn tokens_go_round_and_have_an_end() {
        let mut faults = Faults::default();
        assert_eq!(faults.open(Qpn(1)), None, "nobody is told");
        faults.are_told = true;
        let first = faults.open(Qpn(1)).unwrap();
        faults.last = TOKEN_MASK - 1;
        assert_eq!(faults.open(Qpn(2)), Some(TOKEN_MASK));
        assert_eq!(faults.open(Qpn(2)), Some(0));
        assert_eq!(faults.open(Qpn(2)), Some(first + 1), "the first one is in use");
        assert_eq!((faults.close(0), faults.close(0)), (Some(Qpn(2)), None));
        while faults.open(Qpn(3)).is_some() {}
        assert_eq!(faults.count(), MAX_OPEN);
        faults.forget(Qpn(3));
        assert_eq!(faults.count(), 3);
    }
}
