//! Findings: a rule, the place that breaks it, and the text to print.

use std::fmt;

/// Rule that `cargo xtask style` checks. CONTRIBUTING.md lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// First word of a comment.
    FirstWord,
    /// Turn of phrase that the project avoids, in comments and Markdown.
    Turn,
    /// Host name or path that must stay out of the repository.
    Word,
    /// Columns of a line.
    Columns,
    /// Lines of a file.
    FileLines,
    /// Lines of a function.
    FunctionLines,
    /// Rust files in one folder.
    FolderFiles,
    /// `#[path]` attribute that leads to another folder.
    PathAttribute,
    /// Import circle.
    Circle,
    /// Commit subject.
    Subject,
}

impl Rule {
    /// All rules, in the order of their counts.
    pub(crate) const ALL: [Self; 10] = [
        Self::FirstWord,
        Self::Turn,
        Self::Word,
        Self::Columns,
        Self::FileLines,
        Self::FunctionLines,
        Self::FolderFiles,
        Self::PathAttribute,
        Self::Circle,
        Self::Subject,
    ];

    /// Name in findings, exceptions and budgets.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FirstWord => "first-word",
            Self::Turn => "turn",
            Self::Word => "word",
            Self::Columns => "columns",
            Self::FileLines => "file-lines",
            Self::FunctionLines => "function-lines",
            Self::FolderFiles => "folder-files",
            Self::PathAttribute => "path-attribute",
            Self::Circle => "circle",
            Self::Subject => "subject",
        }
    }

    /// Rule of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }
}

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the repository's root, or a commit's hash.
    pub(crate) path: String,
    /// Line, from 1.
    pub(crate) line: usize,
    pub(crate) rule: Rule,
    /// Name of the function, if the rule is about functions.
    pub(crate) item: Option<String>,
    /// Share of the folder's budget: 1, or the excess over the limit of lines or files.
    pub(crate) weight: usize,
    pub(crate) text: String,
}

impl Finding {
    /// Finding of weight 1 without an item.
    pub(crate) fn new(rule: Rule, path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, item: None, weight: 1, text: text.into() }
    }

    /// Folder whose budget pays for it.
    pub(crate) fn folder(&self) -> &str {
        match self.rule {
            Rule::FolderFiles => &self.path,
            _ => self.path.rsplit_once('/').map_or(".", |(folder, _)| folder),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule.name(), self.text)
    }
}

/// `path:line: text` of each finding, for unit tests.
#[cfg(test)]
pub(crate) fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|found| format!("{}:{}: {}", found.path, found.line, found.text)).collect()
}
