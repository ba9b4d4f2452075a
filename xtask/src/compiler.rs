//! Version of the compiler: tables that are noted for one compiler hold for no other.

use std::process::{Command, Stdio};

use crate::step::Outcome;

/// Version line of the compiler.
pub(crate) fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    match Command::new(rustc).arg("--version").stdin(Stdio::null()).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Skip, if the expected text names another compiler.
pub(crate) fn other_compiler(expected: &str) -> Option<Outcome> {
    let compiler = compiler();
    if expected.lines().any(|line| line.trim_start_matches(['#', ';', ' ']) == compiler) {
        return None;
    }
    Some(Outcome::Skipped(format!(
        "this is {compiler}, for which nothing is noted (cargo xtask counts --bless notes it)"
    )))
}
