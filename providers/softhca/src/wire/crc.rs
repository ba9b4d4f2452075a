//! The invariant CRC (IBTA vol 1, 7.8.1): CRC-32 with the polynomial of Ethernet, 0x04c11db7.
//!
//! The ICRC of a real packet also covers the routing headers, with ones in place of fields that
//! change. A frame in memory has no such headers, so [`icrc`] starts at the BTH. A wire that leaves
//! the process begins with its headers (`icrc_behind`).

use super::fold;

/// Slicing-by-16: entry `[k][b]` is the CRC of the byte `b` with `k` zero bytes behind it.
static TABLES: [[u32; 256]; 16] = tables();

/// 0x04c11db7 with its bits reversed: the CRC takes the lowest bit of each byte first.
pub(super) const POLYNOMIAL: u32 = 0xedb8_8320;

const fn tables() -> [[u32; 256]; 16] {
    let mut tables = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 16 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// Adds `bytes` to a running CRC. The initial state is all ones; the result is the complement.
pub(super) fn update(crc: u32, bytes: &[u8]) -> u32 {
    match fold::fold(crc, bytes) {
        Some((folded, rest)) => by_tables(by_tables(0, &folded), rest),
        None => by_tables(crc, bytes),
    }
}

fn by_tables(mut crc: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        let mut block = *block;
        for (byte, state) in block.iter_mut().zip(crc.to_le_bytes()) {
            *byte ^= state;
        }
        // The first byte of the block has 15 bytes after it.
        crc = 0;
        for (byte, table) in block.iter().zip(TABLES.iter().rev()) {
            crc ^= table[usize::from(*byte)];
        }
    }
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        let word = (crc ^ u32::from_le_bytes(*word)).to_le_bytes();
        crc = 0;
        for (byte, table) in word.iter().zip(TABLES[..4].iter().rev()) {
            crc ^= table[usize::from(*byte)];
        }
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

/// CRC-32 as Ethernet, zlib and the ICRC use it.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    !update(!0, bytes)
}

/// ICRC of a packet; `bytes` are all bytes from the BTH to the ICRC. It is stored least significant
/// byte first.
///
/// Byte 4 of the BTH (FECN, BECN and reserved bits) counts as all ones, since switches change it.
pub(crate) fn icrc(bytes: &[u8]) -> u32 {
    icrc_behind(!0, bytes)
}

/// As [`icrc`], after routing headers with the CRC state `state`.
pub(super) fn icrc_behind(state: u32, bytes: &[u8]) -> u32 {
    // A block of the tables.
    let (first, rest) = bytes.split_at(bytes.len().min(16));
    let mut head = [0; 16];
    head[..first.len()].copy_from_slice(first);
    head[4] = 0xff;
    !update(update(state, &head[..first.len()]), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The check value of CRC-32/ISO-HDLC in every CRC catalogue.
    #[test]
    fn known_vector() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        // Long enough for the sliced path; the value is zlib's crc32 of the same 32 zero bytes.
        assert_eq!(crc32(&[0; 32]), 0x190a_55ad);
    }

    #[test]
    fn congestion_bits_do_not_count() {
        let mut packet = [0x5a; 40];
        let before = icrc(&packet);
        packet[4] ^= 0xc0;
        assert_eq!(icrc(&packet), before);
        packet[5] ^= 0x01;
        assert_ne!(icrc(&packet), before);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn slices_as_bit_by_bit(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let mut crc = !0u32;
            for byte in &bytes {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = (crc >> 1) ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
                }
            }
            prop_assert_eq!(crc32(&bytes), !crc);
            // Either of the two implementations that this processor uses.
            prop_assert_eq!(by_tables(!0, &bytes), crc);
        }
    }
}
