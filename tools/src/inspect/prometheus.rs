//! Prometheus's text format (exposition format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use uverbs::report::{Counter, CounterSet};

use super::snapshot::{Snapshot, labels};

/// Counters of all devices, by metric.
pub(crate) fn text(devices: &[Snapshot]) -> String {
    // All lines of a metric are one group.
    let mut metrics: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for snapshot in devices {
        for counter in &snapshot.counters.values {
            let line = format!("{{{}}} {}", label_text(&snapshot.device, counter), counter.value);
            metrics.entry(metric(counter)).or_default().push(line);
        }
    }
    let mut text = String::new();
    for (metric, lines) in metrics {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "# TYPE {metric} counter");
        for line in lines {
            let _ = writeln!(text, "{metric}{line}");
        }
    }
    text.push_str("# HELP uverbs_unread_parts Parts of the counters that could not be read.\n");
    text.push_str("# TYPE uverbs_unread_parts gauge\n");
    for snapshot in devices {
        let gaps = snapshot.counters.gaps.len();
        let _ = writeln!(
            text,
            "uverbs_unread_parts{{device=\"{}\"}} {gaps}",
            escaped(&snapshot.device)
        );
    }
    text
}

/// Name of a metric: letters, digits and underscores.
fn metric(counter: &Counter) -> String {
    let set = match counter.set {
        // Names of these counters begin with `port_`, mostly.
        CounterSet::Port(_) => "port",
        CounterSet::Hardware(_) => "hw",
        CounterSet::QueuePairs { .. } => "qp",
        _ => "device",
    };
    let name = counter.name.strip_prefix("port_").filter(|_| set == "port");
    let name = name.unwrap_or(&counter.name);
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_");
    format!("uverbs_{set}_{name}_total")
}

fn label_text(device: &str, counter: &Counter) -> String {
    let mut text = format!("device=\"{}\"", escaped(device));
    for (name, value) in labels(&counter.set).into_iter().skip(1) {
        let value = match value {
            Value::Array(numbers) => {
                numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        let _ = write!(text, ",{name}=\"{value}\"");
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_legal() {
        let set = CounterSet::QueuePairs { port: 1, id: 4, pid: Some(9), qpns: vec![17, 18] };
        let counter = Counter::new(set, "out-of buffer", 5);
        assert_eq!(metric(&counter), "uverbs_qp_out_of_buffer_total");
        let labels = label_text("a\"b\\c", &counter);
        assert_eq!(labels, r#"device="a\"b\\c",port="1",counter="4",pid="9",qpns="17,18""#);
        let port = Counter::new(CounterSet::Port(2), "port_xmit_data", 1);
        assert_eq!(metric(&port), "uverbs_port_xmit_data_total");
    }
}
