//! Makes a failing plan smaller as long as it fails.

use std::time::Duration;

use super::plan::Plan;
use super::run;
use crate::wire::Faults;

/// Maximum runs of shrinking.
const TRIES: usize = 400;

/// Returns the smallest failing plan found, and its failure.
pub(super) fn shrink(plan: &Plan, why: &str) -> (Plan, String) {
    // Suppresses panic messages: the first run printed them.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let small = shrink_by(plan, why, |plan| run(plan).err());
    std::panic::set_hook(hook);
    small
}

/// Shrinks by another judge, which returns a plan's failure, if any.
pub(super) fn shrink_by(
    plan: &Plan,
    why: &str,
    judge: impl Fn(&Plan) -> Option<String>,
) -> (Plan, String) {
    let mut best = (plan.clone(), why.to_owned());
    let mut tries = TRIES;
    let mut accept = |best: &mut (Plan, String), smaller: Plan| {
        let said = if tries == 0 { None } else { judge(&smaller) };
        tries = tries.saturating_sub(1);
        match said {
            Some(said) => {
                *best = (smaller, said);
                true
            }
            None => false,
        }
    };
    // Removes half of the work, then smaller and smaller parts, down to single works.
    let mut size = best.0.works.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < best.0.works.len() {
            let mut smaller = best.0.clone();
            smaller.works.drain(at..(at + size).min(best.0.works.len()));
            if !accept(&mut best, smaller) {
                at += size;
            }
        }
        if size == 1 {
            break;
        }
        size = size.div_ceil(2);
    }
    let changes: [fn(&mut Plan); 13] = [
        |plan| plan.outages.clear(),
        |plan| plan.shortages.clear(),
        |plan| plan.deaths.clear(),
        |plan| {
            plan.connections
                .iter_mut()
                .for_each(|connection| connection.poll_every = Duration::ZERO);
        },
        |plan| plan.faults = Faults::default(),
        |plan| plan.read_window = u32::MAX,
        |plan| plan.faults.loss = 0.0,
        |plan| plan.faults.duplicate = 0.0,
        |plan| plan.faults.reorder = 0.0,
        |plan| plan.faults.corrupt = 0.0,
        |plan| plan.faults.mark = 0.0,
        |plan| plan.asks.fill(false),
        |plan| plan.works.iter_mut().for_each(|work| work.key_until = None),
    ];
    for change in changes {
        let mut smaller = best.0.clone();
        change(&mut smaller);
        accept(&mut best, smaller);
    }
    best
}
