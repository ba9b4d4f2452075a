//! Modules that Debian's kernels lack: built from source against the kernel's headers package, in a
//! Debian root of the kernel's release.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::debian::apt::{create, failed, once};
use crate::debian::chroot::Root;
use crate::step::{Outcome, run};
use crate::vm::fetch::{BACKPORTS, base, bookworm, sources, trixie};
use crate::vm::kernels::{self, Kernel};
use crate::vm::modules::Tree;

/// Limit of one step. The longest unpacks the kernel's source, which takes half a minute.
const STEP: Duration = Duration::from_secs(300);
/// Packages that build a module, in addition to the compiler, on which the headers depend.
const TOOLS: [&str; 6] = ["binutils", "make", "mawk", "sed", "tar", "xz-utils"];
/// Series of Debian 12's kernel. Later kernels are of Debian 13.
const OLDER: (u32, u32) = (6, 1);
/// Series of Debian 13's kernel. Later kernels are of its backports, whose packages they need.
const DEBIAN_13: (u32, u32) = (6, 12);

/// Source of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Linux's software iWARP, in the kernel's source package.
    Siw,
    /// Our device over Linux's rdmavt, in `tests/vm/rdmavt`.
    Rdmavt,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Siw => "siw",
            Self::Rdmavt => "rdmavt",
        }
    }

    /// Modules to keep, with their dependencies: the built one, and those that it asks for by name.
    fn wanted(self) -> &'static [&'static str] {
        match self {
            Self::Siw => &["crc32c_generic?", "siw"],
            Self::Rdmavt => &["rvt_loopback"],
        }
    }

    /// Variable of the kernel's makefiles that selects the module.
    fn setting(self) -> &'static str {
        match self {
            Self::Siw => "CONFIG_RDMA_SIW=m",
            Self::Rdmavt => "CONFIG_INFINIBAND_RDMAVT=m",
        }
    }

    /// Files of a source of ours.
    fn files(self) -> Result<Vec<PathBuf>, Outcome> {
        let folder = match self {
            Self::Siw => return Ok(Vec::new()),
            Self::Rdmavt => sources().join("rdmavt"),
        };
        let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        Ok(files)
    }

    /// Text by which a change of the source is noticed.
    fn stamp(self) -> Result<String, Outcome> {
        let mut text = self.wanted().join(" ");
        for file in self.files()? {
            text += &fs::read_to_string(&file).map_err(|error| failed(&file, &error))?;
        }
        Ok(text)
    }
}

/// Tree of the module and its dependencies. Builds them, unless present.
///
/// # Errors
///
/// A skip without the packages or user namespaces, or if a module of the kernel's does not build; a
/// failure if one of ours does not.
pub(crate) fn modules(source: Source, kernel: &Kernel) -> Result<Tree, Outcome> {
    let folder = base().join(source.name()).join(&kernel.version);
    once(&folder, &source.stamp()?, || make(source, kernel, &folder))?;
    Tree::read(&folder).map_err(Outcome::Failed)
}

fn make(source: Source, kernel: &Kernel, folder: &Path) -> Result<(), Outcome> {
    println!("vm: building {}'s module for {}", source.name(), kernel.version);
    let place = base().join(source.name()).join("root");
    let built = root(source, kernel, &place).and_then(|root| build(source, kernel, &root, folder));
    let _ = fs::remove_dir_all(place);
    built
}

/// Debian root of the kernel's release, with the kernel, its headers and, for its module, source.
fn root(source: Source, kernel: &Kernel, place: &Path) -> Result<Root, Outcome> {
    let version = &kernel.version;
    let release = if kernel.series() == OLDER { bookworm } else { trixie };
    let mut packages = kernels::packages(&release()?, version);
    packages.push(format!("linux-headers-{version}"));
    if kernel.series() > DEBIAN_13 {
        packages.push(format!("linux-base/{BACKPORTS}"));
    }
    if source == Source::Siw {
        packages.push(package(kernel));
    }
    let packages = packages.iter().map(String::as_str).chain(TOOLS);
    Root::fetch(place, release, &packages.collect::<Vec<_>>())
}

/// Package of the kernel's source.
fn package(kernel: &Kernel) -> String {
    let (major, minor) = kernel.series();
    format!("linux-source-{major}.{minor}")
}

/// Puts the source into the root, and returns its folder there.
fn place(source: Source, kernel: &Kernel, root: &Root) -> Result<String, Outcome> {
    let folder = format!("/tmp/{}", source.name());
    let at = root.path(&folder);
    create(&at)?;
    for file in source.files()? {
        let to = at.join(file.file_name().unwrap_or_default());
        fs::copy(&file, &to).map_err(|error| failed(&file, &error))?;
    }
    if source == Source::Rdmavt {
        return Ok(folder);
    }
    let name = package(kernel);
    let packed = format!("/usr/src/{name}.tar.xz");
    let part = format!("{name}/drivers/infiniband/sw/siw");
    let unpack = ["tar", "--extract", "--xz", "--file", &packed, "--directory", &folder, &part];
    needed(source, run(root.command(&unpack), STEP))?;
    Ok(format!("{folder}/{part}"))
}

/// Builds the module, and keeps it with its dependencies.
fn build(source: Source, kernel: &Kernel, root: &Root, folder: &Path) -> Result<(), Outcome> {
    let at = place(source, kernel, root)?;
    let version = &kernel.version;
    let headers = format!("/usr/src/linux-headers-{version}");
    let module = format!("M={at}");
    // No package's script has run in the root, so the link `awk` is missing.
    let make = ["make", "-C", &headers, &module, source.setting(), "AWK=mawk", "-s", "-j2"];
    needed(source, run(root.command(&[&make[..], &["modules"]].concat()), STEP))?;

    let modules = kernels::modules(&root.path("/"), version)?;
    let mut tree = Tree::read(&modules).map_err(Outcome::Failed)?;
    tree.add(Tree::read(&root.path(&at)).map_err(Outcome::Failed)?);
    let wanted = tree.closure(source.wanted()).map_err(Outcome::Failed)?;
    let _ = fs::remove_dir_all(folder);
    create(folder)?;
    for module in wanted {
        let path = folder.join(format!("{}.ko", module.name));
        fs::write(&path, &module.bytes).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

/// Outcome of a step that builds a module.
fn needed(source: Source, outcome: Outcome) -> Result<(), Outcome> {
    match outcome {
        // A busy machine is a failure, not a reason to skip the world.
        Outcome::Failed(why) if source == Source::Rdmavt || why.starts_with("not done") => {
            Err(Outcome::Failed(why))
        }
        Outcome::Failed(why) => {
            Err(Outcome::Skipped(format!("{}'s module doesn't build ({why})", source.name())))
        }
        _ => Ok(()),
    }
}
