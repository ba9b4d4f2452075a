//! `cargo xtask c-abi`: a folder with our libibverbs, for `LD_LIBRARY_PATH` and `uverbs run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::apt::{create, failed};
use crate::debian::target;
use crate::step::{Outcome, cargo, run};

const MINUTES: Duration = Duration::from_secs(60);

/// The library's name.
const LIBRARY: &str = "libibverbs.so.1";
/// Other names for the same file: the one that a linker looks for, and those of libmlx5 and
/// librdmacm, whose functions are in it. The loader maps it once.
const LINKS: [&str; 5] = [BUILT, "libmlx5.so", "libmlx5.so.1", "librdmacm.so", "librdmacm.so.1"];
/// The file that cargo makes.
pub(crate) const BUILT: &str = "libibverbs.so";
/// What puts sockets of programs on librdmacm.
const PRELOAD: &str = "librspreload.so";

/// Builds the library and puts it into `prefix`.
pub(crate) fn lay_out(prefix: Option<&Path>) -> Outcome {
    let prefix = prefix.map_or_else(|| target().join("c-abi"), Path::to_owned);
    for package in ["uverbs-c-abi", "uverbs-preload"] {
        // By `rustc`: as the cdylib alone it is optimised over all crates.
        let words = ["rustc", "--release", "--package", package, "--lib"];
        let mut build = cargo(&words);
        build.args(["--crate-type", "cdylib", "--", "-Cstrip=symbols"]);
        match run(build, 15 * MINUTES) {
            Outcome::Passed => {}
            other => return other,
        }
    }
    let built = target().join("release");
    let laid_out = copy(&built.join(BUILT), &prefix)
        .and_then(|library| copy_preload(&built.join(PRELOAD), &prefix).map(|()| library));
    match laid_out {
        Ok(library) => Outcome::Counted(library.display().to_string()),
        Err(outcome) => outcome,
    }
}

/// Puts the library for `LD_PRELOAD` into a folder of its own, as rdma-core does: a linker that
/// looks for libraries in `prefix` doesn't find it.
fn copy_preload(built: &Path, prefix: &Path) -> Result<(), Outcome> {
    let folder = prefix.join("rsocket");
    create(&folder)?;
    let library = folder.join(PRELOAD);
    let _ = fs::remove_file(&library);
    fs::copy(built, &library).map_err(|error| failed(built, &error))?;
    link(PRELOAD, &folder.join("librspreload.so.1"))
}

/// Another name for a file of the same folder.
fn link(name: &str, link: &Path) -> Result<(), Outcome> {
    let _ = fs::remove_file(link);
    std::os::unix::fs::symlink(name, link).map_err(|error| failed(link, &error))
}

/// Puts a built library into `prefix`, under all its names.
pub(crate) fn copy(built: &Path, prefix: &Path) -> Result<PathBuf, Outcome> {
    create(prefix)?;
    let library = prefix.join(LIBRARY);
    // Written over in place it would change under programs that have it mapped.
    let _ = fs::remove_file(&library);
    fs::copy(built, &library).map_err(|error| failed(built, &error))?;
    for name in LINKS {
        link(LIBRARY, &prefix.join(name))?;
    }
    Ok(library)
}
