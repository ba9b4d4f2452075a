//! Skipped tests: parses the lines that tests print (docs/TESTING.md), and compares them with
//! `tests/vm/skips.txt`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use crate::vm::fetch::sources;
use crate::vm::kernels::{Kernel, Kernels};
use crate::vm::verdict::Ran;
use crate::vm::world::{World, are_worlds};

/// Beginning of the line of a skipped test.
const START: &str = "skipped: ";

/// Test, or part of a test, that a program skipped, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Skip {
    program: String,
    test: String,
    reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.program, self.test, self.reason)
    }
}

/// Test and reason, if a line says that a test is skipped.
pub(crate) fn parse(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix(START)?.split_once(": ")
}

/// Skips of a run's programs.
pub(crate) fn of_run(ran: &[Ran]) -> BTreeSet<Skip> {
    let of_program = |ran: &Ran| -> Vec<Skip> {
        let skips = ran.output.iter().filter_map(|line| parse(line));
        let skips = skips.map(|(test, reason)| Skip {
            program: ran.name.clone(),
            test: test.to_owned(),
            reason: reason.to_owned(),
        });
        skips.collect()
    };
    ran.iter().flat_map(of_program).collect()
}

/// Expected skips of a run.
#[derive(Debug, Default)]
pub(crate) struct Noted(BTreeSet<Skip>);

impl Noted {
    /// Reads the expected skips of a world on a kernel from the project's table.
    ///
    /// # Errors
    ///
    /// The malformed line.
    pub(crate) fn read(world: World, kernel: &Kernel) -> Result<Self, String> {
        let path = sources().join("skips.txt");
        let text = fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let mut noted = BTreeSet::new();
        for line in rows(&text) {
            let row = row(line).ok_or_else(|| format!("skips.txt: {line:?}"))?;
            if row.worlds.contains(world.letter()) && row.kernels.has(kernel) {
                noted.insert(row.skip);
            }
        }
        Ok(Self(noted))
    }

    /// Prints expected skips that are missing from programs that ran to their end.
    ///
    /// # Errors
    ///
    /// Unexpected skips.
    pub(crate) fn compare(&self, ran: &[Ran]) -> Result<(), String> {
        let found = of_run(ran);
        let has_run = |name: &str| ran.iter().any(|ran| ran.name == name && ran.is_success());
        for skip in self.0.difference(&found).filter(|skip| has_run(&skip.program)) {
            println!("vm: skips.txt: no longer skipped: {skip}");
        }
        let new: Vec<&Skip> = found.difference(&self.0).collect();
        for skip in &new {
            println!("vm: not in skips.txt: {skip}");
        }
        match new.first() {
            None => Ok(()),
            Some(first) => Err(format!("skips that aren't noted: {}, first {first}", new.len())),
        }
    }
}

/// Row of the table: an expected skip.
struct Row {
    worlds: String,
    kernels: Kernels,
    skip: Skip,
}

fn rows(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn row(line: &str) -> Option<Row> {
    let (worlds, rest) = line.split_once(char::is_whitespace)?;
    let (kernels, rest) = rest.trim_start().split_once(char::is_whitespace)?;
    let (program, rest) = rest.trim_start().split_once(char::is_whitespace)?;
    let (test, reason) = rest.trim_start().split_once(": ")?;
    let [program, test, reason] = [program, test, reason].map(str::to_owned);
    are_worlds(worlds).then_some(Row {
        worlds: worlds.to_owned(),
        kernels: Kernels::parse(kernels)?,
        skip: Skip { program, test, reason },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uverbs_vm_init::report::End;

    fn ran(name: &str, output: &[&str]) -> Ran {
        let output = output.iter().map(|&line| line.to_owned()).collect();
        Ran { name: name.to_owned(), output, end: Some((End::Exit(0), 1)) }
    }

    fn noted(text: &str) -> Noted {
        Noted(rows(text).map(|line| row(line).expect("a row").skip).collect())
    }

    #[test]
    fn a_line_names_test_and_reason() {
        assert_eq!(parse("skipped: a::b: why: c"), Some(("a::b", "why: c")));
        for other in ["skipped: why", "skipped", "test a ... skipped: a: why", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_skip_that_is_not_noted_fails() {
        let table = noted("c all p a: why\nc all p b: gone\n# c all p d: no\n");
        let compare = |output: &[&str]| table.compare(&[ran("p", output)]);
        assert_eq!(compare(&["skipped: a: why", "noise", "skipped: a: why"]), Ok(()));
        assert_eq!(compare(&[]), Ok(()));
        for other in ["skipped: a: another", "skipped: c: why", "skipped: d: no"] {
            let new = format!("p {}", other.strip_prefix(START).expect("a skip"));
            assert_eq!(compare(&[other]), Err(format!("skips that aren't noted: 1, first {new}")));
        }
        assert!(table.compare(&[ran("q", &["skipped: a: why"])]).is_err());
    }

    #[test]
    fn a_wrong_row_is_none() {
        for line in ["x all p a: why", "c new p a: why", "c all p a", "c all p", "c all"] {
            assert!(row(line).is_none(), "{line}");
        }
    }

    #[test]
    fn the_table_can_be_read() {
        let text = include_str!("../../../tests/vm/skips.txt");
        assert!(rows(text).count() > 0);
        assert!(rows(text).all(|line| row(line).is_some()));
    }
}
