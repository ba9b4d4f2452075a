//! Larger pages: boots a kernel with pages of 16 KiB, and runs the tests there.
//!
//! The software HCA maps, pins and counts pages as a kernel does, and the providers map them.
//! QEMU's user mode has the host's page size. In another boot Linux's mlx5 drivers drive the
//! software HCA as a PCI device, which a server on this machine provides.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use uverbs_vm_init::plan::{Plan, Program};

use super::kernel;
use super::toolchain::{Toolchain, base, workspace};
use crate::step::{Outcome, skip_test};
use crate::targets::of_workspace;
use crate::test::LONG;
use crate::vm::binaries::{Artifact, built};
use crate::vm::board::Board;
use crate::vm::boot::Boot;
use crate::vm::fetch::Qemu;
use crate::vm::image::Image;
use crate::vm::kernels::Kernel;
use crate::vm::kit::LIMITS;
use crate::vm::machine::{Accel, Showed};
use crate::vm::run::{fault, tell};
use crate::vm::skips;
use crate::vm::verdict::{Limits, Ran};
use crate::vm::world::World;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Limits of all programs together, and of one program.
const TOTAL: Duration = Duration::from_secs(3600);
const SECONDS: u64 = 900;

/// Packages whose unit tests run.
const UNITS: [&str; 6] =
    ["uverbs", "uverbs-core", "uverbs-front", "uverbs-mlx5", "uverbs-softhca", "uverbs-streams"];
/// Test program, and the modules whose tests run; an empty list means all.
type Tests = (&'static str, &'static [&'static str]);

/// Tests that need no more than the software HCA in process.
const IN_PROCESS: [Tests; 8] = [
    ("fork", &[]),
    ("idle", &[]),
    ("import", &[]),
    ("kernel", &[]),
    ("memory", &["dmabuf", "huge_pages"]),
    ("one_copy", &[]),
    ("sockets", &["stream"]),
    ("wire", &["udp"]),
];
/// Tests that run over the drivers, too.
const EITHER: [Tests; 5] = [
    ("completions", &["cq_sizes", "events"]),
    ("control", &["async_events", "bad_input", "control"]),
    ("data", &["dc", "raw_packets", "rc_data", "srq", "unreliable", "xrc"]),
    ("data_path", &[]),
    ("memory", &["device_memory", "frames", "indirect_keys", "paging", "registration", "windows"]),
];

/// Tests to leave out, with the reason.
const LEFT_OUT: [(&str, &str); 4] = [
    ("loss_changes_nothing_but_time", "an emulated processor acknowledges too late"),
    ("parts_are_distinct_and_zeroed", MINUTES),
    ("stores_while_it_falls_asleep_are_not_lost", MINUTES),
    ("who_cannot_be_read_is_not_asked_to_lend", "it starts sleep(1), which isn't there"),
];
const MINUTES: &str = "it takes minutes";

/// Owner of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// The test's own process.
    InProcess,
    /// Linux's mlx5 drivers.
    Drivers,
}

/// Builds the programs, boots the kernel, and runs the programs.
pub(super) fn step(device: Device) -> Outcome {
    match checked(device) {
        Ok(what) => Outcome::Counted(what),
        Err(outcome) => outcome,
    }
}

fn checked(device: Device) -> Result<String, Outcome> {
    let kernel = kernel::fetch()?;
    let qemu = Qemu::fetch(Board::Virt)?;
    let (mut image, mut plan) = prepared(&Toolchain::fetch()?, device)?;
    let mut server = None;
    if device == Device::Drivers {
        add_modules(&mut image, &mut plan, &kernel)?;
        server = Some(server_command()?);
    }
    println!("{} programs on {}", plan.programs.len(), kernel.version);
    let boot = Boot {
        qemu: &qemu,
        accel: Accel::Tcg,
        processors: 2,
        kernel: &kernel.image,
        name: format!("pages-{device:?}"),
        image,
        plan,
        server,
        iommu: false,
        limits: Limits { total: TOTAL, ..LIMITS },
    };
    let folder = boot.folder();
    let showed = boot.run(|ran| tell("", ran))?;
    note_skips(&showed);
    match fault(&showed) {
        Some(why) => Err(Outcome::Failed(format!("{why}; logs in {}", folder.display()))),
        None => {
            let _ = fs::remove_dir_all(folder);
            let count = showed.ran.iter().map(passed).sum::<usize>();
            let programs = showed.programs();
            Ok(format!("{count} tests of {programs} programs on {}", kernel.version))
        }
    }
}

/// Tests that run on a device.
fn tests(device: Device) -> Vec<Tests> {
    match device {
        Device::InProcess => [&IN_PROCESS[..], &EITHER].concat(),
        Device::Drivers => EITHER.to_vec(),
    }
}

/// Image with all programs, and the plan that runs them.
fn prepared(toolchain: &Toolchain, device: Device) -> Result<(Image, Plan), Outcome> {
    let (mut image, mut plan) = (Image::default(), Plan::default());
    let mut words = vec!["test", "--no-run", "--lib"];
    words.extend(UNITS.iter().flat_map(|package| ["--package", package]));
    let tests = tests(device);
    words.extend(tests.iter().flat_map(|(test, _)| ["--test", test]));
    for Artifact { package, target, is_test, file } in build(toolchain, &words)? {
        let is_unit = package.replace('-', "_") == target;
        let is_listed = tests.iter().any(|(name, _)| *name == target);
        let runs = is_listed || is_unit && device == Device::InProcess;
        if !is_test || !runs {
            continue;
        }
        let path = format!("vm/{package}-{target}");
        image.program(&path, &file).map_err(Outcome::Failed)?;
        let mut words = vec![format!("/{path}")];
        let modules = tests.iter().filter(|(name, _)| *name == target).flat_map(|(_, it)| *it);
        words.extend(modules.map(|module| format!("{module}::")));
        skip(&mut words, &LEFT_OUT.map(|(name, _)| name));
        if is_unit {
            skip(&mut words, &LONG);
        }
        if device == Device::Drivers {
            words.push("--test-threads=1".to_owned());
        }
        let name = if is_unit { package } else { format!("{package}/{target}") };
        plan.programs.push(Program { name, seconds: SECONDS, words });
    }
    for Artifact { target, file, .. } in
        build(toolchain, &["build", "--package", "uverbs-vm-init"])?
    {
        if target == "init" {
            image.program("init", &file).map_err(Outcome::Failed)?;
        }
    }
    // Tests look for the fuzzers' corpus in the sources' folder.
    let corpus = workspace().join("fuzz/corpus");
    let corpus = corpus.strip_prefix("/").unwrap_or(&corpus);
    image.add_tree(Path::new("/"), corpus).map_err(Outcome::Failed)?;
    for (key, value) in [("HOME", "/root"), ("PATH", "/usr/bin"), ("RUST_BACKTRACE", "1")] {
        plan.environment.push((key.to_owned(), value.to_owned()));
    }
    Ok((image, plan))
}

/// Adds options by which a test program leaves out tests.
fn skip(words: &mut Vec<String>, names: &[&str]) {
    words.extend(names.iter().flat_map(|name| ["--skip", name]).map(str::to_owned));
}

/// Adds the drivers to the guest, and selects their device in the tests.
fn add_modules(image: &mut Image, plan: &mut Plan, kernel: &Kernel) -> Result<(), Outcome> {
    for module in kernel.modules.closure(World::B.modules()).map_err(Outcome::Failed)? {
        let path = format!("vm/modules/{}.ko", module.name);
        image.text(&path, module.bytes);
        plan.modules.push(format!("/{path}"));
    }
    plan.environment.push(("UVERBS_TEST_DEVICE".to_owned(), World::B.device().to_owned()));
    Ok(())
}

/// Command that serves the devices on this machine.
fn server_command() -> Result<Command, Outcome> {
    let artifacts = built(of_workspace(&["build"], "--bin", ["uverbs"]))?;
    let tool = artifacts.into_iter().find(|artifact| artifact.target == "uverbs");
    let tool = tool.ok_or_else(|| Outcome::Failed("cargo builds no uverbs".to_owned()))?;
    let mut command = Command::new(tool.file);
    command.args(World::B.server().unwrap_or_default());
    Ok(command)
}

/// Builds small static programs: the image is in the guest's memory.
fn build(toolchain: &Toolchain, words: &[&str]) -> Result<Vec<Artifact>, Outcome> {
    let mut command = toolchain.cargo(&[words, &["--target", TARGET]].concat());
    command.env("CARGO_TARGET_DIR", base().join("pages"));
    command.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_PROFILE_DEV_STRIP", "true");
    // The linker warns at length that getaddrinfo needs shared libraries.
    let flags = "-Ctarget-feature=+crt-static -Alinker-messages";
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", flags);
    built(command)
}

/// Number of passed tests in a program's output.
fn passed(ran: &Ran) -> usize {
    let counts = ran.output.iter().filter_map(|line| {
        line.strip_prefix("test result: ok. ")?.split_once(' ')?.0.parse::<usize>().ok()
    });
    counts.sum()
}

/// Notes tests that were left out or skipped themselves.
fn note_skips(showed: &Showed) {
    for (test, reason) in LEFT_OUT {
        skip_test(test, &format!("{reason} (pages of 16 KiB)"));
    }
    for ran in &showed.ran {
        for (test, reason) in ran.output.iter().filter_map(|line| skips::parse(line)) {
            skip_test(&format!("{}: {test}", ran.name), &format!("{reason} (pages of 16 KiB)"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ran, passed};

    #[test]
    fn a_program_says_how_many_passed() {
        let output = ["running 2 tests", "test result: ok. 12 passed; 0 failed; 1 ignored", "x"];
        let output = output.map(str::to_owned).into();
        assert_eq!(passed(&Ran { name: String::new(), output, end: None }), 12);
    }
}
