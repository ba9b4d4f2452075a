//! Debian root in a folder, in which commands run as in a container.
//!
//! Needs user namespaces (unshare(1)), and no privileges.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::debian::apt::{Apt, create, failed, once, unpack};
use crate::step::{Outcome, output};

const MINUTES: Duration = Duration::from_secs(60);
/// Packages of every root: shells, dpkg and its dependencies, and setpriv(1).
const BASE: [&str; 9] = [
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "diffutils",
    "dpkg",
    "grep",
    "libc-bin",
    "util-linux",
];
/// Script that mounts folders of the machine, `/proc`, `/dev` and `/sys` among them, at the same
/// paths in the root, and runs a command there without privileges.
const ENTER: &str = "IFS=:; for at in $SHOWN; do \
    mkdir -p \"$0$at\" && mount --rbind \"$at\" \"$0$at\" || exit; done; unset SHOWN IFS; \
    exec chroot \"$0\" setpriv --no-new-privs --bounding-set=-all --inh-caps=-all \"$@\"";

/// Script as [`ENTER`], for a separate network with these addresses on one interface. Folders for
/// files of a moment are empty.
const ENTER_ALONE: &str = "ip link set lo up && ip link add near type veth peer name far && \
    for at in $ADDRESSES; do ip addr add $at/24 dev near || exit; done; \
    ip link set near up && ip link set far up && \
    mount -t tmpfs tmpfs \"$0/tmp\" && mount -t proc proc \"$0/proc\" || exit; \
    IFS=:; for at in $SHOWN; do \
    mkdir -p \"$0$at\" && mount --rbind \"$at\" \"$0$at\" || exit; done; \
    mount -t tmpfs tmpfs \"$0/dev/shm\" || exit; unset IFS; \
    as=$AS; unset SHOWN ADDRESSES AS; \
    exec $as chroot \"$0\" setpriv --no-new-privs --bounding-set=-all --inh-caps=-all \"$@\"";

/// Command that runs another as user 1000, with the rights that [`ENTER_ALONE`] needs.
const ORDINARY: &str = "unshare --user --map-user=1000 --map-group=1000 --keep-caps";

/// Folder of a Debian root.
#[derive(Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// Root of a release with these packages and their dependencies. Downloaded unless present.
    ///
    /// # Errors
    ///
    /// A skip without apt, network or user namespaces.
    pub(crate) fn fetch(
        folder: &Path,
        release: impl FnOnce() -> Result<Apt, Outcome>,
        packages: &[&str],
    ) -> Result<Self, Outcome> {
        has_namespaces()?;
        let packages = [&BASE[..], packages].concat();
        once(folder, &packages.join(" "), || {
            println!("fetching {}", packages.join(" "));
            let apt = release()?;
            apt.update();
            let debs = apt.download_all(&packages, None)?;
            unpack(&debs, folder)?;
            merge_usr(folder)?;
            note_as_installed(&debs, folder)?;
            let _ = fs::remove_dir_all(debs);
            Ok(())
        })?;
        Ok(Self(folder.to_owned()))
    }

    /// Root that exists.
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Command that runs in the root.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.command_with(&[], words)
    }

    /// Command that runs in the root, and sees these folders of the machine.
    pub(crate) fn command_with(&self, folders: &[&Path], words: &[&str]) -> Command {
        let shown = ["/proc", "/dev", "/sys"].map(Path::new);
        self.entered(&[], ENTER, &[&shown, folders].concat(), words)
    }

    /// Command that runs in the root as [`Self::command_with`], with a separate network of these
    /// addresses, and with empty `/tmp` and `/dev/shm`. Its user is root, or user 1000.
    pub(crate) fn command_alone(
        &self,
        folders: &[&Path],
        addresses: &[&str],
        is_root: bool,
        words: &[&str],
    ) -> Command {
        let shown = ["/dev", "/sys"].map(Path::new);
        let shown = [&shown, folders].concat();
        let mut command = self.entered(&["--net"], ENTER_ALONE, &shown, words);
        command.env("ADDRESSES", addresses.join(" "));
        command.env("AS", if is_root { "" } else { ORDINARY });
        command
    }

    fn entered(&self, more: &[&str], script: &str, shown: &[&Path], words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        // Processes that the command leaves behind end with it.
        command.args(["--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]).args(more);
        command.args(["sh", "-c", script]).arg(&self.0).args(words);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        let shown: Vec<_> = shown.iter().map(|path| path.to_string_lossy()).collect();
        command.env("SHOWN", shown.join(":")).env("HOME", "/tmp");
        command
    }

    /// Copies a file into the root's `/tmp`, and returns the path there.
    pub(crate) fn take(&self, file: &Path) -> Result<String, Outcome> {
        let name = file.file_name().unwrap_or_default();
        let to = self.0.join("tmp").join(name);
        fs::copy(file, &to).map_err(|error| failed(file, &error))?;
        Ok(format!("/tmp/{}", name.to_string_lossy()))
    }

    /// Path on the machine of a path in the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
}

/// Checks that an unprivileged process may have a mount namespace.
///
/// # Errors
///
/// A skip without user namespaces.
pub(crate) fn has_namespaces() -> Result<(), Outcome> {
    let mut probe = Command::new("unshare");
    probe.args(["--map-root-user", "--mount", "true"]);
    probe.stdin(Stdio::null()).stderr(Stdio::null());
    match probe.status().is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(Outcome::Skipped("no user namespaces here (unshare -r)".to_owned())),
    }
}

/// Makes the links `/bin`, `/sbin`, `/lib` and `/lib64`, which no package of some releases has.
pub(crate) fn merge_usr(root: &Path) -> Result<(), Outcome> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let link = root.join(name);
        if !link.exists() {
            let to = format!("usr/{name}");
            std::os::unix::fs::symlink(to, &link).map_err(|error| failed(&link, &error))?;
        }
    }
    Ok(())
}

/// Notes the packages as installed, so that dpkg finds the dependencies of other packages.
fn note_as_installed(debs: &Path, root: &Path) -> Result<(), Outcome> {
    let folder = root.join("var/lib/dpkg");
    for part in ["info", "updates", "triggers"] {
        create(&folder.join(part))?;
    }
    for at in ["proc", "dev", "sys", "tmp"] {
        create(&root.join(at))?;
    }
    let mut status = String::new();
    for deb in fs::read_dir(debs).map_err(|error| failed(debs, &error))?.flatten() {
        if deb.path().extension().is_none_or(|end| end != "deb") {
            continue;
        }
        let mut fields = Command::new("dpkg-deb");
        fields.arg("--field").arg(deb.path());
        let text = output(fields, MINUTES)?;
        let value =
            |name| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let mut name = value("Package: ").to_owned();
        if value("Multi-Arch: ") == "same" {
            name = format!("{name}:{}", value("Architecture: "));
        }
        let list = folder.join("info").join(format!("{name}.list"));
        fs::write(&list, "").map_err(|error| failed(&list, &error))?;
        status.push_str(&text.replacen('\n', "\nStatus: install ok installed\n", 1));
        status.push('\n');
    }
    let path = folder.join("status");
    fs::write(&path, status).map_err(|error| failed(&path, &error))
}
