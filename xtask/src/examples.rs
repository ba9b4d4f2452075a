//! `cargo xtask examples`: each example runs, and prints what `examples/README.md` shows.
//!
//! Numbers with a point are measured, and hexadecimal ones name something: both may differ. All
//! else, words and whole numbers, must be the same.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::debian;
use crate::step::{Outcome, cargo, output};
use crate::targets::names;

const README: &str = "examples/README.md";
/// What a block of the README starts with; the rest of the line is the example's name.
const START: &str = "```console\n$ cargo run --example ";
const END: &str = "```\n";

/// Runs all examples, or the one of that name, and compares what they print. With `bless` the
/// README gets what they print.
pub(crate) fn check(only: Option<&str>, bless: bool) -> Outcome {
    try_check(only, bless).unwrap_or_else(|outcome| outcome)
}

fn try_check(only: Option<&str>, bless: bool) -> Result<Outcome, Outcome> {
    let failed = |error: std::io::Error| Outcome::Failed(format!("{README}: {error}"));
    let mut readme = std::fs::read_to_string(README).map_err(failed)?;
    let shown = blocks(&readme);
    if let Some(missing) =
        names(Path::new("examples")).map_err(failed)?.iter().find(|name| !shown.contains(*name))
    {
        return Err(Outcome::Failed(format!("{README} doesn't show what {missing} prints")));
    }
    // As the workspace's tests are, and so mostly built already. What the README shows is measured
    // on optimised programs.
    let (profile, folder) = if bless { ("release", "release") } else { ("dev", "debug") };
    let build = ["build", "--workspace", "--examples", "--profile", profile];
    output(cargo(&build), Duration::from_secs(900))?;
    let programs = debian::target().join(folder).join("examples");
    let device =
        Path::new("/sys/class/infiniband").read_dir().is_ok_and(|mut it| it.next().is_some());
    let (mut count, mut differ) = (0, Vec::new());
    for name in shown.iter().filter(|name| only.is_none_or(|only| only == *name)) {
        let printed = output(Command::new(programs.join(name)), Duration::from_secs(120))?;
        let printed = format!("{}\n", printed.trim_end());
        println!("$ cargo run --example {name}\n{printed}");
        count += 1;
        let Some((start, end)) = place(&readme, name) else {
            return Err(Outcome::Failed(format!("{README}: the block of {name} has no end")));
        };
        if bless {
            readme.replace_range(start..end, &printed);
        } else if !device && plain(&readme[start..end]) != plain(&printed) {
            differ.push(name.as_str());
        }
    }
    if bless {
        std::fs::write(README, readme).map_err(failed)?;
    }
    match (count, differ.as_slice()) {
        (0, _) => Err(Outcome::Failed(format!("no example {}", only.unwrap_or_default()))),
        (_, []) if device => Ok(Outcome::Counted(format!("{count} ran, on this machine's device"))),
        (_, []) => Ok(Outcome::Counted(format!("{count} examples"))),
        (_, differ) => Err(Outcome::Failed(format!(
            "{README} shows something else for {}; `cargo xtask examples --bless` replaces it",
            differ.join(", ")
        ))),
    }
}

/// The examples whose output the README shows.
fn blocks(readme: &str) -> BTreeSet<String> {
    let starts = readme.split(START).skip(1);
    starts.filter_map(|block| Some(block.lines().next()?.to_owned())).collect()
}

/// Where the README shows what an example prints.
fn place(readme: &str, name: &str) -> Option<(usize, usize)> {
    let head = format!("{START}{name}\n");
    let start = readme.find(&head)? + head.len();
    let end = start + readme[start..].find(END)?;
    Some((start, end))
}

/// The words of a text, with a mark for what may differ.
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

    const TEXT: &str = "# A\n```console\n$ cargo run --example one\nQP 0x40 took 1.25 us\n```\n\
                        ```console\n$ cargo run --example two\n2\n```\n";

    #[test]
    fn blocks_are_found_by_name() {
        assert_eq!(blocks(TEXT), ["one".to_owned(), "two".to_owned()].into());
        let (start, end) = place(TEXT, "two").unwrap();
        assert_eq!(&TEXT[start..end], "2\n");
        assert_eq!(place(TEXT, "tw"), None);
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
