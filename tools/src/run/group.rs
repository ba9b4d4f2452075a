//! Process group of a side: a shell's command with all its children, in the terminal's background.
//! A child that leaves the group (setsid(1), timeout(1)) is neither seen nor ended.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, Process, all_processes};

/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Time for the last lines of output, if a process outside the group holds the pipe.
const LAST_LINES: Duration = Duration::from_secs(1);
/// Longest line, in bytes.
const LINE: u64 = 1 << 16;
/// Interval of looking.
pub(super) const STEP: Duration = Duration::from_millis(20);

/// End of a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Exit(i32),
    Signal(Signal),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit status: {code}"),
            Self::Signal(signal) => write!(f, "ended by {signal}"),
        }
    }
}

/// Running side. Its processes are killed on drop.
pub(super) struct Group {
    name: &'static str,
    child: Child,
    id: Pid,
    readers: Vec<JoinHandle<()>>,
}

impl Group {
    /// Starts a shell's command. Each line of its output is printed behind the side's name.
    pub(super) fn start(name: &'static str, mut shell: Command) -> io::Result<Self> {
        shell.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn()?;
        let id = i32::try_from(child.id()).map_err(io::Error::other)?;
        let mut readers = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            readers.push(thread::spawn(move || copy(name, pipe, io::stdout())));
        }
        if let Some(pipe) = child.stderr.take() {
            readers.push(thread::spawn(move || copy(name, pipe, io::stderr())));
        }
        Ok(Self { name, child, id: Pid::from_raw(id), readers })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// End of the shell, if it ended. It stays a zombie until the drop.
    pub(super) fn ended(&self) -> io::Result<Option<End>> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(match waitid(Id::Pid(self.id), flags)? {
            WaitStatus::Exited(_, code) => Some(End::Exit(code)),
            WaitStatus::Signaled(_, signal, _) => Some(End::Signal(signal)),
            _ => None,
        })
    }

    /// Returns true if a process of the group listens at a TCP port.
    pub(super) fn listens(&self) -> bool {
        self.processes().any(|process| {
            let Ok(files) = process.fd() else { return false };
            let sockets: Vec<u64> = files
                .flatten()
                .filter_map(|file| match file.target {
                    FDTarget::Socket(inode) => Some(inode),
                    _ => None,
                })
                .collect();
            let listens = |entry: &TcpNetEntry| {
                entry.state == TcpState::Listen && sockets.contains(&entry.inode)
            };
            let tables = [process.tcp(), process.tcp6()];
            tables.iter().flatten().any(|table| table.iter().any(listens))
        })
    }

    /// Processor time of the group so far, in ticks, if all its threads sleep.
    pub(super) fn asleep(&self) -> Option<u64> {
        let mut ticks = None;
        for process in self.processes() {
            for task in process.tasks().ok()?.flatten() {
                let stat = task.stat().ok()?;
                if stat.state != 'S' {
                    return None;
                }
                *ticks.get_or_insert(0) += stat.utime + stat.stime;
            }
        }
        ticks
    }

    /// Processes of the group that have not ended.
    fn processes(&self) -> impl Iterator<Item = Process> {
        let group = self.id.as_raw();
        let all = all_processes().into_iter().flatten().flatten();
        all.filter(move |process| {
            process.stat().is_ok_and(|stat| stat.pgrp == group && stat.state != 'Z')
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The shell is reaped last: until then its number is no other group's.
        let _ = killpg(self.id, Signal::SIGTERM);
        let asked = Instant::now();
        while self.processes().next().is_some() && asked.elapsed() < GRACE {
            thread::sleep(STEP);
        }
        let _ = killpg(self.id, Signal::SIGKILL);
        let _ = self.child.wait();
        let killed = Instant::now();
        for reader in self.readers.drain(..) {
            while !reader.is_finished() && killed.elapsed() < LAST_LINES {
                thread::sleep(STEP);
            }
        }
    }
}

/// Copies lines behind the side's name. A line is written at once, so that lines don't mix.
fn copy(name: &str, pipe: impl Read, mut to: impl Write) {
    let mut pipe = BufReader::new(pipe);
    loop {
        let mut line = format!("{name}: ").into_bytes();
        let start = line.len();
        // A longer line is split.
        match (&mut pipe).take(LINE).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
        if !line[start..].ends_with(b"\n") {
            line.push(b'\n');
        }
        // The program goes on if our output is closed.
        let _ = to.write_all(&line).and_then(|()| to.flush());
    }
}
