//! Doorbell registers.
//!
//! # Safety
//!
//! An address is in a mapping that its owner keeps. The device may read and write there at any
//! time, so accesses are volatile, and there are no references.
#![allow(unsafe_code, reason = "stores to registers")]

/// A doorbell register of 32 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register(*mut u32);

// SAFETY: any thread may store to a register.
unsafe impl Send for Register {}
// SAFETY: any thread may store to a register.
unsafe impl Sync for Register {}

impl Register {
    /// # Safety
    ///
    /// `at` is aligned, and valid for a volatile store of four bytes while the register is used.
    pub(crate) unsafe fn new(at: *mut u32) -> Self {
        Self(at)
    }

    /// Address of the register.
    pub(crate) fn address(self) -> *mut u32 {
        self.0
    }

    /// Stores `value`.
    #[inline(always)]
    pub(crate) fn write(self, value: u32) {
        // SAFETY: see `new`.
        unsafe { self.0.write_volatile(value.to_le()) };
    }
}
