//! Parses hexadecimal digits in common formats.

/// Parses pairs of hexadecimal digits, with any usual separators. Offsets and characters of xxd(1)
/// and `hexdump -C` are removed.
///
/// # Errors
///
/// The first word that is not hexadecimal, and the reason.
pub(crate) fn parse(text: &str) -> Result<Vec<u8>, (String, String)> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        for word in words(line) {
            let digits: String = word.split([':', '-', ',']).map(plain).collect();
            if let Some(other) = digits.chars().find(|digit| !digit.is_ascii_hexdigit()) {
                return Err((word.to_owned(), format!("'{other}' is no hexadecimal digit")));
            }
            if !digits.len().is_multiple_of(2) {
                return Err((word.to_owned(), "half a byte: digits come in pairs".to_owned()));
            }
            let pairs = digits.as_bytes().chunks_exact(2);
            // Two digits: neither step can fail.
            bytes.extend(
                pairs.filter_map(|pair| {
                    u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
                }),
            );
        }
    }
    Ok(bytes)
}

/// The words of a line that hold bytes.
fn words(line: &str) -> impl Iterator<Item = &str> {
    // hexdump -C: eight digits, two spaces, bytes, characters between bars. The last line is only
    // an offset.
    let line = match line.split_once('|') {
        Some((bytes, _)) => bytes.split_once("  ").map_or("", |(_, bytes)| bytes),
        None => line,
    };
    // xxd: an offset of eight digits and a colon, bytes, two spaces, characters.
    let line = match line.split_once(": ") {
        Some((offset, rest)) if offset.len() == 8 && is_hex(offset) => {
            rest.split_once("  ").map_or(rest, |(bytes, _)| bytes)
        }
        _ => line,
    };
    line.split_whitespace()
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn plain(part: &str) -> &str {
    part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")).unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_as_people_paste_them() {
        for text in [
            "000a4802ff",
            "00 0a 48 02 ff",
            "0x000a 0x48,0x02 FF",
            "00:0a:48-02\nff\n",
            "00000000: 000a 4802 ff                             ..H..",
            "00000000  00 0a 48 02 ff                                    |..H..|",
        ] {
            assert_eq!(parse(text), Ok(vec![0, 0x0a, 0x48, 2, 0xff]), "{text}");
        }
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_byte_is_named() {
        assert_eq!(parse("00 0a4 02").unwrap_err().0, "0a4");
        assert_eq!(parse("zz").unwrap_err(), ("zz".into(), "'z' is no hexadecimal digit".into()));
        assert_eq!(parse("é0").unwrap_err().0, "é0");
    }
}
