//! Numbers that name objects, each a type of its own: one can't be given where another is meant.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A queue pair, a queue of frames, or a target of dynamic connections: packets are addressed
    /// to any of them. 24 bits.
    Qpn
}
number! {
    /// A completion queue, 24 bits.
    Cqn
}
number! {
    /// A shared receive queue, 24 bits.
    Srqn
}
number! {
    /// A protection domain, 24 bits.
    Pdn
}
number! {
    /// A UAR page.
    UarNumber
}
number! {
    /// A memory key, local or remote: the index of its context, and a variant byte that tells one
    /// use of it from the next.
    Key
}

impl Key {
    /// The device's own key of no memory: receives by it are discarded, sends by it are zeros (PRM
    /// "QUERY_SPECIAL_CONTEXTS", dump_fill_mkey). Below the keys that are given out.
    pub const DUMP_FILL: Key = Key::new(3, 0);

    /// The device's own key of pages that aren't there: a block of another key by it is a page
    /// fault (PRM "QUERY_SPECIAL_CONTEXTS", null_mkey).
    pub const NULL: Key = Key::new(4, 0);

    /// The key of a context.
    pub const fn new(index: u32, variant: u8) -> Key {
        Key(index << 8 | variant as u32)
    }

    /// Number of the context, 24 bits.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// The low byte.
    pub const fn variant(self) -> u8 {
        self.0 as u8
    }
}
