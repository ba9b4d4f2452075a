//! Coverage-guided fuzzing of what others write (`fuzz/`, docs/TESTING.md).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, cargo, run};

/// The targets of `fuzz/Cargo.toml`.
const TARGETS: &[&str] = &[
    "packets",
    "work_requests",
    "rings",
    "mads",
    "mailboxes",
    "netlink",
    "mlx5_answers",
    "rxe_answers",
    "siw_answers",
    "exchanges",
    "c_calls",
    "siw_rings",
    "guests",
    "clients",
    "ethernet",
    "ioctls",
    "completions",
    "rxe_rings",
    "rxe_sends",
    "streams",
];

/// What a target may take beside the time it is given: the compiler, and what is kept already.
const BUILD: Duration = Duration::from_secs(1800);
/// What the test command gives each target.
const SHORT: Duration = Duration::from_secs(10);

/// How long, and which.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// For all of them together
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// This one alone
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    target: Option<String>,
}

/// Fuzzes as long as was asked for.
pub(crate) fn targets(options: &Options) -> Vec<(String, Duration)> {
    let all = Duration::from_secs(60 * u64::from(options.minutes));
    match &options.target {
        Some(target) => vec![(target.clone(), all)],
        None => {
            let each = all / TARGETS.len() as u32;
            TARGETS.iter().map(|target| ((*target).to_owned(), each)).collect()
        }
    }
}

/// Crates with functions for the targets alone.
const HAS_TARGETS: [&str; 6] =
    ["uverbs-c-abi", "uverbs-core", "uverbs-mlx5", "uverbs-rxe", "uverbs-siw", "uverbs-softhca"];

/// Whether what the targets call compiles, also where there is no cargo-fuzz.
pub(crate) fn compiles() -> Outcome {
    let mut check = cargo(&["check", "--lib", "--all-features", "--target-dir"]);
    check.arg(debian::target().join("fuzz-check"));
    check.args(HAS_TARGETS.iter().flat_map(|package| ["--package", package]));
    check.env("RUSTFLAGS", "--cfg fuzzing");
    run(check, BUILD)
}

/// What the test command takes.
pub(crate) fn usual() -> Outcome {
    for target in TARGETS {
        match fuzz(target, SHORT) {
            Outcome::Passed => {}
            other => return other,
        }
    }
    Outcome::Passed
}

/// One target, for a time. What it finds is in `fuzz/artifacts`, and what reaches new code in the
/// target folder.
pub(crate) fn fuzz(target: &str, time: Duration) -> Outcome {
    let mut probe = cargo(&["fuzz", "--version"]);
    match probe.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        _ => return Outcome::Skipped("no cargo fuzz here (cargo install cargo-fuzz)".into()),
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let found = root.join("target/fuzz-corpus").join(target);
    let kept = root.join("fuzz/corpus").join(target);
    if let Err(error) = std::fs::create_dir_all(&found) {
        return Outcome::Failed(format!("{}: {error}", found.display()));
    }
    let mut command = cargo(&["fuzz", "run", "--fuzz-dir", "fuzz", "--target-dir"]);
    command.arg(root.join("target/fuzz")).arg(target).arg(&found);
    command.args(Some(&kept).filter(|kept| Path::is_dir(kept)));
    command.current_dir(&root).args([
        "--",
        "-len_control=0",
        "-max_len=2048",
        "-timeout=20",
        "-print_final_stats=1",
    ]);
    command.arg(format!("-max_total_time={}", time.as_secs()));
    // The sanitizers' flags are unstable ones; that the library leaks on purpose is no finding.
    command.env("RUSTC_BOOTSTRAP", "1").env("ASAN_OPTIONS", "detect_leaks=0");
    run(command, time + BUILD)
}
