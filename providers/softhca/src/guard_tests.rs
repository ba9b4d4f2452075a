use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs_core::memory::pages::Pages;

use super::*;
use crate::uar::{UAR_SIZE, UarPage, UarSet};

/// A set of guarded pages; none where the system refuses.
fn guarded() -> Option<(Arc<Guard>, UarSet)> {
    match Guard::new() {
        Ok(guard) => {
            let guard = Arc::new(guard);
            Some((Arc::clone(&guard), UarSet::guarded(guard)))
        }
        Err(errno) => {
            eprintln!("skipped: userfaultfd is {errno}");
            None
        }
    }
}

/// A thread that copies a BlueFlame block to 0x800: eight stores, numbered from 1.
fn ring(map: &Pages) -> JoinHandle<()> {
    assert_eq!(map.len(), UAR_SIZE);
    let register = map.as_mut_ptr().wrapping_add(0x800).expose_provenance();
    thread::spawn(move || {
        for word in 0..8 {
            let at = std::ptr::with_exposed_provenance_mut::<u64>(register).wrapping_add(word);
            // SAFETY: aligned and inside of the mapping, which each test keeps until it joined this
            // thread.
            unsafe { at.write_volatile((word as u64 + 1).to_be()) };
        }
    })
}

/// Whether a store waits, or comes to wait soon.
fn a_store_waits(guard: &Guard) -> bool {
    let mut fds = [PollFd::new(guard.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(20_000u16)).is_ok_and(|ready| ready == 1)
}

fn rung(set: &mut UarSet) -> Vec<(u32, u64)> {
    let mut all = Vec::new();
    set.scan(|_, offset, value| all.push((offset, value)));
    all
}

fn page(set: &mut UarSet) -> (Arc<UarPage>, Pages) {
    let page = set.alloc(64).unwrap();
    let map = page.map().unwrap();
    (page, map)
}

#[test]
fn a_store_into_a_protected_page_waits_and_is_then_made() {
    let Some((guard, mut set)) = guarded() else { return };
    let (_page, client) = page(&mut set);
    // Again and again, and with nothing in the page at first.
    for _ in 0..3 {
        assert!(set.protect());
        let thread = ring(&client);
        assert!(a_store_waits(&guard));
        assert_eq!(rung(&mut set), []);
        set.release();
        thread.join().unwrap();
        assert_eq!(rung(&mut set), [(0x800, 1)]);
        let contents = &set.contents()[0].1[0x808..0x840];
        let words = contents.chunks(8).map(|word| u64::from_be_bytes(word.try_into().unwrap()));
        assert!(words.eq(2..=8));
        set.clear();
    }
}

#[test]
fn stores_before_the_protection_are_seen_and_later_pages_are_protected_too() {
    let Some((guard, mut set)) = guarded() else { return };
    let (_first, client) = page(&mut set);
    ring(&client).join().unwrap();
    assert!(set.protect());
    assert_eq!(rung(&mut set), [(0x800, 1)]);
    let (_second, other) = page(&mut set);
    // New pages are not, until it is asked for again.
    ring(&other).join().unwrap();
    assert_eq!(rung(&mut set), [(0x800, 1)]);
    assert!(set.protect());
    let threads = [ring(&client), ring(&other)];
    assert!(a_store_waits(&guard));
    thread::sleep(Duration::from_millis(5));
    set.release();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(rung(&mut set), [(0x800, 1), (0x800, 1)]);
}

#[test]
fn a_page_that_goes_lets_stores_pass() {
    let Some((guard, mut set)) = guarded() else { return };
    let (page, client) = page(&mut set);
    assert!(set.protect());
    let thread = ring(&client);
    assert!(a_store_waits(&guard));
    drop(page);
    thread.join().unwrap();
}

#[test]
fn a_mapping_that_is_gone_is_told_and_harms_no_other() {
    let Some((_guard, mut set)) = guarded() else { return };
    let (_first, client) = page(&mut set);
    let (_second, other) = page(&mut set);
    drop(client);
    assert!(!set.protect());
    set.release();
    ring(&other).join().unwrap();
    assert_eq!(rung(&mut set), [(0x800, 1)]);
}

#[test]
fn an_address_used_again_is_the_newcomers() {
    let (Some((_, mut ours)), Some((guard, mut theirs))) = (guarded(), guarded()) else { return };
    let (_page, client) = page(&mut ours);
    assert!(ours.protect());
    let (_other, map) = page(&mut theirs);
    let (at, how) = (client.as_mut_ptr().cast(), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    let from = map.as_mut_ptr().cast();
    // SAFETY: both mappings are this test's and of one page; the first gives up its place.
    let moved = unsafe { libc::mremap(from, UAR_SIZE, UAR_SIZE, how, at) };
    assert_eq!(moved, at);
    std::mem::forget(map);
    // A move ends the registration, as for a program that asked for an address.
    assert!(!theirs.protect());
    let mut newcomer = guard.register(at.addr(), UAR_SIZE).unwrap();
    guard.protect(&mut newcomer).unwrap();
    // The first device wakes up: the page is no longer its own.
    ours.release();
    assert!(!ours.protect());
    let thread = ring(&client);
    assert!(a_store_waits(&guard));
    guard.release(&mut newcomer);
    thread.join().unwrap();
    assert_eq!(rung(&mut theirs), [(0x800, 1)]);
}

#[test]
fn a_mapped_page_is_known_by_its_bytes() {
    let Some((_guard, mut set)) = guarded() else { return };
    let (_page, client) = page(&mut set);
    let start = client.as_mut_ptr().addr() as u64;
    for protected in [false, true] {
        assert_eq!(set.protect() && protected, protected);
        assert!(set.is_mapped_in(start + 4095, 1));
        assert!(set.is_mapped_in(start - 4096, 8192));
        assert!(!set.is_mapped_in(start + 4096, 4096));
        assert!(!set.is_mapped_in(start - 4096, 4096));
    }
    drop(client);
    assert!(!set.is_mapped_in(start, 4096));
}
