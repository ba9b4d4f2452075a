//! Wire format between the two ends of a stream: rsocket's layouts (librdmacm `rsocket.c`, `struct
//! rs_conn_data`, `rs_msg_set`). Layouts only, without I/O or state.

use super::StreamError;

/// Entries of the list by which an end tells where its next bytes go (`RS_SGL_SIZE`).
pub(super) const SLOTS: usize = 2;
/// Bytes of an entry: address, key, length (`struct rs_sge`).
pub(super) const PLACE_LEN: usize = 16;
/// Bytes of a mapping's entry: offset, then a place (`struct rs_iomap`).
pub(super) const MAPPING_LEN: usize = 24;
/// Bytes of the private data.
pub(super) const HELLO_LEN: usize = 40;
/// Mappings that an end may offer here: up to so many the one-byte count is exact.
pub(super) const MOST_MAPPINGS: u16 = 128;

const VERSION: u8 = 1;
/// The sender's words are big-endian (`RS_CONN_FLAG_NET`).
const BIG_ENDIAN: u8 = 1;
/// The sender has room for mappings (`RS_CONN_FLAG_IOMAP`).
const IOMAP: u8 = 2;

/// Memory of the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RemoteMemory {
    pub(super) addr: u64,
    pub(super) key: u32,
    pub(super) len: u32,
}

impl RemoteMemory {
    /// As two words of memory, as the end that reads them has its words: the writer swaps if the
    /// other's order isn't its own.
    pub(super) fn to_bytes(self, swap: bool) -> [u8; PLACE_LEN] {
        let (addr, key, len) = match swap {
            false => (self.addr, self.key, self.len),
            true => (self.addr.swap_bytes(), self.key.swap_bytes(), self.len.swap_bytes()),
        };
        let mut bytes = [0; PLACE_LEN];
        bytes[..8].copy_from_slice(&addr.to_ne_bytes());
        bytes[8..12].copy_from_slice(&key.to_ne_bytes());
        bytes[12..].copy_from_slice(&len.to_ne_bytes());
        bytes
    }

    /// Decodes a place from the two words in this end's memory.
    pub(super) fn from_words(addr: u64, key_len: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = key_len.to_ne_bytes();
        let (key, len) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
        Self { addr, key, len }
    }

    fn to_net(self) -> [u8; PLACE_LEN] {
        self.to_bytes(cfg!(target_endian = "little"))
    }

    fn from_net(bytes: &[u8; PLACE_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        let [i, j, k, l, m, n, o, p] = rest;
        Self {
            addr: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            key: u32::from_be_bytes([i, j, k, l]),
            len: u32::from_be_bytes([m, n, o, p]),
        }
    }
}

/// Hello of an end, in the private data of its request or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) big_endian: bool,
    /// Initial credit: messages that its peer may send before it grants more.
    pub(super) credits: u16,
    /// Mappings that it has room for.
    pub(super) mappings: u16,
    /// Its list of places; the length counts entries.
    pub(super) list: RemoteMemory,
    /// Memory for the first bytes.
    pub(super) data: RemoteMemory,
}

impl Hello {
    pub(super) fn to_bytes(self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[0] = VERSION;
        bytes[1] = IOMAP | if self.big_endian { BIG_ENDIAN } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = to_scale(self.mappings);
        bytes[8..24].copy_from_slice(&self.list.to_net());
        bytes[24..].copy_from_slice(&self.data.to_net());
        bytes
    }

    /// Parses private data, which may have padding behind the hello.
    ///
    /// # Errors
    ///
    /// [`StreamError::Hello`].
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, StreamError> {
        let Some(hello) = bytes.first_chunk::<HELLO_LEN>() else {
            return Err(StreamError::Hello { what: "length", value: bytes.len() as u64 });
        };
        let [version, flags, credits_high, credits_low, _, _, _, mappings, places @ ..] = hello;
        if *version != VERSION {
            return Err(StreamError::Hello { what: "version", value: u64::from(*version) });
        }
        let place = |at: usize| {
            places[at..].first_chunk().map_or_else(RemoteMemory::default, RemoteMemory::from_net)
        };
        let (list, data) = (place(0), place(PLACE_LEN));
        // An end writes into entry after entry: without any there is nowhere to write.
        if list.len == 0 {
            return Err(StreamError::Hello { what: "length of the list of places", value: 0 });
        }
        Ok(Self {
            big_endian: flags & BIG_ENDIAN != 0,
            credits: u16::from_be_bytes([*credits_high, *credits_low]),
            mappings: if flags & IOMAP != 0 { from_scale(*mappings) } else { 0 },
            list,
            data,
        })
    }
}

/// Up to 128 as it is, else in steps of 256 (`rs_value_to_scale`).
fn to_scale(value: u16) -> u8 {
    if value <= 0x80 { value as u8 } else { 0x80 | (value >> 8) as u8 }
}

/// `rs_scale_to_value`.
fn from_scale(scale: u8) -> u16 {
    if scale <= 0x80 { scale.into() } else { u16::from(scale & 0x7f) << 8 }
}

/// A message: immediate data of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// So many bytes were written behind those before.
    Data(u32),
    /// Messages may be sent up to this number, modulo 2^16; an entry of the list may be new.
    Credit(u16),
    /// An entry of the mappings is new.
    Mapping(u16),
    /// The sender closed its side: it neither sends nor receives.
    Disconnect,
    /// The sender is there.
    KeepAlive,
    /// The sender ended its stream; it still receives.
    Shutdown,
}

/// Bits that a message's value has.
const VALUE: u32 = (1 << 29) - 1;
/// Maximum of bytes that one message announces.
pub(super) const MOST_DATA: u32 = VALUE;

impl Message {
    pub(super) fn to_imm(self) -> u32 {
        let (op, value) = match self {
            Self::Data(len) => (0, len & VALUE),
            Self::Credit(limit) => (4, limit.into()),
            Self::Mapping(index) => (6, index.into()),
            Self::Disconnect => (7, 0),
            Self::KeepAlive => (7, 1),
            Self::Shutdown => (7, 2),
        };
        op << 29 | value
    }

    /// # Errors
    ///
    /// [`StreamError::UnknownMessage`].
    pub(super) fn parse(imm: u32) -> Result<Self, StreamError> {
        let value = imm & VALUE;
        Ok(match (imm >> 29, value) {
            (0, len) => Self::Data(len),
            (4, limit) => Self::Credit(limit as u16),
            (6, index) => Self::Mapping(index as u16),
            (7, 0) => Self::Disconnect,
            (7, 1) => Self::KeepAlive,
            (7, 2) => Self::Shutdown,
            _ => return Err(StreamError::UnknownMessage { immediate: imm }),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place() -> impl Strategy<Value = RemoteMemory> {
        any::<(u64, u32, u32)>().prop_map(|(addr, key, len)| RemoteMemory { addr, key, len })
    }

    proptest! {
        #[test]
        fn a_hello_comes_back(
            big_endian: bool, credits: u16, mappings in 0..=MOST_MAPPINGS, list in place(),
            data in place(), padding in 0..160usize,
        ) {
            let list = RemoteMemory { len: list.len.max(1), ..list };
            let hello = Hello { big_endian, credits, mappings, list, data };
            let mut bytes = hello.to_bytes().to_vec();
            bytes.resize(HELLO_LEN + padding, 0);
            prop_assert_eq!(Hello::parse(&bytes), Ok(hello));
        }

        #[test]
        fn any_private_data_is_a_hello_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = Hello::parse(&bytes);
        }

        #[test]
        fn any_immediate_is_a_message_or_an_error(imm: u32) {
            match Message::parse(imm) {
                // Credits and indexes have 16 bits; C's carry may run over.
                Ok(Message::Credit(_) | Message::Mapping(_)) => {}
                Ok(message) => prop_assert_eq!(message.to_imm(), imm),
                Err(error) => {
                    prop_assert_eq!(error, StreamError::UnknownMessage { immediate: imm });
                }
            }
        }

        #[test]
        fn a_place_is_read_in_the_readers_order(place in place()) {
            let bytes = place.to_bytes(false);
            let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            prop_assert_eq!(RemoteMemory::from_words(word(0), word(8)), place);
            let swapped = place.to_bytes(true);
            let word = |at: usize| {
                let mut word: [u8; 8] = swapped[at..at + 8].try_into().unwrap();
                word.reverse();
                u64::from_ne_bytes(word)
            };
            prop_assert_eq!(word(0), place.addr);
        }
    }

    #[test]
    fn the_bytes_are_those_of_rsocket() {
        let hello = Hello {
            big_endian: false,
            credits: 384,
            mappings: 1,
            list: RemoteMemory { addr: 0x0102_0304_0506_0708, key: 0x1112_1314, len: 2 },
            data: RemoteMemory { addr: 0x2122_2324_2526_2728, key: 0x3132_3334, len: 0x1_0000 },
        };
        #[rustfmt::skip]
        let wanted = [
            1, 2, 0x01, 0x80, 0, 0, 0, 1, // version, flags, credits, reserved, iomap size
            1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 2, // target_sgl
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, // data_buf.addr
            0x31, 0x32, 0x33, 0x34, 0, 1, 0, 0, // .key, .length
        ];
        assert_eq!(hello.to_bytes(), wanted);
        let mut other = wanted;
        other[0] = 2;
        let error = Hello::parse(&other).unwrap_err();
        assert_eq!(error, StreamError::Hello { what: "version", value: 2 });
        let error = Hello::parse(&wanted[..39]).unwrap_err();
        assert_eq!(error, StreamError::Hello { what: "length", value: 39 });
    }

    #[test]
    fn messages_are_numbered_as_rsocket_does() {
        for (message, imm) in [
            (Message::Data(1000), 1000),
            (Message::Credit(0xffff), 0x8000_ffff),
            (Message::Mapping(3), 0xc000_0003),
            (Message::Disconnect, 0xe000_0000),
            (Message::KeepAlive, 0xe000_0001),
            (Message::Shutdown, 0xe000_0002),
        ] {
            assert_eq!((message.to_imm(), Message::parse(imm)), (imm, Ok(message)));
        }
        for (scale, value) in [(0, 0), (128, 128), (129, 256), (255, 127 << 8)] {
            assert_eq!((from_scale(scale), to_scale(value)), (value, scale));
        }
    }
}
