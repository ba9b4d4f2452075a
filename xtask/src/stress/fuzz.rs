//! Coverage-guided fuzzing of input from peers, programs and drivers (`fuzz/`, docs/TESTING.md).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, cargo, run};

/// Targets of `fuzz/Cargo.toml`.
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
    "rdmavt_answers",
    "efa_answers",
    "exchanges",
    "c_calls",
    "siw_rings",
    "rdmavt_rings",
    "efa_rings",
    "guests",
    "clients",
    "functions",
    "ethernet",
    "ioctls",
    "completions",
    "rxe_rings",
    "rxe_sends",
    "streams",
];

/// Limit in addition to a target's fuzzing time: the compiler, and the kept corpus.
const BUILD: Duration = Duration::from_secs(1800);
/// Fuzzing time of each target in the test command.
const SHORT: Duration = Duration::from_secs(10);

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Fuzzing time of all targets together
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Only this target
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    target: Option<String>,
}

/// Targets to fuzz, with the time of each.
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

/// Crates with functions that only the targets call.
const HAS_TARGETS: [&str; 9] = [
    "uverbs-c-abi",
    "uverbs-core",
    "uverbs-efa",
    "uverbs-front",
    "uverbs-mlx5",
    "uverbs-rdmavt",
    "uverbs-rxe",
    "uverbs-siw",
    "uverbs-softhca",
];

/// Checks that the targets' functions compile. Needs no cargo-fuzz.
pub(crate) fn compiles() -> Outcome {
    let mut check = cargo(&["check", "--lib", "--all-features", "--target-dir"]);
    check.arg(debian::target().join("fuzz-check"));
    check.args(HAS_TARGETS.iter().flat_map(|package| ["--package", package]));
    check.env("RUSTFLAGS", "--cfg fuzzing");
    run(check, BUILD)
}

/// Fuzzes each target for [`SHORT`], as a step of the test command.
pub(crate) fn usual() -> Outcome {
    for target in TARGETS {
        match fuzz(target, SHORT) {
            Outcome::Passed => {}
            other => return other,
        }
    }
    Outcome::Passed
}

/// Fuzzes one target for a time. Findings are in `fuzz/artifacts`, inputs that reach new code in
/// the target folder.
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
    // The sanitizers' flags are unstable. The library leaks on purpose, so leaks are no finding.
    command.env("RUSTC_BOOTSTRAP", "1").env("ASAN_OPTIONS", "detect_leaks=0");
    run(command, time + BUILD)
}
