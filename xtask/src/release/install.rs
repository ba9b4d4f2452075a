//! `cargo xtask install`: the command line, and beside it the libraries for C programs, where
//! `uverbs run` finds them.

use std::path::Path;
use std::time::Duration;

use crate::c_stack::c_abi;
use crate::step::{Outcome, cargo, cargo_home, run};

const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Installs into `root`, or into cargo's folder: `bin/uverbs` and `lib/uverbs`.
pub(crate) fn install(root: Option<&Path>) -> Outcome {
    let Some(root) = root.map(Path::to_owned).or_else(cargo_home) else {
        return Outcome::Failed("no home folder: name one with --root".to_owned());
    };
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools");
    let mut program = cargo(&["install", "--locked", "--force"]);
    program.arg("--path").arg(tools).arg("--root").arg(&root);
    match run(program, LIMIT) {
        Outcome::Passed => c_abi::lay_out(Some(&root.join("lib/uverbs"))),
        other => other,
    }
}
