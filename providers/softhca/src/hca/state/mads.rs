//! Management datagrams of queue pair 1 without a client's queue pair: the messages of the device's
//! connection manager.

use std::collections::VecDeque;

use crate::wire::{Address, Frame};
pub(crate) use uverbs_front::backend::Mad;

/// Maximum waiting datagrams; more are dropped, and their senders repeat them.
const ROOM: usize = 1024;

/// Datagrams of both directions.
#[derive(Debug, Default)]
pub(crate) struct Mads {
    came: VecDeque<Mad>,
    goes: VecDeque<Frame>,
}

impl Mads {
    /// Queues a received datagram. False if the queue is full.
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

    /// Queues a datagram to send. False if the queue is full.
    pub(crate) fn leave(&mut self, frame: Frame) -> bool {
        let fits = self.goes.len() < ROOM;
        if fits {
            self.goes.push_back(frame);
        }
        fits
    }

    /// True if a datagram waits to be sent.
    pub(crate) fn leaves(&self) -> bool {
        !self.goes.is_empty()
    }

    /// Takes the oldest datagram whose destination accepts one now.
    pub(crate) fn next_leaving(&mut self, takes: impl Fn(Address) -> bool) -> Option<Frame> {
        let at = self.goes.iter().position(|frame| takes(frame.dst))?;
        self.goes.remove(at)
    }
}
