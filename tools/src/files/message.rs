//! Messages between the sender and the receiver of a file. All numbers are big-endian.

use crate::base::error::Error;
use crate::base::peer_text::{is_name, shown};

/// Maximum bytes of a message.
pub(super) const MOST: usize = 512;
/// Bytes of a SHA-256.
pub(super) const HASH: usize = 32;

/// First bytes of the sender's first message: the protocol's name and version.
const MAGIC: &[u8; 8] = b"uvfile-3";

const ANNOUNCE: u8 = 1;
const OFFER: u8 = 2;
const CREDIT: u8 = 3;
const VERDICT: u8 = 4;
const ABORT: u8 = 5;
const PIECE: u8 = 6;
const HASHED: u8 = 7;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Sender: description of the file.
    Announce { len: u64, name: String },
    /// Receiver: place for pieces, used in turn.
    Offer { addr: u64, rkey: u32, piece: u32, pieces: u32 },
    /// Sender: the next piece was written; number of bytes.
    Piece { count: u32 },
    /// Sender: SHA-256 of the file, after its last piece.
    Hashed { hash: [u8; HASH] },
    /// Receiver: number of pieces taken so far.
    Credit { taken: u64 },
    /// Receiver: result; an empty text is success.
    Verdict { trouble: String },
    /// Sender: the transfer ends, with the reason.
    Abort { why: String },
}

impl Message {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MOST);
        match self {
            Self::Announce { len, name } => {
                bytes.push(ANNOUNCE);
                bytes.extend(MAGIC);
                bytes.extend(len.to_be_bytes());
                bytes.extend(name.bytes());
            }
            Self::Offer { addr, rkey, piece, pieces } => {
                bytes.push(OFFER);
                bytes.extend(addr.to_be_bytes());
                for word in [rkey, piece, pieces] {
                    bytes.extend(word.to_be_bytes());
                }
            }
            Self::Piece { count } => {
                bytes.push(PIECE);
                bytes.extend(count.to_be_bytes());
            }
            Self::Hashed { hash } => {
                bytes.push(HASHED);
                bytes.extend(hash);
            }
            Self::Credit { taken } => {
                bytes.push(CREDIT);
                bytes.extend(taken.to_be_bytes());
            }
            Self::Verdict { trouble: text } => {
                bytes.push(VERDICT);
                bytes.extend(text.bytes());
            }
            Self::Abort { why: text } => {
                bytes.push(ABORT);
                bytes.extend(text.bytes());
            }
        }
        // Texts may be too long; names were checked before.
        bytes.truncate(MOST);
        bytes
    }

    /// Decodes a message of the other side.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        parse(bytes).ok_or_else(|| {
            Error::Peer(format!(
                "the other side sent {} bytes that are no message of uverbs send-file's",
                bytes.len()
            ))
        })
    }
}

fn parse(bytes: &[u8]) -> Option<Message> {
    let (kind, rest) = bytes.split_first()?;
    let text = || shown(rest);
    Some(match *kind {
        ANNOUNCE => {
            let rest = rest.strip_prefix(MAGIC)?;
            let (len, name) = rest.split_first_chunk()?;
            let name = std::str::from_utf8(name).ok().filter(|name| is_name(name))?.to_owned();
            Message::Announce { len: u64::from_be_bytes(*len), name }
        }
        OFFER => {
            let (addr, rest) = rest.split_first_chunk()?;
            let (rkey, rest) = rest.split_first_chunk()?;
            let (piece, rest) = rest.split_first_chunk()?;
            let pieces = rest.try_into().ok()?;
            Message::Offer {
                addr: u64::from_be_bytes(*addr),
                rkey: u32::from_be_bytes(*rkey),
                piece: u32::from_be_bytes(*piece),
                pieces: u32::from_be_bytes(pieces),
            }
        }
        PIECE => Message::Piece { count: u32::from_be_bytes(rest.try_into().ok()?) },
        HASHED => Message::Hashed { hash: rest.try_into().ok()? },
        CREDIT => Message::Credit { taken: u64::from_be_bytes(rest.try_into().ok()?) },
        VERDICT => Message::Verdict { trouble: text() },
        ABORT => Message::Abort { why: text() },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            (any::<u64>(), "[a-z][a-z.]{2,39}")
                .prop_map(|(len, name)| Message::Announce { len, name }),
            any::<[u8; HASH]>().prop_map(|hash| Message::Hashed { hash }),
            any::<(u64, u32, u32, u32)>().prop_map(|(addr, rkey, piece, pieces)| Message::Offer {
                addr,
                rkey,
                piece,
                pieces
            }),
            any::<u32>().prop_map(|count| Message::Piece { count }),
            any::<u64>().prop_map(|taken| Message::Credit { taken }),
            "[ -~]{0,400}".prop_map(|trouble| Message::Verdict { trouble }),
            "[ -~]{0,400}".prop_map(|why| Message::Abort { why }),
        ]
    }

    proptest! {
        #[test]
        fn a_message_comes_back(message in message()) {
            let bytes = message.to_bytes();
            prop_assert!(bytes.len() <= MOST);
            prop_assert_eq!(parse(&bytes), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..MOST)) {
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn what_is_shown_moves_no_cursor() {
        for kind in [VERDICT, ABORT] {
            let said = [&[kind][..], b"no\x1b[2J room\r\n", "\u{202e}at all".as_bytes()].concat();
            let shown = match parse(&said) {
                Some(Message::Verdict { trouble: text } | Message::Abort { why: text }) => text,
                other => panic!("{other:?}"),
            };
            assert_eq!(shown, "no\\u{1b}[2J room\\r\\n\\u{202e}at all");
        }
    }

    #[test]
    fn a_name_stays_in_its_directory() {
        let announce = |name: &str| {
            let message = Message::Announce { len: 1, name: name.to_owned() };
            parse(&message.to_bytes())
        };
        assert!(announce("data.bin").is_some());
        for name in ["", "..", "../x", "/etc/passwd", "a\nb", ".bashrc", "gpj.\u{202e}exe"] {
            assert_eq!(announce(name), None, "{name:?}");
        }
    }
}
