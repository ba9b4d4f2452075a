//! Programs that are built for the guest: tests, the command line, the first process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::debian::apt::{create, failed};
use crate::step::{Outcome, cargo};
use crate::targets::of_workspace;
use crate::vm::fetch::{base, sources};
use crate::vm::libraries::FOLDER;
use crate::vm::programs::Need;

/// Built programs, with their files.
pub(crate) struct Binaries {
    /// Tests by package and target: `uverbs/data`.
    tests: BTreeMap<String, PathBuf>,
    /// Examples by package and target.
    examples: BTreeMap<String, PathBuf>,
    /// Optimised programs by package and target.
    bins: BTreeMap<String, PathBuf>,
    /// Benches by package and target.
    benches: BTreeMap<String, PathBuf>,
    /// Command line and first process, by name.
    programs: BTreeMap<String, PathBuf>,
    /// C programs by name; empty without a C compiler.
    c: BTreeMap<String, PathBuf>,
    /// Shared libraries by package.
    libraries: BTreeMap<String, PathBuf>,
}

impl Binaries {
    /// Program of this name.
    ///
    /// # Errors
    ///
    /// A failure if no program has the name.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf, Outcome> {
        let found = self.programs.get(name).cloned();
        found.ok_or_else(|| Outcome::Failed(format!("cargo builds no program {name}")))
    }

    /// File of a row's program, if it was built.
    pub(crate) fn get(&self, need: Need<'_>) -> Option<&Path> {
        let found = match need {
            Need::Test(name) => self.tests.get(name),
            Need::Example(name) => self.examples.get(name),
            Need::Bin(name) => self.bins.get(name),
            Need::Bench(name) => self.benches.get(name),
            Need::C(name) => self.c.get(name),
            Need::Library(name) => self.libraries.get(name),
        };
        found.map(PathBuf::as_path)
    }
}

/// Builds the command line and the rows' programs. `guest` is the folder of the unpacked C stack.
///
/// # Errors
///
/// A failure if a build fails.
pub(crate) fn build(needs: &BTreeSet<Need<'_>>, guest: &Path) -> Result<Binaries, Outcome> {
    let mut programs = BTreeMap::new();
    for artifact in built(of_workspace(&["build"], "--bin", ["uverbs"]))? {
        programs.insert(artifact.target, artifact.file);
    }
    let [mut tests, mut examples, mut bins, mut benches] = [const { Vec::new() }; 4];
    let mut c = BTreeMap::new();
    let mut libraries = BTreeMap::new();
    for need in needs {
        match *need {
            Need::Test(name) => tests.push(name),
            Need::Example(name) => examples.push(name),
            Need::Bin(name) => bins.push(name),
            Need::Bench(name) => benches.push(name),
            Need::C(name) => {
                if let Some(program) = compiled(name, guest)? {
                    c.insert(name.to_owned(), program);
                }
            }
            Need::Library(name) => {
                let all = built(of_workspace(&["build", "--lib"], "", [""; 0]))?;
                let found = all.into_iter().find(|artifact| artifact.package == name);
                libraries.extend(found.map(|artifact| (name.to_owned(), artifact.file)));
            }
        }
    }
    let mut tests = targets(&["test", "--no-run"], "--test", &tests)?;
    tests.retain(|artifact| artifact.is_test);
    let examples = targets(&["build"], "--example", &examples)?;
    let bins = targets(&["build", "--release"], "--bin", &bins)?;
    let benches = targets(&["bench", "--no-run"], "--bench", &benches)?;
    let by_name = |artifacts: Vec<Artifact>| {
        let named = |a: Artifact| (format!("{}/{}", a.package, a.target), a.file);
        artifacts.into_iter().map(named).collect()
    };
    let [tests, examples, bins, benches] = [tests, examples, bins, benches].map(by_name);
    Ok(Binaries { tests, examples, bins, benches, programs, c, libraries })
}

/// Builds `PACKAGE/TARGET`s of a kind with cargo.
fn targets(words: &[&str], kind: &str, names: &[&str]) -> Result<Vec<Artifact>, Outcome> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let names = names.iter().filter_map(|name| Some(name.split_once('/')?.1));
    built(of_workspace(words, kind, names))
}

/// Compiles a program of `tests/c-stack/c` with the guest's headers and libraries; `None` without
/// gcc.
fn compiled(name: &str, guest: &Path) -> Result<Option<PathBuf>, Outcome> {
    let folder = base().join("c");
    create(&folder)?;
    let to = folder.join(name);
    let source = sources().join("../c-stack/c").join(name).with_extension("c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(guest.join("usr/include"));
    gcc.arg(&source).arg("-o").arg(&to);
    // The guest has the indirect libraries.
    gcc.arg("-L").arg(guest.join(FOLDER));
    gcc.args(["-Wl,--as-needed", "-l:libibverbs.so.1", "-l:librdmacm.so.1"]);
    gcc.arg("-Wl,--allow-shlib-undefined").stdin(Stdio::null());
    match gcc.status() {
        Ok(status) if status.success() => Ok(Some(to)),
        Ok(status) => Err(Outcome::Failed(format!("gcc {}: {status}", source.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Outcome::Failed(format!("gcc: {error}"))),
    }
}

/// Builds the first process and the self-test's program, linked statically.
///
/// # Errors
///
/// A failure if the build fails.
pub(crate) fn build_init() -> Result<BTreeMap<String, PathBuf>, Outcome> {
    let host = host()?;
    let mut command = cargo(&["build", "--package", "uverbs-vm-init", "--bins", "--target", &host]);
    command.arg("--target-dir").arg(base().join("build"));
    let flags = format!("target.{host}.rustflags=[\"-Ctarget-feature=+crt-static\"]");
    command.arg("--config").arg(flags);
    // These variables would override the configuration.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let artifacts = built(command)?;
    Ok(artifacts.into_iter().map(|artifact| (artifact.target, artifact.file)).collect())
}

/// Copy of a program without debug information, which is most of its size. Without `strip` a full
/// copy.
///
/// # Errors
///
/// A failure if the copy can't be written.
pub(crate) fn stripped(program: &Path) -> Result<PathBuf, Outcome> {
    // A folder per kind: an example and a program in C may have one name.
    let kind = program.parent().and_then(Path::file_name).unwrap_or_default();
    let folder = base().join("stripped").join(kind);
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

/// Program or library that cargo built.
pub(crate) struct Artifact {
    pub(crate) package: String,
    pub(crate) target: String,
    pub(crate) is_test: bool,
    pub(crate) file: PathBuf,
}

/// Runs a cargo command, and collects the executables and shared libraries that it built.
///
/// # Errors
///
/// A failure if the build fails.
pub(crate) fn built(mut command: Command) -> Result<Vec<Artifact>, Outcome> {
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
    let mut files = message["filenames"].as_array()?.iter().filter_map(Value::as_str);
    let file = message["executable"].as_str().or_else(|| files.find(|it| it.ends_with(".so")));
    Some(Artifact {
        package: package(message["package_id"].as_str()?)?.to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        is_test: message["profile"]["test"].as_bool()?,
        file: file?.into(),
    })
}

/// Name of the package in cargo's identifier, else of its folder: `uverbs-tools` of
/// `path+file:///home/me/uverbs/tools#uverbs-tools@0.1.0`.
fn package(id: &str) -> Option<&str> {
    let (path, rest) = id.rsplit_once('#')?;
    match rest.split_once('@') {
        Some((name, _)) => Some(name),
        None => path.rsplit('/').next(),
    }
}

/// Platform of the compiler.
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
