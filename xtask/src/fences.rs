//! The fences: traffic over a memory that keeps no other order, and the instructions on aarch64.
//!
//! For the latter a compiler needs that machine's core library. If the toolchain in use has it, that one compiles. Otherwise
//! the same version is fetched with the machine's own rustup, with a home below the target folder, once: 700 MB there, and
//! nothing of the machine's is changed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::debian::{is_there, target};
use crate::step::{Outcome, cargo, run};

const MACHINE: &str = "aarch64-unknown-linux-gnu";
/// How long rustup may take.
const FETCH: Duration = Duration::from_secs(300);
const TEST: Duration = Duration::from_secs(600);

/// Each one is needed and none is missing.
pub(crate) fn order() -> Outcome {
    let words = ["test", "--package", "uverbs", "--features", "adversary", "--test", "fences"];
    run(cargo(&words), TEST)
}

/// Compiles them, and compares the instructions with the table of docs/FENCES.md.
pub(crate) fn aarch64() -> Outcome {
    let compiler = match compiler() {
        Ok(compiler) => compiler,
        Err(outcome) => return outcome,
    };
    let mut test = cargo(&["test", "--package", "uverbs-core", "--test", "fence_instructions"]);
    test.args(["--", "on_aarch64"]).env("UVERBS_CROSS_RUSTC", compiler);
    run(test, TEST)
}

/// A compiler that has the library.
fn compiler() -> Result<PathBuf, Outcome> {
    let own = PathBuf::from(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    if has_library(&own) {
        return Ok(own);
    }
    let version = Command::new(&own).arg("-vV").output();
    let version = version.map_err(|error| Outcome::Failed(error.to_string()))?;
    let version = String::from_utf8_lossy(&version.stdout);
    let told = |key: &str| version.lines().find_map(|line| line.strip_prefix(key));
    let (Some(release), Some(host)) = (told("release: "), told("host: ")) else {
        return Err(Outcome::Failed("rustc doesn't tell its version".to_owned()));
    };
    // A nightly is not fetched by its number.
    let release = release.split_once('-').map_or(release, |(_, channel)| channel);
    let home = target().join("rustup");
    let fetched = home.join(format!("toolchains/{release}-{host}/bin/rustc"));
    if has_library(&fetched) {
        return Ok(fetched);
    }
    if !is_there("rustup") {
        return Err(Outcome::Skipped(format!("no core library for {MACHINE}, and no rustup here")));
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", release, "--profile", "minimal"]);
    rustup.args(["--target", MACHINE, "--no-self-update"]).env("RUSTUP_HOME", home);
    match run(rustup, FETCH) {
        Outcome::Failed(why) => {
            Err(Outcome::Skipped(format!("rustup gives no core library for {MACHINE} ({why})")))
        }
        _ if has_library(&fetched) => Ok(fetched),
        _ => Err(Outcome::Failed(format!("rustup left no {}", fetched.display()))),
    }
}

/// Whether this compiler is there and has the core library.
fn has_library(compiler: &PathBuf) -> bool {
    let mut probe = Command::new(compiler);
    probe.args(["--print", "target-libdir", "--target", MACHINE]).env_remove("LD_LIBRARY_PATH");
    let folder = probe.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let folder = folder.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let files = folder.and_then(fs::read_dir).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("libcore-"))
}
