//! The front knows a device by the trait `Backend` alone: its sources name no module of the model.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules that a front may not name. Two places may: rings of rdmavt, which only the model has,
/// and tests with a whole device.
const MODEL: [&str; 7] = ["board", "firmware", "hca", "model", "pci", "vfio_user", "wire"];
const EXCEPT: [&str; 2] = ["kernel/rdmavt/memory.rs", "kernel/tests/"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(of).collect()
}

#[test]
fn the_front_names_no_module_of_the_model() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = ["backend", "cm", "kernel"].map(|folder| sources(&root.join(folder))).concat();
    assert!(files.len() > 60, "{} files", files.len());
    for file in files {
        let name = file.to_str().unwrap();
        if EXCEPT.iter().any(|except| name.contains(except)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for module in MODEL {
            let (path, tree) = (format!("crate::{module}::"), format!("crate::{{{module}"));
            let named = text.contains(&path) || text.contains(&tree);
            assert!(!named, "{name} names {module}");
        }
    }
}
