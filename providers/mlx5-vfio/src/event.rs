//! Asynchronous events that a program takes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use uverbs_mlx5_prm::eqe::{EventType, mlx5_eqe};

/// Maximum number of events that wait to be taken.
const WAITING: usize = 256;

/// An event of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Kind.
    pub kind: EventType,
    /// Kind within the kind.
    pub sub_type: u8,
    /// Data, whose meaning depends on the kind.
    pub data: [u32; 7],
}

impl Event {
    pub(crate) fn of(eqe: &mlx5_eqe) -> Self {
        let data = eqe.data.map(|word| word.get());
        Self { kind: EventType(eqe.type_), sub_type: eqe.sub_type, data }
    }
}

/// Events that wait to be taken; later events are counted and dropped.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<(VecDeque<Event>, u64)>);

impl Events {
    pub(crate) fn add(&self, event: Event) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.len() < WAITING {
            true => state.0.push_back(event),
            false => state.1 += 1,
        }
    }

    /// Takes the oldest event.
    pub(crate) fn take(&self) -> Option<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.pop_front()
    }

    /// Number of dropped events.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}
