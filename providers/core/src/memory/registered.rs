//! Registered memory, kept while it has users: frames, exposed memory, and what work requests hold.
//!
//! # Safety
//!
//! Each frame of a slab has a cell. Its first word is atomic: the link of the free list, or a count
//! of handles. The rest belongs to the owner of the frame, like the frame's bytes; it is read-only
//! while the frame is shared.
#![allow(unsafe_code, reason = "memory and its cells change hands with frames")]

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use crate::memory::mapping::Mapping;
use crate::objects::mr::MrCore;
use crate::objects::mw::MwCore;
use crate::queues::work::Sge;

/// End of the free list.
const NONE: u32 = u32::MAX;

/// Maximum bytes of a frame. Shorter than the maximum message, so that a post need not check the
/// length.
pub const LONGEST_FRAME: u32 = (1 << 31) - 1;

/// Maximum frames of a slab, limited by the bits of the index.
pub const MOST_FRAMES: u32 = 1 << 28;

// A place is one word, so that a `Held` moves as two words of eight bytes. Two halves would be
// stored separately and loaded as one word, which stalls until the stores left the processor. The
// low half is a length.
/// Bit offset of the frame's index in a place.
const INDEX: u32 = 32;
/// Another frame follows; the cell holds it.
pub(crate) const CHAINED: u64 = 1 << 61;
/// Exposed memory instead of a frame. Always together with [`LENT`].
const EXPOSED: u64 = 1 << 62;
/// Shared or exposed memory, which is never handed out as a frame. The highest bit, because its
/// test is cheapest.
pub(crate) const LENT: u64 = 1 << 63;
/// Any mark: not a plain frame.
pub(crate) const SPECIAL: u64 = CHAINED | EXPOSED | LENT;

/// A mapping with its region and frames (exposed memory has no frames), or a window.
#[repr(C)]
pub(crate) struct Registered {
    // Fields that a post reads for each frame, kept adjacent.
    pub(crate) base: *mut u8,
    /// Length of a frame, above the local key: the first word of a receive's SGE, in one load.
    room: u64,
    pub(crate) domain: u64,
    pub(crate) rkey: u32,
    /// Taken in Drop.
    kept: ManuallyDrop<Kept>,
    /// Head of the free list: index in the low half, a counter against ABA in the high half.
    head: AtomicU64,
    cells: Box<[Cell]>,
}

/// Resources freed at the end: the kernel object first, then, if the kernel agreed, the memory.
enum Kept {
    Memory(MrCore, Mapping),
    /// The program's own bytes.
    Bytes(MrCore, Arc<[u8]>),
    /// A window or an indirect key, and all memory that it was bound to.
    Window(MwCore, Mutex<Vec<Arc<Registered>>>),
}

/// [`Registered::room`].
fn room(frame_len: u32, lkey: u32) -> u64 {
    u64::from(frame_len) << 32 | u64::from(lkey)
}

/// Bookkeeping of a frame.
struct Cell {
    /// Free frame: link of the free list. Shared frame: number of handles.
    next: AtomicU32,
    /// The next frame of the chain, with [`CHAINED`]; else `None`. Never lent.
    link: UnsafeCell<Option<Held>>,
}

impl Registered {
    /// Cuts `memory`, registered as `region`, into `count` frames of `frame_len` bytes.
    ///
    /// # Panics
    ///
    /// If the frames don't fit into the memory; the caller computed both.
    pub(crate) fn new(memory: Mapping, region: MrCore, frame_len: u32, count: u32) -> Arc<Self> {
        assert!(count <= MOST_FRAMES && frame_len <= LONGEST_FRAME);
        assert!(u64::from(frame_len) * u64::from(count) <= memory.len() as u64);
        let cell = |next| Cell {
            next: AtomicU32::new(if next == count { NONE } else { next }),
            link: UnsafeCell::new(None),
        };
        Arc::new(Self {
            base: memory.ptr(),
            room: room(frame_len, region.lkey()),
            domain: region.domain(),
            rkey: region.rkey(),
            kept: ManuallyDrop::new(Kept::Memory(region, memory)),
            head: AtomicU64::new(u64::from(if count == 0 { NONE } else { 0 })),
            cells: (1..=count).map(cell).collect(),
        })
    }

    /// Wraps `bytes`, registered as `region` for the device to read, without frames.
    pub(crate) fn bytes(bytes: Arc<[u8]>, region: MrCore) -> Arc<Self> {
        Arc::new(Self {
            base: bytes.as_ptr().cast_mut(),
            room: room(0, region.lkey()),
            domain: region.domain(),
            rkey: region.rkey(),
            kept: ManuallyDrop::new(Kept::Bytes(region, bytes)),
            head: AtomicU64::new(u64::from(NONE)),
            cells: Box::default(),
        })
    }

    /// Wraps a memory window, without memory. Posts that name the window hold a reference.
    pub(crate) fn window(core: MwCore) -> Arc<Self> {
        Arc::new(Self {
            base: std::ptr::null_mut(),
            room: 0,
            domain: core.domain(),
            rkey: core.rkey(),
            kept: ManuallyDrop::new(Kept::Window(core, Mutex::default())),
            head: AtomicU64::new(u64::from(NONE)),
            cells: Box::default(),
        })
    }

    /// Keeps `memory` until this window is dropped.
    pub(crate) fn keep(&self, memory: &Arc<Self>) {
        if let Kept::Window(_, all) = &*self.kept {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            if !all.iter().any(|other| Arc::ptr_eq(other, memory)) {
                all.push(Arc::clone(memory));
            }
        }
    }

    /// The kernel's handle of the region, or of the window.
    pub(crate) fn handle(&self) -> u32 {
        match &*self.kept {
            Kept::Memory(region, _) | Kept::Bytes(region, _) => region.handle(),
            Kept::Window(window, _) => window.handle(),
        }
    }

    /// Bytes of a frame; 0 without frames.
    #[inline(always)]
    pub(crate) fn frame_len(&self) -> u32 {
        (self.room >> 32) as u32
    }

    #[inline(always)]
    pub(crate) fn lkey(&self) -> u32 {
        self.room as u32
    }

    /// Number of frames.
    pub(crate) fn count(&self) -> u32 {
        self.cells.len() as u32
    }

    pub(crate) fn pop(&self) -> Option<u32> {
        // Acquire: pairs with the Release in `push`, so that the last owner's stores into frame and
        // cell are visible.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = head as u32;
            // If another thread takes the frame meanwhile, this may read a count of handles. The
            // exchange below then fails.
            let next = self.cells.get(index as usize)?.next.load(Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self.head.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    /// Spreads a length over the frame at `place` and its chain. Returns the share of the first
    /// frame, at most its capacity.
    ///
    /// # Safety
    ///
    /// The caller owns the frame exclusively.
    #[cold]
    #[inline(never)]
    unsafe fn spread(&self, place: u64, len: u32) -> u32 {
        let Some(cell) = self.cells.get(index(place) as usize) else { return 0 };
        let mut left = len - len.min(self.frame_len());
        // SAFETY: the caller owns the frame, and so its cell.
        let mut next = unsafe { (*cell.link.get()).as_mut() };
        while let Some(held) = next {
            let len = left.min(held.memory.frame_len());
            held.set_bytes(len);
            left -= len;
            next = held.rest_mut();
        }
        len.min(self.frame_len())
    }

    /// Returns what `place` names to its slab, and hands out the rest of its chain.
    ///
    /// # Safety
    ///
    /// The caller gives up its reference to what `place` names.
    unsafe fn put_back(&self, place: u64) -> Option<(*const Self, u64)> {
        if place & EXPOSED != 0 {
            return None;
        }
        let cell = self.cells.get(index(place) as usize)?;
        if place & LENT != 0 {
            // Release, and Acquire for the last handle: all reads of the frame come before its
            // reuse.
            if cell.next.fetch_sub(1, Ordering::Release) != 1 {
                return None;
            }
            fence(Ordering::Acquire);
        }
        let mut rest = None;
        if place & CHAINED != 0 {
            // SAFETY: the caller owns the frame exclusively, and so its cell.
            rest = unsafe { (*cell.link.get()).take() };
        }
        self.push(index(place));
        let rest = ManuallyDrop::new(rest?);
        Some((Arc::as_ptr(&rest.memory), rest.place))
    }

    fn push(&self, index: u32) {
        // A frame's index always has a cell. Dropping a frame must not contain a check that panics.
        let Some(cell) = self.cells.get(index as usize) else { return };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            cell.next.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(index);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: Drop runs once, and nothing uses the field after it.
        match unsafe { ManuallyDrop::take(&mut self.kept) } {
            Kept::Memory(region, memory) => region.retire(memory),
            Kept::Bytes(region, bytes) => region.retire(bytes),
            Kept::Window(window, memory) => window.retire(memory),
        }
    }
}

// SAFETY: the mapping is plain memory of the process; the free list is atomic; a cell belongs to
// the owner of its frame.
unsafe impl Send for Registered {}
// SAFETY: bytes and cells are accessed only through the one `Frame` of each index, or read through
// handles that share it.
unsafe impl Sync for Registered {}

/// Reference that a work request holds until its completion: a frame with its chain, a handle of a
/// shared frame, or a handle of exposed memory. Two words. Dropping it returns the memory.
pub struct Held {
    // Taken in Drop.
    memory: ManuallyDrop<Arc<Registered>>,
    /// Marks, index, length.
    place: u64,
}

const _: () = assert!(size_of::<Option<Held>>() == 16);

impl Held {
    /// Frame `index`, just [popped](Registered::pop), of full length.
    pub(crate) fn new(memory: Arc<Registered>, index: u32) -> Self {
        let place = u64::from(index) << INDEX | u64::from(memory.frame_len());
        Self { memory: ManuallyDrop::new(memory), place }
    }

    /// Reference to exposed memory.
    #[inline(always)]
    pub(crate) fn exposed(memory: Arc<Registered>) -> Self {
        Self { memory: ManuallyDrop::new(memory), place: LENT | EXPOSED }
    }

    #[inline(always)]
    pub(crate) fn memory(&self) -> &Arc<Registered> {
        &self.memory
    }

    #[inline(always)]
    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    /// Length in bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> u32 {
        self.place as u32
    }

    /// Sets the length, which is at most the frame's.
    #[inline(always)]
    pub(crate) fn set_bytes(&mut self, len: u32) {
        self.place = self.place >> INDEX << INDEX | u64::from(len);
    }

    pub(crate) fn mark(&mut self, marks: u64, on: bool) {
        self.place = if on { self.place | marks } else { self.place & !marks };
    }

    /// Index of the frame in its slab.
    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        index(self.place)
    }

    /// Address of the first byte.
    #[inline(always)]
    pub(crate) fn pointer(&self) -> *mut u8 {
        let offset = self.index() as usize * self.memory.frame_len() as usize;
        self.memory.base.wrapping_add(offset)
    }

    /// SGE of the bytes in use.
    #[inline(always)]
    pub(crate) fn sge(&self) -> Sge {
        let len = self.bytes();
        // SAFETY: a length is at most its frame's ([`set_bytes`](Self::set_bytes)), which
        // `Registered::new` checked; without a frame it is 0. The hint spares posts a check.
        unsafe { std::hint::assert_unchecked(len <= LONGEST_FRAME) };
        Sge { addr: self.address(), len, lkey: self.memory.lkey() }
    }

    /// SGE of the whole frame, regardless of its length.
    #[inline(always)]
    pub(crate) fn room(&self) -> Sge {
        let len = self.memory.frame_len();
        // SAFETY: `Slab::new` and `Registered::new` checked the length. The hint spares posts a
        // check.
        unsafe { std::hint::assert_unchecked(len != 0 && len <= LONGEST_FRAME) };
        Sge { addr: self.address(), len, lkey: self.memory.lkey() }
    }

    #[inline(always)]
    fn address(&self) -> u64 {
        self.pointer().expose_provenance() as u64
    }

    /// True if the memory is only lent to the device, and must not be handed out as a frame.
    #[inline(always)]
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.place & LENT != 0
    }

    /// Spreads a length over the frame and the rest of its chain, whose lengths are 0 so far.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, len: u32) {
        let mut first = len;
        if len > self.memory.frame_len() {
            // By value: the frame stays in registers.
            // SAFETY: `place` names a frame that the caller owns.
            first = unsafe { self.memory.spread(self.place, len) };
        }
        self.set_bytes(first);
    }

    /// The next frame of the chain.
    pub(crate) fn rest(&self) -> Option<&Self> {
        if self.place & CHAINED == 0 {
            return None;
        }
        // SAFETY: the cell belongs to this frame. Cells of shared frames are never written. The
        // reference lives no longer than the owner of the cell.
        self.cell().and_then(|cell| unsafe { (*cell.link.get()).as_ref() })
    }

    /// Mutable access to the rest of the chain.
    pub(crate) fn rest_mut(&mut self) -> Option<&mut Self> {
        if self.place & (CHAINED | LENT) != CHAINED {
            return None;
        }
        // SAFETY: the frame is not shared, so the cell belongs to it alone; `&mut self` makes the
        // access unique.
        self.cell().and_then(|cell| unsafe { (*cell.link.get()).as_mut() })
    }

    /// Replaces the rest of the chain, and returns the old rest.
    pub(crate) fn replace_rest(&mut self, rest: Option<Self>) -> Option<Self> {
        debug_assert!(self.place & LENT == 0);
        let follows = rest.is_some();
        // SAFETY: as in `rest_mut`.
        let before = self.cell().and_then(|cell| unsafe { (*cell.link.get()).take() });
        if let Some(cell) = self.cell() {
            // SAFETY: as in `rest_mut`. The assignment drops nothing, because the cell is empty.
            unsafe { *cell.link.get() = rest };
            self.mark(CHAINED, follows);
        }
        before
    }

    /// Another reference to the same memory. For a shared frame the caller has counted it.
    pub(crate) fn again(&self) -> Self {
        debug_assert!(self.place & LENT != 0);
        Self { memory: self.memory.clone(), place: self.place }
    }

    /// Number of handles of a shared frame.
    pub(crate) fn handles(&self) -> Option<&AtomicU32> {
        self.cell().map(|cell| &cell.next)
    }

    fn cell(&self) -> Option<&Cell> {
        self.memory.cells.get(self.index() as usize)
    }
}

/// Index in a place.
#[inline(always)]
fn index(place: u64) -> u32 {
    (place >> INDEX) as u32 & (MOST_FRAMES - 1)
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: Drop runs once, and nothing uses the field after it.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        // SAFETY: the pointer is a counted reference that is used nowhere else now, and this `Held`
        // owned what `place` names.
        unsafe { give_back(Arc::into_raw(memory), self.place) };
    }
}

/// Returns held memory to its owner. One call by value, out of line: a small drop would be inlined
/// into the clean-up code of programs. A call by reference would take the address of the object
/// that holds the frame, so that a completion must live in memory.
///
/// `extern "C"` functions don't unwind, so callers need no clean-up code for a panic here.
///
/// # Safety
///
/// `memory` comes from [`Arc::into_raw`]. The caller gives up that reference, and its reference to
/// what `place` names.
#[inline(never)]
unsafe extern "C" fn give_back(memory: *const Registered, place: u64) {
    if place & SPECIAL != 0 {
        // SAFETY: both functions have one contract.
        return unsafe { give_back_special(memory, place) };
    }
    // SAFETY: `memory` comes from `Arc::into_raw`, and its reference is given up.
    let memory = unsafe { Arc::from_raw(memory) };
    memory.push(index(place));
}

/// Returns chains, shared frames and exposed memory. A loop instead of a recursion, because a long
/// chain would exceed the stack.
///
/// # Safety
///
/// The contract of [`give_back`].
#[cold]
#[inline(never)]
unsafe extern "C" fn give_back_special(memory: *const Registered, place: u64) {
    let mut next = Some((memory, place));
    while let Some((memory, place)) = next {
        // SAFETY: the reference is the caller's, or was held by the frame before it in the chain.
        let memory = unsafe { Arc::from_raw(memory) };
        // SAFETY: the reference to what `place` names is given up.
        next = unsafe { memory.put_back(place) };
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("exposed", &(self.place & EXPOSED != 0))
            .field("shared", &(self.place & (EXPOSED | LENT) == LENT))
            .field("index", &self.index())
            .field("len", &self.bytes())
            .finish_non_exhaustive()
    }
}
