//! A peer of `send-file` or `recv-file` that says anything.

use super::message::{MOST, Message};
use crate::base::peer_text::is_name;
use crate::fuzzing::check;

/// Any bytes are a message, whose name stays in its directory and whose text can be shown, or an
/// error.
pub(crate) fn files(data: &[u8]) {
    let data = &data[..data.len().min(MOST)];
    match Message::parse(data) {
        Err(error) => check(&error),
        Ok(Message::Announce { name, .. }) => assert!(is_name(&name), "{name:?}"),
        Ok(Message::Verdict { trouble: text } | Message::Abort { why: text }) => {
            assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
        }
        Ok(numbers) => assert_eq!(numbers.to_bytes(), data),
    }
}
