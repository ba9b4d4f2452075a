//! Table of layouts or of constants, and the differences of two tables.

use std::collections::BTreeMap;

/// Names of reserved fields. `_pad` is a hole in `kernel_abi.py`'s tables.
const RESERVED: [&str; 4] = ["reserved", "_pad", "resv", "rsvd"];

/// Constants that count other constants: a version that adds one has another value.
const COUNTS: [&str; 5] = [
    "RDMA_COUNTER_MODE_MAX",
    "RDMA_NLDEV_ATTR_MAX",
    "RDMA_NLDEV_NUM_OPS",
    "RDMA_NL_NUM_CLIENTS",
    "RDMA_NL_NUM_GROUPS",
];

/// Constants that later headers dropped. They were helpers, and never sent to the kernel.
const WITHDRAWN: [&str; 2] = ["UVERBS_UDATA_DRIVER_DATA_FLAG", "UVERBS_UDATA_DRIVER_DATA_NS"];

/// Structure and field, with an empty field for the whole structure; or a constant without a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    name: String,
    field: Option<String>,
}

impl Key {
    fn is_whole(&self) -> bool {
        self.field.as_deref() == Some("")
    }

    fn is_reserved(&self) -> bool {
        let field = self.field.as_deref().unwrap_or_default();
        RESERVED.iter().any(|word| field.starts_with(word))
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field.as_deref() {
            None => f.write_str(&self.name),
            Some("") => write!(f, "struct {}", self.name),
            Some(field) => write!(f, "{}.{field}", self.name),
        }
    }
}

/// Offset and size of a field, size of a structure, or value of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Span { offset: u64, size: u64 },
    Size(u64),
    Number(i128),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Span { offset, size } => write!(f, "offset {offset}, size {size}"),
            Self::Size(size) => write!(f, "size {size}"),
            Self::Number(number) => write!(f, "{number:#x}"),
        }
    }
}

/// Rows of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(BTreeMap<Key, Value>);

impl Table {
    /// Parses a file of lines `struct field offset size` (a field `-` or empty: the whole
    /// structure) or `name value`, separated by tabs. The first line may have titles.
    ///
    /// # Errors
    ///
    /// The first line that is neither, or that repeats another line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut rows = BTreeMap::new();
        for line in text.lines() {
            let cells: Vec<&str> = line.split('\t').collect();
            if matches!(cells[..], ["struct", "field", ..] | ["name", "value"]) {
                continue;
            }
            let row = match cells[..] {
                [name, "" | "-", _, size] => size.parse().ok().map(|size| {
                    (Key { name: name.to_owned(), field: Some(String::new()) }, Value::Size(size))
                }),
                [name, field, offset, size] => {
                    let span = offset.parse().ok().zip(size.parse().ok());
                    let key = Key { name: name.to_owned(), field: Some(field.to_owned()) };
                    span.map(|(offset, size)| (key, Value::Span { offset, size }))
                }
                [name, value] => {
                    let number = match value.strip_prefix("0x") {
                        Some(digits) => i128::from_str_radix(digits, 16),
                        None => value.parse(),
                    };
                    let key = Key { name: name.to_owned(), field: None };
                    number.ok().map(|number| (key, Value::Number(number)))
                }
                _ => None,
            };
            let (key, value) = row.ok_or_else(|| format!("no row of a table: {line:?}"))?;
            if rows.insert(key, value).is_some() {
                return Err(format!("twice: {line:?}"));
            }
        }
        Ok(Self(rows))
    }
}

/// Age of headers compared with the headers of a fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    Same,
    Older,
    Newer,
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Differences that are errors, a line each.
    pub(crate) wrong: Vec<String>,
    /// Differences that another version explains.
    pub(crate) explained: Vec<String>,
    /// Rows that headers of another version have and the fixture lacks.
    pub(crate) new: Vec<String>,
    /// Structures, fields and constants that are equal on both sides.
    pub(crate) structs: usize,
    pub(crate) fields: usize,
    pub(crate) constants: usize,
}

/// Compares a fixture with the headers' table. Headers may lack the rows of `besides`; if they have
/// them, the values must be equal. `extends`: a later version may add fields to a structure, at its
/// end or in reserved bytes, as the kernel does.
pub(crate) fn compare(
    fixture: &Table,
    besides: &Table,
    headers: &Table,
    age: Age,
    extends: bool,
) -> Report {
    let mut report = Report::default();
    for (key, ours) in &fixture.0 {
        let reserved = extends && age != Age::Same && key.is_reserved();
        match headers.0.get(key) {
            Some(theirs) if theirs == ours => match &key.field {
                None => report.constants += 1,
                Some(field) if field.is_empty() => report.structs += 1,
                Some(_) => report.fields += 1,
            },
            Some(theirs) => {
                let line = format!("{key}: {ours} in the fixture, {theirs} in the headers");
                let explained = reserved || extends && is_longer(key, *ours, *theirs, age);
                if explained { &mut report.explained } else { &mut report.wrong }.push(line);
            }
            None => {
                let line = format!("{key}: {ours} in the fixture, not in the headers");
                let withdrawn = WITHDRAWN.contains(&key.name.as_str());
                let explained = match age {
                    Age::Same => false,
                    Age::Older => true,
                    Age::Newer => reserved || withdrawn,
                };
                if explained { &mut report.explained } else { &mut report.wrong }.push(line);
            }
        }
    }
    for (key, theirs) in &headers.0 {
        if fixture.0.contains_key(key) {
            continue;
        }
        match besides.0.get(key) {
            Some(ours) if ours == theirs => {}
            Some(ours) => {
                report.wrong.push(format!("{key}: {ours} in the fixture, {theirs} in the headers"))
            }
            None if age == Age::Same => {
                report.wrong.push(format!("{key}: not in the fixture, {theirs} in the headers"));
            }
            // A new structure is one line.
            None if key.is_whole() => report.new.push(key.to_string()),
            None => {
                let whole = Key { name: key.name.clone(), field: Some(String::new()) };
                if key.field.is_none() || fixture.0.contains_key(&whole) {
                    report.new.push(format!("{key} ({theirs})"));
                }
            }
        }
    }
    report
}

/// Returns true if the newer version has a longer structure or a higher count.
fn is_longer(key: &Key, ours: Value, theirs: Value, age: Age) -> bool {
    let grown = match (ours, theirs) {
        (Value::Size(ours), Value::Size(theirs)) => theirs > ours,
        (Value::Number(ours), Value::Number(theirs)) if COUNTS.contains(&key.name.as_str()) => {
            theirs > ours
        }
        _ => return false,
    };
    match age {
        Age::Same => false,
        Age::Newer => grown,
        Age::Older => !grown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: &str = include_str!("../../../../kernel-abi/tests/fixtures/layout.tsv");
    const CONSTANTS: &str = include_str!("../../../../kernel-abi/tests/fixtures/constants.tsv");
    const VERBS: &str = include_str!("../../../../kernel-abi/tests/fixtures/constants_verbs.tsv");
    const LATER: &str = include_str!("../../../../kernel-abi/tests/fixtures/constants_later.tsv");
    const SEGMENTS: &str = include_str!("../../../../providers/mlx5-prm/tests/fixtures/layout.tsv");
    const NUMBERS: &str =
        include_str!("../../../../providers/mlx5-prm/tests/fixtures/constants.tsv");

    fn table(text: &str) -> Table {
        Table::parse(text).unwrap()
    }

    fn compared(fixture: &str, headers: &str, age: Age, extends: bool) -> Report {
        compare(&table(fixture), &Table::default(), &table(headers), age, extends)
    }

    /// Text with one line replaced. An empty `by` drops the line.
    fn with(text: &str, line: &str, by: &str) -> String {
        assert!(text.lines().any(|here| here == line), "no such line: {line:?}");
        let lines = text.lines().map(|here| if here == line { by } else { here });
        lines.filter(|here| !here.is_empty()).fold(String::new(), |all, here| all + here + "\n")
    }

    #[test]
    fn a_table_equals_itself() {
        for text in [LAYOUT, CONSTANTS, VERBS, LATER, SEGMENTS, NUMBERS] {
            for age in [Age::Same, Age::Older, Age::Newer] {
                let report = compared(text, text, age, true);
                assert!(
                    report.wrong.is_empty() && report.explained.is_empty() && report.new.is_empty()
                );
                let titles =
                    usize::from(text.starts_with("struct\t") || text.starts_with("name\t"));
                let rows = report.structs + report.fields + report.constants;
                assert_eq!(rows, text.lines().count() - titles);
            }
        }
    }

    /// Each of these is an error for headers of any version.
    #[test]
    fn what_moved_or_changed_is_reported() {
        let cases = [
            (LAYOUT, "ib_uverbs_ah_attr\tdlid\t24\t2", "ib_uverbs_ah_attr\tdlid\t25\t2"),
            (LAYOUT, "ib_uverbs_ah_attr\tdlid\t24\t2", "ib_uverbs_ah_attr\tdlid\t24\t1"),
            (SEGMENTS, "mlx5_cqe64\tbyte_cnt\t44\t4", "mlx5_cqe64\tbyte_cnt\t43\t4"),
            (SEGMENTS, "mlx5_cqe64\t-\t0\t64", "mlx5_cqe64\t-\t0\t128"),
            (CONSTANTS, "RDMA_DRIVER_MLX5\t1", "RDMA_DRIVER_MLX5\t2"),
            (NUMBERS, "MLX5_OPCODE_RDMA_READ\t0x10", "MLX5_OPCODE_RDMA_READ\t0x11"),
        ];
        for (text, line, by) in cases {
            let changed = with(text, line, by);
            for age in [Age::Same, Age::Older, Age::Newer] {
                let extends = text != SEGMENTS;
                for report in
                    [compared(text, &changed, age, extends), compared(&changed, text, age, extends)]
                {
                    assert_eq!(report.wrong.len(), 1, "{line}: {report:?}");
                    assert!(report.wrong[0].contains("in the fixture,"), "{report:?}");
                }
            }
        }
    }

    #[test]
    fn a_missing_row_is_reported() {
        let cases = [
            (LAYOUT, "ib_uverbs_ah_attr\tdlid\t24\t2"),
            (LAYOUT, "ib_uverbs_attr\t\t\t16"),
            (SEGMENTS, "mlx5_cqe64\tbyte_cnt\t44\t4"),
            (CONSTANTS, "RDMA_DRIVER_MLX5\t1"),
        ];
        for (text, line) in cases {
            let cut = with(text, line, "");
            // The headers lack the row: a version that is not older must have it.
            for (age, wrong) in [(Age::Same, 1), (Age::Newer, 1), (Age::Older, 0)] {
                let report = compared(text, &cut, age, true);
                assert_eq!(report.wrong.len(), wrong, "{line} {age:?}: {report:?}");
                assert_eq!(report.explained.len(), 1 - wrong, "{line} {age:?}: {report:?}");
            }
            // The fixture lacks the row: an error for the same version, else a new row.
            assert_eq!(compared(&cut, text, Age::Same, true).wrong.len(), 1);
            let report = compared(&cut, text, Age::Newer, true);
            assert!(report.wrong.is_empty() && !report.new.is_empty(), "{line}: {report:?}");
        }
    }

    #[test]
    fn later_kernels_may_add_to_their_answers() {
        let old =
            "answer\tvalue\t0\t4\nanswer\treserved\t4\t4\nanswer\t\t\t8\nRDMA_NL_NUM_GROUPS\t4\n";
        let new = "answer\tvalue\t0\t4\nanswer\tmore\t4\t4\nanswer\tlast\t8\t8\nanswer\t\t\t16\n\
                   RDMA_NL_NUM_GROUPS\t5\nquestion\tasked\t0\t8\nquestion\t\t\t8\n";
        let report = compared(old, new, Age::Newer, true);
        assert!(report.wrong.is_empty(), "{report:?}");
        assert_eq!(report.explained.len(), 3, "{report:?}");
        let names = ["answer.last (offset 8, size 8)", "answer.more (offset 4, size 4)"];
        assert_eq!(report.new[..2], names, "{report:?}");
        assert_eq!(report.new[2..], ["struct question"], "{report:?}");
        // Equal versions, older headers, and the device's layouts allow no growth.
        for (age, extends) in [(Age::Same, true), (Age::Older, true), (Age::Newer, false)] {
            assert!(!compared(old, new, age, extends).wrong.is_empty(), "{age:?} {extends}");
        }
        // Fields never disappear.
        let without = with(new, "answer\tvalue\t0\t4", "");
        assert_eq!(compared(old, &without, Age::Newer, true).wrong.len(), 1);
    }

    #[test]
    fn rows_known_from_elsewhere_must_agree() {
        let headers = format!("{VERBS}{LATER}");
        let report = compare(&table(VERBS), &table(LATER), &table(&headers), Age::Newer, true);
        assert!(report.wrong.is_empty() && report.new.is_empty(), "{report:?}");
        let changed = headers.replace("SPEED_CHANGE\t20", "SPEED_CHANGE\t21");
        let report = compare(&table(VERBS), &table(LATER), &table(&changed), Age::Newer, true);
        assert_eq!(report.wrong.len(), 1, "{report:?}");
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for text in ["a", "a\tb", "a\tb\t1", "a\tb\tx\t1", "a\tb\t1\tx", "a\t1\na\t2", "\n"] {
            assert!(Table::parse(text).is_err(), "{text:?}");
        }
    }
}
