//! The sending side of a queue pair, by provider: what a lock of C's guards.
//!
//! # Safety
//!
//! That a queue stays with a thread is what the lock promises.
#![allow(unsafe_code, reason = "hands on what the lock promises")]

use uverbs::provider::{AnyAh, AnySq};
use uverbs_core::Errno;
use uverbs_core::provider::{PieceOps, RunOps, SendOps};
use uverbs_core::queues::work::{Checksums, PostError, SendOp, Sge, Wr};

use crate::base::lock::Stays;
use crate::sys::ibv_ah;

/// The send queue of one provider, which knows its own address handles.
pub(crate) trait Sends: PieceOps + RunOps {
    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah>;

    /// Index of the next work request modulo 65536, where completions name them by that.
    fn index(at: &Self::Cursor) -> Option<u16> {
        let _ = at;
        None
    }

    /// The side that is of this provider.
    fn side(side: &mut SendSide) -> Option<&mut Side<Self>>
    where
        Self: Sized;
}

/// A send queue, and what its program builds there.
pub(crate) struct Side<S: Sends> {
    pub(crate) sq: S,
    pub(crate) build: Build<S>,
}

pub(crate) enum SendSide {
    Mlx5(Side<uverbs_mlx5::Sq>),
    Rxe(Side<uverbs_rxe::Sq>),
    #[cfg(feature = "any-siw")]
    Siw(Side<uverbs_siw::Sq>),
    /// Of a target of XRC.
    None,
}

impl Sends for uverbs_mlx5::Sq {
    #[inline(always)]
    fn index(at: &Self::Cursor) -> Option<u16> {
        Some(at.index())
    }

    #[inline(always)]
    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah> {
        if let AnyAh::Mlx5(ah) = ah { Some(ah) } else { None }
    }

    #[inline(always)]
    fn side(side: &mut SendSide) -> Option<&mut Side<Self>> {
        if let SendSide::Mlx5(side) = side { Some(side) } else { None }
    }
}

impl Sends for uverbs_rxe::Sq {
    #[inline(always)]
    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah> {
        if let AnyAh::Rxe(ah) = ah { Some(ah) } else { None }
    }

    #[inline(always)]
    fn side(side: &mut SendSide) -> Option<&mut Side<Self>> {
        if let SendSide::Rxe(side) = side { Some(side) } else { None }
    }
}

#[cfg(feature = "any-siw")]
impl Sends for uverbs_siw::Sq {
    #[inline(always)]
    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah> {
        if let AnyAh::Siw(ah) = ah { Some(ah) } else { None }
    }

    #[inline(always)]
    fn side(side: &mut SendSide) -> Option<&mut Side<Self>> {
        if let SendSide::Siw(side) = side { Some(side) } else { None }
    }
}

impl SendSide {
    pub(crate) fn new(sq: AnySq) -> Self {
        match sq {
            AnySq::Mlx5(sq) => Self::Mlx5(Side { sq, build: Build::default() }),
            AnySq::Rxe(sq) => Self::Rxe(Side { sq, build: Build::default() }),
            #[cfg(feature = "any-siw")]
            AnySq::Siw(sq) => Self::Siw(Side { sq, build: Build::default() }),
        }
    }

    pub(crate) fn enable(&mut self, on: bool) {
        match self {
            Self::Mlx5(side) => side.sq.enable(on),
            Self::Rxe(side) => side.sq.enable(on),
            #[cfg(feature = "any-siw")]
            Self::Siw(side) => side.sq.enable(on),
            Self::None => {}
        }
    }

    /// See [`SendOps::reset`].
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn reset(&mut self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Mlx5(side) => side.sq.reset(),
                Self::Rxe(side) => side.sq.reset(),
                #[cfg(feature = "any-siw")]
                Self::Siw(side) => side.sq.reset(),
                Self::None => {}
            }
        }
    }
}

impl Stays for SendSide {
    unsafe fn stay(&mut self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Mlx5(side) => side.sq.stay(),
                Self::Rxe(side) => side.sq.stay(),
                #[cfg(feature = "any-siw")]
                Self::Siw(side) => side.sq.stay(),
                Self::None => {}
            }
        }
    }

    fn leave(&mut self) {
        match self {
            Self::Mlx5(side) => side.sq.leave(),
            Self::Rxe(side) => side.sq.leave(),
            #[cfg(feature = "any-siw")]
            Self::Siw(side) => side.sq.leave(),
            Self::None => {}
        }
    }
}

impl<S: Sends> Side<S> {
    /// Posts what isn't made piece by piece.
    pub(crate) fn post(
        &mut self,
        post: impl FnOnce(&mut S, &mut S::Cursor) -> Result<(), PostError>,
    ) {
        let Side { sq, build } = self;
        if build.failed.is_some() {
            return;
        }
        let mut cursor = sq.cursor(&build.at);
        match post(sq, &mut cursor) {
            Ok(()) => S::move_to(&mut build.at, &cursor),
            Err(error) => build.fail(error),
        }
    }
}

/// What stands between `wr_start` and its end.
pub(crate) struct Build<S: Sends> {
    /// Where the next one is written, and the one that waits for its pieces, where these are
    /// written as they come. From the first error on nothing is.
    pub(crate) at: S::Place,
    /// That error.
    pub(crate) failed: Option<Errno>,
    /// The operation that waits for its pieces, where it is written when all are there.
    pub(crate) waits: Option<(Wr, SendOp)>,
    pub(crate) to: Option<To>,
    /// What such a send carries that came before where it goes.
    pub(crate) kept: Option<Kept>,
}

/// Where a send goes that names it.
#[derive(Clone, Copy)]
pub(crate) enum To {
    Datagram(Peer),
    /// A shared receive queue of the peer's, of XRC.
    Srq(u32),
    /// A target of dynamic connections.
    Target(Target),
    /// Wherever its headers say, of a whole packet.
    Wire(Checksums),
}

/// Where a datagram goes.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) ah: *const ibv_ah,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

// SAFETY: the handle is reached by whoever holds the lock, as its program promises.
unsafe impl Send for Peer {}

/// Where a send of dynamic connections goes.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) ah: *const ibv_ah,
    pub(crate) dctn: u32,
    pub(crate) key: u64,
    pub(crate) stream: u16,
}

// SAFETY: as above.
unsafe impl Send for Target {}

pub(crate) enum Kept {
    Pieces(Vec<Sge>),
    Bytes(Vec<u8>),
}

impl<S: Sends> Default for Build<S> {
    fn default() -> Self {
        Self { at: S::Place::default(), failed: None, waits: None, to: None, kept: None }
    }
}

impl<S: Sends> Build<S> {
    #[cold]
    pub(crate) fn fail(&mut self, error: PostError) {
        self.refuse(error.to_errno());
    }

    /// Nothing of what is built is posted.
    #[cold]
    pub(crate) fn refuse(&mut self, errno: Errno) {
        // The first one counts: the others follow from it.
        self.failed.get_or_insert(errno);
        S::refuse(&mut self.at);
    }
}
