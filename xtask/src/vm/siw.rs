//! The module of Linux's software iWARP, which Debian's kernels are built without: it is made of
//! the kernel's source package against its headers package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::apt::{create, failed, is_there, once, unpack};
use crate::step::{Outcome, run};
use crate::vm::fetch::{base, bookworm, trixie};
use crate::vm::kernels::{self, Kernel};
use crate::vm::modules::Tree;

/// How long one step may take: the longest unpacks the kernel's source, and takes half a minute.
const STEP: Duration = Duration::from_secs(300);
/// What is taken along of the kernel: the checksum of iWARP's frames.
const WANTED: [&str; 2] = ["crc32c_generic?", "siw"];
/// Debian 12's kernels; later ones are of Debian 13.
const OLDER: (u32, u32) = (6, 1);

/// The module and what it needs of the kernel's own; makes them unless they are there.
///
/// # Errors
///
/// A skip where packages or tools can't be had, or where the module doesn't build: a kernel may
/// want another compiler.
pub(crate) fn modules(kernel: &Kernel) -> Result<Tree, Outcome> {
    let folder = base().join("siw").join(&kernel.version);
    once(&folder, &WANTED.join(" "), || make(kernel, &folder))?;
    Tree::read(&folder).map_err(Outcome::Failed)
}

fn make(kernel: &Kernel, folder: &Path) -> Result<(), Outcome> {
    for tool in ["gcc", "make", "tar", "xz"] {
        if !is_there(tool) {
            return Err(Outcome::Skipped(format!("no {tool} here, to build siw's module")));
        }
    }
    println!("vm: building siw's module for {}", kernel.version);
    let (work, debs) = (base().join("siw/work"), base().join("siw/debs"));
    let built = unpacked(kernel, &debs, &work).and_then(|()| build(kernel, &work, folder));
    for done in [debs, work] {
        let _ = fs::remove_dir_all(done);
    }
    built
}

/// Fetches the kernel's headers, source and modules, and unpacks them to `work`.
fn unpacked(kernel: &Kernel, debs: &Path, work: &Path) -> Result<(), Outcome> {
    let (version, (major, minor)) = (&kernel.version, kernel.series());
    let apt = if kernel.series() == OLDER { bookworm()? } else { trixie()? };
    apt.update();
    let headers = format!("linux-headers-{version}");
    // The part that all flavours share, and the build's own programs; not the compiler.
    let mut packages = apt.depends(&headers, None);
    packages.retain(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"));
    packages.extend(kernels::packages(&apt, version));
    packages.extend([headers, format!("linux-source-{major}.{minor}")]);
    apt.download(&packages.iter().map(String::as_str).collect::<Vec<_>>(), debs)?;
    unpack(debs, work)
}

/// Builds the module, and keeps it with those that it needs.
fn build(kernel: &Kernel, work: &Path, folder: &Path) -> Result<(), Outcome> {
    let (version, (major, minor)) = (&kernel.version, kernel.series());
    let source = format!("linux-source-{major}.{minor}");
    let part = "drivers/infiniband/sw/siw";
    let mut command = Command::new("tar");
    command.args(["--extract", "--xz", "--file"]);
    command.arg(work.join(format!("usr/src/{source}.tar.xz")));
    command.arg("--directory").arg(work).arg(format!("{source}/{part}"));
    skip(run(command, STEP), "its source can't be unpacked")?;

    // The headers name each other by the place where they would be installed.
    let headers = work.join(format!("usr/src/linux-headers-{version}"));
    let makefile = headers.join("Makefile");
    let text = fs::read_to_string(&makefile).map_err(|error| failed(&makefile, &error))?;
    let moved = text.replace("/usr/src/", &format!("{}/usr/src/", work.display()));
    fs::write(&makefile, moved).map_err(|error| failed(&makefile, &error))?;
    let module = work.join(format!("{source}/{part}"));
    let mut command = Command::new("make");
    command.arg("-C").arg(headers).arg(format!("M={}", module.display()));
    command.args(["CONFIG_RDMA_SIW=m", "-s", "-j2", "modules"]);
    skip(run(command, STEP), "it doesn't build")?;

    let mut tree = Tree::read(&kernels::modules(work, version)?).map_err(Outcome::Failed)?;
    tree.add(Tree::read(&module).map_err(Outcome::Failed)?);
    let wanted = tree.closure(&WANTED).map_err(Outcome::Failed)?;
    let _ = fs::remove_dir_all(folder);
    create(folder)?;
    for module in wanted {
        let path: PathBuf = folder.join(format!("{}.ko", module.name));
        fs::write(&path, &module.bytes).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn skip(outcome: Outcome, what: &str) -> Result<(), Outcome> {
    match outcome {
        // A busy machine is no reason to leave the world out.
        Outcome::Failed(why) if why.starts_with("not done") => Err(Outcome::Failed(why)),
        Outcome::Failed(why) => Err(Outcome::Skipped(format!("siw's module: {what} ({why})"))),
        _ => Ok(()),
    }
}
