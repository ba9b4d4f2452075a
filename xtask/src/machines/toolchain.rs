//! Debian's compilers for other machines, in a separate Debian root of the next release, which has
//! one compiler version for all machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::debian::apt::{Apt, Archive, create, failed, once, unpack};
use crate::debian::chroot::{Root, has_namespaces, merge_usr};
use crate::debian::target;
use crate::step::{Outcome, cargo_home, output};

/// Compilers, linkers and C libraries, QEMU's user mode, and the root's packages.
const PACKAGES: [&str; 15] = [
    "base-files",
    "bash",
    "cargo",
    "coreutils",
    "dash",
    "gcc",
    "gcc-aarch64-linux-gnu",
    "gcc-s390x-linux-gnu",
    "libc6-dev-arm64-cross",
    "libc6-dev-s390x-cross",
    "musl-tools",
    "qemu-user",
    "rust-src",
    "rustc",
    "util-linux",
];
/// Standard library of each machine, without the dependencies of the dynamic one.
const LIBRARIES: [&str; 2] = ["libstd-rust-dev:arm64", "libstd-rust-dev:s390x"];
/// Rust's names of these machines.
const MACHINES: [&str; 2] = ["aarch64", "s390x"];

/// Limit of compiling a small file.
const COMPILE: Duration = Duration::from_secs(120);

/// See the [module](self).
pub(super) struct Toolchain {
    root: Root,
    cargo_home: PathBuf,
}

impl Toolchain {
    /// Downloads the compilers, unless present.
    ///
    /// # Errors
    ///
    /// A skip without apt, network or user namespaces, or on another processor.
    pub(super) fn fetch() -> Result<Self, Outcome> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(Outcome::Skipped("the compilers are fetched for x86-64".to_owned()));
        }
        has_namespaces()?;
        let folder = base().join("root");
        once(&folder, &[&PACKAGES[..], &LIBRARIES].concat().join(" "), || {
            println!("fetching {}", PACKAGES.join(" "));
            let archives = [Archive { name: "debian", suites: &["forky"] }];
            let apt = Apt::of_suites(&base().join("apt"), &archives)?;
            let apt = apt.of_machines(&["amd64", "arm64", "s390x"])?;
            apt.update();
            let libraries = base().join("libraries");
            apt.download(&LIBRARIES, &libraries)?;
            let debs = apt.download_all(&PACKAGES, None)?;
            move_all(&libraries, &debs)?;
            unpack(&debs, &folder)?;
            let _ = fs::remove_dir_all(debs);
            complete(&folder)
        })?;
        // Cargo's registry and downloads are the machine's: the root downloads nothing.
        let cargo_home =
            cargo_home().ok_or_else(|| Outcome::Skipped("no CARGO_HOME".to_owned()))?;
        let toolchain = Self { root: Root::at(folder), cargo_home };
        for machine in MACHINES {
            toolchain.compile_preload(machine)?;
        }
        Ok(toolchain)
    }

    /// Manifest of the standard library's sources.
    pub(super) fn std_manifest(&self) -> PathBuf {
        self.root.path("/usr/lib/rustlib/src/rust/library/sysroot/Cargo.toml")
    }

    /// Compiles the preloaded library, which has the calls that QEMU's user mode lacks.
    fn compile_preload(&self, machine: &str) -> Result<(), Outcome> {
        let (workspace, target, to) = (workspace(), target(), preload(machine));
        let source = workspace.join("xtask/src/machines/preload.c");
        let (from, file) = (source.to_string_lossy(), to.to_string_lossy());
        let compiler = format!("{machine}-linux-gnu-gcc");
        let words = [&compiler, "-shared", "-fPIC", "-O1", "-o", &file, &from];
        output(self.root.command_with(&[&workspace, &target], &words), COMPILE).map(drop)
    }

    /// Compiles a file of this folder for this machine into an archive.
    pub(super) fn archive(&self, source: &str, archive: &Path) -> Result<(), Outcome> {
        let (workspace, target, object) = (workspace(), target(), archive.with_extension("o"));
        let source = workspace.join("xtask/src/machines").join(source);
        let [from, object, to] =
            [&source, &object, archive].map(|path: &Path| path.to_string_lossy());
        // ar would keep the members of an older archive.
        let _ = fs::remove_file(archive);
        let compile = ["gcc", "-c", "-O1", "-fno-stack-protector", "-o", &object, &from];
        for words in [&compile[..], &["ar", "rcs", &to, &object]] {
            output(self.root.command_with(&[&workspace, &target], words), COMPILE)?;
        }
        Ok(())
    }

    /// Command that runs a machine's programs.
    fn runner(machine: &str) -> String {
        let libraries = format!("-L /usr/{machine}-linux-gnu");
        format!("qemu-{machine} {libraries} -E LD_PRELOAD={}", preload(machine).display())
    }

    /// Cargo command with these words, which runs a machine's tests.
    pub(super) fn test(&self, machine: &str, words: &[&str]) -> Command {
        let mut command = self.cargo(words);
        // Tests start a copy of their program through this runner.
        command.env("UVERBS_TEST_RUNNER", Self::runner(machine));
        // Fewer objects, as in emulated guests.
        command.env("UVERBS_TEST_OBJECTS", "500,50");
        command
    }

    /// Cargo command in the workspace, offline.
    pub(super) fn cargo(&self, words: &[&str]) -> Command {
        let workspace = workspace();
        let folder = workspace.to_string_lossy();
        let (cargo_home, target) = (&self.cargo_home, target());
        let mut command = self.root.command_with(
            &[&workspace, cargo_home, &target],
            &[&["env", "-C", &folder, "cargo", "--offline", "--locked"], words].concat(),
        );
        command.env("CARGO_HOME", cargo_home);
        command.env("CARGO_TARGET_DIR", base().join("build")).env("CARGO_INCREMENTAL", "0");
        command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", "gcc");
        for machine in MACHINES {
            let name = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU", machine.to_uppercase());
            command.env(format!("{name}_LINKER"), format!("{machine}-linux-gnu-gcc"));
            command.env(format!("{name}_RUNNER"), Self::runner(machine));
        }
        command
    }
}

/// Library that is preloaded under QEMU's user mode.
fn preload(machine: &str) -> PathBuf {
    base().join(format!("preload-{machine}.so"))
}

/// Folder of this chore's files.
pub(super) fn base() -> PathBuf {
    target().join("machines")
}

/// Folder of the workspace.
pub(super) fn workspace() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::canonicalize(&path).unwrap_or(path)
}

fn move_all(from: &Path, to: &Path) -> Result<(), Outcome> {
    for file in fs::read_dir(from).map_err(|error| failed(from, &error))?.flatten() {
        let to = to.join(file.file_name());
        fs::rename(file.path(), &to).map_err(|error| failed(&to, &error))?;
    }
    Ok(())
}

/// Does the work of the packages' scripts.
fn complete(root: &Path) -> Result<(), Outcome> {
    for at in ["proc", "dev", "sys", "tmp"] {
        create(&root.join(at))?;
    }
    merge_usr(root)
}
