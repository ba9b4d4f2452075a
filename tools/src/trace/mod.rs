//! `uverbs trace`: runs a program, and records its use of RDMA devices.

mod describe;
mod event;
mod timeline;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use crate::base::error::Error;
use crate::base::{interrupt, output};
use crate::explain::Explained;
use event::Event;

/// Variable that names the trace file for the library in a process.
const VARIABLE: &str = "UVERBS_TRACE";

/// Run a program, and write down what it does with RDMA devices.
///
/// Of each device the control path: commands (ioctls) with their payloads, their outcome and how
/// long they took, and mappings; not what the connection manager is told. Of software HCAs also
/// doorbells, WQEs, receives, packets and completions, as the device sees them. When the program
/// has ended, all of it is printed, a line each: microseconds since the first event, device, what,
/// and its main fields.
///
/// Traces programs that use this library or run on a preloaded software HCA, and the programs that
/// they start, by the variable UVERBS_TRACE. Each event is a line of some hundred bytes in a file,
/// so trace short runs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs trace -- uverbs pingpong -n 1\n  \
    uverbs trace --explain -- uverbs pingpong -n 1        # field by field\n  \
    uverbs trace --svg one.svg -- uverbs perf write lat -n 1\n  \
    uverbs trace --json all.json --quiet -- ./program\n  \
    uverbs trace --svg two.svg -- sh -c './server & ./client; wait'\n\n\
    EXIT STATUS: the program's, or 128 and the signal's number if a signal ended it; 1 when it \
    can't be run or nothing was traced, 2 for bad arguments.")]
pub(crate) struct Args {
    /// Print each event field by field, as `uverbs explain` does
    #[arg(long)]
    explain: bool,
    /// Print nothing
    #[arg(long)]
    quiet: bool,
    /// Omit the control path from the printed events
    #[arg(long)]
    data: bool,
    /// Write all events as JSON: {"events": [{"at": ..., "device": ..., "kind": ...}, ...]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the data path between two devices as a timeline
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Events of the data path that the timeline skips at its beginning
    #[arg(long, value_name = "N", default_value_t = 0, requires = "svg")]
    skip: usize,
    /// Maximum number of events in the timeline
    #[arg(long, value_name = "N", default_value_t = 40, requires = "svg")]
    rows: usize,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let [program, words @ ..] = &args.command[..] else { return Ok(()) };
    let made = |error| Error::File { path: "a file for the trace".into(), error };
    let lines = tempfile::NamedTempFile::new().map_err(made)?;
    // Ctrl-C ends the program; its events are printed.
    interrupt::watch()?;
    // Replaces the name `uverbs` by this program's path, so that it need not be in PATH.
    let own = std::env::current_exe().ok().filter(|_| program == "uverbs");
    let program = own.as_deref().map_or(program.as_os_str(), Path::as_os_str);
    let status = Command::new(program).args(words).env(VARIABLE, lines.path()).status();
    let status = status.map_err(|error| Error::File { path: program.into(), error })?;
    let text = fs::read_to_string(lines.path()).map_err(made)?;
    // Removed now: an exit with the program's status drops nothing.
    lines.close().map_err(made)?;
    let events =
        event::parse(&text).map_err(|why| Error::Record { path: "the trace".into(), why })?;
    if !args.quiet {
        output::write(&report(&events, args))?;
    }
    let write = |path: &PathBuf, text: String| {
        fs::write(path, text).map_err(|error| Error::File { path: path.clone(), error })
    };
    if let Some(path) = &args.json {
        write(path, json(&events)?)?;
    }
    if let Some(path) = &args.svg {
        write(path, timeline::draw(&events, args.skip, args.rows))?;
    }
    match status.code() {
        Some(0) if events.is_empty() => Err(Error::Record {
            path: program.into(),
            why: "it did nothing with an RDMA device of this library".to_owned(),
        }),
        Some(0) => Ok(()),
        // As shells report an end by a signal.
        code => std::process::exit(code.unwrap_or(128 + status.signal().unwrap_or_default())),
    }
}

/// Formats the events as lines.
fn report(events: &[Event], args: &Args) -> String {
    let mut text = String::new();
    let width = events.iter().map(|event| event.device.len()).max().unwrap_or(0);
    let several = events.iter().any(|event| event.pid != events[0].pid);
    for event in events.iter().filter(|event| !args.data || event.is_data()) {
        let pid = if several { format!("{:7} ", event.pid) } else { String::new() };
        let (micros, device) = (event.at as f64 / 1000.0, &event.device);
        let said = describe::line(event);
        let _ = writeln!(text, "{micros:11.3} {pid}{device:width$} {:9} {said}", event.kind.name());
        if let Some(explained) = describe::whole(event).filter(|_| args.explain) {
            explained.to_string().lines().for_each(|line| {
                let _ = writeln!(text, "    {line}");
            });
        }
    }
    text
}

/// An event in JSON.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    event: &'a Event,
    line: String,
    explained: Option<Explained>,
}

fn json(events: &[Event]) -> Result<String, Error> {
    #[derive(Serialize)]
    struct Whole<'a> {
        kind: &'static str,
        events: Vec<Row<'a>>,
    }
    let row = |event| Row { event, line: describe::line(event), explained: describe::whole(event) };
    let whole = Whole { kind: "uverbs-trace", events: events.iter().map(row).collect() };
    let text = serde_json::to_string_pretty(&whole);
    text.map_err(|error| Error::Output(std::io::Error::other(error)))
}
