//! Record of a run: a JSON document with all that is known of it, for comparisons.

use std::fs;
use std::io::{self, Cursor};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::Machine;
use super::shape::{Shape, Test};
use super::{bw, clock, lat, side};
use crate::base::error::Error;
use crate::link::operation::Operation;

/// Document kind of all records.
const KIND: &str = "uverbs-perf";
/// Version of the format; increased if old readers would misread new records.
const FORMAT: u64 = 1;
/// Maximum bytes of a recording, which has some hundred kilobytes.
const FILE_MAX: u64 = 64 << 20;

/// The document. Times are in nanoseconds unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) kind: String,
    pub(super) format: u64,
    pub(super) program: String,
    pub(super) version: String,
    /// UTC, in the format of RFC 3339.
    pub(super) recorded: String,
    pub(super) command: Vec<String>,
    pub(super) machine: Machine,
    pub(super) clock: clock::About,
    /// `one process` or `two processes`.
    pub(super) ends_in: String,
    pub(super) ends: Vec<side::About>,
    pub(super) parameters: Shape,
    /// How the results were measured, and what they exclude.
    pub(super) method: Vec<String>,
    /// The user ended the run early; the results cover the time until then.
    pub(super) interrupted: bool,
    pub(super) results: Vec<Measured>,
}

/// Results of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Bytes of a message.
    pub(super) size: u32,
    pub(super) messages: u64,
    /// Duration of these messages.
    pub(super) time_ns: u64,
    /// Number of posted receives.
    pub(super) rx_depth: u32,
    pub(super) inline: bool,
    pub(super) latency: Option<Latency>,
    pub(super) bandwidth: Option<Bandwidth>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Latency {
    pub(super) unit: String,
    /// `half_round_trip` or `operation`.
    pub(super) of: String,
    pub(super) samples: u64,
    pub(super) min: u64,
    pub(super) mean: f64,
    pub(super) stdev: f64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p99_9: u64,
    pub(super) p99_99: u64,
    pub(super) p99_999: u64,
    pub(super) max: u64,
    /// All samples: HdrHistogram's V2 format, compressed, as base64.
    pub(super) histogram_v2_deflate_base64: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Bandwidth {
    pub(super) messages_per_s: f64,
    pub(super) bytes_per_s: f64,
    /// Messages per second in the slowest whole interval; `None` without whole intervals.
    pub(super) slowest: Option<f64>,
    pub(super) median: Option<f64>,
    pub(super) fastest: Option<f64>,
    pub(super) interval_ns: u64,
    /// Messages completed in each.
    pub(super) intervals: Vec<u64>,
    /// Messages sent by the other process at the same time; included in the first two.
    pub(super) peer_messages_per_s: f64,
    /// Messages that were sent and never arrived: UC and UD do not retransmit.
    #[serde(default)]
    pub(super) lost: u64,
}

impl Measured {
    pub(super) fn of_latency(shape: &Shape, size: u32, run: &lat::Latency) -> Result<Self, Error> {
        let latency = Latency::new(shape, &run.histogram)?;
        let plain = Self::plain(shape, size, run.histogram.len(), run.ns);
        Ok(Self { latency: Some(latency), ..plain })
    }

    pub(super) fn of_bandwidth(shape: &Shape, size: u32, run: &bw::Bandwidth) -> Self {
        let rate = |messages: u64, ns: u64| messages as f64 * 1e9 / ns.max(1) as f64;
        let peer = rate(run.peer.messages, run.peer.ns);
        let messages_per_s = rate(run.messages, run.ns) + peer;
        let mut sorted = run.intervals.clone();
        sorted.sort_unstable();
        let at = |index: usize| sorted.get(index).map(|&count| rate(count, run.interval_ns));
        let bandwidth = Bandwidth {
            messages_per_s,
            bytes_per_s: messages_per_s * f64::from(size),
            slowest: at(0),
            median: at(sorted.len() / 2),
            fastest: sorted.len().checked_sub(1).and_then(at),
            interval_ns: run.interval_ns,
            intervals: run.intervals.clone(),
            peer_messages_per_s: peer,
            lost: run.lost,
        };
        Self { bandwidth: Some(bandwidth), ..Self::plain(shape, size, run.messages, run.ns) }
    }

    fn plain(shape: &Shape, size: u32, messages: u64, time_ns: u64) -> Self {
        let rx_depth = shape.receives(size);
        let inline = size <= shape.inline;
        Self { size, messages, time_ns, rx_depth, inline, latency: None, bandwidth: None }
    }
}

impl Latency {
    fn new(shape: &Shape, recorded: &Histogram<u64>) -> Result<Self, Error> {
        // The upper end of a cell may exceed the largest value in it.
        let at = |quantile| recorded.value_at_quantile(quantile).min(recorded.max());
        let of = if shape.op.is_one_sided() { "operation" } else { "half_round_trip" };
        Ok(Self {
            unit: "ns".to_owned(),
            of: of.to_owned(),
            samples: recorded.len(),
            min: recorded.min(),
            mean: recorded.mean(),
            stdev: recorded.stdev(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            p99_999: at(0.99999),
            max: recorded.max(),
            histogram_v2_deflate_base64: encode(recorded)?,
        })
    }

    /// Name, value, and number of samples from which it differs from the maximum.
    pub(super) fn rows(&self) -> [(&'static str, u64, u64); 8] {
        [
            ("min", self.min, 1),
            ("p50", self.p50, 1),
            ("p90", self.p90, 10),
            ("p99", self.p99, 100),
            ("p99.9", self.p99_9, 1_000),
            ("p99.99", self.p99_99, 10_000),
            ("p99.999", self.p99_999, 100_000),
            ("max", self.max, 1),
        ]
    }

    /// The samples.
    pub(super) fn histogram(&self) -> Result<Histogram<u64>, String> {
        let bytes = BASE64.decode(&self.histogram_v2_deflate_base64);
        let bytes = bytes.map_err(|error| format!("the histogram is no base64: {error}"))?;
        let histogram = Deserializer::new().deserialize(&mut Cursor::new(bytes));
        histogram.map_err(|error| format!("the histogram can't be read: {error}"))
    }
}

fn encode(recorded: &Histogram<u64>) -> Result<String, Error> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(recorded, &mut bytes)
        .map_err(|error| Error::Output(io::Error::other(error)))?;
    Ok(BASE64.encode(bytes))
}

impl Record {
    pub(super) fn new(shape: &Shape, clock: &clock::Clock, two_processes: bool) -> Self {
        let ends_in = if two_processes { "two processes" } else { "one process" };
        Self {
            kind: KIND.to_owned(),
            format: FORMAT,
            program: "uverbs perf".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            recorded: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            command: std::env::args().collect(),
            machine: Machine::here(),
            clock: clock.about().clone(),
            ends_in: ends_in.to_owned(),
            ends: Vec::new(),
            parameters: shape.clone(),
            method: method(shape, two_processes),
            interrupted: false,
            results: Vec::new(),
        }
    }

    /// Loads a recording, and checks all of it.
    pub(super) fn load(path: &Path) -> Result<Self, Error> {
        let refuse = |why: String| Err(Error::Record { path: path.to_owned(), why });
        let file = |error| Error::File { path: path.to_owned(), error };
        let about = fs::metadata(path).map_err(file)?;
        if !about.is_file() {
            return refuse("it is no file".to_owned());
        }
        if about.len() > FILE_MAX {
            return refuse(format!(
                "{} bytes, and a recording has at most {FILE_MAX}",
                about.len()
            ));
        }
        let bytes = fs::read(path).map_err(file)?;
        let record = Self::parse(&bytes);
        record.or_else(refuse)
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        const TEACH: &str = "a recording is made by `uverbs perf write lat --out FILE`, and \
            likewise for the others";
        let document: Value = serde_json::from_slice(bytes)
            .map_err(|error| format!("this is no recording, nor any JSON ({error}); {TEACH}"))?;
        match document.get("kind").and_then(Value::as_str) {
            Some(KIND) => {}
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                return Err(format!("this is JSON of the kind {other:?}, no recording; {TEACH}"));
            }
            None if document.get("program").is_some_and(|program| program == "uverbs pingpong") => {
                return Err(format!(
                    "this is a report of `uverbs pingpong`, which keeps no samples to compare; \
                    {TEACH}"
                ));
            }
            None => return Err(format!("this is JSON, but no recording; {TEACH}")),
        }
        match document.get("format").and_then(Value::as_u64) {
            Some(FORMAT) => {}
            Some(format) => {
                return Err(format!(
                    "a recording of format {format}, and this uverbs knows format {FORMAT} (use \
                    the version that made it)"
                ));
            }
            None => return Err("a recording without a format: something cut it".to_owned()),
        }
        let record: Self = serde_json::from_value(document)
            .map_err(|error| format!("a recording that something has changed: {error}"))?;
        for measured in &record.results {
            match (record.parameters.test, &measured.latency, &measured.bandwidth) {
                (Test::Lat, Some(latency), _) => {
                    let samples = latency.histogram()?.len();
                    if samples != latency.samples {
                        return Err(format!(
                            "a recording that something has changed: its histogram has {samples} \
                            samples, not {}",
                            latency.samples
                        ));
                    }
                }
                (Test::Bw, _, Some(_)) => {}
                _ => return Err("a recording without its results".to_owned()),
            }
        }
        Ok(record)
    }
}

/// Notes on the method, for readers of the results.
fn method(shape: &Shape, two_processes: bool) -> Vec<String> {
    let mut says = Vec::new();
    match (shape.test, shape.op.is_one_sided()) {
        (Test::Lat, true) => {
            says.push("from before the post until the completion was polled".to_owned());
        }
        (Test::Lat, false) => says.push(
            "half the time from before the post until the answer was seen (write: its last byte \
            in memory; send: its completion)"
                .to_owned(),
        ),
        (Test::Bw, _) => says.push(
            "messages complete over the time from the first post to the last completion; what no \
            completion tells of counts with the next that does"
                .to_owned(),
        ),
    }
    if shape.test == Test::Lat {
        says.push("every sample is in the histogram, to three digits".to_owned());
        says.push(
            "closed loop: a stall is one sample, not as many as would have been sent \
            meanwhile (coordinated omission)"
                .to_owned(),
        );
        says.push(
            "the cost of reading the clock is in each sample; nothing is taken off".to_owned(),
        );
        if shape.check {
            let more = if two_processes { ", except the peer's" } else { "" };
            says.push(format!("checking contents is not in the samples{more}"));
        }
    } else if shape.check && shape.op == Operation::Send {
        says.push("the time includes checking each message".to_owned());
    }
    if !two_processes {
        says.push("one thread drives both ends".to_owned());
    }
    says
}
