//! Loads and stores of host memory that a device also accesses. Stores to doorbell pages are in
//! [`crate::order::mmio`].
//!
//! Each function is a single access and costs no more. All such accesses go through here, so that
//! the feature `adversary`, which only tests enable, can control them: `crate::order::adversary`
//! then decides when a store becomes visible and how old a loaded value may be, as far as
//! [`crate::order::fence`] allows.
//!
//! # Safety
//!
//! The caller vouches for addresses; each function states its contract.
#![allow(unsafe_code, reason = "memory of a device is reached by raw address")]

#[cfg(all(target_arch = "x86_64", not(feature = "adversary")))]
use std::arch::x86_64::{__m128i, _mm_set_epi64x};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes};

#[cfg(feature = "adversary")]
use crate::order::adversary;

/// Stores part of a WQE. The device does not read it before it is published.
///
/// # Safety
///
/// As for [`std::ptr::write`]; no other thread accesses the memory during the call.
#[inline(always)]
pub unsafe fn write<T: IntoBytes + Immutable>(to: *mut T, value: T) {
    #[cfg(feature = "adversary")]
    if adversary::store(to.cast(), value.as_bytes()) {
        return;
    }
    // SAFETY: contract of `write`.
    unsafe { to.write(value) };
}

/// As [`write()`], by a single store on x86-64. A load of both words soon afterwards then does not
/// stall, as it would after two stores.
///
/// # Safety
///
/// As for [`write()`].
#[inline(always)]
pub unsafe fn write_whole(to: *mut [u64; 2], words: [u64; 2]) {
    #[cfg(not(all(target_arch = "x86_64", not(feature = "adversary"))))]
    // SAFETY: contract of `write_whole`.
    unsafe {
        write(to, words);
    }
    #[cfg(all(target_arch = "x86_64", not(feature = "adversary")))]
    {
        let [low, high] = words.map(u64::cast_signed);
        // SAFETY: every x86-64 processor has SSE2.
        let both = unsafe { _mm_set_epi64x(high, low) };
        // SAFETY: contract of this function; an unaligned store needs no alignment.
        unsafe { to.cast::<__m128i>().write_unaligned(both) };
    }
}

/// Copies into a WQE, or from one CQE owned by software to another.
///
/// # Safety
///
/// As for [`std::ptr::copy_nonoverlapping`]; no other thread writes the bytes at `from` or accesses
/// the bytes at `to` during the call.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(feature = "adversary")]
    // SAFETY: contract of `copy`.
    if unsafe { adversary::copy(from, to, len) } {
        return;
    }
    // SAFETY: contract of `copy`.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Stores a producer index, given in memory byte order, in a doorbell record, after the loads of
/// the buffers that it hands over.
///
/// *Orders* all earlier loads before this store; [`crate::order::fence::wqe_before_record`] orders
/// stores. *Partner*: the device, which may write the buffer of a receive, a READ or an atomic as
/// soon as it sees the index. The program's loads of the previous message in that buffer must be
/// complete by then. Free on x86-64; `stlr` on aarch64, where `dmb oshst` orders only stores.
/// rdma-core has a plain store here (`qp.c`, `mlx5_post_recv`, `post_send_db`).
///
/// # Safety
///
/// `at` is aligned and valid; all other accesses to it are atomic or by the device.
#[inline(always)]
pub unsafe fn store_record(at: *mut u32, value: u32) {
    #[cfg(feature = "adversary")]
    if adversary::store_record(at, value, adversary::Order::ProducerRelease) {
        return;
    }
    // SAFETY: contract of `store_record`.
    unsafe { AtomicU32::from_ptr(at) }.store(value, Ordering::Release);
}

/// Stores a consumer index, given in memory byte order, after the loads of the CQEs that it
/// returns.
///
/// *Orders* all earlier loads and stores before this store. *Partner*: the device, which may
/// overwrite those CQEs as soon as it sees the index. Free on x86-64; `stlr` on aarch64. rdma-core
/// has a plain store here, and a barrier only if it moved CQEs (`cq.c`, `__mlx5_cq_clean`).
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
    // SAFETY: contract of `release_record`.
    unsafe { AtomicU32::from_ptr(at) }.store(value, Ordering::Release);
}

/// Loads the ownership byte of a CQE.
///
/// # Safety
///
/// `at` is valid; all other accesses to it are atomic or by the device.
#[inline(always)]
pub unsafe fn load_owner(at: *mut u8) -> u8 {
    #[cfg(feature = "adversary")]
    {
        let mut value = [0];
        if adversary::load(at, &mut value, adversary::Age::Now) {
            return value[0];
        }
    }
    // SAFETY: contract of `load_owner`.
    unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Relaxed)
}

/// Stores the ownership byte of a CQE that software owns.
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
    // SAFETY: contract of `store_owner`.
    unsafe { AtomicU8::from_ptr(at) }.store(value, Ordering::Relaxed);
}

/// Loads a word of a WQE that this thread stored. Program order gives the stored value, and a
/// doorbell that is computed from it waits for it.
///
/// # Safety
///
/// As for [`std::ptr::read_volatile`]; no other thread stores to the memory.
#[inline(always)]
pub unsafe fn read_own(at: *const u64) -> u64 {
    #[cfg(not(feature = "adversary"))]
    // SAFETY: contract of `read_own`.
    let word = unsafe { at.read_volatile() };
    #[cfg(feature = "adversary")]
    // SAFETY: contract of `read_own`.
    let word = unsafe { adversary::own_word(at) };
    word
}

/// Loads a field of a CQE that software owns.
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
    // SAFETY: contract of `read`.
    unsafe { at.read_volatile() }
}
