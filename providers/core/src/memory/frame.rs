//! Registered memory that is lent out in frames: a frame is either the program's or the device's, never both.
//!
//! # Safety
//!
//! A slab is one mapping, cut into frames of equal size. Each index is handed out once, so a [`Frame`] that the
//! program holds is the only way to its bytes: the region's keys never leave the crate except through raw posts, which
//! are unsafe, and it is registered without remote rights, so no peer can reach it. Posting moves the frame into
//! the queue; completion or the destruction of the queue pair gives it back. A frame holds no reference into the
//! memory while the device has it, only an index.
#![allow(unsafe_code, reason = "frames are slices of a raw mapping, and move between threads")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::memory::mapping::Mapping;
use crate::objects::mr::MrCore;
use crate::queues::work::Sge;

/// Marks the end of the free list.
const NONE: u32 = u32::MAX;

/// A pool of registered frames of one size: one mapping, one memory region.
///
/// Cheap to clone. The memory is freed, after the kernel let go of it, when the last frame and the last handle are gone.
#[derive(Clone)]
pub struct Slab {
    inner: Arc<Inner>,
}

#[repr(C)]
struct Inner {
    // What a post asks of each frame, side by side.
    base: *mut u8,
    frame_len: u32,
    lkey: u32,
    domain: u64,
    // Both are taken in Drop: the region first, then, if the kernel agreed, the memory.
    region: ManuallyDrop<MrCore>,
    memory: ManuallyDrop<Mapping>,
    count: u32,
    /// Head of the free list: index in the low half, a counter against ABA in the high half.
    head: AtomicU64,
    /// Successor of each free frame.
    next: Box<[AtomicU32]>,
}

impl Slab {
    /// Cuts `memory`, registered as `region`, into `count` frames of `frame_len` bytes.
    ///
    /// # Safety
    ///
    /// `memory` is zeroed or otherwise initialised, nothing else reads or writes it, and `region` covers exactly this
    /// memory at its virtual address, with local rights only.
    ///
    /// # Panics
    ///
    /// When the frames don't fit into the memory: the caller has computed both.
    #[must_use]
    pub unsafe fn new(memory: Mapping, region: MrCore, frame_len: u32, count: u32) -> Self {
        assert!(count < NONE && u64::from(frame_len) * u64::from(count) <= memory.len() as u64);
        let next = (1..=count)
            .map(|next| AtomicU32::new(if next == count { NONE } else { next }))
            .collect();
        let head = AtomicU64::new(u64::from(if count == 0 { NONE } else { 0 }));
        Self {
            inner: Arc::new(Inner {
                base: memory.ptr(),
                frame_len,
                lkey: region.lkey(),
                domain: region.domain(),
                region: ManuallyDrop::new(region),
                memory: ManuallyDrop::new(memory),
                count,
                head,
                next,
            }),
        }
    }

    /// Takes a free frame, of full length; `None` when all are in use. Its bytes are those it was last left with.
    #[must_use]
    pub fn take(&self) -> Option<Frame> {
        let index = self.inner.pop()?;
        let place = u64::from(index) << 32 | u64::from(self.inner.frame_len);
        Some(Frame { inner: ManuallyDrop::new(Arc::clone(&self.inner)), place })
    }

    /// Bytes in a frame.
    #[must_use]
    pub fn frame_len(&self) -> u32 {
        self.inner.frame_len
    }

    /// Frames in all.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.inner.count
    }

    /// The region's local key, for raw posts.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.inner.lkey
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab")
            .field("frame_len", &self.inner.frame_len)
            .field("count", &self.inner.count)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn pop(&self) -> Option<u32> {
        // Acquire: pairs with the Release in `push`, so that the last owner's stores into the frame are seen.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = head as u32;
            if index == NONE {
                return None;
            }
            let next = self.next[index as usize].load(Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self.head.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    fn push(&self, index: u32) {
        // There is always one: the index is a frame's. A check that panics has no place in what drops frames.
        let Some(next) = self.next.get(index as usize) else { return };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            next.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(index);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: Drop runs once, and nothing uses the field after it.
        let region = unsafe { ManuallyDrop::take(&mut self.region) };
        // SAFETY: as above.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        region.retire(memory);
    }
}

/// A piece of registered memory that the program owns: reads and writes as a byte slice.
///
/// Move it into a post, and its completion gives it back. Dropped, it goes back to its [`Slab`].
pub struct Frame {
    // Taken in Drop.
    inner: ManuallyDrop<Arc<Inner>>,
    /// Index in the high half, length in the low half. One word: a frame then moves as two of eight bytes. As two halves it is
    /// stored in two pieces and loaded in one, which waits until the stores have left the processor.
    place: u64,
}

impl Frame {
    /// Bytes it can hold.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.frame_len as usize
    }

    /// Sets the length: what is sent, and what the slice shows. Longer than the capacity is cut to it.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX).min(self.inner.frame_len);
        self.place = u64::from(self.index()) << 32 | u64::from(len);
    }

    /// Where it is in memory and under which key, with the present length. For raw posts.
    #[inline]
    #[must_use]
    pub fn sge(&self) -> Sge {
        Sge { addr: self.addr(), len: self.bytes(), lkey: self.inner.lkey }
    }

    /// The number of the protection domain it is registered in, unique in the process.
    #[inline]
    #[must_use]
    pub fn domain(&self) -> u64 {
        self.inner.domain
    }

    /// Which frame of its slab it is.
    #[inline(always)]
    fn index(&self) -> u32 {
        (self.place >> 32) as u32
    }

    /// Its length.
    #[inline(always)]
    fn bytes(&self) -> u32 {
        self.place as u32
    }

    #[inline]
    fn addr(&self) -> u64 {
        self.pointer().expose_provenance() as u64
    }

    #[inline]
    fn pointer(&self) -> *mut u8 {
        let offset = self.index() as usize * self.inner.frame_len as usize;
        self.inner.base.wrapping_add(offset)
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame lies in the mapping (index < count, checked in `Slab::new`; len <= frame_len), which
        // `inner` keeps alive and which is initialised; this frame is the only way to these bytes, and the device
        // doesn't have it, since posting would have moved it away.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.bytes() as usize) }
    }
}

impl DerefMut for Frame {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.bytes() as usize) }
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

impl Drop for Frame {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: Drop runs once, and nothing uses the field after it.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        // SAFETY: the pointer is a reference that is counted, and that nothing else has now.
        unsafe { give_back(Arc::into_raw(inner), self.index()) };
    }
}

/// Puts a frame back into its slab. One call by value, out of line: a drop so small is inlined into a program's clean-up code,
/// too. One that isn't takes the address of whatever holds the frame, and a completion would have to live in memory.
///
/// `extern "C"`: it doesn't unwind, so those who drop frames need no clean-up code for that case.
///
/// # Safety
///
/// `slab` is of [`Arc::into_raw`], and the caller gives up that reference.
#[inline(never)]
unsafe extern "C" fn give_back(slab: *const Inner, index: u32) {
    // SAFETY: the caller's promise.
    let slab = unsafe { Arc::from_raw(slab) };
    slab.push(index);
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("index", &self.index())
            .field("len", &self.bytes())
            .field("capacity", &self.inner.frame_len)
            .finish_non_exhaustive()
    }
}

// SAFETY: the raw mapping inside is plain memory of the process; the free list is atomic.
unsafe impl Send for Inner {}
// SAFETY: as above; bytes are reached only through the one `Frame` of each index.
unsafe impl Sync for Inner {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Read;
    use std::sync::atomic::Ordering;

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
}
