//! Files that the library writes for its user alone: captures and traces.
//!
//! Their names come from the environment, so a name may be in a directory that other users can
//! write, and another user may have created a file there. Symbolic links are not followed, new
//! files have mode 0600, and an existing file must be a regular file of the user with one name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::unistd::geteuid;

const MODE: u32 = 0o600;

/// Creates a file for writing.
///
/// # Errors
///
/// `AlreadyExists` if the name exists, also as a symbolic link; the system's error.
pub fn create(path: &Path) -> io::Result<File> {
    // O_CREAT | O_EXCL: the last component is never followed (open(2)).
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)
}

/// Opens a file for appending, and creates it if it does not exist.
///
/// # Errors
///
/// `PermissionDenied` for a file of another user, with a second name, or that is not regular; the
/// system's error, `ELOOP` for a symbolic link.
pub fn append(path: &Path) -> io::Result<File> {
    let new = OpenOptions::new().append(true).create_new(true).mode(MODE).open(path);
    match new {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        new => return new,
    }
    // O_NONBLOCK: opening a pipe waits for its reader.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().append(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    // A second name may be a link that another user made to a file of this one.
    let own = found.is_file() && found.nlink() == 1 && found.uid() == geteuid().as_raw();
    if own { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::*;

    /// An empty directory for one test.
    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("uverbs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn new_files_are_the_user_s_alone() {
        let folder = folder("private");
        let [one, other] = ["created", "appended"].map(|name| folder.join(name));
        create(&one).unwrap();
        append(&other).unwrap();
        for path in [&one, &other] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, MODE);
        }
        assert_eq!(create(&one).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        append(&other).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn names_that_others_prepared_are_refused() {
        let folder = folder("prepared");
        let (victim, name) = (folder.join("victim"), folder.join("name"));
        let refused = |why: &str| {
            assert!(create(&name).is_err() && append(&name).is_err(), "{why}");
            std::fs::remove_file(&name).unwrap();
        };
        symlink(&victim, &name).unwrap();
        refused("a link to a free name");
        std::fs::write(&victim, "").unwrap();
        symlink(&victim, &name).unwrap();
        refused("a link to a file");
        std::fs::hard_link(&victim, &name).unwrap();
        refused("a second name of a file");
        nix::unistd::mkfifo(&name, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused("a pipe");
        if geteuid().is_root() {
            std::fs::write(&name, "").unwrap();
            std::os::unix::fs::chown(&name, Some(65534), None).unwrap();
            refused("another user's file");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
