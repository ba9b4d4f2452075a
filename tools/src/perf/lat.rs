//! Latency: one message at a time, each one timed.
//!
//! This is a closed loop: each message is posted after the previous one is done. So a stall is one
//! long sample, and not as many as a fixed rate would have sent meanwhile (coordinated omission).

use hdrhistogram::Histogram;

use super::ends::{Bench, Ends, Here, Pair, Ticker, Waited};
use super::exchange::{Control, Done};
use super::side::Side;
use crate::base::error::Error;
use crate::link::verify::Who;

/// Longest latency that is recorded exactly.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Result of a run.
pub(crate) struct Latency {
    /// All samples in nanoseconds: half round trips, or operations.
    pub(crate) histogram: Histogram<u64>,
    /// Time of all measured messages, including work outside the samples.
    pub(crate) ns: u64,
    /// Time of the samples, as a whole.
    pub(crate) clocked_ns: u64,
    /// The user ended the run early.
    pub(crate) interrupted: bool,
}

/// Histogram of three digits and sufficient range, so that recording never allocates.
pub(crate) fn recorder() -> Result<Histogram<u64>, Error> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3)
        .map_err(|error| Error::Unexpected { iteration: 0, what: format!("no histogram: {error}") })
}

/// Runs one size. The server of two processes has no result: it answers until the client is done.
pub(crate) fn run(ends: &mut Ends, bench: &Bench<'_>) -> Result<Option<Latency>, Error> {
    match ends {
        Ends::Both(pair) => measure(pair, bench).map(Some),
        Ends::One(side, control) if side.who == Who::Client => {
            let mut client = Client { side, control };
            let latency = measure(&mut client, bench)?;
            let done = Done {
                messages: latency.histogram.len(),
                ns: latency.ns,
                interrupted: latency.interrupted,
                ..Done::default()
            };
            let bench = if latency.interrupted { &bench.parting() } else { bench };
            client.control.done(done, bench.stop)?;
            client.control.wait_done(bench.stop)?;
            Ok(Some(latency))
        }
        Ends::One(side, control) => serve(side, control, bench).map(|()| None),
    }
}

/// Operations of the measuring loop on its ends, in this process or in two.
pub(crate) trait Turns {
    fn prepare(&mut self, iteration: u64) -> Result<(), Error>;
    /// Timed part: there and back.
    fn turn(&mut self, iteration: u64, bench: &Bench<'_>) -> Result<Waited, Error>;
    /// Untimed part: checks the message, and posts receives again.
    fn finish(&mut self, iteration: u64, bench: &Bench<'_>) -> Result<Waited, Error>;
    /// Work done ten times a second.
    fn tick(&mut self) -> Result<(), Error>;
}

pub(crate) fn measure(ends: &mut impl Turns, bench: &Bench<'_>) -> Result<Latency, Error> {
    let shape = bench.shape;
    let clock = bench.clock;
    let mut histogram = recorder()?;
    let halves = if shape.op.is_one_sided() { 1 } else { 2 };
    let last = shape.iters.map(|iters| iters.saturating_add(shape.warmup));
    let length = shape.duration().map(|time| clock.ticks(time));
    let mut ticker = Ticker::new(bench, last.unwrap_or(u64::MAX));
    let mut begun = clock.now();
    let mut now = begun;
    let (mut interrupted, mut clocked_ns) = (false, 0);
    for iteration in 1.. {
        if last.is_some_and(|last| iteration > last) {
            break;
        }
        ends.prepare(iteration)?;
        let start = clock.now();
        if iteration == shape.warmup + 1 {
            begun = start;
        }
        let came = ends.turn(iteration, bench)?;
        now = clock.now();
        if came != Waited::Came {
            interrupted = true;
            break;
        }
        if iteration > shape.warmup {
            let ns = clock.ns(start, now);
            clocked_ns += ns;
            histogram.saturating_record((ns / halves).max(1));
        }
        if ends.finish(iteration, bench)? != Waited::Came || bench.stopped() {
            interrupted = true;
            break;
        }
        if iteration > shape.warmup && length.is_some_and(|length| now - begun >= length) {
            break;
        }
        if ticker.is_due(now) {
            ends.tick()?;
            // A timed run excludes its warm-up.
            let begun = if iteration > shape.warmup { begun } else { now };
            ticker.tick(bench, begun, now, iteration);
        }
    }
    Ok(Latency { histogram, ns: clock.ns(begun, now), clocked_ns, interrupted })
}

impl Turns for Pair {
    fn prepare(&mut self, iteration: u64) -> Result<(), Error> {
        self.client.prepare(iteration)?;
        self.server.prepare(iteration)
    }

    #[inline]
    fn turn(&mut self, iteration: u64, bench: &Bench<'_>) -> Result<Waited, Error> {
        let look = |pair: &mut Self| pair.look(iteration);
        self.client.post(iteration)?;
        if !bench.shape.op.is_one_sided() {
            let seen = |pair: &mut Self| pair.server.seen(iteration);
            match bench.wait(self, iteration, "the client's message", seen, look)? {
                Waited::Came => self.server.post(iteration)?,
                other => return Ok(other),
            }
        }
        let seen = |pair: &mut Self| pair.client.seen(iteration);
        bench.wait(self, iteration, "the server's answer", seen, look)
    }

    fn finish(&mut self, iteration: u64, bench: &Bench<'_>) -> Result<Waited, Error> {
        let two_sided = !bench.shape.op.is_one_sided();
        let acknowledged = |pair: &mut Self| {
            let server = !two_sided || pair.server.acknowledged(iteration)?;
            Ok(pair.client.acknowledged(iteration)? && server)
        };
        let none = |_: &mut Self| Ok(None);
        let came = bench.wait(self, iteration, "an acknowledgement", acknowledged, none)?;
        if came == Waited::Came {
            self.client.verify(iteration)?;
            if two_sided {
                self.server.verify(iteration)?;
            }
            self.client.finish()?;
            self.server.finish()?;
        }
        Ok(came)
    }

    fn tick(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// The client of two processes.
struct Client<'a> {
    side: &'a mut Side,
    control: &'a mut Control,
}

impl Here for Client<'_> {
    fn sides(&mut self) -> impl Iterator<Item = &mut Side> {
        std::iter::once(&mut *self.side)
    }
}

/// The server of two processes.
struct Server<'a> {
    side: &'a mut Side,
    control: &'a mut Control,
}

impl Here for Server<'_> {
    fn sides(&mut self) -> impl Iterator<Item = &mut Side> {
        std::iter::once(&mut *self.side)
    }
}

impl Client<'_> {
    fn look(&mut self, iteration: u64) -> Result<Option<Done>, Error> {
        self.side.look(iteration)?;
        match self.control.hear()? {
            // The server is done when the client is.
            Some(_) => Err(Error::Peer("the server ended the run".to_owned())),
            None => Ok(None),
        }
    }
}

impl Turns for Client<'_> {
    fn prepare(&mut self, iteration: u64) -> Result<(), Error> {
        self.side.prepare(iteration)
    }

    #[inline]
    fn turn(&mut self, iteration: u64, bench: &Bench<'_>) -> Result<Waited, Error> {
        self.side.post(iteration)?;
        let seen = |client: &mut Self| client.side.seen(iteration);
        let look = |client: &mut Self| client.look(iteration);
        bench.wait(self, iteration, "the server's answer", seen, look)
    }

    fn finish(&mut self, iteration: u64, bench: &Bench<'_>) -> Result<Waited, Error> {
        let acknowledged = |client: &mut Self| client.side.acknowledged(iteration);
        let look = |client: &mut Self| client.look(iteration);
        let came = bench.wait(self, iteration, "an acknowledgement", acknowledged, look)?;
        if came == Waited::Came {
            self.side.verify(iteration)?;
            self.side.finish()?;
        }
        Ok(came)
    }

    fn tick(&mut self) -> Result<(), Error> {
        self.control.beat();
        self.control.hear().map(|_| ())
    }
}

/// Serves as the server of two processes until the client is done.
fn serve(side: &mut Side, control: &mut Control, bench: &Bench<'_>) -> Result<(), Error> {
    let over = |control: &mut Control, answered| {
        let done = Done { messages: answered, posted: answered, ..Done::default() };
        control.done(done, bench.stop)
    };
    if bench.shape.op.is_one_sided() {
        control.wait_done(bench.stop)?;
        return over(control, 0);
    }
    let mut ticker = Ticker::new(bench, 0);
    let ends = &mut Server { side, control };
    let interrupted = || Err(Error::Peer("interrupted".to_owned()));
    for iteration in 1.. {
        ends.side.prepare(iteration)?;
        let came = bench.wait(
            ends,
            iteration,
            "the client's message",
            |ends| ends.side.seen(iteration),
            |ends| {
                ends.side.look(iteration)?;
                ends.control.beat();
                ends.control.hear()
            },
        )?;
        match came {
            Waited::Came => {}
            Waited::Done(_) => return over(ends.control, iteration - 1),
            Waited::Stopped => return interrupted(),
        }
        // Checked before the answer: the peer's next WRITE, which may follow the answer at once,
        // overwrites the data.
        ends.side.verify(iteration)?;
        ends.side.post(iteration)?;
        let came = bench.wait(
            ends,
            iteration,
            "an acknowledgement",
            |ends| ends.side.acknowledged(iteration),
            |_| Ok(None),
        )?;
        if came != Waited::Came {
            return interrupted();
        }
        ends.side.finish()?;
        let now = bench.clock.now();
        if ticker.is_due(now) {
            ends.control.beat();
            if ends.control.hear()?.is_some() {
                return over(ends.control, iteration);
            }
            ticker.tick(bench, now, now, iteration);
        }
    }
    Ok(())
}
