//! Page faults that a driver was told of and has not answered. There are some only where a driver
//! brings pages: else a page that isn't there is memory that doesn't answer.

use std::collections::BTreeMap;

use crate::hca::number::Qpn;
use crate::wire::{Frame, Psn};

/// Page faults that may be open at once. One more, and its access fails.
const MAX_OPEN: usize = 1 << 16;
/// Tokens have 24 bits (`mlx5_ifc_trans_page_fault_info_bits`).
const TOKEN_MASK: u32 = 0x00ff_ffff;

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Somebody takes the events.
    pub(crate) are_told: bool,
    last: u32,
    /// Queue pairs and targets that wait, by token.
    open: BTreeMap<u32, Qpn>,
}

impl Faults {
    /// A token for a queue pair that is to wait; None if nobody would end the wait.
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

    /// Who waited with that token.
    pub(crate) fn close(&mut self, token: u32) -> Option<Qpn> {
        self.open.remove(&token)
    }

    /// A token that is open, and who waited with it: closes it.
    pub(crate) fn close_any(&mut self) -> Option<(u32, Qpn)> {
        self.open.pop_first()
    }

    /// Forgets a queue pair or target that is destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.open.retain(|_, other| *other != qpn);
    }

    /// Page faults that are open.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }
}

/// A requester that waits for a page of one of its WQEs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halt {
    pub(crate) token: u32,
    /// Which WQE.
    pub(crate) index: u16,
    /// An answer was lost to it: what is outstanding has to be asked for again.
    pub(crate) again: bool,
}

/// A responder that waits for a page.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) token: u32,
    /// The request that needs it, and comes again.
    pub(crate) psn: Psn,
    /// It is for the receive of a message.
    pub(crate) receive: bool,
    /// Datagrams, which don't come again.
    pub(crate) held: Vec<Frame>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens are short, and never the same for two.
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
