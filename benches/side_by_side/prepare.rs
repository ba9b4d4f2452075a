//! Preparation of the C half: Debian's packages unpacked, the shim compiled, the library that puts
//! a software HCA under it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment variable that tells the process under the preloaded library where the shim is.
pub(crate) const SHIM: &str = "UVERBS_SIDE_BY_SIDE_SHIM";

/// All that is needed to run this program with the C stack in it.
#[derive(Debug)]
pub(crate) struct CStack {
    shim: PathBuf,
    preload: PathBuf,
    /// Provider of libibverbs, without the end of its name.
    provider: PathBuf,
    libraries: OsString,
}

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The target folder that this program was built into: it is in `<target>/<profile>/deps`.
pub(crate) fn target() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    program.ancestors().nth(3).map(Path::to_path_buf).ok_or_else(|| "no target folder".to_owned())
}

/// The folder with the unpacked packages: the environment's, or the one that the project's chores
/// fetched.
fn debian() -> Result<PathBuf, String> {
    let is_there = |root: &PathBuf| root.join("usr/include/infiniband/verbs.h").exists();
    let named = std::env::var_os("UVERBS_DEBIAN_ROOT").filter(|root| !root.is_empty());
    let named = named.map(PathBuf::from);
    if let Some(root) = named {
        let why = format!("no libibverbs-dev below UVERBS_DEBIAN_ROOT={}", root.display());
        return if is_there(&root) { Ok(root) } else { Err(why) };
    }
    let root = target()?.join("debian/root");
    if is_there(&root) {
        return Ok(root);
    }
    // The chore prints apt's words, and then where the packages are.
    let fetched =
        run(cargo(&target()?).args(["run", "--quiet", "--package", "xtask", "--", "fetch"]))?;
    let root = PathBuf::from(fetched.lines().next_back().unwrap_or_default());
    if is_there(&root) { Ok(root) } else { Err("no libibverbs-dev among the packages".to_owned()) }
}

/// Cargo in this workspace, building into the folder that this program was built into.
pub(crate) fn cargo(target: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(manifest()).env("CARGO_TARGET_DIR", target);
    command
}

/// Runs a command to its end. Returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

impl CStack {
    /// Prepares the shim that is built from `source`, for a provider of libibverbs. `Err`: the
    /// reason why it cannot be built here.
    pub(crate) fn new(source: &str, provider: &str) -> Result<Self, String> {
        let root = debian()?;
        let libraries = std::fs::read_dir(root.join("usr/lib"))
            .map_err(|error| error.to_string())?
            .flatten()
            .map(|entry| entry.path())
            .find(|folder| folder.join("libmlx5.so.1").exists())
            .ok_or("no libmlx5 among the packages")?;
        let target = target()?;
        let shim = target.join(source.replace(['/', '.'], "_")).with_extension("so");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O3", "-Wall", "-shared", "-fPIC", "-I"]).arg(root.join("usr/include"));
        compiler.arg(manifest().join(source)).arg("-o").arg(&shim);
        compiler.arg("-L").arg(&libraries).args([
            "-Wl,--as-needed,--allow-shlib-undefined",
            "-lmlx5",
            "-lefa",
            "-libverbs",
        ]);
        run(&mut compiler)?;
        run(cargo(&target).args(["build", "--release", "--quiet", "--package", "uverbs-c-stack"]))?;
        let preload = target.join("release/libuverbs_c_stack.so");
        // libibverbs looks for providers where they would be installed, except for absolute names.
        let provider = libraries.join("libibverbs").join(provider);
        let mut paths = vec![libraries.clone()];
        if let Some(triplet) = libraries.file_name() {
            paths.push(root.join("lib").join(triplet));
        }
        let libraries = std::env::join_paths(paths).map_err(|error| error.to_string())?;
        Ok(Self { shim, preload, provider, libraries })
    }

    /// Runs this program once more, on the C stack, and returns its output.
    pub(crate) fn again(&self, args: &[String], env: &[(&str, &str)]) -> Result<String, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.env(SHIM, &self.shim).env("LD_LIBRARY_PATH", &self.libraries);
        command.env("LD_PRELOAD", &self.preload).env("UVERBS_SOFTHCA_STEPPED", "1");
        command.env("RDMAV_DRIVERS", &self.provider);
        command.envs(env.iter().copied());
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("the run with the C stack ended with {}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|error| error.to_string())
    }
}
