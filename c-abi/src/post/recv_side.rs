//! Receive queue of a queue pair or work queue, by provider.
//!
//! # Safety
//!
//! Unsafe functions forward to the provider's, with its contract.
#![allow(unsafe_code, reason = "functions of providers")]

use uverbs::provider::AnyRq;
use uverbs_core::provider::RqOps;

use crate::base::lock::Stays;

/// The receive queue of a queue pair, by provider.
pub(crate) enum RecvSide {
    Mlx5(uverbs_mlx5::Rq),
    Rxe(uverbs_rxe::Rq),
    Siw(uverbs_siw::Rq),
    Rdmavt(uverbs_rdmavt::Rq),
    Efa(uverbs_efa::Rq),
    /// No receive queue: an XRC target.
    None,
}

impl Stays for RecvSide {}

impl RecvSide {
    pub(crate) fn new(rq: AnyRq) -> Self {
        match rq {
            AnyRq::Mlx5(rq) => Self::Mlx5(rq),
            AnyRq::Rxe(rq) => Self::Rxe(rq),
            AnyRq::Siw(rq) => Self::Siw(rq),
            AnyRq::Rdmavt(rq) => Self::Rdmavt(rq),
            AnyRq::Efa(rq) => Self::Efa(rq),
        }
    }

    pub(crate) fn enable(&mut self, on: bool) {
        match self {
            Self::Mlx5(rq) => rq.enable(on),
            Self::Rxe(rq) => rq.enable(on),
            Self::Siw(rq) => rq.enable(on),
            Self::Rdmavt(rq) => rq.enable(on),
            Self::Efa(rq) => rq.enable(on),
            Self::None => {}
        }
    }

    /// See [`RqOps::reset`].
    ///
    /// # Safety
    ///
    /// As for [`RqOps::reset`].
    pub(crate) unsafe fn reset(&mut self) {
        // SAFETY: by the contract of `reset`.
        unsafe {
            match self {
                Self::Mlx5(rq) => rq.reset(),
                Self::Rxe(rq) => rq.reset(),
                Self::Siw(rq) => rq.reset(),
                Self::Rdmavt(rq) => rq.reset(),
                Self::Efa(rq) => rq.reset(),
                Self::None => {}
            }
        }
    }
}
