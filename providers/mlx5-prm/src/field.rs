//! Values of a structure's fields: in host byte order, and printed.

use core::fmt;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

/// Value of a memory field in host byte order.
pub(crate) trait Host {
    /// Native integer.
    type Word;
    /// Converts to host byte order.
    fn host(self) -> Self::Word;
}

impl Host for u8 {
    type Word = u8;
    #[inline]
    fn host(self) -> u8 {
        self
    }
}

macro_rules! host {
    ($($wire:ident $word:ident)*) => { $(
        impl Host for $wire {
            type Word = $word;
            #[inline]
            fn host(self) -> $word {
                self.get()
            }
        }
    )* };
}
host! { U16 u16 U32 u32 U64 u64 }

/// A value in a structure: numbers as hexadecimal of full width, bytes in order.
pub(crate) trait Field {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl Field for u8 {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#04x}")
    }
}

impl Field for U16 {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.get())
    }
}

impl Field for U32 {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.get())
    }
}

impl Field for U64 {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.get())
    }
}

impl<const N: usize> Field for [u8; N] {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(self, f)
    }
}

impl<const N: usize> Field for [U32; N] {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for word in self {
            write!(f, "{gap}{:08x}", word.get())?;
            gap = " ";
        }
        Ok(())
    }
}

/// Prints bytes in order, without gaps.
pub(crate) fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
