//! A command under construction: header and attributes as plain values that cases spoil at will.
//!
//! # Safety
//!
//! Commands name memory by address, wild addresses included. What is wild is answered with `EFAULT`
//! by Linux and by softhca alike; what isn't lies in a [`Memory`] that outlives the open file.
#![allow(unsafe_code, reason = "sends raw commands")]

use nix::errno::Errno;
use uverbs_core::doors::UverbsDoor;
use uverbs_kernel_abi::ioctl::{
    UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_F_VALID_OUTPUT, ib_uverbs_attr, ib_uverbs_ioctl_hdr,
};
use uverbs_kernel_abi::objects::{UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE};
use zerocopy::{FromBytes, Immutable, IntoBytes, transmute};

use crate::memory::Memory;

const HEADER_WORDS: usize = 3;

/// A command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cmd {
    /// Lengths are filled in by [`Cmd::words`].
    pub(crate) header: ib_uverbs_ioctl_hdr,
    pub(crate) attrs: Vec<ib_uverbs_attr>,
}

impl Cmd {
    pub(crate) fn new(driver_id: u32, object_id: u16, method_id: u16) -> Self {
        let header = ib_uverbs_ioctl_hdr { object_id, method_id, driver_id, ..Default::default() };
        Self { header, attrs: Vec::new() }
    }

    pub(crate) fn attr(mut self, attr_id: u16, len: usize, data: u64) -> Self {
        let len = u16::try_from(len).expect("16 bits of length");
        let flags = UVERBS_ATTR_F_MANDATORY;
        self.attrs.push(ib_uverbs_attr { attr_id, len, flags, data, ..Default::default() });
        self
    }

    /// A handle or descriptor, in either direction.
    pub(crate) fn handle(self, id: u16, handle: impl Into<u64>) -> Self {
        self.attr(id, 0, handle.into())
    }

    pub(crate) fn constant(self, id: u16, value: u64) -> Self {
        self.attr(id, 8, value)
    }

    /// An input: in the attribute itself up to 8 bytes, else in `memory`.
    pub(crate) fn input<T: IntoBytes + Immutable>(
        self,
        memory: &Memory,
        id: u16,
        value: &T,
    ) -> Self {
        self.bytes(memory, id, value.as_bytes())
    }

    pub(crate) fn bytes(self, memory: &Memory, id: u16, bytes: &[u8]) -> Self {
        let mut data = [0; 8];
        match data.get_mut(..bytes.len()) {
            Some(inline) => {
                inline.copy_from_slice(bytes);
                self.attr(id, bytes.len(), u64::from_ne_bytes(data))
            }
            None => {
                let addr = memory.put(bytes);
                self.attr(id, bytes.len(), addr)
            }
        }
    }

    pub(crate) fn output(self, memory: &Memory, id: u16, len: usize) -> Self {
        let addr = memory.room(len);
        self.attr(id, len, addr)
    }

    pub(crate) fn without(mut self, id: u16) -> Self {
        self.attrs.retain(|attr| attr.attr_id != id);
        self
    }

    pub(crate) fn edit(mut self, id: u16, change: impl FnOnce(&mut ib_uverbs_attr)) -> Self {
        change(self.attrs.iter_mut().find(|attr| attr.attr_id == id).expect("the attribute"));
        self
    }

    /// The attribute of an id.
    pub(crate) fn find(&self, id: u16) -> Option<ib_uverbs_attr> {
        find(&self.attrs, id)
    }

    /// True if it is a write command.
    pub(crate) fn is_write(&self) -> bool {
        (self.header.object_id, self.header.method_id)
            == (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
    }

    /// The command's words.
    pub(crate) fn words(&self) -> Vec<u64> {
        let mut header = self.header;
        header.num_attrs = self.attrs.len() as u16;
        header.length = (24 + 16 * self.attrs.len()) as u16;
        let head: [u64; HEADER_WORDS] = transmute!(header);
        let mut words = head.to_vec();
        for attr in &self.attrs {
            let pair: [u64; 2] = transmute!(*attr);
            words.extend(pair);
        }
        words
    }

    /// Sends it. Gives the attributes as they came back.
    pub(crate) fn send(&self, door: &dyn UverbsDoor) -> Result<Vec<ib_uverbs_attr>, Errno> {
        let mut words = self.words();
        send_words(door, &mut words)?;
        let answer = words[HEADER_WORDS..].as_bytes().chunks_exact(16);
        Ok(answer.filter_map(|bytes| ib_uverbs_attr::read_from_bytes(bytes).ok()).collect())
    }
}

/// Sends bare words.
pub(crate) fn send_words(door: &dyn UverbsDoor, words: &mut [u64]) -> Result<(), Errno> {
    // SAFETY: every address is in client memory that outlives the file, or invalid on purpose
    // (module docs).
    unsafe { door.ioctl(words) }.map_err(known)
}

/// A door's errno, as the cases' own calls have it.
pub(crate) fn known(errno: uverbs_core::Errno) -> Errno {
    Errno::from_raw(errno.raw())
}

/// The attribute of an id.
pub(crate) fn find(attrs: &[ib_uverbs_attr], id: u16) -> Option<ib_uverbs_attr> {
    attrs.iter().find(|attr| attr.attr_id == id).copied()
}

/// Ids of the attributes that the kernel marked as written.
pub(crate) fn written(attrs: &[ib_uverbs_attr]) -> Vec<u16> {
    let marked = attrs.iter().filter(|attr| attr.flags & UVERBS_ATTR_F_VALID_OUTPUT != 0);
    marked.map(|attr| attr.attr_id).collect()
}
