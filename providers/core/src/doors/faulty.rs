//! A door that fails chosen commands with an errno without sending them, to test error handling.
//!
//! # Safety
//!
//! The one unsafe call passes on the contract of the wrapped door.
#![allow(unsafe_code, reason = "forwards an unsafe method of the door")]

use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Errno;
use crate::doors::{UverbsDoor, words};
use crate::memory::pages::Pages;

/// Event that triggers a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    Method { object: u16, method: u16 },
    Write { command: u32 },
    Mmap,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    trigger: Trigger,
    /// Calls that still pass before the fault.
    pass: u32,
    errno: Errno,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Faulty {
    door: Arc<dyn UverbsDoor>,
    faults: Mutex<Vec<Fault>>,
}

impl Faulty {
    /// Wraps `door`, without faults.
    #[must_use]
    pub fn new(door: Arc<dyn UverbsDoor>) -> Self {
        Self { door, faults: Mutex::default() }
    }

    /// Fails the `nth` call from now (counted from 1) to `method` of `object` with `errno`, once. 0
    /// means 1.
    pub fn fail(&self, object: u16, method: u16, nth: u32, errno: Errno) {
        self.add(Trigger::Method { object, method }, nth, errno);
    }

    /// Fails the `nth` command of the write layout: `IB_USER_VERBS_CMD_*`, with the flag of
    /// extended commands.
    pub fn fail_write(&self, command: u32, nth: u32, errno: Errno) {
        self.add(Trigger::Write { command }, nth, errno);
    }

    /// Fails the `nth` mapping.
    pub fn fail_mmap(&self, nth: u32, errno: Errno) {
        self.add(Trigger::Mmap, nth, errno);
    }

    /// Number of faults that were not triggered yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn add(&self, trigger: Trigger, nth: u32, errno: Errno) {
        let fault = Fault { trigger, pass: nth.saturating_sub(1), errno };
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Counts a call on all faults that wait for it, and returns the errno of the first that is
    /// due.
    fn check(&self, is_it: impl Fn(Trigger) -> bool) -> Result<(), Errno> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let due = faults.iter().position(|fault| is_it(fault.trigger) && fault.pass == 0);
        for fault in faults.iter_mut().filter(|fault| is_it(fault.trigger)) {
            fault.pass = fault.pass.saturating_sub(1);
        }
        due.map_or(Ok(()), |due| Err(faults.remove(due).errno))
    }
}

// SAFETY: forwards every call, or returns an error.
unsafe impl UverbsDoor for Faulty {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        if let Some((header, _)) = words::parse(command) {
            let write = super::write_command(command);
            self.check(|trigger| match trigger {
                Trigger::Method { object, method } => {
                    (object, method) == (header.object_id, header.method_id)
                }
                Trigger::Write { command } => write == Some(command),
                Trigger::Mmap => false,
            })?;
        }
        // SAFETY: contract of `ioctl`.
        unsafe { self.door.ioctl(command) }
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.check(|trigger| trigger == Trigger::Mmap)?;
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
        self.check(|trigger| trigger == Trigger::Mmap)?;
        self.door.mmap_read_only(len, offset)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        self.door.raw_fd()
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.door.export()
    }
}
