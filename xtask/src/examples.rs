//! `cargo xtask examples`: each example runs, and prints what its file in `examples/output` has.
//!
//! Numbers with a point are measured, and hexadecimal numbers are keys or addresses: both may
//! differ. Words and whole numbers must be equal.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, cargo, output, wait};
use crate::targets::names;

const EXAMPLES: &str = "examples";
/// Folders of the examples that the README lists.
const FOLDERS: [&str; 3] = [EXAMPLES, "adapters/streams/examples", "adapters/tokio/examples"];

/// Examples that also run as a server and a client, and words of the server.
const TWO_SIDED: [(&str, &[&str]); 6] = [
    ("connect_by_address", &["server"]),
    ("datagrams", &["server"]),
    ("endpoints", &["server"]),
    ("http", &["server"]),
    ("rc_tcp", &["server", "127.0.0.1:0"]),
    ("streams", &["server"]),
];

/// Limit of an example.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs all examples, or the example `only`, and compares their output with the files. `bless`
/// replaces the files instead.
pub(crate) fn check(only: Option<&str>, bless: bool) -> Outcome {
    try_check(only, bless).unwrap_or_else(|outcome| outcome)
}

fn try_check(only: Option<&str>, bless: bool) -> Result<Outcome, Outcome> {
    let failed = |path: &Path, error: std::io::Error| {
        Outcome::Failed(format!("{}: {error}", path.display()))
    };
    let mut all = BTreeSet::new();
    for folder in FOLDERS.map(Path::new) {
        all.extend(names(folder).map_err(|error| failed(folder, error))?);
    }
    let readme = Path::new(EXAMPLES).join("README.md");
    let page = std::fs::read_to_string(&readme).map_err(|error| failed(&readme, error))?;
    if let Some(missing) = all.iter().find(|name| !lists(&page, name)) {
        return Err(Outcome::Failed(format!("{} doesn't list {missing}", readme.display())));
    }
    // The workspace's tests use the dev profile, so most of it is built already. The files have
    // figures of optimised programs.
    let (profile, built) = if bless { ("release", "release") } else { ("dev", "debug") };
    let build = ["build", "--workspace", "--examples", "--profile", profile];
    output(cargo(&build), Duration::from_secs(900))?;
    let programs = debian::target().join(built).join("examples");
    let device =
        Path::new("/sys/class/infiniband").read_dir().is_ok_and(|mut it| it.next().is_some());
    let (mut count, mut differ) = (0, Vec::new());
    for name in all.iter().filter(|name| only.is_none_or(|only| only == *name)) {
        let printed = output(Command::new(programs.join(name)), LIMIT)?;
        let printed = format!("{}\n", printed.trim_end());
        println!("$ cargo run --example {name}\n{printed}");
        count += 1;
        let noted = noted(name);
        if bless {
            std::fs::write(&noted, printed).map_err(|error| failed(&noted, error))?;
        } else {
            let expected =
                std::fs::read_to_string(&noted).map_err(|error| failed(&noted, error))?;
            if !device && plain(&expected) != plain(&printed) {
                differ.push(name.as_str());
            }
        }
    }
    for (name, server) in TWO_SIDED.iter().filter(|(name, _)| only.is_none_or(|only| only == *name))
    {
        in_two_processes(&programs.join(name), server)?;
    }
    match (count, differ.as_slice()) {
        (0, _) => Err(Outcome::Failed(format!("no example {}", only.unwrap_or_default()))),
        (_, []) if device => Ok(Outcome::Counted(format!("{count} ran, on this machine's device"))),
        (_, []) => Ok(Outcome::Counted(format!("{count} examples"))),
        (_, differ) => Err(Outcome::Failed(format!(
            "{EXAMPLES}/output has something else for {}; `cargo xtask examples --bless` replaces \
             it",
            differ.join(", ")
        ))),
    }
}

/// Runs an example in two processes: a server, and a client that gets the address which the server
/// prints first, behind "at".
fn in_two_processes(program: &Path, words: &[&str]) -> Result<(), Outcome> {
    let failed = |what: &str| Outcome::Failed(format!("{}: {what}", program.display()));
    let mut server = Command::new(program);
    server.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = server.spawn().map_err(|error| failed(&error.to_string()))?;
    let stdout = BufReader::new(server.stdout.take().expect("it is a pipe"));
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let first = lines.recv_timeout(LIMIT).unwrap_or_default();
    let client = match first.rsplit_once(" at ") {
        None => Err(failed(&format!("the server prints no address: {first:?}"))),
        Some((_, at)) => {
            let mut client = Command::new(program);
            client.args(["client", at]);
            output(client, LIMIT)
        }
    };
    if client.is_err() {
        let _ = server.kill();
    }
    let ended = wait(server, LIMIT);
    let rest: Vec<String> = lines.iter().collect();
    println!("{first}\n{}\n{}", rest.join("\n"), client?.trim_end());
    match ended {
        Outcome::Failed(why) => Err(failed(&format!("the server: {why}"))),
        _ => Ok(()),
    }
}

/// File with the output that an example is expected to print.
fn noted(name: &str) -> PathBuf {
    Path::new(EXAMPLES).join("output").join(format!("{name}.txt"))
}

/// Returns true if the README's table has a row of this example.
fn lists(readme: &str, name: &str) -> bool {
    readme.lines().any(|line| line.starts_with('|') && line.contains(&format!("[{name}](")))
}

/// Words of a text, with a mark for each number that may differ.
fn plain(text: &str) -> Vec<String> {
    let word = |word: &str| {
        let measured = word.starts_with(|first: char| first.is_ascii_digit())
            && word.trim_end_matches(|last: char| !last.is_ascii_digit()).contains('.');
        let line = word.chars().all(|letter| letter == '-');
        match () {
            () if word.contains("0x") || measured => "#".to_owned(),
            () if line => "-".to_owned(),
            () => word.to_owned(),
        }
    };
    text.lines()
        .flat_map(|line| line.split_whitespace().map(word).chain(["\n".to_owned()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_listed_by_a_row_of_its_name() {
        let page = "see [two](two.rs)\n| [one](one.rs) | sends |\n";
        assert!(lists(page, "one"));
        assert!(!lists(page, "on") && !lists(page, "two"));
    }

    #[test]
    fn measured_numbers_and_identities_may_differ_and_nothing_else() {
        let shown = "QP 0x40 took 1.25 us";
        for (printed, same) in [
            ("QP  0x1f took 88.1 us", true),
            ("QP 0x40 took 1 us", false),
            ("QP 0x40 took 1.25 ms", false),
            ("QP 0x40 took\n1.25 us", false),
        ] {
            assert_eq!(plain(printed) == plain(shown), same, "{printed}");
        }
        assert_eq!(plain("a\n---  -----"), plain("a\n-  -"));
        assert_ne!(plain("2 used"), plain("3 used"));
        assert_eq!(plain("3.1x"), plain("12.0x"));
    }
}
