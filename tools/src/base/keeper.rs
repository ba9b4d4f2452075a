//! Files of results.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::error::Error;

/// File that is created completely or not at all.
pub(crate) struct Keeper {
    path: PathBuf,
}

impl Keeper {
    /// Creates a temporary file beside `path` and removes it. So errors come before the work whose
    /// result the file gets, and a program that is killed meanwhile leaves no file.
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        let keeper = Self { path: path.to_owned() };
        if path.is_dir() {
            return Err(keeper.failed(io::ErrorKind::IsADirectory.into()));
        }
        keeper.temporary().and_then(NamedTempFile::close).map_err(|error| keeper.failed(error))?;
        Ok(keeper)
    }

    /// Writes the file, and moves it to its path.
    pub(crate) fn keep(self, bytes: &[u8]) -> Result<(), Error> {
        let kept = self.temporary().and_then(|mut file| {
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(&self.path).map_err(|error| error.error)
        });
        kept.map(drop).map_err(|error| self.failed(error))
    }

    fn temporary(&self) -> io::Result<NamedTempFile> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        // Otherwise the error would name the temporary file.
        fs::metadata(parent)?;
        tempfile::Builder::new()
            .prefix(".uverbs-")
            // The permissions of any new file: the umask applies.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(parent)
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::File { path: self.path.clone(), error }
    }
}
