//! `cargo xtask pyverbs`: rdma-core's tests over our libibverbs, in one process, without a kernel's
//! device and without privileges. Compares the outcome of each with `tests/c-stack/pyverbs.tsv`, or
//! on another card or over Debian's libraries with a table beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::c_stack::c_abi;
use crate::debian::apt::failed;
use crate::debian::{self, target};
use crate::step::{Outcome, cargo, output};
use crate::vm::pyverbs::version;
use crate::vm::table::{Table, judged};

const MINUTES: Duration = Duration::from_secs(60);
/// Debian's Python: pyverbs' modules are built for it.
const PYTHON: &str = "/usr/bin/python3";

/// Options of `cargo xtask pyverbs`.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Run only tests whose name contains this; may be repeated.
    #[arg(long, value_name = "PART")]
    test: Vec<String>,
    /// Card of the software HCA (`uverbs_softhca::Card`).
    #[arg(long, value_name = "CARD")]
    profile: Option<String>,
    /// Run on a software device of Omni-Path.
    #[arg(long, conflicts_with = "profile")]
    omni_path: bool,
    /// Run on a software adapter of Amazon's (EFA).
    #[arg(long, conflicts_with_all = ["profile", "omni_path"])]
    efa: bool,
    /// Run over Debian's libibverbs and its provider, on the preloaded software HCA.
    #[arg(long)]
    theirs: bool,
    /// Replace the table by the outcomes.
    #[arg(long)]
    bless: bool,
}

impl Options {
    /// The suite on a software adapter of Amazon's.
    pub(crate) fn efa() -> Self {
        Self { efa: true, ..Self::default() }
    }

    /// Name of the table: `pyverbs`, `pyverbs-connectx-5`, `pyverbs-connectx-5-theirs`.
    fn table(&self) -> String {
        let profile = self.profile.as_deref().or(self.other().map(|other| other.table));
        let parts = ["pyverbs"].into_iter().chain(profile).chain(self.theirs.then_some("theirs"));
        parts.collect::<Vec<_>>().join("-")
    }

    /// Device in place of a ConnectX.
    fn other(&self) -> Option<&'static Other> {
        match (self.omni_path, self.efa) {
            (true, _) => Some(&OMNI_PATH),
            (_, true) => Some(&EFA),
            _ => None,
        }
    }

    /// Device that the tests open.
    fn device(&self) -> &'static str {
        let other = self.other().filter(|_| !self.theirs);
        other.map_or(DEVICE, |other| other.device)
    }
}

/// Runs the suite.
pub(crate) fn suite(options: &Options) -> Outcome {
    match suite_run(options) {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

fn suite_run(options: &Options) -> Result<Outcome, Outcome> {
    let root = debian::root()?;
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let packages = root.join("usr/lib/python3/dist-packages");
    loads(&packages, &libraries)?;
    let built = c_abi::build_checked()?;
    let name = options.table();
    let base = target().join(&name);
    let _ = fs::remove_dir_all(&base);
    let ours = base.join("lib");
    c_abi::copy(&built, &ours)?;

    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let mut suite = match options.theirs {
        true => theirs(&base, &libraries, options.other())?,
        false => {
            let mut suite = Command::new(target().join("debug/uverbs"));
            suite.args(["run", "-d", options.device(), "--libraries"]).arg(&ours);
            suite.arg("--").arg(PYTHON);
            suite
        }
    };
    suite.arg(sources.join("vm/suite.py")).args(&options.test);
    suite.env("UVERBS_TEST_DEVICE", options.device());
    suite.env("PYTHONPATH", &packages).env("LD_LIBRARY_PATH", others(&root, &libraries));
    suite.env("UVERBS_SUITE", root.join("usr/share/doc/rdma-core/tests"));
    suite.env("UVERBS_SUITE_COPY", base.join("tests"));
    if let Some(profile) = &options.profile {
        suite.env("UVERBS_SOFTHCA_PROFILE", profile);
    }
    let printed = output(suite, 20 * MINUTES)?;
    // The log has the trace of each test that did not pass.
    let log = base.join("log.txt");
    fs::write(&log, &printed).map_err(|error| failed(&log, &error))?;
    let found = Table::of_run(&version(&root)?, "none", &printed).map_err(Outcome::Failed)?;
    let table = sources.join(format!("c-stack/{name}.tsv"));
    Ok(judged(&found, &table, "pyverbs", options.bless, &options.test))
}

/// Python on Debian's libraries and the preloaded software HCA.
fn theirs(base: &Path, libraries: &Path, other: Option<&Other>) -> Result<Command, Outcome> {
    let preload = "uverbs-c-stack";
    output(cargo(&["build", "--package", preload, "--lib"]), 20 * MINUTES)?;
    let scratch = base.join("device");
    fs::create_dir_all(&scratch).map_err(|error| failed(&scratch, &error))?;
    let mut suite = Command::new(PYTHON);
    suite.env("LD_PRELOAD", target().join("debug/libuverbs_c_stack.so"));
    suite.env("UVERBS_SOFTHCA_DIR", scratch);
    // libibverbs takes an absolute name without suffix unchanged.
    let provider = other.map_or("libmlx5", |other| other.provider);
    suite.env("RDMAV_DRIVERS", libraries.join("libibverbs").join(provider));
    if let Some(other) = other {
        suite.env(other.variable, "1");
    }
    Ok(suite)
}

/// Software HCA in the process of the tests, and the preloaded one's name.
const DEVICE: &str = "softhca0";

/// Software device of another make.
#[derive(Debug)]
struct Other {
    /// Part of its tables' names.
    table: &'static str,
    /// Its name in the process of the tests.
    device: &'static str,
    /// Debian's library for it.
    provider: &'static str,
    /// Variable that makes the preloaded device one.
    variable: &'static str,
}

const OMNI_PATH: Other = Other {
    table: "omni-path",
    device: "softhfi0",
    provider: "libhfi1verbs",
    variable: "UVERBS_SOFTHCA_OMNI_PATH",
};
const EFA: Other =
    Other { table: "efa", device: "softefa0", provider: "libefa", variable: "UVERBS_SOFTHCA_EFA" };

/// Search path of libraries: ours, then Debian's unpacked ones.
fn others(root: &Path, libraries: &Path) -> std::ffi::OsString {
    let folders: [PathBuf; 2] = [libraries.to_owned(), root.join("lib/x86_64-linux-gnu")];
    std::env::join_paths(folders).unwrap_or_default()
}

/// Skips unless this machine's Python loads the modules.
fn loads(packages: &Path, libraries: &Path) -> Result<(), Outcome> {
    let mut probe = Command::new(PYTHON);
    probe.args(["-c", "import pyverbs.base"]);
    probe.env("PYTHONPATH", packages).env("LD_LIBRARY_PATH", libraries);
    let works = probe.output().is_ok_and(|output| output.status.success());
    let why = || Outcome::Skipped(format!("{PYTHON} isn't the one that pyverbs is built for"));
    works.then_some(()).ok_or_else(why)
}
