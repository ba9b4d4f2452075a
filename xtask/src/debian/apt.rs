//! Debian packages, downloaded and unpacked below the target folder by a private apt.
//!
//! This apt keeps its lists, its cache and its log in a folder of the project. It takes proxies,
//! keys and mirrors from the machine's configuration, and runs no hook of it. Its list of installed
//! packages is empty. It needs no privileges.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::step::{Outcome, run};

/// Limit of a download: a kernel is 160 MB.
const FETCH: Duration = Duration::from_secs(900);
/// Limit of unpacking one package.
const UNPACK: Duration = Duration::from_secs(120);
/// Keyring of Debian's archive. A release's keyring gets the next release's keys in time.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt with a private configuration, list and cache.
#[derive(Debug)]
pub(crate) struct Apt {
    base: PathBuf,
    config: PathBuf,
}

/// Folder of Debian's archive, and the suites to read from it.
pub(crate) struct Archive {
    /// Last part of its address: `debian` or `debian-security`.
    pub(crate) name: &'static str,
    pub(crate) suites: &'static [&'static str],
}

impl Apt {
    /// apt that reads the machine's suites.
    ///
    /// # Errors
    ///
    /// A skip without apt, a failure if the folder can't be written.
    pub(crate) fn of_the_machine(base: &Path) -> Result<Self, Outcome> {
        Self::new(base, "")
    }

    /// apt that reads other suites, from the mirrors of the machine's apt.
    ///
    /// # Errors
    ///
    /// As [`Self::of_the_machine`], and a skip if the machine's apt names no mirror of Debian.
    pub(crate) fn of_suites(base: &Path, archives: &[Archive]) -> Result<Self, Outcome> {
        let sources = sources(&mirrors()?, archives, Path::new(KEYS).exists())?;
        let list = base.join("sources.list");
        create(base)?;
        fs::write(&list, sources).map_err(|error| failed(&list, &error))?;
        Self::new(
            base,
            &format!(
                "Dir::Etc::sourcelist \"{}\";\n\
                 Dir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::Etc::preferences \"/dev/null\";\n\
                 Dir::Etc::preferencesparts \"/dev/null\";\n",
                list.display()
            ),
        )
    }

    /// Adds the packages of these architectures, by Debian's names. The first is the machine's.
    ///
    /// # Errors
    ///
    /// A failure if the configuration can't be written.
    pub(crate) fn of_machines(self, machines: &[&str]) -> Result<Self, Outcome> {
        let failed = |error: std::io::Error| failed(&self.config, &error);
        let mut text = fs::read_to_string(&self.config).map_err(failed)?;
        text.push_str("#clear APT::Architectures;\n");
        for machine in machines {
            text.push_str(&format!("APT::Architectures:: \"{machine}\";\n"));
        }
        fs::write(&self.config, text).map_err(failed)?;
        Ok(self)
    }

    /// Writes the configuration, which apt reads after the machine's configuration.
    fn new(base: &Path, more: &str) -> Result<Self, Outcome> {
        for tool in ["apt-get", "dpkg-deb"] {
            if !is_there(tool) {
                return Err(Outcome::Skipped(format!("no {tool} here")));
            }
        }
        for folder in ["state/lists/partial", "cache/archives/partial", "log"] {
            create(&base.join(folder))?;
        }
        let text = format!(
            "Dir::State \"{base}/state\";\n\
             Dir::State::status \"{base}/status\";\n\
             Dir::Cache \"{base}/cache\";\n\
             Dir::Log \"{base}/log\";\n\
             Debug::NoLocking \"1\";\n\
             APT::Install-Recommends \"false\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
             Acquire::Retries \"1\";\n\
             Acquire::http::Timeout \"20\";\n\
             Acquire::https::Timeout \"20\";\n\
             APT::Sandbox::User \"\";\n\
             #clear APT::Update::Pre-Invoke;\n\
             #clear APT::Update::Post-Invoke;\n\
             #clear APT::Update::Post-Invoke-Success;\n\
             #clear DPkg::Post-Invoke;\n\
             {more}",
            base = base.display()
        );
        for (name, text) in [("status", ""), ("apt.conf", &text)] {
            let path = base.join(name);
            fs::write(&path, text).map_err(|error| failed(&path, &error))?;
        }
        Ok(Self { base: base.to_owned(), config: base.join("apt.conf") })
    }

    fn command(&self, tool: &str, words: &[&str]) -> Command {
        let mut command = Command::new(tool);
        // A terminal sees apt's progress bar, a log sees one line for each package.
        if !std::io::stdout().is_terminal() {
            command.arg("-q");
        }
        command.arg("-c").arg(&self.config).args(words).env("LC_ALL", "C");
        command
    }

    /// Reads the mirrors' lists.
    pub(crate) fn update(&self) {
        // One mirror of several may be down. The download reports missing packages.
        let _ = run(self.command("apt-get", &["update"]), FETCH);
    }

    /// Downloads packages into an empty folder `debs`, without their dependencies.
    ///
    /// # Errors
    ///
    /// A skip that names the missing packages. apt compares each package with the hash in the
    /// signed list.
    pub(crate) fn download(&self, packages: &[&str], debs: &Path) -> Result<(), Outcome> {
        let _ = fs::remove_dir_all(debs);
        create(debs)?;
        let mut command = self.command("apt-get", &["download"]);
        command.args(packages).current_dir(debs);
        given(run(command, FETCH), packages)
    }

    /// Downloads packages and their dependencies, and returns the folder. `release` is preferred
    /// to other releases.
    ///
    /// # Errors
    ///
    /// As [`Self::download`].
    pub(crate) fn download_all(
        &self,
        packages: &[&str],
        release: Option<&str>,
    ) -> Result<PathBuf, Outcome> {
        let debs = self.base.join("cache/archives");
        let _ = fs::remove_dir_all(&debs);
        create(&debs.join("partial"))?;
        let mut command = self.command("apt-get", &["install", "--download-only", "--yes"]);
        command.args(prefer(release)).args(packages);
        given(run(command, FETCH), packages)?;
        Ok(debs)
    }

    /// Names of a package's dependencies, each alternative; empty for an unknown package.
    pub(crate) fn depends(&self, package: &str, release: Option<&str>) -> Vec<String> {
        let mut command = self.command("apt-cache", &["depends"]);
        command.args(prefer(release)).arg(package).stdin(Stdio::null());
        let text = command.output().map_or_else(|_| Vec::new(), |output| output.stdout);
        let text = String::from_utf8_lossy(&text);
        let depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        depends.map(str::to_owned).collect()
    }
}

fn prefer(release: Option<&str>) -> Vec<String> {
    release.map(|name| format!("-oAPT::Default-Release={name}")).into_iter().collect()
}

fn given(outcome: Outcome, packages: &[&str]) -> Result<(), Outcome> {
    match outcome {
        Outcome::Failed(why) => {
            let packages = packages.join(" ");
            Err(Outcome::Skipped(format!(
                "apt doesn't give {packages} ({why}): no network, or no space?"
            )))
        }
        _ => Ok(()),
    }
}

/// Unpacks every package in `debs` to `root`. An interruption leaves no `root`.
///
/// # Errors
///
/// A failure that names the package.
pub(crate) fn unpack(debs: &Path, root: &Path) -> Result<(), Outcome> {
    let partial = beside(root, "partial");
    for old in [&partial, root] {
        let _ = fs::remove_dir_all(old);
    }
    create(&partial)?;
    let entries = fs::read_dir(debs).map_err(|error| failed(debs, &error))?;
    let mut debs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    debs.retain(|path| path.extension().is_some_and(|end| end == "deb"));
    debs.sort();
    for deb in debs {
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").arg(&deb).arg(&partial);
        if let Outcome::Failed(why) = run(command, UNPACK) {
            // The usual cause is a full disk: give the space back.
            let _ = fs::remove_dir_all(&partial);
            return Err(Outcome::Failed(format!("{}: {why}", deb.display())));
        }
    }
    fs::rename(&partial, root).map_err(|error| failed(root, &error))
}

/// Makes a folder, unless it exists and was made from the same words.
///
/// # Errors
///
/// Errors of `make`, and a failure if the folder can't be written.
pub(crate) fn once(
    folder: &Path,
    words: &str,
    make: impl FnOnce() -> Result<(), Outcome>,
) -> Result<(), Outcome> {
    let stamp = beside(folder, "stamp");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == words) && folder.is_dir() {
        return Ok(());
    }
    let _ = fs::remove_file(&stamp);
    make()?;
    fs::write(&stamp, words).map_err(|error| failed(&stamp, &error))
}

/// Returns `folder.end`. The folder's name may contain dots.
fn beside(folder: &Path, end: &str) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    name.into()
}

/// Addresses of the package lists of the machine's apt.
fn mirrors() -> Result<Vec<String>, Outcome> {
    let words = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"];
    let output = match Command::new("apt-get").args(words).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return Err(Outcome::Skipped(format!("no apt-get here ({error})"))),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(|line| line.trim().to_owned()).collect())
}

/// Lines of a `sources.list`.
fn sources(mirrors: &[String], archives: &[Archive], keys: bool) -> Result<String, Outcome> {
    let signed = if keys { format!("[signed-by={KEYS}] ") } else { String::new() };
    let mut lines = String::new();
    for archive in archives {
        let end = format!("/{}", archive.name);
        let mut mirrors = mirrors.iter().map(|uri| uri.trim_end_matches('/'));
        let Some(mirror) = mirrors.find(|uri| uri.ends_with(&end)) else {
            let why = format!("the machine's apt names no mirror of {}", archive.name);
            return Err(Outcome::Skipped(why));
        };
        for suite in archive.suites {
            lines.push_str(&format!("deb {signed}{mirror} {suite} main\n"));
        }
    }
    Ok(lines)
}

/// Returns true if a program can be started.
pub(crate) fn is_there(tool: &str) -> bool {
    let mut probe = Command::new(tool);
    probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Makes a folder and its parents.
///
/// # Errors
///
/// A failure that names the folder.
pub(crate) fn create(folder: &Path) -> Result<(), Outcome> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))
}

/// Failure of an access to a file.
pub(crate) fn failed(path: &Path, error: &dyn std::fmt::Display) -> Outcome {
    Outcome::Failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHIVES: [Archive; 2] = [
        Archive { name: "debian", suites: &["trixie", "trixie-backports"] },
        Archive { name: "debian-security", suites: &["trixie-security"] },
    ];

    fn of(mirrors: &[&str]) -> Result<String, String> {
        let mirrors: Vec<String> = mirrors.iter().map(|&uri| uri.to_owned()).collect();
        match sources(&mirrors, &ARCHIVES, false) {
            Ok(lines) => Ok(lines),
            Err(Outcome::Skipped(why)) => Err(why),
            Err(_) => Err("not a skip".to_owned()),
        }
    }

    #[test]
    fn other_suites_of_the_same_mirrors() {
        let mirrors = [
            "https://pool.example/apt",
            "http://m.example/debian/",
            "http://s.example/debian-security",
        ];
        let lines = "deb http://m.example/debian trixie main\n\
            deb http://m.example/debian trixie-backports main\n\
            deb http://s.example/debian-security trixie-security main\n";
        assert_eq!(of(&mirrors), Ok(lines.to_owned()));
    }

    #[test]
    fn another_distribution_is_a_skip() {
        let why = "the machine's apt names no mirror of debian".to_owned();
        assert_eq!(of(&["http://archive.example/ubuntu/"]), Err(why));
        let why = "the machine's apt names no mirror of debian-security".to_owned();
        assert_eq!(of(&["http://m.example/debian/"]), Err(why));
    }

    #[test]
    fn a_folder_is_made_once() {
        let base = std::env::temp_dir().join(format!("uverbs-once-{}", std::process::id()));
        let folder = base.join("6.12");
        let made = std::cell::Cell::new(0);
        let make = |words: &str, works: bool| {
            let done = once(&folder, words, || {
                made.set(made.get() + 1);
                create(&folder)?;
                if works { Ok(()) } else { Err(Outcome::Skipped(String::new())) }
            });
            (done.is_ok(), made.get())
        };
        // A failed folder is made again, although it exists.
        assert_eq!(make("a", false), (false, 1));
        assert_eq!(make("a", true), (true, 2));
        assert_eq!(make("a", true), (true, 2));
        assert_eq!(make("b", true), (true, 3));
        fs::remove_dir_all(base).expect("removed");
    }
}
