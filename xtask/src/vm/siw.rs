//! Module of Linux's software iWARP, which Debian's kernels lack: built from the kernel's source
//! package against its headers package, in a Debian root of the kernel's release.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::debian::apt::{create, failed, once};
use crate::debian::chroot::Root;
use crate::step::{Outcome, run};
use crate::vm::fetch::{base, bookworm, trixie};
use crate::vm::kernels::{self, Kernel};
use crate::vm::modules::Tree;

/// Limit of one step. The longest unpacks the kernel's source, which takes half a minute.
const STEP: Duration = Duration::from_secs(300);
/// Modules to keep: siw, and the kernel's checksum of iWARP's frames.
const WANTED: [&str; 2] = ["crc32c_generic?", "siw"];
/// Packages that build the module, in addition to the compiler, on which the headers depend.
const TOOLS: [&str; 5] = ["make", "mawk", "sed", "tar", "xz-utils"];
/// Series of Debian 12's kernel. Later kernels are of Debian 13.
const OLDER: (u32, u32) = (6, 1);

/// Tree of the module and its dependencies. Builds them, unless present.
///
/// # Errors
///
/// A skip without the packages or user namespaces, or if the module does not build.
pub(crate) fn modules(kernel: &Kernel) -> Result<Tree, Outcome> {
    let folder = base().join("siw").join(&kernel.version);
    once(&folder, &WANTED.join(" "), || make(kernel, &folder))?;
    Tree::read(&folder).map_err(Outcome::Failed)
}

fn make(kernel: &Kernel, folder: &Path) -> Result<(), Outcome> {
    println!("vm: building siw's module for {}", kernel.version);
    let place = base().join("siw/root");
    let built = root(kernel, &place).and_then(|root| build(kernel, &root, folder));
    let _ = fs::remove_dir_all(place);
    built
}

/// Debian root of the kernel's release, with the kernel, its headers and its source.
fn root(kernel: &Kernel, place: &Path) -> Result<Root, Outcome> {
    let (version, (major, minor)) = (&kernel.version, kernel.series());
    let release = if kernel.series() == OLDER { bookworm } else { trixie };
    let mut packages = kernels::packages(&release()?, version);
    packages.push(format!("linux-headers-{version}"));
    packages.push(format!("linux-source-{major}.{minor}"));
    let packages = packages.iter().map(String::as_str).chain(TOOLS);
    Root::fetch(place, release, &packages.collect::<Vec<_>>())
}

/// Builds the module, and keeps it with its dependencies.
fn build(kernel: &Kernel, root: &Root, folder: &Path) -> Result<(), Outcome> {
    let (version, (major, minor)) = (&kernel.version, kernel.series());
    let source = format!("linux-source-{major}.{minor}");
    let (packed, part) =
        (format!("/usr/src/{source}.tar.xz"), format!("{source}/drivers/infiniband/sw/siw"));
    let unpack = ["tar", "--extract", "--xz", "--file", &packed, "--directory", "/tmp", &part];
    skip(run(root.command(&unpack), STEP), "its source can't be unpacked")?;
    let headers = format!("/usr/src/linux-headers-{version}");
    let module = format!("M=/tmp/{part}");
    // No package's script has run in the root, so the link `awk` is missing.
    let make = ["make", "-C", &headers, &module, "CONFIG_RDMA_SIW=m", "AWK=mawk", "-s", "-j2"];
    skip(run(root.command(&[&make[..], &["modules"]].concat()), STEP), "it doesn't build")?;

    let modules = kernels::modules(&root.path("/"), version)?;
    let mut tree = Tree::read(&modules).map_err(Outcome::Failed)?;
    tree.add(Tree::read(&root.path(&format!("/tmp/{part}"))).map_err(Outcome::Failed)?);
    let wanted = tree.closure(&WANTED).map_err(Outcome::Failed)?;
    let _ = fs::remove_dir_all(folder);
    create(folder)?;
    for module in wanted {
        let path = folder.join(format!("{}.ko", module.name));
        fs::write(&path, &module.bytes).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn skip(outcome: Outcome, what: &str) -> Result<(), Outcome> {
    match outcome {
        // A busy machine is a failure, not a reason to skip the world.
        Outcome::Failed(why) if why.starts_with("not done") => Err(Outcome::Failed(why)),
        Outcome::Failed(why) => Err(Outcome::Skipped(format!("siw's module: {what} ({why})"))),
        _ => Ok(()),
    }
}
