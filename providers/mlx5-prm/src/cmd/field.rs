//! Bit fields over bytes, numbered as in the manual: bit 0 is the highest bit of the first byte.

/// A field of up to 64 bits at any position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    bit: u32,
    width: u32,
}

impl Field {
    /// Declares a field of `width` bits (1 to 64) from bit `bit` on.
    #[must_use]
    pub const fn new(bit: u32, width: u32) -> Self {
        assert!(width >= 1 && width <= 64, "a field has 1 to 64 bits");
        Self { bit, width }
    }

    /// First bit.
    #[must_use]
    pub const fn bit(self) -> u32 {
        self.bit
    }

    /// Number of bits.
    #[must_use]
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Reads the value from `bytes`. Missing bytes count as zeros.
    #[must_use]
    pub fn get(self, bytes: &[u8]) -> u64 {
        let (first, last) = self.span();
        let mut word = 0u128;
        for at in first..=last {
            word = word << 8 | u128::from(bytes.get(at).copied().unwrap_or(0));
        }
        (word >> self.shift() & self.mask()) as u64
    }

    /// Reads the low 32 bits of the value.
    #[must_use]
    pub fn get32(self, bytes: &[u8]) -> u32 {
        self.get(bytes) as u32
    }

    /// True if any bit is set.
    #[must_use]
    pub fn is_set(self, bytes: &[u8]) -> bool {
        self.get(bytes) != 0
    }

    /// Writes the value to `bytes`. Bits of `value` that exceed the field are dropped, and so are
    /// bits beyond the end of `bytes`.
    pub fn set(self, bytes: &mut [u8], value: u64) {
        let (first, last) = self.span();
        let mask = self.mask() << self.shift();
        let word = u128::from(value) << self.shift() & mask;
        for at in first..=last {
            let down = 8 * (last - at);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *byte & !((mask >> down) as u8) | (word >> down) as u8;
            }
        }
    }

    /// First and last byte of the field; it touches nine at most.
    const fn span(self) -> (usize, usize) {
        (self.bit as usize / 8, (self.bit + self.width - 1) as usize / 8)
    }

    /// Bits between the end of the field and the end of its last byte.
    const fn shift(self) -> u32 {
        7 - (self.bit + self.width - 1) % 8
    }

    const fn mask(self) -> u128 {
        u128::MAX >> (128 - self.width)
    }
}

/// A range of whole bytes: a structure inside another, or a list at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    offset: usize,
    len: usize,
}

impl Block {
    /// Declares a block of `len` bytes from `offset` on; length 0 means all bytes.
    #[must_use]
    pub const fn new(offset: usize, len: usize) -> Self {
        Self { offset, len }
    }

    /// First byte.
    #[must_use]
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// Number of bytes; 0 means all.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "0 doesn't mean that it is empty")]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Returns the block of `bytes`, cut at the end of `bytes`.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        let (start, end) = self.range(bytes.len());
        bytes.get(start..end).unwrap_or_default()
    }

    /// Returns the mutable block of `bytes`, cut at the end of `bytes`.
    #[must_use]
    pub fn of_mut(self, bytes: &mut [u8]) -> &mut [u8] {
        let (start, end) = self.range(bytes.len());
        bytes.get_mut(start..end).unwrap_or_default()
    }

    fn range(self, have: usize) -> (usize, usize) {
        let end = match self.len {
            0 => have,
            len => have.min(self.offset + len),
        };
        (self.offset.min(end), end)
    }
}

/// Runs at compile time only.
pub(crate) const fn check(end: usize, size: usize) {
    assert!(end <= size, "it lies beyond the structure");
}

/// Declares the fields (`NAME: bit + width`) and blocks (`NAME: bytes offset + length`) of a
/// structure of `mlx5_ifc.h`; its size in bytes follows the name. A field beyond the size doesn't
/// compile.
macro_rules! ifc {
    (
        $(#[$meta:meta])*
        pub mod $name:ident[$size:literal] { $($rest:tt)* }
    ) => {
        $(#[$meta])*
        pub mod $name {
            #[allow(unused_imports, reason = "not every structure has both kinds")]
            use $crate::cmd::field::{Block, Field};

            /// Size in bytes, without a list at the end.
            pub const SIZE: usize = $size;

            $crate::cmd::field::ifc! { @items [] [] $($rest)* }
        }
    };
    (
        @items [$($fields:ident)*] [$($blocks:ident)*]
        $name:ident: bytes $offset:literal + $len:literal; $($rest:tt)*
    ) => {
        #[doc = concat!("`", stringify!($name), "`, from byte ", $offset, " on.")]
        pub const $name: Block = Block::new($offset, $len);
        const _: () = $crate::cmd::field::check($offset + $len, SIZE);
        $crate::cmd::field::ifc! { @items [$($fields)*] [$($blocks)* $name] $($rest)* }
    };
    (
        @items [$($fields:ident)*] [$($blocks:ident)*]
        $name:ident: $bit:literal + $width:literal; $($rest:tt)*
    ) => {
        #[doc = concat!("`", stringify!($name), "`: ", $width, " bits from bit ", $bit, " on.")]
        pub const $name: Field = Field::new($bit, $width);
        const _: () = $crate::cmd::field::check($bit + $width, 8 * SIZE);
        $crate::cmd::field::ifc! { @items [$($fields)* $name] [$($blocks)*] $($rest)* }
    };
    (@items [$($fields:ident)*] [$($blocks:ident)*]) => {
        /// All fields with their names.
        pub const FIELDS: &[(&str, Field)] = &[$((stringify!($fields), $fields)),*];
        /// All blocks with their names.
        pub const BLOCKS: &[(&str, Block)] = &[$((stringify!($blocks), $blocks)),*];
    };
}

pub(crate) use ifc;

#[cfg(test)]
mod tests {
    use super::{Block, Field};

    #[test]
    fn bits_are_counted_from_the_top() {
        let bytes = [0x80, 0x01, 0xff, 0x0f];
        assert_eq!(Field::new(0, 1).get(&bytes), 1);
        assert_eq!(Field::new(15, 1).get(&bytes), 1);
        assert_eq!(Field::new(12, 8).get(&bytes), 0x1f);
        assert_eq!(Field::new(0, 32).get(&bytes), 0x8001_ff0f);
    }

    #[test]
    fn nine_bytes_can_be_touched() {
        let mut bytes = [0xff; 9];
        let field = Field::new(4, 64);
        field.set(&mut bytes, 0x0123_4567_89ab_cdef);
        assert_eq!(bytes, [0xf0, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xff]);
        assert_eq!(field.get(&bytes), 0x0123_4567_89ab_cdef);
    }

    #[test]
    fn what_is_not_there_is_zero_and_takes_nothing() {
        let mut bytes = [0xff; 2];
        let field = Field::new(8, 16);
        assert_eq!(field.get(&bytes), 0xff00);
        field.set(&mut bytes, 0x1234);
        assert_eq!(bytes, [0xff, 0x12]);
        Field::new(64, 8).set(&mut bytes, 1);
        assert_eq!(Field::new(64, 8).get(&bytes), 0);
        assert_eq!(Block::new(1, 4).of(&bytes), [0x12]);
        assert_eq!(Block::new(1, 0).of(&bytes), [0x12]);
        assert!(Block::new(3, 4).of_mut(&mut bytes).is_empty());
    }
}
