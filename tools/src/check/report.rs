//! Rows of a check, and their report.

use std::fmt::Write as _;

use serde::Serialize;

use crate::base::error::Error;
use crate::base::table::Table;

/// Judgement of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// It works, or is as it should be.
    Good,
    /// It may limit programs.
    Limited,
    /// It failed.
    Failed,
    /// It could not be tried.
    Untried,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Limited => "note",
            Self::Failed => "FAILED",
            Self::Untried => "not tried",
        }
    }
}

/// One fact, or one thing that was tried.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// Part of the report.
    part: &'static str,
    name: String,
    verdict: Verdict,
    /// Value, or reason.
    text: String,
}

impl Row {
    fn new(part: &'static str, name: &str, verdict: Verdict, text: impl Into<String>) -> Self {
        Self { part, name: name.to_owned(), verdict, text: text.into() }
    }

    pub(super) fn good(part: &'static str, name: &str, text: impl Into<String>) -> Self {
        Self::new(part, name, Verdict::Good, text)
    }

    pub(super) fn limited(part: &'static str, name: &str, text: impl Into<String>) -> Self {
        Self::new(part, name, Verdict::Limited, text)
    }

    pub(super) fn failed(part: &'static str, name: &str, text: impl Into<String>) -> Self {
        Self::new(part, name, Verdict::Failed, text)
    }

    pub(super) fn untried(part: &'static str, name: &str, text: impl Into<String>) -> Self {
        Self::new(part, name, Verdict::Untried, text)
    }

    /// Row of something that ended in an error: what device or library lacks was not tried.
    pub(super) fn of_error(part: &'static str, name: &str, error: &Error) -> Self {
        let lacks = match error {
            Error::Refused { .. } | Error::Argument { .. } => true,
            Error::Verb(error) => matches!(error, uverbs::Error::Unsupported { .. }),
            _ => false,
        };
        match lacks {
            true => Self::untried(part, name, error.to_string()),
            false => Self::failed(part, name, error.to_string()),
        }
    }
}

/// A finished check.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    kind: &'static str,
    version: &'static str,
    device: &'a str,
    good: usize,
    limited: usize,
    failed: usize,
    untried: usize,
    rows: Vec<Row>,
}

impl<'a> Report<'a> {
    pub(super) fn new(device: &'a str, rows: Vec<Row>) -> Self {
        let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
        Self {
            kind: "uverbs-check",
            version: env!("CARGO_PKG_VERSION"),
            device,
            good: count(Verdict::Good),
            limited: count(Verdict::Limited),
            failed: count(Verdict::Failed),
            untried: count(Verdict::Untried),
            rows,
        }
    }

    /// The page for people: a table a part, and the counts.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut rows = &self.rows[..];
        while let Some(first) = rows.first() {
            let len = rows.iter().take_while(|row| row.part == first.part).count();
            let mut table = Table::new(&[first.part, "verdict", ""], &[]);
            for row in &rows[..len] {
                // The verdict stands before a text of any length.
                let cells = [row.name.as_str(), row.verdict.word(), row.text.as_str()];
                table.row(cells.map(str::to_owned));
            }
            text.push_str(&table.text("", "  ", &[24, 9]));
            text.push('\n');
            rows = &rows[len..];
        }
        let Self { device, good, limited, failed, untried, .. } = self;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{device}: {good} ok, {limited} to note, {failed} failed, {untried} not tried"
        );
        text
    }

    /// Error by which the program ends, unless all that there is works.
    pub(super) fn verdict(&self) -> Result<(), Error> {
        match (self.failed, self.untried) {
            (0, 0) => Ok(()),
            (failed, untried) => Err(Error::Checked { failed, untried }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_row_decides() {
        let rows = |last| vec![Row::good("a", "one", "1"), Row::limited("a", "two", "2"), last];
        let ends = |last| Report::new("x", rows(last)).verdict().err().map(|error| error.status());
        assert_eq!(ends(Row::good("b", "three", "")), None);
        assert_eq!(ends(Row::failed("b", "three", "why")), Some(1));
        assert_eq!(ends(Row::untried("b", "three", "why")), Some(3));
        let text = Report::new("x", rows(Row::failed("b", "three", "why"))).text();
        assert!(text.contains("three") && text.contains("FAILED     why"), "{text}");
        assert!(text.ends_with("x: 1 ok, 1 to note, 1 failed, 0 not tried\n"), "{text}");
    }
}
