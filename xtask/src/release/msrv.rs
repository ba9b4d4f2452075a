//! Check of the published crates with the oldest compiler, `rust-version` in the manifest, if it is
//! installed. (clippy's `incompatible_msrv` knows the age of library items, not of the language.)

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, run};

const LIMIT: Duration = Duration::from_secs(1800);

/// Checks all crates except the chores, with all features.
pub(crate) fn check() -> Outcome {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let text = match fs::read_to_string(&manifest) {
        Ok(text) => text,
        Err(error) => return Outcome::Failed(format!("{}: {error}", manifest.display())),
    };
    let Some(oldest) = oldest(&text) else {
        return Outcome::Failed(format!("{} names no rust-version", manifest.display()));
    };
    // rustup's proxy selects the toolchain. `CARGO` is the cargo of another toolchain.
    let toolchain = format!("+{oldest}");
    let mut probe = Command::new("cargo");
    probe.arg(&toolchain).arg("--version").env("RUSTUP_AUTO_INSTALL", "0");
    match probe.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        _ => return Outcome::Skipped(format!("no Rust {oldest} (rustup toolchain add {oldest})")),
    }
    let mut check = Command::new("cargo");
    check.args([&toolchain, "check", "--workspace", "--exclude", "xtask", "--lib", "--bins"]);
    check.args(["--all-features", "--target-dir"]).arg(debian::target().join("msrv"));
    // Cargo sets these for its children. They name another toolchain.
    for variable in ["RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "CARGO"] {
        check.env_remove(variable);
    }
    run(check, LIMIT)
}

/// Version of a line `rust-version = "1.2"`, in full.
fn oldest(manifest: &str) -> Option<String> {
    let mut lines = manifest.lines();
    let version = lines.find_map(|line| line.strip_prefix("rust-version = \""))?;
    let numbers = version.trim_end_matches('"').split('.').chain(["0"]).take(3);
    Some(numbers.collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_a_toolchain() {
        let named = |line: &str| oldest(&format!("[workspace.package]\n{line}\n"));
        assert_eq!(named("rust-version = \"1.88\""), Some("1.88.0".to_owned()));
        assert_eq!(named("rust-version = \"1.88.1\""), Some("1.88.1".to_owned()));
        assert_eq!(named("edition = \"2024\""), None);
    }
}
