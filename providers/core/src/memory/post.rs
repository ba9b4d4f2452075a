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

/// Pieces that a safe post looks at. No device takes more in a work request.
pub const MOST_PIECES: usize = 32;

/// Room for the pieces of one post.
pub type Pieces = [Sge; MOST_PIECES];

/// Some bytes of a frame or a shared frame, to be posted. The rest of it comes along.
#[derive(Debug)]
pub struct Part<D = Frame> {
    // Private: the range was cut to this frame's length, and to no other's.
    of: D,
    start: u32,
    len: u32,
}

impl<D> Part<D> {
    /// The bytes in `range` of the first `len`.
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

    /// All of it.
    ///
    /// Another frame can't be put in its place, whose length the range was not cut to:
    ///
    /// ```compile_fail,E0616
    /// # fn f(mut part: uverbs_core::memory::post::Part, other: uverbs_core::memory::frame::Frame) {
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

/// A frame or a shared frame and all that follow it, to be posted as one message.
#[derive(Debug)]
pub struct Chain<D = Frame> {
    /// The first frame, and with it the rest.
    pub of: D,
}

impl Frame {
    /// To post these bytes of it alone, without moving any. What is not there is left out.
    ///
    /// `frame.part(40..)` is a received datagram without the 40 bytes that stand before it.
    #[inline(always)]
    #[must_use]
    pub fn part(self, range: impl RangeBounds<usize>) -> Part {
        Part::new(range, self.held().bytes(), self)
    }

    /// To post it and all frames that follow it as one message.
    #[inline(always)]
    #[must_use]
    pub fn chain(self) -> Chain {
        Chain { of: self }
    }
}

impl SharedFrame {
    /// To post these bytes of it alone; see [`Frame::part`].
    #[inline(always)]
    #[must_use]
    pub fn part(self, range: impl RangeBounds<usize>) -> Part<Self> {
        Part::new(range, self.held().bytes(), self)
    }

    /// To post it and all frames that follow it as one message.
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
/// The pieces are registered in the domain that is named. The device may read them until the `Held`
/// of [`hold`](Self::hold) is dropped; meanwhile they are not freed, and written by atomic accesses
/// only. If [`MAPPED`](Self::MAPPED) is true they are mapped at their addresses.
pub unsafe trait Source: Sized {
    /// True if there may be more than one piece.
    const LIST: bool = false;
    /// True if a piece is mapped in this process at its address. Data in a CQE is copied to that
    /// address, so a queue pair with such CQEs cannot write unmapped pieces.
    const MAPPED: bool = true;

    /// The protection domain of the first piece.
    fn domain(&self) -> u64;

    /// The first piece.
    fn first(&self) -> Sge;

    /// All pieces; those in another domain than the first one's are refused.
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
/// As for [`Source`]; meanwhile the pieces are read by atomic accesses only.
pub unsafe trait Target: Source {}

/// Memory that a receive can fill.
///
/// # Safety
///
/// As for [`Target`].
pub unsafe trait Room: Target {
    /// The first piece, as long as it can be.
    fn room(&self) -> Sge;

    /// Before [`pieces`](Source::pieces): makes each as long as it can be.
    fn open(&mut self) {}

    /// After the post: all but the first piece have no bytes until the completion says so.
    fn close(&mut self) {}
}

/// Implements `Source` for a frame and a shared frame, whole, in part or chained.
macro_rules! source {
    ($type:ty, $self:ident => $held:expr, $first:expr, $hold:expr) => {
        source!($type, $self => $held, $first, $hold,);
    };
    ($type:ty, $self:ident => $held:expr, $first:expr, $hold:expr, $($list:item)*) => {
        // SAFETY: a frame is the only way to its bytes, and so are those that follow it: what holds
        // it has them, and nothing else. A shared one, and those that follow it, nobody writes
        // while a handle lives, and what holds it is one.
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
source!(Part<SharedFrame>, self => self.of.held(), self.cut(self.of.held().sge()), self.of.into_held());
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

// SAFETY: as above; a frame's whole capacity is its own.
unsafe impl Room for Frame {
    #[inline(always)]
    fn room(&self) -> Sge {
        self.held().room()
    }
}

// SAFETY: as above.
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

// SAFETY: exposed memory is reached by atomic accesses only, and what holds it keeps it registered.
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

// SAFETY: as above.
unsafe impl Target for ExposedPart {}

// SAFETY: as above.
unsafe impl Room for ExposedPart {
    #[inline(always)]
    fn room(&self) -> Sge {
        self.sge()
    }
}

// SAFETY: an indirect key names exposed memory alone, which is reached by atomic accesses only and
// kept until the key is no more; what holds the part keeps the key. Without a layout the device
// refuses the key.
unsafe impl Source for IndirectPart {
    // It counts from the key's beginning.
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

// SAFETY: as above.
unsafe impl Target for IndirectPart {}

// SAFETY: as above.
unsafe impl Room for IndirectPart {
    #[inline(always)]
    fn room(&self) -> Sge {
        self.sge()
    }
}

/// The pieces of a frame and of what follows it.
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
