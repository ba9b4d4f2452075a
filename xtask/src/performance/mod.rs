//! `cargo xtask performance`: runs the benches and `uverbs perf`, and writes a page of tables and
//! pictures. `--bless` replaces the figures of this processor's vendor; the page has all vendors.

mod figures;
mod page;
mod picture;
mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

use crate::debian::{self, target};
use crate::step::{Outcome, Steps, cargo, output};
use crate::targets;
use crate::test::build_tool;
use figures::Figures;
use record::Record;

const MINUTES: Duration = Duration::from_secs(60);
/// Folder of the committed page.
const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance");

/// Options of `cargo xtask performance`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure only this part; may be repeated
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,
    /// Runs of each part; tables show the median
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Fewer and shorter samples in each run
    #[arg(long)]
    quick: bool,
    /// Folder of the page and its pictures [default: performance in the target folder]
    #[arg(long, value_name = "DIR", conflicts_with = "bless")]
    out: Option<PathBuf>,
    /// Replace this processor's figures in docs/performance, if all could be measured
    #[arg(long, conflicts_with_all = ["only", "quick"])]
    bless: bool,
}

/// Part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Posts and polls beside libibverbs and libmlx5, in Rust and in C
    DataPath,
    /// Objects made and destroyed, beside libibverbs
    ControlPath,
    /// The software HCA's own thread beside TCP, and waking up beside libibverbs
    Wake,
    /// Two processes: shared memory, UDP, and sockets
    Wire,
    /// How far latencies spread, by `uverbs perf`
    Jitter,
}

impl Part {
    /// Name in options and files.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn title(self) -> &'static str {
        match self {
            Self::DataPath => "Posts and polls",
            Self::ControlPath => "The control path",
            Self::Wake => "The software HCA's own thread",
            Self::Wire => "Between two processes",
            Self::Jitter => "Jitter",
        }
    }

    /// Name of the bench, if the part is one.
    fn bench(self) -> Option<&'static str> {
        match self {
            Self::DataPath => Some("side_by_side"),
            Self::ControlPath => Some("control_path"),
            Self::Wake => Some("wake"),
            Self::Wire => Some("wire"),
            Self::Jitter => None,
        }
    }
}

/// Measures each part, then writes the record of this processor and the page of all records.
pub(crate) fn steps(steps: &mut Steps, options: &Options) {
    let folder = match (&options.out, options.bless) {
        (_, true) => PathBuf::from(COMMITTED),
        (Some(folder), false) => folder.clone(),
        (None, false) => target().join("performance"),
    };
    if let Err(error) = fs::create_dir_all(&folder) {
        let why = format!("{}: {error}", folder.display());
        return steps.step("performance", || Outcome::Failed(why));
    }
    let wanted = |part: &Part| options.only.is_empty() || options.only.contains(part);
    let mut record = Record::here();
    for part in Part::value_variants().iter().copied().filter(wanted) {
        steps.step(part.title().to_lowercase(), || {
            match measure(part, &record.processor, options, &folder) {
                Ok(figures) => {
                    let count = figures.names().count();
                    record.parts.push((part, figures));
                    Outcome::Counted(format!("{count} figures, {} rounds", options.rounds))
                }
                Err(outcome) => outcome,
            }
        });
    }
    record.describe(options);
    steps.step("page", || write(&record, options, &folder));
}

/// Figures of all rounds. Without `--bless`, the last round's output is saved beside the page.
fn measure(
    part: Part,
    processor: &str,
    options: &Options,
    folder: &Path,
) -> Result<Figures, Outcome> {
    let mut figures = Figures::default();
    let mut text = String::new();
    for round in 1..=options.rounds {
        eprintln!("{}: round {round} of {}", part.title(), options.rounds);
        text = match part.bench() {
            Some(bench) => output(bench_command(bench, options.quick)?, 30 * MINUTES)?,
            None => jitter(processor, options.quick, folder)?,
        };
        figures.read(&text);
    }
    if figures.names().next().is_none() {
        return Err(Outcome::Failed("it printed no figure".to_owned()));
    }
    if !options.bless {
        save(folder, &format!("{}.txt", part.name()), &text)?;
    }
    Ok(figures)
}

/// Writes a file of the page.
fn save(folder: &Path, name: &str, text: &str) -> Result<(), Outcome> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| Outcome::Failed(format!("{}: {error}", path.display())))
}

fn bench_command(bench: &str, quick: bool) -> Result<Command, Outcome> {
    let mut command = match bench {
        // Built alone: features of other packages add providers, which makes `Any` slower.
        "side_by_side" => cargo(&["bench", "--quiet", "--package", "uverbs", "--bench", bench]),
        _ => targets::of_workspace(&["bench", "--quiet"], "--bench", [bench]),
    };
    command.env("UVERBS_DEBIAN_ROOT", debian::root()?);
    if quick {
        command.args(["--", "--quick"]);
    }
    Ok(command)
}

/// Ways to wait for a completion, as options of `uverbs perf`.
const WAITS: [(&str, &[&str]); 2] = [("polling", &[]), ("asleep", &["--events"])];
/// Statistics of the samples.
const SPREAD: [&str; 6] = ["min", "p50", "p99", "p99_9", "p99_99", "max"];

/// Half round trips between two software HCAs, as `figure` lines. `uverbs perf` draws the pictures.
fn jitter(processor: &str, quick: bool, folder: &Path) -> Result<String, Outcome> {
    match build_tool() {
        Outcome::Passed => {}
        other => return Err(other),
    }
    let mut text = String::new();
    for (name, options) in WAITS {
        let mut perf = Command::new(target().join("release/uverbs"));
        perf.args(["perf", "send", "lat", "--json"]).args(options);
        perf.args(["-n", if quick { "20000" } else { "200000" }]);
        perf.arg("--svg").arg(folder.join(page::jitter_picture(name, processor)));
        let record = output(perf, 10 * MINUTES)?;
        let record: Value = serde_json::from_str(&record)
            .map_err(|error| Outcome::Failed(format!("uverbs perf: {error}")))?;
        let latency = &record["results"][0]["latency"];
        for figure in SPREAD {
            let Some(nanoseconds) = latency[figure].as_f64() else {
                return Err(Outcome::Failed(format!("uverbs perf: no {figure} in its record")));
            };
            text.push_str(&format!("figure {name}_{figure}_us {:.2}\n", nanoseconds / 1e3));
        }
    }
    Ok(text)
}

fn write(record: &Record, options: &Options, folder: &Path) -> Outcome {
    if record.parts.is_empty() {
        return Outcome::Failed("nothing could be measured".to_owned());
    }
    if options.bless && record.parts.len() < Part::value_variants().len() {
        return Outcome::Failed("not all could be measured: the page stays as it is".to_owned());
    }
    match save(folder, &record.file(), &record.text()).and_then(|()| draw(folder)) {
        Ok(()) => Outcome::Counted(folder.join("README.md").display().to_string()),
        Err(outcome) => outcome,
    }
}

/// Writes the page and the pictures of all records in the folder.
fn draw(folder: &Path) -> Result<(), Outcome> {
    let records = Record::all(folder)
        .map_err(|error| Outcome::Failed(format!("{}: {error}", folder.display())))?;
    for record in &records {
        for (part, figures) in &record.parts {
            let title = format!("{}, {}", part.title(), record.processor);
            if let Some(drawing) = picture::ratios(&title, figures) {
                save(folder, &page::picture(*part, &record.processor), &drawing)?;
            }
        }
    }
    save(folder, "README.md", &page::text(&records))
}
