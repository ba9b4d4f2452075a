//! Report of a run for people: the measurement, and a line per size.

use std::fmt::Write;

use super::record::{Bandwidth, Latency, Measured, Record};
use super::shape::{Shape, Test};
use crate::base::histogram::{duration, three};

/// The measurement and its device, as a heading.
pub(super) fn header(record: &Record, utf8: bool) -> String {
    let shape = &record.parameters;
    let Shape { op, test, .. } = shape;
    let of = match (test, op.is_one_sided()) {
        (Test::Bw, _) if shape.bidirectional => "messages both ways",
        (Test::Bw, _) => "messages one way",
        (Test::Lat, true) => "whole operations",
        (Test::Lat, false) => "half round trips",
    };
    let mut text = format!("{op} {test} over {}, {of}, {}\n", shape.connection, record.ends_in);
    // Writing to a string cannot fail, here and below.
    for about in &record.ends {
        let _ = writeln!(text, "  {:9}  {}", about.end, about.place.line());
    }
    let length = match (shape.iters, shape.duration_s) {
        (Some(iters), _) => format!("{iters} messages"),
        (None, seconds) => format!("{} s", seconds.unwrap_or(0.0)),
    };
    let mtu = record.ends.first().and_then(|about| about.place.mtu);
    let doorbell = record.ends.first().map_or(String::new(), |about| about.rings.to_string());
    let mtu = mtu.map_or("?".to_owned(), |mtu| mtu.to_string());
    let _ = writeln!(
        text,
        "  {:9}  {length} after {} of warm-up, MTU {mtu}, inline up to {}, doorbell {doorbell}",
        "settings", shape.warmup, shape.inline
    );
    if *test == Test::Bw {
        let Shape { qps, tx_depth, cq_mod, post_list, .. } = shape;
        let s = if *qps == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            "  {:9}  {qps} queue pair{s}, {tx_depth} outstanding, {post_list} a doorbell, a \
            completion for {cq_mod}",
            ""
        );
    }
    let _ = writeln!(
        text,
        "  {:9}  {}, {} a reading, {}",
        "clock",
        record.clock.source,
        duration(record.clock.cost_ns.round() as u64, utf8),
        if shape.check { "contents checked" } else { "contents not checked (--check)" }
    );
    let machine = &record.machine;
    let _ = writeln!(
        text,
        "  {:9}  {} processors{}, load {}",
        "machine",
        machine.processors,
        if machine.virtual_machine { " of a virtual machine" } else { "" },
        machine.load.as_deref().unwrap_or("unknown")
    );
    if !record.machine.optimized {
        let _ = writeln!(
            text,
            "  {:9}  built without optimisation: these are not the library's figures",
            "note"
        );
    }
    text.push('\n');
    text
}

/// Column of the table: heading and width. On a terminal that is too narrow, columns without
/// `narrow` are left out.
struct Column {
    head: &'static str,
    cells: usize,
    narrow: bool,
}

const fn column(head: &'static str, cells: usize, narrow: bool) -> Column {
    Column { head, cells, narrow }
}

const LATENCY: [Column; 12] = [
    column("#bytes", 8, true),
    column("samples", 10, true),
    column("min", 8, true),
    column("p50", 8, true),
    column("p90", 8, false),
    column("p99", 8, true),
    column("p99.9", 8, true),
    column("p99.99", 8, false),
    column("p99.999", 8, false),
    column("max", 8, true),
    column("mean", 8, false),
    column("stdev", 8, false),
];

const BANDWIDTH: [Column; 9] = [
    column("#bytes", 8, true),
    column("messages", 12, true),
    column("MB/s", 11, true),
    column("Gb/s", 9, true),
    column("Mmsg/s", 10, true),
    column("slowest", 11, false),
    column("median", 8, true),
    column("fastest", 8, false),
    column("interval", 12, false),
];

fn table(test: Test) -> &'static [Column] {
    match test {
        Test::Lat => &LATENCY,
        Test::Bw => &BANDWIDTH,
    }
}

/// Returns `true` if all columns fit.
fn fits(test: Test, width: usize) -> bool {
    table(test).iter().map(|column| column.cells).sum::<usize>() <= width
}

/// One line of the table.
fn line(test: Test, width: usize, cells: &[String]) -> String {
    let all = fits(test, width);
    let mut text = String::new();
    for (Column { cells: room, narrow, .. }, cell) in table(test).iter().zip(cells) {
        if all || *narrow {
            let _ = write!(text, "{cell:>room$}");
        }
    }
    text.push('\n');
    text
}

/// The heads of the columns.
pub(super) fn columns(test: Test, width: usize) -> String {
    let heads: Vec<String> = table(test).iter().map(|column| column.head.to_owned()).collect();
    line(test, width, &heads)
}

/// The line of one size.
pub(super) fn row(measured: &Measured, utf8: bool, width: usize) -> String {
    match (&measured.latency, &measured.bandwidth) {
        (Some(latency), _) => line(Test::Lat, width, &latency_cells(measured.size, latency, utf8)),
        (_, Some(bandwidth)) => line(Test::Bw, width, &bandwidth_cells(measured, bandwidth, utf8)),
        _ => String::new(),
    }
}

fn latency_cells(size: u32, latency: &Latency, utf8: bool) -> Vec<String> {
    let mut cells = vec![size.to_string(), latency.samples.to_string()];
    let none = latency.samples == 0;
    for (_, value, needs) in latency.rows() {
        // With too few samples the percentile equals the maximum.
        let short = none || latency.samples < needs;
        cells.push(if short { "-".to_owned() } else { duration(value, utf8) });
    }
    for value in [latency.mean, latency.stdev] {
        cells.push(if none { "-".to_owned() } else { duration(value.round() as u64, utf8) });
    }
    cells
}

fn bandwidth_cells(measured: &Measured, bandwidth: &Bandwidth, utf8: bool) -> Vec<String> {
    let Measured { size, messages, .. } = measured;
    let gbits = |messages_per_s: f64| messages_per_s * f64::from(*size) * 8.0 / 1e9;
    let cell = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| figure(gbits(rate)));
    let interval = match bandwidth.intervals.len() {
        0 => "-".to_owned(),
        _ => duration(bandwidth.interval_ns, utf8),
    };
    vec![
        size.to_string(),
        messages.to_string(),
        figure(bandwidth.bytes_per_s / 1e6),
        figure(gbits(bandwidth.messages_per_s)),
        figure(bandwidth.messages_per_s / 1e6),
        cell(bandwidth.slowest),
        cell(bandwidth.median),
        cell(bandwidth.fastest),
        interval,
    ]
}

/// Formats at least three digits.
fn figure(value: f64) -> String {
    if value > 0.0 && value < 0.0995 { format!("{value:.5}") } else { three(value) }
}

/// Notes below the table.
pub(super) fn footer(record: &Record, width: usize) -> String {
    let mut text = String::new();
    if record.parameters.test == Test::Bw {
        text.push_str(match fits(Test::Bw, width) {
            true => "\nslowest, median and fastest interval in Gb/s",
            false => "\nmedian interval in Gb/s",
        });
        let peer = |measured: &Measured| {
            measured.bandwidth.as_ref().is_some_and(|bw| bw.peer_messages_per_s > 0.0)
        };
        if record.results.iter().any(peer) {
            text.push_str(", of this process's messages only; the rates are of both");
        }
        text.push('\n');
        let lost = |measured: &Measured| measured.bandwidth.as_ref().map_or(0, |bw| bw.lost);
        for measured in record.results.iter().filter(|measured| lost(measured) > 0) {
            let (lost, size) = (lost(measured), measured.size);
            let _ = writeln!(text, "{lost} messages of {size} bytes were lost, warm-up included");
        }
    }
    let test = record.parameters.test;
    if !fits(test, width) {
        let left_out = table(test).iter().filter(|column| !column.narrow).map(|column| column.head);
        let left_out = left_out.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "\nleft out, for want of columns: {left_out} (--json has all)");
    }
    if record.interrupted {
        text.push_str("\ninterrupted: the figures are of what was measured until then\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_table_fits() {
        for test in [Test::Lat, Test::Bw] {
            let all: Vec<String> = table(test).iter().map(|_| "1".to_owned()).collect();
            let (wide, narrow) = (line(test, usize::MAX, &all), line(test, 60, &all));
            assert_eq!(wide.split_whitespace().count(), all.len());
            assert!(narrow.trim_end().len() <= 60, "{narrow}");
            assert!(narrow.split_whitespace().count() > 5);
            assert_eq!(columns(test, 60).trim_end().len(), narrow.trim_end().len());
        }
    }
}
