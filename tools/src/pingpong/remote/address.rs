//! Address that both sides exchange, in the format of `ibv_rc_pingpong`:
//! `0012:000040:1b2c3d:00000000000000000000ffff0a000001`, LID, QPN, PSN and GID in hex, and a NUL
//! (rdma-core `libibverbs/examples/rc_pingpong.c`, `pingpong.c:gid_to_wire_gid`).

use std::fmt;

use uverbs::Gid;

use crate::base::peer_text::shown;

/// Bytes of a message, including the NUL.
pub(crate) const LEN: usize = 52;

/// Address of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// LID; 0 on RoCE.
    pub(crate) lid: u16,
    /// Queue pair number, 24 bits.
    pub(crate) qpn: u32,
    /// First PSN of its sends, 24 bits.
    pub(crate) psn: u32,
    /// `None` is sent as zeros.
    pub(crate) gid: Option<Gid>,
}

/// A malformed message: the bad part, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressError {
    part: &'static str,
    found: Vec<u8>,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, found } = self;
        write!(f, "its {part} can't be `{}`", shown(found))
    }
}

impl std::error::Error for AddressError {}

/// Names, digits and offsets of the parts. A byte separates them; the last ends with the NUL.
const PARTS: [(&str, usize, usize); 4] =
    [("LID", 0, 4), ("QPN", 5, 6), ("PSN", 12, 6), ("GID", 19, 32)];

impl Address {
    /// Encodes the message.
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let gid = u128::from_be_bytes(self.gid.map_or([0; 16], |gid| gid.0));
        let Self { lid, qpn, psn, .. } = self;
        let text =
            format!("{lid:04x}:{:06x}:{:06x}:{gid:032x}\0", qpn & 0xff_ffff, psn & 0xff_ffff);
        let mut bytes = [0; LEN];
        for (to, from) in bytes.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        bytes
    }

    /// Decodes a received message.
    pub(crate) fn decode(bytes: &[u8; LEN]) -> Result<Self, AddressError> {
        let mut numbers = [0u128; 4];
        for (number, (part, start, digits)) in numbers.iter_mut().zip(PARTS) {
            let end = start + digits;
            let error = || AddressError { part, found: bytes[start..=end].to_vec() };
            let closing = if end + 1 == LEN { 0 } else { b':' };
            if bytes[end] != closing || !bytes[start..end].iter().all(u8::is_ascii_hexdigit) {
                return Err(error());
            }
            let text = str::from_utf8(&bytes[start..end]).map_err(|_| error())?;
            *number = u128::from_str_radix(text, 16).map_err(|_| error())?;
        }
        let [lid, qpn, psn, gid] = numbers;
        let gid = Gid(gid.to_be_bytes());
        let gid = (!gid.is_zero()).then_some(gid);
        Ok(Self { lid: lid as u16, qpn: qpn as u32, psn: psn as u32, gid })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lid, qpn, psn, gid } = self;
        write!(f, "LID {lid:#06x}, QPN {qpn:#08x}, PSN {psn:#08x}, GID ")?;
        match gid {
            Some(gid) => write!(f, "{gid}"),
            None => f.write_str("::"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_what_the_c_program_writes() {
        let gid = "::ffff:10.1.2.3".parse().unwrap();
        let address = Address { lid: 0x12, qpn: 0x40, psn: 0xab_cdef, gid: Some(gid) };
        let text = b"0012:000040:abcdef:00000000000000000000ffff0a010203\0";
        assert_eq!(&address.encode(), text);
        assert_eq!(Address::decode(text), Ok(address));
        let none = b"ffff:ffffff:000000:00000000000000000000000000000000\0";
        assert_eq!(Address::decode(none).unwrap().gid, None);
        assert_eq!(&Address::decode(none).unwrap().encode(), none);
    }

    #[test]
    fn errors_show_the_part_as_visible_text() {
        let told = Address::decode(b"0\x1b[2:000040:abcdef:00000000000000000000ffff0a010203\0");
        assert_eq!(told.unwrap_err().to_string(), "its LID can't be `0\\u{1b}[2:`");
    }

    #[test]
    fn errors_name_the_part() {
        let good = b"0012:000040:abcdef:00000000000000000000ffff0a010203\0";
        for (at, byte, part) in [
            (0, b'g', "LID"),
            (4, b' ', "LID"),
            (5, b'+', "QPN"),
            (12, b'-', "PSN"),
            (18, b'\0', "PSN"),
            (50, b'x', "GID"),
            (51, b'0', "GID"),
        ] {
            let mut bad = *good;
            bad[at] = byte;
            let error = Address::decode(&bad).unwrap_err();
            assert!(error.part == part && error.to_string().contains(part), "{at}: {error}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(lid: u16, qpn in 0..1u32 << 24, psn in 0..1u32 << 24, gid: [u8; 16]) {
            let gid = Some(Gid(gid)).filter(|gid| !gid.is_zero());
            let address = Address { lid, qpn, psn, gid };
            prop_assert_eq!(Address::decode(&address.encode()), Ok(address));
        }

        #[test]
        fn any_bytes_are_an_address_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), LEN),
        ) {
            let bytes: [u8; LEN] = bytes.try_into().unwrap();
            if let Ok(address) = Address::decode(&bytes) {
                prop_assert_eq!(address.encode(), bytes.map(|byte| byte.to_ascii_lowercase()));
            }
        }

        #[test]
        fn one_wrong_byte_is_an_error_or_another_address(at in 0..LEN, byte: u8) {
            let address = Address { lid: 1, qpn: 2, psn: 3, gid: None };
            let mut bytes = address.encode();
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            prop_assert_ne!(Address::decode(&bytes), Ok(address));
        }
    }
}
