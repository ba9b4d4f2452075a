//! Stores to a doorbell page.
//!
//! Each store is volatile and has eight bytes, in some copies sixteen. So it is one transaction on
//! the bus, and the compiler neither drops, repeats nor merges it. [`crate::order::fence`] orders
//! these stores against other memory.
//!
//! # Safety
//!
//! The caller vouches for addresses; each function states its contract.
#![allow(unsafe_code, reason = "device pages are reached by raw address")]

#[cfg(all(target_arch = "x86_64", not(feature = "adversary")))]
use std::arch::x86_64::__m128i;

#[cfg(feature = "adversary")]
use crate::order::adversary;

/// Bytes of a work queue basic block, the unit of a BlueFlame copy.
pub const BLOCK: usize = 64;

/// Stores `value` big-endian at `at`: a doorbell of mlx5 (PRM, "Doorbell": the first eight bytes of
/// the WQE).
///
/// # Safety
///
/// `at` is aligned to eight bytes and valid for an eight-byte volatile write.
#[inline(always)]
pub unsafe fn write64_be(at: *mut u64, value: u64) {
    // SAFETY: contract of `write64_be`.
    unsafe { write64_raw(at, value.to_be()) };
}

/// Stores eight bytes without conversion: the first bytes of a WQE, which are big-endian in memory.
///
/// # Safety
///
/// `at` is aligned to eight bytes and valid for an eight-byte volatile write.
#[inline(always)]
pub unsafe fn write64_raw(at: *mut u64, value: u64) {
    #[cfg(feature = "adversary")]
    if adversary::store_doorbell(at, value) {
        return;
    }
    // SAFETY: contract of `write64_raw`.
    unsafe { at.write_volatile(value) };
}

/// Copies `blocks` blocks of 64 bytes to a BlueFlame register, in ascending order, by eight-byte
/// stores.
///
/// On write-combining memory the eight stores of a block leave as one 64-byte transaction, unless
/// the buffer is evicted early, which the device tolerates. If the stores are not combined, the
/// ascending order sends the block's first bytes, which name the WQE, first. rdma-core:
/// `util/mmio.h`, `mmio_memcpy_x64`.
///
/// # Safety
///
/// `to` and `from` are aligned to eight bytes; `blocks` times 64 bytes are valid to write at `to`
/// and to read at `from`, and don't overlap. No other thread writes to `from` meanwhile.
#[inline(always)]
pub unsafe fn copy_blocks(to: *mut u64, from: *const u64, blocks: usize) {
    const WORDS: usize = BLOCK / size_of::<u64>();
    for word in 0..blocks * WORDS {
        // SAFETY: in bounds of `from`, by the contract.
        let source = unsafe { from.add(word) };
        // SAFETY: aligned and valid, by the contract.
        #[cfg(not(feature = "adversary"))]
        let value = unsafe { source.read_volatile() };
        #[cfg(feature = "adversary")]
        // SAFETY: aligned and valid, by the contract.
        let value = unsafe { adversary::own_word(source) };
        // SAFETY: in bounds of `to`, by the contract.
        let target = unsafe { to.add(word) };
        // SAFETY: aligned and valid, by the contract.
        unsafe { write64_raw(target, value) };
    }
}

/// Copies a block of 64 bytes as [`copy_blocks`] does. On x86-64 it uses stores of sixteen bytes
/// after the first `SINGLE` words, as UCX does (`ib_mlx5.inl`, `uct_ib_mlx5_bf_copy_bb`).
///
/// `SINGLE` is even. Words that were just written by separate stores should be among the first,
/// because a load of two words from two pending stores stalls until both are in the cache.
///
/// # Safety
///
/// As for [`copy_blocks`] with one block; and both are aligned to sixteen bytes.
#[inline(always)]
pub unsafe fn copy_block<const SINGLE: usize>(to: *mut u64, from: *const u64) {
    #[cfg(not(all(target_arch = "x86_64", not(feature = "adversary"))))]
    // SAFETY: contract of `copy_block`.
    unsafe {
        copy_blocks(to, from, 1);
    }
    #[cfg(all(target_arch = "x86_64", not(feature = "adversary")))]
    {
        const { assert!(SINGLE.is_multiple_of(2) && SINGLE <= BLOCK / size_of::<u64>()) };
        for word in 0..SINGLE {
            // SAFETY: in bounds, aligned and valid, by the contract.
            let value = unsafe { from.wrapping_add(word).read_volatile() };
            // SAFETY: in bounds, aligned and valid, by the contract.
            unsafe { write64_raw(to.wrapping_add(word), value) };
        }
        let (to, from) = (to.cast::<__m128i>(), from.cast::<__m128i>());
        for part in SINGLE / 2..BLOCK / size_of::<__m128i>() {
            // SAFETY: in bounds, aligned and valid, by the contract.
            let value = unsafe { from.wrapping_add(part).read_volatile() };
            // SAFETY: in bounds, aligned and valid, by the contract.
            unsafe { to.wrapping_add(part).write_volatile(value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_is_big_endian() {
        let mut page = [0u64; 2];
        // SAFETY: an aligned local array.
        unsafe { write64_be(page.as_mut_ptr(), 0x0102_0304_0506_0708) };
        assert_eq!(page[0].to_ne_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        // SAFETY: an aligned local array.
        unsafe { write64_raw(page.as_mut_ptr(), 7) };
        assert_eq!(page, [7, 0]);
    }

    #[test]
    fn whole_blocks_are_copied_and_no_more() {
        let from: [u64; 24] = std::array::from_fn(|i| i as u64 + 1);
        for blocks in 0..=2 {
            let mut to = [0u64; 24];
            // SAFETY: both arrays hold three blocks.
            unsafe { copy_blocks(to.as_mut_ptr(), from.as_ptr(), blocks) };
            assert_eq!(to[..8 * blocks], from[..8 * blocks]);
            assert!(to[8 * blocks..].iter().all(|&word| word == 0));
        }
    }

    #[test]
    fn a_wide_copy_is_of_one_block() {
        #[repr(align(16))]
        struct Lines([u64; 16]);
        let (from, mut to) = (Lines(std::array::from_fn(|i| i as u64 + 1)), Lines([0; 16]));
        // SAFETY: both are aligned, and hold two blocks.
        unsafe { copy_block::<2>(to.0.as_mut_ptr(), from.0.as_ptr()) };
        assert_eq!(to.0[..8], from.0[..8]);
        assert!(to.0[8..].iter().all(|&word| word == 0));
    }
}
