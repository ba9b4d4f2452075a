//! Trace of a process's RDMA calls, written to a file named by the environment, for `uverbs trace`.
//!
//! Each event is a line with fields separated by tabs: nanoseconds since 1970, process id, device
//! name, kind of event, then `name=value` for each field. Bytes are hexadecimal. Processes of one
//! trace append to one file, a line at a time.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::environment::Variable;
use crate::private_file;

/// An open trace.
#[derive(Debug)]
pub struct Trace {
    file: File,
}

impl Trace {
    /// The trace of this process, into the file of `UVERBS_TRACE`. `None` if it was unset when the
    /// first device was opened, or the file can't be opened.
    #[must_use]
    pub fn of_environment() -> Option<&'static Self> {
        static TRACE: OnceLock<Option<Trace>> = OnceLock::new();
        let open = || Self::open(&Variable::Trace.path()?);
        TRACE.get_or_init(open).as_ref()
    }

    pub(crate) fn open(path: &Path) -> Option<Self> {
        Some(Self { file: private_file::append(path).ok()? })
    }

    /// The time of a line, in nanoseconds since 1970.
    #[must_use]
    pub fn now() -> u128 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
    }

    /// Writes a line with the current time.
    pub fn line(&self, device: &str, kind: &str, fields: fmt::Arguments<'_>) {
        self.line_of(Self::now(), device, kind, fields);
    }

    /// Writes a line. Errors are ignored: a trace must not disturb the program.
    pub fn line_of(&self, at: u128, device: &str, kind: &str, fields: fmt::Arguments<'_>) {
        let mut line = String::new();
        let _ = writeln!(line, "{at}\t{}\t{device}\t{kind}\t{fields}", std::process::id());
        // One call, so that lines of other threads and processes don't mix with it.
        let _ = (&self.file).write_all(line.as_bytes());
    }
}

/// Bytes, printed as hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_whole() {
        let path = std::env::temp_dir().join(format!("uverbs-trace-{}", std::process::id()));
        let [one, other] = [0, 1].map(|_| Trace::open(&path).unwrap());
        one.line("softhca0", "wqe", format_args!("bytes={}", Hex(&[0, 0xa5])));
        other.line("softhca1", "cqe", format_args!("cqn=1"));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
        let pid = std::process::id().to_string();
        assert_eq!(lines[0][1..], [&pid, "softhca0", "wqe", "bytes=00a5"]);
        assert_eq!(lines[1][1..], [&pid, "softhca1", "cqe", "cqn=1"]);
        assert!(lines[0][0].parse::<u128>().unwrap() <= lines[1][0].parse().unwrap());
        assert!(Trace::open(Path::new("/nonexistent/file")).is_none());
    }
}
