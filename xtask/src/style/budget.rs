//! Budget: findings that folders may still have, by rule. It may only go down.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::finding::{Finding, Rule};

/// Head of the file.
const HEAD: &str = "\
# Findings of `cargo xtask style` that a folder may have: FOLDER RULE WEIGHT.
# More fails. Fewer is lowered by `cargo xtask style --bless`, which lets no rule's sum rise.
";

/// Command that lowers budgets.
const BLESS: &str = "cargo xtask style --bless";

/// Weight of the findings by folder and rule.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget(BTreeMap<(String, Rule), usize>);

/// Findings against a budget.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    exceeded: BTreeSet<(String, Rule)>,
    /// One line for each budget that does not fit.
    pub(crate) told: Vec<String>,
}

impl Differences {
    /// Returns true if the finding's folder has more than its budget.
    pub(crate) fn over(&self, found: &Finding) -> bool {
        self.exceeded.contains(&(found.folder().to_owned(), found.rule))
    }
}

impl Budget {
    /// Weights of the findings.
    pub(crate) fn of(found: &[Finding]) -> Self {
        let mut budget = Self::default();
        for one in found {
            *budget.0.entry((one.folder().to_owned(), one.rule)).or_default() += one.weight;
        }
        budget
    }

    /// Parses the file.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut budget = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let parsed = match words[..] {
                [folder, rule, weight] => {
                    Rule::named(rule).zip(weight.parse().ok()).map(|pair| (folder, pair))
                }
                _ => None,
            };
            let Some((folder, (rule, weight))) = parsed else {
                return Err(format!("{}: expected FOLDER RULE WEIGHT: {line}", super::BUDGET));
            };
            budget.0.insert((folder.to_owned(), rule), weight);
        }
        Ok(budget)
    }

    /// Compares the budget with the actual findings.
    pub(crate) fn compare(&self, actual: &Self) -> Differences {
        let mut differences = Differences::default();
        let keys: BTreeSet<_> = self.0.keys().chain(actual.0.keys()).collect();
        for key in keys {
            let of = |budget: &Self| budget.0.get(key).copied().unwrap_or(0);
            let (allowed, actual) = (of(self), of(actual));
            let todo = match actual.cmp(&allowed) {
                Ordering::Equal => continue,
                Ordering::Less => format!("lower it: {BLESS}"),
                Ordering::Greater => format!("mend it, or, if only files moved, {BLESS}"),
            };
            if actual > allowed {
                differences.exceeded.insert(key.clone());
            }
            let (folder, rule) = (&key.0, key.1.name());
            differences.told.push(format!("{folder}: {rule}: {actual}, budget {allowed}: {todo}"));
        }
        differences
    }

    /// Text of the file with these weights. Findings may move between folders.
    ///
    /// # Errors
    ///
    /// A rule whose sum would rise.
    pub(crate) fn blessed(&self, old: Option<&Self>) -> Result<String, String> {
        for rule in Rule::ALL {
            let sum = |budget: &Self| -> usize {
                budget.0.iter().filter(|((_, of), _)| *of == rule).map(|(_, weight)| weight).sum()
            };
            let (new, old) = (sum(self), old.map_or(usize::MAX, sum));
            if new > old {
                return Err(format!(
                    "{}: {new} findings, budget {old}: `cargo xtask style` lists where",
                    rule.name()
                ));
            }
        }
        let mut text = HEAD.to_owned();
        for ((folder, rule), weight) in &self.0 {
            let _ = writeln!(text, "{folder} {} {weight}", rule.name());
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(text: &str) -> Budget {
        Budget::parse(text).unwrap()
    }

    #[test]
    fn more_fails_and_fewer_asks_for_a_blessing() {
        let noted = budget("# head\na/b turn 2\nc columns 1\n");
        let turn = Finding::new(Rule::Turn, "a/b/c.rs", 1, "x");
        let columns = Finding::new(Rule::Columns, "c/d.rs", 1, "x");
        let fits = noted.compare(&Budget::of(&[turn.clone(), turn.clone(), columns.clone()]));
        assert_eq!(fits.told, [""; 0]);
        let more = noted.compare(&Budget::of(&[&turn; 3].map(Clone::clone)));
        assert!(more.told[0].starts_with("a/b: turn: 3, budget 2"), "{more:?}");
        assert!(more.told[1].contains("c: columns: 0, budget 1: lower"), "{more:?}");
        assert!(more.over(&turn) && !more.over(&columns));
    }

    #[test]
    fn a_blessing_moves_and_lowers_and_never_raises() {
        let old = budget("a turn 2\nb turn 1\n");
        let moved = budget("c turn 3\n");
        let text = moved.blessed(Some(&old)).unwrap();
        assert_eq!(budget(&text), moved);
        assert!(text.ends_with("\nc turn 3\n"), "{text}");
        assert!(budget("c turn 4\n").blessed(Some(&old)).unwrap_err().contains("turn: 4"));
        assert!(budget("c columns 1\n").blessed(Some(&old)).is_err());
        assert!(budget("c turn 4\n").blessed(None).is_ok());
    }

    #[test]
    fn weights_are_summed_by_folder() {
        let long = Finding { weight: 7, ..Finding::new(Rule::FileLines, "README.md", 1, "x") };
        assert_eq!(Budget::of(&[long.clone(), long]), budget(". file-lines 14\n"));
        assert!(Budget::parse("a turn\n").is_err());
        assert!(Budget::parse("a turns 1\n").is_err());
    }
}
