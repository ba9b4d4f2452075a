//! `uverbs top`: rates, changing counters and holders of all devices on one screen.

use std::io::{IsTerminal, Write as _};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::{cursor, execute, queue, terminal};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::Device;

use super::counters::sleep;
use super::frame::{State, frame};
use super::holders::Processes;
use super::resources::{Held, group};
use super::snapshot::Snapshot;
use crate::base::error::Error;
use crate::base::interrupt;
use crate::base::output;
use crate::base::select;
use crate::base::units::parse_timeout;

/// Longest wait for a key, so that signals are noticed.
const NAP: Duration = Duration::from_millis(50);
/// Keys that end the program: q, Ctrl-C, Ctrl-D. Escape ends it, too, unless an arrow's or another
/// key's code follows it.
const QUIT: [u8; 3] = [b'q', 3, 4];
const ESCAPE: [u8; 1] = [0x1b];

/// Show rates, changing counters and holders of all devices, live.
///
/// For each port: data and packets per second in both directions, from the port's counters or,
/// where a driver has none, its packet counters. Below them the counters that changed, the fastest
/// first, and the number of objects of each process. q ends it.
///
/// In a pipe it prints the same as plain text, once an interval.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs top\n  \
    uverbs top -d mlx5_0 --interval 0.5\n  \
    uverbs top --count 2 | tail -n 20\n\n\
    EXIT STATUS: 0, 1 when the devices can't be listed, 2 for a device that isn't there.")]
pub(crate) struct Args {
    /// Device, or near:PLACE [default: all]
    #[arg(short = 'd', long, value_name = "NAME")]
    device: Option<String>,
    /// Seconds between two reports
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    #[arg(allow_negative_numbers = true, value_parser = parse_timeout)]
    interval: Duration,
    /// Reports until it ends [default: until q or Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let stop = interrupt::watch_ends()?;
    let devices = select::named_or_all(args.device.as_deref())?;
    let live = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let screen = if live { Some(Screen::open()?) } else { None };
    let mut before: Vec<Snapshot> = Vec::new();
    for number in 1.. {
        let state = look(&devices, &before);
        match &screen {
            Some(screen) => screen.show(&state)?,
            None => {
                let gap = if number == 1 { "" } else { "\n" };
                output::write(&format!("{gap}{}\n", frame(&state, usize::MAX, None).join("\n")))?;
            }
        }
        before = state.now;
        let goes_on = args.count != Some(number)
            && match &screen {
                Some(_) => wait_for_quit(args.interval, &stop)?,
                None => sleep(args.interval, &stop),
            };
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Asks all devices. Gaps are shown as lines of the report, since stderr has the same screen.
fn look(devices: &[Device], before: &[Snapshot]) -> State {
    let now: Vec<_> = devices.iter().map(Snapshot::take).collect();
    let mut held = Held::new();
    let mut gaps = Vec::new();
    let mut ports = Vec::new();
    for (device, snapshot) in devices.iter().zip(&now) {
        let report = device.resources();
        let all = snapshot.counters.gaps.iter().chain(&report.gaps);
        gaps.extend(all.map(|gap| format!("{}: {gap}", device.name())));
        group(&mut held, device.name(), report.held, &Processes::default());
        ports.extend(
            device.source().ports().into_iter().map(|port| (device.name().to_owned(), port)),
        );
    }
    let readings = now
        .iter()
        .enumerate()
        .flat_map(|(at, snapshot)| {
            let readings = snapshot.readings(before.get(at)).into_iter();
            readings.map(|reading| (snapshot.device.clone(), reading))
        })
        .collect();
    State { now, readings, held, gaps, ports }
}

/// Waits for an interval; false if a key or a signal ends the program.
fn wait_for_quit(interval: Duration, stop: &AtomicBool) -> Result<bool, Error> {
    let start = Instant::now();
    while let Some(left) = interval.checked_sub(start.elapsed()) {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let stdin = std::io::stdin();
        let mut files = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let nap = PollTimeout::try_from(left.min(NAP)).unwrap_or(PollTimeout::ZERO);
        if poll(&mut files, nap).is_ok_and(|ready| ready > 0) {
            let mut keys = [0; 16];
            // The end of the file, too, ends the program.
            let len = nix::unistd::read(&stdin, &mut keys).unwrap_or(0);
            let keys = &keys[..len];
            if len == 0 || keys == ESCAPE || keys.iter().any(|key| QUIT.contains(key)) {
                return Ok(false);
            }
        }
    }
    Ok(!stop.load(Ordering::Relaxed))
}

/// The terminal's other screen, in raw mode; restored when dropped.
struct Screen;

impl Screen {
    fn open() -> Result<Self, Error> {
        terminal::enable_raw_mode().map_err(Error::Output)?;
        let screen = Self;
        execute!(std::io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)
            .map_err(Error::Output)?;
        Ok(screen)
    }

    /// Draws one report, cut to the terminal's size.
    fn show(&self, state: &State) -> Result<(), Error> {
        let (columns, rows) = terminal::size().unwrap_or((80, 24));
        let lines = frame(state, columns.into(), Some(rows.into()));
        let mut out = std::io::stdout().lock();
        let mut draw = || {
            for (row, line) in (0..).zip(&lines) {
                queue!(out, cursor::MoveTo(0, row))?;
                out.write_all(line.as_bytes())?;
                queue!(out, terminal::Clear(terminal::ClearType::UntilNewLine))?;
            }
            queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
            out.flush()
        };
        draw().map_err(Error::Output)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(std::io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
