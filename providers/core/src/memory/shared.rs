//! Shared frames: frames that several posts may read at the same time.
//!
//! # Safety
//!
//! Handles are counted in the frame's cell. While a handle lives, frame and cell are never written:
//! a handle gives `&[u8]`, and is posted only where the device reads. A handle that is the only one
//! may become the frame again.
#![allow(unsafe_code, reason = "several handles read the same raw memory")]

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use crate::memory::frame::Frame;
use crate::memory::registered::{Held, LENT};

/// A read-only frame with its chain. Each clone can be posted, also on several queue pairs at once.
///
/// A post takes a handle, and its completion drops it. The frame is free once all handles are
/// dropped.
pub struct SharedFrame {
    held: Held,
}

impl Frame {
    /// Makes the frame and its chain read-only, for any number of posts, until all handles are
    /// dropped.
    #[must_use]
    pub fn share(self) -> SharedFrame {
        SharedFrame::new(self)
    }
}

impl SharedFrame {
    pub(crate) fn new(frame: Frame) -> Self {
        let mut held = frame.into_held();
        if let Some(handles) = held.handles() {
            // The frame is not in the free list, so the word belongs to it.
            handles.store(1, Ordering::Relaxed);
            held.mark(LENT, true);
        }
        Self { held }
    }

    /// Returns the writable frame, if this is the only handle.
    ///
    /// # Errors
    ///
    /// The handle, if there are others: clones, or posts that are not complete.
    pub fn try_into_frame(mut self) -> Result<Frame, Self> {
        // Acquire: pairs with the Release in the drop of other handles, so their reads are over.
        if self.held.handles().is_some_and(|handles| handles.load(Ordering::Acquire) == 1) {
            self.held.mark(LENT, false);
            Ok(Frame::of(self.held))
        } else {
            Err(self)
        }
    }

    /// The next frame of the chain.
    #[must_use]
    pub fn rest(&self) -> Option<&Frame> {
        self.held.rest().map(Frame::of_ref)
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    #[inline(always)]
    pub(crate) fn into_held(self) -> Held {
        self.held
    }
}

impl Clone for SharedFrame {
    fn clone(&self) -> Self {
        if let Some(handles) = self.held.handles() {
            // Relaxed: the cloned handle keeps the count above 0.
            if handles.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
                // Handles were leaked. An overflow of the count would free memory in use. `Arc`
                // aborts as well.
                std::process::abort();
            }
        }
        Self { held: self.held.again() }
    }
}

impl Deref for SharedFrame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: neither program nor device writes these bytes while a handle lives.
        unsafe { std::slice::from_raw_parts(self.held.pointer(), self.held.bytes() as usize) }
    }
}

impl fmt::Debug for SharedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFrame")
            .field("index", &self.held.index())
            .field("len", &self.held.bytes())
            .field("handles", &self.held.handles().map(|handles| handles.load(Ordering::Relaxed)))
            // Count only, as in a frame's text.
            .field("behind", &std::iter::successors(self.rest(), |piece| piece.rest()).count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing;

    #[test]
    fn the_last_handle_is_the_frame_again() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 1);
        let mut frame = slab.take().unwrap();
        frame.fill(7);
        frame.set_len(4);
        let one = frame.share();
        let two = one.clone();
        assert_eq!((&*one, &*two), (&[7; 4][..], &[7; 4][..]));
        let one = one.try_into_frame().unwrap_err();
        drop(two);
        let mut frame = one.try_into_frame().unwrap();
        frame.set_len(64);
        frame.fill(8);
        assert!(slab.take().is_none());
        drop(frame);
        assert!(slab.take().is_some());
    }

    #[test]
    fn a_chain_is_shared_as_one() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 3);
        let mut frame = slab.take().unwrap();
        frame.append(slab.take().unwrap());
        frame.append(slab.take().unwrap());
        let shared = frame.share();
        let other = shared.clone();
        assert_eq!(other.rest().map(Frame::total_len), Some(128));
        drop(shared);
        assert!(slab.take().is_none());
        drop(other);
        assert_eq!(std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len(), 3);
    }

    #[test]
    fn threads_may_clone_and_drop_at_once() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 1);
        let rounds = if cfg!(miri) { 20 } else { 200 };
        for round in 0..rounds {
            let mut frame = slab.take().unwrap();
            frame.fill(round as u8);
            let shared = frame.share();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    let mine = shared.clone();
                    scope.spawn(move || {
                        let again = mine.clone();
                        drop(mine);
                        assert_eq!(*again, [round as u8; 64]);
                    });
                }
                drop(shared);
            });
        }
        assert!(slab.take().is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 64 }))]

        /// Handles may be cloned and dropped in any order: the frame is free exactly when the last
        /// handle is dropped.
        #[test]
        fn a_frame_is_free_when_all_handles_are_gone(
            steps in proptest::collection::vec(any::<u8>(), 1..60),
        ) {
            let (_, pd) = testing::domain();
            let slab = testing::slab(&pd, 8, 1);
            let mut handles = vec![slab.take().unwrap().share()];
            for step in steps {
                let Some(at) = (step as usize).checked_rem(handles.len()) else { break };
                if step % 2 == 0 {
                    let again = handles[at].clone();
                    handles.push(again);
                } else {
                    let handle = handles.swap_remove(at);
                    match handle.try_into_frame() {
                        Ok(frame) => {
                            prop_assert!(handles.is_empty());
                            drop(frame);
                        }
                        Err(handle) => {
                            prop_assert!(!handles.is_empty());
                            drop(handle);
                        }
                    }
                }
                prop_assert_eq!(slab.take().is_some(), handles.is_empty());
            }
        }
    }
}
