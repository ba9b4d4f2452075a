//! Kernel modules: their files, their dependencies and the order of loading, as depmod and modprobe
//! find them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

/// File of a module, decompressed.
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Modules of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

impl Tree {
    /// Lists the modules below a folder, and the modules in `modules.builtin`.
    ///
    /// # Errors
    ///
    /// The file that can't be read.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let mut tree = Self::default();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries =
                fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            for entry in entries.flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else if let Some(name) = path.file_name().and_then(|name| module(name.to_str()?))
                {
                    tree.files.insert(name, path);
                }
            }
        }
        let builtin = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        let names = builtin.lines().filter_map(|line| module(line.rsplit('/').next()?));
        tree.builtin.extend(names);
        Ok(tree)
    }

    /// Adds the modules of another folder. Modules of the same name stay.
    pub(crate) fn add(&mut self, other: Self) {
        for (name, path) in other.files {
            self.files.entry(name).or_insert(path);
        }
    }

    /// Modules and their dependencies, in the order of loading. A name that ends in `?` is
    /// optional.
    ///
    /// # Errors
    ///
    /// The missing or unreadable module.
    pub(crate) fn closure(&self, wanted: &[&str]) -> Result<Vec<Module>, String> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in wanted {
            match name.strip_suffix('?') {
                Some(name) if !self.has(name) => {}
                Some(name) => self.follow(name, &mut seen, &mut order)?,
                None => self.follow(name, &mut seen, &mut order)?,
            }
        }
        Ok(order)
    }

    fn has(&self, name: &str) -> bool {
        self.files.contains_key(name) || self.builtin.contains(name)
    }

    fn follow(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<Module>,
    ) -> Result<(), String> {
        // The mark comes before the dependencies, so that a circle of dependencies ends here.
        if self.builtin.contains(name) || !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let path =
            self.files.get(name).ok_or_else(|| format!("the kernel has no module {name}"))?;
        let bytes = decompressed(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for needed in depends(&bytes).map_err(|error| format!("{}: {error}", path.display()))? {
            self.follow(&needed, seen, order)?;
        }
        order.push(Module { name: name.to_owned(), bytes });
        Ok(())
    }
}

/// Name of a module, from its file's name. The kernel writes _ for -.
fn module(file: &str) -> Option<String> {
    let name = file.strip_suffix(".ko").or_else(|| file.strip_suffix(".ko.xz"))?;
    Some(name.replace('-', "_"))
}

fn decompressed(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    if path.extension().is_some_and(|end| end == "xz") {
        lzma_rust2::XzReader::new(file, true).read_to_end(&mut bytes)?;
    } else {
        { file }.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Names in a module's `depends=` (`MODULE_INFO`, written by modpost).
fn depends(module: &[u8]) -> Result<Vec<String>, String> {
    let elf = Elf::parse(module).map_err(|error| error.to_string())?;
    let info = elf
        .section_headers
        .iter()
        .find(|section| elf.shdr_strtab.get_at(section.sh_name) == Some(".modinfo"))
        .and_then(|section| module.get(section.file_range()?))
        .ok_or("no .modinfo")?;
    Ok(listed(info))
}

fn listed(info: &[u8]) -> Vec<String> {
    let mut items = info.split(|&byte| byte == 0);
    let names = items.find_map(|item| item.strip_prefix(b"depends=")).unwrap_or_default();
    let names = String::from_utf8_lossy(names);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lists() {
        assert_eq!(module("crc32-pclmul.ko.xz"), Some("crc32_pclmul".to_owned()));
        assert_eq!(module("modules.dep"), None);
        assert_eq!(listed(b"license=GPL\0depends=ib_core,ib-uverbs\0\0"), ["ib_core", "ib_uverbs"]);
        assert_eq!(listed(b"depends=\0name=veth\0"), Vec::<String>::new());
        assert_eq!(listed(b""), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_is_named() {
        let tree = Tree { builtin: BTreeSet::from(["ipv6".to_owned()]), ..Tree::default() };
        assert!(tree.closure(&["ipv6", "crc32_generic?"]).is_ok_and(|order| order.is_empty()));
        let error = tree.closure(&["rdma_rxe"]).err();
        assert_eq!(error, Some("the kernel has no module rdma_rxe".to_owned()));
    }
}
