//! `uverbs counters`: counters of ports, hardware and queue pairs, with rates.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::prometheus;
use super::snapshot::{Reading, Snapshot, title};
use crate::base::error::Error;
use crate::base::interrupt;
use crate::base::output;
use crate::base::select;
use crate::base::units::parse_timeout;

/// Longest sleep, so that Ctrl-C is noticed.
const NAP: Duration = Duration::from_millis(20);
/// Clears a terminal (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[J";

/// Print the counters of ports, hardware and queue pairs.
///
/// Counters of a port (`/sys/class/infiniband/DEVICE/ports/N/counters`; data are in units of 4
/// bytes), the driver's counters of a port and of the device (`hw_counters`, `rdma statistic`), and
/// counters bound to queue pairs (`rdma statistic qp`). For a software HCA of this process: its
/// port, queue pairs, transport and wire.
///
/// A part that can't be read is a line on stderr, and the rest goes on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs counters\n  \
    uverbs counters -d mlx5_0 --watch\n  \
    uverbs counters --prometheus > /var/lib/node_exporter/uverbs.prom\n  \
    uverbs counters --json | jq '.devices[].counters[] | select(.value > 0)'\n\n\
    EXIT STATUS: 0, 1 when the devices can't be listed, 2 for a device that isn't there.")]
pub(crate) struct Args {
    /// Device, or near:PLACE [default: all]
    #[arg(short = 'd', long, value_name = "NAME")]
    device: Option<String>,
    /// Print counters that are 0, too. JSON and Prometheus always have them
    #[arg(long)]
    all: bool,
    /// Print again every interval, with rates per second; `*` marks counters that changed. On a
    /// terminal the screen is cleared each time
    #[arg(long)]
    watch: bool,
    /// Seconds between two reports
    #[arg(long, value_name = "SECONDS", default_value = "1", requires = "watch")]
    #[arg(allow_negative_numbers = true, value_parser = parse_timeout)]
    interval: Duration,
    /// Reports to print, the first included [default: until Ctrl-C]
    #[arg(long, value_name = "N", requires = "watch")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one JSON object: {"devices": [...]}; with --watch, one on each line
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Print Prometheus's text format
    #[arg(long, conflicts_with = "watch")]
    prometheus: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let stop = interrupt::watch()?;
    let devices = select::named_or_all(args.device.as_deref())?;
    let mut before: Vec<Snapshot> = Vec::new();
    for number in 1.. {
        let now: Vec<_> = devices.iter().map(Snapshot::take).collect();
        // A gap that stays is said once.
        for (at, snapshot) in now.iter().enumerate() {
            let said = before.get(at).map_or(&[][..], |before| &before.counters.gaps);
            let gaps = snapshot.counters.gaps.iter().filter(|gap| !said.contains(gap));
            super::complain(&snapshot.device, &gaps.cloned().collect::<Vec<_>>());
        }
        print(args, &now, &before)?;
        before = now;
        if !args.watch || args.count == Some(number) || !sleep(args.interval, &stop) {
            break;
        }
    }
    Ok(())
}

/// Sleeps; false after Ctrl-C.
pub(crate) fn sleep(interval: Duration, stop: &AtomicBool) -> bool {
    let start = Instant::now();
    while let Some(left) = interval.checked_sub(start.elapsed()) {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(left.min(NAP));
    }
    !stop.load(Ordering::Relaxed)
}

fn print(args: &Args, now: &[Snapshot], before: &[Snapshot]) -> Result<(), Error> {
    let all: Vec<_> = now
        .iter()
        .enumerate()
        .map(|(at, snapshot)| (snapshot, snapshot.readings(before.get(at))))
        .collect();
    if args.prometheus {
        return output::write(&prometheus::text(now));
    }
    if args.json {
        let devices = all.iter().map(|(snapshot, readings)| json_of(snapshot, readings));
        let report = json!({ "devices": devices.collect::<Vec<_>>() });
        return match args.watch {
            true => output::write(&format!("{report}\n")),
            false => output::json(&report),
        };
    }
    let mut text = String::new();
    if args.watch && std::io::stdout().is_terminal() {
        text.push_str(CLEAR);
    }
    for (snapshot, readings) in &all {
        text.push_str(&table(&snapshot.device, readings, args.all));
    }
    output::write(&text)
}

fn json_of(snapshot: &Snapshot, readings: &[Reading]) -> Value {
    let gap = |gap: &uverbs::report::Gap| json!({ "what": gap.what, "error": gap.to_string() });
    json!({
        "name": snapshot.device,
        "counters": readings.iter().map(Reading::json).collect::<Vec<_>>(),
        "gaps": snapshot.counters.gaps.iter().map(gap).collect::<Vec<_>>(),
    })
}

/// Lines of a device: a title for each set, and a line for each counter.
fn table(device: &str, readings: &[Reading], all: bool) -> String {
    let mut text = String::new();
    let mut last = None;
    let mut zeros = 0;
    for reading in readings {
        if reading.counter.value == 0 && !reading.changed && !all {
            zeros += 1;
            continue;
        }
        let set = &reading.counter.set;
        if last != Some(set) {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "{device} {}", title(set));
            last = Some(set);
        }
        let mark = if reading.changed { '*' } else { ' ' };
        let rate = reading.rate.filter(|_| reading.changed).map(per_second).unwrap_or_default();
        let (name, value) = (&reading.counter.name, reading.counter.value);
        let line = format!("{mark} {name:<40} {value:>20} {rate:>14}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if zeros > 0 {
        let (are, them) = if zeros == 1 { ("is", "it") } else { ("are", "them") };
        let _ = writeln!(text, "{device}: {zeros} more {are} 0 (--all prints {them})");
    } else if readings.is_empty() {
        let _ = writeln!(text, "{device}: no counters");
    }
    text
}

/// A rate with a unit prefix.
pub(crate) fn per_second(rate: f64) -> String {
    for (limit, unit) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if rate >= limit {
            return format!("{:.2} {unit}/s", rate / limit);
        }
    }
    format!("{rate:.1} /s")
}

#[cfg(test)]
mod tests {
    use uverbs::report::{Counter, CounterSet};

    use super::*;

    #[test]
    fn a_table_fits_80_columns_and_hides_zeros() {
        let reading = |set, name: &str, value, rate, changed| Reading {
            counter: Counter::new(set, name, value),
            rate,
            changed,
        };
        let readings = [
            reading(CounterSet::Port(1), "port_rcv_data", u64::MAX, Some(12_345_678.0), true),
            reading(CounterSet::Port(1), "symbol_error", 0, Some(0.0), false),
            reading(CounterSet::Hardware(1), "out_of_buffer", 3, Some(0.0), false),
        ];
        let text = table("mlx5_0", &readings, false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "mlx5_0 port 1",
                "* port_rcv_data                            18446744073709551615      12.35 M/s",
                "mlx5_0 port 1, hardware",
            ]
        );
        let words: Vec<_> = lines[3].split_whitespace().collect();
        assert_eq!(words, ["out_of_buffer", "3"], "no mark, no rate");
        assert_eq!(lines[4..], ["mlx5_0: 1 more is 0 (--all prints it)"]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(table("mlx5_0", &readings, true).contains("symbol_error"));
        assert_eq!(table("siw0", &[], false), "siw0: no counters\n");
    }

    #[test]
    fn rates_have_units() {
        assert_eq!(
            [0.5, 999.0, 1500.0, 2.5e9].map(per_second),
            ["0.5 /s", "999.0 /s", "1.50 k/s", "2.50 G/s"]
        );
    }
}
