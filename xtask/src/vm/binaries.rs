//! Our own programs for the guest: tests, the command line, the first process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::apt::{create, failed};
use crate::step::{Outcome, cargo};
use crate::vm::fetch::base;

/// Where cargo put what.
pub(crate) struct Binaries {
    /// By package and target: `uverbs/rc_data`.
    pub(crate) tests: BTreeMap<String, PathBuf>,
    /// By name.
    pub(crate) programs: BTreeMap<String, PathBuf>,
}

impl Binaries {
    /// A program by its name.
    ///
    /// # Errors
    ///
    /// A failure where there is no such program.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf, Outcome> {
        let found = self.programs.get(name).cloned();
        found.ok_or_else(|| Outcome::Failed(format!("cargo builds no program {name}")))
    }
}

/// Builds the command line and the tests that are named, as `PACKAGE/TARGET`.
///
/// # Errors
///
/// A failure where they can't be built.
pub(crate) fn build(tests: &BTreeSet<&str>) -> Result<Binaries, Outcome> {
    let mut binaries = Binaries { tests: BTreeMap::new(), programs: BTreeMap::new() };
    for artifact in built(cargo(&["build", "--package", "uverbs-tools", "--bins"]))? {
        binaries.programs.insert(artifact.target, artifact.file);
    }
    if tests.is_empty() {
        return Ok(binaries);
    }
    let mut command = cargo(&["test", "--no-run"]);
    for (package, target) in tests.iter().filter_map(|test| test.split_once('/')) {
        command.args(["--package", package, "--test", target]);
    }
    for artifact in built(command)?.into_iter().filter(|artifact| artifact.is_test) {
        binaries.tests.insert(format!("{}/{}", artifact.package, artifact.target), artifact.file);
    }
    Ok(binaries)
}

/// Builds the first process and what the self-test runs, linked statically.
///
/// # Errors
///
/// A failure where they can't be built.
pub(crate) fn build_init() -> Result<BTreeMap<String, PathBuf>, Outcome> {
    let host = host()?;
    let mut command = cargo(&["build", "--package", "uverbs-vm-init", "--bins", "--target", &host]);
    command.arg("--target-dir").arg(base().join("build"));
    let flags = format!("target.{host}.rustflags=[\"-Ctarget-feature=+crt-static\"]");
    command.arg("--config").arg(flags);
    // These would win over the configuration.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let artifacts = built(command)?;
    Ok(artifacts.into_iter().map(|artifact| (artifact.target, artifact.file)).collect())
}

/// The program without what only a debugger reads, which is most of it; as it is where there is no `strip`.
///
/// # Errors
///
/// A failure where the copy can't be written.
pub(crate) fn stripped(program: &Path) -> Result<PathBuf, Outcome> {
    let folder = base().join("stripped");
    create(&folder)?;
    let to = folder.join(program.file_name().unwrap_or_default());
    let time = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    if time(&to).is_some_and(|done| time(program).is_some_and(|built| built < done)) {
        return Ok(to);
    }
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(&to).arg(program);
    strip.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if strip.status().is_ok_and(|status| status.success()) {
        return Ok(to);
    }
    fs::copy(program, &to).map_err(|error| failed(&to, &error))?;
    Ok(to)
}

struct Artifact {
    package: String,
    target: String,
    is_test: bool,
    file: PathBuf,
}

/// Runs a cargo command and collects what can be executed of what it built.
fn built(mut command: Command) -> Result<Vec<Artifact>, Outcome> {
    command.args(["--quiet", "--message-format", "json-render-diagnostics"]);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = match command.output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => return Err(Outcome::Failed(format!("cargo: {}", output.status))),
        Err(error) => return Err(Outcome::Failed(format!("cargo: {error}"))),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(artifact).collect())
}

fn artifact(line: &str) -> Option<Artifact> {
    let message: Value = serde_json::from_str(line).ok()?;
    Some(Artifact {
        package: package(message["package_id"].as_str()?)?.to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        is_test: message["profile"]["test"].as_bool()?,
        file: message["executable"].as_str()?.into(),
    })
}

/// `uverbs-tools` of `path+file:///home/me/uverbs/tools#uverbs-tools@0.1.0`; without a name there, the folder's.
fn package(id: &str) -> Option<&str> {
    let (path, rest) = id.rsplit_once('#')?;
    match rest.split_once('@') {
        Some((name, _)) => Some(name),
        None => path.rsplit('/').next(),
    }
}

/// The compiler's own platform.
fn host() -> Result<String, Outcome> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let host = text.ok().and_then(|text| {
        text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
    });
    host.ok_or_else(|| Outcome::Failed("rustc doesn't say its host".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::package;

    #[test]
    fn a_package_has_a_name() {
        assert_eq!(package("path+file:///a/tools#uverbs-tools@0.1.0"), Some("uverbs-tools"));
        assert_eq!(package("path+file:///a/uverbs#0.1.0"), Some("uverbs"));
        assert_eq!(package("uverbs"), None);
    }
}
