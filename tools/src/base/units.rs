//! Values of options: bytes, MTUs, seconds. Shared by `pingpong` and `perf`.

use std::time::Duration;

use uverbs::Mtu;

/// Parses bytes, with an optional K, M or G at the end.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_ascii_uppercase();
    let (digits, shift) = match upper.strip_suffix("IB").unwrap_or(&upper) {
        with if with.ends_with('K') => (&with[..with.len() - 1], 10),
        with if with.ends_with('M') => (&with[..with.len() - 1], 20),
        with if with.ends_with('G') => (&with[..with.len() - 1], 30),
        with => (with, 0),
    };
    let number: u64 = digits.parse().map_err(|_| "bytes are like 64, 4K, 1M or 1G".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more bytes than 64 bits count".to_owned())
}

pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => {
            Err("a message has at least 1 byte here, so that there is something to verify"
                .to_owned())
        }
        size => Ok(size),
    }
}

pub(crate) fn parse_mtu(text: &str) -> Result<Mtu, String> {
    let bytes = parse_bytes(text)?;
    let mtu = u32::try_from(bytes).ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| "an MTU is 256, 512, 1024, 2048 or 4096".to_owned())
}

/// Longest timeout in seconds: a day.
const TIMEOUT_MAX: f64 = 86_400.0;

pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "seconds are like 10 or 0.5".to_owned())?;
    if seconds > 0.0 && seconds <= TIMEOUT_MAX {
        // Rounds to nanoseconds, and cannot fail in this range.
        Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
    } else {
        Err(format!("must be over 0 and at most {TIMEOUT_MAX}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("1", 1), ("4K", 4096), ("1m", 1 << 20), ("1MiB", 1 << 20), ("2G", 1 << 31), ("0", 0)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5K", "4KB", "1 M x", "99999999999G", "iB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_bytes_or_an_error(text in "[0-9kKmMgGiIbB. -]{0,12}|.{0,8}") {
            let _ = parse_bytes(&text);
            let _ = parse_mtu(&text);
            let _ = parse_timeout(&text);
        }

        #[test]
        fn numbers_are_themselves(number in 0u64..1 << 34) {
            prop_assert_eq!(parse_bytes(&number.to_string()), Ok(number));
            prop_assert_eq!(parse_bytes(&format!("{number}K")), Ok(number << 10));
        }
    }
}
