//! Conformance of the uverbs interface: good and bad calls, and what Linux answers to each.
//!
//! Runs on softhca in this process and on functions without a kernel driver, or on the kernel's
//! device that `UVERBS_TEST_DEVICE` names. docs/CONFORMANCE.md says how the expectations were
//! found.
//!
//! `cargo test --test conformance -- [--record] [--seed N] [--programs N] [--skip TEXT]...
//! [TEXT]...`: `--record` prints the outcome of each case instead of comparing it; texts choose
//! cases by what their names contain, and then no random programs run unless they are asked for.
//! The text `rdma_cm` chooses the connection manager's programs.

mod calls;
mod calls_directed;
mod case;
mod cases;
mod cm;
mod cmd;
mod memory;
mod random;
mod rig;
mod sweep;
mod target;
mod want;

use std::collections::BTreeMap;
use std::process::ExitCode;

use crate::case::Case;
use crate::target::Target;
use crate::want::show;

/// Random programs of a run that asks for no other number.
const PROGRAMS: u64 = 64;

/// Options of the command line.
#[derive(Debug, Default)]
struct Options {
    record: bool,
    seed: u64,
    programs: Option<u64>,
    texts: Vec<String>,
    skip: Vec<String>,
}

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a word more"));
            let mut number = || {
                let value = value()?;
                value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"))
            };
            match word.as_str() {
                "--record" => options.record = true,
                "--seed" => options.seed = number()?,
                "--programs" => options.programs = Some(number()?),
                "--skip" => options.skip.push(value()?),
                // Options that cargo passes to every test binary.
                flag if flag.starts_with("--") => {}
                _ => options.texts.push(word),
            }
        }
        Ok(options)
    }

    fn wants(&self, case: &Case) -> bool {
        let name = case.to_string();
        let has = |texts: &[String]| texts.iter().any(|text| name.contains(text.as_str()));
        (self.texts.is_empty() || has(&self.texts)) && !has(&self.skip)
    }
}

fn main() -> ExitCode {
    let made = Options::parse(std::env::args().skip(1))
        .and_then(|options| Target::from_env().map(|targets| (options, targets)));
    let result = made
        .and_then(|(options, targets)| targets.iter().try_for_each(|target| run(&options, target)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, target: &Target) -> Result<(), String> {
    let mut cases = sweep::cases();
    cases.extend(cases::all());
    cases.retain(|case| options.wants(case));
    let (mut good, mut bad, mut skipped) = (0, 0, BTreeMap::<&str, usize>::new());
    for case in &cases {
        if let Some(why) = case.skipped(target) {
            *skipped.entry(why).or_default() += 1;
            if options.record {
                println!("{case}: not asked: {why}");
            }
            continue;
        }
        let want = case.want(target);
        let outcome = case.run(target);
        let fits = want.fits(&outcome);
        if fits {
            good += 1
        } else {
            bad += 1
        }
        match (fits, options.record) {
            (true, true) => println!("{case}: {}", show(&outcome)),
            (false, _) => {
                println!("{case}: {}, wanted {want} ({})", show(&outcome), case.source);
            }
            (true, false) => {}
        }
    }
    let left_out: usize = skipped.values().sum();
    println!("{}: {good} cases as expected, {bad} not, {left_out} not asked", target.name());
    if !options.record {
        // In the form that docs/TESTING.md has for skipped tests.
        skipped.keys().for_each(|why| println!("skipped: conformance: {why}"));
    }
    let named = options.texts.iter().any(|text| text == cm::NAME);
    let programs = match options.texts.is_empty() {
        true => options.programs.unwrap_or(PROGRAMS),
        false if named => 0,
        false => options.programs.unwrap_or(0),
    };
    if programs > 0 {
        let (steps, refused) = random::run(target, options.seed, programs, &options.skip)?;
        let how = if target.soft.is_some() { "on softhca alone" } else { "the same on softhca" };
        println!(
            "{}: {steps} random calls in {programs} programs, {refused} refused, {how}",
            target.name()
        );
    }
    // In a guest the programs take minutes, and have their own row.
    let all = options.texts.is_empty() && target.soft.is_some();
    if cm::is_asked(target) && (all || named) {
        let count = options.programs.unwrap_or(PROGRAMS);
        let steps = cm::run(target, options.seed, count, options.record)?;
        println!("{}: {steps} steps of rdma_cm as Linux has them", target.name());
    }
    match bad {
        _ if options.record => Ok(()),
        0 => Ok(()),
        _ => Err(format!("{bad} cases had another outcome than expected")),
    }
}
