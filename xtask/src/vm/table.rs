//! Outcomes of rdma-core's suite: tables `tests/vm/pyverbs/*.tsv` and `tests/c-stack/pyverbs.tsv`,
//! and the lines of a run.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::debian::apt::failed;
use crate::step::Outcome;

/// Outcome of a passed test (`tests/vm/suite.py`).
const PASS: &str = "pass";

/// Outcome of a test, with the reason if it did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Recorded {
    outcome: String,
    reason: String,
}

/// Outcomes of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Version of rdma-core.
    version: String,
    kernel: String,
    tests: BTreeMap<String, Recorded>,
}

impl Table {
    /// Parses the suite's output.
    ///
    /// # Errors
    ///
    /// The malformed line, or missing tests.
    pub(crate) fn of_run(version: &str, kernel: &str, output: &str) -> Result<Self, String> {
        let mut table =
            Self { version: version.to_owned(), kernel: kernel.to_owned(), tests: BTreeMap::new() };
        let mut count: Option<usize> = None;
        for line in output.lines() {
            if let Some(number) = line.strip_prefix("count ") {
                count = number.parse().ok();
            } else if let Some(test) = line.strip_prefix("test ") {
                let wrong = || format!("not a test's line: {line:?}");
                let [name, outcome, _, reason] =
                    test.splitn(4, '\t').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
                let reason = plain(reason);
                let entry = Recorded { outcome: outcome.to_owned(), reason };
                if table.tests.insert(name.to_owned(), entry).is_some() {
                    return Err(format!("{name} ran twice"));
                }
            }
        }
        match count {
            // A `--test` that matches no test is a mistake.
            Some(0) => Err("no test ran".to_owned()),
            Some(count) if count == table.tests.len() => Ok(table),
            Some(count) => Err(format!("{} tests of {count} ran", table.tests.len())),
            None => Err("the suite didn't say how many tests it has".to_owned()),
        }
    }

    /// Parses the file.
    ///
    /// # Errors
    ///
    /// The malformed line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut table = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split('\t').collect();
            match words[..] {
                ["rdma-core", version] => table.version = version.to_owned(),
                ["kernel", version] => table.kernel = version.to_owned(),
                [name, outcome, ref reason @ ..] if reason.len() < 2 => {
                    let reason = reason.first().copied().unwrap_or_default().to_owned();
                    let entry = Recorded { outcome: outcome.to_owned(), reason };
                    table.tests.insert(name.to_owned(), entry);
                }
                _ => return Err(format!("{line:?}: no such item")),
            }
        }
        Ok(table)
    }

    /// Text of the file, which `chore` writes.
    pub(crate) fn to_text(&self, chore: &str) -> String {
        let mut text = format!(
            "# What each test of rdma-core's suite comes to: cargo xtask {chore} --bless\n# {}\n\
             rdma-core\t{}\nkernel\t{}\n",
            self.counts(),
            self.version,
            self.kernel
        );
        for (name, Recorded { outcome, reason }) in &self.tests {
            let end = if reason.is_empty() { "" } else { "\t" };
            text.push_str(&format!("{name}\t{outcome}{end}{reason}\n"));
        }
        text
    }

    fn passes(&self, name: &str) -> bool {
        self.tests.get(name).is_some_and(|entry| entry.outcome == PASS)
    }

    /// Counts such as `389 tests: 208 pass, 170 skip`.
    pub(crate) fn counts(&self) -> String {
        let mut counts = BTreeMap::<&str, usize>::new();
        for entry in self.tests.values() {
            *counts.entry(&entry.outcome).or_default() += 1;
        }
        let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|&(outcome, _)| (outcome != PASS, outcome));
        let counts: Vec<String> =
            counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        format!("{} tests: {}", self.tests.len(), counts.join(", "))
    }
}

/// Compares a run with the table at `path`. `bless` replaces the table instead. Tests whose name
/// contains one of `parts` ran; all tests if `parts` is empty.
pub(crate) fn judged(
    found: &Table,
    path: &Path,
    chore: &str,
    bless: bool,
    parts: &[String],
) -> Outcome {
    if bless {
        if !parts.is_empty() {
            return Outcome::Failed("only a whole run can be noted".to_owned());
        }
        let written = path.parent().map_or(Ok(()), fs::create_dir_all);
        return match written.and_then(|()| fs::write(path, found.to_text(chore))) {
            Ok(()) => Outcome::Counted(found.counts()),
            Err(error) => failed(path, &error),
        };
    }
    let noted = match fs::read_to_string(path).map(|text| Table::parse(&text)) {
        Ok(Ok(table)) => table,
        Ok(Err(why)) => return Outcome::Failed(why),
        Err(_) => {
            println!("no table {}: --bless writes it", path.display());
            Table::default()
        }
    };
    compared(&noted, found, parts)
}

/// Prints the outcomes of the C stack's libraries on the same device, from the table at `path`, and
/// the tests that pass only there. Leaves out tests that `parts` excludes from the run.
///
/// # Errors
///
/// The file or line that can't be read.
pub(crate) fn beside(found: &Table, path: &Path, parts: &[String]) -> Result<(), String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("    C's own libraries: not noted ({})", path.display());
            return Ok(());
        }
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let mut of_c = Table::parse(&text)?;
    of_c.tests.retain(|name, _| runs(name, parts));
    println!("    C's own libraries: {} on {}", of_c.counts(), of_c.kernel);
    let lines = behind(&of_c, found);
    println!("    of which {} don't pass here:", lines.len());
    for line in lines {
        println!("    behind   {line}");
    }
    Ok(())
}

/// Tests that pass in `of_c` and not in `found`, with their outcome in `found`.
fn behind(of_c: &Table, found: &Table) -> Vec<String> {
    let names = of_c.tests.keys().filter(|name| of_c.passes(name) && !found.passes(name));
    let told = names.map(|name| match found.tests.get(name) {
        Some(Recorded { outcome, reason }) => format!("{name}: {outcome}: {reason}"),
        None => format!("{name}: gone"),
    });
    told.collect()
}

/// Returns true if a run of these parts has the test.
fn runs(name: &str, parts: &[String]) -> bool {
    parts.is_empty() || parts.iter().any(|part| name.contains(part))
}

/// Reason without addresses and times, which differ between runs. Numbers with more than five
/// digits count as such.
fn plain(reason: &str) -> String {
    let varies = |word: &str| {
        word.starts_with("0x7f") || word.bytes().filter(u8::is_ascii_digit).count() > 5
    };
    let words = reason.split_whitespace().map(|word| if varies(word) { "…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Compares a run with the table. Fails if a test that is noted as passed did not pass. Prints the
/// tests that pass newly.
fn compared(noted: &Table, found: &Table, parts: &[String]) -> Outcome {
    let mut lost = Vec::new();
    for name in noted.tests.keys().filter(|name| runs(name, parts) && noted.passes(name)) {
        match found.tests.get(name) {
            Some(entry) if entry.outcome == PASS => {}
            Some(Recorded { outcome, reason }) => lost.push(format!("{name}: {outcome}: {reason}")),
            // Another version of the suite may lack the test.
            None if noted.version != found.version => println!("    gone     {name}"),
            None => lost.push(format!("{name}: gone")),
        }
    }
    for line in &lost {
        println!("    LOST     {line}");
    }
    let mut gained = 0;
    for (name, entry) in &found.tests {
        let before = noted.tests.get(name);
        let Recorded { outcome, reason } = entry;
        if outcome == PASS && !noted.passes(name) {
            println!("    new      {name}");
            gained += 1;
        } else if outcome != PASS && before != Some(entry) {
            println!("    {outcome:<8} {name}: {reason}");
        }
    }
    match (lost.is_empty(), gained) {
        (true, 0) => return Outcome::Counted(found.counts()),
        (true, _) => {
            let note = format!("{}, {gained} of them new: note them with --bless", found.counts());
            return Outcome::Counted(note);
        }
        (false, _) => {}
    }
    Outcome::Failed(format!(
        "{}, but {} of the noted passes are lost: {}",
        found.counts(),
        lost.len(),
        lost[0]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "count 3\ntest a.B.one\tpass\t12\t\nnoise\n\
        test a.B.two\tskip\t1\tno such\n\
        test a.B.three\terror\t30\tValueError: at 0x7fff12\n| a line of its trace";

    fn of(output: &str) -> Table {
        Table::of_run("65.0", "6.12.1-amd64", output).expect("a run")
    }

    #[test]
    fn a_run_comes_back_from_its_file() {
        let table = of(OUTPUT);
        assert_eq!(table.counts(), "3 tests: 1 pass, 1 error, 1 skip");
        assert_eq!(Table::parse(&table.to_text("vm")), Ok(table.clone()));
        assert_eq!(table.tests["a.B.three"].reason, "ValueError: at …");
    }

    #[test]
    fn a_run_is_whole() {
        for output in [
            "",
            "count 0",
            "test a\tpass\t1\t",
            "count 2\ntest a\tpass\t1\t",
            "count 1\ntest a\tpass",
            "count 2\ntest a\tpass\t1\t\ntest a\tpass\t1\t",
        ] {
            assert!(Table::of_run("65.0", "6.12", output).is_err(), "{output:?}");
        }
    }

    #[test]
    fn a_lost_pass_is_a_failure() {
        let noted = of(OUTPUT);
        let outcome = |output: &str, version: &str, part: &str| {
            let mut found = of(output);
            found.version = version.to_owned();
            let parts: Vec<String> = part.split_whitespace().map(str::to_owned).collect();
            matches!(compared(&noted, &found, &parts), Outcome::Failed(_))
        };
        assert!(!outcome(OUTPUT, "65.0", ""));
        assert!(!outcome(&OUTPUT.replace("skip", "pass"), "65.0", ""));
        for other in ["skip", "fail", "error", "timeout", "crash"] {
            assert!(outcome(&OUTPUT.replace("pass", other), "65.0", ""), "{other}");
        }
        // A test that did not run, in a run of all tests and of some, and in another version.
        let rest = "count 1\ntest a.B.two\tskip\t1\tno such";
        assert!(outcome(rest, "65.0", ""));
        assert!(!outcome(rest, "65.0", "two"));
        assert!(!outcome(rest, "66.0", ""));
    }

    #[test]
    fn what_only_the_other_passes_is_told() {
        let of_c = of(OUTPUT);
        let found = of(&OUTPUT.replace("two\tskip", "two\tpass"));
        assert_eq!(behind(&of_c, &found), [""; 0]);
        assert_eq!(behind(&found, &of_c), ["a.B.two: skip: no such"]);
        let rest = of("count 1\ntest a.B.one\tpass\t1\t");
        assert_eq!(behind(&found, &rest), ["a.B.two: gone"]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        assert_eq!(Table::parse("a"), Err("\"a\": no such item".to_owned()));
        assert_eq!(Table::parse("a\tb\tc\td"), Err("\"a\\tb\\tc\\td\": no such item".to_owned()));
    }
}
