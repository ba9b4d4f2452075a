//! Other machines: builds and test runs for them on this machine (docs/TESTING.md).
//!
//! aarch64 and s390x (big-endian) run under QEMU's user mode, aarch64 with larger pages on a kernel
//! in QEMU. The compilers are Debian's, in a separate Debian root.

mod kernel;
mod musl;
mod pages;
mod toolchain;

use std::time::Duration;

use clap::ValueEnum;

use crate::step::{Outcome, Steps, run_tests, skip_test};
use crate::test::LONG;
use pages::Device;
use toolchain::Toolchain;

/// Limit of a build from nothing and of the tests on an emulated processor.
const LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Options of `cargo xtask machines`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this machine
    #[arg(value_enum)]
    machine: Option<Machine>,
}

/// Machine to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Machine {
    /// Layouts, the queues and their bytes, the software HCA, the library
    Aarch64,
    /// Layouts on a big-endian machine
    S390x,
    /// The command line, linked with musl: a program that needs no other file
    Musl,
    /// aarch64 with pages of 16 KiB: the queues, the software HCA and the library's tests on a
    /// kernel in QEMU
    Pages,
    /// aarch64 with pages of 16 KiB: the kernel's mlx5 drivers on the software HCA, and the
    /// library's tests over them
    PagesMlx5,
}

/// Packages whose tests compare layouts with fixtures made from C headers.
const LAYOUTS: [&str; 2] = ["uverbs-kernel-abi", "uverbs-mlx5-prm"];
/// Packages whose unit tests need no other process.
const QUEUES: [&str; 2] = ["uverbs-core", "uverbs-mlx5"];
/// Packages of the software HCA.
const DEVICE: [&str; 2] = ["uverbs-front", "uverbs-softhca"];
/// Packages of the library with the test tree, and of streams.
const LIBRARY: [&str; 2] = ["uverbs", "uverbs-streams"];
/// Reason to leave out devices on UDP.
const NO_OPTION: &str = "an option of UDP sockets is missing";
/// Reason to leave out checks of advice to the kernel.
const NO_ADVICE: &str = "the kernel doesn't hear of advice";
/// Tests that QEMU's user mode runs differently from Linux: package, name and reason.
const NOT_EMULATED: [(&str, &str, &str); 29] = [
    ("uverbs-core", "pages_stay_behind_on_fork", "MADV_DONTFORK is refused"),
    ("uverbs-core", "parts_are_distinct_and_zeroed", "it takes minutes"),
    (
        "uverbs-softhca",
        "wire::udp::tests::a_wire_pauses_once_behind_a_datagram_that_just_arrived",
        NO_OPTION,
    ),
    ("uverbs-softhca", "wire::udp::tests::an_acknowledgement_leaves_with_the_reply", NO_OPTION),
    (
        "uverbs-softhca",
        "wire::udp::tests::joined_datagrams_of_any_length_are_judged_one_by_one",
        NO_OPTION,
    ),
    ("uverbs-softhca", "wire::udp::tests::no_packet_overtakes_a_request", NO_OPTION),
    (
        "uverbs-softhca",
        "wire::udp::tests::packets_leave_one_by_one_where_the_system_refuses_to_divide",
        NO_OPTION,
    ),
    ("uverbs-softhca", "wire::udp::tests::damage_is_dropped_and_counted", NO_OPTION),
    ("uverbs-softhca", "wire::udp::tests::frames_of_all_sizes_arrive_in_order", NO_OPTION),
    ("uverbs-softhca", "wire::udp::tests::one_address_is_one_device", NO_OPTION),
    ("uverbs-softhca", "wire::udp::tests::the_descriptor_tells_of_arrivals", NO_OPTION),
    ("uverbs-softhca", "wire::udp::tests::what_leads_nowhere_is_counted", NO_OPTION),
    ("uverbs", "a_cable_that_is_pulled_ends_a_connection", NO_OPTION),
    ("uverbs", "a_child_s_own_memory_at_the_same_place_stays", NO_ADVICE),
    ("uverbs", "a_datagram_tells_how_it_came", NO_OPTION),
    ("uverbs", "a_device_on_udp_alone_is_reached_so", NO_OPTION),
    ("uverbs", "a_device_that_goes_is_a_dead_link", NO_OPTION),
    ("uverbs", "a_packet_wakes_a_device_that_sleeps", NO_OPTION),
    ("uverbs", "a_process_killed_amid_copies_is_a_dead_link", NO_OPTION),
    ("uverbs", "a_process_that_hides_sends_bytes_from_then_on", NO_OPTION),
    ("uverbs", "a_process_that_exits_with_its_last_message_has_acknowledged_it", NO_OPTION),
    ("uverbs", "a_process_that_may_not_be_read_sends_bytes", NO_OPTION),
    ("uverbs", "an_address_is_free_once_its_device_has_been_dropped", NO_OPTION),
    ("uverbs", "large_memory_is_aligned_to_huge_pages_and_asks_for_them", NO_ADVICE),
    ("uverbs", "loss_changes_nothing_but_time", NO_OPTION),
    ("uverbs", "names_lead_to_the_network", NO_OPTION),
    ("uverbs", "shared_memory_is_found_by_itself", NO_OPTION),
    ("uverbs", "two_devices_do_everything", NO_OPTION),
    ("uverbs", "what_strangers_send_disturbs_no_connection", NO_OPTION),
];

/// Builds and runs the selected machines.
pub(crate) fn steps(steps: &mut Steps, options: &Options) {
    let wanted = |machine| options.machine.is_none_or(|only| only == machine);
    if wanted(Machine::Aarch64) {
        steps.step("aarch64, layouts", || layouts("aarch64"));
        steps.step("aarch64, queues", || unit("aarch64", &["--lib"], &QUEUES));
        steps.step("aarch64, the software HCA", || unit("aarch64", &["--lib"], &DEVICE));
        let kinds = ["--lib", "--tests"];
        steps.step("aarch64, the library", || unit("aarch64", &kinds, &LIBRARY));
    }
    if wanted(Machine::S390x) {
        steps.step("s390x, layouts", || layouts("s390x"));
    }
    if wanted(Machine::Musl) {
        steps.step("musl, the command line", musl::step);
    }
    if wanted(Machine::Pages) {
        steps.step("pages of 16 KiB, in process", || pages::step(Device::InProcess));
    }
    if wanted(Machine::PagesMlx5) {
        steps.step("pages of 16 KiB, mlx5_ib", || pages::step(Device::Drivers));
    }
}

fn layouts(machine: &str) -> Outcome {
    test(machine, &["--lib", "--tests"], &LAYOUTS, &[])
}

/// Runs tests, except tests of random and faulty input, which take minutes without emulation.
fn unit(machine: &str, kinds: &[&str], packages: &[&str]) -> Outcome {
    let others = NOT_EMULATED.iter().filter(|(package, ..)| packages.contains(package));
    others.clone().for_each(|(_, test, why)| skip_test(test, &format!("under QEMU {why}")));
    let skips = LONG.iter().copied().chain(others.map(|&(_, test, _)| test));
    let skips: Vec<&str> = skips.flat_map(|name| ["--skip", name]).collect();
    test(machine, kinds, packages, &skips)
}

fn test(machine: &str, kinds: &[&str], packages: &[&str], more: &[&str]) -> Outcome {
    let toolchain = match Toolchain::fetch() {
        Ok(toolchain) => toolchain,
        Err(outcome) => return outcome,
    };
    let target = format!("{machine}-unknown-linux-gnu");
    let mut words = vec!["test", "--no-fail-fast", "--target", &target];
    words.extend(kinds);
    words.extend(packages.iter().flat_map(|package| ["--package", package]));
    words.push("--");
    words.extend(more);
    run_tests(toolchain.test(machine, &words), LIMIT)
}
