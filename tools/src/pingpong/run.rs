//! Iterations: fill, start the clock, send, wait, stop the clock, check.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uverbs::Completed;
use uverbs::raw::SendOp;

use super::config::{Config, Opcode};
use super::side::{Arrived, Pair, Side};
use crate::base::error::Error;
use crate::base::progress::{Length, Progress};
use crate::link::verify::{Pattern, Who, WrongWord, mix};

/// Result of a run.
pub(super) struct Outcome {
    /// Nanoseconds: half round trips, or operations.
    pub(super) latency: Histogram<u64>,
    /// Measured messages or operations of both sides.
    pub(super) measured: u64,
    /// Verified messages or operations of both sides, including warm-up.
    pub(super) verified: u64,
    /// Measured time, without filling and checking.
    pub(super) clocked: Duration,
    /// Time of all iterations, with everything.
    pub(super) wall: Duration,
    /// Ctrl-C ended the run early.
    pub(super) interrupted: bool,
}

/// Runs all iterations; the first error ends the run.
pub(super) fn run(pair: &mut Pair<'_>, config: &Config) -> Result<Outcome, Error> {
    let started = Instant::now();
    let total = config.warmup + config.iters;
    let mut progress = Progress::new(Length::Count(total, "iterations"), "", config.quiet);
    let mut words = Words::default();
    if config.opcode.is_atomic() {
        for who in [Who::Client, Who::Server] {
            pair.side(who).memory(0)?.store(0, words.of(who))?;
        }
    }
    // Three digits; the range grows as needed.
    let mut latency = Histogram::new(3).map_err(|error| Error::Unexpected {
        iteration: 0,
        what: format!("no histogram: {error}"),
    })?;
    let mut clocked = Duration::ZERO;
    let mut record = |time: Duration, halves: u32| {
        clocked += time;
        // The range grows up to the end of u64, 585 years.
        let ns = u64::try_from((time / halves).as_nanos()).unwrap_or(u64::MAX);
        latency.record(ns.max(1)).map_err(|error| Error::Unexpected {
            iteration: 0,
            what: format!("a latency of {ns} ns was not recorded: {error}"),
        })
    };
    let (mut measured, mut verified) = (0, 0);
    for iteration in 1..=total {
        let times = match once(pair, config, iteration, &mut words)? {
            Some(times) if !pair.is_stopped() => times,
            _ => break,
        };
        verified += 2;
        if iteration > config.warmup {
            measured += 2;
            match times {
                Times::RoundTrip(time) => record(time, 2)?,
                Times::Each(both) => both.into_iter().try_for_each(|time| record(time, 1))?,
            }
        }
        progress.tick(iteration, Instant::now());
    }
    drop(progress);
    let (interrupted, wall) = (pair.is_stopped(), started.elapsed());
    Ok(Outcome { latency, measured, verified, clocked, wall, interrupted })
}

/// Duration of one iteration.
enum Times {
    RoundTrip(Duration),
    /// Durations of the client's and the server's operations.
    Each([Duration; 2]),
}

/// Runs one iteration; `None` after Ctrl-C.
fn once(
    pair: &mut Pair<'_>,
    config: &Config,
    iteration: u64,
    words: &mut Words,
) -> Result<Option<Times>, Error> {
    if !config.opcode.is_one_sided() {
        return Ok(round_trip(pair, config, iteration)?.map(Times::RoundTrip));
    }
    let mut each = [Duration::ZERO; 2];
    for (time, who) in each.iter_mut().zip([Who::Client, Who::Server]) {
        let done = match config.opcode {
            Opcode::Read => read(pair, config, iteration, who)?,
            _ => atomic(pair, config, iteration, who, words)?,
        };
        let Some(done) = done else { return Ok(None) };
        *time = done;
    }
    Ok(Some(Times::Each(each)))
}

/// Sends a ping and a pong. Returns the time from before the ping's post until the pong was seen.
fn round_trip(
    pair: &mut Pair<'_>,
    config: &Config,
    iteration: u64,
) -> Result<Option<Duration>, Error> {
    for who in [Who::Client, Who::Server] {
        let message = message(config, iteration, who);
        pair.side(who).fill(&message, iteration)?;
    }
    let start = Instant::now();
    for who in [Who::Client, Who::Server] {
        if !pass(pair, config, iteration, who)? {
            return Ok(None);
        }
    }
    let time = start.elapsed();
    // An acknowledged message is placed: from now on this iteration changes no memory.
    let acknowledged = pair.wait(iteration, "an acknowledgement", |pair| {
        pair.client.poll(iteration)?;
        pair.server.poll(iteration)?;
        Ok(pair.client.sent().is_some() && pair.server.sent().is_some())
    })?;
    if !acknowledged {
        return Ok(None);
    }
    for who in [Who::Client, Who::Server] {
        check(pair.side(who), config, iteration)?;
    }
    Ok(Some(time))
}

/// Contents of a side's message.
fn message(config: &Config, iteration: u64, from: Who) -> Pattern {
    let pattern = Pattern::new(iteration, from);
    // The receiver of a plain WRITE polls for the last byte, so it differs from the last
    // iteration's.
    if config.opcode == Opcode::Write { pattern.ending_with(iteration as u8) } else { pattern }
}

/// Immediate data of a side's message.
fn immediate(iteration: u64, from: Who) -> u32 {
    (mix(iteration << 1 | u64::from(from == Who::Server)) >> 32) as u32
}

/// Sends a message from one side, and waits until the other has it.
fn pass(pair: &mut Pair<'_>, config: &Config, iteration: u64, from: Who) -> Result<bool, Error> {
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

/// Checks a side's received message, and posts its receive again.
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
            message.check(&frame[config.connection.head().min(frame.len())..])?;
        }
        side.receive(iteration, frame)?;
    }
    if config.opcode.needs_memory() {
        message.check(side.copied(iteration)?)?;
    }
    Ok(())
}

/// Checks the completion of a received message.
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

/// Reads the other side's memory, and checks it.
fn read(
    pair: &mut Pair<'_>,
    config: &Config,
    iteration: u64,
    by: Who,
) -> Result<Option<Duration>, Error> {
    let message = Pattern::new(iteration, by.other());
    pair.side(by.other()).expose(&message, iteration)?;
    let from = pair.side(by).remote()?;
    let time = operate(pair, iteration, by, SendOp::Read(from), Completed::Read, config.size)?;
    if time.is_some() {
        message.check(pair.side(by).answer(iteration)?)?;
    }
    Ok(time)
}

/// Expected value of the word in each side's memory.
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

/// Executes an atomic on the other side's memory, and checks the word's old and new values.
fn atomic(
    pair: &mut Pair<'_>,
    config: &Config,
    iteration: u64,
    by: Who,
    words: &mut Words,
) -> Result<Option<Duration>, Error> {
    let of = by.other();
    let old = words.of(of);
    let random = mix(iteration << 1 | u64::from(by == Who::Server));
    let remote = pair.side(by).remote()?;
    let (op, kind, new) = if config.opcode == Opcode::FetchAdd {
        let op = SendOp::FetchAdd { remote, add: random };
        (op, Completed::FetchAdd, old.wrapping_add(random))
    } else {
        // Every fourth compares with a wrong value, and must not change the word.
        let equal = !iteration.is_multiple_of(4);
        let op =
            SendOp::CompareSwap { remote, compare: if equal { old } else { !old }, swap: random };
        (op, Completed::CompareSwap, if equal { random } else { old })
    };
    let time = operate(pair, iteration, by, op, kind, 8)?;
    if time.is_none() {
        return Ok(None);
    }
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

/// Posts a one-sided operation and waits for its completion. Returns the time in between.
fn operate(
    pair: &mut Pair<'_>,
    iteration: u64,
    by: Who,
    op: SendOp,
    kind: Completed,
    len: u32,
) -> Result<Option<Duration>, Error> {
    let start = Instant::now();
    pair.side(by).post(iteration, op)?;
    let mut sent = None;
    let came = pair.wait(iteration, "an answer", |pair| {
        let side = pair.side(by);
        side.poll(iteration)?;
        sent = side.sent();
        Ok(sent.is_some())
    })?;
    let time = start.elapsed();
    match sent {
        _ if !came => Ok(None),
        Some(sent) if sent.kind == kind && sent.len == len => Ok(Some(time)),
        sent => {
            let sent = sent.map(|sent| (sent.kind, sent.len));
            let what =
                format!("the {by}'s completion is {sent:?}, not of {kind:?} with {len} bytes");
            Err(Error::Unexpected { iteration, what })
        }
    }
}
