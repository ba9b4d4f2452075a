//! `cargo xtask clients`: public programs on our libraries, by `uverbs run`, each in a separate
//! network, without a kernel's device and without privileges. Compares the outcome of each with
//! `tests/clients/programs.txt`.

mod place;
mod sources;
mod table;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;

use crate::c_stack::c_abi;
use crate::debian::apt::create;
use crate::debian::target;
use crate::step::{Outcome, run};
use place::{GroupRoot, Libraries};
use table::{Expected, Program, Table};

/// Time that a row may take beside its programs' limit: namespaces and the ends of processes.
const AROUND: Duration = Duration::from_secs(20);

/// Options of `cargo xtask clients`.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Run only rows whose name contains this; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run only the rows of the test command.
    #[arg(long)]
    daily: bool,
    /// Run the rows with Debian's libraries on the same device, and compare with the field C.
    #[arg(long)]
    c_libraries: bool,
}

impl Options {
    /// Rows of the test command.
    pub(crate) fn daily() -> Self {
        Self { daily: true, ..Self::default() }
    }

    fn asks_for(&self, program: &Program) -> bool {
        let named = self.only.iter().any(|part| program.name.contains(part));
        (self.only.is_empty() || named) && (program.daily || !self.daily)
    }
}

/// Runs the rows.
pub(crate) fn check(options: &Options) -> Outcome {
    try_check(options).unwrap_or_else(|outcome| outcome)
}

fn try_check(options: &Options) -> Result<Outcome, Outcome> {
    place::has_networks()?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/clients");
    let table = Table::read(&sources.join("programs.txt"))?;
    let libraries = libraries(options)?;
    let logs = target().join("clients/log");
    create(&logs)?;
    let (mut tally, mut places) = (Tally::default(), BTreeMap::new());
    for program in table.programs.iter().filter(|program| options.asks_for(program)) {
        let Some(group) = table.group_of(program) else { continue };
        let place = places.entry(&group.name).or_insert_with(|| GroupRoot::fetch(group));
        let wanted = if options.c_libraries { program.c } else { Some(program.expected) };
        let found = match place {
            Ok(place) => outcome(place, program, &libraries, &logs),
            Err(Outcome::Skipped(why)) => {
                println!("{:<32} skipped: {why}", program.name);
                tally.skipped += 1;
                continue;
            }
            Err(other) => return Err(other.clone()),
        };
        tally.add(program, wanted, found);
    }
    Ok(tally.outcome())
}

/// Lays out our libraries with debug assertions, and returns what the rows use.
fn libraries(options: &Options) -> Result<Libraries, Outcome> {
    let built = c_abi::build_checked()?;
    let folder = target().join("clients/lib");
    let _ = fs::remove_dir_all(&folder);
    c_abi::copy_checked(&built, &folder)?;
    let tool = target().join("debug/uverbs");
    let c = options.c_libraries.then(|| built.with_file_name("libuverbs_c_stack.so"));
    Ok(Libraries { tool, folder, c })
}

/// Runs a row. `Err`: why it fails. The log has its output.
fn outcome(
    place: &GroupRoot,
    program: &Program,
    libraries: &Libraries,
    logs: &Path,
) -> Result<Duration, String> {
    let log = logs.join(format!("{}.txt", program.name));
    let mut command = place.command(program, libraries);
    let opened = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
    let (out, err) = opened.map_err(|error| format!("{}: {error}", log.display()))?;
    command.stdout(out).stderr(err);
    let started = Instant::now();
    let ended = run(command, program.limit + AROUND);
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let printed = |wanted: &String| text.contains(wanted.as_str());
    match ended {
        Outcome::Failed(_) => Err(last_line(&text, &log)),
        _ if program.prints.as_ref().is_none_or(printed) => Ok(started.elapsed()),
        _ => Err(format!("no {:?} in {}", program.prints, log.display())),
    }
}

/// Last line of the output, which `uverbs run` says why it fails in.
fn last_line(text: &str, log: &Path) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    format!("{line} ({})", log.display())
}

/// Outcomes so far.
#[derive(Debug, Default)]
struct Tally {
    as_noted: usize,
    lost: Vec<String>,
    /// Rows that pass although the table says that they fail.
    found: Vec<String>,
    skipped: usize,
}

impl Tally {
    fn add(
        &mut self,
        program: &Program,
        wanted: Option<Expected>,
        found: Result<Duration, String>,
    ) {
        let name = &program.name;
        let said = match &found {
            Ok(took) => format!("ok in {:.1} s", took.as_secs_f64()),
            Err(why) => format!("fails: {why}"),
        };
        let note = match (wanted, &found) {
            (Some(Expected::Ok), Ok(_)) | (Some(Expected::Fails), Err(_)) => {
                self.as_noted += 1;
                ""
            }
            (Some(Expected::Ok), Err(_)) => {
                self.lost.push(name.clone());
                "LOST: "
            }
            (Some(Expected::Fails), Ok(_)) => {
                self.found.push(name.clone());
                "passes although noted as failing: "
            }
            (None, _) => "not noted: ",
        };
        println!("{name:<32} {note}{said}");
    }

    fn outcome(self) -> Outcome {
        let Self { as_noted, lost, found, skipped } = self;
        if as_noted + lost.len() + found.len() == 0 {
            let why = format!("no row ran, {skipped} without their packages");
            return Outcome::Skipped(why);
        }
        let mut counts = format!("{as_noted} as noted");
        if !found.is_empty() {
            counts.push_str(&format!("; note as ok: {}", found.join(", ")));
        }
        if skipped > 0 {
            counts.push_str(&format!("; {skipped} without their packages"));
        }
        match lost.is_empty() {
            true => Outcome::Counted(counts),
            false => Outcome::Failed(format!("lost: {}; {counts}", lost.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(rows: &[(Expected, bool)]) -> String {
        let mut tally = Tally::default();
        for (place, &(expected, passes)) in rows.iter().enumerate() {
            let program = Program {
                name: format!("row{place}"),
                group: String::new(),
                server: None,
                client: String::new(),
                prints: None,
                sockets: false,
                is_root: true,
                limit: Duration::ZERO,
                expected,
                reason: None,
                c: None,
                daily: false,
            };
            let found = passes.then_some(Duration::ZERO).ok_or_else(String::new);
            tally.add(&program, Some(expected), found);
        }
        match tally.outcome() {
            Outcome::Counted(text) => format!("ok: {text}"),
            Outcome::Failed(text) => format!("failed: {text}"),
            Outcome::Skipped(text) => format!("skipped: {text}"),
            Outcome::Passed => "passed".to_owned(),
        }
    }

    #[test]
    fn a_lost_row_fails_and_a_found_one_is_said() {
        use Expected::{Fails, Ok};
        assert_eq!(tally(&[(Ok, true), (Fails, false)]), "ok: 2 as noted");
        assert_eq!(tally(&[(Ok, true), (Fails, true)]), "ok: 1 as noted; note as ok: row1");
        let lost = "failed: lost: row0; 0 as noted; note as ok: row1";
        assert_eq!(tally(&[(Ok, false), (Fails, true)]), lost);
        assert_eq!(tally(&[]), "skipped: no row ran, 0 without their packages");
    }
}
