//! Modules: which file is which module of which crate, and which files import which.

use std::collections::{BTreeMap, BTreeSet};

use super::items::{Items, Module, Use};

/// Re-exports that one path may pass.
const HOPS: usize = 16;

/// Rust file with its declarations.
pub(crate) struct Source<'a> {
    pub(crate) path: &'a str,
    pub(crate) items: Items<'a>,
}

/// Path of a module from its crate's root.
type ModulePath<'a> = Vec<&'a str>;

/// Crate: the modules below one root file.
#[derive(Debug)]
pub(crate) struct Crate<'a> {
    /// File of each module, inline ones included, and the inline modules around it in that file.
    modules: BTreeMap<ModulePath<'a>, usize>,
    /// Paths that each module uses, outside of its inline test code.
    uses: BTreeMap<ModulePath<'a>, Vec<&'a Use<'a>>>,
    /// Path of each file's outermost module.
    homes: BTreeMap<usize, ModulePath<'a>>,
}

/// Crates of the sources, and the files that only tests have.
pub(crate) fn crates<'a>(sources: &'a [Source<'a>]) -> (Vec<Crate<'a>>, BTreeSet<usize>) {
    let paths: BTreeMap<&str, usize> =
        sources.iter().enumerate().map(|(at, source)| (source.path, at)).collect();
    let children: Vec<Vec<(&Module<'_>, usize)>> = sources
        .iter()
        .map(|source| {
            let found = source.items.modules.iter();
            found
                .filter_map(|module| Some((module, file_of(source.path, module, &paths)?)))
                .collect()
        })
        .collect();
    let declared: BTreeSet<usize> = children.iter().flatten().map(|&(_, child)| child).collect();
    let roots = (0..sources.len()).filter(|at| !declared.contains(at));
    let mut shipped = BTreeSet::new();
    let crates = roots
        .map(|root| {
            let mut one =
                Crate { modules: BTreeMap::new(), uses: BTreeMap::new(), homes: BTreeMap::new() };
            let files = one.add(root, Vec::new(), false, sources, &children);
            if !is_test_root(sources[root].path) {
                shipped.extend(files);
            }
            one
        })
        .collect();
    let tests = (0..sources.len()).filter(|at| !shipped.contains(at)).collect();
    (crates, tests)
}

/// Returns true for the root of an integration test.
fn is_test_root(path: &str) -> bool {
    path.split('/').any(|part| part == "tests")
}

/// File of a `mod name;`, found as rustc does, except that any file may be a crate's root.
fn file_of(path: &str, module: &Module<'_>, paths: &BTreeMap<&str, usize>) -> Option<usize> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let inside = module.inside.join("/");
    let own = join(&join(folder, stem), &inside);
    let beside = join(folder, &inside);
    if let Some(to) = module.path {
        // Behind inline modules rustc counts from their folder, else from the file's.
        let folders = if inside.is_empty() { vec![folder.to_owned()] } else { vec![own, beside] };
        return folders.iter().find_map(|at| paths.get(join(at, to).as_str()).copied());
    }
    let folders = match stem {
        "mod" | "lib" | "main" => vec![beside],
        _ => vec![own, beside],
    };
    let name = module.name;
    folders
        .iter()
        .flat_map(|at| [join(at, &format!("{name}.rs")), join(at, &format!("{name}/mod.rs"))])
        .find_map(|at| paths.get(at.as_str()).copied())
}

/// Path behind a folder, with `..` taken out.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

impl<'a> Crate<'a> {
    /// Adds a file as a module, and the files that it declares. Returns the files that are not for
    /// tests alone.
    fn add(
        &mut self,
        file: usize,
        home: ModulePath<'a>,
        is_test: bool,
        sources: &'a [Source<'a>],
        children: &[Vec<(&Module<'a>, usize)>],
    ) -> Vec<usize> {
        if self.homes.contains_key(&file) {
            return Vec::new();
        }
        let items = &sources[file].items;
        self.homes.insert(file, home.clone());
        self.modules.insert(home.clone(), file);
        for used in items.uses.iter().filter(|used| !items.tests.contain(used.line)) {
            let module = [&home[..], &used.inside].concat();
            self.modules.insert(module.clone(), file);
            self.uses.entry(module).or_default().push(used);
        }
        let mut shipped = Vec::from_iter((!is_test).then_some(file));
        for &(module, child) in &children[file] {
            let is_test = is_test || items.tests.contain(module.line);
            let path = [&home[..], &module.inside, &[module.name]].concat();
            shipped.extend(self.add(child, path, is_test, sources, children));
        }
        shipped
    }

    /// Files that each file imports from. A module and the modules in it are one family: what they
    /// import from each other does not count.
    pub(crate) fn imports(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut imports = BTreeMap::<usize, BTreeSet<usize>>::new();
        for (module, uses) in &self.uses {
            let from = self.modules[module];
            let found = uses
                .iter()
                .filter_map(|used| self.resolve(module, &used.segments, used.name.is_some(), HOPS));
            let others = found.filter(|&to| !self.is_family(from, to));
            imports.entry(from).or_default().extend(others);
        }
        imports
    }

    fn is_family(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.homes[&a], &self.homes[&b]);
        a.starts_with(b) || b.starts_with(a)
    }

    /// File that a path of `module` leads to, through re-exports. `None`: another crate's.
    fn resolve(
        &self,
        module: &[&'a str],
        segments: &[&'a str],
        in_use: bool,
        hops: usize,
    ) -> Option<usize> {
        let (&first, mut rest) = segments.split_first()?;
        let mut at = match first {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            _ if in_use && self.modules.contains_key(&[module, &[first]].concat()) => {
                [module, &[first]].concat()
            }
            _ => return None,
        };
        while let Some((&next, behind)) = rest.split_first() {
            if next == "super" {
                at.pop()?;
            } else if self.modules.contains_key(&[&at[..], &[next]].concat()) {
                at.push(next);
            } else {
                break;
            }
            rest = behind;
        }
        let exported = rest.first().filter(|_| hops > 0).and_then(|name| {
            let mut uses = self.uses.get(&at)?.iter();
            let from = uses.find(|used| used.name == Some(name))?;
            let path = [&from.segments[..], &rest[1..]].concat();
            self.resolve(&at, &path, true, hops - 1)
        });
        exported.or_else(|| self.modules.get(&at).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::super::items::items;
    use super::super::lexer::{code, tokens};
    use super::*;

    #[test]
    fn files_of_tests_are_told_from_the_others() {
        let files = [
            ("x/src/lib.rs", "mod a;\n#[cfg(test)] mod tests;\nmod inline { mod b; }"),
            ("x/src/a.rs", "mod c; #[path = \"d_tests.rs\"] mod d;"),
            ("x/src/a/c.rs", ""),
            ("x/src/d_tests.rs", ""),
            ("x/src/inline/b.rs", ""),
            ("x/src/tests/mod.rs", "mod e;"),
            ("x/src/tests/e.rs", ""),
            ("x/src/bin/f.rs", ""),
            ("x/tests/g.rs", "mod h; #[path = \"../src/a/c.rs\"] mod i;"),
            ("x/tests/h/mod.rs", ""),
        ];
        let codes: Vec<_> = files.iter().map(|(_, text)| code(&tokens(text))).collect();
        let sources: Vec<_> = files
            .iter()
            .zip(&codes)
            .map(|(&(path, _), code)| Source { path, items: items(code) })
            .collect();
        let (crates, tests) = crates(&sources);
        let homes = |one: &Crate<'_>| {
            let homes = one.homes.iter();
            let shown = homes.map(|(&at, home)| format!("{}={}", home.join("::"), files[at].0));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(crates.len(), 3);
        let library = [
            "=x/src/lib.rs",
            "a=x/src/a.rs",
            "a::c=x/src/a/c.rs",
            "a::d=x/src/d_tests.rs",
            "inline::b=x/src/inline/b.rs",
            "tests=x/src/tests/mod.rs",
            "tests::e=x/src/tests/e.rs",
        ];
        assert_eq!(homes(&crates[0]), library);
        assert_eq!(homes(&crates[2]), ["i=x/src/a/c.rs", "=x/tests/g.rs", "h=x/tests/h/mod.rs"]);
        let tests: Vec<_> = tests.iter().map(|&at| files[at].0).collect();
        let wanted = ["x/src/tests/mod.rs", "x/src/tests/e.rs", "x/tests/g.rs", "x/tests/h/mod.rs"];
        assert_eq!(tests, wanted);
    }
}
