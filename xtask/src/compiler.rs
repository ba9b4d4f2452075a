//! Which compiler this is: what is noted for one holds for no other.

use std::process::{Command, Stdio};

use crate::step::Outcome;

/// The compiler, as it names itself.
pub(crate) fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    match Command::new(rustc).arg("--version").stdin(Stdio::null()).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Says that what is expected is of another compiler; nothing if it is of this one.
pub(crate) fn other_compiler(expected: &str) -> Option<Outcome> {
    let compiler = compiler();
    if expected.lines().any(|line| line.trim_start_matches(['#', ';', ' ']) == compiler) {
        return None;
    }
    Some(Outcome::Skipped(format!(
        "this is {compiler}, for which nothing is noted (cargo xtask counts --bless notes it)"
    )))
}
