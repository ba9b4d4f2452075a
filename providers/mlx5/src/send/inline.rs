//! Inline data of send work requests.
//!
//! # Safety
//!
//! See `wqe.rs`. Bytes are read from borrowed slices.
#![allow(unsafe_code, reason = "writes segments into a ring by raw address")]

use uverbs_core::order::device_memory;
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::{INLINE_HEADER, mlx5_wqe_inline_seg};
use zerocopy::transmute;

use crate::send::wqe;

/// Inline bytes that fit the sixteen bytes of their header.
pub(crate) const SMALL_INLINE: usize = DS_BYTES - INLINE_HEADER;

/// Total bytes of all slices.
#[inline]
pub(crate) fn total_inline(pieces: &[&[u8]]) -> usize {
    pieces.iter().fold(0, |total: usize, piece| total.saturating_add(piece.len()))
}

/// Writes header and bytes; writes nothing for no bytes.
///
/// # Safety
///
/// `to` is aligned to 8 bytes and valid for writes of header and bytes, rounded up to 16; no other
/// thread reads or writes them now.
#[inline(always)]
pub(crate) unsafe fn write_inline(to: *mut u8, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    if is_small(bytes) {
        // SAFETY: the first 16 bytes of the destination.
        return unsafe { write_small(to, bytes) };
    }
    // SAFETY: the first 4 bytes of the destination.
    unsafe { device_memory::write(to.cast::<mlx5_wqe_inline_seg>(), inline_header(bytes)) };
    // SAFETY: the destination has room for all bytes behind the header; the source is borrowed, so
    // it is not in the ring.
    unsafe { copy(to.wrapping_add(INLINE_HEADER), bytes.as_ptr(), bytes.len()) };
}

/// Header of inline data, whose length the queue allows.
#[inline(always)]
fn inline_header(bytes: &[u8]) -> mlx5_wqe_inline_seg {
    mlx5_wqe_inline_seg::new(bytes.len() as u32)
}

/// Units of 16 bytes of header and data, whose length the queue allows.
#[inline(always)]
pub(crate) fn inline_units(len: usize) -> u32 {
    // Rounded up, as `inline_bytes` does; the sum can't overflow, because `len` is at most
    // `max_inline`.
    let units = len.wrapping_add(INLINE_HEADER + DS_BYTES - 1) >> DS_BYTES.ilog2();
    if len == 0 { 0 } else { units as u32 }
}

/// True if there are bytes that fit one segment together with the header.
#[inline(always)]
pub(crate) fn is_small(bytes: &[u8]) -> bool {
    bytes.len().wrapping_sub(1) < SMALL_INLINE
}

/// Writes header and bytes, which fit one segment.
///
/// # Safety
///
/// As [`wqe::store`].
#[inline(always)]
pub(crate) unsafe fn write_small(to: *mut u8, bytes: &[u8]) {
    let header = u32::from_le_bytes(transmute!(inline_header(bytes)));
    let (first, rest) = small(bytes);
    let words = [u64::from(header) | u64::from(first) << 32, rest];
    // SAFETY: contract of `write_small`.
    unsafe { wqe::store(to, words.map(u64::to_le)) };
}

/// The first four of up to twelve bytes, and the following ones, as little-endian numbers. Uses two
/// overlapping loads instead of a loop or a call.
#[inline(always)]
fn small(bytes: &[u8]) -> (u32, u64) {
    // Number of bits of the last word that belong to the first four bytes.
    let known = |most: usize| most.wrapping_sub(bytes.len()) * 8;
    // Patterns, because for `first_chunk` the compiler compares the address with null.
    match (bytes, bytes) {
        (&[a, b, c, d, ..], &[.., s, t, u, v, w, x, y, z]) => (
            u32::from_le_bytes([a, b, c, d]),
            u64::from_le_bytes([s, t, u, v, w, x, y, z]) >> known(SMALL_INLINE),
        ),
        (&[a, b, c, d, ..], &[.., w, x, y, z]) => (
            u32::from_le_bytes([a, b, c, d]),
            u64::from(u32::from_le_bytes([w, x, y, z])) >> known(8),
        ),
        _ => (bytes.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte)), 0),
    }
}

/// Copies more than [`SMALL_INLINE`] bytes: up to 64 by overlapping words, more by `memcpy`.
///
/// # Safety
///
/// As [`std::ptr::copy_nonoverlapping`], and `len` is at least 8.
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    match len {
        ..=16 => {
            // SAFETY: 8 <= len.
            unsafe { move_words::<8, 2>(to, from, [0, len - 8]) };
        }
        17..=32 => {
            // SAFETY: 16 <= len.
            unsafe { move_words::<16, 2>(to, from, [0, len - 16]) };
        }
        33..=64 => {
            // SAFETY: 32 <= len.
            unsafe { move_words::<16, 4>(to, from, [0, 16, len - 32, len - 16]) };
        }
        // SAFETY: contract of `copy`.
        _ => unsafe { device_memory::copy(from, to, len) },
    }
}

/// Copies words of `SIZE` bytes at these offsets: first all loads, so that they don't wait for the
/// stores.
///
/// # Safety
///
/// As [`std::ptr::copy_nonoverlapping`] for each of them.
#[inline(always)]
unsafe fn move_words<const SIZE: usize, const COUNT: usize>(
    to: *mut u8,
    from: *const u8,
    offsets: [usize; COUNT],
) {
    // SAFETY: contract of `move_words`; an array of bytes has no alignment.
    let words = offsets.map(|at| unsafe { from.wrapping_add(at).cast::<[u8; SIZE]>().read() });
    for (at, word) in offsets.into_iter().zip(words) {
        // SAFETY: contract of `move_words`; an array of bytes has no alignment.
        unsafe { device_memory::write(to.wrapping_add(at).cast::<[u8; SIZE]>(), word) };
    }
}

/// Writes header and concatenated slices, without the first `skip` bytes; writes nothing for no
/// bytes.
///
/// # Safety
///
/// As [`write_inline`].
#[inline]
pub(crate) unsafe fn write_inline_list(to: *mut u8, pieces: &[&[u8]], mut skip: usize) {
    let total = total_inline(pieces).saturating_sub(skip);
    if total == 0 {
        return;
    }
    // SAFETY: the first 4 bytes of the destination. The total is at most `max_inline`.
    unsafe { device_memory::write(to.cast(), mlx5_wqe_inline_seg::new(total as u32)) };
    let mut at = to.wrapping_add(INLINE_HEADER);
    for piece in pieces {
        let (_, rest) = piece.split_at(skip.min(piece.len()));
        skip -= piece.len() - rest.len();
        // SAFETY: the destination has room for all bytes behind the header; the source is borrowed,
        // so it is not in the ring.
        unsafe { device_memory::copy(rest.as_ptr(), at, rest.len()) };
        at = at.wrapping_add(rest.len());
    }
}
