//! Room on the file system that holds `target`: a full disk fails steps with errors that don't say
//! so.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::statvfs::statvfs;

use crate::debian;
use crate::step::Outcome;

/// Bytes that `target` grows to in a test run that begins with none.
const WHOLE: u64 = 12 << 30;

/// Fails if `target` can't grow to its size after a test run.
pub(crate) fn check() -> Outcome {
    let target = debian::target();
    if let Err(error) = fs::create_dir_all(&target) {
        return Outcome::Failed(format!("{}: {error}", target.display()));
    }
    match statvfs(&target) {
        Ok(file_system) => {
            let free = file_system.blocks_available() * file_system.fragment_size();
            enough(&target, size(&target), free)
        }
        Err(errno) => Outcome::Failed(format!("{}: {errno}", target.display())),
    }
}

fn enough(target: &Path, used: u64, free: u64) -> Outcome {
    let wanted = WHOLE.saturating_sub(used);
    if free >= wanted {
        return Outcome::Passed;
    }
    Outcome::Failed(format!(
        "{} grows by {} MiB, its file system has {} MiB left: free some, or set CARGO_TARGET_DIR",
        target.display(),
        wanted >> 20,
        free >> 20
    ))
}

/// Bytes on disk of all files under a folder. Counts none for files that go meanwhile.
fn size(folder: &Path) -> u64 {
    let Ok(files) = folder.read_dir() else { return 0 };
    let sizes = files.flatten().map(|file| match file.metadata() {
        Ok(data) if data.is_dir() => size(&file.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_target_holds_counts() {
        let target = Path::new("/t");
        assert!(matches!(enough(target, 0, WHOLE), Outcome::Passed));
        assert!(matches!(enough(target, WHOLE - 5, 5), Outcome::Passed));
        assert!(matches!(enough(target, WHOLE + 5, 0), Outcome::Passed));
        let Outcome::Failed(why) = enough(target, WHOLE - (3 << 20), 2 << 20) else {
            panic!("3 MiB fit into 2");
        };
        assert!(why.starts_with("/t grows by 3 MiB, its file system has 2 MiB left"), "{why}");
    }
}
