//! Arbitrary bytes from a peer of `send-file` or `recv-file`.

use super::message::{MOST, Message};
use crate::base::error::check_printable;
use crate::base::peer_text::is_name;

/// Bytes parse to an error or to a message, whose file name stays in its directory and whose text
/// is printable.
pub(crate) fn files(data: &[u8]) {
    let data = &data[..data.len().min(MOST)];
    match Message::parse(data) {
        Err(error) => check_printable(&error),
        Ok(Message::Announce { name, .. }) => assert!(is_name(&name), "{name:?}"),
        Ok(Message::Verdict { trouble: text } | Message::Abort { why: text }) => {
            assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
        }
        Ok(numbers) => assert_eq!(numbers.to_bytes(), data),
    }
}
