//! Asynchronous events that a program or the front takes.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uverbs_mlx5_prm::eqe::{EventType, mlx5_eqe};

use crate::error::Error;

/// Maximum number of events that wait to be taken, and of completion queues with one. Only a
/// device that lies has more, since none waits twice.
const WAITING: usize = 1 << 16;
const COMPLETED: usize = 1 << 20;
/// Low bits of the data that are the number of a completion queue.
const NUMBER: u32 = 0xff_ffff;

/// An event of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Events that wait to be taken. An event that waits already is not added again. Events of
/// completion queues are apart: each queue has one at most.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Event>,
    known: HashSet<Event>,
    completed: BTreeSet<u32>,
}

impl Events {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. [`Error::Limit`] if too many wait.
    pub(crate) fn add(&self, event: Event) -> Result<(), Error> {
        let mut state = self.state();
        let (count, limit) = if event.kind == EventType::COMP {
            state.completed.insert(event.data[6] & NUMBER);
            (state.completed.len(), COMPLETED)
        } else {
            if state.known.insert(event) {
                state.waiting.push_back(event);
            }
            (state.waiting.len(), WAITING)
        };
        let (value, limit) = (count as u64, limit as u64);
        match value <= limit {
            true => Ok(()),
            false => Err(Error::Limit { what: "waiting events", value, limit }),
        }
    }

    /// Takes the oldest event.
    pub(crate) fn take(&self) -> Option<Event> {
        let mut state = self.state();
        let event = state.waiting.pop_front()?;
        state.known.remove(&event);
        Some(event)
    }

    /// Takes the number of a completion queue that has an event.
    pub(crate) fn take_completion(&self) -> Option<u32> {
        self.state().completed.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_waits_once_and_none_is_lost() {
        let events = Events::default();
        let event = |kind, number| Event { kind, sub_type: 0, data: [number; 7] };
        for number in (0..WAITING as u32).chain(0..WAITING as u32) {
            events.add(event(EventType::SRQ_RQ_LIMIT, number)).unwrap();
            events.add(event(EventType::COMP, number)).unwrap();
        }
        let more = events.add(event(EventType::SRQ_RQ_LIMIT, u32::MAX));
        assert!(matches!(more, Err(Error::Limit { .. })), "{more:?}");
        for number in 0..WAITING as u32 {
            assert_eq!(events.take(), Some(event(EventType::SRQ_RQ_LIMIT, number)));
            assert_eq!(events.take_completion(), Some(number));
        }
        assert_eq!(events.take().map(|event| event.data[6]), Some(u32::MAX));
        assert_eq!((events.take(), events.take_completion()), (None, None));
        // Again after it was taken.
        events.add(event(EventType::SRQ_RQ_LIMIT, 1)).unwrap();
        assert!(events.take().is_some());
    }
}
