//! Tables of both sides' phases, as in `docs/CONTROL-PATH.md`.

use std::fmt::Write as _;

use super::names::listed;
use super::trace::{Phase, count, is_memory};

/// Calls of a phase, C's and ours: on the device, for files and similar, for memory.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub calls: [[u64; 2]; 3],
}

/// Comparison of two runs.
#[derive(Clone, Debug)]
pub struct Compared {
    pub rows: Vec<Row>,
    /// All calls by name and phase.
    pub lists: String,
    /// The lists of the phases in which the sides make different calls.
    pub unequal_lists: String,
    /// Phases in which ours makes more calls: on the device, for files and similar, or in total.
    pub more: Vec<String>,
    /// Phases in which ours makes more calls on the device.
    pub more_on_device: Vec<String>,
}

fn is_on_device(name: &str) -> bool {
    name.starts_with("device ")
}

/// Title of a phase, with its number of further objects.
pub fn title(phase: &str, further: u64) -> String {
    phase.replace("further", &format!("{further} further"))
}

/// Compares two runs of the same phases. The last phase ends the program.
pub fn compare(theirs: &[Phase], ours: &[Phase], further: u64) -> Compared {
    let mut compared = Compared {
        rows: Vec::new(),
        lists: String::new(),
        unequal_lists: String::new(),
        more: Vec::new(),
        more_on_device: Vec::new(),
    };
    for (c, own) in theirs.iter().zip(ours).take(ours.len().saturating_sub(1)) {
        let name = title(&c.name, further);
        let lines = listed(&name, &c.calls, &own.calls);
        let both =
            |which: &dyn Fn(&str) -> bool| [count(&c.calls, which), count(&own.calls, which)];
        let device = both(&is_on_device);
        let memory = both(&is_memory);
        let other = both(&|name| !is_on_device(name) && !is_memory(name));
        let all = both(&|_| true);
        if [device, other, all].iter().any(|[c, ours]| ours > c) {
            compared.more.push(format!("{lines}    for memory {memory:?}"));
        }
        if device[1] > device[0] {
            compared.more_on_device.push(lines.clone());
        }
        compared.rows.push(Row { name, calls: [device, other, memory] });
        compared.lists += &lines;
        // A list is one line where both sides are alike.
        if lines.lines().count() > 1 {
            compared.unequal_lists += &lines;
        }
    }
    compared
}

/// Formats the table of calls.
pub fn calls(rows: &[Row]) -> String {
    let mut table = String::from(
        "| phase | on the device: C | ours | files and the like: C | ours | for memory: C | ours \
         |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let cells = row.calls.map(|[c, ours]| format!("{c} | {ours}"));
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| {} | {} |", row.name, cells.join(" | "));
    }
    table
}
