//! Arguments of safe posts: frames, shared frames, parts and chains of them, and parts of exposed
//! memory.
//!
//! # Safety
//!
//! The file declares unsafe traits and implements them. Each implementation names only memory that
//! its `Held` keeps registered. Until the `Held` is dropped, only the device, or only readers,
//! access that memory; exposed memory is accessed atomically.
#![allow(unsafe_code, reason = "who implements these promises what a device may do")]

use std::ops::{Bound, RangeBounds};

use crate::memory::exposed::ExposedPart;
use crate::memory::frame::Frame;
use crate::memory::indirect::IndirectPart;
use crate::memory::registered::Held;
use crate::memory::shared::SharedFrame;
use crate::queues::work::{PostError, Sge};

/// Maximum SGEs of a safe post. No device takes more in a work request.
pub const MOST_PIECES: usize = 32;

/// Array for the SGEs of one post.
pub type Pieces = [Sge; MOST_PIECES];

/// A range of a frame or a shared frame, as the argument of a post, which takes the whole frame.
#[derive(Debug)]
pub struct Part<D = Frame> {
    // Private, because the range was cut to the length of this frame.
    of: D,
    start: u32,
    len: u32,
}

impl<D> Part<D> {
    /// Cuts `range` to the first `len` bytes.
    #[inline(always)]
    fn new(range: impl RangeBounds<usize>, len: u32, of: D) -> Self {
        let cut = |at: usize| u32::try_from(at).unwrap_or(u32::MAX).min(len);
        let start = match range.start_bound() {
            Bound::Included(at) => cut(*at),
            Bound::Excluded(at) => cut(at.saturating_add(1)),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(at) => cut(at.saturating_add(1)),
            Bound::Excluded(at) => cut(*at),
            Bound::Unbounded => len,
        };
        Self { of, start, len: end.saturating_sub(start) }
    }

    /// The whole frame.
    ///
    /// The frame can't be replaced by another, whose length may be shorter than the range:
    ///
    /// ```compile_fail,E0616
    /// # use uverbs_core::memory::{frame::Frame, post::Part};
    /// # fn f(mut part: Part, other: Frame) {
    /// part.of = other;
    /// # }
    /// ```
    #[must_use]
    pub fn into_whole(self) -> D {
        self.of
    }

    #[inline(always)]
    fn cut(&self, sge: Sge) -> Sge {
        Sge { addr: sge.addr.wrapping_add(self.start.into()), len: self.len, ..sge }
    }
}

/// A frame or a shared frame with the rest of its chain, posted as one message.
#[derive(Debug)]
pub struct Chain<D = Frame> {
    /// The first frame, which holds the rest.
    pub of: D,
}

impl Frame {
    /// Argument of a post that uses only these bytes, without copying. The range is cut to the
    /// bytes that exist.
    ///
    /// `frame.part(40..)` is a received datagram without the 40 bytes in front of it.
    #[inline(always)]
    #[must_use]
    pub fn part(self, range: impl RangeBounds<usize>) -> Part {
        Part::new(range, self.held().bytes(), self)
    }

    /// Argument of a post that uses the whole chain as one message.
    #[inline(always)]
    #[must_use]
    pub fn chain(self) -> Chain {
        Chain { of: self }
    }
}

impl SharedFrame {
    /// Argument of a post that uses only these bytes; see [`Frame::part`].
    #[inline(always)]
    #[must_use]
    pub fn part(self, range: impl RangeBounds<usize>) -> Part<Self> {
        Part::new(range, self.held().bytes(), self)
    }

    /// Argument of a post that uses the whole chain as one message.
    #[inline(always)]
    #[must_use]
    pub fn chain(self) -> Chain<Self> {
        Chain { of: self }
    }
}

/// Memory that a post can send from.
///
/// # Safety
///
/// The SGEs belong to the named protection domain. The device may read their memory until the
/// `Held` of [`hold`](Self::hold) is dropped. Until then the memory is not freed, and written only
/// by atomic accesses. If [`MAPPED`](Self::MAPPED) is true, SGEs are mapped at their addresses.
pub unsafe trait Source: Sized {
    /// True if there may be several SGEs.
    const LIST: bool = false;
    /// True if SGEs are mapped in this process at their addresses. The poller copies data in a CQE
    /// to that address, so a queue pair with such CQEs rejects unmapped SGEs.
    const MAPPED: bool = true;

    /// Number of the protection domain of the first SGE.
    fn domain(&self) -> u64;

    /// The first SGE.
    fn first(&self) -> Sge;

    /// All SGEs. Fails if one belongs to another protection domain than the first.
    ///
    /// # Errors
    ///
    /// [`PostError::TooManySges`], [`PostError::ForeignBuffer`].
    fn pieces<'a>(&self, to: &'a mut Pieces) -> Result<&'a [Sge], PostError> {
        to[0] = self.first();
        Ok(&to[..1])
    }

    /// Converts into the `Held` that keeps the memory until the completion.
    fn hold(self) -> Held;
}

/// Memory that the device may also write: the destination of a READ or an atomic.
///
/// # Safety
///
/// The contract of [`Source`]; meanwhile the memory is read only by atomic accesses.
pub unsafe trait Target: Source {}

/// Memory that a receive can fill.
///
/// # Safety
///
/// The contract of [`Target`].
pub unsafe trait Room: Target {
    /// The first SGE, with its full capacity as length.
    fn room(&self) -> Sge;

    /// Sets the lengths of a chain to the capacities. Called before [`pieces`](Source::pieces).
    fn open(&mut self) {}

    /// Sets the lengths of a chain's later frames to 0, until the completion sets them. Called
    /// after the post.
    fn close(&mut self) {}
}

/// Implements `Source` for a frame and a shared frame: whole, in part, and chained.
macro_rules! source {
    ($type:ty, $self:ident => $held:expr, $first:expr, $hold:expr) => {
        source!($type, $self => $held, $first, $hold,);
    };
    ($type:ty, $self:ident => $held:expr, $first:expr, $hold:expr, $($list:item)*) => {
        // SAFETY: an owned frame is the only access to its bytes, also for chained frames, and its
        // `Held` keeps it from the program. A shared frame and its chain are not written while a
        // handle lives, and its `Held` is a handle.
        unsafe impl Source for $type {
            #[inline(always)]
            fn domain(&$self) -> u64 {
                $held.memory().domain
            }

            #[inline(always)]
            fn first(&$self) -> Sge {
                $first
            }

            #[inline(always)]
            fn hold($self) -> Held {
                $hold
            }

            $($list)*
        }
    };
}

source!(Frame, self => self.held(), self.held().sge(), self.into_held());
source!(SharedFrame, self => self.held(), self.held().sge(), self.into_held());
source!(Part<Frame>, self => self.of.held(), self.cut(self.of.held().sge()), self.of.into_held());
source!(
    Part<SharedFrame>,
    self => self.of.held(),
    self.cut(self.of.held().sge()),
    self.of.into_held()
);
source!(Chain<Frame>, self => self.of.held(), self.of.held().sge(), self.of.into_held(),
    const LIST: bool = true;
    fn pieces<'a>(&self, to: &'a mut Pieces) -> Result<&'a [Sge], PostError> {
        chain(self.of.held(), to)
    }
);
source!(Chain<SharedFrame>, self => self.of.held(), self.of.held().sge(), self.of.into_held(),
    const LIST: bool = true;
    fn pieces<'a>(&self, to: &'a mut Pieces) -> Result<&'a [Sge], PostError> {
        chain(self.of.held(), to)
    }
);

// SAFETY: the frame was moved into the post, so the program cannot access it.
unsafe impl Target for Frame {}
// SAFETY: the frame was moved into the post, so the program cannot access it.
unsafe impl Target for Part<Frame> {}
// SAFETY: the frame was moved into the post, so the program cannot access it.
unsafe impl Target for Chain<Frame> {}

// SAFETY: the frame was moved into the post, and its whole capacity belongs to it.
unsafe impl Room for Frame {
    #[inline(always)]
    fn room(&self) -> Sge {
        self.held().room()
    }
}

// SAFETY: the frames were moved into the post, and their whole capacity belongs to them.
unsafe impl Room for Chain<Frame> {
    fn room(&self) -> Sge {
        self.of.held().room()
    }

    fn open(&mut self) {
        self.of.open_chain();
    }

    fn close(&mut self) {
        self.of.close_rest();
    }
}

// SAFETY: exposed memory is accessed only by atomics, and its `Held` keeps it registered.
unsafe impl Source for ExposedPart {
    #[inline(always)]
    fn domain(&self) -> u64 {
        self.domain()
    }

    #[inline(always)]
    fn first(&self) -> Sge {
        self.sge()
    }

    #[inline(always)]
    fn hold(self) -> Held {
        self.into_held()
    }
}

// SAFETY: exposed memory is accessed only by atomics.
unsafe impl Target for ExposedPart {}

// SAFETY: exposed memory is accessed only by atomics.
unsafe impl Room for ExposedPart {
    #[inline(always)]
    fn room(&self) -> Sge {
        self.sge()
    }
}

// SAFETY: an indirect key names only exposed memory, which is accessed by atomics and kept as long
// as the key. The `Held` of the part keeps the key. The device rejects a key without a layout.
unsafe impl Source for IndirectPart {
    // Addresses of an indirect key are offsets from its beginning.
    const MAPPED: bool = false;

    #[inline(always)]
    fn domain(&self) -> u64 {
        self.domain()
    }

    #[inline(always)]
    fn first(&self) -> Sge {
        self.sge()
    }

    #[inline(always)]
    fn hold(self) -> Held {
        self.into_held()
    }
}

// SAFETY: an indirect key names only exposed memory.
unsafe impl Target for IndirectPart {}

// SAFETY: an indirect key names only exposed memory.
unsafe impl Room for IndirectPart {
    #[inline(always)]
    fn room(&self) -> Sge {
        self.sge()
    }
}

/// SGEs of a frame and of its chain.
fn chain<'a>(first: &Held, to: &'a mut Pieces) -> Result<&'a [Sge], PostError> {
    let domain = first.memory().domain;
    to[0] = first.sge();
    let mut count = 1;
    let mut next = first.rest();
    while let Some(frame) = next {
        if frame.memory().domain != domain {
            return Err(PostError::ForeignBuffer);
        }
        *to.get_mut(count).ok_or(PostError::TooManySges)? = frame.sge();
        count += 1;
        next = frame.rest();
    }
    Ok(&to[..count])
}
