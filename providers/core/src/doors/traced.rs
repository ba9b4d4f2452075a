//! A door whose commands are written to the process's trace.
//!
//! # Safety
//!
//! The one unsafe call passes on the contract of the wrapped door.
#![allow(unsafe_code, reason = "forwards an unsafe method of the door")]

use std::fmt::Write as _;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use uverbs_kernel_abi::ioctl::{ib_uverbs_attr, ib_uverbs_ioctl_hdr};
use zerocopy::IntoBytes;

use crate::Errno;
use crate::doors::{Recorded, RecordedAttr, Recorder, UverbsDoor};
use crate::memory::pages::Pages;
use crate::trace::{Hex, Trace};

/// The door of `device`, traced if the environment asks for it.
#[must_use]
pub fn traced(device: &str, door: Arc<dyn UverbsDoor>) -> Arc<dyn UverbsDoor> {
    match Trace::of_environment() {
        Some(trace) => Arc::new(Traced::new(trace, device, door)),
        None => door,
    }
}

#[derive(Debug)]
struct Traced {
    trace: &'static Trace,
    device: String,
    recorder: Recorder,
    door: Arc<dyn UverbsDoor>,
}

impl Traced {
    fn new(trace: &'static Trace, device: &str, door: Arc<dyn UverbsDoor>) -> Self {
        let recorder = Recorder::new(Arc::clone(&door));
        Self { trace, device: device.to_owned(), recorder, door }
    }
}

/// Rebuilds the bytes of a command: its header, and its attributes as sent or as returned.
fn command(recorded: &Recorded, of: impl Fn(&RecordedAttr) -> ib_uverbs_attr) -> Vec<u8> {
    let count = recorded.attrs.len();
    let length = size_of::<ib_uverbs_ioctl_hdr>() + count * size_of::<ib_uverbs_attr>();
    let header = ib_uverbs_ioctl_hdr {
        length: length as u16,
        object_id: recorded.object,
        method_id: recorded.method,
        num_attrs: count as u16,
        driver_id: recorded.driver_id,
        ..Default::default()
    };
    let attrs: Vec<ib_uverbs_attr> = recorded.attrs.iter().map(of).collect();
    [header.as_bytes(), attrs.as_bytes()].concat()
}

/// Fields of a command's line.
fn fields(recorded: &Recorded) -> String {
    let mut fields = match recorded.result {
        Ok(()) => "result=ok".to_owned(),
        Err(errno) => format!("result={errno:?}"),
    };
    let [before, after] =
        [command(recorded, |attr| attr.before), command(recorded, |attr| attr.after)];
    let _ = write!(fields, "\tbytes={}\tafter={}", Hex(&before), Hex(&after));
    for attr in &recorded.attrs {
        for (what, bytes) in [("sent", &attr.sent), ("got", &attr.received)] {
            if let Some(bytes) = bytes {
                let _ = write!(fields, "\t{what}.{:#x}={}", attr.before.attr_id, Hex(bytes));
            }
        }
    }
    fields
}

// SAFETY: forwards every call.
unsafe impl UverbsDoor for Traced {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        let start = Instant::now();
        // SAFETY: contract of `ioctl`.
        let (result, recorded) = unsafe { self.recorder.record(command) };
        let took = start.elapsed().as_nanos();
        if let Some(recorded) = recorded {
            let fields = fields(&recorded);
            self.trace.line(&self.device, "ioctl", format_args!("took={took}\t{fields}"));
        }
        result
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        let mapped = self.door.mmap(len, offset);
        let result = mapped.as_ref().map_or_else(|errno| format!("{errno:?}"), |_| "ok".to_owned());
        // Inlined, because in the oldest supported compiler the arguments can't outlive their
        // statement.
        self.trace.line(
            &self.device,
            "mmap",
            format_args!("result={result}\tlen={len}\toffset={offset:#x}"),
        );
        mapped
    }

    fn mmap_read_only(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.door.mmap_read_only(len, offset)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        self.door.raw_fd()
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.door.export()
    }

    fn memlock(&self, wanted: u64) -> Option<u64> {
        self.door.memlock(wanted)
    }

    fn memory(&self, len: usize) -> Option<Pages> {
        self.door.memory(len)
    }

    fn wants_rings_in_memory(&self) -> bool {
        self.door.wants_rings_in_memory()
    }

    fn progress(&self) {
        self.door.progress();
    }

    fn wants_progress(&self) -> bool {
        self.door.wants_progress()
    }

    fn will_sleep(&self) {
        self.door.will_sleep();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use crate::testing::YesDoor;

    use super::*;

    #[test]
    fn each_command_and_mapping_is_a_line_with_its_outcome() {
        let path = std::env::temp_dir().join(format!("uverbs-traced-{}", std::process::id()));
        let trace: &'static Trace = Box::leak(Box::new(Trace::open(&path).unwrap()));
        let below = Arc::new(YesDoor::default());
        let door = Traced::new(trace, "mlx5_0", below.clone());
        for refuse in [false, true] {
            below.refuse.store(refuse, Ordering::Relaxed);
            let mut command = [u64::from_le_bytes([24, 0, 1, 0, 2, 0, 0, 0]), 0, 5];
            // SAFETY: a header without attributes names no memory.
            let result = unsafe { door.ioctl(&mut command) };
            assert_eq!(result.is_err(), refuse);
        }
        assert_eq!(door.mmap(4096, 0x1000).map(drop), Err(Errno::ENODEV));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(below.ioctls.load(Ordering::Relaxed), 2, "each is sent once");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
        let of = |line: usize| (lines[line][2], lines[line][3], lines[line][5]);
        assert_eq!(of(0), ("mlx5_0", "ioctl", "result=ok"));
        assert_eq!(of(1), ("mlx5_0", "ioctl", "result=EBUSY"));
        assert_eq!(lines[2][2..], ["mlx5_0", "mmap", "result=ENODEV", "len=4096", "offset=0x1000"]);
        assert!(lines[0][6].starts_with("bytes=1800010002000000"), "{text}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_command_comes_out_as_it_went_in() {
        let before = ib_uverbs_attr { attr_id: 2, len: 4, data: 7, ..Default::default() };
        let after = ib_uverbs_attr { data: 9, ..before };
        let attr = RecordedAttr { before, after, sent: Some(vec![7, 0, 0, 0]), received: None };
        let recorded = Recorded {
            object: 1,
            method: 3,
            driver_id: 5,
            write_command: None,
            attrs: vec![attr],
            result: Err(Errno::EINVAL),
        };
        let bytes = command(&recorded, |attr| attr.after);
        assert_eq!(bytes.len(), 40);
        assert_eq!((&bytes[..8], bytes[16], bytes[32]), (&[40, 0, 1, 0, 3, 0, 1, 0][..], 5, 9));
        let text = fields(&recorded);
        assert!(text.starts_with("result=EINVAL\tbytes=2800"), "{text}");
        assert!(text.ends_with("\tsent.0x2=07000000"), "{text}");
    }
}
