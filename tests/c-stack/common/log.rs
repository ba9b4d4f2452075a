//! Log of commands, a line each, for comparison with another stack's.
//!
//! `fd 4 3.0 0:idr=1 6:out4=ff010000 1:in4=... = 0`: object and method in hex (a write command's
//! number in parentheses), then each attribute in wire order: id in hex, direction and length,
//! payload bytes; at the end 0 or an errno. An unreadable payload is `?`.
//!
//! # Safety
//!
//! Passes a command on to the door, by the contract of its `ioctl`.
#![allow(unsafe_code, reason = "forwards the unsafe call of a door")]

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::doors::{Recorded, RecordedAttr, Recorder};
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE,
};

/// Door whose commands are logged, if the environment asks for it.
#[derive(Debug)]
pub struct Logged {
    fd: RawFd,
    door: Arc<dyn UverbsDoor>,
    recorder: Option<Arc<Recorder>>,
}

fn file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let open = || {
        let path = std::env::var_os("UVERBS_SOFTHCA_LOG").filter(|path| !path.is_empty())?;
        match OpenOptions::new().append(true).create(true).open(&path) {
            Ok(file) => Some(file),
            Err(error) => {
                eprintln!("uverbs-c-stack: {}: {error}", path.display());
                None
            }
        }
    };
    FILE.get_or_init(open).as_ref()
}

/// Converts a door's errno to nix's.
pub fn known(errno: uverbs_core::Errno) -> Errno {
    Errno::from_raw(errno.raw())
}

impl Logged {
    pub fn new(fd: RawFd, door: Arc<dyn UverbsDoor>) -> Self {
        let recorder = file().map(|_| Arc::new(Recorder::new(Arc::clone(&door))));
        let door = match &recorder {
            Some(recorder) => Arc::clone(recorder) as Arc<dyn UverbsDoor>,
            None => door,
        };
        Self { fd, door, recorder }
    }

    /// Executes and logs a command.
    ///
    /// # Safety
    ///
    /// As [`UverbsDoor::ioctl`].
    ///
    /// # Errors
    ///
    /// The errno.
    pub unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: by the contract of `ioctl`.
        let result = unsafe { self.door.ioctl(command) };
        if let Some(recorder) = &self.recorder {
            for recorded in recorder.take() {
                write(&line(self.fd, &recorded));
            }
        }
        result.map_err(known)
    }

    /// Maps a page, for reading and, if `writes`, for writing.
    ///
    /// # Errors
    ///
    /// The errno.
    pub fn mmap(&self, len: usize, offset: u64, writes: bool) -> Result<Pages, Errno> {
        let result = if writes {
            self.door.mmap(len, offset)
        } else {
            self.door.mmap_read_only(len, offset)
        };
        if self.recorder.is_some() {
            let result = result.as_ref().err().map_or(0, |errno| errno.raw());
            write(&format!("fd {} mmap {len} {offset:#x} = {result}\n", self.fd));
        }
        result.map_err(known)
    }
}

/// Writes a line `# name`, which separates parts of the log.
pub fn mark(name: &str) {
    write(&format!("# {name}\n"));
}

/// Writes a line by one call, so that lines of several threads do not mix. A full disk loses lines.
fn write(line: &str) {
    if let Some(mut file) = file() {
        let _ = file.write_all(line.as_bytes());
    }
}

/// Name of a command: object and method in hex, with a write command's number in parentheses.
pub fn name(command: &[u64]) -> String {
    let Some((header, mut attrs)) = uverbs_core::doors::words::parse(command) else {
        return "malformed".to_owned();
    };
    let mut name = format!("{:x}.{:x}", header.object_id, header.method_id);
    if (header.object_id, header.method_id) == (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
        && let Some(attr) = attrs.find(|attr| attr.attr_id == UVERBS_ATTR_WRITE_CMD)
    {
        // Writing to a string cannot fail.
        let _ = write!(name, "({:#x})", attr.data);
    }
    name
}

/// Formats a command as a line.
pub fn line(fd: RawFd, recorded: &Recorded) -> String {
    let mut line = format!("fd {fd} {:x}.{:x}", recorded.object, recorded.method);
    // Writing to a string cannot fail.
    if let Some(command) = recorded.write_command {
        let _ = write!(line, "({command:#x})");
    }
    for attr in &recorded.attrs {
        line.push(' ');
        line.push_str(&shown(attr));
    }
    let result = recorded.result.err().map_or(0, |errno| errno.raw());
    let _ = writeln!(line, " = {result}");
    line
}

fn shown(attr: &RecordedAttr) -> String {
    let id = attr.before.attr_id;
    let len = attr.before.len;
    if len == 0 && attr.sent.is_none() {
        return format!("{id:x}:idr={}", attr.after.data.cast_signed());
    }
    let (direction, bytes) = match &attr.received {
        Some(bytes) => ("out", Some(bytes)),
        None => ("in", attr.sent.as_ref()),
    };
    let bytes = bytes.map_or_else(
        || "?".to_owned(),
        |bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    );
    format!("{id:x}:{direction}{len}={bytes}")
}
