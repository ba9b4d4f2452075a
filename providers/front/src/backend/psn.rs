//! Packet sequence numbers: 24 bits that wrap.

use std::fmt;
use std::ops::Add;

/// A packet sequence number (IBTA vol 1, 9.2 BTH and 9.7.1).
///
/// Numbers that wrap have no total order, so there is no `Ord`: two PSNs compare by their signed
/// distance, which is defined within half of the space (2^23).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Bits of a PSN.
    pub const MASK: u32 = 0x00ff_ffff;

    /// PSN from the low 24 bits of `value`.
    pub const fn new(value: u32) -> Psn {
        Psn(value & Psn::MASK)
    }

    /// The number, below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN after this one.
    pub const fn next(self) -> Psn {
        self.offset(1)
    }

    /// The PSN `count` packets later; negative is earlier.
    pub const fn offset(self, count: i32) -> Psn {
        Psn::new(self.0.wrapping_add_signed(count))
    }

    /// Number of packets from `other` to this PSN, in `-2^23 .. 2^23`; negative if it is earlier.
    pub const fn diff(self, other: Psn) -> i32 {
        // Moving the 24 bits to the top makes bit 23 the sign, the shift back extends it.
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// Returns `true` if this PSN comes before `other`.
    pub const fn is_before(self, other: Psn) -> bool {
        self.diff(other) < 0
    }

    /// Returns `true` if this PSN comes after `other`.
    pub const fn is_after(self, other: Psn) -> bool {
        self.diff(other) > 0
    }

    /// Returns `true` if this PSN is among the `count` that start at `first`. `count` is at most
    /// 2^23.
    pub const fn is_within(self, first: Psn, count: u32) -> bool {
        self.0.wrapping_sub(first.0) & Psn::MASK < count
    }
}

impl Add<u32> for Psn {
    type Output = Psn;
    fn add(self, count: u32) -> Psn {
        Psn::new(self.0.wrapping_add(count))
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:#08x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wraps_at_24_bits() {
        assert_eq!(Psn::new(0xff_ffff).next(), Psn::new(0));
        assert_eq!(Psn::new(0).offset(-1), Psn::new(0xff_ffff));
        assert_eq!(Psn::new(0x1ff_0001).get(), 0xff_0001);
        assert_eq!(Psn::new(2).diff(Psn::new(0xff_fffe)), 4);
        assert_eq!(Psn::new(0xff_fffe).diff(Psn::new(2)), -4);
        assert!(Psn::new(0xff_ffff).is_before(Psn::new(0)));
        assert!(Psn::new(0).is_after(Psn::new(0xff_ffff)));
        // The far half is in the past, including its border.
        assert_eq!(Psn::new(0x80_0000).diff(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0x7f_ffff).diff(Psn::new(0)), 0x7f_ffff);
    }

    #[test]
    fn within_a_window_that_wraps() {
        let first = Psn::new(0xff_fffe);
        assert!(!Psn::new(0xff_fffd).is_within(first, 4));
        assert!(Psn::new(0xff_fffe).is_within(first, 4));
        assert!(Psn::new(1).is_within(first, 4));
        assert!(!Psn::new(2).is_within(first, 4));
        assert!(!first.is_within(first, 0));
    }

    proptest! {
        #[test]
        fn diff_undoes_offset(start in 0u32..1 << 24, by in -0x80_0000i32..0x80_0000) {
            let a = Psn::new(start);
            let b = a.offset(by);
            prop_assert!(b.get() <= Psn::MASK);
            prop_assert_eq!(b.diff(a), by);
            prop_assert_eq!(b.is_before(a), by < 0);
            prop_assert_eq!(b.is_after(a), by > 0);
            prop_assert_eq!(a + b.get().wrapping_sub(a.get()), b);
        }
    }
}
