//! `cargo xtask test`: everything that must hold before a change lands.

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use crate::counts;
use crate::judge;
use crate::layouts;
use crate::step::{Outcome, Steps, cargo, run};
use crate::tree;
use crate::vm;

const MINUTES: Duration = Duration::from_secs(60);

/// Runs all steps and sums up.
pub(crate) fn run_all() -> ExitCode {
    let mut steps = Steps::default();
    steps.step("format", || {
        component("fmt", || run(cargo(&["fmt", "--all", "--check"]), 2 * MINUTES))
    });
    steps.step("lints", || lints(&["--workspace", "--all-targets", "--all-features"]));
    steps.step("lints, no features", || lints(&["--package", "uverbs", "--no-default-features"]));
    steps.step("tests", || run(cargo(&["test", "--workspace"]), 30 * MINUTES));
    steps.step("fences", crate::fences::order);
    steps.step("fences, aarch64", crate::fences::aarch64);
    steps.step("documentation", || {
        let words = ["doc", "--workspace", "--no-deps", "--all-features"];
        let mut doc = cargo(&words);
        let flags = std::env::var("RUSTDOCFLAGS").unwrap_or_default();
        doc.env("RUSTDOCFLAGS", format!("{flags} -Dwarnings").trim_start());
        run(doc, 10 * MINUTES)
    });
    steps.step("dependencies", tree::check);
    steps.step("no C compiler", || {
        let mut build = cargo(&["build", "--package", "uverbs", "--target-dir", "target/no-c"]);
        // rustc calls `cc` to link; whoever compiles C asks these first.
        for tool in ["CC", "CXX", "AR", "CMAKE", "PKG_CONFIG", "HOST_CC", "TARGET_CC"] {
            build.env(tool, "/bin/false");
        }
        run(build, 10 * MINUTES)
    });
    steps.step("layouts", layouts::check);
    steps.step("judge", judge::judge);
    counts::steps(&mut steps, false);
    steps.step("ping-pong", || tool(&["pingpong"], "verified"));
    steps.step("ping-pong, 1 MiB", || {
        tool(&["pingpong", "--size", "1048576", "--iters", "1000"], "verified")
    });
    steps.step("ping-pong, JSON", || tool(&["pingpong", "--json"], "\"verified\":true"));
    steps.step("perf", || {
        let words = ["perf", "send", "lat", "-n", "2000", "--check", "--json"];
        tool(&words, "\"kind\":\"uverbs-perf\"")
    });
    vm::add_usual(&mut steps);
    steps.summary()
}

/// Skips a step whose cargo subcommand isn't installed.
fn component(name: &str, step: impl FnOnce() -> Outcome) -> Outcome {
    let mut probe = cargo(&[name, "--version"]);
    match probe.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => step(),
        _ => Outcome::Skipped(format!("no cargo {name} here (rustup component add {name})")),
    }
}

/// Clippy, whose warnings are errors. Not by RUSTFLAGS: those would have everything built twice.
fn lints(words: &[&str]) -> Outcome {
    component("clippy", || {
        let mut command = cargo(&["clippy"]);
        command.args(words).args(["--", "-Dwarnings"]);
        run(command, 15 * MINUTES)
    })
}

/// Runs the command line as a user does, and looks for `wanted` in what it prints.
fn tool(words: &[&str], wanted: &str) -> Outcome {
    let mut command = cargo(&["run", "--release", "--quiet", "--"]);
    command.args(words).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    print!("{stdout}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Outcome::Failed(output.status.to_string());
    }
    let squeezed: String = stdout.chars().filter(|c| !c.is_whitespace()).collect();
    if squeezed.contains(wanted) {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("it didn't print {wanted}"))
    }
}
