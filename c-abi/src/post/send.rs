//! Send side of a queue pair, by provider; guarded by the send lock.
//!
//! # Safety
//!
//! The lock promises [`Stays`] that one thread uses the queue, and the send queue relies on it.
#![allow(unsafe_code, reason = "hands on what the lock promises")]

use uverbs::provider::{AnyAh, AnySq};
use uverbs_core::Errno;
use uverbs_core::provider::{BuildOps, SendOps};
use uverbs_core::queues::work::{Checksums, PostError, SendOp, Sge, Wr};

use crate::base::lock::Stays;
use crate::sys::ibv_ah;

/// Send queue of a provider.
pub(crate) trait Sends: BuildOps {
    /// Queue pairs of type `IBV_QPT_DRIVER` name the peer of each send as UD does (SRD).
    const DRIVER_NAMES_PEERS: bool = false;

    /// Error number of a refused post, as of the provider's C library.
    #[cold]
    fn errno(error: PostError) -> Errno {
        error.to_errno()
    }

    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah>;

    /// Index of the next WQE modulo 65536, if the provider's completions carry it.
    fn index(at: &Self::Cursor) -> Option<u16> {
        let _ = at;
        None
    }

    /// Returns the send side if it is this provider's.
    fn side(side: &mut SendSide) -> Option<&mut Side<Self>>
    where
        Self: Sized;
}

/// Send queue, and the state between `wr_start` and `wr_complete`.
pub(crate) struct Side<S: Sends> {
    pub(crate) sq: S,
    pub(crate) build: Build<S>,
}

pub(crate) enum SendSide {
    Mlx5(Side<uverbs_mlx5::Sq>),
    Rxe(Side<uverbs_rxe::Sq>),
    Siw(Side<uverbs_siw::Sq>),
    Rdmavt(Side<uverbs_rdmavt::Sq>),
    Efa(Side<uverbs_efa::Sq>),
    /// No send queue: an XRC target.
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

impl Sends for uverbs_rdmavt::Sq {
    #[inline(always)]
    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah> {
        if let AnyAh::Rdmavt(ah) = ah { Some(ah) } else { None }
    }

    #[inline(always)]
    fn side(side: &mut SendSide) -> Option<&mut Side<Self>> {
        if let SendSide::Rdmavt(side) = side { Some(side) } else { None }
    }
}

impl Sends for uverbs_efa::Sq {
    const DRIVER_NAMES_PEERS: bool = true;

    /// `EINVAL` also for data that does not fit (rdma-core `verbs.c:efa_post_send_validate_wr`).
    #[cold]
    fn errno(error: PostError) -> Errno {
        match error {
            PostError::TooManySges | PostError::InlineTooLong => Errno::EINVAL,
            error => error.to_errno(),
        }
    }

    #[inline(always)]
    fn own_ah(ah: &AnyAh) -> Option<&Self::Ah> {
        if let AnyAh::Efa(ah) = ah { Some(ah) } else { None }
    }

    #[inline(always)]
    fn side(side: &mut SendSide) -> Option<&mut Side<Self>> {
        if let SendSide::Efa(side) = side { Some(side) } else { None }
    }
}

impl SendSide {
    pub(crate) fn new(sq: AnySq) -> Self {
        match sq {
            AnySq::Mlx5(sq) => Self::Mlx5(Side::new(sq)),
            AnySq::Rxe(sq) => Self::Rxe(Side::new(sq)),
            AnySq::Siw(sq) => Self::Siw(Side::new(sq)),
            AnySq::Rdmavt(sq) => Self::Rdmavt(Side::new(sq)),
            AnySq::Efa(sq) => Self::Efa(Side::new(sq)),
        }
    }

    pub(crate) fn enable(&mut self, on: bool) {
        match self {
            Self::Mlx5(side) => side.sq.enable(on),
            Self::Rxe(side) => side.sq.enable(on),
            Self::Siw(side) => side.sq.enable(on),
            Self::Rdmavt(side) => side.sq.enable(on),
            Self::Efa(side) => side.sq.enable(on),
            Self::None => {}
        }
    }

    /// See [`SendOps::reset`].
    ///
    /// # Safety
    ///
    /// As for [`SendOps::reset`].
    pub(crate) unsafe fn reset(&mut self) {
        // SAFETY: by the contract of `reset`.
        unsafe {
            match self {
                Self::Mlx5(side) => side.sq.reset(),
                Self::Rxe(side) => side.sq.reset(),
                Self::Siw(side) => side.sq.reset(),
                Self::Rdmavt(side) => side.sq.reset(),
                Self::Efa(side) => side.sq.reset(),
                Self::None => {}
            }
        }
    }
}

impl Stays for SendSide {
    unsafe fn stay(&mut self) {
        // SAFETY: by the contract of `stay`.
        unsafe {
            match self {
                Self::Mlx5(side) => side.sq.stay(),
                Self::Rxe(side) => side.sq.stay(),
                Self::Siw(side) => side.sq.stay(),
                Self::Rdmavt(side) => side.sq.stay(),
                Self::Efa(side) => side.sq.stay(),
                Self::None => {}
            }
        }
    }

    fn leave(&mut self) {
        match self {
            Self::Mlx5(side) => side.sq.leave(),
            Self::Rxe(side) => side.sq.leave(),
            Self::Siw(side) => side.sq.leave(),
            Self::Rdmavt(side) => side.sq.leave(),
            Self::Efa(side) => side.sq.leave(),
            Self::None => {}
        }
    }
}

impl<S: Sends> Side<S> {
    fn new(mut sq: S) -> Self {
        let at = sq.begin();
        let open = S::Open::default();
        let build = Build { at, open, failed: None, waits: None, to: None, kept: None };
        Self { sq, build }
    }

    /// Posts a complete work request, unless an earlier one failed.
    pub(crate) fn post(
        &mut self,
        post: impl FnOnce(&mut S, &mut S::Cursor) -> Result<(), PostError>,
    ) {
        let Side { sq, build } = self;
        build.open = S::Open::default();
        if build.failed.is_some() {
            return;
        }
        if let Err(error) = post(sq, &mut build.at) {
            build.fail(error);
        }
    }
}

/// State between `wr_start` and `wr_complete` or `wr_abort`.
pub(crate) struct Build<S: Sends> {
    /// Position of the next WQE.
    pub(crate) at: S::Cursor,
    /// Unfinished WQE, where the provider writes in place.
    pub(crate) open: S::Open,
    /// First error since `wr_start`.
    pub(crate) failed: Option<Errno>,
    /// Operation that is written once its destination and data are set.
    pub(crate) waits: Option<(Wr, SendOp)>,
    pub(crate) to: Option<To>,
    /// Data set before the destination.
    pub(crate) kept: Option<Kept>,
}

/// Destination set for a single send.
#[derive(Clone, Copy)]
pub(crate) enum To {
    /// The peer of a connected queue pair.
    Peer,
    Datagram(Datagram),
    /// XRC: number of the peer's SRQ.
    Srq(u32),
    /// Target of dynamic connections.
    Target(Target),
    /// Raw packet: its headers name the destination.
    Wire(Checksums),
}

/// UD destination.
#[derive(Clone, Copy)]
pub(crate) struct Datagram {
    pub(crate) ah: *const ibv_ah,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

// SAFETY: the handle is used by the holder of the send lock; by C's contract it is valid then.
unsafe impl Send for Datagram {}

/// Destination of a dynamic connection.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) ah: *const ibv_ah,
    pub(crate) dctn: u32,
    pub(crate) key: u64,
    pub(crate) stream: u16,
}

// SAFETY: the handle is used by the holder of the send lock; by C's contract it is valid then.
unsafe impl Send for Target {}

pub(crate) enum Kept {
    Pieces(Vec<Sge>),
    Bytes(Vec<u8>),
}

impl<S: Sends> Build<S> {
    #[cold]
    pub(crate) fn fail(&mut self, error: PostError) {
        self.refuse(S::errno(error));
    }

    /// Fails all posts since `wr_start`: `wr_complete` drops them, and returns the first error.
    #[cold]
    pub(crate) fn refuse(&mut self, errno: Errno) {
        self.open = S::Open::default();
        self.failed.get_or_insert(errno);
    }
}
