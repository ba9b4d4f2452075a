//! Sources of PyPI and of crates, unpacked below `/usr/src` of a group's root, each as `NAME`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::clients::place::{files, step};
use crate::clients::table::Group;
use crate::debian::apt::{create, failed};
use crate::debian::chroot::Root;
use crate::step::{Outcome, cargo, cargo_home};

/// Fetches and unpacks a group's sources.
///
/// # Errors
///
/// A skip without network.
pub(super) fn fetch(root: &Root, group: &Group) -> Result<(), Outcome> {
    group.source.iter().try_for_each(|wanted| of_pypi(root, wanted))?;
    group.crates.iter().try_for_each(|wanted| of_crate(root, wanted))
}

/// Command of the setup: it sees cargo, the compiler, the crates that cargo fetched, and `$FILES`.
pub(super) fn setup(root: &Root, group: &Group) -> Command {
    let words = ["sh", "-e", "-c", &group.setup];
    if group.crates.is_empty() {
        return root.command(&words);
    }
    let (tools, home, files) = (toolchain(), cargo_home().unwrap_or_default(), files());
    let mut command = root.command_with(&[&tools, &home, &files], &words);
    command.env("PATH", format!("{}/bin:/usr/sbin:/usr/bin:/sbin:/bin", tools.display()));
    command.env("CARGO_HOME", home).env("CARGO_NET_OFFLINE", "true").env("FILES", files);
    command
}

/// Folder of the toolchain whose cargo runs this chore.
fn toolchain() -> PathBuf {
    let cargo = std::env::var_os("CARGO").map(PathBuf::from).unwrap_or_default();
    cargo.ancestors().nth(2).unwrap_or(&cargo).to_owned()
}

/// Empty folder for a source.
fn folder(root: &Root, name: &str) -> Result<PathBuf, Outcome> {
    let folder = root.path("/usr/src").join(name);
    let _ = fs::remove_dir_all(&folder);
    create(&folder)?;
    Ok(folder)
}

/// Parts of `NAME==VERSION`.
fn parts(wanted: &str) -> Result<(&str, &str), Outcome> {
    let why = || Outcome::Failed(format!("{wanted}: NAME==VERSION is wanted"));
    wanted.split_once("==").ok_or_else(why)
}

/// Unpacks a source distribution.
fn of_pypi(root: &Root, wanted: &str) -> Result<(), Outcome> {
    let (name, version) = parts(wanted)?;
    let folder = folder(root, name)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]);
    pip.arg(wanted).current_dir(&folder);
    step(pip, "pip")?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"]);
    tar.arg(format!("{name}-{version}.tar.gz")).current_dir(&folder);
    step(tar, "tar")
}

/// Copies a crate `NAME==VERSION`, and fetches the crates that its lock file names.
fn of_crate(root: &Root, wanted: &str) -> Result<(), Outcome> {
    let (name, version) = parts(wanted)?;
    let folder = folder(root, name)?;
    // cargo-info unpacks it into cargo's registry, whether or not its dependencies can be had.
    let mut info = cargo(&["info", "--quiet"]);
    info.arg(format!("{name}@{version}")).stdout(Stdio::null());
    step(info, "cargo info")?;
    let registry = cargo_home().unwrap_or_default().join("registry/src");
    let indexes = fs::read_dir(&registry).map_err(|error| failed(&registry, &error))?;
    let mut sources = indexes.flatten().map(|index| index.path().join(format!("{name}-{version}")));
    let Some(source) = sources.find(|source| source.is_dir()) else {
        return Err(failed(&registry, &format!("no {name}-{version}")));
    };
    let mut copy = Command::new("cp");
    copy.arg("--recursive").arg(source.join(".")).arg(&folder);
    step(copy, "cp")?;
    // The copy lies below this project's workspace, and isn't a part of it.
    let manifest = folder.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|error| failed(&manifest, &error))?;
    fs::write(&manifest, text + "\n[workspace]\n").map_err(|error| failed(&manifest, &error))?;
    let mut fetch = cargo(&["fetch", "--quiet", "--locked", "--manifest-path"]);
    fetch.arg(manifest);
    step(fetch, "cargo fetch")
}
