//! What runs in the guest: the rows of `tests/vm/programs.txt`.

use crate::vm::kernels::{Kernel, series};
use crate::vm::world::World;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    worlds: String,
    /// The first series of kernels that it runs on.
    since: Option<(u32, u32)>,
    pub(crate) seconds: u64,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
}

impl Row {
    /// Whether it runs there.
    pub(crate) fn is_for(&self, world: World, kernel: &Kernel) -> bool {
        self.worlds.contains(world.letter())
            && self.since.is_none_or(|since| kernel.series() >= since)
    }

    /// `PACKAGE/TARGET` of `test:PACKAGE/TARGET`.
    pub(crate) fn test(&self) -> Option<&str> {
        self.words[0].strip_prefix("test:")
    }
}

/// Reads the table.
///
/// # Errors
///
/// The line that can't be read.
pub(crate) fn parse(text: &str) -> Result<Vec<Row>, String> {
    let lines = text.lines().map(str::trim);
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|line| row(line).ok_or_else(|| format!("programs.txt: {line:?}"))).collect()
}

fn row(line: &str) -> Option<Row> {
    let mut words = line.split_whitespace().map(str::to_owned);
    let worlds = words.next()?;
    if !worlds.chars().all(|letter| World::ALL.iter().any(|world| world.letter() == letter)) {
        return None;
    }
    let since = words.next()?;
    let since = match since.strip_suffix('+') {
        Some(version) => Some(series(version)?),
        None if since == "all" => None,
        None => return None,
    };
    let row = Row {
        worlds,
        since,
        seconds: words.next()?.parse().ok()?,
        name: words.next()?,
        words: words.collect(),
    };
    row.words.first()?;
    row.test().is_none_or(|test| test.contains('/')).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row() {
        let rows = parse("# nothing\n\n bc 6.12+ 20 rc-data test:uverbs/rc_data --show-output\n");
        let rows = rows.expect("a row");
        assert_eq!(rows[0].test(), Some("uverbs/rc_data"));
        assert_eq!((rows[0].seconds, rows[0].since), (20, Some((6, 12))));
        assert_eq!(rows[0].words, ["test:uverbs/rc_data", "--show-output"]);
    }

    #[test]
    fn a_wrong_row_is_named() {
        for line in [
            "d all 20 name true",
            "c every 20 name true",
            "c all long name true",
            "c all 20 name",
            "c all 20 name test:rc_data",
            "c new+ 20 name true",
        ] {
            assert_eq!(parse(line), Err(format!("programs.txt: {line:?}")));
        }
    }

    #[test]
    fn the_table_can_be_read() {
        let text = include_str!("../../../tests/vm/programs.txt");
        assert!(parse(text).is_ok_and(|rows| !rows.is_empty()));
    }
}
