//! Macros that declare layouts: [`bits!`] for fields packed into one word, [`layout!`] for
//! structures in memory, [`named!`] for numbers with names.
//!
//! All three print. A table of the PRM is written as a table here. Getters, builders and checks are
//! generated from it.

/// Mask of the bits `hi..=lo` of a word of `bits` bits. Runs at compile time only; the assertions
/// reject a mistyped table.
pub(crate) const fn mask(hi: u32, lo: u32, bits: u32) -> u64 {
    assert!(hi >= lo, "the high bit comes first");
    assert!(hi < bits, "field lies outside the word");
    (u64::MAX >> (63 - (hi - lo))) << lo
}

/// Adds a field's bits to `seen`. Runs at compile time only.
pub(crate) const fn claim(seen: u64, field: u64) -> u64 {
    assert!(seen & field == 0, "two fields share a bit");
    seen | field
}

/// Declares the fields of one word as the manual prints them:
///
/// ```text
/// bits! {
///     /// PRM section.
///     pub struct Word(u32) {
///         /// A range of bits, high:low.
///         31:24 opmod with_opmod: u8;
///         /// A single bit is a `bool`.
///         7 signed with_signed;
///     }
/// }
/// ```
///
/// The newtype holds the word in host order, reserved bits included, so a word survives unchanged.
/// A builder drops the bits of its argument that do not fit the field. Ranges are checked at
/// compile time: order, word width, width of the getter's type, overlap.
macro_rules! bits {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($word:ident) {
            $(
                $(#[$fmeta:meta])*
                $hi:literal $(: $lo:literal)? $get:ident $with:ident $(: $ty:ident)?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $word);

        impl $name {
            /// All bits zero.
            pub const ZERO: Self = Self(0);
            /// Fields, as a table.
            pub const FIELDS: &'static [$crate::table::Bits] = &[$(
                $crate::table::Bits {
                    name: stringify!($get),
                    high: $hi,
                    low: bits!(@low $hi, [$($lo)?]),
                },
            )*];
            $( bits!(@field $word, $hi, [$($lo)?], $get, $with, [$($ty)?], $(#[$fmeta])*); )*
        }

        const _: () = {
            let mut seen = 0;
            $( seen = $crate::bits::claim(seen, bits!(@mask $word, $hi, [$($lo)?])); )*
            assert!(seen != 0, "a word without fields");
        };

        impl From<$word> for $name {
            #[inline]
            fn from(word: $word) -> Self {
                Self(word)
            }
        }

        impl From<$name> for $word {
            #[inline]
            fn from(bits: $name) -> Self {
                bits.0
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("raw", &format_args!("{:#x}", self.0))
                    $( .field(stringify!($get), &self.$get()) )*
                    .finish()
            }
        }

        /// Every field as `name=value`, decimal.
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut gap = "";
                $(
                    write!(f, "{gap}{}={}", stringify!($get), self.$get())?;
                    gap = " ";
                )*
                let _ = gap;
                Ok(())
            }
        }
    };
    (@field $word:ident, $hi:literal, [], $get:ident, $with:ident, [], $(#[$fmeta:meta])*) => {
        $(#[$fmeta])*
        #[inline]
        #[must_use]
        pub const fn $get(self) -> bool {
            self.0 >> $hi & 1 != 0
        }

        #[doc = concat!("This word with `", stringify!($get), "` replaced.")]
        #[inline]
        #[must_use]
        pub const fn $with(self, value: bool) -> Self {
            Self(self.0 & !(1 << $hi) | (value as $word) << $hi)
        }
    };
    (@field $word:ident, $hi:literal, [$lo:literal], $get:ident, $with:ident, [$ty:ident],
        $(#[$fmeta:meta])*) => {
        $(#[$fmeta])*
        #[inline]
        #[must_use]
        pub const fn $get(self) -> $ty {
            const { assert!($hi - $lo < $ty::BITS, "the getter's type is too narrow") };
            ((self.0 & bits!(@mask $word, $hi, [$lo]) as $word) >> $lo) as $ty
        }

        #[doc = concat!("Replaces `", stringify!($get), "`; excess bits are dropped.")]
        #[inline]
        #[must_use]
        pub const fn $with(self, value: $ty) -> Self {
            const MASK: $word = bits!(@mask $word, $hi, [$lo]) as $word;
            Self(self.0 & !MASK | ((value as $word) << $lo) & MASK)
        }
    };
    (@low $hi:literal, []) => {
        $hi
    };
    (@low $hi:literal, [$lo:literal]) => {
        $lo
    };
    (@mask $word:ident, $hi:literal, []) => {
        const { $crate::bits::mask($hi, $hi, $word::BITS) }
    };
    (@mask $word:ident, $hi:literal, [$lo:literal]) => {
        const { $crate::bits::mask($hi, $lo, $word::BITS) }
    };
}

/// Declares a structure in memory; its size in bytes follows the name.
///
/// The structure gets every zerocopy view (so the compiler rejects hidden padding), a zero
/// `Default`, and a `Display` that prints offset, name and value of each field; `as Word` adds the
/// packed fields of that word.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        pub struct $name:ident[$size:literal] {
            $( $(#[$fmeta:meta])* pub $field:ident: $ty:ty $(as $bits:ident)?, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
            zerocopy::Unaligned, Clone, Copy, PartialEq, Eq, Debug,
        )]
        #[repr(C)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $ty, )*
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// Fields in memory, as a table.
            pub const MEMBERS: &'static [$crate::table::Member] = &[$(
                $crate::table::Member {
                    name: stringify!($field),
                    offset: core::mem::offset_of!($name, $field),
                    len: size_of::<$ty>(),
                    bits: $crate::bits::layout!(@bits $($bits)?),
                },
            )*];
        }

        impl Default for $name {
            /// All bytes zero.
            #[inline]
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        impl $crate::field::Field for $name {
            fn print(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }

        /// One line per field: offset, name, value, packed fields.
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(stringify!($name))?;
                $(
                    write!(
                        f,
                        "\n  {:#04x} {} ",
                        core::mem::offset_of!($name, $field),
                        stringify!($field),
                    )?;
                    $crate::field::Field::print(&self.$field, f)?;
                    $( write!(f, " {}", $bits($crate::field::Host::host(self.$field)))?; )?
                )*
                Ok(())
            }
        }
    };
    (@bits) => {
        &[]
    };
    (@bits $bits:ident) => {
        $bits::FIELDS
    };
}

/// Declares a number type with named values. A value without a name is kept, and prints as
/// hexadecimal.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($word:ident) {
            $( $(#[$vmeta:meta])* $value:ident = $number:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub $word);

        impl $name {
            $( $(#[$vmeta])* pub const $value: Self = Self($number); )*

            /// Every named value.
            pub const ALL: &[Self] = &[$( Self::$value, )*];

            /// Name of the value, if it has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $number => Some(stringify!($value)), )*
                    _ => None,
                }
            }
        }

        impl From<$word> for $name {
            #[inline]
            fn from(number: $word) -> Self {
                Self(number)
            }
        }

        impl From<$name> for $word {
            #[inline]
            fn from(named: $name) -> Self {
                named.0
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#04x}", self.0),
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

pub(crate) use {bits, layout, named};

#[cfg(test)]
mod tests {
    use super::{claim, mask};

    bits! {
        /// Each form of a field.
        pub struct Sample(u32) {
            /// A range.
            31:24 high with_high: u8;
            /// A single bit.
            9 flag with_flag;
            /// An odd range.
            6:2 odd with_odd: u8;
        }
    }

    #[test]
    fn a_field_lands_on_its_bits_and_nowhere_else() {
        let word = Sample(u32::MAX).with_high(0x12).with_flag(false).with_odd(0);
        assert_eq!(word.0, 0x12ff_fd83);
        assert_eq!(word.with_odd(0xff).0, 0x12ff_fdff);
        assert_eq!((word.high(), word.flag(), word.odd()), (0x12, false, 0));
        assert_eq!(Sample::ZERO.with_flag(true).0, 0x200);
    }

    #[test]
    fn printing_names_every_field() {
        let word = Sample(0x0100_0204);
        assert_eq!(format!("{word:?}"), "Sample { raw: 0x1000204, high: 1, flag: true, odd: 1 }");
        assert_eq!(format!("{word}"), "high=1 flag=true odd=1");
    }

    #[test]
    fn mask_covers_both_ends() {
        assert_eq!(mask(63, 0, 64), u64::MAX);
        assert_eq!(mask(31, 24, 32), 0xff00_0000);
        assert_eq!(mask(5, 5, 8), 0x20);
    }

    #[test]
    #[should_panic(expected = "high bit comes first")]
    fn reversed_range_is_refused() {
        mask(3, 4, 32);
    }

    #[test]
    #[should_panic(expected = "outside the word")]
    fn range_past_the_word_is_refused() {
        mask(8, 0, 8);
    }

    #[test]
    #[should_panic(expected = "share a bit")]
    fn overlap_is_refused() {
        claim(mask(7, 4, 8), mask(4, 0, 8));
    }

    extern crate std;
    use std::format;
}
