//! Removes from texts what identifies a host: GIDs, GUIDs, MAC and IP addresses, host names.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;
use uverbs::place::PciAddress;

const HIDDEN: &str = "(hidden)";

/// Digits from which a hexadecimal number may be a GUID or a memory address.
const LONG: usize = 12;

/// Replaces addresses and names by [`HIDDEN`].
pub(super) struct Redactor {
    /// Names of hosts.
    names: Vec<String>,
}

impl Redactor {
    /// Also hides these names.
    pub(super) fn new(names: impl IntoIterator<Item = String>) -> Self {
        // A name of one or two letters would match words.
        Self { names: names.into_iter().filter(|name| name.len() > 2).collect() }
    }

    /// Redacts all texts of a value.
    pub(super) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.value(value)),
            Value::Object(map) => map.values_mut().for_each(|value| self.value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    pub(super) fn text(&self, text: &str) -> String {
        let named = self.names.iter().fold(text.to_owned(), |text, name| {
            // Names of hosts ignore case.
            let (lower, name) = (text.to_ascii_lowercase(), name.to_ascii_lowercase());
            let mut kept = String::new();
            let mut from = 0;
            for (at, _) in lower.match_indices(&name) {
                if !inside_word(&text, at, at + name.len()) {
                    kept.push_str(&text[from..at]);
                    kept.push_str(HIDDEN);
                    from = at + name.len();
                }
            }
            kept + &text[from..]
        });
        let mut kept = String::new();
        let mut rest = named.as_str();
        while let Some(start) = rest.find(is_part) {
            let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |len| start + len);
            kept.push_str(&rest[..start]);
            kept.push_str(&word(&rest[start..end]));
            rest = &rest[end..];
        }
        kept + rest
    }
}

/// True if a place in a text is a part of a longer word.
fn inside_word(text: &str, start: usize, end: usize) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text[..start].chars().next_back().is_some_and(is_word)
        || text[end..].chars().next().is_some_and(is_word)
}

/// Characters of addresses and of the words around them.
fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ':' | '.')
}

fn word(word: &str) -> String {
    let core = word.trim_end_matches(['.', ':']);
    if core.parse::<PciAddress>().is_ok() {
        return word.to_owned();
    }
    let hex = core.strip_prefix("0x").unwrap_or(core);
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    // Interfaces' names may end with a MAC address or a GUID: `enx001b21aabbcc`.
    let is_long = hex.bytes().rev().take_while(u8::is_ascii_hexdigit).count() >= LONG;
    let groups = core.split(':').count();
    let in_groups = groups > 2 && core.split(':').all(|group| group.is_empty() || is_hex(group));
    let with_port = core.rsplit_once(':').is_some_and(|(host, _)| host.parse::<Ipv4Addr>().is_ok());
    if is_long || in_groups || with_port || core.parse::<IpAddr>().is_ok() {
        return format!("{HIDDEN}{}", &word[core.len()..]);
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_of_the_host_are_hidden() {
        let redactor = Redactor::new(["node17".to_owned(), "ab".to_owned()]);
        for (text, kept) in [
            ("GID fe80::ca:5ff:fe00:102, index 3", "GID (hidden), index 3"),
            ("0000:0000:0000:0000:0000:ffff:0a56:0102", "(hidden)"),
            ("00ca:05ff:fe00:0102", "(hidden)"),
            ("mac 02:ca:05:00:01:02.", "mac (hidden)."),
            ("10.86.1.2:18515, then 192.0.2.1", "(hidden), then (hidden)"),
            ("softhca@127.0.0.2,ib", "softhca@(hidden),ib"),
            ("guid 0x00ca05fffe000102 and 248a0703008a8530", "guid (hidden) and (hidden)"),
            ("enx001b21aabbcc, rocex1070fd0300a1b2c3", "(hidden), (hidden)"),
            ("NODE17: node170 on node17", "(hidden): node170 on (hidden)"),
            // Kept: versions, PCI addresses, times, masks, words.
            ("fw 16.35.2000, Linux 6.12.117", "fw 16.35.2000, Linux 6.12.117"),
            ("0000:17:00.0 at 12 ms, 0x1c17b000", "0000:17:00.0 at 12 ms, 0x1c17b000"),
            ("RC send: 320 verified; cab", "RC send: 320 verified; cab"),
            ("::", "::"),
            ("", ""),
        ] {
            assert_eq!(redactor.text(text), kept, "{text}");
        }
        let mut value = serde_json::json!({ "a": ["10.0.0.1", 3], "b": { "c": "node17" } });
        redactor.value(&mut value);
        assert_eq!(value.to_string(), r#"{"a":["(hidden)",3],"b":{"c":"(hidden)"}}"#);
    }
}
