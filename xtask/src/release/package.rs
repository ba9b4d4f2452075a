//! Packages: each published crate packs, and contains its licences and its README.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::Value;

use crate::step::{Outcome, cargo};

/// Files that each package must contain in addition to its code.
const MUST_HAVE: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Packs all published crates, and lists the packages' files. Builds and sends nothing.
pub(crate) fn check() -> Outcome {
    match published().and_then(|names| {
        pack(&names)?;
        names.iter().try_for_each(|name| complete(name))?;
        Ok(names.len())
    }) {
        Ok(count) => Outcome::Counted(format!("{count} packages")),
        Err(outcome) => outcome,
    }
}

/// Crates of the workspace without `publish = false`.
pub(crate) fn published() -> Result<Vec<String>, Outcome> {
    let text = output(&["metadata", "--no-deps", "--format-version", "1", "--offline"])?;
    let metadata: Value = serde_json::from_str(&text)
        .map_err(|error| Outcome::Failed(format!("cargo metadata: {error}")))?;
    let packages: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|package| Some((package["name"].as_str()?, &package["publish"])))
        .collect();
    // `null` allows any registry, an empty list allows no registry.
    let published = packages.iter().filter(|(_, registries)| registries.is_null());
    Ok(published.map(|(name, _)| (*name).to_owned()).collect())
}

pub(crate) fn pack(names: &[String]) -> Result<(), Outcome> {
    let mut words = vec!["package", "--no-verify", "--offline", "--allow-dirty", "--quiet"];
    words.extend(names.iter().flat_map(|name| ["--package", name]));
    output(&words).map(drop)
}

fn complete(name: &str) -> Result<(), Outcome> {
    let list = output(&["package", "--list", "--allow-dirty", "--offline", "--package", name])?;
    let has = |file: &str| list.lines().any(|line| line == file);
    match MUST_HAVE.iter().find(|file| !has(file)) {
        None => Ok(()),
        Some(missing) => Err(Outcome::Failed(format!("{name} is packed without {missing}"))),
    }
}

/// Output of a cargo command. A package that cannot be downloaded is a skip.
fn output(words: &[&str]) -> Result<String, Outcome> {
    let output = cargo(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Outcome::Failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(match said.contains("--offline was specified") {
        true => Outcome::Skipped("the registry's index is not here (cargo fetch)".to_owned()),
        false => Outcome::Failed(said),
    })
}
