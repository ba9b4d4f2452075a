//! Programs that run in the guest: the rows of `tests/vm/programs.txt`.

use std::fs;

use crate::vm::fetch::sources;
use crate::vm::kernels::{Kernel, Kernels};
use crate::vm::world::{World, are_worlds};

/// Row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    worlds: String,
    kernels: Kernels,
    /// True if it runs only by its name.
    pub(crate) on_demand: bool,
    pub(crate) seconds: u64,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
}

impl Row {
    /// Returns true if it runs in a world, on some kernel.
    pub(crate) fn is_of(&self, world: World) -> bool {
        self.worlds.contains(world.letter())
    }

    /// Returns true if it runs in a world on a kernel.
    pub(crate) fn is_for(&self, world: World, kernel: &Kernel) -> bool {
        self.is_of(world) && self.kernels.has(kernel)
    }

    /// Programs and libraries to build for it.
    pub(crate) fn needs(&self) -> impl Iterator<Item = Need<'_>> {
        self.words.iter().filter_map(|word| Need::of(word))
    }
}

/// Program or library that a row names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need<'a> {
    /// `test:PACKAGE/TARGET`: a test.
    Test(&'a str),
    /// `example:PACKAGE/TARGET`: an example.
    Example(&'a str),
    /// `bin:PACKAGE/TARGET`: a program, optimised, since it measures.
    Bin(&'a str),
    /// `bench:PACKAGE/TARGET`: a bench.
    Bench(&'a str),
    /// `c:NAME`: `tests/c-stack/c/NAME.c`, against the guest's C stack.
    C(&'a str),
    /// `lib:PACKAGE`: a shared library.
    Library(&'a str),
}

impl<'a> Need<'a> {
    /// Program or library in a word of a row.
    pub(crate) fn of(word: &'a str) -> Option<Self> {
        let (kind, name) = word.split_once(':')?;
        match kind {
            "test" => Some(Self::Test(name)),
            "example" => Some(Self::Example(name)),
            "bin" => Some(Self::Bin(name)),
            "bench" => Some(Self::Bench(name)),
            "c" => Some(Self::C(name)),
            "lib" => Some(Self::Library(name)),
            _ => None,
        }
    }

    /// Path in the image.
    pub(crate) fn path(self) -> String {
        match self {
            Self::Test(name) => format!("vm/tests/{name}"),
            Self::Example(name) => format!("vm/examples/{name}"),
            Self::Bin(name) => format!("vm/bin/{name}"),
            Self::Bench(name) => format!("vm/benches/{name}"),
            Self::C(name) => format!("vm/c/{name}"),
            Self::Library(name) => format!("vm/lib/{name}.so"),
        }
    }

    fn is_whole(self) -> bool {
        match self {
            Self::Test(name) | Self::Example(name) | Self::Bin(name) | Self::Bench(name) => {
                name.contains('/')
            }
            Self::C(name) | Self::Library(name) => !name.is_empty() && !name.contains('/'),
        }
    }
}

/// Reads the project's table.
///
/// # Errors
///
/// The file or line that can't be read.
pub(crate) fn read() -> Result<Vec<Row>, String> {
    let path = sources().join("programs.txt");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text)
}

/// Parses a table.
///
/// # Errors
///
/// The malformed line.
pub(crate) fn parse(text: &str) -> Result<Vec<Row>, String> {
    let lines = text.lines().map(str::trim);
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|line| row(line).ok_or_else(|| format!("programs.txt: {line:?}"))).collect()
}

fn row(line: &str) -> Option<Row> {
    let mut words = line.split_whitespace().map(str::to_owned);
    let word = words.next()?;
    let worlds = word.to_ascii_lowercase();
    let on_demand = word.chars().all(|letter| letter.is_ascii_uppercase());
    if !are_worlds(if on_demand { &worlds } else { &word }) {
        return None;
    }
    let row = Row {
        worlds,
        on_demand,
        kernels: Kernels::parse(&words.next()?)?,
        seconds: words.next()?.parse().ok()?,
        name: words.next()?,
        words: words.collect(),
    };
    row.words.first()?;
    let whole = row.needs().all(Need::is_whole);
    whole.then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row() {
        let rows = parse("# nothing\n\n bc 6.12+ 20 rc-data test:uverbs/rc_data --show-output\n");
        let rows = rows.expect("a row");
        assert!(rows[0].needs().eq([Need::Test("uverbs/rc_data")]));
        assert_eq!((rows[0].seconds, rows[0].kernels), (20, Kernels::Since((6, 12))));
        assert_eq!(rows[0].words, ["test:uverbs/rc_data", "--show-output"]);
    }

    #[test]
    fn a_row_needs_programs() {
        let rows = parse("b all 20 name sh /vm/pair.sh bin:a/b -g 3 c:control").expect("a row");
        assert!(rows[0].needs().eq([Need::Bin("a/b"), Need::C("control")]));
    }

    #[test]
    fn a_row_on_demand() {
        let rows = parse("BC all 20 name true").expect("a row");
        assert!(rows[0].on_demand && rows[0].is_of(World::B) && !rows[0].is_of(World::E));
    }

    #[test]
    fn a_wrong_row_is_named() {
        for line in [
            "bC all 20 name true",
            "d all 20 name true",
            "c every 20 name true",
            "c all long name true",
            "c all 20 name",
            "c all 20 name test:rc_data",
            "c all 20 name bin:tool",
            "c all 20 name c:",
            "c all 20 name lib:a/b",
            "c new+ 20 name true",
        ] {
            assert_eq!(parse(line), Err(format!("programs.txt: {line:?}")));
        }
    }

    #[test]
    fn the_table_can_be_read() {
        let text = include_str!("../../../tests/vm/programs.txt");
        assert!(parse(text).is_ok_and(|rows| !rows.is_empty()));
    }

    /// Modules that `main.rs` of a test of the root crate declares.
    fn modules(test: &str) -> Vec<String> {
        let file = sources().join("..").join(test).join("main.rs");
        let text = fs::read_to_string(file).unwrap_or_default();
        let names = text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(";"));
        names.map(str::to_owned).collect()
    }

    /// A filter without a test passes, and one of two modules runs tests of another row.
    #[test]
    fn a_filter_selects_one_module() {
        let mut filters = 0;
        for row in read().expect("the table") {
            let tests = row.needs().filter_map(|need| match need {
                Need::Test(name) => name.strip_prefix("uverbs/"),
                _ => None,
            });
            let tests: Vec<&str> = tests.collect();
            if tests.is_empty() {
                continue;
            }
            let modules = tests.iter().flat_map(|test| modules(test));
            let modules: Vec<String> = modules.map(|name| name + "::").collect();
            for (module, _) in row.words.iter().filter_map(|word| word.split_once("::")) {
                let module = format!("{module}::");
                let found = modules.iter().filter(|name| name.ends_with(&module)).count();
                assert_eq!(found, 1, "{}: {module} of {modules:?}", row.name);
                filters += 1;
            }
        }
        assert!(filters > 0);
    }
}
