//! Asynchronous events that a program or the front takes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uverbs_mlx5_prm::eqe::{EventType, mlx5_eqe};

/// Maximum number of events that wait to be taken, and of completion queues with one.
const WAITING: usize = 256;
const COMPLETED: usize = 1 << 16;
/// Low bits of the data that are the number of a completion queue.
const NUMBER: u32 = 0xff_ffff;

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

/// Events that wait to be taken; later events are counted and dropped. Events of completion queues
/// are apart: each queue has one at most, and none is dropped.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Event>,
    completed: BTreeSet<u32>,
    dropped: u64,
}

impl Events {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, event: Event) {
        let mut state = self.state();
        if event.kind == EventType::COMP && state.completed.len() < COMPLETED {
            state.completed.insert(event.data[6] & NUMBER);
        } else if state.waiting.len() < WAITING {
            state.waiting.push_back(event);
        } else {
            state.dropped += 1;
        }
    }

    /// Takes the oldest event.
    pub(crate) fn take(&self) -> Option<Event> {
        self.state().waiting.pop_front()
    }

    /// Takes the number of a completion queue that has an event.
    pub(crate) fn take_completion(&self) -> Option<u32> {
        self.state().completed.pop_first()
    }

    /// Number of dropped events.
    pub(crate) fn dropped(&self) -> u64 {
        self.state().dropped
    }
}
