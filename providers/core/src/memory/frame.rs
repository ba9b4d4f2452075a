//! Registered memory that is lent out in frames: a frame is either the program's or the device's,
//! never both.
//!
//! # Safety
//!
//! A slab is one mapping, cut into frames of equal size. Each index is handed out once, so a
//! [`Frame`] that the program holds is the only way to its bytes: the region's keys never leave the
//! crate except through raw posts, which are unsafe, and it is registered without remote rights, so
//! no peer can reach it. Posting moves the frame into the queue; completion or the destruction of
//! the queue pair gives it back. A frame holds no reference into the memory while the device has
//! it, only an index.
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
/// Cheap to clone. The memory is freed, after the kernel let go of it, when the last frame and the
/// last handle are gone.
#[derive(Clone)]
pub struct Slab {
    memory: Arc<Registered>,
}

impl Slab {
    /// Cuts `memory`, registered as `region`, into `count` frames of `frame_len` bytes.
    ///
    /// # Safety
    ///
    /// `memory` is zeroed or otherwise initialised, nothing else reads or writes it, and `region`
    /// covers exactly this memory at its virtual address, with local rights only.
    ///
    /// # Panics
    ///
    /// When the frames have no bytes, are longer than
    /// [`LONGEST_FRAME`](crate::memory::registered::LONGEST_FRAME), don't fit into the memory, or
    /// are more than [`MOST_FRAMES`](crate::memory::registered::MOST_FRAMES): the caller has looked
    /// at all of that.
    #[must_use]
    pub unsafe fn new(memory: Mapping, region: MrCore, frame_len: u32, count: u32) -> Self {
        assert!(frame_len > 0);
        Self { memory: Registered::new(memory, region, frame_len, count) }
    }

    /// Takes a free frame, of full length; `None` when all are in use. Its bytes are those it was
    /// last left with.
    #[must_use]
    pub fn take(&self) -> Option<Frame> {
        let index = self.memory.pop()?;
        Some(Frame::of(Held::new(Arc::clone(&self.memory), index)))
    }

    /// Bytes in a frame.
    #[must_use]
    pub fn frame_len(&self) -> u32 {
        self.memory.frame_len
    }

    /// Frames in all.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.memory.count()
    }

    /// The region's local key, for raw posts.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.memory.lkey
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

/// A piece of registered memory that the program owns: reads and writes as a byte slice.
///
/// Move it into a post, and its completion gives it back. Dropped, it goes back to its [`Slab`].
///
/// A post takes the frame, as long as it is; [a part of it](Self::part); or [the
/// chain](Self::chain) of it and the frames that were [appended](Self::append), as one message.
/// In each case the post takes the whole frame, and the completion gives all of it back.
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

    #[inline(always)]
    pub(crate) fn into_held(self) -> Held {
        // SAFETY: what is lent is never made a frame. Whoever asks need not ask then.
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
        // SAFETY: a frame is a `Held` and nothing more (`repr(transparent)`).
        unsafe { &*std::ptr::from_ref(held).cast() }
    }

    /// Mutable reference to a chained frame.
    #[inline(always)]
    fn of_mut(held: &mut Held) -> &mut Self {
        // SAFETY: as in `of_ref`; what the caller swaps in is a frame, too.
        unsafe { &mut *std::ptr::from_mut(held).cast() }
    }

    /// Bytes it can hold.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.held.memory().frame_len as usize
    }

    /// Sets the length: what is sent, and what the slice shows. Longer than the capacity is cut to
    /// it.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX).min(self.held.memory().frame_len);
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

    /// Chains `other`, with what follows it, to the end of what follows this one.
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

    /// Takes off what follows it.
    pub fn detach(&mut self) -> Option<Self> {
        if self.held.place() & CHAINED == 0 {
            return None;
        }
        self.held.replace_rest(None).map(Self::of)
    }

    /// The frame that follows.
    #[must_use]
    pub fn rest(&self) -> Option<&Self> {
        self.held.rest().map(Self::of_ref)
    }

    /// Mutable reference to the next frame of the chain.
    pub fn rest_mut(&mut self) -> Option<&mut Self> {
        self.held.rest_mut().map(Self::of_mut)
    }

    /// It, and those that follow it.
    pub fn pieces(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |piece| piece.rest())
    }

    /// Bytes of it and those that follow it.
    #[must_use]
    pub fn total_len(&self) -> usize {
        self.pieces().map(|piece| piece.held.bytes() as usize).sum()
    }

    /// Sets the length to what a receive brought; what is over goes to those that follow it, which
    /// have no length yet. For providers.
    #[inline(always)]
    pub fn arrived(&mut self, len: u32) {
        self.held.arrived(len);
    }

    /// SGE of the frame, with its current length. For raw posts.
    #[inline]
    #[must_use]
    pub fn sge(&self) -> Sge {
        self.held.sge()
    }

    /// The number of the protection domain it is registered in, unique in the process.
    #[inline]
    #[must_use]
    pub fn domain(&self) -> u64 {
        self.held.memory().domain
    }
}

impl Held {
    /// The frame, if that is what it is; what is only lent to the device is let go.
    #[inline(always)]
    #[must_use]
    pub fn into_frame(self) -> Option<Frame> {
        // Dropping happens in one call by value.
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
        // SAFETY: the frame lies in the mapping (index < count, checked in `Registered::new`;
        // len <= frame_len), which `held` keeps alive and which is initialised; this frame is the
        // only way to these bytes, and the device doesn't have it, since posting would have moved
        // it away.
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
            .field("rest", &self.rest())
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

        /// A chain shows what its frames show, in the order they were appended; a length is spread
        /// in that order; and taken apart or dropped, each frame comes back once.
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
            prop_assert_eq!(head.pieces().map(|piece| piece.to_vec()).collect::<Vec<_>>(), model.clone());
            prop_assert_eq!(head.total_len(), model.concat().len());
            head.close_rest();
            head.arrived(len as u32);
            let mut left = len;
            for piece in head.pieces() {
                prop_assert_eq!(piece.len(), left.min(16));
                left -= piece.len();
            }
            // Cut somewhere: two chains, of all the frames.
            let mut at = &mut head;
            for _ in 0..cut.min(model.len() - 1) {
                at = at.rest_mut().unwrap();
            }
            let tail = at.detach();
            let counted = head.pieces().count() + tail.as_ref().map_or(0, |tail| tail.pieces().count());
            prop_assert_eq!(counted, model.len());
            drop(head);
            let rest = tail.as_ref().map_or(0, |tail| tail.pieces().count());
            let free: Vec<_> = std::iter::from_fn(|| slab.take()).collect();
            prop_assert_eq!(free.len(), 12 - rest);
            drop((free, tail));
            prop_assert_eq!(std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len(), 12);
        }
    }
}
