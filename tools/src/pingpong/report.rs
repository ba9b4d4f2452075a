//! Report of a run, for people and as JSON.

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::config::Config;
use super::run::Outcome;
use super::side::About;
use crate::base::histogram::{self, Bucket, duration, three};

/// Report of the run. Times are in nanoseconds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    program: &'static str,
    version: &'static str,
    config: Config,
    client: About,
    server: About,
    /// Always true: a failed verification ends the run without a report.
    verified: bool,
    /// Ctrl-C ended the run early; the results cover the time until then.
    interrupted: bool,
    counts: Counts,
    latency: Latency,
    rates: Rates,
    time: Time,
    histogram: Vec<Bucket>,
}

/// Counts of both sides.
#[derive(Debug, Serialize)]
struct Counts {
    /// Measured messages or operations.
    measured: u64,
    /// Verified messages or operations, including warm-up.
    verified: u64,
    verified_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Latency {
    unit: &'static str,
    /// `half_round_trip` or `operation`.
    of: &'static str,
    samples: u64,
    min: u64,
    mean: f64,
    stddev: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p99_9: u64,
    p99_99: u64,
    max: u64,
}

/// Rates of one message at a time, in both directions, without filling and checking.
#[derive(Debug, Serialize)]
struct Rates {
    messages_per_s: f64,
    bytes_per_s: f64,
}

#[derive(Debug, Serialize)]
struct Time {
    clocked_ns: u64,
    wall_ns: u64,
}

impl Report {
    pub(super) fn new(config: &Config, [client, server]: [About; 2], outcome: &Outcome) -> Self {
        let clocked = outcome.clocked.as_secs_f64().max(1e-9);
        let size = u64::from(config.size);
        let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let messages_per_s = outcome.measured as f64 / clocked;
        Self {
            program: "uverbs pingpong",
            version: env!("CARGO_PKG_VERSION"),
            config: config.clone(),
            client,
            server,
            verified: true,
            interrupted: outcome.interrupted,
            counts: Counts {
                measured: outcome.measured,
                verified: outcome.verified,
                verified_bytes: outcome.verified.saturating_mul(size),
            },
            latency: Latency::new(config, &outcome.latency),
            rates: Rates { messages_per_s, bytes_per_s: messages_per_s * config.size as f64 },
            time: Time { clocked_ns: ns(outcome.clocked), wall_ns: ns(outcome.wall) },
            histogram: histogram::buckets(&outcome.latency),
        }
    }

    /// Text for people, for a terminal of this width.
    pub(super) fn text(&self, quiet: bool, utf8: bool, width: usize) -> String {
        let mut text = String::new();
        if !quiet {
            self.header(&mut text);
        }
        self.result(&mut text, utf8);
        if self.interrupted {
            let of = self.config.iters + self.config.warmup;
            let _ = writeln!(
                text,
                "\ninterrupted after {} of {of} iterations: the figures are of what was measured \
                until then",
                self.counts.verified / 2
            );
        }
        if !quiet && !self.histogram.is_empty() {
            text.push('\n');
            text.push_str(&histogram::draw(&self.histogram, utf8, width));
        }
        text
    }

    fn header(&self, text: &mut String) {
        let Config { connection, opcode, size, iters, warmup, inline, rx_depth, .. } = &self.config;
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "{opcode} ping-pong over {connection}, {size} bytes, {iters} iterations after \
            {warmup} of \
             warm-up"
        );
        for (who, about) in [("client", &self.client), ("server", &self.server)] {
            let _ = writeln!(text, "  {who:9}  {}", about.line());
        }
        let doorbell = self.client.rings;
        let mtu = self.client.place.mtu.map_or("?".to_owned(), |mtu| mtu.to_string());
        let _ = writeln!(
            text,
            "  {:9}  MTU {mtu}, inline up to {inline}, {rx_depth} receives, doorbell {doorbell}\n",
            "settings"
        );
    }

    fn result(&self, text: &mut String, utf8: bool) {
        let Self { counts, latency, rates, time, config, .. } = self;
        let bytes = decimal(counts.verified_bytes as f64);
        let how = if config.opcode.is_atomic() {
            "each old value, and each word left behind"
        } else {
            "every byte of each, and its length"
        };
        let what = if config.opcode.is_one_sided() { "operations" } else { "messages" };
        let _ = writeln!(text, "  verified   {} {what}, {bytes}: {how}", counts.verified);
        let per_s = rates.messages_per_s;
        // At least three digits: rates of large messages are small.
        let decimals = if per_s < 10.0 { 2 } else { usize::from(per_s < 100.0) };
        let _ =
            writeln!(text, "  rate       {per_s:.decimals$} {what}/s, one at a time, both ways");
        let gbps = rates.bytes_per_s * 8.0 / 1e9;
        let _ = writeln!(
            text,
            "  bandwidth  {}/s ({gbps:.3} Gb/s), one {} at a time",
            decimal(rates.bytes_per_s),
            what.trim_end_matches('s')
        );
        let wall = duration(time.wall_ns, utf8);
        let clocked = duration(time.clocked_ns, utf8);
        let _ = writeln!(text, "  time       {wall}, {clocked} of it measured");
        let of = if config.opcode.is_one_sided() { "of an operation" } else { "half round trip" };
        let samples = latency.samples;
        let s = if samples == 1 { "" } else { "s" };
        let _ = writeln!(text, "  latency    {of}, {samples} sample{s}");
        let names = ["min", "p50", "p99", "p99.9", "p99.99", "max"];
        let values =
            [latency.min, latency.p50, latency.p99, latency.p99_9, latency.p99_99, latency.max];
        let cell = |value| if samples == 0 { "-".to_owned() } else { duration(value, utf8) };
        let heads = names.map(|name| format!("{name:>9}")).concat();
        let cells = values.map(|value| format!("{:>9}", cell(value))).concat();
        let _ = writeln!(text, " {heads}\n {cells}");
    }
}

impl Latency {
    fn new(config: &Config, recorded: &Histogram<u64>) -> Self {
        let of = if config.opcode.is_one_sided() { "operation" } else { "half_round_trip" };
        // The upper end of a bucket may exceed the largest value in it.
        let at = |quantile| recorded.value_at_quantile(quantile).min(recorded.max());
        Self {
            unit: "ns",
            of,
            samples: recorded.len(),
            min: recorded.min(),
            mean: recorded.mean(),
            stddev: recorded.stdev(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: recorded.max(),
        }
    }
}

impl About {
    fn line(&self) -> String {
        let mut line = self.place.line();
        if self.place.gid.is_none() {
            let _ = write!(line, ", LID {:#06x}", self.lid);
        }
        let _ = write!(line, ", QP {:#08x}", self.qpn);
        line
    }
}

/// Bytes with three digits and a unit, in powers of ten.
fn decimal(bytes: f64) -> String {
    format!("{}B", si(bytes, ["", "k", "M"]))
}

/// Formats three digits and a prefix, or giga above the last given prefix.
fn si(value: f64, prefixes: [&str; 3]) -> String {
    let mut value = value;
    for prefix in prefixes {
        if value < 999.5 {
            let digits = if prefix.is_empty() && value.fract() == 0.0 {
                format!("{value}")
            } else {
                three(value)
            };
            return format!("{digits} {prefix}");
        }
        value /= 1e3;
    }
    format!("{} G", three(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (bytes, text) in [
            (8.0, "8 B"),
            (999.0, "999 B"),
            (1_000.0, "1.00 kB"),
            (2_621_440.0, "2.62 MB"),
            (5e12, "5000 GB"),
        ] {
            assert_eq!(decimal(bytes), text);
        }
    }
}
