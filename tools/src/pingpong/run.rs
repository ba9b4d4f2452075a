//! Iterations: messages there and back, or one-sided operations of both sides in turn. Each is
//! checked.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uverbs::Completed;
use uverbs::raw::SendOp;

use crate::base::error::Error;
use crate::link::operation::Operation;
use crate::link::verify::{Who, WrongWord, mix};
use crate::perf::ends::{Bench, Pair, Waited};
use crate::perf::lat::{Turns, measure};

/// Result of a run.
pub(crate) struct Outcome {
    /// Nanoseconds: half round trips, or operations.
    pub(crate) latency: Histogram<u64>,
    /// Measured messages or operations of both sides.
    pub(crate) measured: u64,
    /// Verified messages or operations of both sides, including warm-up.
    pub(crate) verified: u64,
    /// Measured time, without filling and checking.
    pub(crate) clocked: Duration,
    /// Time of all iterations, with everything.
    pub(crate) wall: Duration,
    /// Ctrl-C ended the run early.
    pub(crate) interrupted: bool,
}

/// Runs all iterations; the first error ends the run.
pub(super) fn run(pair: Pair, bench: &Bench<'_>) -> Result<Outcome, Error> {
    let started = Instant::now();
    let mut game = Game { pair, op: bench.shape.op, words: [0; 2], verified: 0 };
    let latency = measure(&mut game, bench)?;
    Ok(Outcome {
        measured: latency.histogram.len() * game.per_sample(),
        latency: latency.histogram,
        verified: game.verified,
        clocked: Duration::from_nanos(latency.clocked_ns),
        wall: started.elapsed(),
        interrupted: latency.interrupted,
    })
}

struct Game {
    pair: Pair,
    op: Operation,
    /// Expected word in the memory of client and server.
    words: [u64; 2],
    verified: u64,
}

/// Side whose turn it is to run a one-sided operation.
fn turn_of(iteration: u64) -> Who {
    if iteration.is_multiple_of(2) { Who::Server } else { Who::Client }
}

impl Game {
    /// Messages or operations of a sample.
    fn per_sample(&self) -> u64 {
        if self.op.is_one_sided() { 1 } else { 2 }
    }

    /// Expected word in a side's memory.
    fn word(&mut self, of: Who) -> &mut u64 {
        &mut self.words[usize::from(of == Who::Server)]
    }

    /// Operation of an iteration on the other side's memory, and the word that an atomic leaves.
    fn operation(&mut self, iteration: u64) -> (SendOp, u64) {
        let by = turn_of(iteration);
        let (old, remote) = (*self.word(by.other()), self.pair.side(by).remote());
        let random = mix(iteration);
        match self.op {
            Operation::FetchAdd => {
                (SendOp::FetchAdd { remote, add: random }, old.wrapping_add(random))
            }
            // Every fourth of a side compares with a wrong value, and must not change the word.
            Operation::CompareSwap if iteration.div_ceil(2).is_multiple_of(4) => {
                (SendOp::CompareSwap { remote, compare: !old, swap: random }, old)
            }
            Operation::CompareSwap => {
                (SendOp::CompareSwap { remote, compare: old, swap: random }, random)
            }
            _ => (SendOp::Read(remote), old),
        }
    }

    /// Checks a one-sided operation: the bytes read, or the word's old and new values.
    fn check(&mut self, iteration: u64) -> Result<(), Error> {
        let by = turn_of(iteration);
        let kind = match self.op {
            Operation::FetchAdd => Completed::FetchAdd,
            Operation::CompareSwap => Completed::CompareSwap,
            _ => Completed::Read,
        };
        self.pair.side(by).verify_sent(iteration, kind)?;
        if kind == Completed::Read {
            return self.pair.side(by).verify_answer(iteration);
        }
        let (_, new) = self.operation(iteration);
        let of = by.other();
        let old = std::mem::replace(self.word(of), new);
        let [answer, _] = self.pair.side(by).words()?;
        let [_, word] = self.pair.side(of).words()?;
        for (what, wanted, got) in [("the old value", old, answer), ("the word", new, word)] {
            if wanted != got {
                return Err(WrongWord { iteration, what, of, wanted, got }.into());
            }
        }
        Ok(())
    }
}

impl Turns for Game {
    fn prepare(&mut self, iteration: u64) -> Result<(), Error> {
        if self.op == Operation::Read {
            self.pair.side(turn_of(iteration).other()).expose(iteration)?;
        }
        self.pair.prepare(iteration)
    }

    fn turn(&mut self, iteration: u64, bench: &Bench<'_>) -> Result<Waited, Error> {
        if !self.op.is_one_sided() {
            return self.pair.turn(iteration, bench);
        }
        let (by, (op, _)) = (turn_of(iteration), self.operation(iteration));
        self.pair.side(by).post_as(iteration, op)?;
        let seen = |pair: &mut Pair| pair.side(by).seen(iteration);
        bench.wait(&mut self.pair, iteration, "an answer", seen, |pair| pair.look(iteration))
    }

    fn finish(&mut self, iteration: u64, bench: &Bench<'_>) -> Result<Waited, Error> {
        if self.op.is_one_sided() {
            self.check(iteration)?;
        } else if let other @ (Waited::Stopped | Waited::Done(_)) =
            self.pair.finish(iteration, bench)?
        {
            return Ok(other);
        }
        self.verified += self.per_sample();
        Ok(Waited::Came)
    }

    fn tick(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
