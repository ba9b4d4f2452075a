//! Table of intended differences, each with its reason.

use std::collections::BTreeMap;
use std::path::Path;

use crate::compare::Difference;

/// Keys, and how often each was met.
pub(crate) struct Table {
    entries: BTreeMap<String, usize>,
}

impl Table {
    /// Reads the table: a key per line, its reason indented below, `#` for comments.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut entries = BTreeMap::new();
        let mut without_reason = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if line.starts_with(' ') {
                without_reason.clear();
            } else {
                assert!(entries.insert(line.to_owned(), 0).is_none(), "twice: {line}");
                without_reason.push(line);
            }
        }
        assert!(without_reason.is_empty(), "without a reason: {without_reason:?}");
        Self { entries }
    }

    /// Counts the known differences, and returns the others.
    pub(crate) fn sort(&mut self, differences: Vec<Difference>) -> (usize, Vec<Difference>) {
        let before = differences.len();
        let unknown: Vec<_> = differences
            .into_iter()
            .filter(|difference| match self.entries.get_mut(&difference.key) {
                Some(count) => {
                    *count += 1;
                    false
                }
                None => true,
            })
            .collect();
        (before - unknown.len(), unknown)
    }

    /// Entries that no comparison met.
    pub(crate) fn unused(&self) -> Vec<&str> {
        let unused = self.entries.iter().filter(|(_, count)| **count == 0);
        unused.map(|(key, _)| key.as_str()).collect()
    }
}
