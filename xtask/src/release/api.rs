//! Public items of the published crates, listed in `docs/api` for reviews.
//!
//! rustdoc describes a crate as JSON, and the crate `public-api` lists the items. The JSON is an
//! unstable output, so rustdoc runs with `RUSTC_BOOTSTRAP`. Its separate target folder keeps the
//! builds of other commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use public_api::Builder;

use crate::compiler::{compiler, other_compiler};
use crate::debian;
use crate::step::{Outcome, cargo, run};

/// Folder of the lists.
const FOLDER: &str = "docs/api";
/// Published library crates; first the crate that every program uses.
const CRATES: [&str; 14] = [
    "uverbs",
    "uverbs-core",
    "uverbs-efa",
    "uverbs-front",
    "uverbs-kernel-rings",
    "uverbs-mlx5",
    "uverbs-mlx5-vfio",
    "uverbs-rxe",
    "uverbs-siw",
    "uverbs-rdmavt",
    "uverbs-softefa",
    "uverbs-softhca",
    "uverbs-streams",
    "uverbs-tokio",
];
/// Maximum differing lines of a crate in a message.
const SHOWN: usize = 20;

/// Compares the lists with the crates. `bless` writes the lists instead.
pub(crate) fn check(bless: bool) -> Outcome {
    let noted = fs::read_to_string(place("uverbs")).unwrap_or_default();
    if !bless && let Some(other) = other_compiler(&noted) {
        return other;
    }
    let mut items = 0;
    for name in CRATES {
        let list = match list(name) {
            Ok(list) => list,
            Err(outcome) => return outcome,
        };
        items += list.lines().count();
        let text = format!("# {}\n# cargo xtask api --bless\n{list}", compiler());
        if bless {
            let written = fs::create_dir_all(FOLDER).and_then(|()| fs::write(place(name), text));
            if let Err(error) = written {
                return Outcome::Failed(format!("{FOLDER}: {error}"));
            }
            continue;
        }
        let noted = fs::read_to_string(place(name)).unwrap_or_default();
        let differ = differences(&noted, &text);
        if !differ.is_empty() {
            let shown = differ.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
            return Outcome::Failed(format!(
                "{name} has {} other public items than {}; if that is meant, `cargo xtask api \
                 --bless` notes it:\n{shown}",
                differ.len(),
                place(name).display(),
            ));
        }
    }
    Outcome::Counted(format!("{items} items of {} crates", CRATES.len()))
}

fn place(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name).with_extension("txt")
}

/// Public items of a crate, one a line.
fn list(name: &str) -> Result<String, Outcome> {
    let target = debian::target().join("api");
    let mut rustdoc = cargo(&["rustdoc", "--package", name, "--lib", "--all-features", "--quiet"]);
    rustdoc.arg("--target-dir").arg(&target).env("RUSTC_BOOTSTRAP", "1");
    rustdoc.args(["--", "-Zunstable-options", "--output-format=json", "--cap-lints=allow"]);
    match run(rustdoc, Duration::from_secs(900)) {
        Outcome::Passed => {}
        other => return Err(other),
    }
    let json = target.join("doc").join(name.replace('-', "_")).with_extension("json");
    // Derived and automatic implementations would be three lines of four.
    let api = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    // The JSON's format changes between compilers.
    let api = api.map_err(|error| Outcome::Skipped(format!("this rustdoc's JSON: {error}")))?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// Lines that only one text has, marked as `diff` does.
fn differences(old: &str, new: &str) -> Vec<String> {
    let only = |mark: char, these: &str, those: &str| {
        let those: std::collections::BTreeSet<&str> = those.lines().collect();
        let lines = these.lines().filter(|line| !those.contains(line));
        lines.map(|line| format!("{mark} {line}")).collect::<Vec<_>>()
    };
    [only('-', old, new), only('+', new, old)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_what_went_and_what_came() {
        let (old, new) = ("pub fn a()\npub fn b()\n", "pub fn a()\npub fn b(u8)\npub fn c()\n");
        assert_eq!(differences(old, new), ["- pub fn b()", "+ pub fn b(u8)", "+ pub fn c()"]);
        assert!(differences(new, new).is_empty());
    }
}
