//! A process of the run, as the one that conducts it sees it.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::patience::Patience;
use crate::said::{Said, Status};
use crate::trouble::Fault;
use crate::watch::Sample;

/// How long a process may take to answer, when it can run: as long as the longest wait that it has
/// itself.
const ANSWER: Duration = Duration::from_secs(120);

/// See the [module](self).
pub(crate) struct Child {
    pub(crate) name: String,
    process: Process,
    said: Receiver<Said>,
}

impl Child {
    /// This program again, with these words.
    pub(crate) fn start(name: &str, words: &[String]) -> Result<Self, Fault> {
        let refused = |error: io::Error| Fault::Refused { why: format!("{name}: {error}") };
        let program = std::env::current_exe().map_err(refused)?;
        let mut process = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(refused)?;
        let (lines, said) = mpsc::channel();
        if let Some(stdout) = process.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let why = || Said::Wrong { why: format!("it printed {line:?}") };
                    let said = serde_json::from_str(&line).unwrap_or_else(|_| why());
                    if lines.send(said).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self { name: name.to_owned(), process, said })
    }

    /// Messages that it has sent since the last call.
    pub(crate) fn heard(&self) -> Vec<Said> {
        self.said.try_iter().collect()
    }

    /// All that it said until it ended.
    pub(crate) fn rest(&self) -> Vec<Said> {
        self.said.iter().collect()
    }

    /// Samples its resources.
    pub(crate) fn sample(&self) -> Result<Sample, Fault> {
        let name = || self.name.clone();
        Sample::of(self.id())
            .map_err(|error| Fault::Died { process: name(), status: error.to_string() })
    }

    /// Says a command.
    pub(crate) fn command(&mut self, command: &str) -> Result<(), Fault> {
        let stdin = self.process.stdin.as_mut();
        let said = stdin.map_or(Ok(()), |stdin| writeln!(stdin, "{command}"));
        said.map_err(|error| Fault::Died { process: self.name.clone(), status: error.to_string() })
    }

    /// Returns the next answer that `wanted` accepts; other lines go to `other`.
    pub(crate) fn answer<T>(
        &mut self,
        wanted: impl Fn(&Said) -> Option<T>,
        mut other: impl FnMut(Said),
    ) -> Result<T, Fault> {
        let patience = self.patience(ANSWER);
        loop {
            match self.said.recv_timeout(Duration::from_millis(100)) {
                Ok(said) => match wanted(&said) {
                    Some(answer) => return Ok(answer),
                    None => other(said),
                },
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.died()),
            }
            if let Some(waited) = patience.ended() {
                return Err(self.silent(waited));
            }
        }
    }

    /// Waits until it is ready.
    pub(crate) fn ready(&mut self, other: impl FnMut(Said)) -> Result<(), Fault> {
        self.answer(|said| (*said == Said::Ready).then_some(()), other)
    }

    /// A host's status.
    pub(crate) fn status(&mut self, other: impl FnMut(Said)) -> Result<Status, Fault> {
        self.command("count")?;
        let status = |said: &Said| match said {
            Said::Status(status) => Some(status.clone()),
            _ => None,
        };
        self.answer(status, other)
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Begins to wait for it.
    pub(crate) fn patience(&self, limit: Duration) -> Patience {
        Patience::new(limit, &[self.id()])
    }

    /// Its process number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    fn silent(&self, waited: Duration) -> Fault {
        Fault::Silent { process: self.name.clone(), waited: waited.as_secs() }
    }

    fn died(&mut self) -> Fault {
        let status = self.process.wait().map_or("?".to_owned(), |status| status.to_string());
        Fault::Died { process: self.name.clone(), status }
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        // It may have ended meanwhile.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Ends its input, and waits until it has ended.
    pub(crate) fn end(mut self) -> Result<(), Fault> {
        drop(self.process.stdin.take());
        let patience = self.patience(ANSWER);
        loop {
            match (self.ended(), patience.ended()) {
                (Some(status), _) if status.success() => return Ok(()),
                (Some(_), _) => return Err(self.died()),
                (None, Some(waited)) => {
                    self.kill();
                    return Err(self.silent(waited));
                }
                (None, None) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}
