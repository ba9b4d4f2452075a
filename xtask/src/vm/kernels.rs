//! Debian's kernels: finds the current kernel of a series in the archive, and unpacks it with the
//! modules of the worlds.

use std::fs;
use std::path::{Path, PathBuf};

use crate::debian::apt::{Apt, create, failed, once, unpack};
use crate::step::Outcome;
use crate::vm::fetch::{BACKPORTS, base, bookworm, trixie};
use crate::vm::modules::Tree;
use crate::vm::world;

/// Default kernels: the oldest tested kernel, Debian 13's, and the newest.
pub(crate) const USUAL: [&str; 3] = ["6.1", "6.12", "newest"];

/// Kernel of chores that need one kernel.
pub(crate) const ONE_KERNEL: &str = "6.12";

/// Package that depends on the current kernel of a release.
const META: &str = "linux-image-amd64";

/// Kernel that can be booted.
pub(crate) struct Kernel {
    /// Version in the packages' names: `6.12.117+deb13-amd64`.
    pub(crate) version: String,
    pub(crate) image: PathBuf,
    pub(crate) modules: Tree,
}

impl Kernel {
    /// Downloads a kernel, unless present. `name` is one of [`USUAL`] or a package's version.
    ///
    /// # Errors
    ///
    /// A skip if the kernel is unavailable.
    pub(crate) fn fetch(name: &str) -> Result<Self, Outcome> {
        let name = &*named(name).map_err(Outcome::Failed)?;
        let folder = base().join("kernels").join(name);
        once(&folder, &world::all_modules().join(" "), || fetch(name, &folder))?;
        Self::at(&folder)
    }

    /// Kernel in a folder of [`keep`].
    ///
    /// # Errors
    ///
    /// A failure if a file can't be read.
    pub(crate) fn at(folder: &Path) -> Result<Self, Outcome> {
        let version = folder.join("version");
        Ok(Self {
            version: fs::read_to_string(&version).map_err(|error| failed(&version, &error))?,
            image: folder.join("vmlinuz"),
            modules: Tree::read(folder).map_err(Outcome::Failed)?,
        })
    }

    /// Series `(6, 12)` of `6.12.117+deb13-amd64`.
    pub(crate) fn series(&self) -> (u32, u32) {
        series(&self.version).unwrap_or_default()
    }
}

/// Checks the name of a kernel.
///
/// # Errors
///
/// A text that lists valid names.
pub(crate) fn named(name: &str) -> Result<String, String> {
    let names = "6.1, 6.12, newest, or as Debian's packages, 6.12.117+deb13-amd64";
    is_name(name).then(|| name.to_owned()).ok_or_else(|| format!("a kernel is {names}"))
}

/// Returns true for the name of a kernel. A version must be complete: apt takes a part of a
/// package's name for a pattern, and would download every package of the series, including debug
/// information.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-_~".contains(&byte);
    USUAL.contains(&name) || name.ends_with("-amd64") && name.bytes().all(is_plain)
}

/// Kernels of a table's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernels {
    /// `all`.
    All,
    /// `6.12`: kernels of a series.
    Of((u32, u32)),
    /// `6.12+`: kernels of a series, and later kernels.
    Since((u32, u32)),
}

impl Kernels {
    /// Parses a word of a table.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word.strip_suffix('+') {
            Some(version) => Some(Self::Since(series(version)?)),
            None if word == "all" => Some(Self::All),
            None => Some(Self::Of(series(word)?)),
        }
    }

    /// Returns true if they include a kernel.
    pub(crate) fn has(self, kernel: &Kernel) -> bool {
        match self {
            Self::All => true,
            Self::Of(series) => kernel.series() == series,
            Self::Since(first) => kernel.series() >= first,
        }
    }
}

/// First two numbers of a version.
fn series(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Finds the release of a kernel, and the kernel's version.
fn find(name: &str) -> Result<(Apt, String), Outcome> {
    println!("vm: fetching kernel {name}");
    let updated = |apt: Apt| {
        apt.update();
        apt
    };
    let (apt, release) = match name {
        "6.1" => (updated(bookworm()?), None),
        "6.12" => (updated(trixie()?), None),
        "newest" => (updated(trixie()?), Some(BACKPORTS)),
        version => {
            for apt in [bookworm()?, trixie()?].map(updated) {
                if !apt.depends(&format!("linux-image-{version}"), None).is_empty() {
                    return Ok((apt, version.to_owned()));
                }
            }
            let why = format!("apt has no linux-image-{version}: another version, or no network?");
            return Err(Outcome::Skipped(why));
        }
    };
    let depends = apt.depends(META, release);
    let version = depends.iter().find_map(|package| package.strip_prefix("linux-image-"));
    match version {
        Some(version) => Ok((apt, version.to_owned())),
        None => Err(Outcome::Skipped(format!("apt names no kernel {name}: no network?"))),
    }
}

/// Packages of a kernel. Since Linux 7 Debian splits them: the image package is empty, and depends
/// on the others.
pub(crate) fn packages(apt: &Apt, version: &str) -> Vec<String> {
    let mut packages = vec![format!("linux-image-{version}")];
    let depends = apt.depends(&packages[0], None);
    packages.extend(depends.into_iter().filter(|package| {
        package.strip_prefix("linux-").is_some_and(|rest| rest.ends_with(version))
    }));
    packages
}

/// Downloads a kernel's packages, and keeps the files that guests need.
fn fetch(name: &str, folder: &Path) -> Result<(), Outcome> {
    let (apt, version) = find(name)?;
    let packages = packages(&apt, &version);
    let debs = base().join("kernels/debs");
    apt.download(&packages.iter().map(String::as_str).collect::<Vec<_>>(), &debs)?;
    let unpacked = base().join("kernels/unpacked");
    unpack(&debs, &unpacked)?;
    let kept = keep(&unpacked, &version, folder);
    for done in [debs, unpacked] {
        let _ = fs::remove_dir_all(done);
    }
    kept
}

/// Folder of a kernel's modules in its unpacked packages.
pub(crate) fn modules(unpacked: &Path, version: &str) -> Result<PathBuf, Outcome> {
    there(unpacked, ["usr/lib/modules", "lib/modules"].map(|at| format!("{at}/{version}")))
}

fn there(unpacked: &Path, choices: [String; 2]) -> Result<PathBuf, Outcome> {
    let found = choices.iter().map(|choice| unpacked.join(choice)).find(|path| path.exists());
    found.ok_or_else(|| Outcome::Failed(format!("no {}", choices.join(" and no "))))
}

/// Copies the kernel, and the modules of all worlds, decompressed.
///
/// # Errors
///
/// A failure that names the unreadable or missing file.
pub(crate) fn keep(unpacked: &Path, version: &str, folder: &Path) -> Result<(), Outcome> {
    let modules = modules(unpacked, version)?;
    let images = [format!("boot/vmlinuz-{version}"), format!("usr/lib/modules/{version}/vmlinuz")];
    let image = there(unpacked, images)?;
    let tree = Tree::read(&modules).map_err(Outcome::Failed)?;
    let wanted = tree.closure(&world::all_modules()).map_err(Outcome::Failed)?;

    let _ = fs::remove_dir_all(folder);
    create(folder)?;
    let write = |name: String, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|error| failed(&path, &error))
    };
    for module in wanted {
        write(format!("{}.ko", module.name), &module.bytes)?;
    }
    for (from, name) in [(image, "vmlinuz"), (modules.join("modules.builtin"), "modules.builtin")] {
        let bytes = fs::read(&from).map_err(|error| failed(&from, &error))?;
        write(name.to_owned(), &bytes)?;
    }
    write("version".to_owned(), version.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{is_name, series};

    #[test]
    fn a_version_has_a_series() {
        assert_eq!(series("6.1.0-56-amd64"), Some((6, 1)));
        assert_eq!(series("6.12.117+deb13-amd64"), Some((6, 12)));
        assert_eq!(series("newest"), None);
    }

    #[test]
    fn a_series_that_is_not_usual_is_no_name() {
        for name in ["6.1", "6.12", "newest", "6.1.0-56-amd64", "6.12.117+deb13-amd64"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["7.2", "6", "", "7.2.12", "7.*-amd64", "../6.1-amd64"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
