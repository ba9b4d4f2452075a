//! Response of an ioctl command.
//!
//! # Safety
//!
//! One unsafe operation: it takes ownership of a new file descriptor, which the kernel names by
//! number.
#![allow(unsafe_code, reason = "descriptors in answers come as numbers")]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use uverbs_kernel_abi::ioctl::{UVERBS_ATTR_F_VALID_OUTPUT, ib_uverbs_attr};

use crate::Errno;
use crate::doors::words::{ATTR_WORDS, HEADER_WORDS, attrs_of};
use crate::error::Error;

/// Maximum attributes of a command. `QP_CREATE` with all of its and a provider's attributes has 17.
pub const MAX_ATTRS: usize = 24;

/// Words of the longest command.
pub(super) const WORDS: usize = HEADER_WORDS + ATTR_WORDS * MAX_ATTRS;

/// Response of the kernel to a command. Descriptors not taken are closed.
#[derive(Debug)]
pub struct Answer {
    pub(super) words: [u64; WORDS],
    pub(super) attrs: usize,
    /// Bit per attribute: it holds a new descriptor.
    pub(super) new_fds: u32,
    /// Bit per attribute: it holds a handle.
    pub(super) new_handles: u32,
    pub(super) verb: &'static str,
}

impl Answer {
    fn attrs(&self) -> impl Iterator<Item = (usize, ib_uverbs_attr)> + '_ {
        attrs_of(&self.words[HEADER_WORDS..]).take(self.attrs).enumerate()
    }

    fn find(&self, id: u16) -> Option<(usize, ib_uverbs_attr)> {
        self.attrs().find(|(_, attr)| attr.attr_id == id)
    }

    fn missing(&self, id: u16) -> Error {
        Error::Unsupported { verb: self.verb, what: format!("an answer in attribute {id:#x}") }
    }

    /// The handle of the new object in attribute `id`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the command did not request one in this attribute.
    pub fn handle(&self, id: u16) -> Result<u32, Error> {
        match self.find(id) {
            Some((at, attr)) if self.new_handles & (1 << at) != 0 => Ok(attr.data as u32),
            _ => Err(self.missing(id)),
        }
    }

    /// The new descriptor in attribute `id`, once.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the command did not request one in this attribute, or it was taken
    /// before.
    pub fn take_fd(&mut self, id: u16) -> Result<OwnedFd, Error> {
        let (at, attr) = self.find(id).ok_or_else(|| self.missing(id))?;
        if self.new_fds & (1 << at) == 0 {
            return Err(self.missing(id));
        }
        self.new_fds &= !(1 << at);
        owned(attr.data).ok_or_else(|| Error::kernel(self.verb, Errno::EBADF))
    }

    /// Returns true if the kernel wrote the output `id`. A successful command writes all mandatory
    /// outputs.
    #[must_use]
    pub fn is_written(&self, id: u16) -> bool {
        self.find(id).is_some_and(|(_, attr)| attr.flags & UVERBS_ATTR_F_VALID_OUTPUT != 0)
    }
}

/// The descriptor that the kernel put into an attribute; `None` for an invalid number.
fn owned(data: u64) -> Option<OwnedFd> {
    let fd = RawFd::try_from(data.cast_signed()).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: the command succeeded, so the door put a new descriptor there (`UVERBS_ATTR_FD`,
    // access NEW), close-on-exec and owned by this process alone; the callers clear the attribute's
    // bit, so it is taken once.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.new_fds == 0 {
            return;
        }
        for (at, attr) in self.attrs() {
            if self.new_fds & (1 << at) != 0 {
                drop(owned(attr.data));
            }
        }
    }
}
