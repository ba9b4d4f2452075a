//! Commit subjects of the branch.

use std::process::{Command, Stdio};

use super::finding::{Finding, Rule};

/// Characters of a subject.
const CHARACTERS: usize = 72;
/// Commits that `origin/main` does not have, as `hash subject`.
const LOG: [&str; 5] = ["log", "--no-merges", "--abbrev=12", "--format=%h %s", "origin/main..HEAD"];

/// Subjects of the branch that are too long. Without `git`, history or `origin/main` there are no
/// commits to check.
pub(crate) fn of_branch() -> Vec<Finding> {
    let mut git = Command::new("git");
    git.args(LOG).stdin(Stdio::null()).stderr(Stdio::null());
    match git.output() {
        Ok(output) if output.status.success() => long(&String::from_utf8_lossy(&output.stdout)),
        _ => Vec::new(),
    }
}

/// Findings of a log.
fn long(log: &str) -> Vec<Finding> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let long = commits.filter(|(_, subject)| subject.chars().count() > CHARACTERS);
    long.map(|(hash, subject)| {
        let text = format!("{} characters, limit {CHARACTERS}: {subject}", subject.chars().count());
        Finding::new(Rule::Subject, hash, 1, text)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::shown;
    use super::*;

    #[test]
    fn subjects_have_a_limit() {
        let (fits, wide) = ("é".repeat(72), "é".repeat(73));
        let broken = long(&format!("0a1b {fits}\n2c3d {wide}\n"));
        assert_eq!(shown(&broken), [format!("2c3d:1: 73 characters, limit 72: {wide}")]);
        assert_eq!(long(&format!("0a1b {fits}\n")), []);
    }
}
