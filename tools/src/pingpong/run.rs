//! The iterations: fill, clock, send, wait, clock, check.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uverbs::{Completed, SendOp};

use super::args::{Config, Opcode};
use super::side::{Arrived, Pair, Side};
use super::verify::{Pattern, Who, WrongWord, mix};
use crate::error::Error;
use crate::progress::Progress;

/// What a run gave.
pub(super) struct Outcome {
    /// Nanoseconds: half round trips, or operations.
    pub(super) latency: Histogram<u64>,
    /// Messages or operations that were measured, of both sides.
    pub(super) measured: u64,
    /// Messages or operations that were verified, of both sides, warm-up included.
    pub(super) verified: u64,
    /// The time that the measured ones took, without filling and checking.
    pub(super) clocked: Duration,
    /// The time that all took, with everything.
    pub(super) wall: Duration,
}

/// Runs all iterations; the first thing that is wrong ends it.
pub(super) fn run(pair: &mut Pair, config: &Config) -> Result<Outcome, Error> {
    let started = Instant::now();
    let total = config.warmup + config.iters;
    let mut progress = Progress::new(total, "iterations", config.quiet);
    let mut words = Words::default();
    if config.opcode.is_atomic() {
        for who in [Who::Client, Who::Server] {
            pair.side(who).memory(0)?.store(0, words.of(who))?;
        }
    }
    // Three digits; it grows with what it is given.
    let mut latency = Histogram::new(3).map_err(|error| Error::Unexpected {
        iteration: 0,
        what: format!("no histogram: {error}"),
    })?;
    let mut clocked = Duration::ZERO;
    let mut record = |time: Duration, halves: u32| {
        clocked += time;
        // The recorder grows; no time is too long for it before the end of u64, 585 years.
        let ns = u64::try_from((time / halves).as_nanos()).unwrap_or(u64::MAX);
        latency.record(ns.max(1)).map_err(|error| Error::Unexpected {
            iteration: 0,
            what: format!("a latency of {ns} ns was not recorded: {error}"),
        })
    };
    for iteration in 1..=total {
        let measured = iteration > config.warmup;
        if config.opcode.is_one_sided() {
            for who in [Who::Client, Who::Server] {
                let time = match config.opcode {
                    Opcode::Read => read(pair, config, iteration, who)?,
                    _ => atomic(pair, config, iteration, who, &mut words)?,
                };
                if measured {
                    record(time, 1)?;
                }
            }
        } else {
            let time = round_trip(pair, config, iteration)?;
            if measured {
                record(time, 2)?;
            }
        }
        progress.tick(iteration, Instant::now());
    }
    drop(progress);
    Ok(Outcome {
        latency,
        measured: 2 * config.iters,
        verified: 2 * total,
        clocked,
        wall: started.elapsed(),
    })
}

/// A ping and a pong. Gives the time from before the ping's post until the pong was seen.
fn round_trip(pair: &mut Pair, config: &Config, iteration: u64) -> Result<Duration, Error> {
    for who in [Who::Client, Who::Server] {
        let message = message(config, iteration, who);
        pair.side(who).fill(&message, iteration)?;
    }
    let start = Instant::now();
    pass(pair, config, iteration, Who::Client)?;
    pass(pair, config, iteration, Who::Server)?;
    let time = start.elapsed();
    // Acknowledged is placed: from here on nothing of this iteration moves.
    pair.wait(iteration, "an acknowledgement", |pair| {
        pair.client.poll(iteration)?;
        pair.server.poll(iteration)?;
        Ok(pair.client.sent().is_some() && pair.server.sent().is_some())
    })?;
    for who in [Who::Client, Who::Server] {
        check(pair.side(who), config, iteration)?;
    }
    Ok(time)
}

/// What a side sends.
fn message(config: &Config, iteration: u64, from: Who) -> Pattern {
    let pattern = Pattern::new(iteration, from);
    // The receiver of a plain WRITE polls for the last byte, which therefore differs from the last iteration's.
    if config.opcode == Opcode::Write { pattern.ending_with(iteration as u8) } else { pattern }
}

/// What a side sends as immediate data.
fn immediate(iteration: u64, from: Who) -> u32 {
    (mix(iteration << 1 | u64::from(from == Who::Server)) >> 32) as u32
}

/// One side sends; the other sees it.
fn pass(pair: &mut Pair, config: &Config, iteration: u64, from: Who) -> Result<(), Error> {
    let sender = pair.side(from);
    let imm = immediate(iteration, from);
    let op = match config.opcode {
        Opcode::Send => SendOp::Send,
        Opcode::SendImm => SendOp::SendImm(imm),
        Opcode::WriteImm => SendOp::WriteImm(sender.remote()?, imm),
        _ => SendOp::Write(sender.remote()?),
    };
    sender.post(iteration, op)?;
    let what = match from {
        Who::Client => "the client's message",
        Who::Server => "the server's message",
    };
    if config.opcode == Opcode::Write {
        return pair.wait(iteration, what, |pair| {
            Ok(pair.side(from.other()).last_byte(iteration)? == iteration as u8)
        });
    }
    pair.wait(iteration, what, |pair| {
        let receiver = pair.side(from.other());
        receiver.poll(iteration)?;
        Ok(receiver.has_arrived())
    })
}

/// Checks what a side got in this iteration, and gives its receive back to the queue.
fn check(side: &mut Side, config: &Config, iteration: u64) -> Result<(), Error> {
    let from = side.who.other();
    let message = message(config, iteration, from);
    if config.opcode.needs_receives() {
        let arrived = side.take_arrived(iteration)?;
        check_arrival(&arrived, config, iteration, from)?;
        let Some(frame) = arrived.frame else {
            let what = format!("a receive of the {} came back without its buffer", side.who);
            return Err(Error::Unexpected { iteration, what });
        };
        if !config.opcode.needs_memory() {
            message.check(&frame)?;
        }
        side.receive(iteration, frame)?;
    }
    if config.opcode.needs_memory() {
        message.check(side.copied(iteration)?)?;
    }
    Ok(())
}

/// Checks what a completion says of a message.
fn check_arrival(
    arrived: &Arrived,
    config: &Config,
    iteration: u64,
    from: Who,
) -> Result<(), Error> {
    let (kind, imm) = match config.opcode {
        Opcode::Send => (Completed::Recv, None),
        Opcode::SendImm => (Completed::Recv, Some(immediate(iteration, from))),
        _ => (Completed::RecvWriteImm, Some(immediate(iteration, from))),
    };
    let wrong = |what: String| Err(Error::Unexpected { iteration, what });
    if arrived.kind != kind {
        return wrong(format!("the {from}'s message came as {:?}, not as {kind:?}", arrived.kind));
    }
    if arrived.len != config.size {
        return wrong(format!(
            "the {from}'s message has {} bytes, not {}",
            arrived.len, config.size
        ));
    }
    if arrived.immediate != imm {
        let got = arrived.immediate;
        return wrong(format!("the {from}'s immediate data is {got:x?}, not {imm:x?}"));
    }
    Ok(())
}

/// One side reads the other's memory.
fn read(pair: &mut Pair, config: &Config, iteration: u64, by: Who) -> Result<Duration, Error> {
    let message = Pattern::new(iteration, by.other());
    pair.side(by.other()).expose(&message, iteration)?;
    let from = pair.side(by).remote()?;
    let time = operate(pair, iteration, by, SendOp::Read(from), Completed::Read, config.size)?;
    message.check(pair.side(by).answer(iteration)?)?;
    Ok(time)
}

/// What the word in each side's memory has to be.
#[derive(Default)]
struct Words {
    client: u64,
    server: u64,
}

impl Words {
    fn of(&self, who: Who) -> u64 {
        match who {
            Who::Client => self.client,
            Who::Server => self.server,
        }
    }

    fn set(&mut self, who: Who, value: u64) {
        match who {
            Who::Client => self.client = value,
            Who::Server => self.server = value,
        }
    }
}

/// One side does an atomic on the other's memory; the word's old value and its new one are checked.
fn atomic(
    pair: &mut Pair,
    config: &Config,
    iteration: u64,
    by: Who,
    words: &mut Words,
) -> Result<Duration, Error> {
    let of = by.other();
    let old = words.of(of);
    let random = mix(iteration << 1 | u64::from(by == Who::Server));
    let remote = pair.side(by).remote()?;
    let (op, kind, new) = if config.opcode == Opcode::FetchAdd {
        let op = SendOp::FetchAdd { remote, add: random };
        (op, Completed::FetchAdd, old.wrapping_add(random))
    } else {
        // Every fourth compares with something else, and must leave the word alone.
        let equal = !iteration.is_multiple_of(4);
        let op =
            SendOp::CompareSwap { remote, compare: if equal { old } else { !old }, swap: random };
        (op, Completed::CompareSwap, if equal { random } else { old })
    };
    let time = operate(pair, iteration, by, op, kind, 8)?;
    words.set(of, new);
    let answer = pair.side(by).answer(iteration)?;
    let got = answer.first_chunk().map_or(!old, |bytes| u64::from_ne_bytes(*bytes));
    expect(iteration, "the old value", of, old, got)?;
    let got = pair.side(of).memory(iteration)?.load(0)?;
    expect(iteration, "the word", of, new, got)?;
    Ok(time)
}

fn expect(iteration: u64, what: &'static str, of: Who, wanted: u64, got: u64) -> Result<(), Error> {
    if wanted == got { Ok(()) } else { Err(WrongWord { iteration, what, of, wanted, got }.into()) }
}

/// Posts a one-sided operation and waits for its completion. Gives the time in between.
fn operate(
    pair: &mut Pair,
    iteration: u64,
    by: Who,
    op: SendOp,
    kind: Completed,
    len: u32,
) -> Result<Duration, Error> {
    let start = Instant::now();
    pair.side(by).post(iteration, op)?;
    let mut sent = None;
    pair.wait(iteration, "an answer", |pair| {
        let side = pair.side(by);
        side.poll(iteration)?;
        sent = side.sent();
        Ok(sent.is_some())
    })?;
    let time = start.elapsed();
    match sent {
        Some(sent) if sent.kind == kind && sent.len == len => Ok(time),
        sent => {
            let sent = sent.map(|sent| (sent.kind, sent.len));
            let what =
                format!("the {by}'s completion is {sent:?}, not of {kind:?} with {len} bytes");
            Err(Error::Unexpected { iteration, what })
        }
    }
}
