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

/// Builds the library and puts it into `prefix`.
pub(crate) fn lay_out(prefix: Option<&Path>) -> Outcome {
    let prefix = prefix.map_or_else(|| target().join("c-abi"), Path::to_owned);
    // By `rustc`: as the cdylib alone it is optimised over all crates.
    let words = ["rustc", "--release", "--package", "uverbs-c-abi", "--lib"];
    let mut build = cargo(&words);
    build.args(["--crate-type", "cdylib", "--", "-Cstrip=symbols"]);
    match run(build, 15 * MINUTES) {
        Outcome::Passed => {}
        other => return other,
    }
    match copy(&target().join("release").join(BUILT), &prefix) {
        Ok(library) => Outcome::Counted(library.display().to_string()),
        Err(outcome) => outcome,
    }
}

/// Puts a built library into `prefix`, under all its names.
pub(crate) fn copy(built: &Path, prefix: &Path) -> Result<PathBuf, Outcome> {
    create(prefix)?;
    let library = prefix.join(LIBRARY);
    // Written over in place it would change under programs that have it mapped.
    let _ = fs::remove_file(&library);
    fs::copy(built, &library).map_err(|error| failed(built, &error))?;
    for name in LINKS {
        let link = prefix.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(LIBRARY, &link).map_err(|error| failed(&link, &error))?;
    }
    Ok(library)
}
