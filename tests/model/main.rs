//! A model of random safe programs: queue pairs, shared queues, chains, windows, indirect keys, raw
//! packets, device memory and tags, polled, forgotten, reset, failed, dropped and taken back.
//!
//! A seed decides what two programs do on one stepped software HCA, and when the device works. The
//! model knows where each frame is and which bytes it has. After each step frames in hand, shared
//! frames and memory have the bytes that they must have; a frame that comes to hand was in no other
//! place; each completion is of a work request that is outstanding, and tells of the message that
//! was sent. At the end every frame that was not forgotten is in its slab.
//!
//! `UVERBS_TEST_SEEDS` says how many seeds, `UVERBS_TEST_SEED` repeats one.
#![forbid(unsafe_code)]
#![allow(clippy::forget_non_drop, reason = "programs forget values of any type")]

mod choices;
mod endings;
mod ends;
mod frames;
mod guests;
mod keys;
mod lent;
mod memory;
mod packets;
mod pair;
mod polls;
mod program;
mod receives;
mod rekeys;
mod sends;
mod tags;
mod work;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use program::Program;

/// Seeds unless said otherwise.
const SEEDS: u64 = 50;
/// Steps of a program.
const STEPS: usize = 400;
/// Steps that are told of a seed that fails.
const TOLD: usize = 30;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn random_safe_programs_keep_their_memory() {
    if !common::only_on_softhca("the test steps the device") {
        return;
    }
    let (first, last) = match number("UVERBS_TEST_SEED") {
        Some(seed) => (seed, seed),
        None => (1, number("UVERBS_TEST_SEEDS").unwrap_or(SEEDS)),
    };
    for seed in first..=last {
        let mut program = Program::new(seed);
        let ran = catch_unwind(AssertUnwindSafe(|| program.run(STEPS)));
        if ran.is_err() {
            let log = &program.world.log;
            let told = log.len().saturating_sub(TOLD);
            log[told..].iter().for_each(|step| eprintln!("{step}"));
            // The world may be in any state.
            std::mem::forget(program);
            panic!("seed {seed} fails: UVERBS_TEST_SEED={seed} cargo test --test model repeats it");
        }
    }
}
