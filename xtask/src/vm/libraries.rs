//! Shared libraries that a program needs, found in the unpacked packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

/// Folder of libraries in a Debian system of this architecture, and in the image.
pub(crate) const FOLDER: &str = "usr/lib/x86_64-linux-gnu";

/// Files of the C library, which must be of one version.
const C_LIBRARY: [&str; 9] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libnss_files.so.2",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
];

/// Folders of libraries: empty, or the folders of Debian's packages.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    folders: Vec<PathBuf>,
    /// Folders of the C library.
    c_library: Vec<PathBuf>,
}

impl Libraries {
    /// Debian's libraries. If this machine's C library is later, the guest gets it: programs built
    /// here may need it, and Debian's programs run with it, too.
    pub(crate) fn new(root: &Path) -> Self {
        let below = |root: &Path| -> Vec<PathBuf> {
            ["lib/x86_64-linux-gnu", FOLDER, "lib64", "usr/lib64", "lib", "usr/lib"]
                .map(|folder| root.join(folder))
                .into()
        };
        let (debian, machine) = (below(root), below(Path::new("/")));
        let later = version(&machine) > version(&debian);
        Self { c_library: if later { machine } else { debian.clone() }, folders: debian }
    }

    /// Adds the libraries that a program needs to `found` by file name, including the loader.
    ///
    /// # Errors
    ///
    /// The missing library.
    pub(crate) fn add(
        &self,
        program: &Path,
        found: &mut BTreeMap<String, PathBuf>,
    ) -> Result<(), String> {
        let mut files = vec![program.to_owned()];
        while let Some(file) = files.pop() {
            for name in needed(&file)? {
                if found.contains_key(&name) {
                    continue;
                }
                let folders =
                    if C_LIBRARY.contains(&&*name) { &self.c_library } else { &self.folders };
                let path = find(folders, &name)
                    .ok_or_else(|| format!("{} needs {name}, which isn't here", file.display()))?;
                files.push(path.clone());
                found.insert(name, path);
            }
        }
        Ok(())
    }
}

/// Finds a file in the folders, except absolute links: they lead out of the unpacked packages.
fn find(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let mut paths = folders.iter().map(|folder| folder.join(name));
    paths.find(|path| {
        let absolute = fs::read_link(path).is_ok_and(|to| to.is_absolute());
        path.is_file() && !absolute
    })
}

fn needed(file: &Path) -> Result<Vec<String>, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let bytes = fs::read(file).map_err(|error| named(&error))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    let elf = Elf::parse(&bytes).map_err(|error| named(&error))?;
    let loader = elf.interpreter.and_then(|path| path.rsplit('/').next());
    Ok(elf.libraries.iter().copied().chain(loader).map(str::to_owned).collect())
}

/// Version in glibc's text: `GNU C Library (Debian GLIBC 2.36-9+deb12u13) stable release version
/// 2.36.`
fn version(folders: &[PathBuf]) -> Option<(u32, u32)> {
    let bytes = fs::read(find(folders, "libc.so.6")?).ok()?;
    let words = b"stable release version ";
    let at = bytes.windows(words.len()).position(|window| window == words)? + words.len();
    let text = std::str::from_utf8(bytes[at..].split(|&byte| byte == b'\n').next()?).ok()?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
