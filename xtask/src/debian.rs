//! The C stack as Debian builds it: packages fetched with the machine's own apt, unpacked below the target folder.
//!
//! Nothing is installed and nothing of the machine is changed: apt keeps its lists, its cache and its log in a folder of
//! ours, takes the mirrors from the machine's configuration, and runs none of the hooks that stand there. It needs no
//! privileges.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::step::{Outcome, run};

/// What is fetched: libibverbs, libmlx5 and their programs and headers, what these link to, and the kernel's headers.
const PACKAGES: [&str; 8] = [
    "ibverbs-providers",
    "ibverbs-utils",
    "libibverbs-dev",
    "libibverbs1",
    "libnl-3-200",
    "libnl-route-3-200",
    "librdmacm1",
    "linux-libc-dev",
];

/// How long apt may take.
const FETCH: Duration = Duration::from_secs(180);
/// How long the unpacking of one package may take.
const UNPACK: Duration = Duration::from_secs(60);

/// The workspace's target folder.
pub(crate) fn target() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let path = workspace.join(target);
    fs::canonicalize(&path).unwrap_or(path)
}

/// The folder into which the packages are unpacked; the first call fetches them, later ones find them there. What could
/// not be had is not asked for again.
///
/// # Errors
///
/// A skip where there is no apt or it reaches no mirror, a failure where the packages can't be unpacked.
pub(crate) fn root() -> Result<PathBuf, Outcome> {
    static ROOT: OnceLock<Result<PathBuf, Outcome>> = OnceLock::new();
    ROOT.get_or_init(unpacked).clone()
}

fn unpacked() -> Result<PathBuf, Outcome> {
    let base = target().join("debian");
    let root = base.join("root");
    let stamp = base.join("stamp");
    let wanted = PACKAGES.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) && root.is_dir() {
        return Ok(root);
    }
    for tool in ["apt-get", "dpkg-deb"] {
        if !is_there(tool) {
            return Err(Outcome::Skipped(format!("no {tool} here")));
        }
    }
    let debs = base.join("debs");
    let failed = |error: std::io::Error| Outcome::Failed(format!("{}: {error}", base.display()));
    for old in [&root, &debs] {
        let _ = fs::remove_dir_all(old);
    }
    let _ = fs::remove_file(&stamp);
    fs::create_dir_all(&debs).map_err(failed)?;
    let config = configure(&base).map_err(failed)?;
    fetch(&config, &debs)?;
    unpack(&debs, &root)?;
    fs::write(&stamp, &wanted).map_err(failed)?;
    Ok(root)
}

/// Whether a program can be started.
pub(crate) fn is_there(tool: &str) -> bool {
    let mut probe = Command::new(tool);
    probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Writes apt's configuration. It is read behind the machine's own, which says where the mirrors are.
fn configure(base: &Path) -> std::io::Result<PathBuf> {
    for folder in ["state/lists/partial", "cache/archives/partial", "log"] {
        fs::create_dir_all(base.join(folder))?;
    }
    // To apt nothing is installed here.
    fs::write(base.join("status"), "")?;
    let base_text = base.display();
    let text = format!(
        "Dir::State \"{base_text}/state\";\n\
         Dir::State::status \"{base_text}/status\";\n\
         Dir::Cache \"{base_text}/cache\";\n\
         Dir::Log \"{base_text}/log\";\n\
         Debug::NoLocking \"1\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
         Acquire::Retries \"1\";\n\
         Acquire::http::Timeout \"20\";\n\
         Acquire::https::Timeout \"20\";\n\
         APT::Sandbox::User \"\";\n\
         #clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n"
    );
    let path = base.join("apt.conf");
    fs::write(&path, text)?;
    Ok(path)
}

fn fetch(config: &Path, debs: &Path) -> Result<(), Outcome> {
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("-q").arg("-c").arg(config).args(words).current_dir(debs).env("LC_ALL", "C");
        command
    };
    // One mirror of several that doesn't answer is no reason to stop: the download tells.
    let _ = run(apt(&["update"]), FETCH);
    match run(apt(&[&["download"][..], &PACKAGES].concat()), FETCH) {
        Outcome::Failed(why) => {
            Err(Outcome::Skipped(format!("apt doesn't give the C stack ({why}): no network?")))
        }
        Outcome::Passed => Ok(()),
        other => Err(other),
    }
}

fn unpack(debs: &Path, root: &Path) -> Result<(), Outcome> {
    let entries = fs::read_dir(debs).map_err(|error| Outcome::Failed(error.to_string()))?;
    for deb in entries.flatten().map(|entry| entry.path()) {
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").arg(&deb).arg(root);
        match run(command, UNPACK) {
            Outcome::Passed => {}
            other => return Err(other),
        }
    }
    Ok(())
}
