//! Queue pairs with work, and timers.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::hca::state::qp::Qp;
use uverbs_front::backend::context::QpState;
use uverbs_front::backend::number::Qpn;

/// Turns and timers. Timers are of queue pairs; turns are of queue pairs and of targets of dynamic
/// connections.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Queue pairs and targets with work, in the order of their turns.
    pub(crate) runnable: VecDeque<Qpn>,
    /// Queue pairs and targets destroyed since the last purge that may have an entry in `runnable`.
    gone: usize,
    timers: BTreeSet<(Duration, Qpn)>,
    /// QPs in ERR with a receive ring: receives posted later are flushed, too, and ring no
    /// doorbell.
    pub(crate) flushing: BTreeSet<Qpn>,
    /// Steps since the timers were last checked.
    pub(crate) late: u32,
    /// The last step read no frames.
    pub(crate) skipped: bool,
}

impl Schedule {
    /// Gives a queue pair a turn, once.
    pub(crate) fn enqueue(&mut self, qp: &mut Qp) {
        if !qp.queued {
            qp.queued = true;
            self.runnable.push_back(qp.qpn);
        }
    }

    /// Updates the lists after a change of a queue pair.
    pub(crate) fn settle(&mut self, qp: &mut Qp) {
        let when = qp.deadline();
        if qp.timer != when {
            if let Some(old) = qp.timer {
                self.timers.remove(&(old, qp.qpn));
            }
            if let Some(new) = when {
                self.timers.insert((new, qp.qpn));
            }
            qp.timer = when;
        }
        if qp.state == QpState::Err && qp.ctx.rq.is_some() && !qp.mute {
            self.flushing.insert(qp.qpn);
        } else {
            self.flushing.remove(&qp.qpn);
        }
    }

    /// Takes the first timer that is due.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Qpn> {
        let &(when, qpn) = self.timers.first().filter(|(when, _)| *when <= now)?;
        self.timers.remove(&(when, qpn));
        Some(qpn)
    }

    /// Defers a due timer that waits for the peer.
    pub(crate) fn put_off(&mut self, qp: &mut Qp, later: Duration) {
        self.timers.insert((later, qp.qpn));
        qp.timer = Some(later);
    }

    /// Time of the next timer.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.timers.first().map(|&(when, _)| when)
    }

    /// Removes a destroyed queue pair or target. `queued` if it may have a turn: its entry stays
    /// until that turn, or until half of the entries may be of destroyed ones. Then all entries for
    /// which `lives` is false are purged.
    pub(crate) fn forget(
        &mut self,
        number: Qpn,
        timer: Option<Duration>,
        queued: bool,
        lives: impl Fn(Qpn) -> bool,
    ) {
        if let Some(when) = timer {
            self.timers.remove(&(when, number));
        }
        self.flushing.remove(&number);
        self.gone += usize::from(queued);
        if self.gone > self.runnable.len() / 2 {
            self.runnable.retain(|&other| lives(other));
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_destroyed_queue_pairs_do_not_pile_up() {
        let mut schedule = Schedule::default();
        schedule.runnable.extend((0..100).map(Qpn));
        for number in (100..10_000).map(Qpn) {
            schedule.runnable.push_back(number);
            schedule.forget(number, None, true, |other| other.0 < 100);
            assert!(schedule.runnable.len() <= 202);
        }
        let living = schedule.runnable.iter().take(100).map(|qpn| qpn.0);
        assert!(living.eq(0..100), "each keeps its turn");
    }
}
