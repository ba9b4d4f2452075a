//! `cargo xtask c-abi`: folder with our libibverbs, for `LD_LIBRARY_PATH` and `uverbs run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::c_stack::cancellation;
use crate::debian::apt::{create, failed};
use crate::debian::target;
use crate::step::{Outcome, cargo, run};
use crate::targets;

const MINUTES: Duration = Duration::from_secs(60);

/// Name of the library.
const LIBRARY: &str = "libibverbs.so.1";
/// Links to the library: the linker's name, and the names of libefa, libmlx5 and librdmacm, whose
/// functions it has. The loader maps the file once.
const LINKS: [&str; 7] = [
    BUILT,
    "libefa.so",
    "libefa.so.1",
    "libmlx5.so",
    "libmlx5.so.1",
    "librdmacm.so",
    "librdmacm.so.1",
];
/// Names by which programs load the library.
pub(crate) const SONAMES: [&str; 4] = [LIBRARY, "libefa.so.1", "libmlx5.so.1", "librdmacm.so.1"];
/// File that cargo makes.
pub(crate) const BUILT: &str = "libibverbs.so";
/// Preloaded library that puts a program's sockets on librdmacm.
const PRELOAD: &str = "librspreload.so";
/// Preloaded library that answers programs that look for a software HCA's device node.
const NODES: &str = "libuverbs_nodes.so";

/// Builds the library and puts it into `prefix`.
pub(crate) fn lay_out(prefix: Option<&Path>) -> Outcome {
    let prefix = prefix.map_or_else(|| target().join("c-abi"), Path::to_owned);
    for package in ["uverbs-c-abi", "uverbs-preload", "uverbs-nodes"] {
        // `cargo rustc` builds the cdylib alone, which is optimised over all crates.
        let words = ["rustc", "--release", "--package", package, "--lib"];
        let mut build = cargo(&words);
        build.args(["--crate-type", "cdylib", "--", "-Cstrip=symbols"]);
        match run(build, 15 * MINUTES) {
            Outcome::Passed => {}
            other => return other,
        }
    }
    let built = target().join("release");
    if let Err(why) = cancellation::check(&built.join(BUILT)) {
        return Outcome::Failed(why);
    }
    let laid_out = copy(&built.join(BUILT), &prefix).and_then(|library| {
        let sockets = copy_preloaded(&built.join(PRELOAD), &prefix.join("rsocket"))?;
        link(PRELOAD, &sockets.with_file_name("librspreload.so.1"))?;
        copy_nodes(&built, &prefix)?;
        Ok(library)
    });
    match laid_out {
        Ok(library) => Outcome::Counted(library.display().to_string()),
        Err(outcome) => outcome,
    }
}

/// Builds the library with debug assertions, and the command line. Returns the library's file.
pub(crate) fn build_checked() -> Result<PathBuf, Outcome> {
    let build = targets::of_workspace(&["build", "--lib"], "--bin", ["uverbs"]);
    match run(build, 15 * MINUTES) {
        Outcome::Passed => Ok(target().join("debug").join(BUILT)),
        other => Err(other),
    }
}

/// Copies libraries that [`build_checked`] built into `prefix`, the preloaded ones among them.
pub(crate) fn copy_checked(built: &Path, prefix: &Path) -> Result<PathBuf, Outcome> {
    let folder = built.parent().unwrap_or(prefix);
    copy_preloaded(&folder.join(PRELOAD), &prefix.join("rsocket"))?;
    copy_nodes(folder, prefix)?;
    copy(built, prefix)
}

/// Copies [`NODES`] from a folder of built libraries to `prefix/nodes`.
pub(crate) fn copy_nodes(built: &Path, prefix: &Path) -> Result<PathBuf, Outcome> {
    copy_preloaded(&built.join(NODES), &prefix.join("nodes"))
}

/// Copies a library for `LD_PRELOAD` into a separate folder, as rdma-core does: a linker that
/// searches the folder above does not find it.
fn copy_preloaded(built: &Path, folder: &Path) -> Result<PathBuf, Outcome> {
    create(folder)?;
    let library = folder.join(built.file_name().unwrap_or_default());
    let _ = fs::remove_file(&library);
    fs::copy(built, &library).map_err(|error| failed(built, &error))?;
    Ok(library)
}

/// Makes a link to a file of the same folder.
fn link(name: &str, link: &Path) -> Result<(), Outcome> {
    let _ = fs::remove_file(link);
    std::os::unix::fs::symlink(name, link).map_err(|error| failed(link, &error))
}

/// Copies a built library into `prefix`, under all its names.
pub(crate) fn copy(built: &Path, prefix: &Path) -> Result<PathBuf, Outcome> {
    create(prefix)?;
    let library = prefix.join(LIBRARY);
    // A write in place would change the file under programs that have it mapped.
    let _ = fs::remove_file(&library);
    fs::copy(built, &library).map_err(|error| failed(built, &error))?;
    for name in LINKS {
        link(LIBRARY, &prefix.join(name))?;
    }
    let sysfs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c-abi/sysfs");
    copy_folder(&sysfs, &prefix.join("sysfs"))?;
    Ok(library)
}

/// Copies a folder with its files and folders.
fn copy_folder(from: &Path, to: &Path) -> Result<(), Outcome> {
    create(to)?;
    let entries = fs::read_dir(from).map_err(|error| failed(from, &error))?;
    for entry in entries.flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            fs::copy(&from, &to).map_err(|error| failed(&from, &error))?;
        }
    }
    Ok(())
}
