use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs_core::memory::pages::{Pages, page_size};

use super::*;
use crate::uar::{UarPage, UarSet};
use crate::watch::Watch;
use support::skip;

/// Creates a set of guarded pages; `None` if the system refuses.
fn guarded() -> Option<(Arc<Watch>, UarSet)> {
    match Watch::new() {
        Ok(guard) => {
            let guard = Arc::new(guard);
            Some((Arc::clone(&guard), UarSet::watched(guard)))
        }
        Err(errno) => {
            skip(&format!("userfaultfd is {errno}"));
            None
        }
    }
}

/// Starts a thread that writes a BlueFlame block to 0x800: eight stores, numbered from 1.
fn ring(map: &Pages) -> JoinHandle<()> {
    assert_eq!(map.len(), page_size());
    let register = map.as_mut_ptr().wrapping_add(0x800).expose_provenance();
    thread::spawn(move || {
        for word in 0..8 {
            let at = std::ptr::with_exposed_provenance_mut::<u64>(register).wrapping_add(word);
            // SAFETY: aligned and inside the mapping, which each test keeps until it has joined the
            // thread.
            unsafe { at.write_volatile((word as u64 + 1).to_be()) };
        }
    })
}

/// Returns `true` if a store waits, or begins to wait soon.
fn a_store_waits(guard: &Watch) -> bool {
    let mut fds = [PollFd::new(guard.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(20_000u16)).is_ok_and(|ready| ready == 1)
}

fn rung(set: &mut UarSet) -> Vec<(u32, u64)> {
    let mut all = Vec::new();
    set.scan(|_, offset, value| all.push((offset, value)));
    all
}

fn page(set: &mut UarSet) -> (Arc<UarPage>, Pages) {
    let page = set.alloc(0x10, 1 << 10).unwrap();
    let map = page.map().unwrap();
    (page, map)
}

#[test]
fn a_store_into_a_protected_page_waits_and_is_then_made() {
    let Some((guard, mut set)) = guarded() else { return };
    let (_page, client) = page(&mut set);
    // Several times, with an empty page at first.
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
    // A new page is protected at once.
    let thread = ring(&other);
    assert!(a_store_waits(&guard));
    set.release();
    thread.join().unwrap();
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
fn after_the_end_no_store_waits() {
    let Some((guard, mut set)) = guarded() else { return };
    let (_page, client) = page(&mut set);
    assert!(set.protect());
    let thread = ring(&client);
    assert!(a_store_waits(&guard));
    guard.end();
    thread.join().unwrap();
    assert!(!set.protect());
    let (_second, other) = page(&mut set);
    ring(&client).join().unwrap();
    ring(&other).join().unwrap();
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
fn a_mapping_that_is_gone_is_forgotten_and_harms_no_other() {
    let Some((guard, mut set)) = guarded() else { return };
    let (_first, client) = page(&mut set);
    let (_second, other) = page(&mut set);
    drop(client);
    // The unmapped page needs no guard: `protect` succeeds without it.
    assert!(set.protect());
    let thread = ring(&other);
    assert!(a_store_waits(&guard));
    set.release();
    thread.join().unwrap();
    assert_eq!(rung(&mut set), [(0x800, 1)]);
}

/// Moves a mapping to the address of another, which it replaces.
fn move_to(from: Pages, to: &Pages) {
    let (at, how) = (to.as_mut_ptr().cast(), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    let old = from.as_mut_ptr().cast();
    // SAFETY: both mappings belong to this test and are of one page; the second is replaced.
    let moved = unsafe { libc::mremap(old, page_size(), page_size(), how, at) };
    assert_eq!(moved, at);
    std::mem::forget(from);
}

#[test]
fn a_mapping_that_was_moved_is_found_again() {
    let Some((guard, mut set)) = guarded() else { return };
    let (_page, client) = page(&mut set);
    let place = Pages::anonymous(page_size()).unwrap();
    move_to(client, &place);
    for _ in 0..2 {
        assert!(set.protect());
        let thread = ring(&place);
        assert!(a_store_waits(&guard));
        set.release();
        thread.join().unwrap();
        assert_eq!(rung(&mut set), [(0x800, 1)]);
    }
}

#[test]
fn an_address_used_again_is_the_newcomers() {
    let (Some((_, mut ours)), Some((guard, mut theirs))) = (guarded(), guarded()) else { return };
    let (_page, client) = page(&mut ours);
    assert!(ours.protect());
    let (_other, map) = page(&mut theirs);
    move_to(map, &client);
    assert!(theirs.protect());
    // The first device wakes up: the page does not belong to it any more.
    ours.release();
    assert!(ours.protect());
    let thread = ring(&client);
    assert!(a_store_waits(&guard));
    ours.release();
    assert!(a_store_waits(&guard));
    theirs.release();
    thread.join().unwrap();
    assert_eq!(rung(&mut theirs), [(0x800, 1)]);
}

/// A child forgets its parent's pages, and works with its own.
#[test]
fn a_child_has_pages_of_its_own() {
    let Some((_guard, mut set)) = guarded() else { return };
    let (_page, client) = page(&mut set);
    assert!(set.protect());
    let held = CLAIMS.lock();
    // SAFETY: the child allocates, which glibc allows, and takes no lock of another thread.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            // SAFETY: takes a number; kills a child that hangs.
            unsafe { libc::alarm(20) };
            let works = Watch::new().is_ok_and(|guard| {
                let mut own = UarSet::watched(Arc::new(guard));
                let page =
                    own.alloc(0x10, 1 << 10).and_then(|page| page.map().map(|map| (page, map)));
                let guarded = page.is_ok() && own.protect();
                // The parent's set is a copy here; dropping it is harmless.
                drop(set);
                let still = own.protect();
                own.release();
                guarded && still
            });
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!works)) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            let ended = nix::sys::wait::waitpid(child, None).unwrap();
            assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(child, 0));
        }
    }
    drop(held);
    set.release();
    ring(&client).join().unwrap();
    assert_eq!(rung(&mut set), [(0x800, 1)]);
}

#[test]
fn a_mapped_page_is_known_by_its_bytes() {
    let Some((_guard, mut set)) = guarded() else { return };
    let (_page, client) = page(&mut set);
    // Another device finds it, too.
    let (start, page) = (client.as_mut_ptr().addr() as u64, page_size() as u64);
    for protected in [false, true] {
        assert_eq!(set.protect() && protected, protected);
        assert!(has_doorbells(start + page - 1, 1));
        assert!(has_doorbells(start - page, 2 * page));
    }
    set.release();
    // Ordinary memory at the address of an unmapped page.
    let own = Pages::anonymous(page_size()).unwrap();
    move_to(own, &client);
    assert!(!has_doorbells(start, page));
}
