//! Copies between shared memory and private memory, and between two shared memories. Shared memory
//! is accessed by others at the same time.
//!
//! Aligned words are copied whole, so a concurrent reader sees each word before or after the copy.
//! Short copies are relaxed atomic accesses. Long copies on x86-64 are one `rep movsq`, which moves
//! several words a cycle; compilers cannot make it of atomic accesses. Each of its steps accesses
//! one word (Intel SDM volume 2, MOVS), and stores before and after it stay ordered with it (volume
//! 3, 10.2.4, "Fast-String Operation and Out-of-Order Stores").
//!
//! # Safety
//!
//! The shared side is an address, never a reference to plain memory.
#![allow(unsafe_code, reason = "memory that others write is reached by address")]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Minimum words for `rep movsq`, which has a start-up cost.
const LONG: usize = 48;
/// Words copied per turn of the loop.
const TURN: usize = 4;

/// Copies words out of shared memory into `to`, whose length is a multiple of 8.
///
/// # Safety
/// `from` is aligned to 8. `to.len()` bytes are mapped there for reading.
pub(crate) unsafe fn load(from: *const AtomicU64, to: &mut [u8]) {
    let count = to.len() / 8;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if count >= LONG {
        // SAFETY: by the contract of `load`; `to` has the bytes.
        return unsafe { words(from.cast(), to.as_mut_ptr(), count) };
    }
    let (turns, rest) = to.as_chunks_mut::<8>().0.as_chunks_mut::<TURN>();
    let mut at = from;
    for to in turns {
        // SAFETY: words mapped by the contract of `load`.
        unsafe { load_each(at, to) };
        at = at.wrapping_add(TURN);
    }
    // SAFETY: words mapped by the contract of `load`.
    unsafe { load_each(at, rest) };
    let _ = (count, LONG);
}

/// # Safety
/// `from` is aligned to 8. `to.len()` words are mapped there, at most [`TURN`].
#[inline(always)]
unsafe fn load_each(from: *const AtomicU64, to: &mut [[u8; 8]]) {
    // The limit makes the compiler unroll the loop.
    for (at, to) in to.iter_mut().enumerate().take(TURN) {
        // SAFETY: a word mapped by the contract of `load_each`.
        let word = unsafe { &*from.wrapping_add(at) };
        *to = word.load(Ordering::Relaxed).to_ne_bytes();
    }
}

/// Copies `from`, whose length is a multiple of 8, into words of shared memory.
///
/// # Safety
/// `to` is aligned to 8. `from.len()` bytes are mapped there for writing.
pub(crate) unsafe fn store(to: *const AtomicU64, from: &[u8]) {
    let count = from.len() / 8;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if count >= LONG {
        // SAFETY: by the contract of `store`; `from` has the bytes.
        return unsafe { words(from.as_ptr(), to.cast_mut().cast(), count) };
    }
    let (turns, rest) = from.as_chunks::<8>().0.as_chunks::<TURN>();
    let mut at = to;
    for from in turns {
        // SAFETY: words mapped by the contract of `store`.
        unsafe { store_each(at, from) };
        at = at.wrapping_add(TURN);
    }
    // SAFETY: words mapped by the contract of `store`.
    unsafe { store_each(at, rest) };
    let _ = (count, LONG);
}

/// # Safety
/// `to` is aligned to 8. `from.len()` words are mapped there, at most [`TURN`].
#[inline(always)]
unsafe fn store_each(to: *const AtomicU64, from: &[[u8; 8]]) {
    // The limit makes the compiler unroll the loop.
    for (at, from) in from.iter().enumerate().take(TURN) {
        // SAFETY: a word mapped by the contract of `store_each`.
        let word = unsafe { &*to.wrapping_add(at) };
        word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
    }
}

/// Copies bytes between two shared memories, at any alignment. Words aligned at the target are
/// stored whole.
///
/// # Safety
/// `len` bytes are mapped at `from` for reading and at `to` for writing.
pub(crate) unsafe fn between(from: *const u8, to: *mut u8, len: usize) {
    let head = (to.addr().wrapping_neg() % 8).min(len);
    let count = (len - head) / 8;
    let tail = head + count * 8;
    // SAFETY: the first `head` bytes are mapped by the contract of `between`.
    unsafe { each_byte(from, to, head) };
    let (words_from, words_to) = (from.wrapping_add(head), to.wrapping_add(head));
    // SAFETY: mapped by the contract of `between`; aligned at the target after `head` bytes.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        words(words_from, words_to, count);
    }
    // SAFETY: mapped by the contract of `between`; aligned at the target after `head` bytes.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    unsafe {
        each_word(words_from, words_to.cast(), count);
    }
    // SAFETY: the last bytes are mapped by the contract of `between`.
    unsafe { each_byte(from.wrapping_add(tail), to.wrapping_add(tail), len - tail) };
}

/// # Safety
/// As for [`between`].
unsafe fn each_byte(from: *const u8, to: *mut u8, len: usize) {
    for at in 0..len {
        // SAFETY: a byte mapped by the contract of `each_byte`; a byte has no alignment.
        let byte = unsafe { AtomicU8::from_ptr(from.wrapping_add(at).cast_mut()) };
        let byte = byte.load(Ordering::Relaxed);
        // SAFETY: a byte mapped by the contract of `each_byte`.
        unsafe { AtomicU8::from_ptr(to.wrapping_add(at)) }.store(byte, Ordering::Relaxed);
    }
}

/// # Safety
/// As for [`between`], for `count` words; `to` is aligned.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn each_word(from: *const u8, to: *mut u64, count: usize) {
    for at in 0..count {
        let from = from.wrapping_add(at * 8).cast_mut();
        let byte = |at| {
            // SAFETY: a byte mapped by the contract of `each_word`.
            unsafe { AtomicU8::from_ptr(from.wrapping_add(at)) }.load(Ordering::Relaxed)
        };
        let word = match from.addr().is_multiple_of(8) {
            // SAFETY: a word mapped by the contract of `each_word`, and aligned.
            true => unsafe { AtomicU64::from_ptr(from.cast()) }.load(Ordering::Relaxed),
            false => u64::from_ne_bytes(std::array::from_fn(byte)),
        };
        // SAFETY: a word mapped by the contract of `each_word`, and aligned.
        unsafe { AtomicU64::from_ptr(to.wrapping_add(at)) }.store(word, Ordering::Relaxed);
    }
}

/// # Safety
/// `count` words are mapped at `from` for reading and at `to` for writing.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn words(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: by the contract of `words`; the ABI clears the direction flag.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") count => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_from_any_place_to_any_other() {
        let from = (0..200).map(|at| at as u8).collect::<Vec<_>>();
        for (at, to_at) in [(0, 0), (1, 0), (0, 3), (3, 3), (5, 6), (8, 16)] {
            for len in [0, 1, 7, 8, 9, 64, 101] {
                let mut to = [0xaa; 200];
                let (source, target) = (from[at..].as_ptr(), to[to_at..].as_mut_ptr());
                // SAFETY: both buffers have `len` bytes.
                unsafe { between(source, target, len) };
                assert_eq!(to[to_at..][..len], from[at..][..len]);
                assert!(to[..to_at].iter().chain(&to[to_at + len..]).all(|byte| *byte == 0xaa));
            }
        }
    }

    #[test]
    fn words_go_where_they_belong_and_nowhere_else() {
        for count in [0, 1, LONG - 1, LONG, LONG + 1, 600] {
            let shared = (0..count as u64 + 2).map(AtomicU64::new).collect::<Vec<_>>();
            let mut bytes = vec![0xaa; count * 8 + 9];
            // SAFETY: the vector has `count` words from the second on.
            unsafe { load(&raw const shared[1], &mut bytes[1..][..count * 8]) };
            let want = (1..=count as u64).flat_map(u64::to_ne_bytes).collect::<Vec<_>>();
            assert_eq!(bytes[1..][..count * 8], want);
            assert!(bytes[0] == 0xaa && bytes[1 + count * 8..] == [0xaa; 8]);

            let other = (0..count + 2).map(|_| AtomicU64::new(7)).collect::<Vec<_>>();
            // SAFETY: the vector has `count` words from the second on.
            unsafe { store(&raw const other[1], &bytes[1..][..count * 8]) };
            let back = other.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>();
            assert!(back[0] == 7 && back[count + 1] == 7);
            assert!(back[1..=count].iter().copied().eq(1..=count as u64));
        }
    }
}
