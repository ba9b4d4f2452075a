//! Frames: parts of registered memory that belong either to the program or to the device.
//!
//! # Safety
//!
//! A slab is one mapping, cut into frames of equal size. Each index is handed out once, so the
//! [`Frame`] that the program holds is the only access to its bytes. The region has no remote
//! rights, so no peer can reach it, and its keys leave the crate only for raw posts, which are
//! unsafe. Posting moves the frame into the queue; the completion or the destruction of the queue
//! pair returns it. A posted frame is an index, without a reference into the memory.
#![allow(unsafe_code, reason = "frames are slices of a raw mapping")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::memory::mapping::Mapping;
use crate::memory::registered::{CHAINED, Held, Registered};
use crate::objects::mr::MrCore;
use crate::queues::work::Sge;

/// A pool of registered frames of one size: one mapping, one memory region.
///
/// Cloning is cheap. Once the last frame and the last handle are dropped, the region is
/// deregistered and the memory freed.
#[derive(Clone)]
pub struct Slab {
    memory: Arc<Registered>,
}

impl Slab {
    /// Cuts `memory`, registered as `region`, into `count` frames of `frame_len` bytes.
    ///
    /// # Safety
    ///
    /// `memory` is initialised (for example zeroed) and accessed only through this slab. `region`
    /// covers exactly this memory at its virtual address, with local rights only.
    ///
    /// # Panics
    ///
    /// If the frames are empty, longer than
    /// [`LONGEST_FRAME`](crate::memory::registered::LONGEST_FRAME), larger than the memory
    /// together, or more than [`MOST_FRAMES`](crate::memory::registered::MOST_FRAMES). The caller
    /// checked all four.
    #[must_use]
    #[doc(hidden)]
    pub unsafe fn new(memory: Mapping, region: MrCore, frame_len: u32, count: u32) -> Self {
        assert!(frame_len > 0);
        Self { memory: Registered::new(memory, region, frame_len, count) }
    }

    /// Takes a free frame of full length, with the bytes that its last user left; `None` if all are
    /// in use.
    #[must_use]
    pub fn take(&self) -> Option<Frame> {
        let index = self.memory.pop()?;
        Some(Frame::of(Held::new(Arc::clone(&self.memory), index)))
    }

    /// Length of a frame in bytes.
    #[must_use]
    pub fn frame_len(&self) -> u32 {
        self.memory.frame_len()
    }

    /// Number of frames.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.memory.count()
    }

    /// Local key of the region, for raw posts.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.memory.lkey()
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab")
            .field("frame_len", &self.frame_len())
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// A range of registered memory that the program owns, read and written as a byte slice.
///
/// Moving it into a post gives it to the device; the completion returns it. Dropping it returns it
/// to its [`Slab`].
///
/// Three arguments of a post use a frame: the frame, by its length; [a part](Self::part) of it; or
/// [a chain](Self::chain) of it and the frames that were [appended](Self::append), sent as one
/// message. In each case the post takes whole frames, and the completion returns all of them.
#[repr(transparent)]
pub struct Frame {
    held: Held,
}

impl Frame {
    /// Wraps a `Held` that was checked to be a frame.
    #[inline(always)]
    pub(crate) fn of(held: Held) -> Self {
        Self { held }
    }

    /// The memory alone, for a slot of a queue.
    #[inline(always)]
    pub fn into_held(self) -> Held {
        // SAFETY: lent memory never becomes a frame. The hint spares callers a check.
        unsafe { std::hint::assert_unchecked(!self.held.is_lent()) };
        self.held
    }

    #[inline(always)]
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Reference to a chained frame.
    #[inline(always)]
    pub(crate) fn of_ref(held: &Held) -> &Self {
        // SAFETY: a frame is a transparent wrapper of a `Held`.
        unsafe { &*std::ptr::from_ref(held).cast() }
    }

    /// Mutable reference to a chained frame.
    #[inline(always)]
    fn of_mut(held: &mut Held) -> &mut Self {
        // SAFETY: as in `of_ref`; the caller can only swap in another frame.
        unsafe { &mut *std::ptr::from_mut(held).cast() }
    }

    /// Capacity in bytes.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.held.memory().frame_len() as usize
    }

    /// Sets the length of the slice and of sends; more than the capacity is cut to the capacity. A
    /// receive takes the whole capacity, whatever the length.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX).min(self.held.memory().frame_len());
        self.held.set_bytes(len);
    }

    /// Sets the length of each frame in the chain to its capacity.
    pub(crate) fn open_chain(&mut self) {
        let mut next = Some(self);
        while let Some(frame) = next {
            frame.set_len(usize::MAX);
            next = frame.rest_mut();
        }
    }

    /// Sets the length of each frame after the first to 0.
    pub(crate) fn close_rest(&mut self) {
        let mut next = self.rest_mut();
        while let Some(frame) = next {
            frame.set_len(0);
            next = frame.rest_mut();
        }
    }

    /// Appends `other`, with its chain, to the end of this chain.
    pub fn append(&mut self, other: Self) {
        let mut last = self;
        while last.held.place() & CHAINED != 0 {
            match last.held.rest_mut() {
                Some(rest) => last = Self::of_mut(rest),
                None => return,
            }
        }
        last.held.replace_rest(Some(other.into_held()));
    }

    /// Removes and returns the rest of the chain.
    pub fn detach(&mut self) -> Option<Self> {
        if self.held.place() & CHAINED == 0 {
            return None;
        }
        self.held.replace_rest(None).map(Self::of)
    }

    /// The next frame of the chain.
    #[must_use]
    pub fn rest(&self) -> Option<&Self> {
        self.held.rest().map(Self::of_ref)
    }

    /// Mutable reference to the next frame of the chain.
    pub fn rest_mut(&mut self) -> Option<&mut Self> {
        self.held.rest_mut().map(Self::of_mut)
    }

    /// Iterates over the frames of the chain.
    pub fn pieces(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |piece| piece.rest())
    }

    /// Total length of the frames of the chain.
    #[must_use]
    pub fn total_len(&self) -> usize {
        self.pieces().map(|piece| piece.held.bytes() as usize).sum()
    }

    /// Sets the length to the number of received bytes. Bytes beyond the capacity go to the rest of
    /// the chain, whose frames have length 0 so far. For providers.
    #[doc(hidden)]
    #[inline(always)]
    pub fn arrived(&mut self, len: u32) {
        self.held.arrived(len);
    }

    /// SGE of the frame with its current length, for raw posts.
    #[inline]
    #[must_use]
    pub fn sge(&self) -> Sge {
        self.held.sge()
    }

    /// Number of its protection domain, unique in the process.
    #[inline]
    #[must_use]
    pub fn domain(&self) -> u64 {
        self.held.memory().domain
    }
}

impl Held {
    /// Returns the frame, or drops memory that was only lent to the device.
    #[inline(always)]
    #[must_use]
    pub fn into_frame(self) -> Option<Frame> {
        // The drop is one call by value.
        if !self.is_lent() { Some(Frame::of(self)) } else { None }
    }

    /// Converts to a frame without the check.
    ///
    /// # Safety
    ///
    /// It is not [lent](Self::is_lent).
    #[inline(always)]
    pub(crate) unsafe fn into_owned_frame(self) -> Frame {
        debug_assert!(!self.is_lent());
        Frame::of(self)
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame lies in the mapping (index < count, checked in `Registered::new`; len
        // <= frame_len), which `held` keeps alive and which is initialised. This frame is the only
        // access to these bytes. The device does not use them, because a post would have moved the
        // frame.
        unsafe { std::slice::from_raw_parts(self.held.pointer(), self.held.bytes() as usize) }
    }
}

impl DerefMut for Frame {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.held.pointer(), self.held.bytes() as usize) }
    }
}

impl AsRef<[u8]> for Frame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Frame {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("index", &self.held.index())
            .field("len", &self.held.bytes())
            .field("capacity", &self.capacity())
            // Count only: nested text of a long chain would overflow the stack.
            .field("behind", &(self.pieces().count() - 1))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Read;
    use std::sync::atomic::Ordering;

    use proptest::prelude::*;

    use super::Frame;
    use crate::testing;

    #[test]
    fn each_frame_is_handed_out_once_and_comes_back() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 5);
        let mut frames: Vec<_> = std::iter::from_fn(|| slab.take()).collect();
        assert_eq!(frames.len(), 5);
        let addresses: HashSet<_> = frames.iter().map(|frame| frame.sge().addr).collect();
        assert_eq!(addresses.len(), 5);
        for (index, frame) in frames.iter_mut().enumerate() {
            frame.fill(index as u8);
        }
        for (index, frame) in frames.iter().enumerate() {
            assert!(frame.iter().all(|&byte| byte == index as u8));
        }
        drop(frames.pop());
        assert!(slab.take().is_some());
    }

    #[test]
    fn a_length_is_cut_to_the_capacity() {
        let (_, pd) = testing::domain();
        let mut frame = testing::slab(&pd, 64, 1).take().unwrap();
        frame.set_len(65);
        assert_eq!(frame.len(), 64);
        frame.set_len(3);
        assert_eq!((frame.len(), frame.sge().len), (3, 3));
    }

    #[test]
    fn what_takes_bytes_takes_a_frame() {
        let (_, pd) = testing::domain();
        let mut frame = testing::slab(&pd, 64, 1).take().unwrap();
        frame.set_len(3);
        std::io::Cursor::new(frame.as_mut()).get_mut().copy_from_slice(b"abc");
        let mut text = String::new();
        std::io::Cursor::new(&frame).read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
    }

    #[test]
    fn the_region_goes_with_the_last_frame() {
        let (door, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 2);
        let frame = slab.take().unwrap();
        drop(slab);
        assert_eq!(door.ioctls.load(Ordering::Relaxed), 0);
        drop(frame);
        assert_eq!(door.ioctls.load(Ordering::Relaxed), 1, "the region is deregistered");
    }

    #[test]
    fn memory_whose_region_stays_is_never_freed() {
        let (door, pd) = testing::domain();
        let slab = testing::slab(&pd, 4096, 1);
        let mut frame = slab.take().unwrap();
        frame.fill(7);
        let address = frame.as_ptr();
        door.refuse.store(true, Ordering::Relaxed);
        drop((frame, slab));
        // SAFETY: the mapping is leaked, not freed.
        assert_eq!(unsafe { address.read_volatile() }, 7);
        drop(pd);
    }

    #[test]
    fn threads_may_take_and_drop_at_once() {
        let (_, pd) = testing::domain();
        let slab = testing::slab(&pd, 64, 8);
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for thread in 1..=3u8 {
                let slab = &slab;
                scope.spawn(move || {
                    for _ in 0..rounds {
                        let mut frames = [slab.take(), slab.take()];
                        for frame in frames.iter_mut().flatten() {
                            frame.fill(thread);
                        }
                        for frame in frames.iter().flatten() {
                            assert!(frame.iter().all(|&byte| byte == thread));
                        }
                    }
                });
            }
        });
        assert_eq!(std::iter::from_fn(|| slab.take().map(std::mem::forget)).count(), 8);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 64 }))]

        /// A chain holds its frames in the order of their appends, and a length is spread in that
        /// order. Detached or dropped, each frame comes back once.
        #[test]
        fn chains_are_their_frames_in_order(
            lens in proptest::collection::vec(0usize..20, 1..12),
            len in 0usize..200,
            cut in 0usize..12,
        ) {
            let (_, pd) = testing::domain();
            let slab = testing::slab(&pd, 16, 12);
            let mut model: Vec<Vec<u8>> = Vec::new();
            let mut head: Option<Frame> = None;
            for (at, set) in lens.iter().enumerate() {
                let mut frame = slab.take().unwrap();
                for (place, byte) in frame.iter_mut().enumerate() {
                    *byte = (at * 16 + place) as u8;
                }
                frame.set_len(*set);
                model.push(frame.to_vec());
                match &mut head {
                    Some(head) => head.append(frame),
                    None => head = Some(frame),
                }
            }
            let mut head = head.unwrap();
            let all: Vec<_> = head.pieces().map(|piece| piece.to_vec()).collect();
            prop_assert_eq!(all, model.clone());
            prop_assert_eq!(head.total_len(), model.concat().len());
            head.close_rest();
            head.arrived(len as u32);
            let mut left = len;
            for piece in head.pieces() {
                prop_assert_eq!(piece.len(), left.min(16));
                left -= piece.len();
            }
            // Cut at an arbitrary frame into two chains.
            let mut at = &mut head;
            for _ in 0..cut.min(model.len() - 1) {
                at = at.rest_mut().unwrap();
            }
            let tail = at.detach();
            let rest = tail.as_ref().map_or(0, |tail| tail.pieces().count());
            prop_assert_eq!(head.pieces().count() + rest, model.len());
            drop(head);
            let free: Vec<_> = std::iter::from_fn(|| slab.take()).collect();
            prop_assert_eq!(free.len(), 12 - rest);
            drop((free, tail));
            prop_assert_eq!(std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len(), 12);
        }
    }
}
