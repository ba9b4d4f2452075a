//! A run for people: what was measured and how, and a line for each size.

use std::fmt::Write;

use super::options::{Shape, Test};
use super::record::{Bandwidth, Latency, Measured, Record};
use super::side::About;
use crate::histogram::{duration, three};

/// What is being measured, and on what.
pub(super) fn header(record: &Record, utf8: bool) -> String {
    let shape = &record.parameters;
    let Shape { op, test, doorbell, .. } = shape;
    let of = match (test, op.is_one_sided()) {
        (Test::Bw, _) if shape.bidirectional => "messages both ways",
        (Test::Bw, _) => "messages one way",
        (Test::Lat, true) => "whole operations",
        (Test::Lat, false) => "half round trips",
    };
    let mut text = format!("{op} {test} over RC, {of}, {}\n", record.ends_in);
    // Writing to a string can't fail, here and below.
    for about in &record.ends {
        let _ = writeln!(text, "  {:9}  {}", about.end, end(about));
    }
    let length = match (shape.iters, shape.duration_s) {
        (Some(iters), _) => format!("{iters} messages"),
        (None, seconds) => format!("{} s", seconds.unwrap_or(0.0)),
    };
    let mtu = record.ends.first().and_then(|about| about.mtu);
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
            "  {:9}  {qps} queue pair{s}, {tx_depth} outstanding, {post_list} a doorbell, a completion for {cq_mod}",
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

fn end(about: &About) -> String {
    let mut line = format!("{} port {}, {}", about.device, about.port, about.link_layer);
    if let (Some(gid), Some(kind)) = (&about.gid, &about.gid_type) {
        let _ = write!(line, ", {gid} ({kind})");
    }
    line
}

/// The heads of the lines.
pub(super) fn columns(test: Test) -> String {
    match test {
        Test::Lat => {
            let names =
                ["min", "p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "max", "mean", "stdev"];
            let names = names.map(|name| format!("{name:>8}")).concat();
            format!("{:>8}{:>10}{names}\n", "#bytes", "samples")
        }
        Test::Bw => format!(
            "{:>8}{:>12}{:>11}{:>9}{:>10}   {:>8}{:>8}{:>8}{:>12}\n",
            "#bytes",
            "messages",
            "MB/s",
            "Gb/s",
            "Mmsg/s",
            "slowest",
            "median",
            "fastest",
            "interval"
        ),
    }
}

/// The line of one size.
pub(super) fn row(measured: &Measured, utf8: bool) -> String {
    let mut text = match (&measured.latency, &measured.bandwidth) {
        (Some(latency), _) => latency_row(measured.size, latency, utf8),
        (_, Some(bandwidth)) => bandwidth_row(measured, bandwidth, utf8),
        _ => String::new(),
    };
    text.push('\n');
    text
}

fn latency_row(size: u32, latency: &Latency, utf8: bool) -> String {
    let mut text = format!("{size:>8}{:>10}", latency.samples);
    let none = latency.samples == 0;
    for (_, value, needs) in latency.rows() {
        // A percentile that no sample is above would be the largest one under another name.
        let short = none || latency.samples < needs;
        let cell = if short { "-".to_owned() } else { duration(value, utf8) };
        let _ = write!(text, "{cell:>8}");
    }
    for value in [latency.mean, latency.stdev] {
        let cell = if none { "-".to_owned() } else { duration(value.round() as u64, utf8) };
        let _ = write!(text, "{cell:>8}");
    }
    text
}

fn bandwidth_row(measured: &Measured, bandwidth: &Bandwidth, utf8: bool) -> String {
    let Measured { size, messages, .. } = measured;
    let gbits = |messages_per_s: f64| messages_per_s * f64::from(*size) * 8.0 / 1e9;
    let cell = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| figure(gbits(rate)));
    let interval = match bandwidth.intervals.len() {
        0 => "-".to_owned(),
        _ => duration(bandwidth.interval_ns, utf8),
    };
    format!(
        "{size:>8}{messages:>12}{:>11}{:>9}{:>10}   {:>8}{:>8}{:>8}{interval:>12}",
        figure(bandwidth.bytes_per_s / 1e6),
        figure(gbits(bandwidth.messages_per_s)),
        figure(bandwidth.messages_per_s / 1e6),
        cell(bandwidth.slowest),
        cell(bandwidth.median),
        cell(bandwidth.fastest),
    )
}

/// Three digits at least, however small.
fn figure(value: f64) -> String {
    if value > 0.0 && value < 0.0995 { format!("{value:.5}") } else { three(value) }
}

/// What has to be said behind the lines.
pub(super) fn footer(record: &Record) -> String {
    let mut text = String::new();
    if record.parameters.test == Test::Bw {
        text.push_str("\nslowest, median and fastest interval in Gb/s");
        let peer = |measured: &Measured| {
            measured.bandwidth.as_ref().is_some_and(|bw| bw.peer_messages_per_s > 0.0)
        };
        if record.results.iter().any(peer) {
            text.push_str(", of this process's messages only; the rates are of both");
        }
        text.push('\n');
    }
    if record.interrupted {
        text.push_str("\ninterrupted: the figures are of what was measured until then\n");
    }
    text
}
