//! Attributes of a command, as the kernel reads and answers them.
//!
//! # Safety
//!
//! A command borrows the inputs and outputs that it names, says the contract of
//! `UverbsDoor::ioctl`.
#![allow(unsafe_code, reason = "reads and writes the buffers that a command names")]

use uverbs_core::doors::words::parse;
use uverbs_kernel_abi::ioctl::{ib_uverbs_attr, ib_uverbs_ioctl_hdr};

/// A command.
#[derive(Debug)]
pub struct Call {
    /// Object, method and driver.
    pub header: ib_uverbs_ioctl_hdr,
    attrs: Vec<ib_uverbs_attr>,
}

impl Call {
    /// Parses a command; `None` if it is malformed.
    ///
    /// # Safety
    ///
    /// The command's buffers are valid while the call is used.
    pub(super) unsafe fn new(command: &[u64]) -> Option<Self> {
        let (header, attrs) = parse(command)?;
        Some(Self { header, attrs: attrs.collect() })
    }

    /// The attribute `id`, if the command has it.
    #[must_use]
    pub fn find(&self, id: u16) -> Option<&ib_uverbs_attr> {
        self.attrs.iter().find(|attr| attr.attr_id == id)
    }

    /// Word of the command that holds the data of the attribute `id`: a header of three words comes
    /// first, and an attribute has two.
    pub(super) fn data_word(&self, id: u16) -> usize {
        let at = self.attrs.iter().position(|attr| attr.attr_id == id);
        3 + 2 * at.expect("an attribute for the handle") + 1
    }

    /// Writes an output.
    ///
    /// # Panics
    ///
    /// When the command has no room for it.
    pub fn answer(&self, id: u16, bytes: &[u8]) {
        let attr = self.find(id).expect("room for an answer");
        assert!(usize::from(attr.len) >= bytes.len());
        let to = std::ptr::with_exposed_provenance_mut::<u8>(attr.data as usize);
        // SAFETY: an output that the command borrows, and it is long enough.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Reads an input.
    ///
    /// # Panics
    ///
    /// When the command lacks it.
    #[must_use]
    pub fn read(&self, id: u16) -> Vec<u8> {
        let attr = self.find(id).expect("an input");
        if attr.len <= 8 {
            return attr.data.to_ne_bytes().to_vec();
        }
        let from = std::ptr::with_exposed_provenance::<u8>(attr.data as usize);
        // SAFETY: an input that the command borrows.
        unsafe { std::slice::from_raw_parts(from, attr.len.into()) }.to_vec()
    }

    /// Reads the first `N` words of an input.
    #[must_use]
    pub fn words<const N: usize>(&self, id: u16) -> [u32; N] {
        let bytes = self.read(id);
        std::array::from_fn(|at| {
            u32::from_ne_bytes(bytes[4 * at..][..4].try_into().expect("four bytes"))
        })
    }
}
