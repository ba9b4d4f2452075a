//! Check of the library with the oldest dependencies that its manifests allow: a program that has
//! one of them already keeps it.
//!
//! A separate package asks for exactly these versions of the direct dependencies. Indirect ones are
//! resolved as always. (Cargo's `-Zdirect-minimal-versions` would take the oldest of the tools'
//! dependencies, too, which do not fit together.)

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::debian;
use crate::step::{Outcome, cargo, output, run};

const LIMIT: Duration = Duration::from_secs(900);

/// Resolves and checks the library.
pub(crate) fn check() -> Outcome {
    try_check().unwrap_or_else(|outcome| outcome)
}

fn try_check() -> Result<Outcome, Outcome> {
    let failed = |error: std::io::Error| Outcome::Failed(error.to_string());
    let metadata = output(cargo(&["metadata", "--no-deps", "--format-version", "1"]), LIMIT)?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| Outcome::Failed(error.to_string()))?;
    let oldest = oldest(&metadata);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = root.canonicalize().map_err(failed)?;
    let folder = debian::target().join("minimal");
    fs::create_dir_all(folder.join("src")).map_err(failed)?;
    fs::write(folder.join("src/lib.rs"), "").map_err(failed)?;
    fs::write(folder.join("Cargo.toml"), manifest(&root, &oldest)).map_err(failed)?;
    let mut check = cargo(&["check", "--quiet", "--manifest-path"]);
    check.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(folder.join("target"));
    let said: Vec<String> = oldest.iter().map(|(name, old)| format!("{name} {old}")).collect();
    println!("with {}", said.join(", "));
    match run(check, LIMIT) {
        Outcome::Passed => Ok(Outcome::Counted(said.join(", "))),
        other => Ok(other),
    }
}

/// Oldest version of each dependency of the library's crates. All crates take the requirement from
/// the workspace, so each dependency has one version.
fn oldest(metadata: &Value) -> BTreeMap<String, String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let library = packages.filter(|package| {
        let path = package["manifest_path"].as_str().unwrap_or_default();
        package["name"] == "uverbs" || path.contains("/providers/") || path.contains("/kernel-abi/")
    });
    let mut oldest = BTreeMap::new();
    for dependency in library.flat_map(|it| it["dependencies"].as_array().into_iter().flatten()) {
        // Dependencies of tests and the library's crates have no oldest version.
        if !dependency["kind"].is_null() || !dependency["path"].is_null() {
            continue;
        }
        if let (Some(name), Some(needs)) = (dependency["name"].as_str(), dependency["req"].as_str())
        {
            oldest.insert(name.to_owned(), first(needs));
        }
    }
    oldest
}

/// First version of a requirement: `^0.31` begins with 0.31.0.
fn first(needs: &str) -> String {
    let numbers = needs.trim_start_matches(['^', '=', '~', '>', ' ']);
    numbers.split('.').chain(["0", "0"]).take(3).collect::<Vec<_>>().join(".")
}

/// Manifest of a package that depends on these versions and on the library.
fn manifest(root: &Path, oldest: &BTreeMap<String, String>) -> String {
    let mut text = String::from(
        "[workspace]\n[package]\nname = \"minimal\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         publish = false\n[dependencies]\n",
    );
    // Writing to a string can't fail.
    let _ = writeln!(text, "uverbs = {{ path = {root:?} }}");
    for (name, version) in oldest {
        let _ = writeln!(text, "{name} = {{ version = \"={version}\", default-features = false }}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_has_a_first_version() {
        for (needs, version) in [("^0.31", "0.31.0"), ("^2", "2.0.0"), ("^0.8.24", "0.8.24")] {
            assert_eq!(first(needs), version);
        }
    }

    #[test]
    fn dependencies_of_tests_and_own_crates_dont_count() {
        let metadata = serde_json::json!({"packages": [
            {"name": "uverbs", "manifest_path": "/a/Cargo.toml", "dependencies": [
                {"name": "nix", "req": "^0.31", "kind": null, "path": null},
                {"name": "proptest", "req": "^1", "kind": "dev", "path": null},
                {"name": "uverbs-core", "req": "^0.1", "kind": null, "path": "/a/providers/core"},
            ]},
            {"name": "uverbs-tools", "manifest_path": "/a/tools/Cargo.toml", "dependencies": [
                {"name": "clap", "req": "^4.5", "kind": null, "path": null},
            ]},
        ]});
        let found: Vec<_> = oldest(&metadata).into_iter().collect();
        assert_eq!(found, [("nix".to_owned(), "0.31.0".to_owned())]);
        let text = manifest(Path::new("/a"), &oldest(&metadata));
        assert!(text.contains("uverbs = { path = \"/a\" }\nnix = { version = \"=0.31.0\""));
    }
}
