//! Image of `packaging/Containerfile`, without a container engine: a Debian root with its packages,
//! in which the CI job of `docs/book/src/ci.md` runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::debian::apt::failed;
use crate::debian::chroot::Root;
use crate::debian::target;
use crate::release::deb::{LIBRARIES, LIBRARY_FOLDER, TOOLS};
use crate::step::{Outcome, output};
use crate::vm::fetch::bookworm;

const RECIPE: &str = "packaging/Containerfile";
const PAGE: &str = "docs/book/src/ci.md";
const LIMIT: Duration = Duration::from_secs(300);
/// Servers and clients of two processes that meet without an option.
const PAIRS: [(&str, &str); 5] = [
    ("uverbs pingpong --server -n 100", "uverbs pingpong 127.0.0.1 -n 100"),
    ("uverbs perf write bw --server -n 100", "uverbs perf write bw 127.0.0.1 -n 100"),
    ("uverbs rping --server", "uverbs rping 127.0.0.1"),
    ("uverbs rstream --server", "uverbs rstream 127.0.0.1"),
    ("uverbs recv-file --quiet --out /tmp", "uverbs send-file --quiet /usr/bin/uverbs 127.0.0.1"),
];

/// Installs the packages, uses them, and purges them.
pub(crate) fn install(debs: &[PathBuf]) -> Outcome {
    try_install(debs).unwrap_or_else(|outcome| outcome)
}

fn try_install(debs: &[PathBuf]) -> Result<Outcome, Outcome> {
    let root = made(debs)?;
    says(&root, &["uverbs", "--version"], concat!("uverbs ", env!("CARGO_PKG_VERSION")))?;
    says(&root, &["uverbs", "pingpong", "-n", "100", "--json"], "\"verified\": true")?;
    // Debian's program finds our library, which is in no folder of the loader.
    says(&root, &["uverbs", "run", "-d", "softhca", "--", "ibv_devinfo"], "softhca")?;
    for (server, client) in PAIRS {
        let words = ["uverbs", "run", "--pair", server, client];
        output(root.command(&words), LIMIT).map_err(|outcome| match outcome {
            Outcome::Failed(why) => Outcome::Failed(format!("{server}, {client}: {why}")),
            other => other,
        })?;
    }
    let changed = output(root.command(&["dpkg", "--verify", TOOLS, LIBRARIES]), LIMIT)?;
    if !changed.is_empty() {
        return Err(Outcome::Failed(format!("dpkg --verify: {changed}")));
    }
    let pages = root.path("usr/share/man/man1");
    let count = fs::read_dir(&pages).map_err(|error| failed(&pages, &error))?.flatten();
    let count =
        count.filter(|page| page.file_name().to_string_lossy().starts_with("uverbs")).count();
    output(root.command(&["dpkg", "--purge", TOOLS, LIBRARIES]), LIMIT)?;
    for gone in ["usr/bin/uverbs", LIBRARY_FOLDER, "usr/share/man/man1/uverbs.1.gz"] {
        if root.path(gone).exists() {
            return Err(Outcome::Failed(format!("/{gone} is left behind")));
        }
    }
    Ok(Outcome::Counted(format!("used and removed, with {count} manual pages")))
}

/// Runs the job of the book's page.
pub(crate) fn replay(debs: &[PathBuf]) -> Outcome {
    try_replay(debs).unwrap_or_else(|outcome| outcome)
}

fn try_replay(debs: &[PathBuf]) -> Result<Outcome, Outcome> {
    let job = job(&read(PAGE)?).ok_or_else(|| Outcome::Failed(format!("{PAGE} has no job")))?;
    let root = made(debs)?;
    print!("{job}");
    // CI runners use these options.
    let printed = output(root.command(&["bash", "-e", "-c", &job]), LIMIT)?;
    print!("{printed}");
    for wanted in ["hca_id", "BW average"] {
        if !printed.contains(wanted) {
            return Err(Outcome::Failed(format!("the job printed no {wanted}")));
        }
    }
    Ok(Outcome::Counted(format!("the {} lines of {PAGE}", job.lines().count())))
}

/// Root of the recipe's second stage: the recipe's packages and ours.
fn made(debs: &[PathBuf]) -> Result<Root, Outcome> {
    let recipe = read(RECIPE)?;
    let packages = packages(&recipe);
    let (ours, theirs): (Vec<_>, Vec<_>) = packages.iter().partition(|it| it.starts_with("/tmp/"));
    if ours.len() != debs.len() {
        return Err(Outcome::Failed(format!("{RECIPE} installs {ours:?}, which aren't {debs:?}")));
    }
    let theirs: Vec<&str> = theirs.into_iter().map(String::as_str).collect();
    let root = Root::fetch(&target().join("container"), bookworm, &theirs)?;
    let mut words = vec!["dpkg".to_owned(), "--install".to_owned()];
    for deb in debs {
        words.push(root.take(deb)?);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    output(root.command(&words), LIMIT)?;
    Ok(root)
}

/// Packages that the last stage of a recipe installs with apt.
fn packages(recipe: &str) -> Vec<String> {
    let stage = recipe.rsplit("\nFROM ").next().unwrap_or_default().replace("\\\n", " ");
    let words = stage.split_whitespace().skip_while(|word| *word != "install").skip(1);
    let packages = words.take_while(|word| *word != "&&").filter(|word| !word.starts_with("--"));
    packages.map(str::to_owned).collect()
}

/// Lines of the page's first `run: |` block.
fn job(page: &str) -> Option<String> {
    let (_, block) = page.split_once("- run: |\n")?;
    let (block, _) = block.split_once("```")?;
    let lines = block.lines().map(str::trim).filter(|line| !line.is_empty());
    Some(lines.map(|line| format!("{line}\n")).collect())
}

/// Runs a command in the root, and looks for `wanted` in its output.
fn says(root: &Root, words: &[&str], wanted: &str) -> Result<(), Outcome> {
    let printed = output(root.command(words), LIMIT)?;
    match printed.contains(wanted) {
        true => Ok(()),
        false => Err(Outcome::Failed(format!("{words:?} printed no {wanted}: {printed}"))),
    }
}

fn read(path: &str) -> Result<String, Outcome> {
    fs::read_to_string(path).map_err(|error| failed(Path::new(path), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_names_packages() {
        let recipe = "FROM a AS b\nRUN apt-get install c\n\nFROM d\nRUN apt-get update \\\n    && \
            apt-get install --yes \\\n        /tmp/e_*.deb f \\\n    && rm g\n";
        assert_eq!(packages(recipe), ["/tmp/e_*.deb", "f"]);
    }

    #[test]
    fn a_page_has_a_job() {
        let page = "a\n```yaml\nsteps:\n  - run: |\n      b &\n      c\n```\nd\n```sh\ne\n```\n";
        assert_eq!(job(page).as_deref(), Some("b &\nc\n"));
        assert_eq!(job("```yaml\n```"), None);
    }
}
