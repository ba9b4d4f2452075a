//! Text from a peer: printable form, and the rule for file names.

use std::fmt::Write as _;

/// Maximum bytes of a file name (Linux, `NAME_MAX`).
const NAME: usize = 255;

/// Rule for names, as error text.
pub(crate) const NAME_RULE: &str = "a name has 1 to 255 bytes, no slash, no invisible characters, \
     no space at an end, and begins with neither `.` nor `-`";

/// Converts bytes to printable text. Control characters, bidirectional controls and other invisible
/// characters are escaped: `\u{1b}`. Converting the result again leaves it unchanged.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for char in String::from_utf8_lossy(bytes).chars() {
        match is_visible(char) {
            true => shown.push(char),
            // Writing to a string cannot fail.
            false => drop(write!(shown, "{}", char.escape_debug())),
        }
    }
    shown
}

/// First characters of a long text, at most `most`.
pub(crate) fn beginning(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(most) {
        Some((end, _)) => shown(&text.as_bytes()[..end]) + "...",
        None => shown(text.as_bytes()),
    }
}

/// Returns `true` if the character is visible and has no other effect on a terminal. Combining
/// marks count as visible.
fn is_visible(char: char) -> bool {
    let text: String = ['x', char].into_iter().collect();
    // The standard library escapes these three for their meaning in Rust, and other characters
    // because Unicode classes them as control, format, separator, private or unassigned.
    matches!(char, '\\' | '\'' | '"') || text.escape_debug().eq(text.chars())
}

/// Accepts names of plain files in a directory: visible characters only, not hidden, and not like
/// an option of a command that is given `*`.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.trim() == name
        && !name.contains('/')
        && name.chars().all(is_visible)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_shown_moves_no_cursor() {
        for (bytes, expected) in [
            (&b"plain \\ 'text' \"here\""[..], "plain \\ 'text' \"here\""),
            (b"no\x1b[2J room\r\nat all\0", "no\\u{1b}[2J room\\r\\nat all\\0"),
            (b"\xff\x9b", "\u{fffd}\u{fffd}"),
            ("e\u{301}t\u{e9} \u{1f980} \u{4e16}".as_bytes(), "e\u{301}t\u{e9} \u{1f980} \u{4e16}"),
            (
                "a\u{202e}b\u{2066}c\u{200f}d\u{61c}".as_bytes(),
                r"a\u{202e}b\u{2066}c\u{200f}d\u{61c}",
            ),
            (
                "\u{85}\u{2028}\u{200b}\u{feff}\u{e000}".as_bytes(),
                r"\u{85}\u{2028}\u{200b}\u{feff}\u{e000}",
            ),
        ] {
            assert_eq!(shown(bytes), expected);
        }
        assert_eq!(beginning(b"a\nbcd", 3), "a\\nb...");
        assert_eq!(beginning(b"a\nb", 3), "a\\nb");
    }

    #[test]
    fn names_are_plain_ones() {
        for name in
            ["data.bin", "two words", "na\u{ef}ve.txt", "it's", "a\\b", "x".repeat(255).as_str()]
        {
            assert!(is_name(name), "{name:?}");
        }
        for name in [
            "",
            ".",
            "..",
            ".bashrc",
            "-rf",
            "../x",
            "/etc/passwd",
            "a/b",
            "a\0b",
            "a\nb",
            "a\x1b[2Jb",
            "gpj.\u{202e}exe",
            "a\u{2069}",
            "a\u{200b}",
            "\u{feff}a",
            "a\u{2028}b",
            "a\u{a0}b",
            " a",
            "a ",
            "x".repeat(256).as_str(),
        ] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_shown_in_one_visible_line(bytes: Vec<u8>) {
            let once = shown(&bytes);
            prop_assert!(once.chars().all(|char| is_visible(char) && !char.is_control()));
            prop_assert_eq!(shown(once.as_bytes()), once);
        }
    }
}
