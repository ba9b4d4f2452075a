//! Project chores: `cargo xtask test` is what decides whether a change is good.

mod again;
mod book;
mod c_stack;
mod cards;
mod clients;
mod compiler;
mod debian;
mod examples;
mod functions;
mod instructions;
mod machines;
mod performance;
mod release;
mod room;
mod step;
mod stress;
mod style;
mod targets;
mod test;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use c_stack::{c_abi, captures, judge, layouts, pyverbs, testpmd};
use instructions::{counts, fences};
use release::{api, deb, install, installed, minimal, msrv, package};
use step::{Outcome, Steps};
use stress::{fuzz, interleavings, sanitize, simulate, soak};

/// Project chores.
///
/// `cargo xtask test` decides whether a change is good. No chore needs privileges or installs
/// anything; what is fetched goes to the target folder.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Run every check: format, style, lints, documentation, tests, the C stack, real kernels.
    ///
    /// A step whose tool is missing is skipped, and says so; so does a test that can't run here.
    /// The last lines count both.
    Test {
        /// Run what takes under three minutes on two cores when little changed: format, style,
        /// lints, and the tests except softhca's random and faulty input and the command line's.
        #[arg(long)]
        quick: bool,
    },
    /// Run the unmodified C stack (libibverbs, libmlx5) on the software HCA.
    ///
    /// Fetches Debian's packages with apt, once. The layouts are compared first.
    Judge,
    /// Run rdma-core's own tests over our libibverbs, and compare the outcomes with the noted ones.
    ///
    /// Fetches Debian's packages with apt, once. Needs Debian 12's python3.
    Pyverbs(pyverbs::Options),
    /// Run public programs over our libraries, and compare the outcomes with the noted ones.
    ///
    /// Fetches packages of Debian 12 and PyPI once. Needs network namespaces.
    Clients(clients::Options),
    /// Build our libibverbs for C programs, and lay out a folder for LD_LIBRARY_PATH.
    CAbi {
        /// The folder [default: c-abi in the target folder, where `uverbs run` of a build finds
        /// it].
        #[arg(long, value_name = "DIR")]
        prefix: Option<PathBuf>,
    },
    /// Install the command line, and the libraries for C programs where `uverbs run` finds them.
    Install {
        /// The folder, which gets bin/uverbs and lib/uverbs [default: cargo's, such as ~/.cargo].
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
    },
    /// Run the test tree on software HCAs with the capabilities of other cards, and on functions
    /// without a kernel driver.
    Cards,
    /// Run traffic over a memory that keeps no order except the fences'.
    ///
    /// Then compares the instructions on aarch64, if the toolchain has that machine's core library.
    Fences,
    /// Fetch Debian's packages of the C stack, and print their folder in the last line.
    Fetch,
    /// Make the tables of layouts and constants again from the C headers, and compare them.
    ///
    /// Needs python3, gcc and readelf.
    Layouts {
        /// Replace the fixtures by what the headers say.
        #[arg(long)]
        bless: bool,
    },
    /// Pack every published crate, and look into the packages for licences and README.
    ///
    /// Sends nothing.
    Packages {
        /// Build each from its packed files too, then install the command line from them, and check
        /// its manual and its shell completions. Takes minutes.
        #[arg(long)]
        build: bool,
    },
    /// Make Debian packages of the command line and of the libraries for C programs, in target/deb.
    ///
    /// Needs dpkg-deb and strip.
    Deb(deb::Options),
    /// Compare the library's dependencies with the allowed ones.
    ///
    /// Then cargo-deny looks at licences, duplicates and sources of all dependencies (deny.toml).
    Dependencies,
    /// Run the examples, and compare what they print with the files in examples/output.
    Examples {
        /// Run this one only.
        #[arg(long)]
        example: Option<String>,
        /// Replace the files by what they print.
        #[arg(long)]
        bless: bool,
    },
    /// Check the book in docs/book: what pages include, where they lead, and the diagrams; build
    /// it; type its commands and the README's.
    ///
    /// mdBook is the machine's, or fetched with pip to the target folder.
    Book {
        /// Draw the diagrams anew first.
        #[arg(long)]
        bless: bool,
    },
    /// Check words, lengths, folders and imports against CONTRIBUTING.md's rules.
    ///
    /// Exceptions and what folders may still have are in xtask/style.
    Style(style::Options),
    /// Run random programs over bad wires between software HCAs, on virtual time.
    ///
    /// A seed decides everything. A failing seed is printed, with a smaller failing program.
    Simulate(simulate::Options),
    /// Run coverage-guided fuzzers on what peers, programs and drivers write.
    ///
    /// Needs cargo-fuzz. Findings are in fuzz/artifacts.
    Fuzz(fuzz::Options),
    /// Run every transport between processes while these and their devices come and go.
    ///
    /// Memory, open files and threads must stay bounded, counters must agree, and no process, file
    /// or device may remain.
    Soak(soak::Options),
    /// Run the tests that are in one process under AddressSanitizer.
    ///
    /// The stable toolchain has it. The first build takes minutes.
    Sanitize,
    /// Try every interleaving of small cases of what threads share without a lock (loom).
    Interleavings,
    /// Run tests for aarch64 and s390x under QEMU's user mode.
    ///
    /// Fetches Debian's compilers with apt, once: some 400 MB.
    Machines(machines::Options),
    /// Check the library with the oldest dependencies that its manifests allow.
    MinimalVersions,
    /// Check all crates except the chores with the oldest compiler that the manifest allows, if it
    /// is installed.
    Msrv,
    /// List the library's public items, and compare them with docs/api.
    Api {
        /// Replace the lists by what is found.
        #[arg(long)]
        bless: bool,
    },
    /// Capture packets of software HCAs, and have Debian's tshark read them.
    Captures,
    /// Forward ten million packets by DPDK's testpmd between two software HCAs.
    ///
    /// Fetches Debian's packages with apt, once. The judge runs a short form.
    Testpmd,
    Vm(vm::Options),
    /// Run the benches and `uverbs perf`, and write a page of tables and pictures.
    ///
    /// Takes some ten minutes. A machine without other work gives the steadiest figures.
    Performance(performance::Options),
    /// Compare the data path's instructions and their counts with benches/counts.
    ///
    /// Needs valgrind, or apt to fetch it.
    Counts {
        /// Replace the tables by what is found.
        #[arg(long)]
        bless: bool,
    },
}

fn main() -> ExitCode {
    let mut steps = Steps::default();
    match Cli::parse().chore {
        Chore::Test { quick: false } => test::all(&mut steps),
        Chore::Test { quick: true } => test::quick(&mut steps),
        Chore::Cards => {
            steps.two_at_a_time(cards::checks().into_iter().chain(functions::checks()).collect());
            steps.step(cards::CONSERVATIVE, cards::conservative_fences);
        }
        Chore::Judge => {
            steps.step("layouts", layouts::check);
            steps.step("judge", judge::judge);
        }
        Chore::Pyverbs(options) => steps.step("pyverbs", || pyverbs::suite(&options)),
        Chore::Clients(options) => steps.step("clients", || clients::check(&options)),
        Chore::CAbi { prefix } => steps.step("C ABI", || c_abi::lay_out(prefix.as_deref())),
        Chore::Install { root } => steps.step("install", || install::install(root.as_deref())),
        Chore::Fences => {
            steps.step("fences", fences::order);
            steps.step("fences, aarch64", fences::aarch64);
        }
        Chore::Fetch => return fetch(),
        Chore::Layouts { bless: false } => steps.step("layouts", layouts::check),
        Chore::Layouts { bless: true } => steps.step("layouts, blessed", layouts::bless),
        Chore::Packages { build } => {
            steps.step("packages", package::check);
            if build {
                steps.step("packages, built", installed::build);
                steps.step("packages, installed", installed::install);
            }
        }
        Chore::Deb(options) => deb::steps(&mut steps, &options),
        Chore::Dependencies => test::dependencies(&mut steps),
        Chore::Examples { example, bless } => {
            steps.step("examples", || examples::check(example.as_deref(), bless));
        }
        Chore::Book { bless } => {
            book::steps(&mut steps, bless);
            steps.step("book, commands", book::commands);
        }
        Chore::Style(options) => steps.step("style", || style::check(&options)),
        Chore::Simulate(options) => {
            steps.step("simulation", || simulate::seeds(&options));
        }
        Chore::Fuzz(options) => {
            for (target, time) in fuzz::targets(&options) {
                steps.step(format!("fuzz {target}"), || fuzz::fuzz(&target, time));
            }
        }
        Chore::Soak(options) => steps.step("soak", || soak::soak(&options)),
        Chore::Sanitize => steps.step("address sanitizer", sanitize::address),
        Chore::Interleavings => steps.step("interleavings", interleavings::check),
        Chore::Msrv => steps.step("oldest compiler", msrv::check),
        Chore::Machines(options) => machines::steps(&mut steps, &options),
        Chore::MinimalVersions => steps.step("minimal versions", minimal::check),
        Chore::Api { bless } => steps.step("API", || api::check(bless)),
        Chore::Captures => steps.step("captures", captures::captures),
        Chore::Testpmd => steps.step("testpmd", testpmd::testpmd),
        Chore::Vm(options) => return vm::chore(options),
        Chore::Performance(options) => performance::steps(&mut steps, &options),
        Chore::Counts { bless } => counts::steps(&mut steps, bless),
    }
    steps.summary()
}

fn fetch() -> ExitCode {
    match debian::root() {
        Ok(root) => {
            println!("{}", root.display());
            ExitCode::SUCCESS
        }
        Err(Outcome::Skipped(why) | Outcome::Failed(why)) => {
            eprintln!("fetch: {why}");
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_chore_has_a_help_and_takes_no_stray_word() {
        let chores = Cli::command();
        for chore in chores.get_subcommands() {
            let name = chore.get_name();
            let help = Cli::try_parse_from(["xtask", name, "--help"]).unwrap_err();
            assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{name}");
            assert!(help.to_string().contains(&format!("Usage: cargo xtask {name}")), "{help}");
            let stray = Cli::try_parse_from(["xtask", name, "stray"]).unwrap_err();
            assert!(stray.to_string().contains("'stray'"), "{stray}");
        }
        assert!(Cli::try_parse_from(["xtask"]).is_err());
        assert!(Cli::try_parse_from(["xtask", "vn"]).unwrap_err().to_string().contains("'vn'"));
    }
}
