//! Stores that a device may see and loads of what it writes, in host memory; those to doorbell
//! pages are in [`crate::order::mmio`].
//!
//! Each function is the one access that it is named after, and costs nothing else. They have names
//! so that all of them go through here: under the feature `adversary`, for tests alone,
//! `crate::order::adversary` decides when a store becomes visible and how old a load may be, within
//! what [`crate::order::fence`] forbids.
//!
//! # Safety
//!
//! The addresses are the caller's promise; each function states it.
#![allow(unsafe_code, reason = "memory of a device is reached by raw address")]

#[cfg(all(target_arch = "x86_64", not(feature = "adversary")))]
use std::arch::x86_64::{__m128i, _mm_set_epi64x};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes};

#[cfg(feature = "adversary")]
use crate::order::adversary;

/// Stores part of a work queue entry, which the device doesn't look at before it is published.
///
/// # Safety
///
/// As for [`std::ptr::write`]; no other thread accesses the place during the call.
#[inline(always)]
pub unsafe fn write<T: IntoBytes + Immutable>(to: *mut T, value: T) {
    #[cfg(feature = "adversary")]
    if adversary::store(to.cast(), value.as_bytes()) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
}

/// As [`write()`], by one store where the processor is x86-64. A load of both words just behind it
/// need not wait then, as it does behind two stores.
///
/// # Safety
///
/// As for [`write()`].
#[inline(always)]
pub unsafe fn write_whole(to: *mut [u64; 2], words: [u64; 2]) {
    #[cfg(not(all(target_arch = "x86_64", not(feature = "adversary"))))]
    // SAFETY: the caller's promise.
    unsafe {
        write(to, words);
    }
    #[cfg(all(target_arch = "x86_64", not(feature = "adversary")))]
    {
        let [low, high] = words.map(u64::cast_signed);
        // SAFETY: each x86-64 processor has this.
        let both = unsafe { _mm_set_epi64x(high, low) };
        // SAFETY: contract of this function; an unaligned store needs no alignment.
        unsafe { to.cast::<__m128i>().write_unaligned(both) };
    }
}

/// Copies into a work queue entry, or from one completion queue entry of the program's to another.
///
/// # Safety
///
/// As for [`std::ptr::copy_nonoverlapping`]; no other thread writes the bytes at `from` or accesses
/// the bytes at `to` during the call.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(feature = "adversary")]
    // SAFETY: the caller's promise.
    if unsafe { adversary::copy(from, to, len) } {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Stores a producer index in a doorbell record, as it is to stand in memory, behind the loads of
/// the buffers that it hands over.
///
/// *Orders* all loads before it before this store; stores are
/// [`crate::order::fence::wqe_before_record`]'s. *Partner*: the device, which may write a receive's
/// buffer, or that of a READ or an atomic, as soon as it sees the index: what the program read
/// there of the message before must have been read. Free on x86-64; `stlr` on aarch64, where `dmb
/// oshst` orders stores alone. rdma-core has a plain store here (`qp.c`, `mlx5_post_recv`,
/// `post_send_db`).
///
/// # Safety
///
/// `at` is aligned and valid; other accesses to it are atomic, or the device's.
#[inline(always)]
pub unsafe fn store_record(at: *mut u32, value: u32) {
    #[cfg(feature = "adversary")]
    if adversary::store_record(at, value, adversary::Order::ProducerRelease) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(at) }.store(value, Ordering::Release);
}

/// Stores a consumer index, as it is to stand in memory, behind the loads of the entries that it
/// gives back.
///
/// *Orders* all loads and stores before it before this store. *Partner*: the device, which may
/// write new entries over those as soon as it sees the index. Free on x86-64; `stlr` on aarch64.
/// rdma-core has a plain store here, and a barrier only where it moved entries (`cq.c`,
/// `__mlx5_cq_clean`).
///
/// # Safety
///
/// As for [`store_record`].
#[inline(always)]
pub unsafe fn release_record(at: *mut u32, value: u32) {
    #[cfg(feature = "adversary")]
    if adversary::store_record(at, value, adversary::Order::ConsumerRelease) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(at) }.store(value, Ordering::Release);
}

/// Loads the byte that says whose an entry is.
///
/// # Safety
///
/// `at` is valid; other accesses to it are atomic, or the device's.
#[inline(always)]
pub unsafe fn load_owner(at: *mut u8) -> u8 {
    #[cfg(feature = "adversary")]
    {
        let mut value = [0];
        if adversary::load(at, &mut value, adversary::Age::Now) {
            return value[0];
        }
    }
    // SAFETY: the caller's promise.
    unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Relaxed)
}

/// Stores the byte that says whose an entry is, in one of the program's.
///
/// # Safety
///
/// As for [`load_owner`].
#[inline(always)]
pub unsafe fn store_owner(at: *mut u8, value: u8) {
    #[cfg(feature = "adversary")]
    if adversary::store(at, &[value]) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { AtomicU8::from_ptr(at) }.store(value, Ordering::Relaxed);
}

/// Loads a field of an entry that is the program's.
///
/// # Safety
///
/// As for [`std::ptr::read_volatile`].
#[inline(always)]
pub unsafe fn read<T: FromBytes>(at: *const T) -> T {
    #[cfg(feature = "adversary")]
    if let Some(value) = adversary::load_field(at) {
        return value;
    }
    // SAFETY: the caller's promise.
    unsafe { at.read_volatile() }
}
