//! Explained bytes as text and as JSON.

use std::fmt::{self, Display};

use serde::Serialize;

/// Number of parsed bytes, and the reason that the next are wrong.
pub(super) type Wrong = (usize, String);

/// Explanation of bytes.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Explained {
    /// Summary, one line.
    what: String,
    structures: Vec<Structure>,
}

/// A structure, in the order of the bytes.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Structure {
    name: String,
    fields: Vec<Field>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Field {
    /// Offset in the structure, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<usize>,
    name: String,
    value: String,
}

impl Structure {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), fields: Vec::new() }
    }

    /// Adds a field at an offset.
    pub(super) fn at(mut self, offset: usize, name: &str, value: impl Display) -> Self {
        let (name, value) = (name.to_owned(), value.to_string());
        self.fields.push(Field { offset: Some(offset), name, value });
        self
    }

    /// Adds a fact that is not a field.
    pub(super) fn note(mut self, name: &str, value: impl Display) -> Self {
        let (name, value) = (name.to_owned(), value.to_string());
        self.fields.push(Field { offset: None, name, value });
        self
    }
}

impl Explained {
    pub(super) fn new(what: impl Into<String>, structures: Vec<Structure>) -> Self {
        Self { what: what.into(), structures }
    }

    /// Summary, one line.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Converts the output of `uverbs-mlx5-prm`: a summary line, then structures. Lines of fields
    /// are indented, and begin with the field's offset if it has one.
    pub(super) fn printed(text: &str) -> Self {
        let mut lines = text.lines();
        let mut all = Self::new(lines.next().unwrap_or_default(), Vec::new());
        for line in lines {
            let Some(field) = line.strip_prefix("  ") else {
                all.structures.push(Structure::new(line));
                continue;
            };
            let word = |text: &str| match text.split_once(' ') {
                Some((word, rest)) => (word.to_owned(), rest.to_owned()),
                None => (text.to_owned(), String::new()),
            };
            let (first, rest) = word(field);
            let offset =
                first.strip_prefix("0x").and_then(|hex| usize::from_str_radix(hex, 16).ok());
            let (name, value) = if offset.is_some() { word(&rest) } else { (first, rest) };
            if let Some(last) = all.structures.last_mut() {
                last.fields.push(Field { offset, name, value });
            }
        }
        all
    }
}

impl Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        for Structure { name, fields } in &self.structures {
            writeln!(f, "{name}")?;
            let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
            for Field { offset, name, value } in fields {
                let offset = offset.map_or_else(|| "    ".to_owned(), |at| format!("{at:#04x}"));
                writeln!(f, "  {offset} {name:width$}  {value}")?;
            }
        }
        Ok(())
    }
}
