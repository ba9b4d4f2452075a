//! `cargo xtask style`: words, lengths, folders and imports, as CONTRIBUTING.md lists them.
//!
//! A finding is paid for by a line of `xtask/style/exceptions.txt`, which has its reason, or by the
//! budget of its folder and rule in `xtask/style/budget.txt`, which may only go down.

mod budget;
mod circles;
mod exceptions;
mod files;
mod finding;
mod items;
mod lengths;
mod lexer;
mod modules;
mod paths;
mod prose;
mod subjects;
mod words;

use std::path::Path;

use clap::Args;

use crate::step::Outcome;

use budget::Budget;
use exceptions::Exceptions;
use files::File;
use finding::{Finding, Rule};
use items::TestLines;
use modules::Source;

/// Exceptions, each with its reason.
const EXCEPTIONS: &str = "xtask/style/exceptions.txt";
/// Findings that folders may have.
const BUDGET: &str = "xtask/style/budget.txt";

/// Options of `cargo xtask style`.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Lower the budgets to what is found.
    #[arg(long)]
    bless: bool,
    /// List all findings of these files and folders, within the budget or not.
    #[arg(value_name = "PATH", conflicts_with = "bless", value_parser = existing)]
    paths: Vec<String>,
}

/// Path of a file or folder, as a word of the command line.
fn existing(path: &str) -> Result<String, String> {
    match Path::new(path).exists() {
        true => Ok(path.to_owned()),
        false => Err("no such file or folder".to_owned()),
    }
}

/// Compares the findings with exceptions and budgets, or lists the findings of some paths.
pub(crate) fn check(options: &Options) -> Outcome {
    match run(options) {
        Ok(counted) => Outcome::Counted(counted),
        Err(why) => Outcome::Failed(why),
    }
}

fn run(options: &Options) -> Result<String, String> {
    let read =
        |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let files = files::read(Path::new(".")).map_err(|error| format!("reading files: {error}"))?;
    let mut found = findings(&files);
    found.extend(subjects::of_branch());
    let exceptions = Exceptions::parse(&read(EXCEPTIONS)?)?;
    let (mut found, unneeded) = exceptions.apply(found);
    if !options.paths.is_empty() {
        found.retain(|one| options.paths.iter().any(|path| is_in(&one.path, path)));
        return told(&found, &[], &counts(&found));
    }
    let actual = Budget::of(&found);
    if options.bless {
        let old =
            std::fs::read_to_string(BUDGET).ok().map(|text| Budget::parse(&text)).transpose()?;
        let text = actual.blessed(old.as_ref())?;
        std::fs::write(BUDGET, text).map_err(|error| format!("{BUDGET}: {error}"))?;
        return told(&[], &unneeded, &counts(&found));
    }
    let differences = Budget::parse(&read(BUDGET)?)?.compare(&actual);
    let counted = counts(&found);
    found.retain(|one| differences.over(one));
    told(&found, &[unneeded, differences.told].concat(), &counted)
}

/// Prints findings, complaints that are about no line, and the counts.
fn told(found: &[Finding], complaints: &[String], counts: &str) -> Result<String, String> {
    found.iter().for_each(|one| println!("{one}"));
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    println!("{counts}");
    match found.is_empty() && complaints.is_empty() {
        true => Ok(counts.to_owned()),
        false => Err(format!("{} findings, {} complaints", found.len(), complaints.len())),
    }
}

/// Findings of each rule: `first-word 12, turn 3`.
fn counts(found: &[Finding]) -> String {
    let count = |rule: Rule| found.iter().filter(|one| one.rule == rule).count();
    let each =
        Rule::ALL.into_iter().map(|rule| (rule, count(rule))).filter(|&(_, count)| count > 0);
    let each: Vec<_> = each.map(|(rule, count)| format!("{} {count}", rule.name())).collect();
    if each.is_empty() { "no findings".to_owned() } else { each.join(", ") }
}

/// Returns true if a path is this file or folder, or in it.
fn is_in(path: &str, folder: &str) -> bool {
    let folder = folder.trim_start_matches("./").trim_end_matches('/');
    matches!(folder, "" | ".")
        || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Findings of all rules about files, in the order of their places.
fn findings(files: &[File]) -> Vec<Finding> {
    let rust: Vec<&File> = files.iter().filter(|file| file.is_rust()).collect();
    let tokens: Vec<_> = rust.iter().map(|file| lexer::tokens(&file.text)).collect();
    let codes: Vec<_> = tokens.iter().map(|tokens| lexer::code(tokens)).collect();
    let sources: Vec<_> = rust
        .iter()
        .zip(&codes)
        .map(|(file, code)| Source { path: &file.path, items: items::items(code) })
        .collect();
    let (crates, only_tests) = modules::crates(&sources);
    let mut found = lengths::folders(files);
    found.extend(circles::circles(&sources, &crates));
    for (at, source) in sources.iter().enumerate() {
        for comment in prose::comments(&tokens[at]) {
            found.extend(words::first_word(rust[at], &comment));
            found.extend(words::turns(rust[at], &comment));
        }
        let all = only_tests.contains(&at).then(TestLines::all);
        let tests = all.as_ref().unwrap_or(&source.items.tests);
        found.extend(lengths::functions(source.path, &codes[at], tests));
        found.extend(paths::attributes(source));
    }
    for file in files {
        found.extend(words::names(file));
        if file.is_markdown() {
            found.extend(words::turns(file, &prose::markdown(&file.text)));
        }
        if file.is_rust() {
            found.extend(lengths::file(file));
        }
        if file.is_rust() || file.is_markdown() {
            found.extend(lengths::columns(file));
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::files::file;
    use super::*;

    fn rules(files: &[File]) -> Vec<Rule> {
        let mut rules: Vec<_> = findings(files).iter().map(|one| one.rule).collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    #[test]
    fn every_rule_about_files_is_checked() {
        let lines = "\n".repeat(601);
        let mut broken = vec![
            file("README.md", "Nobody, see /work/x.\n"),
            file("a/src/lib.rs", "mod a; mod b; mod c; mod d;\n#[path = \"../e.rs\"]\nmod e;\n"),
            file("a/src/a.rs", &format!("//! What it is.\nuse crate::b;\nfn f() {{{lines}}}\n")),
            file("a/src/b.rs", &format!("use crate::c; // {}\n", "x".repeat(100))),
            file("a/src/c.rs", "use crate::d;\n"),
            file("a/src/d.rs", "use crate::a;\n"),
        ];
        broken.extend((0..26).map(|n| file(&format!("a/row/{n}.rs"), "")));
        let wanted: Vec<_> = Rule::ALL.into_iter().filter(|&rule| rule != Rule::Subject).collect();
        assert_eq!(rules(&broken), wanted);
        let mended = [
            file("README.md", "No reader, see docs/x.\n"),
            file("a/src/lib.rs", "mod a; mod b; mod c; mod d;\n"),
            file("a/src/a.rs", "//! Kind of letter.\nuse crate::b;\nfn f() {}\n"),
            file("a/src/b.rs", "use crate::c;\n"),
            file("a/src/c.rs", "use crate::d;\n"),
            file("a/src/d.rs", "use std::fmt;\n"),
        ];
        assert_eq!(rules(&mended), []);
    }

    #[test]
    fn a_test_file_may_have_long_functions() {
        let long = format!("fn f() {{{}}}\n", "\n".repeat(90));
        let of = |path: &str, root: &str| rules(&[file("a/src/lib.rs", root), file(path, &long)]);
        assert_eq!(of("a/src/b.rs", "mod b;\n"), [Rule::FunctionLines]);
        assert_eq!(of("a/src/b.rs", "#[cfg(test)]\nmod b;\n"), []);
        assert_eq!(of("a/tests/b.rs", ""), []);
    }

    #[test]
    fn paths_select_files_and_folders() {
        assert!(is_in("a/b/c.rs", "a/b") && is_in("a/b/c.rs", "./a/b/") && is_in("a/b", "a/b"));
        assert!(is_in("a/b/c.rs", ".") && is_in("a/b/c.rs", "a/b/c.rs"));
        assert!(!is_in("a/bc/d.rs", "a/b"));
    }
}
