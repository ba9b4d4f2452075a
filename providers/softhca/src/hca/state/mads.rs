//! Datagrams of queue pair 1 that no client's queue pair takes: those of the device's own
//! connection manager.

use std::collections::VecDeque;

use crate::wire::{Address, Frame};

/// Datagrams that wait; more are dropped, and their senders send again.
const ROOM: usize = 1024;

/// A datagram that came to queue pair 1.
#[derive(Clone, Debug)]
pub(crate) struct Mad {
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) bytes: Vec<u8>,
}

/// Both ways.
#[derive(Debug, Default)]
pub(crate) struct Mads {
    came: VecDeque<Mad>,
    goes: VecDeque<Frame>,
}

impl Mads {
    /// Keeps what came. False without room.
    pub(crate) fn arrive(&mut self, mad: Mad) -> bool {
        let fits = self.came.len() < ROOM;
        if fits {
            self.came.push_back(mad);
        }
        fits
    }

    pub(crate) fn next_arrived(&mut self) -> Option<Mad> {
        self.came.pop_front()
    }

    /// Keeps what goes. False without room.
    pub(crate) fn leave(&mut self, frame: Frame) -> bool {
        let fits = self.goes.len() < ROOM;
        if fits {
            self.goes.push_back(frame);
        }
        fits
    }

    /// Whether any waits.
    pub(crate) fn leaves(&self) -> bool {
        !self.goes.is_empty()
    }

    /// The oldest whose destination takes it now.
    pub(crate) fn next_leaving(&mut self, takes: impl Fn(Address) -> bool) -> Option<Frame> {
        let at = self.goes.iter().position(|frame| takes(frame.dst))?;
        self.goes.remove(at)
    }
}
