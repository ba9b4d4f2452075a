//! Tables of text: a head, a rule, and rows in columns.

use std::fmt::Write;

/// A table. Its last column has no rule if its head is empty.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of numbers, which are aligned to the right.
    right: Vec<usize>,
}

impl Table {
    pub(crate) fn new(heads: &[&str], right: &[usize]) -> Self {
        let head = heads.iter().map(|head| (*head).to_owned()).collect();
        Self { rows: vec![head], right: right.to_vec() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Formats the table with columns of at least these widths.
    pub(crate) fn text(mut self, indent: &str, gap: &str, least: &[usize]) -> String {
        let columns = self.rows[0].len();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().map(|row| row[column].chars().count());
                cells.max().unwrap_or(0).max(least.get(column).copied().unwrap_or(0))
            })
            .collect();
        let rule = widths.iter().zip(&self.rows[0]).map(|(width, head)| match head.is_empty() {
            true => String::new(),
            false => "-".repeat(*width),
        });
        let rule = rule.collect();
        self.rows.insert(1, rule);
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _ = match self.right.contains(&column) {
                    true => write!(line, "{cell:>width$}{gap}"),
                    false => write!(line, "{cell:width$}{gap}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let mut table = Table::new(&["name", "n", ""], &[1]);
        table.row(["long name", "7", ""].map(str::to_owned));
        table.row(["a", "1234", "mark"].map(str::to_owned));
        let expected =
            "  name          n\n  ---------  ----\n  long name     7\n  a          1234  mark\n";
        assert_eq!(table.text("  ", "  ", &[]), expected);
    }
}
