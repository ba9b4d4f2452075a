//! Parses the lines of a trace.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::peer_text::shown;
use crate::explain::hex;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Ioctl,
    Mmap,
    Doorbell,
    Wqe,
    Receive,
    Sent,
    Received,
    Cqe,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Ioctl,
        Self::Mmap,
        Self::Doorbell,
        Self::Wqe,
        Self::Receive,
        Self::Sent,
        Self::Received,
        Self::Cqe,
    ];

    /// Name in a line of the trace.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ioctl => "ioctl",
            Self::Mmap => "mmap",
            Self::Doorbell => "doorbell",
            Self::Wqe => "wqe",
            Self::Receive => "receive",
            Self::Sent => "sent",
            Self::Received => "received",
            Self::Cqe => "cqe",
        }
    }
}

/// An event: time, place, kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Event {
    /// Nanoseconds since the first event.
    pub(super) at: u64,
    pub(super) pid: u32,
    pub(super) device: String,
    pub(super) kind: Kind,
    /// Fields by name; see `uverbs_core::trace`.
    pub(super) fields: BTreeMap<String, String>,
}

impl Event {
    /// Returns `true` for events of the data path.
    pub(super) fn is_data(&self) -> bool {
        !matches!(self.kind, Kind::Ioctl | Kind::Mmap)
    }

    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Number in decimal or after 0x; 0 if the field is not a number.
    pub(super) fn number(&self, name: &str) -> u64 {
        let text = self.field(name);
        let hex = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
        hex.unwrap_or_else(|| text.parse()).unwrap_or(0)
    }

    /// The bytes of a field; empty if the field is missing or malformed.
    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        hex::parse(self.field(name)).unwrap_or_default()
    }
}

/// Parses the events of a file, sorted by time.
///
/// # Errors
///
/// The error, and its line.
pub(super) fn parse(text: &str) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        events.push(event(line).ok_or_else(|| format!("line {number} is no event: {line}"))?);
    }
    events.sort_by_key(|event: &Event| event.at);
    let first = events.first().map_or(0, |event| event.at);
    events.iter_mut().for_each(|event| event.at -= first);
    Ok(events)
}

fn event(line: &str) -> Option<Event> {
    let mut words = line.split('\t');
    let at = words.next()?.parse().ok()?;
    let pid = words.next()?.parse().ok()?;
    let device = shown(words.next()?.as_bytes());
    let name = words.next()?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name)?;
    let mut fields = BTreeMap::new();
    for word in words {
        let (name, value) = word.split_once('=')?;
        fields.insert(name.to_owned(), shown(value.as_bytes()));
    }
    Some(Event { at, pid, device, kind, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_events_in_their_order() {
        let text = "30\t7\tb\tcqe\tcqn=0x10\tbytes=00ff\n10\t7\ta\tdoorbell\tuar=3\tvalue=0x1f\n";
        let events = parse(text).unwrap();
        assert_eq!(events.iter().map(|event| event.at).collect::<Vec<_>>(), [0, 20]);
        assert_eq!((events[0].number("uar"), events[0].number("value")), (3, 0x1f));
        assert_eq!((events[1].kind, events[1].bytes("bytes")), (Kind::Cqe, vec![0, 0xff]));
        assert!(events.iter().all(Event::is_data));
    }

    #[test]
    fn names_and_fields_are_visible_text() {
        let events = parse("1\t2\ta\x1b[2J\u{202e}b\tdoorbell\tuar=\x1b[2J\n").unwrap();
        assert_eq!(events[0].device, "a\\u{1b}[2J\\u{202e}b");
        assert_eq!(events[0].field("uar"), "\\u{1b}[2J");
    }

    #[test]
    fn what_is_no_event_is_told() {
        assert!(parse("1\t2\td\tcqe\n1\t2\td\tcow\n").unwrap_err().starts_with("line 2 "));
        for line in ["x\t2\td\tcqe", "1\t2\td", "1\t2\td\tcqe\tcqn"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
