//! Random programs of rdma_cm: bind, options, listen, resolve, connect, accept, reject, disconnect,
//! destroy, and what each id says of itself.
//!
//! On Linux's rxe each program runs there and on softhca, side by side, and each step must have the
//! same outcome: errno, events, addresses. `linux.txt` has what Linux answered to the first
//! programs, so that softhca is compared without a guest, too. `--record rdma_cm` prints that file.

mod program;
mod side;
mod step;

use self::program::Program;
use self::side::Side;
use crate::target::Target;
use crate::want::{Driver, Link};

/// Word of the command line that chooses this part.
pub(crate) const NAME: &str = "rdma_cm";
/// Outcomes on Linux 6.12, with rxe.
const LINUX: &str = include_str!("linux.txt");
/// Kernels that answer as `LINUX` has it. 6.1 has other timeouts (cma.c, CMA_IBOE_PACKET_LIFETIME).
const SINCE: (u32, u32) = (6, 12);
/// Programs with another outcome that are printed.
const SHOWN: usize = 16;
/// Programs of the file.
const NOTED: u64 = 64;

/// Compares a target with Linux; gives the number of steps. On Linux `count` programs from `seed`
/// on run there and on softhca; elsewhere the programs of the file run, which `record` prints.
pub(crate) fn run(target: &Target, seed: u64, count: u64, record: bool) -> Result<usize, String> {
    let linux = target.soft.is_none();
    let results: Vec<_> = match (linux, record) {
        (true, false) => (seed..seed + count).map(|seed| both(target, seed)).collect(),
        (_, true) => (0..NOTED).map(|seed| both(target, seed)).collect(),
        (false, false) => {
            let noted = LINUX.split_inclusive("\n\n");
            noted.map(|noted| as_noted(target, noted)).collect()
        }
    };
    let (mut steps, mut wrong) = (0, Vec::new());
    for result in results {
        match result {
            Ok(text) => {
                steps += text.lines().count();
                if record {
                    print!("{text}");
                }
            }
            Err(why) => wrong.push(why),
        }
    }
    match wrong.len() {
        0 => Ok(steps),
        count => {
            wrong.truncate(SHOWN);
            let wrong = wrong.join("\n\n");
            Err(format!("{wrong}\n\n{count} programs of rdma_cm had another outcome"))
        }
    }
}

/// Targets whose connection manager is compared.
pub(crate) fn is_asked(target: &Target) -> bool {
    let linux = target.facts.driver == Driver::Rxe && target.facts.kernel >= SINCE;
    linux || target.soft.is_some() && target.facts.link == Link::Ethernet
}

/// Runs a program on softhca, and on Linux if that is the target; gives its steps and their
/// outcome, which must be equal.
fn both(target: &Target, seed: u64) -> Result<String, String> {
    let mut soft = Side::soft()?;
    let mut linux = if target.soft.is_none() { Some(Side::of(target)?) } else { None };
    let mut program = Program::new(seed);
    let mut text = format!("program {seed}\n");
    while let Some(step) = program.next() {
        let ours = soft.run(step, 0);
        let events = ours.matches("; ").count();
        let outcome = linux.as_mut().map_or(ours.clone(), |linux| linux.run(step, events));
        text += &format!("{step}: {outcome}\n");
        if outcome != ours {
            return Err(format!("{text}softhca: {ours}"));
        }
        program.learn(step, &outcome);
    }
    Ok(text + "\n")
}

/// Compares a program's outcome with the noted one.
fn as_noted(target: &Target, noted: &str) -> Result<String, String> {
    let head = noted.lines().next().unwrap_or_default();
    let seed = head.strip_prefix("program ").and_then(|seed| seed.parse().ok());
    let seed = seed.ok_or_else(|| format!("linux.txt has {head:?} for a program"))?;
    let found = both(target, seed)?;
    let pairs = noted.lines().zip(found.lines()).enumerate();
    match pairs.into_iter().find(|(_, (noted, found))| noted != found) {
        None => Ok(found),
        Some((line, (noted, other))) => {
            let before = found.lines().take(line).collect::<Vec<_>>().join("\n");
            Err(format!("{before}\nLinux:   {noted}\nsofthca: {other}"))
        }
    }
}
