//! A door that records each ioctl with its attributes and their payloads, before and after.
//!
//! Payloads are read through `/proc/self/mem`, so that a wrong address in a command makes its
//! payload missing instead of a crash. If that file can't be opened, all payloads by address are
//! missing.
//!
//! # Safety
//!
//! The one unsafe call passes on the contract of the wrapped door.
#![allow(unsafe_code, reason = "forwards an unsafe method of the door")]

use std::fmt;
use std::fs::File;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_kernel_abi::ioctl::{
    UVERBS_ATTR_F_VALID_OUTPUT, UVERBS_ATTR_INLINE_MAX, ib_uverbs_attr,
};
use uverbs_kernel_abi::objects::UVERBS_ATTR_UHW_OUT;

use crate::Errno;
use crate::doors::{UverbsDoor, words};
use crate::memory::pages::Pages;

/// First number of drivers' objects (`UVERBS_ID_NS_SHIFT`, `rdma/ib_user_ioctl_cmds.h`).
const DRIVER_OBJECTS: u16 = 1 << 12;

/// One attribute of a recorded command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAttr {
    /// Attribute as sent.
    pub before: ib_uverbs_attr,
    /// Attribute as returned: a new handle or descriptor in `data`, `UVERBS_ATTR_F_VALID_OUTPUT` in
    /// `flags`.
    pub after: ib_uverbs_attr,
    /// Payload as sent: inline bytes, or the bytes at the address. `None` for handles and
    /// descriptors.
    ///
    /// Before the call, an output of up to eight bytes can't be told from an inline input; for such
    /// an output this is its address.
    pub sent: Option<Vec<u8>>,
    /// Payload of an output after the call; `None` if it was not written.
    pub received: Option<Vec<u8>>,
}

/// One recorded ioctl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// `UVERBS_OBJECT_*`.
    pub object: u16,
    /// `UVERBS_METHOD_*`.
    pub method: u16,
    /// `RDMA_DRIVER_*` as sent.
    pub driver_id: u32,
    /// Command number of an `INVOKE_WRITE`.
    pub write_command: Option<u32>,
    /// Attributes in wire order.
    pub attrs: Vec<RecordedAttr>,
    /// Result of the wrapped door.
    pub result: Result<(), Errno>,
}

impl Recorded {
    /// Returns the attribute `id`.
    #[must_use]
    pub fn attr(&self, id: u16) -> Option<&RecordedAttr> {
        self.attrs.iter().find(|attr| attr.before.attr_id == id)
    }
}

impl fmt::Display for Recorded {
    /// `4.0 2:idr 9:8 d:20> = ok`: object, method, then id and bytes in hex and decimal; `>` marks
    /// outputs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}", self.object, self.method)?;
        if let Some(command) = self.write_command {
            write!(f, "({command:#x})")?;
        }
        for attr in &self.attrs {
            write!(f, " {:x}:", attr.before.attr_id)?;
            match attr.before.len {
                0 => f.write_str("idr")?,
                len => write!(f, "{len}")?,
            }
            if attr.received.is_some() {
                f.write_str(">")?;
            }
        }
        match self.result {
            Ok(()) => f.write_str(" = ok"),
            Err(errno) => write!(f, " = {errno:?}"),
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Recorder {
    door: Arc<dyn UverbsDoor>,
    memory: Option<File>,
    log: Mutex<Vec<Recorded>>,
}

impl Recorder {
    /// Wraps `door`.
    #[must_use]
    pub fn new(door: Arc<dyn UverbsDoor>) -> Self {
        Self { door, memory: File::open("/proc/self/mem").ok(), log: Mutex::default() }
    }

    /// Takes the records since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the bytes at an attribute's address.
    fn read(&self, attr: &ib_uverbs_attr) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::from(attr.len)];
        self.memory.as_ref()?.read_exact_at(&mut bytes, attr.data).ok()?;
        Some(bytes)
    }

    fn sent(&self, object: u16, attr: &ib_uverbs_attr) -> Option<Vec<u8>> {
        // The core's methods have one output with a known id. Methods of a driver use the same id
        // for their own attributes.
        let is_output = attr.attr_id == UVERBS_ATTR_UHW_OUT && object < DRIVER_OBJECTS;
        if attr.len == 0 {
            None
        } else if attr.len > UVERBS_ATTR_INLINE_MAX || is_output {
            self.read(attr)
        } else {
            Some(attr.data.to_ne_bytes()[..usize::from(attr.len)].to_vec())
        }
    }

    fn received(&self, attr: &ib_uverbs_attr) -> Option<Vec<u8>> {
        let is_output = attr.len != 0 && attr.flags & UVERBS_ATTR_F_VALID_OUTPUT != 0;
        is_output.then(|| self.read(attr))?
    }

    /// Forwards a command, and returns its result and its record without logging it. The record is
    /// `None` for a malformed command.
    ///
    /// # Safety
    ///
    /// The contract of [`UverbsDoor::ioctl`].
    pub(super) unsafe fn record(
        &self,
        command: &mut [u64],
    ) -> (Result<(), Errno>, Option<Recorded>) {
        let before: Option<(_, Vec<_>)> = words::parse(command).map(|(header, attrs)| {
            let sent = |attr: ib_uverbs_attr| (attr, self.sent(header.object_id, &attr));
            (header, attrs.map(sent).collect())
        });
        let write_command = super::write_command(command);
        // SAFETY: contract of `record`.
        let result = unsafe { self.door.ioctl(command) };
        let (Some((header, before)), Some((_, after))) = (before, words::parse(command)) else {
            return (result, None);
        };
        let attrs = before.into_iter().zip(after).map(|((before, sent), after)| RecordedAttr {
            before,
            after,
            sent,
            received: result.is_ok().then(|| self.received(&after)).flatten(),
        });
        let recorded = Recorded {
            object: header.object_id,
            method: header.method_id,
            driver_id: header.driver_id,
            write_command,
            attrs: attrs.collect(),
            result,
        };
        (result, Some(recorded))
    }
}

// SAFETY: forwards every call.
unsafe impl UverbsDoor for Recorder {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: contract of `ioctl`.
        let (result, recorded) = unsafe { self.record(command) };
        self.log.lock().unwrap_or_else(PoisonError::into_inner).extend(recorded);
        result
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.door.mmap(len, offset)
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

    fn mmap_read_only(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.door.mmap_read_only(len, offset)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        self.door.raw_fd()
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.door.export()
    }
}
