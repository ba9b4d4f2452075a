//! Shared by the preloaded library, the tests and the programs of `tests/c-stack`: C programs of an
//! unpacked distribution on the preloaded software HCA, logs of commands, counts of calls.
#![allow(missing_debug_implementations, missing_docs, reason = "helpers of tests")]

pub mod both;
pub mod calls;
pub mod capture;
pub mod connecting;
pub mod log;
pub mod obliging;
pub mod phases;
pub mod tapped;

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use support::skip;

/// Limit of a program's run time, for a busy machine and unoptimised code.
const LIMIT: Duration = Duration::from_secs(180);

/// A C stack, unpacked by `cargo xtask judge`.
pub struct CStack {
    root: PathBuf,
    /// Directory with libibverbs, such as `usr/lib/x86_64-linux-gnu`.
    libraries: PathBuf,
}

/// Returns the C stack of the machine's Debian; `None` with a stated skip.
pub fn unpacked() -> Option<CStack> {
    unpacked_at("UVERBS_DEBIAN_ROOT", "")
}

/// Returns the C stack of Debian 13, which has its own libc; `None` with a stated skip.
pub fn trixie() -> Option<CStack> {
    unpacked_at("UVERBS_TRIXIE_ROOT", "UVERBS_NO_TRIXIE")
}

/// The packages in the folder that a variable names. Another variable has the reason of a skip.
fn unpacked_at(variable: &str, missing: &str) -> Option<CStack> {
    let Some(root) = std::env::var_os(variable).filter(|root| !root.is_empty()) else {
        let unset = || format!("{variable} is not set (`cargo xtask judge` sets it)");
        skip(&std::env::var(missing).unwrap_or_else(|_| unset()));
        return None;
    };
    let root = PathBuf::from(root);
    let folders =
        std::fs::read_dir(root.join("usr/lib")).expect("usr/lib of the unpacked packages");
    let libraries = folders
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.join("libibverbs.so.1").exists())
        .expect("libibverbs.so.1 of the unpacked packages");
    Some(CStack { root, libraries })
}

/// `tests/c-stack`.
fn folder_of_tests() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Directory for files of tests, beside the directory of the test program.
fn scratch() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().join("tmp");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A library of this workspace. Cargo puts it beside the test, or a directory higher if it is a
/// separate target.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("no {name} beside {}", test.display()))
}

/// The library to preload.
pub fn preload() -> PathBuf {
    built("libuverbs_c_stack.so")
}

/// Our libibverbs.
pub fn our_library() -> PathBuf {
    built("libibverbs.so")
}

/// Directory with our libibverbs under the name that programs load.
pub fn our_folder() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let name = format!("ours-{}", std::process::id());
        let folder = scratch().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["libibverbs.so.1", "libefa.so.1", "libmlx5.so.1", "librdmacm.so.1"] {
            std::os::unix::fs::symlink(our_library(), folder.join(name)).unwrap();
        }
        let nodes = folder.join("nodes");
        std::fs::create_dir(&nodes).unwrap();
        let name = "libuverbs_nodes.so";
        std::os::unix::fs::symlink(built(name), nodes.join(name)).unwrap();
        let sysfs = folder_of_tests().join("../../c-abi/sysfs");
        std::os::unix::fs::symlink(sysfs, folder.join("sysfs")).unwrap();
        folder
    };
    FOLDER.get_or_init(make).clone()
}

/// Command of a program on the preloaded device, without the C stack.
pub fn preloaded(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", preload()).env("UVERBS_SOFTHCA_DIR", scratch());
    // The preloaded library hides the tests' device.
    command.env_remove("UVERBS_TEST_DEVICE");
    command
}

impl CStack {
    /// Version of the package, as `44.0`.
    pub fn version(&self) -> String {
        let path = self.libraries.join("pkgconfig/libibverbs.pc");
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Version:")).unwrap();
        // The library's ABI precedes it (`1.14.44.0`).
        line.trim().splitn(3, '.').nth(2).unwrap().to_owned()
    }

    /// Command of a program of the distribution.
    pub fn program(&self, name: &str) -> Command {
        self.command(&self.root.join("usr/bin").join(name))
    }

    /// Directory of the unpacked packages.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directories of their libraries.
    pub fn library_folders(&self) -> [PathBuf; 2] {
        let triplet = self.libraries.file_name().unwrap();
        [self.libraries.clone(), self.root.join("lib").join(triplet)]
    }

    /// Command of a program on the preloaded device, with these libraries.
    fn loaded(&self, program: &Path, folders: impl IntoIterator<Item = PathBuf>) -> Command {
        let libraries = std::env::join_paths(folders).unwrap();
        let mut command = match self.loader() {
            Some(loader) => {
                let mut command = preloaded(&loader);
                command.arg("--library-path").arg(&libraries).arg(program);
                command
            }
            None => preloaded(program),
        };
        command.env("LD_LIBRARY_PATH", libraries).env("LC_ALL", "C");
        command
    }

    /// Command of a program that uses the C stack.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = self.loaded(program, self.library_folders());
        // libibverbs looks for providers in its installation directory, which does not exist. It
        // takes an absolute name without suffix unchanged (`libibverbs/dynamic_driver.c`).
        let provider = self.libraries.join("libibverbs/libmlx5");
        command.env("RDMAV_DRIVERS", provider).env("IBV_SHOW_WARNINGS", "1");
        command
    }

    /// Dynamic loader of the unpacked libc, if there is one.
    fn loader(&self) -> Option<PathBuf> {
        let files = std::fs::read_dir(&self.libraries).ok()?.flatten().map(|file| file.path());
        let is_loader = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
        };
        files.into_iter().find(is_loader)
    }

    /// Makes the preloaded device of a command an adapter of Amazon's, for libefa.
    pub fn on_efa(&self, command: &mut Command) {
        let provider = self.libraries.join("libibverbs/libefa");
        command.env("RDMAV_DRIVERS", provider).env("UVERBS_SOFTHCA_EFA", "1");
    }

    /// Makes the preloaded device of a command one of Omni-Path, for libhfi1verbs.
    pub fn on_omni_path(&self, command: &mut Command) {
        let provider = self.libraries.join("libibverbs/libhfi1verbs");
        command.env("RDMAV_DRIVERS", provider).env("UVERBS_SOFTHCA_OMNI_PATH", "1");
    }

    /// Command of a program on our libibverbs and this device, with the distribution's other
    /// libraries.
    pub fn on_ours(&self, program: &Path, device: &str) -> Command {
        let mut command = Command::new(program);
        let folders = std::iter::once(our_folder()).chain(self.library_folders());
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
        // All imported functions must exist, called or not.
        command.env("LD_BIND_NOW", "1").env("UVERBS_DEVICE", device).env("LC_ALL", "C");
        command
    }

    /// Command of a program on our libibverbs and the preloaded device, opened like a kernel's.
    pub fn ours_on_preloaded(&self, program: &Path) -> Command {
        let folders = std::iter::once(our_folder()).chain(self.library_folders());
        let mut command = self.loaded(program, folders);
        command.env("LD_BIND_NOW", "1").env_remove("UVERBS_DEVICE");
        command
    }

    /// Command of a distribution's program on our libibverbs.
    pub fn program_on_ours(&self, name: &str, device: &str) -> Command {
        self.on_ours(&self.root.join("usr/bin").join(name), device)
    }

    /// The distribution's libibverbs.
    pub fn their_library(&self) -> PathBuf {
        self.libraries.join("libibverbs.so.1")
    }

    /// Compiles a program of `c/`; `None` with a stated skip.
    pub fn compile(&self, name: &str) -> Option<PathBuf> {
        let libraries =
            ["-libverbs", "-Wl,--as-needed", "-lmlx5", "-lrdmacm", "-Wl,--allow-shlib-undefined"];
        self.compile_with(name, &libraries)
    }

    /// Compiles a library of `c/` that does not need the C stack; `None` with a stated skip.
    pub fn compile_library(&self, name: &str) -> Option<PathBuf> {
        self.compile_with(name, &["-shared", "-fPIC", "-fno-builtin"])
    }

    pub fn compile_with(&self, name: &str, args: &[&str]) -> Option<PathBuf> {
        let source = folder_of_tests().join("c").join(name).with_extension("c");
        let program = scratch().join(format!(
            "{name}-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
        compiler.arg("-I").arg(self.root.join("usr/include")).arg(&source).arg("-o").arg(&program);
        // The linked library's dependencies are found at run time.
        compiler.arg("-L").arg(&self.libraries).args(args);
        match compiler.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                skip("no gcc here");
                None
            }
            Err(error) => panic!("{compiler:?}: {error}"),
            Ok(mut child) => {
                assert!(child.wait().unwrap().success(), "{compiler:?}");
                Some(program)
            }
        }
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct Run {
    /// Exit status; `None` if a signal ended the program.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The program was killed at its time limit.
    pub was_killed: bool,
}

/// Runs a command to its end. A command that exceeds the limit is killed, and the test fails.
pub fn run(command: &mut Command) -> Run {
    let run = run_limited(command, LIMIT);
    assert!(!run.was_killed, "{command:?} ran for more than {LIMIT:?}: {run:?}");
    run
}

/// Runs a command to its end, with this on its standard input.
pub fn run_with_input(command: &mut Command, input: Vec<u8>) -> Run {
    let run = run_fed(command, input, LIMIT);
    assert!(!run.was_killed, "{command:?} ran for more than {LIMIT:?}: {run:?}");
    run
}

/// Runs a command to its end or to `limit`, since some programs of the distribution wait for ever.
pub fn run_limited(command: &mut Command, limit: Duration) -> Run {
    run_fed(command, Vec::new(), limit)
}

fn run_fed(command: &mut Command, input: Vec<u8>, limit: Duration) -> Run {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    // A program that ends early does not read it all.
    std::thread::spawn(move || stdin.write_all(&input));
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    // Both pipes are read during the run: a full pipe would stop the program.
    let out = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let err = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text)
    });
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if started.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Run {
        status: status.and_then(|status| status.code()),
        stdout: out.join().unwrap().unwrap(),
        stderr: err.join().unwrap().unwrap(),
        was_killed: status.is_none(),
    }
}

impl Run {
    /// Fails the test unless the run succeeded; the message has the output.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, Some(0), "{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Checks a run that prints a line per check, and at least `least` lines.
    #[track_caller]
    pub fn checks(self, least: usize) {
        let failed: Vec<_> = self.stdout.lines().filter(|line| !line.starts_with("ok ")).collect();
        assert_eq!(self.status, Some(0), "{}\n{}", failed.join("\n"), self.stderr);
        let good = self.stdout.lines().filter(|line| line.starts_with("ok ")).count();
        assert!(good >= least, "{good} checks only: {}", self.stdout);
        assert_eq!(failed, [format!("{good} checks, 0 failed")]);
    }
}
