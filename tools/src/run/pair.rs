//! `uverbs run --pair`: two shell commands, the second started when the first waits for it.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::interrupt;
use crate::run::group::{End, Group, STEP};

/// Time that a server without a TCP listener sleeps before the client starts.
const QUIET: Duration = Duration::from_millis(500);
/// Time until the client starts in any case.
const LATEST: Duration = Duration::from_secs(5);
/// Time for the other side to end after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Runs the server's and the client's command by a shell, with what `prepare` adds to each.
///
/// # Errors
///
/// The side that failed, or that did not end within the limit.
pub(super) fn run(
    commands: &[String],
    limit: Duration,
    prepare: impl Fn(&mut Command) -> Result<(), Error>,
) -> Result<(), Error> {
    let [server, client] = commands else { return Ok(()) };
    let stop = interrupt::watch_ends()?;
    let until = Instant::now() + limit;
    let start = |name, text: &str| {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", text]);
        prepare(&mut shell)?;
        Group::start(name, shell).map_err(|error| refused(name, &error))
    };
    let server = start("server", server)?;
    wait_ready(&server, &stop, until)?;
    if stop.load(Ordering::Relaxed) {
        return Err(interrupted());
    }
    let client = start("client", client)?;
    wait_both(&server, &client, limit, until, &stop)
}

/// Waits until the server listens at a TCP port. A server of the connection manager has none: then
/// until it sleeps, at most [`LATEST`].
fn wait_ready(server: &Group, stop: &AtomicBool, until: Instant) -> Result<(), Error> {
    let started = Instant::now();
    let mut quiet = (server.asleep(), Instant::now());
    while Instant::now() < until.min(started + LATEST) && !stop.load(Ordering::Relaxed) {
        match ended(server)? {
            Some(End::Exit(0)) => return Ok(()),
            Some(end) => return Err(program(server.name(), end.to_string())),
            None if server.listens() => return Ok(()),
            None => {}
        }
        let now = server.asleep();
        if now.is_none() || now != quiet.0 {
            quiet = (now, Instant::now());
        } else if quiet.1.elapsed() > QUIET {
            return Ok(());
        }
        thread::sleep(STEP);
    }
    Ok(())
}

/// Waits until both sides ended. The first failure counts; the other side then has
/// [`AFTER_FAILURE`].
fn wait_both(
    server: &Group,
    client: &Group,
    limit: Duration,
    mut until: Instant,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let mut failure = None;
    loop {
        let mut running = None;
        for side in [server, client] {
            match ended(side)? {
                None => running = Some(side.name()),
                Some(End::Exit(0)) => {}
                Some(end) if failure.is_none() => {
                    failure = Some(program(side.name(), end.to_string()));
                    until = until.min(Instant::now() + AFTER_FAILURE);
                }
                Some(_) => {}
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        let Some(name) = running else { break };
        if Instant::now() > until {
            let late = format!("no end within {} s (--limit)", limit.as_secs_f64());
            return Err(failure.unwrap_or_else(|| program(name, late)));
        }
        thread::sleep(STEP);
    }
    failure.map_or(Ok(()), Err)
}

fn ended(side: &Group) -> Result<Option<End>, Error> {
    side.ended().map_err(|error| refused(side.name(), &error))
}

fn interrupted() -> Error {
    program("both sides", "interrupted".to_owned())
}

fn program(name: &'static str, end: String) -> Error {
    Error::Program { name, end }
}

fn refused(name: &'static str, error: &io::Error) -> Error {
    program(name, error.to_string())
}
