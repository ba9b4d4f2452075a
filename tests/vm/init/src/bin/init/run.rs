//! Runs one program: starts it, passes its output on, kills it at its limit, and reaps it and all
//! that it left behind.

use std::io::{PipeReader, Read, pipe};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use uverbs_vm_init::plan::Program;
use uverbs_vm_init::report::{End, Line};
use uverbs_vm_init::sys;

use crate::port::Port;

/// How long a poll waits; the end of a quiet program is noticed so much later.
const STEP_MS: u16 = 20;
/// How often the guest reports that it is alive.
const ALIVE: Duration = Duration::from_secs(1);
/// How long a killed process may take to end.
const GONE: Duration = Duration::from_secs(60);
/// How much of one program's output is passed on: the port sends about 100 kB a second.
const OUTPUT_MAX: usize = 512 * 1024;
/// A longer line is cut in pieces.
const LINE_MAX: usize = 4096;

/// Runs a program and reports it.
///
/// # Errors
///
/// What it left behind and can't be got rid of.
pub(crate) fn program(
    port: &mut Port,
    program: &Program,
    environment: &[(String, String)],
) -> Result<End, String> {
    port.say(&Line::Start(program.name.clone()));
    let started = Instant::now();
    let end = match start(program, environment) {
        Ok((pid, reader)) => {
            let limit = Duration::from_secs(program.seconds);
            let mut output = Output { reader, pending: Vec::new(), passed_on: 0, left_out: 0 };
            let end = watch(port, pid, &mut output, started, limit);
            // Processes that a program left behind would disturb the next program.
            sys::kill_all();
            reap(port)?;
            output.close(port);
            end
        }
        Err(why) => {
            port.say(&Line::Out(why));
            // As a shell says it.
            End::Exit(127)
        }
    };
    port.say(&Line::End(end, started.elapsed().as_millis() as u64));
    Ok(end)
}

fn start(program: &Program, environment: &[(String, String)]) -> Result<(Pid, PipeReader), String> {
    let named = |error: std::io::Error| format!("{}: {error}", program.words[0]);
    let (reader, writer) = pipe().map_err(named)?;
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|error| named(error.into()))?;
    let mut command = Command::new(&program.words[0]);
    command.args(&program.words[1..]).env_clear().envs(environment.iter().cloned());
    command.current_dir("/tmp").process_group(0);
    command.stdin(Stdio::null()).stderr(writer.try_clone().map_err(named)?).stdout(writer);
    let child = command.spawn().map_err(named)?;
    Ok((Pid::from_raw(child.id() as i32), reader))
}

/// Passes on what a program prints until it ends.
fn watch(port: &mut Port, pid: Pid, output: &mut Output, started: Instant, limit: Duration) -> End {
    let mut alive = Instant::now();
    loop {
        if let Some(end) = reaped(pid) {
            return end;
        }
        if started.elapsed() >= limit {
            return End::Limit;
        }
        if alive.elapsed() >= ALIVE {
            port.say(&Line::Alive);
            alive = Instant::now();
        }
        if output.read(port) {
            continue;
        }
        // The pipe may be closed long before the end: then this only waits.
        let mut wanted = [PollFd::new(output.reader.as_fd(), PollFlags::POLLIN)];
        let polled = poll(&mut wanted, PollTimeout::from(STEP_MS));
        let hung_up = wanted[0].revents().is_some_and(|got| got.contains(PollFlags::POLLHUP));
        if polled.is_err() || hung_up {
            std::thread::sleep(Duration::from_millis(STEP_MS.into()));
        }
    }
}

/// Reaps all dead processes, orphans included, and returns how `pid` ended if it is among them.
fn reaped(pid: Pid) -> Option<End> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(who, status)) if who == pid => return Some(End::Exit(status)),
            Ok(WaitStatus::Signaled(who, signal, _)) if who == pid => {
                return Some(End::Signal(signal as i32));
            }
            // No process is left, or none is dead.
            Ok(WaitStatus::StillAlive) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Reaps all processes. The kernel may have much to clean up for a killed one; one that never ends
/// hangs in there.
fn reap(port: &mut Port) -> Result<(), String> {
    let started = Instant::now();
    let mut alive = started;
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status != WaitStatus::StillAlive {
            continue;
        }
        if started.elapsed() >= GONE {
            return Err(format!("a process lives {} s after it was killed", GONE.as_secs()));
        }
        if alive.elapsed() >= ALIVE {
            port.say(&Line::Alive);
            alive = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(STEP_MS.into()));
    }
    Ok(())
}

/// A program's output.
struct Output {
    reader: PipeReader,
    /// The beginning of a line.
    pending: Vec<u8>,
    passed_on: usize,
    left_out: usize,
}

impl Output {
    /// Passes on what is there; returns whether that was anything.
    fn read(&mut self, port: &mut Port) -> bool {
        let mut bytes = [0; 4096];
        let count = self.reader.read(&mut bytes).unwrap_or_default();
        for &byte in &bytes[..count] {
            if byte == b'\n' || self.pending.len() == LINE_MAX {
                self.pass_on(port);
            }
            if byte != b'\n' {
                self.pending.push(byte);
            }
        }
        count > 0
    }

    fn pass_on(&mut self, port: &mut Port) {
        if self.passed_on < OUTPUT_MAX {
            port.say(&Line::Out(String::from_utf8_lossy(&self.pending).into_owned()));
            self.passed_on += self.pending.len() + 1;
        } else {
            self.left_out += self.pending.len() + 1;
        }
        self.pending.clear();
    }

    /// Passes on a last line without an end, and reports how much was left out.
    fn close(&mut self, port: &mut Port) {
        while self.read(port) {}
        if !self.pending.is_empty() {
            self.pass_on(port);
        }
        if self.left_out > 0 {
            port.say(&Line::Out(format!("({} bytes more)", self.left_out)));
        }
    }
}
