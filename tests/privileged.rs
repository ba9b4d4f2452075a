//! Environment variables and the files that they name: a privileged program ignores the variables
//! of an unprivileged user.
#![forbid(unsafe_code)]

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use uverbs::softhca::{Card, SoftHca};
use uverbs_core::discovery::sysfs;
use uverbs_core::environment::Variable;

/// Set for the process that the tests start.
const CHILD: &str = "UVERBS_TEST_PRIVILEGED";
/// Status of a child that is not privileged, though its file is set-user-ID.
const NO_SETUID: i32 = 77;
/// A user without files.
const NOBODY: u32 = 65534;

/// Body of the child process: opens a device, and tells if the environment counts.
#[test]
fn child() {
    let Some(how) = std::env::var_os(CHILD) else { return };
    let privileged = how == "privileged";
    if privileged && (!nix::unistd::geteuid().is_root() || nix::unistd::getuid().is_root()) {
        std::process::exit(NO_SETUID);
    }
    // `UVERBS_SOFTHCA_PROFILE` names a file here, which is no card.
    let device = SoftHca::builder().profile(Card::ConnectX6Dx).build();
    let device = common::soft(&device.unwrap());
    drop(device.open().unwrap());
    for variable in Variable::ALL {
        assert_eq!(variable.value().is_none(), privileged, "{}", variable.name());
    }
    assert_eq!(sysfs::root() == Path::new("/sys"), privileged);
}

/// A folder with a copy of this program, for one test.
struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let folder = format!("uverbs-privileged-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        // Another process writes the copy: a child that a test beside this one forks would hold a
        // file that this process has open for writing (ETXTBSY, execve(2)).
        let mut copy = Command::new("cp");
        copy.arg(std::env::current_exe().unwrap()).arg(folder.join("program"));
        succeeded(copy);
        Self(folder)
    }

    /// Runs the program's child with all variables set.
    fn command(&self, how: &str) -> Command {
        let mut command = Command::new(self.0.join("program"));
        command.args(["--exact", "child", "--nocapture"]).current_dir("/");
        for variable in Variable::ALL {
            command.env(variable.name(), self.0.join(variable.name()));
        }
        command.env(CHILD, how);
        command
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| !path.ends_with("program")).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn succeeded(mut command: Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
    assert!(output.status.success(), "{said:?}");
}

#[test]
fn files_that_the_environment_names_are_the_user_s_alone() {
    let scene = Scene::new("own");
    succeeded(scene.command("plain"));
    let files = scene.files();
    assert_eq!(files.len(), 2, "a capture and a trace: {files:?}");
    for file in files {
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600, "{}", file.display());
    }
}

#[test]
fn a_set_user_id_program_takes_nothing_from_the_environment() {
    if !nix::unistd::geteuid().is_root() {
        return common::skip("only root makes a program that others run as root");
    }
    let scene = Scene::new("setuid");
    let program = scene.0.join("program");
    std::fs::set_permissions(program, Permissions::from_mode(0o4755)).unwrap();
    let mut command = scene.command("privileged");
    command.uid(NOBODY).gid(NOBODY);
    if command.status().unwrap().code() == Some(NO_SETUID) {
        return common::skip("the file system of the temporary folder has no set-user-ID programs");
    }
    succeeded(command);
    assert!(scene.files().is_empty(), "{:?}", scene.files());
}

/// If another user prepared the names as links, their targets are not written.
#[test]
fn names_that_others_prepared_are_left_alone() {
    let scene = Scene::new("prepared");
    let victim = scene.0.join("victim");
    std::fs::write(&victim, "precious").unwrap();
    for variable in [Variable::Capture, Variable::Trace] {
        std::os::unix::fs::symlink(&victim, scene.0.join(variable.name())).unwrap();
    }
    succeeded(scene.command("plain"));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

/// All other sources of the library leave the environment to `uverbs_core::environment`.
#[test]
fn one_file_reads_the_environment() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src"), root.join("c-abi"), root.join("adapters")];
    for crates in ["core", "mlx5", "mlx5-prm", "rxe", "siw", "softhca"] {
        folders.push(root.join("providers").join(crates).join("src"));
    }
    let mut readers = Vec::new();
    let mut sources = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // Tests read other variables.
                let tests = path.ends_with("tests") || path.ends_with("target");
                folders.extend((!tests).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let reads =
                    ["env::var", "getenv(", "env::{"].iter().any(|call| text.contains(call));
                readers.extend(reads.then(|| path.strip_prefix(root).unwrap().to_owned()));
            }
        }
    }
    assert!(sources > 400, "{sources} sources");
    assert_eq!(readers, [Path::new("providers/core/src/environment.rs")]);
}
