//! Deterministic simulation: several devices, random programs over bad wires, virtual time, all of
//! it derived from one seed.
//!
//! - [`plan`]: decisions of a seed before the run: devices and connections of each service;
//!   [`programs`]: work requests, times of receives, keys destroyed during use; [`trouble`]: faults
//!   of wires, outages, devices that die and come back, missing memory;
//! - [`world`]: devices that run a plan, in an order from the seed; [`side`]: an end of a
//!   connection; [`events`]: events from outside; [`places`]: positions of bytes;
//! - [`verdict`]: checks during the run and afterwards; [`congestion`]: checks of notifications;
//! - [`shrink`]: a smaller plan that fails, too.
//!
//! `UVERBS_SIMULATION_SEEDS=N` sets the number of seeds (`cargo xtask simulate`), and
//! `UVERBS_SIMULATION_FIRST=S` the first seed. A failure prints its seed, which fails again.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use self::plan::Plan;
use self::world::Summary;

mod congestion;
mod events;
mod places;
mod plan;
mod programs;
mod shrink;
mod side;
mod trouble;
mod verdict;
mod work;
mod world;

/// Seeds of a plain test run. Without optimisation each takes a hundred times longer.
const SEEDS: u64 = if cfg!(debug_assertions) { 10 } else { 2000 };

/// Seeds from which on sums are checked.
const MANY: u64 = 1000;

/// Runs a plan. A panic of the device is a failure like any other.
fn run(plan: &Plan) -> Result<Summary, String> {
    catch_unwind(AssertUnwindSafe(|| world::run(plan))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Runs a seed. A failing plan is shrunk, and the test fails with the smallest one.
fn check(seed: u64) -> Summary {
    let plan = Plan::new(seed);
    run(&plan).unwrap_or_else(|why| {
        let (small, said) = shrink::shrink(&plan, &why);
        panic!("seed {seed}: {why}\nas small as this it fails, too: {said}\n{small:#?}")
    })
}

fn from_env(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
fn every_seed_keeps_the_promises() {
    let first = from_env("UVERBS_SIMULATION_FIRST", 1);
    let count = from_env("UVERBS_SIMULATION_SEEDS", SEEDS);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let mut all = Summary::default();
    thread::scope(|scope| {
        let share = |start| (first + start..first + count).step_by(threads);
        let each = (0..threads as u64)
            .map(|start| scope.spawn(move || share(start).map(check).collect::<Vec<_>>()));
        // All threads start before the first is waited for.
        for thread in each.collect::<Vec<_>>() {
            thread.join().expect("a seed failed, see above").iter().for_each(|one| all.add(one));
        }
    });
    println!("{count} seeds: {all:?}");
    // The plans are useful: most work succeeds, some of it fails, and wires are bad.
    if count >= 10 {
        assert!(all.succeeded > 2 * all.failed && all.failed > 0, "{all:?}");
        assert!(all.retransmits > 10 * count && all.timeouts > count, "{all:?}");
        assert!(all.rnr_naks > count && all.duplicates > count, "{all:?}");
    }
    if count >= MANY {
        habits(&all, count);
    }
}

/// Checks sums that no single seed shows, such as a device that succeeds with many more retries.
/// Ten seeds have 1040 packets sent again, 41 timeouts, 48 RNR NAKs, 114 duplicates, 13 % failed
/// work, and 38 % of the unreliable messages received. 300 seeds have 779 notifications.
fn habits(all: &Summary, count: u64) {
    let failed = 100 * all.failed / (all.succeeded + all.failed);
    assert!(failed < 15, "{failed} % of the work failed: {all:?}");
    assert!((60 * count..200 * count).contains(&all.retransmits), "{all:?}");
    assert!(10 * all.timeouts < 47 * count, "{all:?}");
    assert!(all.rnr_naks < 8 * count, "{all:?}");
    assert!(all.duplicates < 17 * count, "{all:?}");
    let arrived = 100 * all.arrived / all.offered;
    assert!(arrived > 33, "{arrived} % of the unreliable messages arrived: {all:?}");
    // Each kind of trouble happens.
    assert!(10 * all.deaths > count && 50 * all.overruns > count, "{all:?}");
    assert!(20 * all.page_faults > count, "{all:?}");
    assert!((count..8 * count).contains(&all.notifications), "{all:?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 1..4 {
        assert_eq!(check(seed), check(seed), "seed {seed}");
    }
}

/// Shrinks by a verdict that is wrong on purpose: each READ fails.
#[test]
fn what_fails_is_shrunk() {
    let reads = |plan: &Plan| plan.works.iter().any(|work| work.kind == work::Kind::Read);
    let fails = |plan: &Plan| match reads(plan) {
        true => Err("there is a READ".to_owned()),
        false => Ok(()),
    };
    let long = |plan: &Plan| plan.works.len() > 20 && reads(plan);
    let plan = (1..).map(Plan::new).find(long).unwrap();
    let (small, _) = shrink::shrink_by(&plan, "", |plan| fails(plan).err());
    assert_eq!(small.works.len(), 1, "{small:?}");
    assert!(small.outages.is_empty() && small.faults == crate::wire::Faults::default());
}
