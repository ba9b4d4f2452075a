//! Static program: the command line linked with musl.
//!
//! Debian has no standard library for musl. This chore builds it from Debian's sources, which need
//! crates that cargo downloads once.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use goblin::elf::Elf;

use super::toolchain::{Toolchain, base};
use crate::debian::apt::{create, failed};
use crate::step::{Outcome, output, run};

const TARGET: &str = "x86_64-unknown-linux-musl";
/// Limit of building the standard library and the command line.
const BUILD: Duration = Duration::from_secs(2 * 3600);
const FETCH: Duration = Duration::from_secs(600);
const RUN: Duration = Duration::from_secs(60);
/// Flags without unwinding: Debian's unwinder calls `_dl_find_object`, which only glibc has
/// (`nounwind.c` replaces it). musl-gcc links no static program that is position-independent.
const FLAGS: &str = "-Cpanic=abort -Ctarget-feature=+crt-static -Crelocation-model=static \
    -Clink-self-contained=no";

/// Builds the program, checks that it is static, and runs it.
pub(super) fn step() -> Outcome {
    match checked() {
        Ok(()) => Outcome::Passed,
        Err(outcome) => outcome,
    }
}

fn checked() -> Result<(), Outcome> {
    built()?;
    let program = base().join("build").join(TARGET).join("debug/uverbs");
    is_alone(&program).map_err(|why| failed(&program, &why))?;
    let mut pingpong = Command::new(&program);
    pingpong.args(["pingpong", "--iters", "1000"]).env_clear();
    let text = output(pingpong, RUN)?;
    print!("{text}");
    match text.contains("verified") {
        true => Ok(()),
        false => Err(failed(&program, &"pingpong doesn't say that it verified")),
    }
}

fn built() -> Result<(), Outcome> {
    let toolchain = Toolchain::fetch()?;
    let mut fetch = Command::new("cargo");
    fetch.args(["fetch", "--locked", "--target", TARGET, "--manifest-path"]);
    fetch.arg(toolchain.std_manifest());
    // The standard library's manifests use unstable features, as the build does.
    fetch.env("RUSTC_BOOTSTRAP", "1");
    match run(fetch, FETCH) {
        Outcome::Passed => {}
        other => return Err(other),
    }
    let folder = base().join("musl");
    create(&folder)?;
    toolchain.archive("nounwind.c", &folder.join("libunwind.a"))?;
    let words = [
        "build",
        "--target",
        TARGET,
        "--package",
        "uverbs-tools",
        "--bin",
        "uverbs",
        "-Zbuild-std=std,panic_abort",
        "-Zbuild-std-features=",
    ];
    let mut build = toolchain.cargo(&words);
    build.env("CARGO_PROFILE_DEV_DEBUG", "false");
    build.env("RUSTC_BOOTSTRAP", "1");
    build.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER", "musl-gcc");
    let flags = format!("{FLAGS} -L {}", folder.display());
    build.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS", flags);
    match run(build, BUILD) {
        Outcome::Passed => Ok(()),
        other => Err(other),
    }
}

/// Checks that a program names no interpreter and no library.
fn is_alone(program: &Path) -> Result<(), String> {
    let bytes = fs::read(program).map_err(|error| error.to_string())?;
    let elf = Elf::parse(&bytes).map_err(|error| error.to_string())?;
    match (elf.interpreter, elf.libraries.as_slice()) {
        (None, []) => Ok(()),
        (interpreter, libraries) => Err(format!("needs {interpreter:?} and {libraries:?}")),
    }
}
