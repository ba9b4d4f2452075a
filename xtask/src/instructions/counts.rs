//! `cargo xtask counts`: number and kind of the data path's instructions.
//!
//! Time is noisy. callgrind's counts are equal in each run, to the instruction, so an unwanted
//! branch, bounds check or call shows. Counts hold for one compiler; another compiler skips the
//! comparison.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::assembly;
use crate::compiler::{compiler, other_compiler};
use crate::debian::{self, apt};
use crate::step::{Outcome, Steps, cargo, run};

const MINUTES: Duration = Duration::from_secs(60);
/// Allowed difference of a count, as a share.
const TOLERANCE: f64 = 0.02;

/// Runs both steps. `bless` replaces the expected tables.
pub(crate) fn steps(steps: &mut Steps, bless: bool) {
    steps.step("machine code", || machine_code(bless));
    steps.step("instruction counts", || instructions(bless));
}

/// Compares the data path's machine code.
pub(crate) fn machine_code(bless: bool) -> Outcome {
    match program() {
        Ok(program) => assembly::check(&program, &folder().join("x86_64"), bless),
        Err(outcome) => outcome,
    }
}

/// Compares the counts.
pub(crate) fn instructions(bless: bool) -> Outcome {
    match program() {
        Ok(program) => counts(&program, &folder().join("instructions.tsv"), bless),
        Err(outcome) => outcome,
    }
}

/// Folder of the expected tables.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/counts")
}

/// Builds the program, and returns its path.
pub(crate) fn program() -> Result<PathBuf, Outcome> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(Outcome::Skipped("nothing is noted for this kind of machine".to_owned()));
    }
    // The package alone: the tools open more providers, which costs `Any` instructions.
    let mut build = cargo(&["bench", "--package", "uverbs", "--bench", "counts", "--", "--path"]);
    // Flags of the caller, such as a processor's name, would build another program.
    for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"] {
        build.env_remove(flags);
    }
    let output = build.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Outcome::Failed(error.to_string()))?;
    if !output.status.success() {
        return Err(Outcome::Failed(format!("cargo bench: {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(PathBuf::from(text.lines().next_back().unwrap_or_default()))
}

/// Valgrind: the machine's, else Debian's.
fn valgrind() -> Result<Command, Outcome> {
    if apt::is_there("valgrind") {
        return Ok(Command::new("valgrind"));
    }
    let root = debian::unpacked(&debian::target().join("valgrind"), &["valgrind"])?;
    let mut command = Command::new(root.join("usr/bin/valgrind"));
    command.env("VALGRIND_LIB", root.join("usr/libexec/valgrind"));
    Ok(command)
}

/// Instructions per operation, by case and variant.
type Table = BTreeMap<String, f64>;

fn counts(program: &Path, path: &Path, bless: bool) -> Outcome {
    let found = match measure(program) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    if bless {
        return match std::fs::write(path, print(&found)) {
            Ok(()) => Outcome::Counted(format!("{} counts noted", found.len())),
            Err(error) => Outcome::Failed(format!("{}: {error}", path.display())),
        };
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Outcome::Failed(format!("{}: {error}", path.display())),
    };
    if let Some(skipped) = other_compiler(&text) {
        return skipped;
    }
    let expected = match read(&text) {
        Ok(expected) => expected,
        Err(line) => return Outcome::Failed(format!("{}: {line}", path.display())),
    };
    let differences = compare(&expected, &found);
    for line in &differences {
        println!("{line}");
    }
    if differences.is_empty() {
        Outcome::Counted(format!("{} counts within {} %", found.len(), TOLERANCE * 100.0))
    } else {
        let count = differences.len();
        Outcome::Failed(format!("{count} differ (cargo xtask counts --bless, if that is meant)"))
    }
}

/// Runs the program under callgrind.
fn measure(program: &Path) -> Result<Table, Outcome> {
    let out = debian::target().join("counts.callgrind");
    let _ = std::fs::remove_file(&out);
    let mut command = valgrind()?;
    command.args(["--quiet", "--tool=callgrind", "--collect-atstart=no", "--combine-dumps=yes"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(program);
    match run(command, 5 * MINUTES) {
        Outcome::Passed => {}
        other => return Err(other),
    }
    let text = std::fs::read_to_string(&out);
    let text = text.map_err(|error| Outcome::Failed(format!("{}: {error}", out.display())))?;
    parse(&text).map_err(Outcome::Failed)
}

/// Parses callgrind's file: each part has its trigger, which is the name of a case, and the sum of
/// its counts.
fn parse(text: &str) -> Result<Table, String> {
    let mut table = Table::new();
    let mut name = None;
    for line in text.lines() {
        if let Some(trigger) = line.strip_prefix("desc: Trigger: ") {
            name = trigger.strip_prefix("Client Request: ");
        } else if let (Some(sum), Some(named)) = (line.strip_prefix("totals: "), name) {
            name = None;
            let count = named.rsplit_once(' ').and_then(|(case, ops)| {
                Some((case, sum.trim().parse::<f64>().ok()? / ops.parse::<f64>().ok()?))
            });
            let (case, count) = count.ok_or_else(|| format!("not a count: {named}, {line}"))?;
            table.insert(case.replace(' ', "\t"), count);
        }
    }
    if table.is_empty() {
        return Err("callgrind counted nothing".to_owned());
    }
    Ok(table)
}

fn print(table: &Table) -> String {
    let mut text = format!(
        "# Instructions per operation, as callgrind counts them, with the loop around it. \
         `cargo xtask counts --bless` writes this.\n\
         # {}\n",
        compiler()
    );
    for (case, count) in table {
        let _ = writeln!(text, "{case}\t{count:.1}");
    }
    text
}

fn read(text: &str) -> Result<Table, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (case, count) = line.rsplit_once('\t').ok_or(line)?;
            Ok((case.to_owned(), count.parse().map_err(|_| line)?))
        })
        .collect()
}

/// Lines of counts that differ by more than [`TOLERANCE`], are missing, or are new.
fn compare(expected: &Table, found: &Table) -> Vec<String> {
    let mut lines = Vec::new();
    for (case, &was) in expected {
        match found.get(case) {
            None => lines.push(format!("{case}\t{was:.1} -> not counted")),
            // Counts in the table are rounded to a tenth.
            Some(&is) if (is - was).abs() > was * TOLERANCE + 0.05 => {
                let percent = (is / was - 1.0) * 100.0;
                lines.push(format!("{case}\t{was:.1} -> {is:.1} ({percent:+.1} %)"));
            }
            Some(_) => {}
        }
    }
    for (case, is) in found.iter().filter(|(case, _)| !expected.contains_key(*case)) {
        lines.push(format!("{case}\tnot noted -> {is:.1}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_read_and_a_table_written_and_read() {
        let dump = "desc: Trigger: Client Request: poll raw 10\n1 2\ntotals: 445\n\
                    desc: Trigger: Program termination\ntotals: 7\n";
        let table = parse(dump).unwrap();
        assert_eq!(table, Table::from([("poll\traw".to_owned(), 44.5)]));
        assert_eq!(read(&print(&table)).unwrap(), table);
        assert!(parse("totals: 3\n").is_err());
        assert!(read("poll\tmany\n").is_err());
    }

    #[test]
    fn drift_shows_in_both_directions() {
        let table = |count| Table::from([("a".to_owned(), count), ("b".to_owned(), 10.0)]);
        assert!(compare(&table(100.0), &table(101.9)).is_empty());
        assert_eq!(compare(&table(100.0), &table(102.2)).len(), 1);
        assert_eq!(compare(&table(100.0), &table(97.0)).len(), 1);
        assert_eq!(compare(&table(100.0), &Table::from([("c".to_owned(), 1.0)])).len(), 3);
    }

    #[test]
    fn what_is_of_another_compiler_is_skipped() {
        let of_this = format!("# text\n# {}\n", compiler());
        assert!(other_compiler(&of_this).is_none());
        assert!(matches!(other_compiler("# rustc 1.0.0\n"), Some(Outcome::Skipped(_))));
    }
}
