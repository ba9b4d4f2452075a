//! Initial file system of the guest: first process, plan, modules, programs and their libraries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufWriter, Result, Write};
use std::path::{Path, PathBuf};

use crate::vm::cpio::Archive;
use crate::vm::libraries::{FOLDER, Libraries};

/// Folders of Debian's programs. [`PROGRAMS`] are the beginnings of the names that the guest gets.
const PROGRAM_FOLDERS: [&str; 4] = ["bin", "sbin", "usr/bin", "usr/sbin"];
const PROGRAMS: [&str; 17] = [
    "busybox",
    "cmtime",
    "devlink",
    "ethtool",
    "ib_",
    "ibv_",
    "ip",
    "mckey",
    "python3",
    "raw_ethernet_",
    "rdma",
    "riostream",
    "rping",
    "rstream",
    "tc",
    "ucmatose",
    "udaddy",
];

/// Folders of libibverbs' providers: the first has a file for each, the second the libraries.
const PROVIDERS: [&str; 2] = ["etc/libibverbs.d", "usr/lib/x86_64-linux-gnu/libibverbs"];
/// Providers of devices that a guest can have.
const WANTED: [&str; 4] = ["hfi1", "mlx5", "rxe", "siw"];

#[derive(Debug)]
enum ImageEntry {
    File(PathBuf),
    Program(PathBuf),
    Text(Vec<u8>),
    Link(String),
}

/// Contents of the image.
#[derive(Debug, Default)]
pub(crate) struct Image {
    entries: BTreeMap<String, ImageEntry>,
    libraries: Libraries,
    found: BTreeMap<String, PathBuf>,
}

impl Image {
    /// Adds Debian's programs and providers from `root`.
    ///
    /// # Errors
    ///
    /// The missing library of a program.
    pub(crate) fn add_debian(&mut self, root: &Path) -> std::result::Result<(), String> {
        self.libraries = Libraries::new(root);
        for folder in PROGRAM_FOLDERS {
            self.add_folder(&root.join(folder), "usr/bin", |name| {
                PROGRAMS.iter().any(|start| name.starts_with(start))
            })?;
        }
        for folder in PROVIDERS {
            self.add_folder(&root.join(folder), folder, |name| {
                WANTED.iter().any(|provider| name.contains(provider))
            })?;
        }
        self.link("usr/bin/sh", "busybox");
        for name in ["bin", "sbin", "usr/sbin"] {
            self.link(name, "/usr/bin");
        }
        self.text("etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n".to_vec());
        self.text("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n".to_vec());
        Ok(())
    }

    /// Adds the wanted files of a folder. A missing folder counts as empty.
    fn add_folder(
        &mut self,
        from: &Path,
        at: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> std::result::Result<(), String> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(from).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // An absolute link leads out of the unpacked packages, a relative link stays in them.
            let absolute = fs::read_link(&path).is_ok_and(|to| to.is_absolute());
            if wanted(&name) && path.is_file() && !absolute {
                self.program(&format!("{at}/{name}"), &path)?;
            }
        }
        Ok(())
    }

    /// Adds a folder with its files and folders, and the libraries that its libraries need.
    ///
    /// # Errors
    ///
    /// The missing library.
    pub(crate) fn add_tree(&mut self, root: &Path, at: &Path) -> std::result::Result<(), String> {
        let name = at.display().to_string();
        self.add_folder(&root.join(at), &name, |name| name.ends_with(".so"))?;
        let entries = fs::read_dir(root.join(at)).into_iter().flatten().flatten();
        for entry in entries {
            let at = at.join(entry.file_name());
            let kind = entry.file_type().map_err(|error| error.to_string())?;
            if kind.is_dir() {
                self.add_tree(root, &at)?;
            } else if kind.is_file() && at.extension().is_none_or(|end| end != "so") {
                self.file(&at.display().to_string(), &entry.path());
            }
        }
        Ok(())
    }

    /// Adds a program with its libraries.
    ///
    /// # Errors
    ///
    /// The missing library.
    pub(crate) fn program(&mut self, at: &str, from: &Path) -> std::result::Result<(), String> {
        self.libraries.add(from, &mut self.found)?;
        self.entries.insert(at.to_owned(), ImageEntry::Program(from.to_owned()));
        Ok(())
    }

    /// Replaces the libraries of these names by one library that serves all of them: the loader
    /// maps a file once, whatever its names. Programs that need them must be added before.
    ///
    /// # Errors
    ///
    /// The library's missing library.
    pub(crate) fn substitute(
        &mut self,
        names: &[&str],
        library: &Path,
    ) -> std::result::Result<(), String> {
        for name in names {
            self.found.remove(*name).ok_or_else(|| format!("nothing here needs {name}"))?;
            self.link(&format!("{FOLDER}/{name}"), names[0]);
        }
        self.program(&format!("{FOLDER}/{}", names[0]), library)
    }

    pub(crate) fn file(&mut self, at: &str, from: &Path) {
        self.entries.insert(at.to_owned(), ImageEntry::File(from.to_owned()));
    }

    pub(crate) fn text(&mut self, at: &str, bytes: Vec<u8>) {
        self.entries.insert(at.to_owned(), ImageEntry::Text(bytes));
    }

    pub(crate) fn link(&mut self, at: &str, to: &str) {
        self.entries.insert(at.to_owned(), ImageEntry::Link(to.to_owned()));
    }

    /// Writes the image.
    ///
    /// # Errors
    ///
    /// The file that can't be read or written.
    pub(crate) fn write(&mut self, path: &Path) -> Result<()> {
        for (name, from) in std::mem::take(&mut self.found) {
            if name.starts_with("ld-linux") {
                self.link(&format!("lib64/{name}"), &format!("/{FOLDER}/{name}"));
            }
            // The loader needs the mode of a program.
            self.entries.insert(format!("{FOLDER}/{name}"), ImageEntry::Program(from));
        }
        let mut archive = Archive::new(BufWriter::new(File::create(path)?));
        let mut folders = BTreeSet::new();
        for folder in ["dev", "proc", "sys", "tmp", "run", "root"] {
            archive.folder(folder)?;
            folders.insert(folder.to_owned());
        }
        for (at, entry) in &self.entries {
            for (end, _) in at.match_indices('/') {
                if folders.insert(at[..end].to_owned()) {
                    archive.folder(&at[..end])?;
                }
            }
            match entry {
                ImageEntry::File(from) => archive.file(at, &read(from)?, false)?,
                ImageEntry::Program(from) => archive.file(at, &read(from)?, true)?,
                ImageEntry::Text(bytes) => archive.file(at, bytes, false)?,
                ImageEntry::Link(to) => archive.link(at, to)?,
            }
        }
        archive.finish()?.flush()
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path)
        .map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
