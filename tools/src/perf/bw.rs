//! Bandwidth and message rate: as many messages in flight as allowed, and completed messages by
//! interval.

use std::time::{Duration, Instant};

use super::ends::{Bench, Ends, Ticker};
use super::exchange::{Control, Done};
use super::meter::Meter;
use super::side::Side;
use crate::base::error::Error;
use crate::base::sleep::Sleep;
use crate::link::operation::Operation;
use crate::link::verify::Who;

/// Time without arrivals after which missing messages of an unreliable transport are lost. On a
/// busy machine a software device may get no processor time for half a second.
const LOST_AFTER: Duration = Duration::from_secs(2);

/// Result of a run.
pub(super) struct Bandwidth {
    /// Messages sent by this process in the measured time; by both ends if both are here.
    pub(super) messages: u64,
    /// Nanoseconds from the first post to the last completion.
    pub(super) ns: u64,
    /// Messages completed in each whole interval.
    pub(super) intervals: Vec<u64>,
    pub(super) interval_ns: u64,
    /// Result of the other process, with --bidirectional.
    pub(super) peer: Done,
    /// Messages that were sent and never arrived.
    pub(super) lost: u64,
    /// The user ended the run early.
    pub(super) interrupted: bool,
}

/// Role of an end in the run.
#[derive(Clone, Copy)]
struct Part {
    /// The end sends.
    active: bool,
    /// The end has receives to post again.
    receives: bool,
}

/// Loop over the local ends, with the other process if there is one.
struct Loop<'a> {
    ends: Vec<(&'a mut Side, Part)>,
    control: Option<&'a mut Control>,
    /// Result of the other process, once it has sent all its messages.
    peer: Option<Done>,
    sleep: Sleep,
}

/// A pass over all messages: warm-up or measurement.
struct Phase {
    messages: u64,
    ns: u64,
    stopped: bool,
}

/// Runs one size. A side that only serves has no result.
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
            Loop { ends: vec![client, server], control: None, peer: None, sleep: Sleep::default() }
        }
        Ends::One(side, control) => {
            let part = part(side.who);
            let ends = vec![(&mut **side, part)];
            Loop { ends, control: Some(control), peer: None, sleep: Sleep::default() }
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
        let interrupted = measured.as_ref().is_some_and(|(phase, _)| phase.stopped);
        let mut own = Done { messages, ns, posted, received: 0, interrupted };
        let peer = match &mut self.control {
            // With --bidirectional the client reports its end first; a server reports after it was
            // served.
            Some(_) if measured.is_none() => {
                let peer = self.serve(bench)?;
                self.verify(bench)?;
                own.received = self.received();
                self.done(own, bench)?;
                peer
            }
            Some(_) => {
                let bench = if interrupted { &bench.parting() } else { bench };
                self.done(own, bench)?;
                let peer = self.serve(bench)?;
                self.verify(bench)?;
                peer
            }
            None => {
                self.catch_up(bench)?;
                self.verify(bench)?;
                Done::default()
            }
        };
        let lost = self.lost(bench, posted, &peer);
        Ok(measured.map(|(phase, meter)| {
            let (intervals, interval_ns) = meter.finish(bench.clock, bench.shape.cq_mod);
            let Phase { messages, ns, stopped } = phase;
            Bandwidth { messages, ns, intervals, interval_ns, peer, lost, interrupted: stopped }
        }))
    }

    /// Sends a number of messages on each queue pair, or as many as fit into a time.
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
            // A peer whose user pressed Ctrl-C waits for this end, which should not run for its
            // full time.
            let enough = bench.stopped() || self.peer.is_some_and(|done| done.interrupted);
            if !closing && (now >= deadline || enough) {
                (closing, stopped) = (true, now < deadline);
                self.ends.iter_mut().for_each(|(side, _)| side.close());
            }
            if sent > 0 {
                last = now;
            }
            if self.ends.iter().all(|(side, part)| !part.active || side.is_done()) {
                return Ok(Phase { messages: sum, ns: clock.ns(start, last), stopped });
            }
            // Messages from the other end are no progress of this end. Clocks of two threads may
            // differ slightly.
            if now.saturating_sub(last) > patience {
                let waited = Duration::from_nanos(clock.ns(last, now));
                return Err(Error::Silence { iteration: sum, what: "a completion", waited });
            }
            if !busy {
                self.idle(bench)?;
            }
            if ticker.is_due(now) {
                self.signs()?;
                // A timed run excludes its warm-up.
                let begun = if meter.is_some() { start } else { now };
                ticker.tick(bench, begun, now, sum);
            }
        }
    }

    /// Polls and posts once on all ends. Returns completed messages, and whether anything was done.
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

    fn idle(&mut self, bench: &Bench<'_>) -> Result<(), Error> {
        bench.idle(&mut self.sleep, self.ends.iter_mut().map(|(side, _)| &mut **side))
    }

    /// Sends a sign of life, and checks the peer's.
    fn signs(&mut self) -> Result<(), Error> {
        let Some(control) = &mut self.control else { return Ok(()) };
        control.beat();
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

    /// Serves the peer until it is done and all its messages have arrived. A peer that never stops
    /// sending must not keep this end, so no step here depends on an empty poll.
    fn serve(&mut self, bench: &Bench<'_>) -> Result<Done, Error> {
        let mut ticker = Ticker::new(bench, 0);
        let mut since = None;
        let mut last = (0, Instant::now());
        loop {
            let (_, busy) = self.pump(0)?;
            let now = bench.clock.now();
            if let Some(done) = self.peer {
                if self.has_all(done.posted) || self.gave_up(bench, &mut last) {
                    return Ok(done);
                }
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                if waited > bench.shape.timeout() {
                    let what = "a message that the peer knows to have arrived";
                    return Err(Error::Silence { iteration: 0, what, waited });
                }
            }
            if bench.stopped() {
                return Err(Error::Peer("interrupted".to_owned()));
            }
            if !busy {
                self.idle(bench)?;
            }
            // A peer that is done closes the connection when it knows that this side is done.
            if self.peer.is_none() && (!busy || ticker.is_due(now)) {
                self.signs()?;
                ticker.tick(bench, now, now, 0);
            }
        }
    }

    /// Receives all sent messages; both ends are here.
    fn catch_up(&mut self, bench: &Bench<'_>) -> Result<(), Error> {
        let posted: Vec<u64> = self.ends.iter().rev().map(|(side, _)| side.posted()).collect();
        let started = Instant::now();
        let mut last = (0, started);
        while !self
            .ends
            .iter()
            .zip(&posted)
            .all(|((side, part), &posted)| !part.receives || side.received >= posted)
        {
            self.pump(0)?;
            if self.gave_up(bench, &mut last) {
                return Ok(());
            }
            self.idle(bench)?;
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

    /// Messages received by the local ends.
    fn received(&self) -> u64 {
        self.ends.iter().map(|(side, _)| side.received).sum()
    }

    /// Returns `true` if missing messages are lost: the transport is unreliable and nothing arrived
    /// for `LOST_AFTER`. `last` holds the number of arrivals, and the time of the last one.
    fn gave_up(&self, bench: &Bench<'_>, last: &mut (u64, Instant)) -> bool {
        let received = self.received();
        if bench.shape.connection.is_reliable() || received != last.0 {
            *last = (received, Instant::now());
        }
        last.1.elapsed() > LOST_AFTER
    }

    /// Number of lost messages, from the messages that the local ends `posted` and the peer's
    /// counts.
    fn lost(&self, bench: &Bench<'_>, posted: u64, peer: &Done) -> u64 {
        if bench.shape.op != Operation::Send || bench.shape.connection.is_reliable() {
            return 0;
        }
        let receives = self.ends.iter().any(|(_, part)| part.receives);
        let (sent, came) = match self.control {
            None => (posted, self.received()),
            Some(_) if receives => (peer.posted, self.received()),
            Some(_) => (posted, peer.received),
        };
        sent.saturating_sub(came)
    }

    /// Compares memory with the sent messages. On an unreliable connection the last WRITE may
    /// arrive after its sender's completion.
    fn verify(&mut self, bench: &Bench<'_>) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let verified = self.verify_once();
            let patient = !bench.shape.connection.is_reliable() && started.elapsed() < LOST_AFTER;
            if verified.is_ok() || !patient {
                return verified;
            }
            self.idle(bench)?;
        }
    }

    fn verify_once(&mut self) -> Result<(), Error> {
        let active: Vec<bool> = self.ends.iter().map(|(_, part)| part.active).collect();
        for (at, (side, part)) in self.ends.iter_mut().enumerate() {
            // The sender of the checked bytes. Of two local ends it is the other; a remote peer
            // sends if this end does not, or if both do.
            let peer = match active.len() {
                2 => active[1 - at],
                _ => self.peer.is_some_and(|done| done.posted > 0),
            };
            side.verify_end(part.active, peer)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use clap::Parser;

    use super::super::clock::Clock;
    use super::super::options::Options;
    use super::super::shape::{Family, Shape};
    use super::*;
    use crate::base::select;
    use crate::link::tcp::{Listener, Stream};

    /// Messages that the client sends before the server polls first: enough for many busy polls of
    /// a [`Side`].
    const FLOOD: u64 = 700;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        options: Options,
    }

    fn shape(args: &str) -> Shape {
        let words = std::iter::once("perf").chain(args.split(' '));
        Only::parse_from(words).options.plan(Family::Send).unwrap().shape
    }

    /// Runs a server whose client sends without end. Returns the number of messages received by the
    /// end.
    fn flooded(args: &str, server: impl FnOnce(&mut Ends, &Bench<'_>, &AtomicBool)) -> u64 {
        let clock = Clock::new();
        let (never, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let limit = Duration::from_secs(60);
        let devices = select::two(Some("softhca"), true).unwrap();
        let theirs = shape(&format!("{args} -s 64 --warmup 0 -r 1"));
        let mine = shape(&format!("{args} -s 64 --warmup 0 -r {FLOOD} --timeout 0.000001"));
        let bench = |shape, stop| Bench {
            shape,
            size: 64,
            clock: &clock,
            stop,
            embedded: true,
            quiet: true,
            part: "",
        };
        let listener = Listener::bind(0).unwrap();
        let port = listener.port();
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let control = Control::new(Stream::connect("127.0.0.1", port, limit).unwrap());
                let bench = bench(&theirs, &never);
                let mut ends = Ends::one(Who::Client, &devices, control, &bench).unwrap();
                let Ends::One(side, _) = &mut ends else { unreachable!("one end") };
                side.order(FLOOD);
                while !side.is_done() {
                    side.pump(0).unwrap();
                    thread::yield_now();
                }
                ends
            });
            let control = Control::new(listener.accept(limit, limit, &never).unwrap());
            let bench = bench(&mine, &stop);
            let mut ends = Ends::one(Who::Server, &devices, control, &bench).unwrap();
            let _client = client.join().unwrap();
            server(&mut ends, &bench, &stop);
            let Ends::One(side, _) = &ends else { unreachable!("one end") };
            side.received
        })
    }

    fn serving<'a>(ends: &'a mut Ends, posted: u64) -> Loop<'a> {
        let Ends::One(side, control) = ends else { unreachable!("one end") };
        let peer = Some(Done { posted, ..Done::default() });
        let part = Part { active: false, receives: true };
        let ends = vec![(&mut **side, part)];
        Loop { ends, control: Some(control), peer, sleep: Sleep::default() }
    }

    #[test]
    fn a_flood_is_no_progress_of_the_own_messages() {
        // The client has one receive, so that it gets no completions of the server's messages.
        let taken = flooded("bw -b", |ends, bench, _| {
            let error = run(ends, bench).err().unwrap().to_string();
            assert!(error.contains("a completion did not come within"), "{error}");
        });
        assert!(taken < FLOOD, "{taken}");
    }

    #[test]
    fn a_server_is_interrupted_however_much_comes() {
        let taken = flooded("bw", |ends, bench, stop| {
            stop.store(true, Ordering::Relaxed);
            assert_eq!(run(ends, bench).err().unwrap().to_string(), "interrupted");
        });
        assert!(taken < FLOOD, "{taken}");
    }

    #[test]
    fn a_client_that_is_done_and_goes_on_is_left() {
        let taken = flooded("bw", |ends, bench, _| {
            assert_eq!(serving(ends, 1).serve(bench).unwrap().posted, 1);
        });
        assert!((1..FLOOD).contains(&taken), "{taken}");
        // The client announces more messages than arrive: the limit holds although messages arrive.
        let taken = flooded("bw", |ends, bench, _| {
            let error = serving(ends, u64::MAX).serve(bench).unwrap_err().to_string();
            assert!(error.contains("knows to have arrived did not come within"), "{error}");
        });
        assert!((1..FLOOD).contains(&taken), "{taken}");
    }
}
