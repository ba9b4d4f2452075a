//! `cargo xtask packages --build`: each published crate builds from its packed files, as users of
//! a registry get it, and the command line installs from them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::debian::apt::{create, failed, is_there};
use crate::debian::target;
use crate::release::package::{pack, published};
use crate::step::{Outcome, cargo, output, run};

const MINUTES: Duration = Duration::from_secs(60);

/// Packs and builds each published crate, in the order of dependencies. A crate finds its
/// dependencies packed, as a registry would give them.
pub(crate) fn build() -> Outcome {
    run(cargo(&["publish", "--workspace", "--dry-run", "--allow-dirty"]), 60 * MINUTES)
}

/// Installs the command line from the packed files, and uses it.
pub(crate) fn install() -> Outcome {
    try_install().unwrap_or_else(|outcome| outcome)
}

fn try_install() -> Result<Outcome, Outcome> {
    let names = published()?;
    pack(&names)?;
    let base = target().join("installed");
    unpack(&names, &base)?;
    let root = base.join("root");
    let mut install =
        cargo(&["install", "--offline", "--debug", "--quiet", "--no-track", "--force"]);
    install.arg("--path").arg(base.join(folder("uverbs-tools"))).arg("--root").arg(&root);
    match run(install, 30 * MINUTES) {
        Outcome::Passed => {}
        other => return Err(other),
    }
    let program = root.join("bin/uverbs");
    prints(&program, &["--version"], concat!("uverbs ", env!("CARGO_PKG_VERSION")))?;
    prints(&program, &["pingpong", "-n", "100"], "verified")?;
    let pages = lay_out_texts(&program, &root.join("share"))?;
    completes(&root.join("share"))?;
    Ok(Outcome::Counted(format!("{}, {pages} manual pages", program.display())))
}

/// Name of a package's folder and stem of its file, as cargo names them.
fn folder(name: &str) -> String {
    format!("{name}-{}", env!("CARGO_PKG_VERSION"))
}

/// Unpacks the packages into a separate workspace, where they stand for the registry's packages.
fn unpack(names: &[String], base: &Path) -> Result<(), Outcome> {
    create(base)?;
    for name in names {
        let unpacked = base.join(folder(name));
        // Files of an older package must not remain.
        let _ = fs::remove_dir_all(&unpacked);
        let file = target().join(format!("package/{}.crate", folder(name)));
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(&file).arg("-C").arg(base);
        match run(tar, MINUTES) {
            Outcome::Passed => {}
            other => return Err(other),
        }
    }
    let manifest = base.join("Cargo.toml");
    fs::write(&manifest, workspace(names)).map_err(|error| failed(&manifest, &error))?;
    // The lock file has the versions that the tests use.
    let lock = base.join("Cargo.lock");
    fs::copy("Cargo.lock", &lock).map_err(|error| failed(&lock, &error))?;
    Ok(())
}

fn workspace(names: &[String]) -> String {
    let mut text = "[workspace]\nresolver = \"3\"\nmembers = [\n".to_owned();
    // Writing to a string can't fail.
    for name in names {
        let _ = writeln!(text, "    {:?},", folder(name));
    }
    text.push_str("]\n\n[patch.crates-io]\n");
    for name in names {
        let _ = writeln!(text, "{name} = {{ path = {:?} }}", folder(name));
    }
    text
}

/// Runs the installed program, and looks for `wanted` in its output.
fn prints(program: &Path, words: &[&str], wanted: &str) -> Result<(), Outcome> {
    let mut command = Command::new(program);
    command.args(words);
    let text = output(command, 5 * MINUTES)?;
    match text.contains(wanted) {
        true => Ok(()),
        false => Err(Outcome::Failed(format!("{words:?} printed no {wanted:?} but {text:?}"))),
    }
}

/// Shells, and the files below `share` in which they look for completions (Debian and most others).
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/uverbs"),
    ("zsh", "zsh/vendor-completions/_uverbs"),
    ("fish", "fish/vendor_completions.d/uverbs.fish"),
];

/// Runs a program that writes its manual and its completions to their folders below `share`.
/// Returns the number of pages.
pub(crate) fn lay_out_texts(program: &Path, share: &Path) -> Result<usize, Outcome> {
    let pages = share.join("man/man1");
    let _ = fs::remove_dir_all(&pages);
    let mut manual = Command::new(program);
    manual.args(["manual", "--dir"]).arg(&pages);
    output(manual, MINUTES)?;
    for (shell, place) in COMPLETIONS {
        let mut completions = Command::new(program);
        completions.args(["completions", shell]);
        let path = share.join(place);
        create(path.parent().unwrap_or(share))?;
        fs::write(&path, output(completions, MINUTES)?).map_err(|error| failed(&path, &error))?;
    }
    let pages: Vec<PathBuf> = fs::read_dir(&pages)
        .map_err(|error| failed(&pages, &error))?
        .flatten()
        .map(|page| page.path())
        .collect();
    match pages.iter().any(|page| page.ends_with("uverbs-perf-write.1")) {
        true => Ok(pages.len()),
        false => Err(Outcome::Failed(format!("no page of `perf write` among {pages:?}"))),
    }
}

/// Asks bash to complete a command.
fn completes(share: &Path) -> Result<(), Outcome> {
    if !is_there("bash") {
        println!("no bash here: what completes the command line there is not tried");
        return Ok(());
    }
    let mut bash = Command::new("bash");
    bash.args([
        "--norc",
        "-c",
        "source \"$0\"; COMP_WORDS=(uverbs pingp); COMP_CWORD=1; \
        _uverbs uverbs pingp uverbs; echo \"${COMPREPLY[@]}\"",
    ]);
    bash.arg(share.join(COMPLETIONS[0].1));
    let found = output(bash, MINUTES)?;
    match found.trim() == "pingpong" {
        true => Ok(()),
        false => Err(Outcome::Failed(format!("bash completes `uverbs pingp` to {found:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_stand_for_the_registrys() {
        let text = workspace(&["uverbs-core".to_owned()]);
        let version = env!("CARGO_PKG_VERSION");
        assert!(text.contains(&format!("members = [\n    \"uverbs-core-{version}\",\n]\n")));
        let patch =
            format!("[patch.crates-io]\nuverbs-core = {{ path = \"uverbs-core-{version}\" }}");
        assert!(text.contains(&patch), "{text}");
    }
}
