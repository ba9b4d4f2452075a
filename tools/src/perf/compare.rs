//! `uverbs perf compare`: two recorded runs side by side.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::chart::Chart;
use super::record::{Latency, Measured, Record};
use super::{draw, plot};
use crate::base::error::Error;
use crate::base::histogram::{duration, three};
use crate::base::keeper::Keeper;
use crate::base::output;

/// Compare two recorded runs.
///
/// Prints what differs between the two in machine, device and parameters. Then, for each size that
/// both have, the percentiles (lat) or the rates (bw) with the ratio of B to A, and a plot of both.
/// It judges nothing: measure first how far two runs of the same program are apart on this machine.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES:\n  \
    uverbs perf write lat --out before.json\n  \
    uverbs perf write lat --inline 0 --out after.json\n  \
    uverbs perf compare before.json after.json --svg both.svg\n\n\
EXIT STATUS: 0, 1 for a file that can't be read or is no recording, 2 for bad arguments.")]
pub(crate) struct Args {
    /// The first recording
    a: PathBuf,
    /// The second, whose figures are divided by the first one's
    b: PathBuf,
    /// Compare this size only
    #[arg(short, long, value_name = "BYTES", value_parser = crate::base::units::parse_size)]
    size: Option<u64>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Plot both as SVG: one size in detail, several over size
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the plot as PNG to this file
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Plot on stdout, too (the default on a terminal)
    #[arg(long, conflicts_with = "json")]
    plot: bool,
}

#[derive(Debug, Serialize)]
struct Comparison {
    kind: &'static str,
    format: u32,
    a: String,
    b: String,
    differences: Vec<Difference>,
    sizes: Vec<Size>,
}

#[derive(Debug, Serialize)]
struct Difference {
    what: String,
    a: Value,
    b: Value,
}

#[derive(Debug, Serialize)]
struct Size {
    size: u32,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    /// `ns`, `msg/s` or `B/s`.
    unit: &'static str,
    a: Option<f64>,
    b: Option<f64>,
    /// Ratio of b to a.
    ratio: Option<f64>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let (a, b) = (Record::load(&args.a)?, Record::load(&args.b)?);
    let refuse = |why: String| Err(Error::Record { path: args.b.clone(), why });
    let (first, second) = (&a.parameters, &b.parameters);
    if first.test != second.test {
        return refuse(format!(
            "a recording of {}, and {} is one of {}: there is nothing to compare",
            second.test,
            args.a.display(),
            first.test
        ));
    }
    let wanted =
        |measured: &&Measured| args.size.is_none_or(|size| size == u64::from(measured.size));
    let pairs: Vec<(&Measured, &Measured)> = a
        .results
        .iter()
        .filter(wanted)
        .filter_map(|of_a| Some((of_a, b.results.iter().find(|of_b| of_b.size == of_a.size)?)))
        .collect();
    if pairs.is_empty() {
        return refuse(no_common_size(args, &a, &b));
    }
    let keepers = (keeper(args.svg.as_deref())?, keeper(args.png.as_deref())?);
    let size =
        |(of_a, of_b): &(&Measured, &Measured)| Size { size: of_a.size, rows: rows(of_a, of_b) };
    let comparison = Comparison {
        kind: "uverbs-perf-comparison",
        format: 1,
        a: args.a.display().to_string(),
        b: args.b.display().to_string(),
        differences: differences(&a, &b),
        sizes: pairs.iter().map(size).collect(),
    };
    let names = [format!("A: {}", short(&args.a)), format!("B: {}", short(&args.b))];
    let chart = Chart::of_two(names, [&a, &b], &pairs)?;
    if let Some(chart) = &chart {
        if let Some(keeper) = keepers.0 {
            keeper.keep(&draw::svg(chart)?)?;
        }
        if let Some(keeper) = keepers.1 {
            keeper.keep(&draw::png(chart)?)?;
        }
    }
    if args.json {
        return output::json(&comparison);
    }
    let utf8 = output::is_utf8();
    let mut text = comparison.text(utf8);
    if let Some(chart) = chart.filter(|_| args.plot || std::io::stdout().is_terminal()) {
        text.push('\n');
        text.push_str(&plot::draw(&chart, utf8, output::width()));
    }
    output::print(&text)
}

fn no_common_size(args: &Args, a: &Record, b: &Record) -> String {
    let sizes = |record: &Record| {
        let sizes = record.results.iter().map(|measured| measured.size.to_string());
        sizes.collect::<Vec<_>>().join(", ")
    };
    format!(
        "no size in common{}: {} has {}, this one {}",
        args.size.map_or(String::new(), |size| format!(" that is {size}")),
        args.a.display(),
        sizes(a),
        sizes(b)
    )
}

fn keeper(path: Option<&Path>) -> Result<Option<Keeper>, Error> {
    path.map(Keeper::new).transpose()
}

fn short(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Differences between two runs, except results.
fn differences(a: &Record, b: &Record) -> Vec<Difference> {
    let about = |record: &Record| {
        let mut value = serde_json::to_value(record).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            // Always different, or printed elsewhere.
            for name in ["command", "recorded", "results", "method"] {
                fields.remove(name);
            }
            if let Some(of_machine) = fields.get_mut("machine").and_then(Value::as_object_mut) {
                of_machine.remove("load");
            }
            if let Some(clock) = fields.get_mut("clock").and_then(Value::as_object_mut) {
                clock.retain(|name, _| name == "source");
            }
        }
        value
    };
    let mut found = Vec::new();
    differ(String::new(), &about(a), &about(b), &mut found);
    found
}

fn differ(what: String, a: &Value, b: &Value, found: &mut Vec<Difference>) {
    let below =
        |name: &str| if what.is_empty() { name.to_owned() } else { format!("{what}.{name}") };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            for (name, a) in a {
                differ(below(name), a, b.get(name).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                differ(below(&at.to_string()), a, b, found);
            }
        }
        (a, b) if a != b => found.push(Difference { what, a: a.clone(), b: b.clone() }),
        _ => {}
    }
}

fn rows(a: &Measured, b: &Measured) -> Vec<Row> {
    let row = |what, unit, a: Option<f64>, b: Option<f64>| {
        let ratio = a.zip(b).and_then(|(a, b)| (a > 0.0).then(|| b / a));
        Row { what, unit, a, b, ratio }
    };
    match (&a.latency, &b.latency, &a.bandwidth, &b.bandwidth) {
        (Some(a), Some(b), _, _) => {
            // A run with too few samples has no percentile.
            let value = |latency: &Latency, value: u64, needs| {
                (latency.samples >= needs).then_some(value as f64)
            };
            let mut rows: Vec<Row> = a
                .rows()
                .into_iter()
                .zip(b.rows())
                .map(|((what, of_a, needs), (_, of_b, _))| {
                    row(what, "ns", value(a, of_a, needs), value(b, of_b, needs))
                })
                .collect();
            rows.push(row("mean", "ns", Some(a.mean), Some(b.mean)));
            rows.push(row("stdev", "ns", Some(a.stdev), Some(b.stdev)));
            rows
        }
        (_, _, Some(a), Some(b)) => vec![
            row("mean", "B/s", Some(a.bytes_per_s), Some(b.bytes_per_s)),
            row("messages", "msg/s", Some(a.messages_per_s), Some(b.messages_per_s)),
            row("slowest", "msg/s", a.slowest, b.slowest),
            row("median", "msg/s", a.median, b.median),
            row("fastest", "msg/s", a.fastest, b.fastest),
        ],
        _ => Vec::new(),
    }
}

impl Comparison {
    fn text(&self, utf8: bool) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "A  {}\nB  {}", self.a, self.b);
        if self.differences.is_empty() {
            let _ = writeln!(text, "   same machine, device and parameters");
        }
        for Difference { what, a, b } in &self.differences {
            let _ = writeln!(text, "   {what}: {a} in A, {b} in B");
        }
        for size in &self.sizes {
            let bytes = format!("{} bytes", size.size);
            let _ = writeln!(text, "\n{bytes:>12}{:>14}{:>14}{:>9}", "A", "B", "B / A");
            for Row { what, unit, a, b, ratio } in &size.rows {
                let cell = |value: &Option<f64>| {
                    value.map_or("-".to_owned(), |value| show(value, unit, utf8))
                };
                let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
                let _ = writeln!(text, "{what:>12}{:>14}{:>14}{ratio:>9}", cell(a), cell(b));
            }
        }
        text
    }
}

fn show(value: f64, unit: &str, utf8: bool) -> String {
    match unit {
        "ns" => duration(value.round() as u64, utf8),
        "B/s" => format!("{} Gb/s", three(value * 8.0 / 1e9)),
        _ if value < 999_500.0 => format!("{} kmsg/s", three(value / 1e3)),
        _ => format!("{} Mmsg/s", three(value / 1e6)),
    }
}
