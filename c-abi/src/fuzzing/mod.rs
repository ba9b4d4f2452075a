//! Fuzz target (`fuzz/`, docs/TESTING.md): sequences of a C program's calls with arbitrary numbers
//! in their structs. Pointers keep C's contract: null where that is allowed, or valid.
//!
//! - `world`: an open device, what was made there, and its end;
//! - `make`: calls that make objects; `change`: those that change and ask;
//! - `work`: work requests and completions.
//!
//! # Safety
//!
//! C's contract is kept: objects belong to this run and are not destroyed yet, and arrays have
//! their stated length.
#![allow(unsafe_code, reason = "calls functions of C")]

mod change;
#[path = "../../../fuzz/feed.rs"]
mod feed;
mod make;
mod work;
mod world;

use std::ffi::c_int;

use feed::Feed;
use world::World;

/// Runs calls on a device of this thread. Each call returns an object or an error, posts stay
/// within their rings, and after the destruction of all objects the device holds none.
pub fn c_calls(data: &[u8]) {
    let mut feed = Feed::new(data);
    let mut world = World::open();
    while !feed.is_empty() {
        match feed.below(3) {
            0 => make::any(&mut world, &mut feed),
            1 => change::any(&mut world, &mut feed),
            _ => work::any(&mut world, &mut feed),
        }
    }
    world.close();
}

/// Checks a result that is 0 or an error number.
fn checked(call: &str, answer: c_int) -> bool {
    assert!((0..4096).contains(&answer), "{call}: {answer}");
    answer == 0
}

/// Returns mostly the usual number, else a small or an arbitrary one.
fn odd(feed: &mut Feed<'_>, usual: u32) -> u32 {
    match feed.u8() {
        0..176 => usual,
        176..224 => feed.u8().into(),
        224..240 => 1 << (feed.u8() % 32),
        _ => feed.u32(),
    }
}

/// Changes bytes of a struct that consists of numbers.
fn edit<T: Copy>(feed: &mut Feed<'_>, numbers: &mut T) {
    for _ in 0..feed.below(4) {
        let at = usize::from(feed.u8()) % size_of::<T>();
        let to = (&raw mut *numbers).cast::<u8>().wrapping_add(at);
        // SAFETY: a byte of the struct, all of whose values are numbers.
        unsafe { to.write(feed.u8()) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        support::replay("c_calls", super::c_calls);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_calls(data in prop::collection::vec(any::<u8>(), 0..1500)) {
            super::c_calls(&data);
        }
    }
}
