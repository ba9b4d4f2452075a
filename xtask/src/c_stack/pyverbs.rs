//! `cargo xtask pyverbs`: rdma-core's tests over our libibverbs, in one process, without a kernel's
//! device and without privileges. Compares the outcome of each with `tests/c-stack/pyverbs.tsv`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::c_stack::c_abi;
use crate::debian::apt::failed;
use crate::debian::{self, target};
use crate::step::{Outcome, output};
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
    /// Replace the table by the outcomes.
    #[arg(long)]
    bless: bool,
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
    let base = target().join("pyverbs");
    let _ = fs::remove_dir_all(&base);
    let ours = base.join("lib");
    c_abi::copy(&built, &ours)?;

    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let mut suite = Command::new(target().join("debug/uverbs"));
    suite.args(["run", "-d", DEVICE, "--libraries"]).arg(&ours).arg("--").arg(PYTHON);
    suite.arg(sources.join("vm/suite.py")).args(&options.test);
    suite.env("PYTHONPATH", &packages).env("LD_LIBRARY_PATH", others(&root, &libraries));
    suite.env("UVERBS_TEST_DEVICE", DEVICE);
    suite.env("UVERBS_SUITE", root.join("usr/share/doc/rdma-core/tests"));
    suite.env("UVERBS_SUITE_COPY", base.join("tests"));
    let printed = output(suite, 20 * MINUTES)?;
    // The log has the trace of each test that did not pass.
    let log = base.join("log.txt");
    fs::write(&log, &printed).map_err(|error| failed(&log, &error))?;
    let found = Table::of_run(&version(&root)?, "none", &printed).map_err(Outcome::Failed)?;
    let table = sources.join("c-stack/pyverbs.tsv");
    Ok(judged(&found, &table, "pyverbs", options.bless, &options.test))
}

/// Software HCA in the process of the tests.
const DEVICE: &str = "softhca0";

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
