//! `cargo xtask test`: all checks that a change must pass before it lands.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::book;
use crate::c_stack::{captures, judge, layouts, pyverbs};
use crate::cards;
use crate::clients;
use crate::debian;
use crate::examples;
use crate::functions;
use crate::instructions::{counts, fences};
use crate::release::{api, dependencies, minimal, msrv, package};
use crate::room;
use crate::step::{Outcome, Steps, build_once, cargo, named, output, run, run_tests};
use crate::stress::{fuzz, interleavings, simulate};
use crate::style;
use crate::targets;
use crate::vm;

const MINUTES: Duration = Duration::from_secs(60);

/// Name parts of softhca's tests of random input and faulty wires, which take minutes.
pub(crate) const LONG: [&str; 7] =
    ["any_", "dynamic", "hostile", "lossy", "nonsense", "simulation", "threads_share"];

/// Runs all steps.
pub(crate) fn all(steps: &mut Steps) {
    build_once();
    steps.step("room on disk", room::check);
    if steps.has_failed() {
        return;
    }
    steps.step("format", format);
    steps.step("style", || style::check(&style::Options::default()));
    let kit = OnceLock::new();
    // Tests wait more than they compute; the simulation and the judge take a minute or two of one
    // thread. Steps that compute run beside them. The first two use different folders of `target`,
    // and steps with separate target folders come last, so that few wait for cargo's lock.
    steps.two_at_a_time(vec![
        named("lints", || lints(&["--workspace", "--all-targets", "--all-features"])),
        named("optimised build", optimised),
        named("lints, no features", || lints(&["--package", "uverbs", "--no-default-features"])),
        named("tests", tests),
        named("fences", fences::order),
        named("simulation", simulate::usual),
        named("fences, aarch64", fences::aarch64),
        named("documentation", documentation),
        named("vm, made ready", || vm::make_ready(&kit)),
        named("judge", judge::judge),
        named("API", || api::check(false)),
        named("oldest compiler", msrv::check),
        named("minimal versions", minimal::check),
        named("interleavings", interleavings::check),
        named("fuzz targets compile", fuzz::compiles),
    ]);
    // Programs are built. These steps wait for processes, or compute on one thread.
    let mut checks = vec![
        named("clients", || clients::check(&clients::Options::daily())),
        named("pyverbs", || pyverbs::suite(&pyverbs::Options::default())),
        named("pyverbs, EFA", || pyverbs::suite(&pyverbs::Options::efa())),
        named("instruction counts", || counts::instructions(false)),
        named("examples", || examples::check(None, false)),
        named("captures", captures::captures),
        named("machine code", || counts::machine_code(false)),
        named("layouts", layouts::check),
        named("packages", package::check),
    ];
    checks.splice(3..3, cards::checks().into_iter().chain(functions::checks()));
    // Without its own network a page's server would meet other steps' programs.
    let has_network = book::has_networks();
    if has_network {
        checks.insert(2, named("book, commands", book::commands));
    }
    steps.two_at_a_time(checks);
    if !has_network {
        steps.step("book, commands", book::commands);
    }
    steps.step(cards::CONSERVATIVE, cards::conservative_fences);
    book::steps(steps, false);
    dependencies(steps);
    steps.step("fuzz", fuzz::usual);
    steps.step("ping-pong", || tool(&["pingpong"], "verified"));
    steps.step("ping-pong, 1 MiB", || {
        tool(&["pingpong", "--size", "1048576", "--iters", "1000"], "verified")
    });
    steps.step("ping-pong, JSON", || tool(&["pingpong", "--json"], "\"verified\":true"));
    steps.step("perf", || {
        let words = ["perf", "send", "lat", "-n", "2000", "--check", "--json"];
        tool(&words, "\"kind\":\"uverbs-perf\"")
    });
    vm::add_usual(steps, kit.get());
}

fn tests() -> Outcome {
    let mut test = cargo(&["test", "--workspace", "--no-fail-fast"]);
    // Many tests wait, for time limits and for each other.
    test.env("RUST_TEST_THREADS", "4");
    run_tests(test, 30 * MINUTES)
}

/// Builds programs for later steps: the command line, and the program of `cargo xtask counts`.
fn optimised() -> Outcome {
    match counts::program() {
        Ok(_) | Err(Outcome::Skipped(_)) => build_tool(),
        Err(outcome) => outcome,
    }
}

/// Builds the command line with the release profile.
pub(crate) fn build_tool() -> Outcome {
    let words = ["build", "--release", "--quiet"];
    run(targets::of_workspace(&words, "--bin", ["uverbs"]), 15 * MINUTES)
}

/// Checks the dependencies of the library and of the tools.
pub(crate) fn dependencies(steps: &mut Steps) {
    steps.step("dependencies", dependencies::check);
    steps.step("dependencies' licences", || {
        // Advisories need a network: `cargo deny check`.
        let words = ["deny", "--workspace", "check", "licenses", "bans", "sources"];
        let install = "cargo install --locked cargo-deny";
        component("deny", install, || run(cargo(&words), 5 * MINUTES))
    });
}

/// Runs the steps of the daily loop. CONTRIBUTING.md lists the omitted ones.
pub(crate) fn quick(steps: &mut Steps) {
    steps.step("format", format);
    steps.step("style", || style::check(&style::Options::default()));
    steps.step("lints", || lints(&["--workspace", "--all-targets", "--all-features"]));
    steps.step("tests", || {
        let mut test = cargo(&["test", "--workspace", "--lib", "--bins", "--tests"]);
        for package in ["uverbs-softhca", "uverbs-tools", "uverbs-c-stack"] {
            test.args(["--exclude", package]);
        }
        run_tests(test, 15 * MINUTES)
    });
    steps.step("tests, softhca", || {
        let mut test = cargo(&["test", "--package", "uverbs-softhca", "--lib", "--"]);
        test.args(LONG.iter().flat_map(|name| ["--skip", name]));
        run_tests(test, 15 * MINUTES)
    });
    steps.step("dependencies", dependencies::check);
}

fn format() -> Outcome {
    let install = "rustup component add rustfmt";
    component("fmt", install, || run(cargo(&["fmt", "--all", "--check"]), 2 * MINUTES))
}

fn documentation() -> Outcome {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
    let flags = std::env::var("RUSTDOCFLAGS").unwrap_or_default();
    doc.env("RUSTDOCFLAGS", format!("{flags} -Dwarnings").trim_start());
    match run(doc, 10 * MINUTES) {
        Outcome::Passed => has_pages_of_the_library(),
        other => other,
    }
}

/// Looks for the library's pages: a program of the same name would replace them with its pages.
fn has_pages_of_the_library() -> Outcome {
    let pages = debian::target().join("doc/uverbs");
    for page in ["struct.QueuePair.html", "c_names/index.html"] {
        if !pages.join(page).is_file() {
            return Outcome::Failed(format!("cargo doc wrote no {}", pages.join(page).display()));
        }
    }
    Outcome::Passed
}

/// Skips a step whose cargo subcommand isn't installed.
fn component(name: &str, install: &str, step: impl FnOnce() -> Outcome) -> Outcome {
    let mut probe = cargo(&[name, "--version"]);
    match probe.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => step(),
        _ => Outcome::Skipped(format!("no cargo {name} here ({install})")),
    }
}

/// Runs clippy with warnings as errors. RUSTFLAGS would do so, too, but rebuild everything.
fn lints(words: &[&str]) -> Outcome {
    component("clippy", "rustup component add clippy", || {
        let mut command = cargo(&["clippy"]);
        command.args(words).args(["--", "-Dwarnings"]);
        // No crate may need a C compiler. A build script that compiles C asks for one of these
        // variables first, and fails here. rustc calls `cc` to link.
        for tool in ["CC", "CXX", "AR", "CMAKE", "PKG_CONFIG", "HOST_CC", "TARGET_CC"] {
            command.env(tool, "/bin/false");
        }
        run(command, 15 * MINUTES)
    })
}

/// Runs the command line as a user does, and looks for `wanted` in its output.
fn tool(words: &[&str], wanted: &str) -> Outcome {
    match build_tool() {
        Outcome::Passed => {}
        other => return other,
    }
    let mut command = Command::new(debian::target().join("release/uverbs"));
    command.args(words);
    let stdout = match output(command, 10 * MINUTES) {
        Ok(stdout) => stdout,
        Err(outcome) => return outcome,
    };
    print!("{stdout}");
    let squeezed: String = stdout.chars().filter(|c| !c.is_whitespace()).collect();
    if squeezed.contains(wanted) {
        Outcome::Passed
    } else {
        Outcome::Failed(format!("it didn't print {wanted}"))
    }
}
