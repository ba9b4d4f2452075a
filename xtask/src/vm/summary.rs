//! Tables at a run's end: passed programs and skipped tests by world and kernel, and the slowest
//! programs.

use std::fmt::Write as _;

use crate::vm::machine::Showed;
use crate::vm::skips;
use crate::vm::world::World;

/// Number of slowest programs to name.
const SLOWEST: usize = 5;

/// Counts of a world on a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    world: World,
    /// Name from the command line: `6.12`, `newest`.
    kernel: String,
    result: Result<Counts, &'static str>,
}

/// Counts of a machine that ran.
#[derive(Clone, Debug)]
struct Counts {
    passed: usize,
    all: usize,
    /// Skipped tests, inside programs.
    skipped: usize,
    /// True if the whole run failed, whatever its programs did.
    is_failure: bool,
    /// Programs with their milliseconds.
    took: Vec<(String, u64)>,
}

impl Tally {
    /// Counts of a boot's result; `word` is for a machine that never ran.
    pub(crate) fn new(
        world: World,
        kernel: &str,
        showed: Option<&Showed>,
        word: &'static str,
    ) -> Self {
        let result = showed.ok_or(word).map(|showed| {
            let ran = &showed.ran[usize::from(showed.has_setup).min(showed.ran.len())..];
            let took = ran.iter().filter_map(|ran| Some((ran.name.clone(), ran.end?.1)));
            Counts {
                passed: ran.iter().filter(|ran| ran.is_success()).count(),
                all: ran.len(),
                skipped: skips::of_run(ran).len(),
                is_failure: showed.failure.is_some(),
                took: took.collect(),
            }
        });
        Self { world, kernel: kernel.to_owned(), result }
    }

    /// Number of passed programs, for the table.
    fn passed(&self) -> String {
        match &self.result {
            Err(word) => (*word).to_owned(),
            Ok(Counts { passed, all, is_failure: false, .. }) if passed == all => {
                format!("{passed} of {all}")
            }
            Ok(Counts { passed, all, .. }) => format!("{passed} of {all} FAILED"),
        }
    }

    /// Number of skipped tests, for the table.
    fn skipped(&self) -> String {
        self.result.as_ref().map_or_else(|_| String::new(), |counts| counts.skipped.to_string())
    }
}

/// Tables of worlds by kernels, the sum, and the slowest programs; empty without runs.
pub(crate) fn table(tallies: &[Tally]) -> String {
    if tallies.is_empty() {
        return String::new();
    }
    let mut text = grid("programs that passed", tallies, Tally::passed);
    if tallies.iter().all(|tally| tally.result.is_err()) {
        return text;
    }
    text.push('\n');
    text.push_str(&grid("tests that were skipped", tallies, Tally::skipped));
    text.push('\n');
    text.push_str(&times(tallies));
    text
}

/// Table of worlds by kernels, under a title.
fn grid(title: &str, tallies: &[Tally], cell: fn(&Tally) -> String) -> String {
    let mut kernels: Vec<&str> = Vec::new();
    for tally in tallies {
        if !kernels.contains(&&*tally.kernel) {
            kernels.push(&tally.kernel);
        }
    }
    let at = |world: World, kernel: &str| {
        let found = tallies.iter().find(|tally| tally.world == world && tally.kernel == kernel);
        found.map_or_else(String::new, cell)
    };
    let width = tallies.iter().map(|tally| cell(tally).len().max(tally.kernel.len())).max();
    let width = width.unwrap_or_default();
    let mut lines = vec![format!("{title:<30}")];
    // Writing to a string can't fail.
    for kernel in &kernels {
        let _ = write!(lines[0], "  {kernel:<width$}");
    }
    for world in World::ALL.into_iter().filter(|&world| tallies.iter().any(|t| t.world == world)) {
        let mut line = format!("world {}, {:<21}", world.letter(), world.words());
        for kernel in &kernels {
            let _ = write!(line, "  {:<width$}", at(world, kernel));
        }
        lines.push(line);
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// Sum of the times, and the slowest programs.
fn times(tallies: &[Tally]) -> String {
    let ran: Vec<(&Tally, &Counts)> =
        tallies.iter().filter_map(|tally| Some((tally, tally.result.as_ref().ok()?))).collect();
    let sum = |which: fn(&Counts) -> usize| ran.iter().map(|(_, counts)| which(counts)).sum();
    let (passed, all): (usize, usize) = (sum(|counts| counts.passed), sum(|counts| counts.all));
    let skipped: usize = sum(|counts| counts.skipped);
    let mut took: Vec<(u64, String)> = Vec::new();
    for (tally, counts) in &ran {
        let place = format!("{} on {}", tally.world.letter(), tally.kernel);
        took.extend(counts.took.iter().map(|(name, ms)| (*ms, format!("{name} ({place})"))));
    }
    took.sort_unstable_by(|a, b| b.cmp(a));
    let slowest = took.iter().take(SLOWEST);
    let slowest: Vec<String> =
        slowest.map(|(ms, name)| format!("{name} {:.0} s", *ms as f64 / 1000.0)).collect();
    let seconds = took.iter().map(|(ms, _)| ms).sum::<u64>() / 1000;
    format!(
        "{passed} of {all} programs passed, {skipped} tests skipped, {seconds} s in all; \
         the slowest: {}",
        slowest.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::verdict::{Failure, Ran};
    use uverbs_vm_init::report::End;

    fn showed(ends: &[(&str, i32, u64)], failure: Option<Failure>) -> Showed {
        let ran = |&(name, status, ms): &(&str, i32, u64)| Ran {
            name: name.to_owned(),
            output: vec!["skipped: a::b: no such device".to_owned()],
            end: Some((End::Exit(status), ms)),
        };
        Showed { ran: ends.iter().map(ran).collect(), failure, has_setup: true }
    }

    #[test]
    fn worlds_by_kernels() {
        let good = showed(&[("set-up", 0, 9000), ("a", 0, 1000), ("b", 0, 3000)], None);
        let bad = showed(&[("set-up", 0, 1), ("a", 1, 2000)], None);
        let dead = showed(&[("set-up", 0, 1), ("a", 0, 500)], Some(Failure::NoVerdict));
        let tallies = [
            Tally::new(World::B, "6.1", Some(&good), ""),
            Tally::new(World::B, "newest", Some(&bad), ""),
            Tally::new(World::E, "6.1", Some(&dead), ""),
            Tally::new(World::E, "newest", None, "skipped"),
        ];
        assert_eq!(
            table(&tallies),
            "programs that passed            6.1            newest\n\
             world b, mlx5, InfiniBand       2 of 2         0 of 1 FAILED\n\
             world e, mlx5, Ethernet         1 of 1 FAILED  skipped\n\
             tests that were skipped         6.1     newest\n\
             world b, mlx5, InfiniBand       2       1\n\
             world e, mlx5, Ethernet         1\n\
             3 of 4 programs passed, 4 tests skipped, 6 s in all; the slowest: b (b on 6.1) 3 s, \
             a (b on newest) 2 s, a (b on 6.1) 1 s, a (e on 6.1) 0 s"
        );
        assert_eq!(table(&[]), "");
        let none = [Tally::new(World::C, "6.12", None, "FAILED")];
        assert_eq!(
            table(&none),
            "programs that passed            6.12\nworld c, rxe                    FAILED"
        );
    }
}
