//! Page: the machines, and a table and pictures of each part.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::figures::{Figures, once};
use super::record::Record;
use super::{Part, WAITS};

/// File of a part's picture of ratios.
pub(super) fn picture(part: Part, processor: &str) -> String {
    format!("{}-{processor}.svg", part.name())
}

/// File of the picture of percentiles, by the way in which the program waits.
pub(super) fn jitter_picture(wait: &str, processor: &str) -> String {
    format!("jitter-{wait}-{processor}.svg")
}

/// Text of the page, in Markdown.
pub(super) fn text(records: &[Record]) -> String {
    let processors: Vec<&str> = records.iter().map(|record| &*record.processor).collect();
    let mut page = String::from(
        "# Performance, as one command measured it\n\n\
         `cargo xtask performance --bless` replaces the figures of its processor's vendor, and \
         writes this\npage and its pictures; without `--bless` they go to `target/performance`. \
         What the figures mean is\nin [PERFORMANCE.md](../PERFORMANCE.md).\n\n",
    );
    let _ = writeln!(page, "| | {} |\n|---|{}", processors.join(" | "), columns(records.len()));
    for name in once(records.iter().flat_map(|record| &record.about).map(|(name, _)| &**name)) {
        let values = records.iter().map(|record| {
            let value = record.about.iter().find(|(of, _)| of == name);
            value.map_or("", |(_, value)| value)
        });
        let _ = writeln!(page, "| {name} | {} |", values.collect::<Vec<_>>().join(" | "));
    }
    let _ = writeln!(
        page,
        "\nEach figure is the median of all runs, whose values are in `PROCESSOR.figures`; a \
         cell has the\nprocessors in this order: {}. A ratio above 1 is better than what is \
         compared with.",
        processors.join("; ")
    );
    for part in Part::value_variants() {
        section(&mut page, *part, records);
    }
    page
}

fn columns(count: usize) -> String {
    "---|".repeat(count)
}

/// Adds a part, if it was measured on a processor.
fn section(page: &mut String, part: Part, records: &[Record]) {
    let measured: Vec<&Figures> = records.iter().filter_map(|record| record.part(part)).collect();
    if measured.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n## {}\n", part.title());
    page.push_str(match part {
        Part::DataPath => {
            "Time of a call in C over ours. `ratio`: raw posts and polls in Rust; `stays`: a \
             queue that stays\nwith its thread; `st`: C without locks; `into`: `poll_into`; \
             `abi`: the same C loop on our\nlibibverbs, with `wr` by `ibv_qp_ex`, with `ex` by \
             `ibv_cq_ex`; `one_thread`: in a process with one\nthread. `kept`: raw calls that \
             keep each buffer in a table, over owned ones.\n\n"
        }
        Part::ControlPath => {
            "Time of a step in C over ours; `ratio_library` is without the device's share.\n\n"
        }
        Part::Wake => {
            "TCP's time over the software HCA's, on one and on two processors. `woken_N`: \
             libibverbs's time over\nours to wake a receiver that was left alone for N \
             microseconds.\n\n"
        }
        Part::Wire => "Shared memory and UDP beside each other and beside sockets.\n\n",
        Part::Jitter => {
            "Half round trips of 64 bytes between two software HCAs of one process, in \
             microseconds, by a\nprogram that polls and by one that sleeps until a completion \
             comes.\n\n"
        }
    });
    table(page, part, records);
    page.push('\n');
    for Record { processor, .. } in records.iter().filter(|record| record.part(part).is_some()) {
        match part {
            Part::Jitter => {
                for (wait, _) in WAITS {
                    let file = jitter_picture(wait, processor);
                    let _ = writeln!(page, "![Percentiles, {wait}, {processor}]({file})");
                }
            }
            _ => {
                let file = picture(part, processor);
                let _ = writeln!(page, "![{}, {processor}]({file})", part.title());
            }
        }
    }
}

/// Cases in a row of a table with one kind.
const IN_A_ROW: usize = 4;

/// Adds a table: a row for each case, a column for each kind. With one kind a row has several
/// cases.
fn table(page: &mut String, part: Part, records: &[Record]) {
    let figures = || records.iter().filter_map(|record| record.part(part));
    let kinds = once(figures().flat_map(Figures::kinds));
    let cases = once(figures().flat_map(Figures::cases));
    let value =
        |kind, case| cell(records.iter().map(|record| record.part(part)?.median(kind, case)));
    if let [kind] = kinds[..] {
        let _ = writeln!(page, "|{}", format!(" case | {kind} |").repeat(IN_A_ROW));
        let _ = writeln!(page, "|{}", columns(2 * IN_A_ROW));
        for row in cases.chunks(IN_A_ROW) {
            let cells = row.iter().map(|case| format!("`{case}` | {}", value(kind, case)));
            let rest = " | |".repeat(IN_A_ROW - row.len());
            let _ = writeln!(page, "| {} |{rest}", cells.collect::<Vec<_>>().join(" | "));
        }
        return;
    }
    let _ = writeln!(page, "| case | {} |", kinds.join(" | "));
    let _ = writeln!(page, "|---|{}", columns(kinds.len()));
    for case in cases {
        let cells = kinds.iter().map(|kind| value(kind, case));
        let _ = writeln!(page, "| `{case}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

/// Medians of the processors, in their order; empty if none has the figure.
fn cell(medians: impl Iterator<Item = Option<f64>>) -> String {
    let medians: Vec<Option<f64>> = medians.collect();
    if medians.iter().all(Option::is_none) {
        return String::new();
    }
    let text = |median| match median {
        Some(median) => format!("{median:.2}"),
        None => "-".to_owned(),
    };
    medians.into_iter().map(text).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(processor: &str, parts: &[(Part, &str)]) -> Record {
        let parts = parts.iter().map(|(part, lines)| {
            let mut figures = Figures::default();
            figures.read(lines);
            (*part, figures)
        });
        Record {
            processor: processor.to_owned(),
            about: vec![("date".to_owned(), format!("of {processor}"))],
            parts: parts.collect(),
        }
    }

    #[test]
    fn a_page_has_each_case_by_processor_and_where_it_was_measured() {
        let posts = "ratio recv_1 3 4\nratio_st recv_1 2\nratio recv_32 2\n";
        let jitter = "figure a 1\nfigure b 2\nfigure c 3\nfigure d 4\nfigure e 5\n";
        let amd = record("amd", &[(Part::DataPath, posts), (Part::Jitter, jitter)]);
        let intel = record("intel", &[(Part::DataPath, "ratio recv_1 5\nratio poll 1\n")]);
        let page = text(&[amd, intel]);
        for line in [
            "| | amd | intel |",
            "| date | of amd | of intel |",
            "## Posts and polls",
            "| case | ratio | ratio_st |",
            "| `recv_1` | 3.50; 5.00 | 2.00; - |",
            "| `recv_32` | 2.00; - |  |",
            "| `poll` | -; 1.00 |  |",
            "![Posts and polls, amd](data-path-amd.svg)",
            "![Posts and polls, intel](data-path-intel.svg)",
            "| case | figure | case | figure | case | figure | case | figure |",
            "| `a` | 1.00; - | `b` | 2.00; - | `c` | 3.00; - | `d` | 4.00; - |",
            "| `e` | 5.00; - | | | | | | |",
            "![Percentiles, asleep, amd](jitter-asleep-amd.svg)",
        ] {
            assert!(page.lines().any(|of_page| of_page == line), "no {line} in:\n{page}");
        }
        assert!(!page.contains("jitter-asleep-intel.svg") && !page.contains("## Jitter, "));
        assert!(page.lines().filter(|line| !line.starts_with('|')).all(|line| line.len() <= 100));
    }
}
