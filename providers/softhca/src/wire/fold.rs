//! CRC-32 by carry-less multiplication (Gopal et al., "Fast CRC Computation for Generic Polynomials
//! Using PCLMULQDQ Instruction", Intel 2009): long input becomes 16 bytes with the same remainder.
//!
//! # Safety
//!
//! One block calls a function that is compiled for instructions beyond the x86-64 baseline, after a
//! test that the processor has them.
#![allow(unsafe_code, reason = "calls a function compiled for more than the target's baseline")]

/// Shortest input that is worth folding: four blocks.
const SHORTEST: usize = 64;

/// Folds all whole blocks of 16 bytes. Returns 16 bytes to add to a CRC of 0, and the rest of the
/// input. `None` if the input is short or the processor lacks the instruction.
pub(super) fn fold(crc: u32, bytes: &[u8]) -> Option<([u8; 16], &[u8])> {
    if bytes.len() < SHORTEST {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("pclmulqdq") {
        let (blocks, rest) = bytes.as_chunks::<16>();
        // SAFETY: the processor has the instruction, by the test above.
        return Some((unsafe { x86::fold(crc, blocks) }, rest));
    }
    let _ = crc;
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_unpackhi_epi64,
        _mm_xor_si128,
    };

    /// Folding by four blocks: x^(4·128+32) and x^(4·128−32) modulo the polynomial, bits reversed.
    const FOUR: [i64; 2] = [0x1_5444_2bd4, 0x1_c6e4_1596];
    /// Folding by one block: x^(128+32) and x^(128−32).
    const ONE: [i64; 2] = [0x1_7519_97d0, 0x0_ccaa_009e];

    #[target_feature(enable = "pclmulqdq")]
    fn load(block: &[u8; 16]) -> __m128i {
        // Not as closures: those called by generic code are not compiled for the instruction, and
        // not inlined.
        let both = u128::from_le_bytes(*block);
        _mm_set_epi64x((both >> 64) as i64, both as i64)
    }

    /// Moves `sum` over some blocks, and adds the next block.
    #[target_feature(enable = "pclmulqdq")]
    fn step(sum: __m128i, by: __m128i, next: __m128i) -> __m128i {
        let low = _mm_clmulepi64_si128::<0x00>(sum, by);
        let high = _mm_clmulepi64_si128::<0x11>(sum, by);
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    }

    #[target_feature(enable = "pclmulqdq")]
    pub(super) fn fold(crc: u32, blocks: &[[u8; 16]]) -> [u8; 16] {
        let four = _mm_set_epi64x(FOUR[1], FOUR[0]);
        let one = _mm_set_epi64x(ONE[1], ONE[0]);
        let (groups, rest) = blocks.as_chunks::<4>();
        let mut groups = groups.iter();
        let mut sums = [_mm_set_epi64x(0, 0); 4];
        if let Some(first) = groups.next() {
            for (sum, block) in sums.iter_mut().zip(first) {
                *sum = load(block);
            }
        }
        // The initial state is part of the first four bytes.
        sums[0] = _mm_xor_si128(sums[0], _mm_set_epi64x(0, i64::from(crc)));
        for group in groups {
            for (sum, block) in sums.iter_mut().zip(group) {
                *sum = step(*sum, four, load(block));
            }
        }
        let [first, others @ ..] = sums;
        let mut sum = first;
        for next in others {
            sum = step(sum, one, next);
        }
        for block in rest {
            sum = step(sum, one, load(block));
        }
        let [low, high] = [sum, _mm_unpackhi_epi64(sum, sum)].map(|half| _mm_cvtsi128_si64(half));
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        bytes
    }
}
