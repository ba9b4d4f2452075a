//! Growth of cost with the number of objects, queue pairs, peers, devices, connections, listeners
//! and registered ranges: `cargo bench --bench scale`, minutes
//!
//! All in one process on a software HCA, whose side is in each figure. A line has a number of
//! objects, nanoseconds of processor time for each, and the growth from the line above: about 1 is
//! linear in total. Memory is the growth of the process's resident pages over the objects.
//! `--quick` takes tiny sizes, `--sizes N,N` others, `--only NAME` one part.

mod cache;
mod devices;
mod listeners;
mod objects;
mod peers;
mod process;
mod storm;
mod traffic;

use std::time::Duration;

type Done = Result<(), Box<dyn std::error::Error>>;

/// A part: its name, and what measures it at these sizes.
type Part = (&'static str, fn(&[usize]) -> Done, &'static [usize]);

const PARTS: [Part; 8] = [
    ("objects", objects::measure, &[1, 1_000, 10_000, 100_000]),
    ("traffic", traffic::measure, &[1, 64, 4_096, 65_536]),
    ("peers", peers::measure, &[1, 100, 10_000]),
    ("devices", devices::measure, &[1, 100, 1_000]),
    ("idle", devices::idle, &[1, 100, 10_000]),
    ("cache", cache::measure, &[1_000, 10_000, 100_000]),
    ("listeners", listeners::measure, &[1, 100, 1_000, 10_000]),
    ("storm", storm::measure, &[1, 100, 1_000, 10_000]),
];

fn main() -> Done {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let option = |name| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let only = option("--only");
    let given = option("--sizes").map(|sizes| sizes.split(',').map(str::parse).collect());
    let given: Option<Vec<usize>> = given.transpose()?;
    for (name, measure, sizes) in PARTS {
        if only.is_none_or(|only| only == name) {
            println!("{name}");
            let sizes = if quick { &[1, 8] } else { sizes };
            measure(given.as_deref().unwrap_or(sizes))?;
        }
    }
    Ok(())
}

/// Prints a column of times over sizes, each beside the one before it.
struct Column {
    name: String,
    last: Option<f64>,
}

impl Column {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), last: None }
    }

    /// `time` of `count` operations at this size.
    fn time(&mut self, size: usize, time: Duration, count: usize) {
        self.value(size, time.as_nanos() as f64 / count as f64, "ns");
    }

    fn value(&mut self, size: usize, value: f64, unit: &str) {
        let growth = self.last.map_or(String::new(), |last| format!("{:.2}", value / last));
        println!("  {:<28} {size:>9} {value:>11.0} {unit:<5} {growth:>6}", self.name);
        self.last = (value > 0.0).then_some(value);
    }
}

/// Runs `work`, and measures the processor time that it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = process::processor_time();
    let result = work();
    (result, process::processor_time() - start)
}
