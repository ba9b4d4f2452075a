//! Object numbers as types, so that numbers of different objects cannot be confused. Queues share
//! [`Qpn`]; [`Queue`] adds the kind.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $vis:vis $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(pub u32);

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A queue pair, a raw packet queue, or a target of dynamic connections, 24 bits. It is unique
    /// within its kind: see [`Queue`]. Packets name a queue pair or a target.
    pub Qpn
}
number! {
    /// A completion queue, 24 bits.
    pub Cqn
}
number! {
    /// A shared receive queue, 24 bits.
    pub Srqn
}
number! {
    /// A protection domain, 24 bits.
    pub Pdn
}
number! {
    /// A UAR page.
    pub UarNumber
}
number! {
    /// A memory key, local or remote: the index of its context, and a variant byte that separates
    /// successive uses of the index.
    pub Key
}

/// A queue by kind and number. A device may number each kind separately, so that queues of
/// different kinds have equal numbers (Linux `hw/mlx5/qpc.c`, `create_resource_common`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// A queue pair.
    Qp(Qpn),
    /// A send queue of raw packets.
    Sq(Qpn),
    /// A receive queue of raw packets.
    Rq(Qpn),
    /// A target of dynamic connections.
    Dct(Qpn),
}

impl Queue {
    /// Number among the queues of its kind.
    pub const fn number(self) -> Qpn {
        match self {
            Queue::Qp(number) | Queue::Sq(number) | Queue::Rq(number) | Queue::Dct(number) => {
                number
            }
        }
    }
}

impl Key {
    /// Reserved key without memory: receives through it are discarded, sends through it are zeros
    /// (PRM "QUERY_SPECIAL_CONTEXTS", dump_fill_mkey). Below all numbers that the device allocates.
    pub const DUMP_FILL: Key = Key::new(3, 0);

    /// Reserved key of missing pages: access to a block under it is a page fault (PRM
    /// "QUERY_SPECIAL_CONTEXTS", null_mkey).
    pub const NULL: Key = Key::new(4, 0);

    /// Makes a key from a context index and a variant.
    pub const fn new(index: u32, variant: u8) -> Key {
        Key(index << 8 | variant as u32)
    }

    /// Index of the context, 24 bits.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// Variant, the low byte.
    pub const fn variant(self) -> u8 {
        self.0 as u8
    }
}
