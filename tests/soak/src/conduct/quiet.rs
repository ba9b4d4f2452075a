//! The end of a cycle: the last guests go, and the remaining objects are checked.

use std::thread;
use std::time::Duration;

use super::{Run, unexpected};
use crate::patience::Patience;
use crate::said::{Held, Status};
use crate::trouble::Fault;

/// Time that a session of the last guests, and its objects on the hosts, may take to go.
const QUIET: Duration = Duration::from_secs(90);
/// Upper limit of a host without guests: the listener's id, and the domain that it makes for its
/// first guest.
const NOTHING: Held = Held { objects: 1, ids: 1, pinned: 0 };

/// How far guests are when no more are invited.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Rest {
    /// Guests that are there, and devices that aren't.
    away: usize,
    /// Sessions that have ended.
    sessions: u64,
}

impl Run {
    /// How far the last guests are.
    fn rest(&self) -> Rest {
        let places = self.places.iter();
        let away = places.clone().filter(|place| place.guest.is_some() || place.returning).count();
        Rest { away, sessions: places.map(|place| place.done + place.broken).sum() }
    }

    /// Begins to wait for a session of theirs, or for a host's device.
    fn patience(&self) -> Patience {
        let places = self.places.iter();
        let guests = places.clone().filter_map(|place| Some(place.guest.as_ref()?.0.id()));
        let all: Vec<u32> = places.map(|place| place.host.id()).chain(guests).collect();
        Patience::new(QUIET, &all)
    }

    /// Waits until all guests and their objects are gone, and takes samples.
    pub(super) fn quiet(&mut self) -> Result<(), Fault> {
        self.inside.command("pause")?;
        let (mut rest, mut patience) = (self.rest(), self.patience());
        while rest.away > 0 {
            for at in 0..self.places.len() {
                self.tend(at, false)?;
            }
            let now = self.rest();
            if now != rest {
                (rest, patience) = (now, self.patience());
            }
            if let Some(waited) = patience.ended() {
                let (process, waited) = ("guests".into(), waited.as_secs());
                return Err(Fault::Silent { process, waited });
            }
            thread::sleep(Duration::from_millis(10));
        }
        let mut said = Vec::new();
        self.inside.ready(|other| said.push(other))?;
        said.into_iter().for_each(|said| self.note_inside(said));
        for at in 0..self.places.len() {
            let status = self.quiet_host(at)?;
            self.compare(at, &status);
        }
        for place in self.places.iter_mut().filter(|place| place.is_steady()) {
            place.samples.push(place.host.sample()?);
        }
        self.inside_samples.push(self.inside.sample()?);
        self.inside.command("go")
    }

    /// Returns a host's status once it holds no guest's objects, which takes as long as its wait
    /// for dead peers.
    fn quiet_host(&mut self, at: usize) -> Result<Status, Fault> {
        let host = &mut self.places[at].host;
        let (patience, mut said) = (host.patience(QUIET), Vec::new());
        let status = loop {
            let status = host.status(|other| said.push(other))?;
            let Held { objects, ids, pinned } = status.held;
            let nothing = objects <= NOTHING.objects && ids <= NOTHING.ids && pinned == 0;
            if nothing && status.counts.under_way() == 0 {
                break status;
            }
            if patience.ended().is_some() {
                let under_way = status.counts.under_way();
                let (process, held) = (host.name.clone(), status.held);
                let what = format!("things: {held:?}, {under_way} sessions");
                let count = held.objects + held.ids + under_way;
                return Err(Fault::Left { process, what, count });
            }
            thread::sleep(Duration::from_millis(100));
        };
        said.into_iter().for_each(|said| self.faults.push(unexpected("host", said)));
        Ok(status)
    }

    /// Checks that a host's counts agree with the counts of its guests.
    fn compare(&mut self, at: usize, status: &Status) {
        let place = &self.places[at];
        let process = place.host.name.clone();
        let (counts, done, broken) = (&status.counts, place.done, place.broken);
        if let Some(why) = counts.wrong.clone() {
            self.faults.push(Fault::Session { process: process.clone(), why });
        }
        if status.damaged > 0 {
            let why = format!("{} packets or rings are damaged", status.damaged);
            self.faults.push(Fault::Counters { process: process.clone(), why });
        }
        // A killed guest may have ended its session without a message. The counts of a killed host
        // are unknown.
        let agree = (done..=done + broken).contains(&counts.done) && counts.broken <= broken;
        if place.is_steady() && !agree {
            let why = format!("{done} sessions of guests ended, {broken} broke; host: {counts:?}");
            self.faults.push(Fault::Counters { process, why });
        }
        self.totals.retransmits += status.retransmits.saturating_sub(place.retransmits);
        self.places[at].retransmits = status.retransmits;
    }
}
