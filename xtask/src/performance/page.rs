//! Page: the machine, and a table and a picture of each part.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use clap::ValueEnum;

use super::figures::{Figures, Spread};
use super::{Measured, Options, Part, WAITS};
use crate::compiler::compiler;

/// Machine and date of the measurement.
#[derive(Debug)]
pub(super) struct About {
    date: String,
    commit: String,
    processor: String,
    kernel: String,
    load: String,
    compiler: String,
    rounds: u32,
    quick: bool,
}

impl About {
    /// This machine, today.
    pub(super) fn here(options: &Options) -> Self {
        let file = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = file("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.map_or("unknown", |rest| rest.trim_start_matches(['\t', ' ', ':']));
        let count = std::thread::available_parallelism().map_or(0, usize::from);
        Self {
            date: said("date", &["-u", "+%F"]),
            commit: said("git", &["describe", "--always", "--dirty"]),
            processor: format!("{count} of \"{model}\""),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: file("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(", "),
            compiler: compiler(),
            rounds: options.rounds,
            quick: options.quick,
        }
    }
}

/// First line of a command's output; empty if it fails.
fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().map(|output| output.stdout);
    let text = String::from_utf8(output.unwrap_or_default()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// File of a part's picture of ratios.
pub(super) fn picture_of(part: Part) -> String {
    file_of(part, "svg")
}

/// File of a part.
pub(super) fn file_of(part: Part, extension: &str) -> String {
    let value = part.to_possible_value();
    format!("{}.{extension}", value.as_ref().map_or("part", |value| value.get_name()))
}

/// Text of the page, in Markdown.
pub(super) fn text(all: &[Measured], about: &About) -> String {
    let mut page = String::from(
        "# Performance, as one command measured it\n\n\
         `cargo xtask performance --bless` writes this page and its pictures; without `--bless` \
         they go to\n`target/performance`. What the figures mean is in \
         [PERFORMANCE.md](../PERFORMANCE.md).\n\n",
    );
    let quick = if about.quick { ", with `--quick`" } else { "" };
    for (name, value) in [
        ("date", about.date.clone()),
        ("version", about.commit.clone()),
        ("processors", about.processor.clone()),
        ("kernel", about.kernel.clone()),
        ("load average at the end (1, 5, 15 minutes)", about.load.clone()),
        ("compiler", about.compiler.clone()),
        ("runs of each", format!("{}{quick}", about.rounds)),
    ] {
        let _ = writeln!(page, "- {name}: {value}");
    }
    page.push_str(
        "\nEach figure is the median of all runs, with the lowest and the highest. A ratio above 1 \
         is better\nthan what is compared with.\n",
    );
    for measured in all {
        section(&mut page, measured);
    }
    page
}

fn section(page: &mut String, Measured { part, figures, .. }: &Measured) {
    let _ = writeln!(page, "\n## {}\n", part.title());
    page.push_str(match part {
        Part::DataPath => {
            "Time of a call in C over ours, by case and by what is compared: `ratio` is libibverbs \
             and libmlx5\nover raw posts and polls in Rust, `ratio_abi` the same C loop on our \
             libibverbs, `wr` the calls of\n`ibv_qp_ex`, `ex` the calls of `ibv_cq_ex`.\n\n"
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
    table(page, figures);
    match part {
        Part::Jitter => {
            for (name, _) in WAITS {
                let _ = writeln!(page, "\n![Percentiles, {name}](jitter-{name}.svg)");
            }
        }
        _ => {
            let _ = writeln!(page, "\n![{}]({})", part.title(), picture_of(*part));
        }
    }
}

/// Cases in a row of a table with one kind.
const IN_A_ROW: usize = 3;

/// Adds a table: a row for each case, a column for each kind. With one kind a row has several
/// cases.
fn table(page: &mut String, figures: &Figures) {
    let kinds = figures.kinds();
    let cases = figures.cases();
    let value = |kind, case| figures.spread(kind, case).map_or(String::new(), cell);
    if let [kind] = kinds[..] {
        let _ = writeln!(page, "|{}", format!(" case | {kind} |").repeat(IN_A_ROW));
        let _ = writeln!(page, "|{}", "---|".repeat(2 * IN_A_ROW));
        for row in cases.chunks(IN_A_ROW) {
            let cells = row.iter().map(|case| format!("`{case}` | {}", value(kind, case)));
            let rest = " | |".repeat(IN_A_ROW - row.len());
            let _ = writeln!(page, "| {} |{rest}", cells.collect::<Vec<_>>().join(" | "));
        }
        return;
    }
    let _ = writeln!(page, "| case | {} |", kinds.join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(kinds.len()));
    for case in cases {
        let cells = kinds.iter().map(|kind| value(kind, case));
        let _ = writeln!(page, "| `{case}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

fn cell(Spread { lowest, median, highest }: Spread) -> String {
    format!("{median:.2} ({lowest:.2}..{highest:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_each_case_and_where_it_was_measured() {
        let mut figures = Figures::default();
        figures.read("ratio recv_1 3\nratio_st recv_1 2\nratio recv_32 2\n");
        figures.read("ratio recv_1 4\n");
        let part = Part::DataPath;
        let mut single = Figures::default();
        single.read("figure a 1\nfigure b 2\nfigure c 3\nfigure d 4\n");
        let all = [
            Measured { part, figures, text: "ratio recv_1 4\n".to_owned() },
            Measured { part: Part::Jitter, figures: single, text: String::new() },
        ];
        let about = About {
            date: "2026-01-02".to_owned(),
            commit: "abc".to_owned(),
            processor: "2 of \"X\"".to_owned(),
            kernel: "6".to_owned(),
            load: "0, 0, 0".to_owned(),
            compiler: "rustc".to_owned(),
            rounds: 2,
            quick: false,
        };
        let page = text(&all, &about);
        for line in [
            "- date: 2026-01-02",
            "- runs of each: 2",
            "## Posts and polls",
            "| case | ratio | ratio_st |",
            "| `recv_1` | 3.50 (3.00..4.00) | 2.00 (2.00..2.00) |",
            "| `recv_32` | 2.00 (2.00..2.00) |  |",
            "![Posts and polls](data-path.svg)",
            "| case | figure | case | figure | case | figure |",
            "| `d` | 4.00 (4.00..4.00) | | | | |",
        ] {
            assert!(page.lines().any(|of_page| of_page == line), "no {line} in:\n{page}");
        }
        assert!(page.lines().filter(|line| !line.starts_with('|')).all(|line| line.len() <= 100));
    }
}
