//! Bandwidth and message rate: as many messages outstanding as allowed, and how many were complete in each interval.

use std::time::{Duration, Instant};

use super::ends::{Bench, Ends, Ticker};
use super::exchange::{Control, Done};
use super::meter::Meter;
use super::options::Operation;
use super::side::Side;
use crate::error::Error;
use crate::pingpong::verify::Who;

/// What a run gave.
pub(super) struct Bandwidth {
    /// Messages that this process sent, in the measured time; of both ends if both are here.
    pub(super) messages: u64,
    /// From the first post to the last completion.
    pub(super) ns: u64,
    /// Messages complete in each whole interval.
    pub(super) intervals: Vec<u64>,
    pub(super) interval_ns: u64,
    /// What the other process sent, with --bidirectional.
    pub(super) peer: Done,
    /// Ended early, by the user.
    pub(super) interrupted: bool,
}

/// What one end does.
#[derive(Clone, Copy)]
struct Part {
    /// Sends.
    active: bool,
    /// Has receives to give back.
    receives: bool,
}

/// The loop: the ends that are here, what they do, and the other process if there is one.
struct Loop<'a> {
    ends: Vec<(&'a mut Side, Part)>,
    control: Option<&'a mut Control>,
    /// The other process has sent all that it will.
    peer: Option<Done>,
}

/// One pass over all messages.
struct Phase {
    messages: u64,
    ns: u64,
    stopped: bool,
}

/// Runs one size. A side that only serves has nothing to tell.
pub(super) fn run(ends: &mut Ends, bench: &Bench<'_>) -> Result<Option<Bandwidth>, Error> {
    let part = |who| {
        let both = bench.shape.bidirectional;
        let send = bench.shape.op == Operation::Send;
        Part { active: who == Who::Client || both, receives: send && (who == Who::Server || both) }
    };
    let mut all = match ends {
        Ends::Both(pair) => {
            let client = (&mut *pair.client, part(Who::Client));
            let server = (&mut *pair.server, part(Who::Server));
            Loop { ends: vec![client, server], control: None, peer: None }
        }
        Ends::One(side, control) => {
            let part = part(side.who);
            Loop { ends: vec![(side, part)], control: Some(control), peer: None }
        }
    };
    let result = all.run(bench);
    if let (Err(error), Some(control)) = (&result, &mut all.control) {
        control.give_up(error);
    }
    result
}

impl Loop<'_> {
    fn run(&mut self, bench: &Bench<'_>) -> Result<Option<Bandwidth>, Error> {
        let mut measured = None;
        if self.ends.iter().any(|(_, part)| part.active) {
            let shape = bench.shape;
            let mut stopped = false;
            if shape.warmup > 0 {
                stopped = self.phase(bench, shape.warmup, None, None)?.stopped;
            }
            let mut meter = Meter::new(bench.clock);
            let messages = shape.iters.unwrap_or(u64::MAX);
            let phase = if stopped {
                Phase { messages: 0, ns: 0, stopped }
            } else {
                self.phase(bench, messages, shape.duration(), Some(&mut meter))?
            };
            measured = Some((phase, meter));
        }
        let posted = self.ends.iter().map(|(side, _)| side.posted()).sum();
        let (messages, ns) =
            measured.as_ref().map_or((0, 0), |(phase, _)| (phase.messages, phase.ns));
        let own = Done { messages, ns, posted };
        let peer = match &mut self.control {
            // The client of both tells first; a side that only serves tells when it has been served.
            Some(_) if measured.is_none() => {
                let peer = self.serve(bench)?;
                self.verify()?;
                self.done(own, bench)?;
                peer
            }
            Some(_) => {
                self.done(own, bench)?;
                let peer = self.serve(bench)?;
                self.verify()?;
                peer
            }
            None => {
                self.catch_up(bench)?;
                self.verify()?;
                Done::default()
            }
        };
        Ok(measured.map(|(phase, meter)| {
            let (intervals, interval_ns) = meter.finish(bench.clock, bench.shape.cq_mod);
            let Phase { messages, ns, stopped } = phase;
            Bandwidth { messages, ns, intervals, interval_ns, peer, interrupted: stopped }
        }))
    }

    /// So many messages on each queue pair, or as many as fit into a time.
    fn phase(
        &mut self,
        bench: &Bench<'_>,
        messages: u64,
        time: Option<Duration>,
        mut meter: Option<&mut Meter>,
    ) -> Result<Phase, Error> {
        let clock = bench.clock;
        for (side, _) in self.ends.iter_mut().filter(|(_, part)| part.active) {
            side.order(messages);
        }
        let total = messages.saturating_mul(u64::from(bench.shape.qps));
        let mut ticker = Ticker::new(bench, total);
        let start = clock.now();
        let deadline = time.map_or(u64::MAX, |time| start.saturating_add(clock.ticks(time)));
        let patience = clock.ticks(bench.shape.timeout());
        if let Some(meter) = &mut meter {
            meter.start(start);
        }
        let (mut sum, mut stopped, mut closing) = (0, false, false);
        let mut last = start;
        loop {
            let (sent, busy) = self.pump(sum)?;
            sum += sent;
            let now = clock.now();
            if let Some(meter) = &mut meter {
                meter.add(now, sent);
            }
            if !closing && (now >= deadline || bench.stopped()) {
                (closing, stopped) = (true, now < deadline);
                self.ends.iter_mut().for_each(|(side, _)| side.close());
            }
            if sent > 0 {
                last = now;
            }
            if self.ends.iter().all(|(side, part)| !part.active || side.is_done()) {
                return Ok(Phase { messages: sum, ns: clock.ns(start, last), stopped });
            }
            if !busy {
                bench.idle();
                // Another thread's clock may be behind by a little.
                if now.saturating_sub(last) > patience {
                    let waited = Duration::from_nanos(clock.ns(last, now));
                    return Err(Error::Silence { iteration: sum, what: "a completion", waited });
                }
            }
            if ticker.is_due(now) {
                self.signs()?;
                // Of a run by time, its warm-up is no part.
                let begun = if meter.is_some() { start } else { now };
                ticker.tick(bench, begun, now, sum);
            }
        }
    }

    /// One round over the ends. Gives messages complete, and whether anything was done.
    #[inline]
    fn pump(&mut self, so_far: u64) -> Result<(u64, bool), Error> {
        let (mut sum, mut any) = (0, false);
        for (side, part) in &mut self.ends {
            if part.active || part.receives {
                let (sent, busy) = side.pump(so_far)?;
                sum += sent;
                any |= busy;
            }
        }
        Ok((sum, any))
    }

    /// Says that this process lives, and hears whether the other does.
    fn signs(&mut self) -> Result<(), Error> {
        let Some(control) = &mut self.control else { return Ok(()) };
        control.beat()?;
        if self.peer.is_none() {
            self.peer = control.hear()?;
        }
        Ok(())
    }

    fn done(&mut self, done: Done, bench: &Bench<'_>) -> Result<(), Error> {
        match &mut self.control {
            Some(control) => control.done(done, bench.stop),
            None => Ok(()),
        }
    }

    /// Serves the other process until it is done, and all that it sent is here.
    fn serve(&mut self, bench: &Bench<'_>) -> Result<Done, Error> {
        let mut ticker = Ticker::new(bench, 0);
        let started = Instant::now();
        loop {
            let (_, busy) = self.pump(0)?;
            let now = bench.clock.now();
            if !busy {
                match self.peer {
                    Some(done) if self.has_all(done.posted) => return Ok(done),
                    Some(_) if started.elapsed() > bench.shape.timeout() => {
                        let waited = started.elapsed();
                        let what = "a message that the peer knows to have arrived";
                        return Err(Error::Silence { iteration: 0, what, waited });
                    }
                    _ => bench.idle(),
                }
                if bench.stopped() {
                    return Err(Error::Peer("interrupted".to_owned()));
                }
            }
            // One that is done closes the connection when it has heard that this side is.
            if self.peer.is_none() && (!busy || ticker.is_due(now)) {
                self.signs()?;
                ticker.tick(bench, now, now, 0);
            }
        }
    }

    /// Both ends are here: what was sent is received.
    fn catch_up(&mut self, bench: &Bench<'_>) -> Result<(), Error> {
        let posted: Vec<u64> = self.ends.iter().rev().map(|(side, _)| side.posted()).collect();
        let started = Instant::now();
        while !self
            .ends
            .iter()
            .zip(&posted)
            .all(|((side, part), &posted)| !part.receives || side.received >= posted)
        {
            self.pump(0)?;
            bench.idle();
            let waited = started.elapsed();
            if waited > bench.shape.timeout() {
                let what = "a message that its sender knows to have arrived";
                return Err(Error::Silence { iteration: 0, what, waited });
            }
        }
        Ok(())
    }

    fn has_all(&self, posted: u64) -> bool {
        self.ends.iter().all(|(side, part)| !part.receives || side.received >= posted)
    }

    fn verify(&mut self) -> Result<(), Error> {
        let active: Vec<bool> = self.ends.iter().map(|(_, part)| part.active).collect();
        for (at, (side, part)) in self.ends.iter_mut().enumerate() {
            // The other end: here it is the other of the two; over there it sends when this one doesn't, or both do.
            let peer = match active.len() {
                2 => active[1 - at],
                _ => self.peer.is_some_and(|done| done.posted > 0),
            };
            side.verify_end(part.active, peer)?;
        }
        Ok(())
    }
}
