//! Changes of a frame's header fields (PRM "Modify Header"; Linux `mlx5_ifc.h`,
//! `MLX5_ACTION_IN_FIELD_*`). A correct checksum stays correct.

use uverbs_mlx5_prm::cmd::Field;

use super::checksum;
use super::headers::{Headers, TAG};
use super::{ADDRESSES, HEADER};
use uverbs_front::backend::steering::Wrong;

/// Maximum changes of one entry.
pub(crate) const MAX_REWRITES: usize = 16;

/// A field of the outer headers that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderField {
    place: FieldPosition,
    width: u32,
}

/// Position of a field, in bits from the start of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldPosition {
    Ethernet(u32),
    /// EtherType behind the tags.
    Type,
    /// VLAN of the first tag.
    Vlan,
    /// Position in an IPv4 header, and in an IPv6 header.
    Ip(Option<u32>, Option<u32>),
    Tcp(u32),
    Udp(u32),
}

impl HeaderField {
    /// Finds a field by its number.
    ///
    /// # Errors
    ///
    /// Metadata registers, and fields that this device cannot change.
    pub(crate) fn new(number: u64) -> Result<Self, Wrong> {
        use FieldPosition::{Ethernet, Ip, Tcp, Type, Udp, Vlan};
        let word = |first: u64| 32 * (number - first) as u32;
        let (place, width) = match number {
            0x1 => (Ethernet(48), 32),
            0x2 => (Ethernet(80), 16),
            0x3 => (Type, 16),
            0x4 => (Ethernet(0), 32),
            0x5 => (Ethernet(32), 16),
            0x6 => (Ip(Some(8), Some(4)), 6),
            0x7 => (Tcp(103), 9),
            0x8 => (Tcp(0), 16),
            0x9 => (Tcp(16), 16),
            0xa => (Ip(Some(64), None), 8),
            0xb => (Udp(0), 16),
            0xc => (Udp(16), 16),
            0xd..=0x10 => (Ip(None, Some(64 + word(0xd))), 32),
            0x11..=0x14 => (Ip(None, Some(192 + word(0x11))), 32),
            0x15 => (Ip(Some(96), None), 32),
            0x16 => (Ip(Some(128), None), 32),
            0x17 => (Vlan, 12),
            0x47 => (Ip(None, Some(56)), 8),
            0x59 => (Tcp(32), 32),
            0x5b => (Tcp(64), 32),
            0x73 => (Ip(Some(14), Some(10)), 2),
            _ => return Err(Wrong::Param("no such header field to change")),
        };
        Ok(Self { place, width })
    }

    /// Position of the field in a frame. None if the frame lacks it.
    fn find(self, headers: &Headers) -> Option<Field> {
        let tags = headers.tags.iter().flatten().count();
        let at = |byte: usize, bit: u32| Some(8 * byte as u32 + bit);
        let ip = headers.ip.as_ref();
        let bit = match self.place {
            FieldPosition::Ethernet(bit) => Some(bit),
            FieldPosition::Type => at(ADDRESSES + TAG * tags, 0),
            FieldPosition::Vlan => headers.tags[0].and_then(|_| at(HEADER, 4)),
            FieldPosition::Ip(v4, v6) => ip.and_then(|ip| {
                let bit = if ip.v6 { v6 } else { v4 };
                at(ip.at, bit?)
            }),
            FieldPosition::Tcp(bit) => {
                ip.and_then(|ip| ip.l4.filter(|l4| l4.tcp).and_then(|_| at(ip.payload, bit)))
            }
            FieldPosition::Udp(bit) => {
                ip.and_then(|ip| ip.l4.filter(|l4| !l4.tcp).and_then(|_| at(ip.payload, bit)))
            }
        };
        bit.map(|bit| Field::new(bit, self.width))
    }
}

/// A range of bits in a field, counted from its lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    field: HeaderField,
    offset: u32,
    len: u32,
}

impl Bits {
    /// Selects `len` bits from `offset`; `len` 0 means 32.
    ///
    /// # Errors
    ///
    /// Bits outside of the field.
    pub(crate) fn new(field: u64, offset: u32, len: u32) -> Result<Self, Wrong> {
        let field = HeaderField::new(field)?;
        let len = if len == 0 { 32 } else { len };
        match offset + len <= field.width {
            true => Ok(Self { field, offset, len }),
            false => Err(Wrong::Param("more bits than the header field has")),
        }
    }

    fn mask(self) -> u64 {
        ((1 << self.len) - 1) << self.offset
    }

    fn get(self, frame: &[u8], headers: &Headers) -> Option<u64> {
        let value = self.field.find(headers)?.get(frame);
        Some((value & self.mask()) >> self.offset)
    }

    fn set(self, frame: &mut [u8], headers: &Headers, value: u64) {
        if let Some(field) = self.field.find(headers) {
            let rest = field.get(frame) & !self.mask();
            field.set(frame, rest | value << self.offset & self.mask());
        }
    }
}

/// One change. A frame that lacks the field is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rewrite {
    Set(Bits, u32),
    /// Adds, with wrapping.
    Add(HeaderField, u32),
    Copy {
        from: Bits,
        to: Bits,
    },
}

/// Makes the changes, in order.
pub(crate) fn apply(rewrites: &[Rewrite], frame: &mut [u8]) {
    let headers = Headers::parse(frame);
    let before = checksum::verify(frame, &headers);
    let absent = headers.ip.as_ref().is_some_and(|ip| checksum::is_absent(frame, ip));
    for rewrite in rewrites {
        match *rewrite {
            Rewrite::Set(bits, value) => bits.set(frame, &headers, value.into()),
            Rewrite::Add(field, value) => {
                if let Some(field) = field.find(&headers) {
                    let value = field.get(frame).wrapping_add(value.into());
                    field.set(frame, value);
                }
            }
            Rewrite::Copy { from, to } => {
                if let Some(value) = from.get(frame, &headers) {
                    to.set(frame, &headers, value);
                }
            }
        }
    }
    checksum::fill(frame, before.l3, before.l4 && !absent);
}
