//! Contents of messages, and their check on arrival.

use std::fmt;

use serde::Serialize;

/// The two sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Who {
    Client,
    Server,
}

impl Who {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// Contents of a message. Each byte follows from iteration, side and offset, so that stale, foreign
/// and displaced bytes are detected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    iteration: u64,
    from: Who,
    seed: u64,
    /// Value of the last byte, which the receiver of an RDMA WRITE polls for.
    last: Option<u8>,
}

/// A byte that differs from the sent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) iteration: u64,
    pub(crate) from: Who,
    pub(crate) offset: usize,
    pub(crate) wanted: u8,
    pub(crate) got: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iteration, from, offset, wanted, got } = self;
        write!(
            f,
            "iteration {iteration}: the data of the {from} is wrong at offset {offset}: wanted \
            {wanted:#04x}, got {got:#04x}"
        )
    }
}

impl std::error::Error for Mismatch {}

/// A word that an atomic stored or returned wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongWord {
    pub(crate) iteration: u64,
    pub(crate) what: &'static str,
    pub(crate) of: Who,
    pub(crate) wanted: u64,
    pub(crate) got: u64,
}

impl fmt::Display for WrongWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iteration, what, of, wanted, got } = self;
        write!(
            f,
            "iteration {iteration}: {what} of the {of} is wrong at offset 0: wanted \
            {wanted:#018x}, got {got:#018x}"
        )
    }
}

impl std::error::Error for WrongWord {}

/// Spreads every bit of `value` over the whole word (the finalizer of MurmurHash3).
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    value = (value ^ value >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ value >> 33
}

/// Immediate data of a side's message.
pub(crate) fn immediate(iteration: u64, from: Who) -> u32 {
    (mix(iteration << 1 | u64::from(from == Who::Server)) >> 32) as u32
}

impl Pattern {
    pub(crate) fn new(iteration: u64, from: Who) -> Self {
        let side = if from == Who::Client { 0 } else { 1 };
        Self { iteration, from, seed: mix(iteration << 1 | side), last: None }
    }

    /// Replaces the last byte.
    pub(crate) fn ending_with(self, last: u8) -> Self {
        Self { last: Some(last), ..self }
    }

    /// Bytes `8 * index` to `8 * index + 7`.
    #[inline]
    fn word(&self, index: usize) -> [u8; 8] {
        // Cheap enough for gigabytes, and different for neighbours: a Weyl sequence, folded.
        let value = self.seed.wrapping_add(index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (value ^ value >> 32).to_le_bytes()
    }

    /// Fills a message.
    pub(crate) fn fill(&self, message: &mut [u8]) {
        let mut words = message.chunks_exact_mut(8);
        let mut index = 0;
        for word in &mut words {
            word.copy_from_slice(&self.word(index));
            index += 1;
        }
        let rest = words.into_remainder();
        rest.copy_from_slice(&self.word(index)[..rest.len()]);
        if let (Some(last), Some(place)) = (self.last, message.last_mut()) {
            *place = last;
        }
    }

    /// Checks a whole message, and names the first byte that differs.
    pub(crate) fn check(&self, message: &[u8]) -> Result<(), Mismatch> {
        let (last, body) = match (self.last, message.split_last()) {
            (Some(wanted), Some((got, body))) => (Some((wanted, *got)), body),
            _ => (None, message),
        };
        for (index, got) in body.chunks(8).enumerate() {
            let wanted = self.word(index);
            if got != &wanted[..got.len()] {
                return Err(self.mismatch(index * 8, &wanted, got));
            }
        }
        match last {
            Some((wanted, got)) if wanted != got => {
                Err(self.mismatch(body.len(), &[wanted], &[got]))
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn mismatch(&self, start: usize, wanted: &[u8], got: &[u8]) -> Mismatch {
        let at = wanted.iter().zip(got).position(|(wanted, got)| wanted != got).unwrap_or(0);
        Mismatch {
            iteration: self.iteration,
            from: self.from,
            offset: start + at,
            wanted: wanted[at],
            got: got[at],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(iteration: u64, server: bool, last: Option<u8>) -> Pattern {
        let plain = Pattern::new(iteration, if server { Who::Server } else { Who::Client });
        last.map_or(plain, |last| plain.ending_with(last))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// A single changed byte is found, with its offset.
        #[test]
        fn a_corrupt_byte_is_reported(
            iteration: u64, server: bool, last: Option<u8>, len in 1usize..300,
            at: prop::sample::Index, flip in 1u8..,
        ) {
            let pattern = pattern(iteration, server, last);
            let mut message = vec![0xcc; len];
            pattern.fill(&mut message);
            prop_assert_eq!(pattern.check(&message), Ok(()));
            let offset = at.index(len);
            let wanted = message[offset];
            message[offset] ^= flip;
            let from = if server { Who::Server } else { Who::Client };
            let mismatch = Mismatch { iteration, from, offset, wanted, got: wanted ^ flip };
            prop_assert_eq!(pattern.check(&message), Err(mismatch));
        }

        /// Messages of another iteration, of the other side, or displaced by a byte or word are
        /// found.
        #[test]
        fn the_wrong_message_is_found(
            iteration in 0u64..1 << 40, len in 24usize..300, shift in 1usize..9,
        ) {
            let right = Pattern::new(iteration, Who::Client);
            let mut message = vec![0; len];
            for wrong in
                [Pattern::new(iteration + 1, Who::Client), Pattern::new(iteration, Who::Server)]
            {
                wrong.fill(&mut message);
                prop_assert!(right.check(&message).is_err());
            }
            right.fill(&mut message);
            message.rotate_left(shift);
            prop_assert!(right.check(&message).is_err());
        }
    }

    #[test]
    fn a_report_says_all() {
        let mut message = [0; 20];
        let pattern = Pattern::new(7, Who::Server);
        pattern.fill(&mut message);
        let wanted = message[17];
        message[17] = !wanted;
        let text = pattern.check(&message).unwrap_err().to_string();
        assert_eq!(
            text,
            format!(
                "iteration 7: the data of the server is wrong at offset 17: wanted {wanted:#04x}, \
                got {:#04x}",
                !wanted
            )
        );
    }
}
