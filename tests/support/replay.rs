//! Replays the kept inputs of a fuzz target: the smallest ones that reach all code that it has
//! reached.

use std::path::Path;

/// Runs each file of `fuzz/corpus/TARGET`, in the order of their names.
///
/// # Panics
///
/// If the folder is missing or empty.
pub fn replay(target: &str, run: impl Fn(&[u8])) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let corpus = crates.map(|folder| folder.join("fuzz/corpus")).find(|folder| folder.is_dir());
    let folder = corpus.expect("fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|why| panic!("{folder:?}: {why}"));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder:?} is empty");
    for path in paths {
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
    }
}
